// SPDX-License-Identifier: Apache-2.0
#include "fence/state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "fence/proc.h"

#define READ_ATTEMPTS 20 // 1 ms apart: a write takes microseconds

static int read_status(int fd, struct fence_status *ret, struct err *err)
{
    char bytes[sizeof(*ret) + 1]; // one more: a longer file is of another kind
    ssize_t n = 0;

    do
        n = pread(fd, bytes, sizeof(bytes), 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_set(err, ERR_TRANSIENT, errno, "read: %s", strerrorname_np(errno));
    return fence_status_parse(bytes, (size_t)n, ret, err);
}

int state_open(const char *path, int *ret_fd, struct fence_status *ret_left, bool *ret_has_left,
               struct err *err)
{
    struct err ignored = {0};
    // Readable for the agent, which may run as another user: there is no secret in it.
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);

    if (fd < 0)
        return err_set(err, ERR_DENIED, errno, "--state %.150s: %s", path,
                       strerrorname_np(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        int code = errno;
        (void)close(fd);
        return err_set(err, ERR_CONFLICT, code,
                       "--state %.120s is in use: another metafence-run guards this meta",
                       path);
    }
    *ret_has_left = read_status(fd, ret_left, &ignored) == 0;
    // What is no status would stay behind the one that is written.
    if (!*ret_has_left && ftruncate(fd, 0) < 0) {
        int code = errno;
        (void)close(fd);
        return err_set(err, ERR_DENIED, code, "--state %.150s: %s", path,
                       strerrorname_np(code));
    }
    *ret_fd = fd;
    return 0;
}

int state_write(int fd, const struct fence_status *status, struct err *err)
{
    ssize_t n = pwrite(fd, status, sizeof(*status), 0);

    if (n == (ssize_t)sizeof(*status))
        return 0;
    return err_set(err, ERR_TRANSIENT, n < 0 ? errno : ENOSPC, "write of the state file: %s",
                   strerrorname_np(n < 0 ? errno : ENOSPC));
}

int state_read(const char *path, struct fence_status *ret, struct err *err)
{
    const struct timespec pause = {.tv_nsec = NS_PER_MS};
    int result = -1;
    // Probes must answer: a FIFO in its place would hold up the open.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return err_set(err, ERR_TRANSIENT, errno, "%.150s: %s", path, strerrorname_np(errno));
    for (int i = 0; i < READ_ATTEMPTS && result < 0; i++) {
        if (i > 0)
            (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
        result = read_status(fd, ret, err);
    }
    (void)close(fd);
    return result < 0 ? err_wrap(err, "%.100s", path) : 0;
}

void state_boot_id(char *buf, size_t size)
{
    if (proc_read("/proc/sys/kernel/random/boot_id", buf, size) < 0)
        buf[0] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
}
