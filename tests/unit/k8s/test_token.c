// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "k8s/token.h"

struct files {
    char dir[64];
    char path[96]; // -> ..data/token, as the kubelet does
    int generation;
};

static int setup(void **state)
{
    struct files *files = calloc(1, sizeof(*files));

    if (!files)
        return -1;
    (void)snprintf(files->dir, sizeof(files->dir), "/tmp/metafence-token-XXXXXX");
    if (!mkdtemp(files->dir))
        return -1;
    (void)snprintf(files->path, sizeof(files->path), "%s/token", files->dir);
    *state = files;
    return 0;
}

static int teardown(void **state)
{
    struct files *files = *state;
    char path[128];

    (void)unlink(files->path);
    for (int i = 1; i <= files->generation; i++) {
        (void)snprintf(path, sizeof(path), "%s/data%d", files->dir, i);
        (void)unlink(path);
    }
    if (rmdir(files->dir) != 0)
        return -1;
    free(files);
    return 0;
}

// A new file, and the link swapped to it.
static void put(struct files *files, const void *bytes, size_t len)
{
    char data[128];
    char link[128];
    int fd = -1;

    files->generation++;
    (void)snprintf(data, sizeof(data), "%s/data%d", files->dir, files->generation);
    (void)snprintf(link, sizeof(link), "%s/link", files->dir);
    fd = open(data, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    close(fd);
    assert_int_equal(symlink(data, link), 0);
    assert_int_equal(rename(link, files->path), 0);
}

static void put_text(struct files *files, const char *text)
{
    put(files, text, strlen(text));
}

static struct instant at(int seconds)
{
    return (struct instant){seconds * NS_PER_SEC};
}

static void test_rotation(void **state)
{
    struct files *files = *state;
    struct k8s_token token = {0};
    struct err err = {0};

    k8s_token_init(&token, files->path);
    assert_int_equal(k8s_token_refresh(&token, at(1), false, &err), -1);
    assert_int_equal(err.kind, ERR_TRANSIENT);
    assert_non_null(strstr(err.msg, files->path));
    put_text(files, "one\n");
    assert_int_equal(k8s_token_refresh(&token, at(2), false, &err), 0);
    assert_string_equal(token.text, "one");
    assert_int_equal(token.read_at.ns, at(2).ns);
    assert_int_equal(k8s_token_refresh(&token, at(3), false, &err), 0);
    assert_int_equal(token.reads, 1);
    put_text(files, "two \r\n");
    assert_int_equal(k8s_token_refresh(&token, at(4), false, &err), 0);
    assert_string_equal(token.text, "two");
    assert_int_equal(token.reads, 2);
    assert_int_equal(k8s_token_refresh(&token, at(63), false, &err), 0);
    assert_int_equal(token.reads, 2);
    assert_int_equal(k8s_token_refresh(&token, at(64), false, &err), 0);
    assert_int_equal(token.reads, 3); // a minute
    assert_int_equal(k8s_token_refresh(&token, at(65), true, &err), 0);
    assert_int_equal(token.reads, 4); // forced
    k8s_token_done(&token);
}

static void test_bad_files(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *why;
    } cases[] = {
        {"", 0, "empty"},
        {" \n", 2, "empty"},
        {"to\0ken", 6, "no token"},
        {"se cret", 7, "no token"},
        {"secret\r\nX-Other: 1", 18, "no token"},
        {"s\xc3\xa4"
         "cret",
         7, "no token"},
    };
    struct files *files = *state;
    struct k8s_token token = {0};
    struct err err = {0};
    struct buf large = {0};

    k8s_token_init(&token, files->path);
    put_text(files, "good");
    assert_int_equal(k8s_token_refresh(&token, at(1), false, &err), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        put(files, cases[i].bytes, cases[i].len);
        assert_int_equal(k8s_token_refresh(&token, at(2), false, &err), -1);
        assert_non_null(strstr(err.msg, cases[i].why));
        assert_null(strstr(err.msg, "cret"));
        assert_string_equal(token.text, "good"); // kept
    }
    for (int i = 0; i < K8S_TOKEN_MAX + 1; i++)
        buf_putc(&large, 'x');
    put(files, large.data, large.len);
    assert_int_equal(k8s_token_refresh(&token, at(3), false, &err), -1);
    assert_non_null(strstr(err.msg, "longer than"));
    put(files, large.data, K8S_TOKEN_MAX);
    assert_int_equal(k8s_token_refresh(&token, at(3), false, &err), 0);
    buf_done(&large);
    put_text(files, "good");
    assert_int_equal(k8s_token_refresh(&token, at(4), false, &err), 0);
    assert_int_equal(unlink(files->path), 0);
    assert_int_equal(k8s_token_refresh(&token, at(5), false, &err), -1);
    assert_int_equal(mkfifo(files->path, 0600), 0); // does not block
    assert_int_equal(k8s_token_refresh(&token, at(6), false, &err), -1);
    assert_string_equal(token.text, "good");
    k8s_token_done(&token);
}

static void test_none(void **state)
{
    struct k8s_token token = {0};
    struct err err = {0};

    (void)state;
    assert_int_equal(k8s_token_refresh(&token, at(1), true, &err), 0);
    assert_null(token.text);
    k8s_token_done(&token);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_rotation, setup, teardown),
    cmocka_unit_test_setup_teardown(test_bad_files, setup, teardown),
    cmocka_unit_test(test_none),
};

UNIT_MAIN(tests)
