// SPDX-License-Identifier: Apache-2.0
#include "k8s/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_AGE_NS (60 * NS_PER_SEC)

void k8s_token_init(struct k8s_token *token, const char *path)
{
    *token = (struct k8s_token){.path = strdup(path)};
    if (!token->path)
        abort();
}

static void wipe(struct k8s_token *token)
{
    if (!token->text)
        return;
    explicit_bzero(token->text, strlen(token->text));
    free(token->text);
    token->text = NULL;
}

void k8s_token_done(struct k8s_token *token)
{
    wipe(token);
    free(token->path);
    *token = (struct k8s_token){0};
}

// The length without white space at the end, 0 if a byte in it may not stand in a header.
static size_t token_length(const char *text, size_t len)
{
    while (len > 0 && strchr(" \t\r\n", text[len - 1]))
        len--;
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return 0;
    return len;
}

static int read_all(int fd, char *text, size_t size, size_t *ret_len, struct err *err)
{
    size_t len = 0;

    while (len < size) {
        ssize_t got = read(fd, text + len, size - len);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set(err, ERR_TRANSIENT, errno, "%m");
        if (got == 0)
            break;
        len += (size_t)got;
    }
    if (len == size)
        return err_set(err, ERR_TRANSIENT, 0, "longer than %d bytes", K8S_TOKEN_MAX);
    *ret_len = len;
    return 0;
}

static int take(struct k8s_token *token, int fd, const struct stat *st, struct err *err)
{
    char text[K8S_TOKEN_MAX + 1];
    size_t len = 0;
    int result = read_all(fd, text, sizeof(text), &len, err);

    if (result == 0) {
        len = token_length(text, len);
        if (len == 0)
            result = err_set(err, ERR_TRANSIENT, 0, "empty, or no token");
    }
    if (result == 0) {
        wipe(token);
        token->text = strndup(text, len);
        if (!token->text)
            abort();
        token->inode = st->st_ino;
        token->changed_at = st->st_mtim;
        token->reads++;
    }
    explicit_bzero(text, sizeof(text));
    return result;
}

static bool is_due(const struct k8s_token *token, const struct stat *st, struct instant now)
{
    return !token->text || st->st_ino != token->inode ||
           st->st_mtim.tv_sec != token->changed_at.tv_sec ||
           st->st_mtim.tv_nsec != token->changed_at.tv_nsec ||
           instant_since(now, token->tried_at) >= MAX_AGE_NS;
}

static int read_file(struct k8s_token *token, struct instant now, struct err *err)
{
    // The kubelet swaps a symbolic link: one open file is one token. A pipe would block.
    int fd = open(token->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    int result = 0;

    token->tried_at = now;
    if (fd < 0)
        return err_set(err, ERR_TRANSIENT, errno, "%m");
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        result = err_set(err, ERR_TRANSIENT, 0, "not a regular file");
    else
        result = take(token, fd, &st, err);
    close(fd);
    if (result == 0)
        token->read_at = now;
    return result;
}

int k8s_token_refresh(struct k8s_token *token, struct instant now, bool force, struct err *err)
{
    struct stat st;

    if (!token->path)
        return 0;
    if (!force && token->text && stat(token->path, &st) == 0 && !is_due(token, &st, now))
        return 0;
    if (read_file(token, now, err) < 0)
        return err_wrap(err, "token file %s", token->path);
    return 0;
}
