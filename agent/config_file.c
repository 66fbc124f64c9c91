// SPDX-License-Identifier: Apache-2.0
// The only part of the configuration that touches files and the environment.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/config.h"
#include "base/buf.h"

#define CHUNK 4096

// Opens a regular file (or what a symbolic link leads to: mounted ConfigMaps and Secrets are
// links). O_NONBLOCK so that a FIFO can't hang the agent before it is refused.
static int open_regular(const char *path, int *ret_fd, struct err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return err_set(err, ERR_DENIED, errno, "%.150s can't be read: %m", path);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        *ret_fd = fd;
        return 0;
    }
    close(fd);
    return err_set(err, ERR_INVALID, 0, "%.150s is not a regular file", path);
}

static int read_all(int fd, const char *path, struct buf *bytes, struct err *err)
{
    for (;;) {
        char *to = buf_reserve(bytes, CHUNK);
        ssize_t n = read(fd, to, CHUNK);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(err, ERR_DENIED, errno, "%.150s can't be read: %m", path);
        if (n == 0)
            return 0;
        buf_added(bytes, (size_t)n);
        if (bytes->len > CONFIG_FILE_MAX)
            return err_set(err, ERR_INVALID, 0,
                           "%.150s is too large for a configuration: at most %d bytes", path,
                           CONFIG_FILE_MAX);
    }
}

int config_read_file(const char *path, struct buf *ret_bytes, struct err *err)
{
    int fd = -1;
    int r = 0;

    if (open_regular(path, &fd, err) < 0)
        return -1;
    r = read_all(fd, path, ret_bytes, err);
    close(fd);
    return r;
}

static const char *process_environment(const char *name, void *arg)
{
    (void)arg;
    return getenv(name);
}

int config_load(const char *path, struct config *ret, struct err *err)
{
    struct buf bytes = {0};
    struct config_input input = {.name = path, .getenv = process_environment};
    int r = 0;

    config_defaults(ret);
    if (config_read_file(path, &bytes, err) < 0) {
        struct err incomplete = {0};

        buf_done(&bytes);
        // What the environment says holds without a file: meta does not start without its copy
        // of metafence-run, nor without an answer to the sidecar's startup probe.
        input.bytes = "";
        (void)!config_parse(&input, ret, &incomplete);
        return -1;
    }
    input.bytes = buf_str(&bytes);
    input.len = bytes.len;
    r = config_parse(&input, ret, err);
    buf_done(&bytes);
    return r;
}
