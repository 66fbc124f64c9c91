// SPDX-License-Identifier: Apache-2.0
// The copy of metafence-run: whole or not there at all, whatever lies in its place.
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/install.h"
#include "base/buf.h"
#include "base/log.h"

#define SIZE 100001 // no multiple of anything

struct world {
    char dir[64];
    char source[96], target[96], tmp[96], other[96];
    char content[SIZE];
    struct err err;
};

static void write_file(const char *path, const char *bytes, size_t len, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    (void)snprintf(w->dir, sizeof(w->dir), "/tmp/metafence-install-XXXXXX");
    if (!mkdtemp(w->dir))
        return -1;
    (void)snprintf(w->source, sizeof(w->source), "%s/source", w->dir);
    (void)snprintf(w->target, sizeof(w->target), "%s/target", w->dir);
    (void)snprintf(w->tmp, sizeof(w->tmp), "%s/target.new", w->dir);
    (void)snprintf(w->other, sizeof(w->other), "%s/other", w->dir);
    for (size_t i = 0; i < SIZE; i++)
        w->content[i] = (char)(i * 31 + i / 255);
    write_file(w->source, w->content, SIZE, 0755);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    (void)unlink(w->source);
    (void)unlink(w->target);
    (void)rmdir(w->target);
    (void)unlink(w->tmp);
    (void)unlink(w->other);
    (void)rmdir(w->dir);
    free(w);
    return 0;
}

static struct stat stat_of(const char *path)
{
    struct stat st;

    assert_int_equal(lstat(path, &st), 0);
    return st;
}

static void expect_copy(struct world *w)
{
    struct stat st;
    static char read_back[SIZE + 1];
    int fd = -1;

    if (install_copy(w->source, w->target, &w->err) < 0)
        fail_msg("%s", w->err.msg);
    st = stat_of(w->target);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(st.st_mode & 07777, 0555);
    fd = open(w->target, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, read_back, sizeof(read_back)), SIZE);
    assert_memory_equal(read_back, w->content, SIZE);
    close(fd);
    assert_int_equal(access(w->tmp, F_OK), -1);
}

static void test_fresh(void **state)
{
    expect_copy(*state);
}

// An agent that is restarted does not touch what meta's container may just be executing.
static void test_identical_is_left_alone(void **state)
{
    struct world *w = *state;
    struct stat before;

    expect_copy(w);
    before = stat_of(w->target);
    expect_copy(w);
    assert_true(stat_of(w->target).st_ino == before.st_ino);
}

static void test_replaced(void **state)
{
    struct world *w = *state;
    int old = -1;
    char c = 0;

    // Longer, with the same beginning; then one byte off; then writable by others.
    write_file(w->target, w->content, SIZE, 0555);
    write_file(w->other, "x", 1, 0600);
    assert_int_equal(chmod(w->target, 0755), 0);
    old = open(w->target, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(old, "x", 1), 1);
    close(old);
    old = open(w->target, O_RDONLY | O_CLOEXEC);
    expect_copy(w);
    // Whoever runs the old one keeps it.
    assert_int_equal(pread(old, &c, 1, SIZE), 1);
    assert_int_equal(c, 'x');
    close(old);
    assert_int_equal(chmod(w->target, 0577), 0);
    expect_copy(w);
}

static void test_no_link_is_followed(void **state)
{
    struct world *w = *state;

    write_file(w->other, "precious", 8, 0600);
    assert_int_equal(symlink(w->other, w->target), 0);
    assert_int_equal(symlink(w->other, w->tmp), 0);
    expect_copy(w);
    assert_int_equal(stat_of(w->other).st_size, 8);
}

// What a killed agent has left.
static void test_half_a_copy(void **state)
{
    struct world *w = *state;

    write_file(w->tmp, w->content, SIZE / 2, 0400);
    expect_copy(w);
}

static void test_fifo_in_its_place(void **state)
{
    struct world *w = *state;

    assert_int_equal(mkfifo(w->target, 0600), 0);
    expect_copy(w);
}

static void test_errors(void **state)
{
    struct world *w = *state;
    char nowhere[128];

    (void)snprintf(nowhere, sizeof(nowhere), "%s/no/such/target", w->dir);
    assert_int_equal(install_copy(w->source, nowhere, &w->err), -1);
    assert_non_null(strstr(w->err.msg, nowhere));
    assert_non_null(strstr(w->err.msg, "No such file or directory"));
    assert_int_equal(install_copy(nowhere, w->target, &w->err), -1);
    assert_non_null(strstr(w->err.msg, nowhere));
    assert_int_equal(access(w->target, F_OK), -1);
    // A folder can't be replaced, and nothing is left behind.
    assert_int_equal(mkdir(w->target, 0755), 0);
    assert_int_equal(install_copy(w->source, w->target, &w->err), -1);
    assert_int_equal(w->err.kind, ERR_DENIED);
    assert_int_equal(access(w->tmp, F_OK), -1);
}

// No metafence-run lies beside this test: it is said once, and tried again each second.
static void test_retries(void **state)
{
    struct world *w = *state;
    struct install *install = NULL;
    struct loop *loop = NULL;
    struct buf log = {0};
    int pipes[2];
    ssize_t got = 0;

    assert_int_equal(pipe(pipes), 0);
    log_set_fd(pipes[1]);
    assert_int_equal(loop_new(&loop, &w->err), 0);
    assert_null(install_new(loop, ""));
    assert_null(install_error(NULL));
    install = install_new(loop, w->target);
    assert_non_null(strstr(install_error(install), "metafence-run"));
    assert_true(loop_turn(loop));
    assert_non_null(install_error(install));
    install_free(install);
    loop_free(loop);
    log_set_fd(2);
    close(pipes[1]);
    got = read(pipes[0], buf_reserve(&log, 65536), 65536);
    assert_true(got > 0);
    buf_added(&log, (size_t)got);
    assert_true(strstr(log.data, "trying again") != NULL);
    assert_null(strstr(strstr(log.data, "trying again") + 1, "trying again"));
    buf_done(&log);
    close(pipes[0]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(test_fresh),       TEST(test_identical_is_left_alone),
    TEST(test_replaced),    TEST(test_no_link_is_followed),
    TEST(test_half_a_copy), TEST(test_fifo_in_its_place),
    TEST(test_errors),      TEST(test_retries),
};

UNIT_MAIN(tests)
