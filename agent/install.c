// SPDX-License-Identifier: Apache-2.0
#include "agent/install.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

#define PROGRAM    "metafence-run"
#define MODE       0555
#define CHUNK_SIZE 16384
#define RETRY_NS   NS_PER_SEC

struct install {
    const char *target;
    struct loop_timer *retry;
    bool is_done;
    struct err err;
};

// A read that goes on after a signal, and fills the buffer but at the end of the file.
static ssize_t read_chunk(int fd, char *to)
{
    size_t done = 0;

    while (done < CHUNK_SIZE) {
        ssize_t got = read(fd, to + done, CHUNK_SIZE - done);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

static bool write_chunk(int fd, const char *from, size_t len)
{
    while (len > 0) {
        ssize_t put = write(fd, from, len);

        if (put < 0 && errno != EINTR)
            return false;
        if (put > 0) {
            from += put;
            len -= (size_t)put;
        }
    }
    return true;
}

static bool is_same_content(int a, int b)
{
    char of_a[CHUNK_SIZE];
    char of_b[CHUNK_SIZE];
    ssize_t len = 0;

    do {
        len = read_chunk(a, of_a);
        if (len < 0 || read_chunk(b, of_b) != len || memcmp(of_a, of_b, (size_t)len) != 0)
            return false;
    } while (len > 0);
    return true;
}

// Ours, with the mode that it should have, and byte for byte the same: an agent that was only
// restarted changes nothing.
static bool is_in_place(int source, const char *target)
{
    struct stat st;
    bool is_same = false;
    int fd = open(target, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        return false;
    is_same = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
              (st.st_mode & 07777) == MODE && is_same_content(source, fd);
    close(fd);
    return is_same && lseek(source, 0, SEEK_SET) == 0;
}

static bool copy_content(int from, int to)
{
    char bytes[CHUNK_SIZE];
    ssize_t len = 0;

    do {
        len = read_chunk(from, bytes);
        if (len < 0 || !write_chunk(to, bytes, (size_t)len))
            return false;
    } while (len > 0);
    return true;
}

static int copy_through(int source, const char *tmp, const char *target, struct err *err)
{
    bool is_whole = false;
    int fd = -1;

    // What a killed agent left, or what meta's container put there: it may write here too, so
    // no link of its making is followed.
    (void)unlink(tmp);
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(err, ERR_DENIED, errno, "can't create %s: %m", tmp);
    is_whole =
        lseek(source, 0, SEEK_SET) == 0 && copy_content(source, fd) && fchmod(fd, MODE) == 0;
    // Closed before the rename: a program that is still open for writing can't be executed.
    if (close(fd) != 0)
        is_whole = false;
    if (is_whole && rename(tmp, target) == 0)
        return 0;
    (void)err_set(err, ERR_DENIED, errno, "can't write %s: %m", target);
    (void)unlink(tmp); // what is left of it is of no use
    return -1;
}

int install_copy(const char *source, const char *target, struct err *err)
{
    char tmp[PATH_MAX];
    int fd = -1;
    int rc = 0;

    if (snprintf(tmp, sizeof(tmp), "%s.new", target) >= (int)sizeof(tmp))
        return err_set(err, ERR_INVALID, ENAMETOOLONG, "%.100s... is too long a path", target);
    fd = open(source, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(err, ERR_DENIED, errno, "can't read %s: %m", source);
    if (!is_in_place(fd, target))
        rc = copy_through(fd, tmp, target, err);
    close(fd);
    return rc;
}

// The program that belongs to this one: same build, same folder.
static int source_path(char *path, size_t size, struct err *err)
{
    ssize_t len = readlink("/proc/self/exe", path, size - 1);
    char *slash = NULL;

    if (len < 0)
        return err_set(err, ERR_DENIED, errno, "can't read /proc/self/exe: %m");
    path[len] = '\0';
    slash = strrchr(path, '/');
    if (!slash || (size_t)(slash + 1 - path) + sizeof(PROGRAM) > size)
        return err_set(err, ERR_INVALID, 0, "%.100s is no path with a folder", path);
    memcpy(slash + 1, PROGRAM, sizeof(PROGRAM));
    return 0;
}

static void on_retry(void *arg)
{
    struct install *install = arg;
    char source[PATH_MAX];
    bool was_said = install->err.kind != ERR_NONE;

    if (source_path(source, sizeof(source), &install->err) == 0 &&
        install_copy(source, install->target, &install->err) == 0) {
        install->is_done = true;
        log_info(PROGRAM " is in place", kv_str("path", install->target));
        return;
    }
    if (!was_said)
        log_error("no " PROGRAM " for meta's container: trying again", kv_err(&install->err));
    loop_timer_arm(install->retry, RETRY_NS);
}

struct install *install_new(struct loop *loop, const char *target)
{
    struct install *install = NULL;

    if (!target[0])
        return NULL;
    install = calloc(1, sizeof(*install));
    if (!install)
        abort();
    install->target = target;
    install->retry = loop_timer_new(loop, on_retry, install);
    on_retry(install);
    return install;
}

void install_free(struct install *install)
{
    if (!install)
        return;
    loop_timer_free(install->retry);
    free(install);
}

const char *install_error(const struct install *install)
{
    return install && !install->is_done ? install->err.msg : NULL;
}
