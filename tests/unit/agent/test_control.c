// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/control.h"
#include "base/clock.h"

static const struct {
    const char *line;
    const char *want_err; // part of the message; NULL: accepted
    enum control_command command;
    const char *reason;
    int64_t time_ns; // of a pause, or to wait
} cases[] = {
    {"{\"cmd\":\"status\"}", NULL, CONTROL_STATUS, "", 0},
    {" {\"cmd\":\"status\"} \r", NULL, CONTROL_STATUS, "", 0},
    {"{\"cmd\":\"fence\",\"reason\":\"disk\"}", NULL, CONTROL_FENCE, "disk", 0},
    {"{\"reason\":\"a\\nb\",\"cmd\":\"fence\"}", NULL, CONTROL_FENCE, "a b", 0},
    {"{\"cmd\":\"unfence\"}", NULL, CONTROL_UNFENCE, "", 0},
    {"{\"cmd\":\"pause\",\"for\":\"30m\"}", NULL, CONTROL_PAUSE, "", 1800 * NS_PER_SEC},
    {"{\"cmd\":\"pause\",\"for\":\"1s\"}", NULL, CONTROL_PAUSE, "", NS_PER_SEC},
    {"{\"cmd\":\"resume\"}", NULL, CONTROL_RESUME, "", 0},
    {"{\"cmd\":\"recover\"}", NULL, CONTROL_RECOVER, "", 60 * NS_PER_SEC},
    {"{\"cmd\":\"recover\",\"wait\":\"0s\"}", NULL, CONTROL_RECOVER, "", 0},
    {"{\"wait\":\"1h\",\"cmd\":\"handover\",\"reason\":\"disk\"}", NULL, CONTROL_HANDOVER,
     "disk", 3600 * NS_PER_SEC},
    {"{\"cmd\":\"metrics\"}", NULL, CONTROL_METRICS, "", 0},
    {"{\"cmd\":\"config\"}", NULL, CONTROL_CONFIG, "", 0},
    {"{\"cmd\":\"metrics\",\"wait\":\"1s\"}", "belongs to", 0, NULL, 0},
    {"", "not JSON", 0, NULL, 0},
    {"{", "not JSON", 0, NULL, 0},
    {"{\"cmd\":\"status\"", "not JSON", 0, NULL, 0},
    {"{\"cmd\":\"status\"}{\"cmd\":\"fence\"}", "more behind", 0, NULL, 0},
    {"[]", "object like", 0, NULL, 0},
    {"null", "object like", 0, NULL, 0},
    {"\"fence\"", "object like", 0, NULL, 0},
    {"{}", "\"cmd\" is missing", 0, NULL, 0},
    {"{\"cmd\":1}", "must be a string", 0, NULL, 0},
    {"{\"cmd\":\"fnece\"}", "unknown command", 0, NULL, 0},
    {"{\"CMD\":\"fence\"}", "unknown member", 0, NULL, 0},
    {"{\"cmd\":\"fence\",\"force\":true}", "unknown member", 0, NULL, 0},
    {"{\"cmd\":\"status\",\"cmd\":\"fence\"}", "twice", 0, NULL, 0},
    {"{\"cmd\":\"fence\",\"reason\":7}", "must be a string", 0, NULL, 0},
    {"{\"cmd\":\"pause\"}", "needs \"for\"", 0, NULL, 0},
    {"{\"cmd\":\"pause\",\"for\":30}", "duration", 0, NULL, 0},
    {"{\"cmd\":\"pause\",\"for\":\"30\"}", "lacks a unit", 0, NULL, 0},
    {"{\"cmd\":\"pause\",\"for\":\"999ms\"}", "from 1s to 24h", 0, NULL, 0},
    {"{\"cmd\":\"pause\",\"for\":\"25h\"}", "from 1s to 24h", 0, NULL, 0},
    {"{\"cmd\":\"pause\",\"for\":\"99999999999999999999h\"}", "too long", 0, NULL, 0},
    {"{\"cmd\":\"fence\",\"for\":\"30m\"}", "belongs to pause", 0, NULL, 0},
    {"{\"cmd\":\"handover\",\"for\":\"30m\"}", "belongs to pause", 0, NULL, 0},
    {"{\"cmd\":\"fence\",\"wait\":\"60s\"}", "belongs to recover", 0, NULL, 0},
    {"{\"cmd\":\"recover\",\"wait\":60}", "duration", 0, NULL, 0},
    {"{\"cmd\":\"recover\",\"wait\":\"-1s\"}", "\"wait\"", 0, NULL, 0},
    {"{\"cmd\":\"recover\",\"wait\":\"61m\"}", "from 0s to 1h", 0, NULL, 0},
};

static void check_refused(const char *line, const char *want_err)
{
    struct control_request request = {.command = CONTROL_RESUME};
    struct err err = {0};
    int r = control_parse(line, strlen(line), &request, &err);

    if (r == 0 || !strstr(err.msg, want_err))
        fail_msg("%s: %d \"%s\"", line, r, err.msg);
    assert_int_equal(request.command, CONTROL_RESUME); // not touched
}

static void test_parse(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct control_request request = {.command = CONTROL_RESUME};
        struct err err = {0};

        if (cases[i].want_err) {
            check_refused(cases[i].line, cases[i].want_err);
            continue;
        }
        if (control_parse(cases[i].line, strlen(cases[i].line), &request, &err) != 0)
            fail_msg("%s: %s", cases[i].line, err.msg);
        assert_int_equal(request.command, cases[i].command);
        assert_string_equal(request.reason, cases[i].reason);
        assert_int_equal(request.pause_ns + request.wait_ns, cases[i].time_ns);
    }
}

static void test_parse_limits(void **state)
{
    static const char nul[] = "{\"cmd\":\"fence\"}\0{";
    char line[CONTROL_LINE_MAX];
    struct control_request request = {0};
    struct err err = {0};
    int len = 0;

    (void)state;
    assert_int_equal(control_parse(nul, sizeof(nul) - 1, &request, &err), -1);
    for (int extra = 0; extra < 2; extra++) {
        len = snprintf(line, sizeof(line), "{\"cmd\":\"fence\",\"reason\":\"%0*d\"}",
                       CONTROL_REASON_SIZE - 1 + extra, 0);
        assert_int_equal(control_parse(line, (size_t)len, &request, &err), -extra);
    }
    assert_non_null(strstr(err.msg, "at most 200"));
    memset(line, '[', sizeof(line)); // depth
    assert_int_equal(control_parse(line, sizeof(line), &request, &err), -1);
}

struct peer {
    struct loop *loop;
    int requests;
    uid_t uid;
};

static void answer(const struct control_request *request, struct buf *out, void *arg)
{
    struct peer *peer = arg;

    peer->requests++;
    peer->uid = request->peer_uid;
    buf_printf(out, "{\"command\":\"%s\"}", control_command_name(request->command));
}

// Sends `text` over a new connection and runs the loop until the answer's newline came.
static void exchange(struct loop *loop, const char *path, const char *text, char *reply,
                     size_t size)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    size_t used = 0;

    (void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    while (used == 0 || reply[used - 1] != '\n') {
        ssize_t n = recv(fd, reply + used, size - used - 1, MSG_DONTWAIT);

        if (n > 0)
            used += (size_t)n;
        else
            assert_true(loop_turn(loop));
    }
    reply[used] = '\0';
    close(fd);
}

static void test_socket(void **state)
{
    char dir[] = "/tmp/metafence-test-control-XXXXXX";
    char path[64];
    char reply[512];
    struct peer peer = {0};
    const struct control_config config = {path, answer, &peer};
    struct control *control = NULL;
    struct control *second = NULL;
    struct stat st;
    struct err err = {0};

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/agent.sock", dir);
    assert_int_equal(loop_new(&peer.loop, &err), 0);
    assert_int_equal(control_new(peer.loop, &config, &control, &err), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    exchange(peer.loop, path, "{\"cmd\":\"fence\"}\n", reply, sizeof(reply));
    assert_string_equal(reply, "{\"command\":\"fence\"}\n");
    assert_int_equal(peer.uid, getuid());
    exchange(peer.loop, path, "{\"cmd\":\"fence\"\n", reply, sizeof(reply));
    assert_non_null(strstr(reply, "{\"ok\":false,\"error\":\"not JSON"));
    assert_int_equal(peer.requests, 1);
    // A second agent must not take the socket of a living one.
    assert_int_equal(control_new(peer.loop, &config, &second, &err), -1);
    assert_int_equal(err.kind, ERR_CONFLICT);
    control_free(control);
    assert_int_equal(access(path, F_OK), -1);
    loop_free(peer.loop);
    assert_int_equal(rmdir(dir), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_parse),
    cmocka_unit_test(test_parse_limits),
    cmocka_unit_test(test_socket),
};

UNIT_MAIN(tests)
