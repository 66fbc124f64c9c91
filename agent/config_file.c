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
        buf_done(&bytes);
        return -1;
    }
    input.bytes = buf_str(&bytes);
    input.len = bytes.len;
    r = config_parse(&input, ret, err);
    buf_done(&bytes);
    return r;
}

// The first line of `text`, which has `len` bytes.
static int take_first_line(const char *path, struct config_secret *secret, size_t len,
                           struct err *err)
{
    char *end = memchr(secret->text, '\n', len);
    size_t line = end ? (size_t)(end - secret->text) : len;

    if (line > 0 && secret->text[line - 1] == '\r')
        line--;
    if (line == 0)
        return err_set(err, ERR_INVALID, 0,
                       "password file %.150s is empty: its first line must be the password",
                       path);
    if (line >= sizeof(secret->text) - 1)
        return err_set(err, ERR_INVALID, 0,
                       "the first line of password file %.150s is longer than %zu bytes", path,
                       sizeof(secret->text) - 2);
    if (memchr(secret->text, '\0', line))
        return err_set(err, ERR_INVALID, 0, "password file %.150s holds a NUL byte", path);
    explicit_bzero(secret->text + line, sizeof(secret->text) - line);
    return 0;
}

// Not through read_all: the password must not be left behind in freed memory.
static int read_password(const char *path, struct config_secret *secret, struct err *err)
{
    ssize_t n = 0;
    int fd = -1;

    if (open_regular(path, &fd, err) < 0)
        return err_wrap(err, "password file");
    do
        n = read(fd, secret->text, sizeof(secret->text) - 1);
    while (n < 0 && errno == EINTR);
    close(fd);
    if (n < 0)
        return err_set(err, ERR_DENIED, errno, "password file %.150s can't be read: %m", path);
    return take_first_line(path, secret, (size_t)n, err);
}

int config_password(const struct config_postgres *postgres, const char *from_env,
                    struct config_secret *ret, struct err *err)
{
    struct config_secret secret = {0};
    int r = 0;

    if (postgres->password_file[0])
        r = read_password(postgres->password_file, &secret, err);
    else if (from_env && strlen(from_env) >= sizeof(secret.text))
        r = err_set(err, ERR_INVALID, 0, "PGPASSWORD is longer than %zu bytes",
                    sizeof(secret.text) - 1);
    else if (from_env)
        memcpy(secret.text, from_env, strlen(from_env));
    if (r == 0)
        *ret = secret;
    config_password_wipe(&secret);
    return r;
}

void config_password_wipe(struct config_secret *secret)
{
    explicit_bzero(secret->text, sizeof(secret->text));
}
