// SPDX-License-Identifier: Apache-2.0
// A list is whole or it is none: pages against a scripted API server.
#include "tests/unit/k8s/script.h"

#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "k8s/json.h"
#include "k8s/list.h"

#define ITEM(uid) "{\"metadata\":{\"name\":\"p-" uid "\",\"uid\":\"" uid "\"}}"
#define PAGE(version, next, items)                                                             \
    "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"" version                       \
    "\",\"continue\":\"" next "\"},\"items\":" items "}"
#define PAGES_MAX 6

struct stage {
    struct script script;
    struct k8s_list *list;
    const char *pages[PAGES_MAX]; // the last one is given again and again
    int status;                   // of the page `bad`; 0: an answer never comes
    int bad;                      // -1: none
    int asked;
    char paths[PAGES_MAX][1024];
    char items[256]; // uids, in order
    const char *refuse;
    int ends;
    struct k8s_list_result result;
    char version[32];
};

static void on_request(struct script_conn *conn, const struct script_request *request)
{
    struct stage *stage = conn->script->arg;
    int at = stage->asked < PAGES_MAX - 1 ? stage->asked : PAGES_MAX - 1;

    (void)snprintf(stage->paths[at], sizeof(stage->paths[at]), "%s", request->path);
    while (at > 0 && !stage->pages[at])
        at--;
    stage->asked++;
    if (stage->asked - 1 != stage->bad)
        script_reply(conn, 200, stage->pages[at]);
    else if (stage->status != 0)
        script_reply(conn, stage->status,
                     "{\"kind\":\"Status\",\"message\":\"not now\",\"metadata\":{\"continue\":"
                     "\"inconsistent\"}}");
    else
        script_reset(conn);
}

static int on_item(const cJSON *object, void *arg, struct err *err)
{
    struct stage *stage = arg;
    const char *uid = NULL;
    size_t len = strlen(stage->items);

    assert_int_equal(json_need_text(object, "metadata.uid", &uid, err), 0);
    if (stage->refuse && strcmp(uid, stage->refuse) == 0)
        return err_set(err, ERR_INVALID, 0, "I don't like %s", uid);
    (void)snprintf(stage->items + len, sizeof(stage->items) - len, "%s ", uid);
    return 0;
}

static void on_end(const struct k8s_list_result *result, void *arg)
{
    struct stage *stage = arg;

    stage->list = NULL;
    stage->result = *result;
    if (result->version)
        (void)snprintf(stage->version, sizeof(stage->version), "%s", result->version);
    stage->ends++;
}

static const struct k8s_list_ops ops = {.on_item = on_item, .on_end = on_end};

static void begin(struct stage *stage, const char *selector)
{
    struct k8s_list_call call = {.path = "/api/v1/namespaces/ns/pods",
                                 .kind = "PodList",
                                 .selector = selector,
                                 .limit = 2};

    stage->list = k8s_list_begin(stage->script.k8s, &call, &ops, stage);
}

static int with_stage(void **state)
{
    struct stage *stage = calloc(1, sizeof(*stage));

    if (!stage)
        abort();
    stage->bad = -1;
    script_init(&stage->script, on_request, stage);
    script_client(&stage->script);
    *state = stage;
    return 0;
}

static int without_stage(void **state)
{
    struct stage *stage = *state;

    k8s_list_cancel(stage->list);
    script_done(&stage->script);
    free(stage);
    return 0;
}

static void run(struct stage *stage, const char *selector)
{
    begin(stage, selector);
    SCRIPT_UNTIL(&stage->script, stage->ends == 1);
}

static void test_pages(void **state)
{
    struct stage *stage = *state;

    stage->pages[0] = PAGE("7", "t/1==", "[" ITEM("a") "," ITEM("b") "]");
    stage->pages[1] = PAGE("7", "t2", "[" ITEM("c") "," ITEM("d") "]");
    stage->pages[2] = PAGE("7", "", "[" ITEM("e") "]");
    run(stage, "app in (a,b),x=y");
    assert_int_equal(stage->result.outcome, K8S_OK);
    assert_string_equal(stage->items, "a b c d e ");
    assert_string_equal(stage->version, "7");
    assert_int_equal(stage->result.items, 5);
    assert_int_equal(stage->result.pages, 3);
    assert_true(stage->result.sent_at.ns > 0);
    assert_string_equal(stage->paths[0], "/api/v1/namespaces/ns/pods?limit=2&labelSelector="
                                         "app%20in%20%28a%2Cb%29%2Cx%3Dy");
    assert_non_null(strstr(stage->paths[1], "&continue=t%2F1%3D%3D"));
    assert_non_null(strstr(stage->paths[2], "&continue=t2"));
    assert_non_null(strstr(stage->paths[2], "labelSelector=app"));
}

static void test_d03_empty_is_whole(void **state)
{
    struct stage *stage = *state;

    stage->pages[0] = PAGE("7", "", "[]");
    run(stage, NULL);
    assert_int_equal(stage->result.outcome, K8S_OK);
    assert_int_equal(stage->result.items, 0);
    assert_string_equal(stage->paths[0], "/api/v1/namespaces/ns/pods?limit=2");
}

static void test_null_items(void **state)
{
    struct stage *stage = *state;

    stage->pages[0] = "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"7\"},"
                      "\"items\":null}";
    run(stage, NULL);
    assert_int_equal(stage->result.outcome, K8S_OK);
}

struct refusal {
    const char *name;
    const char *pages[3];
    int bad;
    int status;
    enum k8s_outcome outcome;
    const char *err;
};

static const struct refusal refusals[] = {
    {"410 half-way", {PAGE("7", "t1", "[" ITEM("a") "]")}, 1, 410, K8S_GONE, "page 2"},
    {"500 half-way", {PAGE("7", "t1", "[" ITEM("a") "]")}, 1, 500, K8S_BUSY, "page 2"},
    {"403", {PAGE("7", "", "[]")}, 0, 403, K8S_DENIED, "not now"},
    {"404", {PAGE("7", "", "[]")}, 0, 404, K8S_NOT_FOUND, "page 1"},
    {"cut off",
     {"{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"7\"},\"items\":["},
     -1,
     0,
     K8S_GARBAGE,
     "page 1"},
    {"no JSON", {"<html>"}, -1, 0, K8S_GARBAGE, "page 1"},
    {"another kind",
     {"{\"kind\":\"ServiceList\",\"metadata\":{\"resourceVersion\":\"7\"}}"},
     -1,
     0,
     K8S_GARBAGE,
     "want PodList"},
    {"a Status",
     {"{\"kind\":\"Status\",\"status\":\"Failure\"}"},
     -1,
     0,
     K8S_GARBAGE,
     "Status"},
    {"no version",
     {"{\"kind\":\"PodList\",\"metadata\":{},\"items\":[]}"},
     -1,
     0,
     K8S_GARBAGE,
     "resourceVersion"},
    {"another version",
     {PAGE("7", "t1", "[" ITEM("a") "]"), PAGE("8", "", "[" ITEM("b") "]")},
     -1,
     0,
     K8S_GARBAGE,
     "began with \"7\""},
    {"a page twice",
     {PAGE("7", "t1", "[" ITEM("a") "]"), PAGE("7", "t1", "[" ITEM("b") "]")},
     -1,
     0,
     K8S_GARBAGE,
     "where it began"},
    {"an object twice",
     {PAGE("7", "t1", "[" ITEM("a") "]"), PAGE("7", "", "[" ITEM("a") "]")},
     -1,
     0,
     K8S_GARBAGE,
     "a is there twice"},
    {"nothing, and more", {PAGE("7", "t1", "[]")}, -1, 0, K8S_GARBAGE, "more to come"},
    {"more, and no way",
     {"{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"7\",\"remainingItemCount\":3},"
      "\"items\":[" ITEM("a") "]}"},
     -1,
     0,
     K8S_GARBAGE,
     "remainingItemCount"},
    {"items are none", {PAGE("7", "", "{}")}, -1, 0, K8S_GARBAGE, "items"},
    {"an item is none", {PAGE("7", "", "[5]")}, -1, 0, K8S_GARBAGE, "no object"},
    {"no uid", {PAGE("7", "", "[{\"metadata\":{}}]")}, -1, 0, K8S_GARBAGE, "metadata.uid"},
    {"a token is none",
     {"{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"7\",\"continue\":5}}"},
     -1,
     0,
     K8S_GARBAGE,
     "continue"},
};

static void test_d03_never_half(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const struct refusal *refusal = &refusals[i];
        void *made = NULL;

        assert_int_equal(with_stage(&made), 0);
        struct stage *stage = made;
        memcpy(stage->pages, refusal->pages, sizeof(refusal->pages));
        stage->bad = refusal->bad;
        stage->status = refusal->status;
        run(stage, NULL);
        if (stage->result.outcome != refusal->outcome || stage->result.version ||
            !strstr(stage->result.err.msg, refusal->err))
            fail_msg("%s: %s: %s", refusal->name, k8s_outcome_name(stage->result.outcome),
                     stage->result.err.msg);
        assert_int_equal(stage->ends, 1);
        (void)without_stage(&made);
    }
}

static void test_connection_broken_half_way(void **state)
{
    struct stage *stage = *state;

    stage->pages[0] = PAGE("7", "t1", "[" ITEM("a") "]");
    stage->bad = 1;
    begin(stage, NULL);
    // curl repeats once on a new connection: that one is refused as well.
    SCRIPT_UNTIL(&stage->script, stage->asked == 2 || stage->ends == 1);
    script_listen_end(&stage->script);
    SCRIPT_UNTIL(&stage->script, stage->ends == 1);
    assert_int_not_equal(stage->result.outcome, K8S_OK);
    assert_null(stage->result.version);
}

static void test_refused_by_its_reader(void **state)
{
    struct stage *stage = *state;

    stage->pages[0] = PAGE("7", "t1", "[" ITEM("a") "," ITEM("b") "]");
    stage->refuse = "b";
    run(stage, NULL);
    assert_int_equal(stage->result.outcome, K8S_GARBAGE);
    assert_non_null(strstr(stage->result.err.msg, "I don't like b"));
    assert_int_equal(stage->asked, 1);
}

static void test_cancel(void **state)
{
    struct stage *stage = *state;

    stage->pages[0] = PAGE("7", "t1", "[" ITEM("a") "]");
    begin(stage, NULL);
    k8s_list_cancel(stage->list);
    begin(stage, NULL);
    SCRIPT_UNTIL(&stage->script, stage->asked > 0);
    k8s_list_cancel(stage->list);
    stage->list = NULL;
    assert_int_equal(stage->ends, 0);
}

// 10,000 pods: the set of uids grows, pages don't pile up.
static void test_large(void **state)
{
    struct stage *stage = *state;
    struct buf page = {0};

    buf_puts(&page,
             "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[");
    for (int i = 0; i < 10000; i++)
        buf_printf(&page, "%s{\"metadata\":{\"uid\":\"u-%d\"}}", i ? "," : "", i);
    buf_puts(&page, "]}");
    stage->pages[0] = buf_str(&page);
    run(stage, NULL);
    assert_int_equal(stage->result.outcome, K8S_OK);
    assert_int_equal(stage->result.items, 10000);
    buf_done(&page);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, with_stage, without_stage)

static const struct CMUnitTest tests[] = {
    TEST(test_pages),
    TEST(test_d03_empty_is_whole),
    TEST(test_null_items),
    cmocka_unit_test(test_d03_never_half),
    TEST(test_connection_broken_half_way),
    TEST(test_refused_by_its_reader),
    TEST(test_cancel),
    TEST(test_large),
};

UNIT_MAIN(tests)
