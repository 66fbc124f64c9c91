// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

#define ANSWER_MAX       (1024 * 1024) // bytes
#define CHUNK            4096
#define CONNECT_AGAIN_MS 10
#define NAME_SIZE        48

// Waits until `fd` is ready for `events` or the deadline has come.
static int wait_for(int fd, short events, struct instant deadline, struct err *err)
{
    struct pollfd ready = {.fd = fd, .events = events};
    int64_t left_ns = instant_since(deadline, clock_now());
    int n = 0;

    if (left_ns > 0)
        n = poll(&ready, 1, (int)(left_ns / NS_PER_MS) + 1);
    if (n > 0 || (n < 0 && errno == EINTR))
        return 0;
    return err_set(err, ERR_TRANSIENT, ETIMEDOUT, "the agent did not answer in time");
}

// A unix socket that has no room for one more connection says EAGAIN, and poll can't wait for
// room.
static int connect_until(int fd, const struct sockaddr_un *addr, struct instant deadline)
{
    while (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) != 0) {
        if ((errno != EAGAIN && errno != EINTR) || instant_reached(clock_now(), deadline))
            return -1;
        (void)poll(NULL, 0, CONNECT_AGAIN_MS);
    }
    return 0;
}

static int connect_to(const char *path, struct instant deadline, int *ret_fd, struct err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = -1;
    int saved = 0;

    if (strlen(path) >= sizeof(addr.sun_path))
        return err_set(err, ERR_INVALID, 0, "socket path %.120s is too long: at most %zu bytes",
                       path, sizeof(addr.sun_path) - 1);
    memcpy(addr.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(err, ERR_TRANSIENT, errno, "no socket: %m");
    if (connect_until(fd, &addr, deadline) == 0) {
        *ret_fd = fd;
        return 0;
    }
    saved = errno;
    close(fd);
    errno = saved;
    return err_set(err, saved == EACCES ? ERR_DENIED : ERR_TRANSIENT, saved,
                   "no agent answers at %.120s: %m (is it running? is --socket right?)", path);
}

static int send_all(int fd, const char *data, size_t len, struct instant deadline,
                    struct err *err)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

        if (n > 0) {
            data += n;
            len -= (size_t)n;
        } else if (errno != EAGAIN && errno != EINTR) {
            return err_set(err, ERR_DENIED, errno,
                           "the agent closed the connection: only root and its own user are "
                           "let in");
        } else if (wait_for(fd, POLLOUT, deadline, err) < 0) {
            return -1;
        }
    }
    return 0;
}

static int receive_line(int fd, struct buf *line, struct instant deadline, struct err *err)
{
    while (line->len == 0 || line->data[line->len - 1] != '\n') {
        ssize_t n = recv(fd, buf_reserve(line, CHUNK), CHUNK, 0);

        if (n > 0)
            buf_added(line, (size_t)n);
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return err_set(err, ERR_DENIED, 0,
                           "the agent closed the connection: only root and its own user are "
                           "let in");
        else if (wait_for(fd, POLLIN, deadline, err) < 0)
            return -1;
        if (line->len > ANSWER_MAX)
            return err_set(err, ERR_INVALID, 0, "the answer is longer than %d bytes",
                           ANSWER_MAX);
    }
    return 0;
}

int client_ask(const char *socket_path, const char *request, int64_t timeout_ns,
               cJSON **ret_answer, struct err *err)
{
    struct instant deadline = instant_add(clock_now(), timeout_ns);
    struct buf line = {0};
    cJSON *answer = NULL;
    int fd = -1;
    int r = 0;

    if (connect_to(socket_path, deadline, &fd, err) < 0)
        return -1;
    r = send_all(fd, request, strlen(request), deadline, err);
    if (r == 0)
        r = receive_line(fd, &line, deadline, err);
    close(fd);
    if (r == 0) {
        answer = cJSON_ParseWithLength(buf_str(&line), line.len);
        if (!cJSON_IsObject(answer))
            r = err_set(err, ERR_INVALID, 0, "the answer from %.120s is no JSON object",
                        socket_path);
    }
    buf_done(&line);
    if (r < 0) {
        cJSON_Delete(answer);
        return -1;
    }
    *ret_answer = answer;
    return 0;
}

void client_request(struct buf *out, const char *command, const char *reason,
                    const char *member, const char *duration)
{
    buf_puts(out, "{\"cmd\":");
    buf_put_json(out, command);
    if (reason) {
        buf_puts(out, ",\"reason\":");
        buf_put_json(out, reason);
    }
    if (duration) {
        buf_printf(out, ",\"%s\":", member);
        buf_put_json(out, duration);
    }
    buf_puts(out, "}\n");
}

const cJSON *client_get(const cJSON *object, const char *path)
{
    char name[NAME_SIZE];

    while (object && *path) {
        size_t len = strcspn(path, ".");

        if (len >= sizeof(name))
            return NULL;
        memcpy(name, path, len);
        name[len] = '\0';
        object = cJSON_GetObjectItemCaseSensitive(object, name);
        path += len + (path[len] == '.');
    }
    return object;
}

const char *client_text(const cJSON *object, const char *path)
{
    const cJSON *item = client_get(object, path);

    return cJSON_IsString(item) ? item->valuestring : "";
}

double client_number(const cJSON *object, const char *path, double missing)
{
    const cJSON *item = client_get(object, path);

    return cJSON_IsNumber(item) ? item->valuedouble : missing;
}

bool client_is_true(const cJSON *object, const char *path)
{
    return cJSON_IsTrue(client_get(object, path));
}
