// SPDX-License-Identifier: Apache-2.0
// What each write looks like on the wire.
#include "tests/unit/k8s/script.h"

#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "k8s/json.h"
#include "k8s/write.h"

struct seen {
    char method[16];
    char path[1024];
    char type[64];
    char body[8192];
    int answers;
};

static void take(struct script_conn *conn, const struct script_request *request)
{
    struct seen *seen = conn->script->arg;
    const char *type = strstr(request->head, "\r\nContent-Type: ");

    (void)snprintf(seen->method, sizeof(seen->method), "%s", request->method);
    (void)snprintf(seen->path, sizeof(seen->path), "%s", request->path);
    (void)snprintf(seen->type, sizeof(seen->type), "%.*s",
                   type ? (int)strcspn(type + 16, "\r") : 0, type ? type + 16 : "");
    (void)snprintf(seen->body, sizeof(seen->body), "%s", request->body);
    script_reply(conn, 200, "{}");
}

static int setup(void **state)
{
    struct script *script = calloc(1, sizeof(*script));
    struct seen *seen = calloc(1, sizeof(*seen));

    if (!script || !seen)
        return -1;
    script_init(script, take, seen);
    script_client(script);
    *state = script;
    return 0;
}

static int teardown(void **state)
{
    struct script *script = *state;
    struct seen *seen = script->arg;

    script_done(script);
    free(seen);
    free(script);
    return 0;
}

static void on_result(const struct k8s_result *result, void *arg)
{
    struct seen *seen = arg;

    assert_int_equal(result->outcome, K8S_OK);
    seen->answers++;
}

static void wait(struct script *script)
{
    const struct seen *seen = script->arg;
    int before = seen->answers;

    SCRIPT_UNTIL(script, seen->answers > before);
}

static void expect(const struct script *script, const char *method, const char *path,
                   const char *type, const char *body)
{
    const struct seen *seen = script->arg;

    assert_string_equal(seen->method, method);
    assert_string_equal(seen->path, path);
    assert_string_equal(seen->type, type);
    if (body)
        assert_string_equal(seen->body, body);
}

static void test_labels(void **state)
{
    static const struct k8s_label labels[] = {{"metafence.io/role", "leader"},
                                              {"risingwave/meta-role", "leader"}};
    struct script *script = *state;
    struct k8s_labels_call call = {
        .pod = "meta-0", .uid = "u-1", .labels = labels, .count = 2, .force = false};

    (void)k8s_apply_labels(script->k8s, &call, on_result, script->arg);
    wait(script);
    expect(script, "PATCH",
           "/api/v1/namespaces/ns/pods/meta-0?fieldManager=metafence&force=false",
           "application/apply-patch+yaml",
           "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"meta-0\","
           "\"uid\":\"u-1\",\"labels\":{\"metafence.io/role\":\"leader\","
           "\"risingwave/meta-role\":\"leader\"}}}");
    call.count = 1;
    call.force = true;
    (void)k8s_apply_labels(script->k8s, &call, on_result, script->arg);
    wait(script);
    expect(script, "PATCH",
           "/api/v1/namespaces/ns/pods/meta-0?fieldManager=metafence&force=true",
           "application/apply-patch+yaml",
           "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"meta-0\","
           "\"uid\":\"u-1\",\"labels\":{\"metafence.io/role\":\"leader\"}}}");
}

static void test_annotation(void **state)
{
    struct script *script = *state;
    struct k8s_annotation_call call = {
        .pod = "meta-0", .uid = "u-1", .key = "metafence.io/fence", .value = "a \"b\"\n"};

    (void)k8s_patch_annotation(script->k8s, &call, on_result, script->arg);
    wait(script);
    expect(script, "PATCH", "/api/v1/namespaces/ns/pods/meta-0?fieldManager=metafence",
           "application/merge-patch+json",
           "{\"metadata\":{\"uid\":\"u-1\",\"annotations\":{\"metafence.io/fence\":"
           "\"a \\\"b\\\"\\n\"}}}");
    call.value = NULL;
    (void)k8s_patch_annotation(script->k8s, &call, on_result, script->arg);
    wait(script);
    expect(script, "PATCH", "/api/v1/namespaces/ns/pods/meta-0?fieldManager=metafence",
           "application/merge-patch+json",
           "{\"metadata\":{\"uid\":\"u-1\",\"annotations\":{\"metafence.io/fence\":null}}}");
}

static void test_delete(void **state)
{
    struct script *script = *state;

    for (unsigned grace_s = 0; grace_s <= 1; grace_s++) { // 0 is never sent
        struct k8s_delete_call call = {.pod = "meta-0", .uid = "u-1", .grace_s = grace_s};

        (void)k8s_delete_pod(script->k8s, &call, on_result, script->arg);
        wait(script);
        expect(script, "DELETE", "/api/v1/namespaces/ns/pods/meta-0", "application/json",
               "{\"apiVersion\":\"v1\",\"kind\":\"DeleteOptions\",\"gracePeriodSeconds\":1,"
               "\"preconditions\":{\"uid\":\"u-1\"}}");
    }
    (void)k8s_delete_pod(
        script->k8s,
        &(struct k8s_delete_call){.pod = "c-0", .uid = "u-2", .version = "17", .grace_s = 1},
        on_result, script->arg);
    wait(script);
    expect(script, "DELETE", "/api/v1/namespaces/ns/pods/c-0", "application/json",
           "{\"apiVersion\":\"v1\",\"kind\":\"DeleteOptions\",\"gracePeriodSeconds\":1,"
           "\"preconditions\":{\"uid\":\"u-2\",\"resourceVersion\":\"17\"}}");
}

static void test_reads(void **state)
{
    struct script *script = *state;

    (void)k8s_get_pod(script->k8s, "meta-0/../x?y", on_result, script->arg);
    wait(script);
    expect(script, "GET", "/api/v1/namespaces/ns/pods/meta-0%2F..%2Fx%3Fy", "", "");
    (void)k8s_list_pods(script->k8s, "metafence.io/role", "leader", on_result, script->arg);
    wait(script);
    expect(script, "GET",
           "/api/v1/namespaces/ns/pods?labelSelector=metafence.io%2Frole%3Dleader&limit=500",
           "", "");
}

static const char *text_of(const cJSON *object, const char *path)
{
    const char *text = NULL;
    struct err err = {0};

    if (json_text(object, path, &text, &err) < 0 || !text)
        fail_msg("%s: %s", path, err.msg);
    return text;
}

static cJSON *event_of(struct script *script, const struct k8s_event *event)
{
    const struct seen *seen = script->arg;
    struct err err = {0};
    cJSON *object = NULL;

    (void)k8s_create_event(script->k8s, event, on_result, script->arg);
    wait(script);
    expect(script, "POST", "/apis/events.k8s.io/v1/namespaces/ns/events?fieldManager=metafence",
           "application/json", NULL);
    object = json_parse(seen->body, strlen(seen->body), &err);
    if (!object)
        fail_msg("%s: %s", err.msg, seen->body);
    return object;
}

static void test_event(void **state)
{
    struct script *script = *state;
    struct k8s_event event = {.pod = "meta-0",
                              .uid = "u-1",
                              .node = "node-1",
                              .type = "Warning",
                              .action = "KilledContainer",
                              .reason = "LeadershipLost",
                              .note = "[fence] why",
                              .wall_us = INT64_C(1767323045000042)};
    cJSON *object = event_of(script, &event);

    assert_string_equal(text_of(object, "apiVersion"), "events.k8s.io/v1");
    assert_string_equal(text_of(object, "kind"), "Event");
    assert_string_equal(text_of(object, "metadata.namespace"), "ns");
    assert_true(strncmp(text_of(object, "metadata.name"), "meta-0.", 7) == 0);
    assert_string_equal(text_of(object, "eventTime"), "2026-01-02T03:04:05.000042Z");
    assert_string_equal(text_of(object, "reportingController"), "metafence.io/agent");
    assert_string_equal(text_of(object, "reportingInstance"), "meta-0");
    assert_string_equal(text_of(object, "action"), "KilledContainer");
    assert_string_equal(text_of(object, "reason"), "LeadershipLost");
    assert_string_equal(text_of(object, "note"), "[fence] why");
    assert_string_equal(text_of(object, "type"), "Warning");
    assert_string_equal(text_of(object, "regarding.kind"), "Pod");
    assert_string_equal(text_of(object, "regarding.apiVersion"), "v1");
    assert_string_equal(text_of(object, "regarding.namespace"), "ns");
    assert_string_equal(text_of(object, "regarding.name"), "meta-0");
    assert_string_equal(text_of(object, "regarding.uid"), "u-1");
    assert_string_equal(text_of(object, "related.kind"), "Node");
    assert_string_equal(text_of(object, "related.name"), "node-1");
    cJSON_Delete(object);
}

// The same event twice has one name; another one in the same microsecond has another.
static void test_event_names(void **state)
{
    struct script *script = *state;
    struct k8s_event event = {.pod = "meta-0",
                              .uid = "u-1",
                              .type = "Normal",
                              .action = "a",
                              .reason = "b",
                              .note = "c",
                              .wall_us = 1};
    cJSON *first = event_of(script, &event);
    cJSON *same = event_of(script, &event);
    cJSON *other = NULL;

    event.reason = "d";
    other = event_of(script, &event);
    assert_string_equal(text_of(first, "metadata.name"), text_of(same, "metadata.name"));
    assert_string_not_equal(text_of(first, "metadata.name"), text_of(other, "metadata.name"));
    assert_null(cJSON_GetObjectItem(first, "related"));
    cJSON_Delete(first);
    cJSON_Delete(same);
    cJSON_Delete(other);
}

static void test_event_limits(void **state)
{
    // Characters of two bytes, so that each limit falls inside of one for one of the two.
    static const char *const starts[] = {"", "x"};
    struct script *script = *state;

    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        char text[4096];
        size_t len = strlen(starts[i]);
        struct k8s_event event = {.pod = text,
                                  .uid = "u-1",
                                  .type = "Normal",
                                  .action = text,
                                  .reason = text,
                                  .note = text,
                                  .wall_us = INT64_C(1767323045999999)};
        cJSON *object = NULL;

        memcpy(text, starts[i], len);
        for (; len + 2 < 3000; len += 2)
            memcpy(text + len, "\xc3\xa4", 2);
        text[len] = '\0';
        object = event_of(script, &event);
        assert_int_equal(strlen(text_of(object, "note")), i == 0 ? 1024 : 1023);
        assert_int_equal(strlen(text_of(object, "action")), i == 0 ? 128 : 127);
        assert_int_equal(strlen(text_of(object, "reason")), i == 0 ? 128 : 127);
        assert_int_equal(strlen(text_of(object, "reportingInstance")), i == 0 ? 128 : 127);
        assert_true(strlen(text_of(object, "metadata.name")) <= 253);
        cJSON_Delete(object);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_labels, setup, teardown),
    cmocka_unit_test_setup_teardown(test_annotation, setup, teardown),
    cmocka_unit_test_setup_teardown(test_delete, setup, teardown),
    cmocka_unit_test_setup_teardown(test_reads, setup, teardown),
    cmocka_unit_test_setup_teardown(test_event, setup, teardown),
    cmocka_unit_test_setup_teardown(test_event_names, setup, teardown),
    cmocka_unit_test_setup_teardown(test_event_limits, setup, teardown),
};

UNIT_MAIN(tests)
