// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/k8s/parse.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "k8s/pod.h"

static const char whole[] =
    "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"meta-0\","
    "\"namespace\":\"kube-ns\",\"uid\":\"u-1\","
    "\"resourceVersion\":\"123456789012345678901234567890\","
    "\"generation\":9007199254740993,\"deletionTimestamp\":\"2026-01-01T00:00:00Z\","
    "\"labels\":{\"risingwave/meta-role\":\"leader\",\"app\":\"x\"},"
    "\"annotations\":{\"metafence.io/fence\":\"why\",\"none\":null},"
    "\"ownerReferences\":[{\"uid\":\"o-1\"},{\"uid\":\"o-2\",\"controller\":true}]},"
    "\"spec\":{\"nodeName\":\"node-1\"},\"status\":{\"phase\":\"Failed\"}}";

static void test_whole(void **state)
{
    cJSON *object = parse(whole);
    struct k8s_pod pod = {0};
    struct err err = {0};

    (void)state;
    assert_int_equal(k8s_pod_parse(object, &pod, &err), 0);
    assert_string_equal(pod.name, "meta-0");
    assert_string_equal(pod.uid, "u-1");
    assert_string_equal(pod.resource_version, "123456789012345678901234567890");
    assert_string_equal(pod.node, "node-1");
    assert_string_equal(pod.owner_uid, "o-2");
    assert_true(pod.is_deleting);
    assert_string_equal(k8s_pod_label(&pod, "risingwave/meta-role"), "leader");
    assert_null(k8s_pod_label(&pod, "risingwave"));
    assert_null(k8s_pod_label(&pod, "metafence.io/role"));
    assert_string_equal(k8s_pod_annotation(&pod, "metafence.io/fence"), "why");
    assert_null(k8s_pod_annotation(&pod, "none"));
    assert_true(k8s_pod_is(&pod, "kube-ns", "meta-0"));
    assert_false(k8s_pod_is(&pod, "kube-ns", "meta-00"));
    assert_false(k8s_pod_is(&pod, "kube", "meta-0"));
    cJSON_Delete(object);
}

static void test_least(void **state)
{
    static const char *const rests[] = {"", ",\"status\":{}",
                                        ",\"status\":{\"phase\":\"Running\"},\"spec\":null",
                                        ",\"spec\":{\"nodeName\":\"\"}"};
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof(rests) / sizeof(rests[0]); i++) {
        struct k8s_pod pod = {0};
        struct err err = {0};
        cJSON *object = NULL;

        (void)snprintf(
            text, sizeof(text),
            "{\"metadata\":{\"name\":\"a\",\"uid\":\"b\",\"resourceVersion\":\"c\"}%s}",
            rests[i]);
        object = parse(text);
        assert_int_equal(k8s_pod_parse(object, &pod, &err), 0);
        assert_null(pod.node);
        assert_null(pod.owner_uid);
        assert_false(pod.is_deleting);
        assert_true(k8s_pod_is(&pod, "any", "a")); // it says none
        assert_null(k8s_pod_label(&pod, "a"));
        cJSON_Delete(object);
    }
}

// Each path of the whole pod replaced by something of a wrong type, or taken away.
static void test_wrong(void **state)
{
    static const struct {
        const char *from;
        const char *to;
        const char *err;
    } cases[] = {
        {"\"Pod\"", "\"Status\"", "kind: \"Status\", want Pod"},
        {"\"Pod\"", "5", "kind: a number, want a string"},
        {"\"meta-0\"", "null", "metadata.name: nothing, want a string"},
        {"\"meta-0\"", "\"\"", "metadata.name: empty, want a string"},
        {"\"u-1\"", "[]", "metadata.uid: an array, want a string"},
        {"\"uid\":\"u-1\",", "", "metadata.uid: nothing, want a string"},
        {"\"123456789012345678901234567890\"", "123456789012345678901234567890",
         "metadata.resourceVersion: a number, want a string"},
        {"\"2026-01-01T00:00:00Z\"", "1", "metadata.deletionTimestamp: a number"},
        {"\"node-1\"", "{}", "spec.nodeName: an object, want a string"},
        {"{\"nodeName\":\"node-1\"}", "\"x\"", "spec: a string, want an object"},
        {"\"kube-ns\"", "true", "metadata.namespace: a boolean, want a string"},
        {"[{\"uid\":\"o-1\"},", "[7,", "metadata.ownerReferences: a number, want an object"},
        {"\"controller\":true", "\"controller\":\"yes\"", "controller: a string"},
        {"\"uid\":\"o-2\",", "", "uid: nothing, want a string"},
        {"\"leader\"", "1", "metadata.labels[\"risingwave/meta-role\"]: want a string"},
        {"\"why\"", "{}", "metadata.annotations[\"metafence.io/fence\"]: want a string"},
        {"{\"metafence.io/fence\":\"why\",\"none\":null}", "[]",
         "metadata.annotations: an array, want an object"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cJSON *object = parse_with(whole, cases[i].from, cases[i].to);
        struct k8s_pod pod = {0};
        struct err err = {0};

        if (k8s_pod_parse(object, &pod, &err) == 0 || err.kind != ERR_INVALID ||
            !strstr(err.msg, cases[i].err) || pod.object)
            fail_msg("%s: \"%s\"", cases[i].err, err.msg);
        cJSON_Delete(object);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_whole),
    cmocka_unit_test(test_least),
    cmocka_unit_test(test_wrong),
};

UNIT_MAIN(tests)
