// SPDX-License-Identifier: Apache-2.0
// The changes of a collection: it goes on where it was, or says that something may be missed.
#include "tests/unit/k8s/script.h"

#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "k8s/follow.h"
#include "k8s/json.h"

#define EVENT(type, uid, version)                                                              \
    "{\"type\":\"" type "\",\"object\":{\"metadata\":{\"uid\":\"" uid                          \
    "\",\"resourceVersion\":\"" version "\"}}}\n"

struct act {
    int status; // 0: 200
    const char *lines;
    enum script_how how;
};

struct stage {
    struct script script;
    struct k8s_follow *follow;
    const struct act *acts; // the last is played again and again
    unsigned count;
    unsigned streams;
    char path[1024]; // of the newest stream
    char log[512];
    int losses;
    bool refuse;
    struct err err;
};

static void on_request(struct script_conn *conn, const struct script_request *request)
{
    struct stage *stage = conn->script->arg;
    unsigned at = stage->streams < stage->count ? stage->streams : stage->count - 1;
    const struct act *act = &stage->acts[at];

    stage->streams++;
    (void)snprintf(stage->path, sizeof(stage->path), "%s", request->path);
    if (act->status != 0) {
        script_reply(conn, act->status, "{\"kind\":\"Status\",\"message\":\"no\"}");
        return;
    }
    script_play(conn, act->lines, act->how);
}

static int on_change(const struct k8s_change *change, void *arg, struct err *err)
{
    static const char marks[] = {'+', '*', '-', '?'};
    struct stage *stage = arg;
    const char *uid = NULL;
    size_t len = strlen(stage->log);

    assert_int_equal(json_need_text(change->object, "metadata.uid", &uid, err), 0);
    if (stage->refuse)
        return err_set(err, ERR_INVALID, 0, "refused");
    (void)snprintf(stage->log + len, sizeof(stage->log) - len, "%c%s ", marks[change->kind],
                   uid);
    return 0;
}

static void on_lost(const struct err *err, void *arg)
{
    struct stage *stage = arg;

    stage->losses++;
    stage->err = *err;
}

static const struct k8s_follow_ops ops = {.on_change = on_change, .on_lost = on_lost};

static struct stage *stage_new(const struct act *acts, unsigned count)
{
    const struct k8s_follow_call call = {"/api/v1/namespaces/ns/pods", "a=b"};
    struct stage *stage = calloc(1, sizeof(*stage));

    assert_non_null(stage);
    stage->acts = acts;
    stage->count = count;
    script_init(&stage->script, on_request, stage);
    script_client(&stage->script);
    stage->follow = k8s_follow_new(stage->script.k8s, stage->script.loop, &call, &ops, stage);
    k8s_follow_set_times(stage->follow, 20 * NS_PER_SEC, NS_PER_MS);
    assert_true(k8s_follow_is_lost(stage->follow));
    k8s_follow_begin(stage->follow, "5");
    assert_false(k8s_follow_is_lost(stage->follow));
    return stage;
}

static void stage_free(struct stage *stage)
{
    k8s_follow_free(stage->follow);
    script_done(&stage->script);
    free(stage);
}

static void test_goes_on(void **state)
{
    static const struct act acts[] = {
        {0, EVENT("ADDED", "a", "6") EVENT("MODIFIED", "a", "7"), ENDS},
        {0, EVENT("BOOKMARK", "x", "17"), BREAK}, // a good one, that breaks
        {503, NULL, HOLD},                        // the second in a row that brings nothing
        {0, EVENT("DELETED", "a", "18"), HOLD},
    };
    struct stage *stage = stage_new(acts, 4);

    (void)state;
    SCRIPT_UNTIL(&stage->script, stage->streams >= 1);
    assert_non_null(strstr(stage->path,
                           "/api/v1/namespaces/ns/pods?labelSelector=a%3Db&watch=true"
                           "&allowWatchBookmarks=true&resourceVersion=5&timeout"));
    k8s_follow_begin(stage->follow, "1"); // it stands: nothing
    SCRIPT_UNTIL(&stage->script, stage->streams >= 2);
    assert_non_null(strstr(stage->path, "resourceVersion=7&"));
    SCRIPT_UNTIL(&stage->script, stage->streams >= 3);
    assert_non_null(strstr(stage->path, "resourceVersion=17&"));
    SCRIPT_UNTIL(&stage->script, stage->losses == 1);
    k8s_follow_begin(stage->follow, "17");
    SCRIPT_UNTIL(&stage->script, strstr(stage->log, "-a"));
    assert_string_equal(stage->log, "+a *a -a ");
    assert_int_equal(k8s_follow_losses(stage->follow), 1);
    stage_free(stage);
}

static void test_lost(void **state)
{
    static const struct {
        const char *name;
        struct act act;
        bool refuse;
        const char *err;
    } cases[] = {
        {"410", {410, NULL, HOLD}, false, "no"},
        {"410 in a line",
         {0,
          "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"message\":\"too "
          "old\",\"code\":"
          "410}}\n",
          HOLD},
         false,
         "410: too old"},
        {"garbage", {0, "{]\n", HOLD}, false, "JSON"},
        {"no version",
         {0, "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"uid\":\"a\"}}}\n", HOLD},
         false,
         "resourceVersion"},
        {"unknown type", {0, EVENT("CHANGED", "a", "6"), HOLD}, false, "CHANGED"},
        {"no object", {0, "{\"type\":\"ADDED\"}\n", HOLD}, false, "without an object"},
        {"refused by its reader", {0, EVENT("ADDED", "a", "6"), HOLD}, true, "refused"},
        {"denied", {403, NULL, HOLD}, false, "no"},
        {"empty, again and again", {0, NULL, ENDS}, false, "without a word"},
        {"broken, again and again", {0, NULL, BREAK}, false, "watch of"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stage *stage = stage_new(&cases[i].act, 1);
        unsigned streams = 0;

        stage->refuse = cases[i].refuse;
        SCRIPT_UNTIL(&stage->script, stage->losses == 1);
        if (!strstr(stage->err.msg, cases[i].err))
            fail_msg("%s: %s", cases[i].name, stage->err.msg);
        assert_true(k8s_follow_is_lost(stage->follow));
        // It stands still until it is begun again.
        streams = stage->streams;
        stage->refuse = false;
        k8s_follow_begin(stage->follow, "9");
        SCRIPT_UNTIL(&stage->script, stage->streams > streams);
        assert_non_null(strstr(stage->path, "resourceVersion=9&"));
        stage_free(stage);
    }
}

// A stream that says nothing is left, and another one asked for where it was.
static void test_silence(void **state)
{
    static const struct act acts[] = {{0, EVENT("ADDED", "a", "6"), HOLD}};
    struct stage *stage = stage_new(acts, 1);

    (void)state;
    k8s_follow_set_times(stage->follow, 500 * NS_PER_MS, NS_PER_MS);
    SCRIPT_UNTIL(&stage->script, stage->streams >= 2);
    stage_free(stage);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_goes_on),
    cmocka_unit_test(test_lost),
    cmocka_unit_test(test_silence),
};

UNIT_MAIN(tests)
