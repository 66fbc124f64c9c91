// SPDX-License-Identifier: Apache-2.0
// The watch against a scripted API server: each list and each stream takes the next act of a
// play.
#include "tests/unit/k8s/script.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "k8s/watch.h"

#define POD(version, role)                                                                     \
    "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"meta-0\",\"uid\":\"u1\","                      \
    "\"resourceVersion\":\"" version "\",\"labels\":{\"metafence.io/role\":\"" role "\"}}}"
#define OTHER                                                                                  \
    "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"meta-1\",\"uid\":\"u2\","                      \
    "\"resourceVersion\":\"9\"}}"
#define FOREIGN                                                                                \
    "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"meta-0\",\"namespace\":\"another\",\"uid\":"   \
    "\"u3\","                                                                                  \
    "\"resourceVersion\":\"9\"}}"
#define LIST(version, items)                                                                   \
    "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"" version "\"},"                \
    "\"items\":[" items "]}"
#define EVENT(type, object) "{\"type\":\"" type "\",\"object\":" object "}\n"
#define BOOKMARK                                                                               \
    "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"metadata\":"                        \
    "{\"resourceVersion\":\"77\"}}}\n"
#define ERROR_410                                                                              \
    "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"message\":\"too old\","             \
    "\"code\":410}}\n"

struct act {
    int status;       // of the answer; 0: an answer never comes
    const char *list; // the body of a list, or of a refused watch
    const char *lines;
    enum script_how how;
};

struct stage {
    struct script script;
    struct k8s_watch *watch;
    struct k8s_watch_times times;
    const struct act *acts; // the last one is played again and again
    unsigned count;
    unsigned at;
    unsigned lists;
    unsigned streams;
    char log[1024]; // what the watch told
    int pods;
    int absents;
    int downs;
    int ups;
    struct err err;
};

static void note(struct stage *stage, const char *what)
{
    size_t len = strlen(stage->log);

    (void)snprintf(stage->log + len, sizeof(stage->log) - len, "%s ", what);
}

static void on_pod(const struct k8s_pod *pod, void *arg)
{
    struct stage *stage = arg;
    const char *role = k8s_pod_label(pod, "metafence.io/role");

    assert_string_equal(pod->name, "meta-0");
    stage->pods++;
    note(stage, role ? role : "-");
}

static void on_absent(void *arg)
{
    struct stage *stage = arg;

    stage->absents++;
    note(stage, "absent");
}

static void on_down(const struct err *err, void *arg)
{
    struct stage *stage = arg;

    stage->downs++;
    stage->err = *err;
    assert_true(err->msg[0] != '\0');
    note(stage, "down");
}

static void on_up(void *arg)
{
    struct stage *stage = arg;

    stage->ups++;
    note(stage, "up");
}

static const struct k8s_watch_ops ops = {
    .on_pod = on_pod, .on_absent = on_absent, .on_down = on_down, .on_up = on_up};

static void play(struct script_conn *conn, const struct script_request *request)
{
    struct stage *stage = conn->script->arg;
    const struct act *act = &stage->acts[stage->at];
    bool is_watch = strstr(request->path, "watch=true") != NULL;

    assert_non_null(strstr(request->path, "/api/v1/namespaces/ns/pods?"));
    assert_non_null(strstr(request->path, "fieldSelector=metadata.name%3Dmeta-0"));
    if (stage->at + 1 < stage->count)
        stage->at++;
    if (is_watch) {
        stage->streams++;
        assert_non_null(strstr(request->path, "allowWatchBookmarks=true"));
        assert_non_null(strstr(request->path, "resourceVersion=5"));
        assert_non_null(strstr(request->path, "timeoutSeconds="));
    } else {
        stage->lists++;
        assert_null(strstr(request->path, "resourceVersion=")); // of a quorum
    }
    if (act->status == 0)
        return;
    if (act->status != 200 || !is_watch) {
        script_reply(conn, act->status, act->list ? act->list : "");
        return;
    }
    script_play(conn, act->lines, act->how);
}

static void stage_init(struct stage *stage, const struct act *acts, unsigned count)
{
    *stage = (struct stage){.acts = acts, .count = count, .times = K8S_WATCH_TIMES};
    stage->times.backoff_min_ns = 2 * NS_PER_MS;
    stage->times.backoff_max_ns = 20 * NS_PER_MS;
    script_init(&stage->script, play, stage);
    script_client(&stage->script);
}

static void stage_start(struct stage *stage)
{
    stage->watch = k8s_watch_new(stage->script.k8s, stage->script.loop, "meta-0", &ops, stage);
    k8s_watch_set_times(stage->watch, &stage->times);
}

static void stage_done(struct stage *stage)
{
    k8s_watch_free(stage->watch);
    script_done(&stage->script);
}

static const struct act list_leader = {200, LIST("5", POD("4", "leader")), NULL, HOLD};

#define PLAY(stage, ...)                                                                       \
    const struct act acts[] = {__VA_ARGS__};                                                   \
    struct stage stage;                                                                        \
    stage_init(&stage, acts, sizeof(acts) / sizeof(acts[0]))

static void test_events(void **state)
{
    (void)state;
    PLAY(stage, list_leader,
         {200, NULL,
          EVENT("MODIFIED", POD("6", "unknown")) BOOKMARK EVENT("ADDED", OTHER)
              EVENT("MODIFIED", FOREIGN) EVENT("MODIFIED", POD("8", "follower"))
                  EVENT("DELETED", POD("9", "follower")) EVENT("ADDED", POD("10", "new")),
          HOLD});
    stage_start(&stage);
    SCRIPT_UNTIL(&stage.script, stage.pods == 4);
    assert_string_equal(stage.log, "up leader unknown follower absent new ");
    assert_int_equal(k8s_watch_restarts(stage.watch), 0);
    assert_int_equal(stage.lists, 1);
    stage_done(&stage);
}

static void test_absent(void **state)
{
    (void)state;
    PLAY(stage, {200, LIST("5", OTHER "," FOREIGN), NULL, HOLD},
         {200, NULL, EVENT("ADDED", POD("6", "x")), HOLD});
    stage_start(&stage);
    SCRIPT_UNTIL(&stage.script, stage.pods == 1);
    assert_string_equal(stage.log, "up absent x ");
    stage_done(&stage);
}

// Whatever a stream says that can't be understood: a list, and on it goes.
static void test_bad_events(void **state)
{
    static const char *const lines[] = {
        ERROR_410,
        "{\"type\":\"ERROR\",\"object\":{\"code\":500,\"message\":\"x\"}}\n",
        "{\"type\":\"ERROR\",\"object\":{\"code\":\"x\"}}\n",
        "{\"type\":\"ERROR\"}\n",
        EVENT("SYNC", POD("6", "x")),
        "{\"type\":\"MODIFIED\",\"object\":null}\n",
        "{\"type\":\"MODIFIED\",\"object\":{\"kind\":\"Status\"}}\n",
        "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":5}}}\n",
        "{\"type\":\"DELETED\",\"object\":{}}\n",
        "{\"type\":7,\"object\":{}}\n",
        "{\"object\":{}}\n",
        "{}\n",
        "[]\n",
        "oops\n",
        "{\"type\":\"MODIFIED\"\n",
        "\"\\u0000\"\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        PLAY(stage, list_leader, {200, NULL, lines[i], HOLD},
             {200, LIST("5", POD("5", "again")), NULL, HOLD},
             {200, NULL, EVENT("MODIFIED", POD("6", "seen")), HOLD});
        stage_start(&stage);
        SCRIPT_UNTIL(&stage.script, stage.pods == 3);
        if (strcmp(stage.log, "up leader again seen ") != 0)
            fail_msg("%s: %s", lines[i], stage.log);
        assert_int_equal(k8s_watch_restarts(stage.watch), 1);
        assert_int_equal(stage.absents, 0);
        stage_done(&stage);
    }
}

// The stream refused, closed, broken: once is no news, twice in a row is.
static void test_broken_streams(void **state)
{
    static const struct act streams[] = {
        {410, "{\"message\":\"too old\"}", NULL, HOLD},
        {504, "", NULL, HOLD},
        {403, "{\"message\":\"no right\"}", NULL, HOLD},
        {200, NULL, NULL, ENDS},
        {200, NULL, NULL, BREAK},
        {200, NULL, EVENT("MODIFIED", POD("6", "seen")) "{\"type\":", ENDS},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
        PLAY(stage, list_leader, streams[i], list_leader, streams[i], list_leader,
             {200, NULL, EVENT("MODIFIED", POD("6", "end")), HOLD});
        stage.times.settle_ns = 50 * NS_PER_MS;
        stage_start(&stage);
        SCRIPT_UNTIL(&stage.script, stage.ups == 2);
        assert_int_equal(stage.downs, 1);
        assert_int_equal(stage.lists, 3);
        assert_int_equal(k8s_watch_restarts(stage.watch), 2);
        assert_non_null(strstr(stage.log, "down leader end up "));
        stage_done(&stage);
    }
}

static void test_bad_lists(void **state)
{
    static const struct act lists[] = {
        {500, "", NULL, HOLD},
        {403, "{\"message\":\"no right\"}", NULL, HOLD},
        {410, "", NULL, HOLD},
        {404, "", NULL, HOLD},
        {200, "{}", NULL, HOLD},
        {200, "oops", NULL, HOLD},
        {200, "{\"kind\":\"Status\",\"metadata\":{\"resourceVersion\":\"5\"}}", NULL, HOLD},
        {200, "{\"kind\":\"PodList\",\"metadata\":{},\"items\":[]}", NULL, HOLD},
        {200, "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":5},\"items\":[]}", NULL,
         HOLD},
        {200, LIST("5", "null"), NULL, HOLD},
        {200, LIST("5", "{\"metadata\":{}}"), NULL, HOLD},
        {200, "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":{}}",
         NULL, HOLD},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        PLAY(stage, lists[i], lists[i], lists[i], list_leader, {200, NULL, NULL, HOLD});
        stage.times.settle_ns = 20 * NS_PER_MS;
        stage_start(&stage);
        SCRIPT_UNTIL(&stage.script, stage.ups == 1);
        // A failed list is nobody's absence.
        if (strcmp(stage.log, "down leader up ") != 0)
            fail_msg("%zu: %s", i, stage.log);
        assert_non_null(strstr(stage.err.msg, "list of the pod: "));
        assert_int_equal(stage.streams, 1);
        stage_done(&stage);
    }
}

static void test_silent_stream(void **state)
{
    (void)state;
    PLAY(stage, list_leader, {200, NULL, NULL, HOLD}, list_leader,
         {200, NULL, EVENT("MODIFIED", POD("6", "end")), HOLD});
    stage.times.silence_ns = 50 * NS_PER_MS;
    stage.times.settle_ns = 60 * NS_PER_SEC;
    stage_start(&stage);
    SCRIPT_UNTIL(&stage.script, strstr(stage.log, "end"));
    assert_true(k8s_watch_restarts(stage.watch) >= 1);
    stage_done(&stage);
}

// A stream that stands and says nothing of a change: the list beside it tells, and when the
// stream goes on saying nothing it is replaced.
static void test_deaf_stream(void **state)
{
    (void)state;
    PLAY(stage, list_leader, {200, NULL, NULL, HOLD},
         {200, LIST("5", POD("5", "changed")), NULL, HOLD},
         {200, LIST("5", POD("5", "changed")), NULL, HOLD},
         {200, NULL, EVENT("MODIFIED", POD("6", "end")), HOLD});
    stage.times.settle_ns = 30 * NS_PER_MS;
    stage.times.refresh_ns = 30 * NS_PER_MS;
    stage_start(&stage);
    SCRIPT_UNTIL(&stage.script, strstr(stage.log, "end"));
    assert_string_equal(stage.log, "up leader changed changed end ");
    assert_int_equal(k8s_watch_restarts(stage.watch), 1);
    assert_int_equal(stage.streams, 2);
    stage_done(&stage);
}

// A list beside the stream that fails changes nothing, and one that finds nothing new neither.
static void test_list_beside(void **state)
{
    (void)state;
    PLAY(stage, list_leader, {200, NULL, BOOKMARK, HOLD}, {500, "", NULL, HOLD},
         {200, "oops", NULL, HOLD}, list_leader);
    stage.times.settle_ns = 10 * NS_PER_MS;
    stage.times.refresh_ns = 10 * NS_PER_MS;
    stage_start(&stage);
    SCRIPT_UNTIL(&stage.script, stage.pods == 4);
    assert_string_equal(stage.log, "up leader leader leader leader ");
    assert_int_equal(k8s_watch_restarts(stage.watch), 0);
    assert_int_equal(stage.streams, 1);
    stage_done(&stage);
}

// The server ends a stream that has held for a while: that is how it should be, and the list
// comes at once.
static void test_ordinary_end(void **state)
{
    (void)state;
    PLAY(stage, list_leader, {200, NULL, BOOKMARK, HOLD}, list_leader, list_leader,
         {200, NULL, EVENT("MODIFIED", POD("6", "end")), HOLD});
    stage.times.settle_ns = 10 * NS_PER_MS;
    stage.times.refresh_ns = 10 * NS_PER_MS;
    stage.times.backoff_min_ns = 600 * NS_PER_SEC;
    stage.times.backoff_max_ns = 600 * NS_PER_SEC;
    stage_start(&stage);
    SCRIPT_UNTIL(&stage.script, stage.pods == 2); // settled, and listed beside
    for (struct script_conn *conn = stage.script.conns; conn; conn = conn->next)
        if (conn->is_stream)
            script_stream_end(conn);
    SCRIPT_UNTIL(&stage.script, strstr(stage.log, "end"));
    assert_int_equal(k8s_watch_restarts(stage.watch), 0);
    assert_int_equal(stage.downs, 0);
    stage_done(&stage);
}

// At most one try per back-off: a server that refuses for ever is not flooded.
static void test_back_off(void **state)
{
    struct instant begin = clock_now();

    (void)state;
    PLAY(stage, {503, "", NULL, HOLD});
    stage.times.backoff_min_ns = 10 * NS_PER_MS;
    stage.times.backoff_max_ns = 40 * NS_PER_MS;
    stage_start(&stage);
    SCRIPT_UNTIL(&stage.script, stage.lists == 6);
    // Pauses of at least 3/4 of 10, 20, 40, 40, 40 ms.
    assert_true(instant_since(clock_now(), begin) >= 112 * NS_PER_MS);
    assert_int_equal(stage.downs, 1);
    stage_done(&stage);
}

static void answer_busy_once(struct script_conn *conn, const struct script_request *request)
{
    static const char busy[] = "HTTP/1.1 429 No\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";

    if (conn->script->requests == 1)
        script_send(conn, busy, sizeof(busy) - 1);
    else
        play(conn, request);
}

static void answer_away_once(struct script_conn *conn, const struct script_request *request)
{
    static const char away[] =
        "HTTP/1.1 503 No\r\nRetry-After: 600\r\nContent-Length: 0\r\n\r\n";

    if (conn->script->requests == 1)
        script_send(conn, away, sizeof(away) - 1);
    else
        play(conn, request);
}

static void test_retry_after(void **state)
{
    struct instant begin = clock_now();

    (void)state;
    PLAY(stage, list_leader, {200, NULL, NULL, HOLD});
    stage.script.on_request = answer_busy_once;
    stage.times.backoff_max_ns = 5 * NS_PER_SEC;
    stage_start(&stage);
    SCRIPT_UNTIL(&stage.script, stage.pods == 1);
    assert_true(instant_since(clock_now(), begin) >= NS_PER_SEC);
    stage_done(&stage);
}

// Asked to come again in ten minutes, we come when the longest back-off is over.
static void test_retry_after_is_bounded(void **state)
{
    struct instant begin = clock_now();

    (void)state;
    PLAY(stage, list_leader, {200, NULL, NULL, HOLD});
    stage.script.on_request = answer_away_once;
    stage.times.backoff_max_ns = 500 * NS_PER_MS;
    stage_start(&stage);
    SCRIPT_UNTIL(&stage.script, stage.pods == 1);
    assert_true(instant_since(clock_now(), begin) >= 500 * NS_PER_MS);
    stage_done(&stage);
}

// Freed at any moment.
static void test_freed(void **state)
{
    (void)state;
    k8s_watch_free(NULL);
    for (unsigned turns = 0; turns < 30; turns++) {
        PLAY(stage, list_leader,
             {200, NULL, EVENT("MODIFIED", POD("6", "x")) "{\"type\":", HOLD});
        stage_start(&stage);
        for (unsigned i = 0; i < turns && stage.pods < 2; i++)
            assert_true(loop_turn(stage.script.loop));
        stage_done(&stage);
    }
}

// A watch that is started and stopped again and again costs nothing in the end.
static void test_many(void **state)
{
    (void)state;
    PLAY(stage, list_leader, {200, NULL, EVENT("MODIFIED", POD("6", "x")), BREAK}, list_leader,
         {200, NULL, ERROR_410, HOLD}, list_leader, {410, "", NULL, HOLD});
    stage.times.backoff_min_ns = 1;
    stage.times.backoff_max_ns = 1;
    stage_start(&stage);
    while (stage.streams < 300) {
        if (stage.at + 1 == stage.count && stage.streams % 3 == 0)
            stage.at = 0;
        assert_true(loop_turn(stage.script.loop));
    }
    assert_true(k8s_watch_restarts(stage.watch) >= 299);
    stage_done(&stage);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_events),       cmocka_unit_test(test_absent),
    cmocka_unit_test(test_bad_events),   cmocka_unit_test(test_broken_streams),
    cmocka_unit_test(test_bad_lists),    cmocka_unit_test(test_silent_stream),
    cmocka_unit_test(test_deaf_stream),  cmocka_unit_test(test_list_beside),
    cmocka_unit_test(test_ordinary_end), cmocka_unit_test(test_back_off),
    cmocka_unit_test(test_retry_after),  cmocka_unit_test(test_freed),
    cmocka_unit_test(test_many),         cmocka_unit_test(test_retry_after_is_bounded),
};

UNIT_MAIN(tests)
