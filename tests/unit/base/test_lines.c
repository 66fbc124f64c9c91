// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/lines.h"

#define GIVE_UP_NS (20 * NS_PER_SEC)

struct world {
    struct loop *loop;
    struct loop_timer *guard;
    struct lines_server *server;
    struct lines_config config;
    char dir[64];
    char path[96];
    struct buf seen; // lines, each followed by '|'
    int lines;
    int gone;
    struct lines_conn *last;
    struct err err;
};

static void on_guard(void *arg)
{
    (void)arg;
    fail_msg("nothing happened for 20 s");
}

// A line is a command: "echo TEXT", "big N", "later", "bye", anything else is only noted.
static void on_line(struct lines_conn *conn, const char *line, size_t len, void *arg)
{
    struct world *w = arg;
    char block[1024];

    w->lines++;
    w->last = conn;
    buf_append(&w->seen, line, len);
    buf_putc(&w->seen, '|');
    if (strncmp(line, "echo ", 5) == 0) {
        lines_send(conn, line + 5, len - 5);
        lines_send(conn, "\n", 1);
    } else if (strcmp(line, "big") == 0) {
        memset(block, 'b', sizeof(block));
        for (int i = 0; i < 4096; i++)
            lines_send(conn, block, sizeof(block));
    } else if (strcmp(line, "bye") == 0) {
        lines_send(conn, "ok\n", 3);
        lines_finish(conn);
    }
}

static void on_gone(struct lines_conn *conn, void *arg)
{
    struct world *w = arg;

    w->gone++;
    if (w->last == conn)
        w->last = NULL;
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    if (!w || loop_new(&w->loop, &w->err) < 0)
        return -1;
    w->guard = loop_timer_new(w->loop, on_guard, NULL);
    loop_timer_arm(w->guard, GIVE_UP_NS);
    (void)snprintf(w->dir, sizeof(w->dir), "/tmp/metafence-lines-XXXXXX");
    if (!mkdtemp(w->dir))
        return -1;
    (void)snprintf(w->path, sizeof(w->path), "%s/sock", w->dir);
    w->config = (struct lines_config){.path = w->path,
                                      .mode = 0600,
                                      .max_conns = 3,
                                      .max_line = 100,
                                      .max_unsent = 16 << 20,
                                      .idle_ns = GIVE_UP_NS,
                                      .on_line = on_line,
                                      .on_gone = on_gone,
                                      .arg = w};
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    lines_server_free(w->server);
    loop_timer_free(w->guard);
    loop_free(w->loop);
    buf_done(&w->seen);
    (void)unlink(w->path);
    (void)rmdir(w->dir);
    free(w);
    return 0;
}

static void start(struct world *w)
{
    if (lines_server_new(w->loop, &w->config, &w->server, &w->err) < 0)
        fail_msg("%s", w->err.msg);
}

static int dial(const struct world *w)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", w->path);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void turn_until(struct world *w, const int *counter, int value)
{
    while (*counter < value)
        assert_true(loop_turn(w->loop));
}

// Turns until the peer `fd` has something to read (or the end of the stream), then reads it.
static ssize_t hear(struct world *w, int fd, char *text, size_t size)
{
    ssize_t got = -1;

    while ((got = recv(fd, text, size - 1, MSG_DONTWAIT)) < 0) {
        assert_int_equal(errno, EAGAIN);
        assert_true(loop_turn(w->loop));
    }
    text[got] = '\0';
    return got;
}

static void test_lines_in_any_split(void **state)
{
    struct world *w = *state;
    int fd = -1;
    const char *text = "one\ntwo\n\nthree\n";

    start(w);
    fd = dial(w);
    for (const char *p = text; *p; p++) {
        assert_int_equal(send(fd, p, 1, 0), 1);
        assert_true(loop_turn(w->loop));
    }
    turn_until(w, &w->lines, 4);
    say(fd, "four\nfive\nsix");
    turn_until(w, &w->lines, 6);
    assert_string_equal(buf_str(&w->seen), "one|two||three|four|five|");
    assert_int_equal(lines_peer_uid(w->last), getuid());
    close(fd);
    turn_until(w, &w->gone, 1);
    assert_int_equal(w->lines, 6); // a line without its end is none
}

static void test_answers_and_finish(void **state)
{
    struct world *w = *state;
    char text[256];
    int fd = -1;

    start(w);
    fd = dial(w);
    say(fd, "echo hello\n");
    assert_int_equal(hear(w, fd, text, sizeof(text)), 6);
    assert_string_equal(text, "hello\n");
    say(fd, "bye\necho not any more\n");
    assert_int_equal(hear(w, fd, text, sizeof(text)), 3);
    assert_string_equal(text, "ok\n");
    assert_int_equal(hear(w, fd, text, sizeof(text)), 0);
    assert_int_equal(w->lines, 2);
    assert_int_equal(w->gone, 1);
    close(fd);
}

// `printf cmd | nc -N` ends its side before the answer comes.
static void test_half_closed_peer_gets_a_late_answer(void **state)
{
    struct world *w = *state;
    char text[256];
    int fd = -1;

    start(w);
    fd = dial(w);
    say(fd, "later\n");
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    turn_until(w, &w->lines, 1);
    assert_true(loop_turn(w->loop)); // the end of the stream
    assert_non_null(w->last);
    lines_send(w->last, "late\n", 5);
    lines_finish(w->last);
    assert_int_equal(hear(w, fd, text, sizeof(text)), 5);
    assert_string_equal(text, "late\n");
    assert_int_equal(hear(w, fd, text, sizeof(text)), 0);
    close(fd);
}

static void test_send_to_a_vanished_peer(void **state)
{
    struct world *w = *state;
    int fd = -1;

    start(w);
    fd = dial(w);
    say(fd, "later\n");
    turn_until(w, &w->lines, 1);
    close(fd);
    lines_send(w->last, "late\n", 5); // EPIPE: no signal, no crash
    lines_send(w->last, "late\n", 5);
    lines_finish(w->last);
    turn_until(w, &w->gone, 1);
    assert_null(w->last);
}

static void test_large_answer_waits_for_a_slow_reader(void **state)
{
    struct world *w = *state;
    char text[8192];
    ssize_t total = 0;
    int fd = -1;

    start(w);
    fd = dial(w);
    say(fd, "big\n");
    while (total < 4096 * 1024)
        total += hear(w, fd, text, sizeof(text));
    assert_int_equal(total, 4096 * 1024);
    assert_int_equal(w->gone, 0);
    close(fd);
}

static void test_bounds(void **state)
{
    struct world *w = *state;
    char text[256];
    int fds[4];

    w->config.max_unsent = 1 << 20;
    start(w);
    fds[0] = dial(w);
    say(fds[0], "big\n"); // 4 MiB unsent
    turn_until(w, &w->gone, 1);
    close(fds[0]);

    memset(text, 'x', sizeof(text));
    text[100] = '\n';
    text[101] = '\0';
    fds[0] = dial(w);
    say(fds[0], text); // exactly max_line
    turn_until(w, &w->lines, 2);
    text[100] = 'x';
    text[101] = '\0';
    say(fds[0], text); // one more, and no end in sight
    assert_int_equal(hear(w, fds[0], text, sizeof(text)), 0);
    assert_int_equal(w->lines, 2);
    close(fds[0]);

    for (int i = 0; i < 4; i++)
        fds[i] = dial(w);
    assert_int_equal(hear(w, fds[3], text, sizeof(text)), 0); // the fourth of three
    for (int i = 0; i < 4; i++)
        close(fds[i]);
}

static void test_idle_peer_is_closed(void **state)
{
    struct world *w = *state;
    char text[8];
    int fd = -1;

    w->config.idle_ns = 20 * NS_PER_MS;
    start(w);
    fd = dial(w);
    assert_int_equal(hear(w, fd, text, sizeof(text)), 0);
    close(fd);
}

static void test_socket_file(void **state)
{
    struct world *w = *state;
    struct lines_server *second = NULL;
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct stat st;
    int stale = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    // What a killed process leaves behind is replaced.
    (void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", w->path);
    assert_int_equal(bind(stale, (struct sockaddr *)&addr, sizeof(addr)), 0);
    close(stale);
    start(w);
    assert_int_equal(stat(w->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);

    // A living one is not.
    assert_int_equal(lines_server_new(w->loop, &w->config, &second, &w->err), -1);
    assert_int_equal(w->err.kind, ERR_CONFLICT);
    assert_non_null(strstr(w->err.msg, w->path));
    close(dial(w));

    lines_server_free(w->server);
    w->server = NULL;
    assert_int_equal(stat(w->path, &st), -1);
}

static void test_refused_paths(void **state)
{
    struct world *w = *state;
    char longer[300];
    FILE *file = fopen(w->path, "we");

    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(lines_server_new(w->loop, &w->config, &w->server, &w->err), -1);
    assert_int_equal(w->err.kind, ERR_INVALID);
    assert_non_null(strstr(w->err.msg, "not a socket"));
    assert_int_equal(access(w->path, F_OK), 0);

    memset(longer, 'p', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    w->config.path = longer;
    assert_int_equal(lines_server_new(w->loop, &w->config, &w->server, &w->err), -1);
    assert_int_equal(w->err.kind, ERR_INVALID);

    w->config.path = "/nonexistent/dir/sock";
    assert_int_equal(lines_server_new(w->loop, &w->config, &w->server, &w->err), -1);
    assert_int_equal(w->err.kind, ERR_DENIED);
    assert_int_equal(w->err.code, ENOENT);
}

#define LINES_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static const struct CMUnitTest tests[] = {
    LINES_TEST(test_lines_in_any_split),
    LINES_TEST(test_answers_and_finish),
    LINES_TEST(test_half_closed_peer_gets_a_late_answer),
    LINES_TEST(test_send_to_a_vanished_peer),
    LINES_TEST(test_large_answer_waits_for_a_slow_reader),
    LINES_TEST(test_bounds),
    LINES_TEST(test_idle_peer_is_closed),
    LINES_TEST(test_socket_file),
    LINES_TEST(test_refused_paths),
};

UNIT_MAIN(tests)
