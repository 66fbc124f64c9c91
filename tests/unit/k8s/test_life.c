// SPDX-License-Identifier: Apache-2.0
// What a pod's status says about its processes, and the other objects of a reconciler: slices
// and sets.
#include "tests/unit/k8s/parse.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "k8s/pod.h"
#include "k8s/slice.h"
#include "k8s/statefulset.h"

#define RUNNING    "{\"state\":{\"running\":{\"startedAt\":\"x\"}}}"
#define TERMINATED "{\"state\":{\"terminated\":{\"exitCode\":137}}}"
#define WAITING    "{\"state\":{\"waiting\":{\"reason\":\"CrashLoopBackOff\"}},\"restartCount\":3}"
#define CREATING   "{\"state\":{\"waiting\":{\"reason\":\"ContainerCreating\"}}}"
#define READY(what, containers)                                                                \
    "\"conditions\":[{\"type\":\"Ready\",\"status\":\"" what                                   \
    "\"},{\"type\":\"ContainersReady\",\"status\":\"" containers "\"}]"
#define TARGET(reason)                                                                         \
    "\"conditions\":[{\"type\":\"DisruptionTarget\",\"status\":\"True\",\"reason\":\"" reason  \
    "\"}]"

static const struct {
    const char *name;
    const char *status;
    bool is_terminal;
    bool has_started;
    bool is_running;
    bool is_unreachable;
} lives[] = {
    {"nothing said", "{}", false, false, false, false},
    {"pending", "{\"phase\":\"Pending\"}", false, false, false, false},
    {"creating", "{\"phase\":\"Pending\",\"containerStatuses\":[" CREATING "]}", false, false,
     false, false},
    {"running", "{\"phase\":\"Running\",\"containerStatuses\":[" RUNNING "]}", false, true,
     true, false},
    {"crashing", "{\"phase\":\"Running\",\"containerStatuses\":[" WAITING "]}", false, true,
     true, false},
    {"one of two", "{\"phase\":\"Running\",\"containerStatuses\":[" TERMINATED "," RUNNING "]}",
     false, true, true, false},
    {"failed", "{\"phase\":\"Failed\",\"containerStatuses\":[" TERMINATED "]}", true, true,
     false, false},
    {"succeeded", "{\"phase\":\"Succeeded\",\"containerStatuses\":[" TERMINATED "]}", true,
     true, false, false},
    {"sidecar runs on",
     "{\"phase\":\"Failed\",\"containerStatuses\":[" TERMINATED
     "],\"initContainerStatuses\":[" RUNNING "]}",
     true, true, true, false},
    {"debugged",
     "{\"phase\":\"Failed\",\"containerStatuses\":[" TERMINATED
     "],\"ephemeralContainerStatuses\":[" RUNNING "]}",
     true, true, true, false},
    {"evicted", "{\"phase\":\"Failed\",\"reason\":\"Evicted\"}", true, false, false, false},
    {"node shut down",
     "{\"phase\":\"Failed\",\"reason\":\"NodeShutdown\",\"containerStatuses\":[" TERMINATED
     "]}",
     true, true, false, false},
    {"collected",
     "{\"phase\":\"Failed\"," TARGET("DeletionByPodGC") ",\"containerStatuses\":[" TERMINATED
                                                        "]}",
     true, true, true, false},
    {"collected, runs", "{\"phase\":\"Failed\",\"containerStatuses\":[" RUNNING "]}", true,
     true, true, false},
    {"collected, was crashing", "{\"phase\":\"Failed\",\"containerStatuses\":[" WAITING "]}",
     true, true, true, false},
    {"tainted",
     "{\"phase\":\"Running\"," TARGET(
         "DeletionByTaintManager") ",\"containerStatuses\":[" RUNNING "]}",
     false, true, true, true},
    {"evicted politely",
     "{\"phase\":\"Running\"," TARGET(
         "EvictionByEvictionAPI") ",\"containerStatuses\":[" RUNNING "]}",
     false, true, true, false},
    {"lost",
     "{\"phase\":\"Failed\",\"reason\":\"NodeLost\",\"containerStatuses\":[" TERMINATED "]}",
     true, true, true, true},
    {"unknown", "{\"phase\":\"Unknown\",\"containerStatuses\":[" RUNNING "]}", false, true,
     true, true},
    {"ready unknown", "{\"phase\":\"Running\"," READY("Unknown", "True") "}", false, false,
     false, true},
    {"ready taken away", "{\"phase\":\"Running\"," READY("False", "True") "}", false, false,
     false, true},
    {"not ready", "{\"phase\":\"Running\"," READY("False", "False") "}", false, false, false,
     false},
    {"ready", "{\"phase\":\"Running\"," READY("True", "True") "}", false, false, false, false},
};

static void test_lives(void **state)
{
    char text[1024];

    (void)state;
    for (size_t i = 0; i < sizeof(lives) / sizeof(lives[0]); i++) {
        struct k8s_pod pod = {.name = "p"};
        struct k8s_pod_life life = {0};
        struct err err = {0};
        cJSON *object = NULL;

        (void)snprintf(text, sizeof(text), "{\"status\":%s}", lives[i].status);
        object = parse(text);
        pod.object = object;
        if (k8s_pod_life_parse(&pod, &life, &err) < 0)
            fail_msg("%s: %s", lives[i].name, err.msg);
        if (life.is_terminal != lives[i].is_terminal ||
            life.has_started != lives[i].has_started ||
            life.is_running != lives[i].is_running ||
            life.is_unreachable != lives[i].is_unreachable)
            fail_msg("%s: terminal %d started %d running %d unreachable %d", lives[i].name,
                     life.is_terminal, life.has_started, life.is_running, life.is_unreachable);
        cJSON_Delete(object);
    }
}

static const char whole[] =
    "{\"metadata\":{\"ownerReferences\":[{\"kind\":\"X\",\"name\":\"x\",\"apiVersion\":\"v1\"},"
    "{\"kind\":\"StatefulSet\",\"apiVersion\":\"apps/"
    "v1\",\"name\":\"compute\",\"controller\":true}"
    "]},\"spec\":{\"hostname\":\"compute-0\",\"subdomain\":\"headless\",\"hostNetwork\":true,"
    "\"readinessGates\":[{\"conditionType\":\"g\"}],"
    "\"containers\":[{\"ports\":[{\"containerPort\":5688},{\"containerPort\":1222}]},{}],"
    "\"initContainers\":[{\"ports\":[{\"containerPort\":8083}]}]},"
    "\"status\":{\"podIP\":\"10.0.0.1\",\"podIPs\":[{\"ip\":\"10.0.0.1\"},{\"ip\":\"fd00::1\"}]"
    ","
    "\"phase\":\"Running\"," READY("False", "True") "}}";

static void test_whole(void **state)
{
    cJSON *object = parse(whole);
    struct k8s_pod pod = {.name = "p", .object = object};
    struct k8s_pod_life life = {0};
    struct err err = {0};

    (void)state;
    assert_int_equal(k8s_pod_life_parse(&pod, &life, &err), 0);
    assert_string_equal(life.owner_kind, "StatefulSet");
    assert_string_equal(life.owner_api, "apps/v1");
    assert_string_equal(life.owner_name, "compute");
    assert_string_equal(life.hostname, "compute-0");
    assert_string_equal(life.subdomain, "headless");
    assert_true(life.host_network);
    assert_int_equal(life.ip_count, 2);
    assert_string_equal(life.ips[1], "fd00::1");
    assert_int_equal(life.port_count, 3);
    assert_int_equal(life.ports[0], 5688);
    assert_int_equal(life.ports[2], 8083);
    assert_false(life.is_unreachable); // a gate is closed, no more
    cJSON_Delete(object);
}

static void test_many_ports(void **state)
{
    cJSON *object = parse("{\"spec\":{\"containers\":[{\"ports\":[{\"containerPort\":1},"
                          "{\"containerPort\":2},{\"containerPort\":3},{\"containerPort\":4},"
                          "{\"containerPort\":5},{\"containerPort\":6},{\"containerPort\":7},"
                          "{\"containerPort\":8},{\"containerPort\":9}]}]},"
                          "\"status\":{\"podIP\":\"10.0.0.1\"}}");
    struct k8s_pod pod = {.name = "p", .object = object};
    struct k8s_pod_life life = {0};
    struct err err = {0};

    (void)state;
    assert_int_equal(k8s_pod_life_parse(&pod, &life, &err), 0);
    assert_int_equal(life.port_count, 0);
    assert_int_equal(life.ip_count, 1);
    cJSON_Delete(object);
}

static void test_wrong(void **state)
{
    static const struct {
        const char *from;
        const char *to;
        const char *err;
    } cases[] = {
        {"\"StatefulSet\"", "5", "kind"},
        {"\"apps/v1\"", "null", "apiVersion"},
        {"\"compute-0\"", "5", "spec.hostname"},
        {"\"hostNetwork\":true", "\"hostNetwork\":\"yes\"", "spec.hostNetwork"},
        {"5688", "70000", "containerPort: 70000"},
        {"5688", "1.5", "containerPort"},
        {"[{\"ip\":\"10.0.0.1\"}", "[{\"ip\":5}", "ip"},
        {"[{\"ip\":\"10.0.0.1\"}", "[5", "status.podIPs"},
        {"\"phase\":\"Running\"", "\"phase\":{}", "status.phase"},
        {"\"phase\":\"Running\"", "\"containerStatuses\":[{\"state\":5}]", "state"},
        {"\"phase\":\"Running\"", "\"containerStatuses\":{}", "status.containerStatuses"},
        {"\"status\":\"False\"", "\"status\":false", "status.conditions"},
        {"[{\"conditionType\":\"g\"}]", "7", "spec.readinessGates"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cJSON *object = parse_with(whole, cases[i].from, cases[i].to);
        struct k8s_pod pod = {.name = "p", .object = object};
        struct k8s_pod_life life = {0};
        struct err err = {0};

        if (k8s_pod_life_parse(&pod, &life, &err) == 0 || err.kind != ERR_INVALID ||
            !strstr(err.msg, cases[i].err) || strncmp(err.msg, "pod p: ", 7) != 0)
            fail_msg("%s: \"%s\"", cases[i].to, err.msg);
        cJSON_Delete(object);
    }
}

// --- slices ---

#define SLICE(endpoints)                                                                       \
    "{\"kind\":\"EndpointSlice\",\"metadata\":{\"name\":\"s\",\"uid\":\"u\",\"labels\":{"      \
    "\"kubernetes.io/"                                                                         \
    "service-name\":\"svc\"}},\"addressType\":\"IPv4\",\"endpoints\":" endpoints "}"

static void test_slice(void **state)
{
    cJSON *object = parse(SLICE("[{\"addresses\":[\"10.0.0.1\",\"10.0.0.2\"],\"hostname\":\"c-"
                                "0\",\"conditions\":{\"ready\":"
                                "true,\"serving\":null,\"terminating\":false},\"targetRef\":{"
                                "\"kind\":\"Pod\",\"uid\":\"u1\","
                                "\"name\":\"c-0\"}},{\"addresses\":[\"10.0.0.3\"],"
                                "\"targetRef\":{\"kind\":\"Node\",\"uid\":"
                                "\"n\"}}]"));
    struct k8s_slice slice = {0};
    struct k8s_endpoint endpoint = {0};
    struct err err = {0};

    (void)state;
    assert_int_equal(k8s_slice_parse(object, &slice, &err), 0);
    assert_string_equal(slice.service, "svc");
    assert_string_equal(slice.address_type, "IPv4");
    assert_int_equal(k8s_slice_next(&slice, &endpoint, &err), 1);
    assert_int_equal(endpoint.address_count, 2);
    assert_string_equal(endpoint.addresses[1], "10.0.0.2");
    assert_string_equal(endpoint.hostname, "c-0");
    assert_string_equal(endpoint.target_uid, "u1");
    assert_string_equal(endpoint.target_name, "c-0");
    assert_int_equal(endpoint.ready, K8S_TRI_TRUE);
    assert_int_equal(endpoint.serving, K8S_TRI_ABSENT);
    assert_int_equal(endpoint.terminating, K8S_TRI_FALSE);
    assert_int_equal(k8s_slice_next(&slice, &endpoint, &err), 1);
    assert_null(endpoint.target_uid);
    assert_int_equal(endpoint.ready, K8S_TRI_ABSENT);
    assert_int_equal(k8s_slice_next(&slice, &endpoint, &err), 0);
    cJSON_Delete(object);
}

static void test_slice_wrong(void **state)
{
    static const struct {
        const char *text;
        const char *err;
    } cases[] = {
        {"{\"kind\":\"Pod\"}", "want EndpointSlice"},
        {"{\"metadata\":{\"name\":\"s\",\"uid\":\"u\"}}", "addressType"},
        {"{\"metadata\":{\"name\":\"s\"},\"addressType\":\"IPv4\"}", "metadata.uid"},
        {SLICE("{}"), "endpoints"},
        {SLICE("[5]"), "s: endpoints"},
        {SLICE("[{}]"), "addresses: none"},
        {SLICE("[{\"addresses\":[5]}]"), "no string"},
        {SLICE("[{\"addresses\":[\"a\"],\"conditions\":{\"ready\":\"yes\"}}]"),
         "conditions.ready"},
        {SLICE("[{\"addresses\":[\"a\"],\"conditions\":5}]"), "conditions"},
        {SLICE("[{\"addresses\":[\"a\"],\"targetRef\":{\"kind\":\"Pod\",\"uid\":7}}]"),
         "targetRef.uid"},
        {SLICE("[{\"addresses\":[\"a\"],\"hostname\":7}]"), "hostname"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cJSON *object = parse(cases[i].text);
        struct k8s_slice slice = {0};
        struct k8s_endpoint endpoint = {0};
        struct err err = {0};

        if (k8s_slice_parse(object, &slice, &err) == 0)
            assert_int_equal(k8s_slice_next(&slice, &endpoint, &err), -1);
        if (err.kind != ERR_INVALID || !strstr(err.msg, cases[i].err))
            fail_msg("%s: \"%s\"", cases[i].text, err.msg);
        cJSON_Delete(object);
    }
}

// --- sets ---

static void test_sets(void **state)
{
    static const struct {
        const char *spec;
        int32_t replicas, start, reserved; // -1: refused
        const char *err;
    } cases[] = {
        {"{}", 1, 0, 0, ""},
        {"null", 1, 0, 0, ""},
        {"{\"replicas\":null}", 1, 0, 0, ""},
        {"{\"replicas\":0}", 0, 0, 0, ""},
        {"{\"replicas\":5,\"ordinals\":{\"start\":3}}", 5, 3, 0, ""},
        {"{\"replicas\":2147483647}", INT32_MAX, 0, 0, ""},
        {"{\"reserveOrdinals\":[1,\"2\",\"5-9\"]}", 1, 0, 7, ""},
        {"{\"reserveOrdinals\":[\"0-999999999\",\"0-999999999\",\"0-999999999\"]}", 1, 0,
         INT32_MAX, ""},
        {"{\"replicas\":-1}", -1, 0, 0, "spec.replicas: -1"},
        {"{\"replicas\":2147483648}", -1, 0, 0, "spec.replicas"},
        {"{\"replicas\":\"3\"}", -1, 0, 0, "spec.replicas"},
        {"{\"replicas\":1.5}", -1, 0, 0, "spec.replicas"},
        {"{\"ordinals\":{\"start\":\"x\"}}", -1, 0, 0, "spec.ordinals.start"},
        {"{\"reserveOrdinals\":[\"9-5\"]}", -1, 0, 0, "9-5"},
        {"{\"reserveOrdinals\":[\"a\"]}", -1, 0, 0, "want a range"},
        {"{\"reserveOrdinals\":[\"1-2x\"]}", -1, 0, 0, "want a range"},
        {"{\"reserveOrdinals\":[{}]}", -1, 0, 0, "neither"},
        {"{\"reserveOrdinals\":7}", -1, 0, 0, "spec.reserveOrdinals"},
    };
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct k8s_set set = {0};
        struct err err = {0};
        cJSON *object = NULL;
        int result = 0;

        (void)snprintf(text, sizeof(text),
                       "{\"metadata\":{\"name\":\"compute\",\"uid\":\"u\"},\"spec\":%s}",
                       cases[i].spec);
        object = parse(text);
        result = k8s_set_parse(object, K8S_SET_KRUISE_STATEFULSET, &set, &err);
        if (cases[i].replicas < 0) {
            if (result == 0 || err.kind != ERR_INVALID || !strstr(err.msg, cases[i].err))
                fail_msg("%s: \"%s\"", cases[i].spec, err.msg);
        } else {
            assert_int_equal(result, 0);
            assert_string_equal(set.name, "compute");
            assert_int_equal(set.replicas, cases[i].replicas);
            assert_int_equal(set.start, cases[i].start);
            assert_int_equal(set.reserved, cases[i].reserved);
        }
        cJSON_Delete(object);
    }
}

static void test_set_kinds(void **state)
{
    cJSON *object = parse(
        "{\"kind\":\"CloneSet\",\"metadata\":{\"name\":\"c\",\"uid\":\"u\"},\"spec\":{}}");
    struct k8s_set set = {0};
    struct err err = {0};

    (void)state;
    assert_int_equal(k8s_set_parse(object, K8S_SET_CLONESET, &set, &err), 0);
    assert_int_equal(k8s_set_parse(object, K8S_SET_STATEFULSET, &set, &err), -1);
    assert_non_null(strstr(err.msg, "want StatefulSet"));
    assert_string_equal(k8s_set_group(K8S_SET_STATEFULSET), "apps/v1");
    assert_string_equal(k8s_set_group(K8S_SET_KRUISE_STATEFULSET), "apps.kruise.io/v1beta1");
    assert_string_equal(k8s_set_resource(K8S_SET_CLONESET), "clonesets");
    cJSON_Delete(object);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_lives),      cmocka_unit_test(test_whole),
    cmocka_unit_test(test_many_ports), cmocka_unit_test(test_wrong),
    cmocka_unit_test(test_slice),      cmocka_unit_test(test_slice_wrong),
    cmocka_unit_test(test_sets),       cmocka_unit_test(test_set_kinds),
};

UNIT_MAIN(tests)
