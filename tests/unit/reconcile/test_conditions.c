// SPDX-License-Identifier: Apache-2.0
// D09: conditions have three values, and none of them is proof of death. From the API's JSON to
// the verdict.
#include "tests/unit/k8s/parse.h"
#include "tests/unit/reconcile/world.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "k8s/pod.h"
#include "k8s/slice.h"

static void put_condition(char *text, size_t size, const char *name, enum k8s_tri value)
{
    size_t len = strlen(text);

    if (value != K8S_TRI_ABSENT)
        (void)snprintf(text + len, size - len, "%s\"%s\":%s", len > 1 ? "," : "", name,
                       value == K8S_TRI_TRUE ? "true" : "false");
}

static void judge(const struct k8s_endpoint *endpoint, const struct k8s_pod_life *life)
{
    struct world world;
    struct worker_pod *pod = NULL;

    world_init(&world);
    pod = world_compute(&world, "u1", "compute-7", life->ips[0]);
    pod->is_terminal = life->is_terminal;
    pod->is_running = life->is_running;
    pod->has_started = life->has_started;
    pod->is_unreachable = life->is_unreachable;
    world_endpoint(&world, endpoint->addresses[0], endpoint->target_uid);
    (void)world_row(&world, 1, WORKER_COMPUTE, "10.0.0.7", COMPUTE_PORT);
    (void)world_row(&world, 2, WORKER_COMPUTE, "compute-7.compute-headless", COMPUTE_PORT);
    world_pass(&world, 0);
    world_confirm(&world);
    assert_int_not_equal(world_judgment(&world, 1)->verdict, VERDICT_GONE);
    assert_int_not_equal(world_judgment(&world, 2)->verdict, VERDICT_GONE);
    world_done(&world);
}

// `pod_ready`: with publishNotReadyAddresses or without, headless or not, what a slice says
// does not follow from what the pod says.
static void test_d09_all_27_combinations(void **state)
{
    static const char *const pods[] = {
        "{\"phase\":\"Running\",\"podIP\":\"10.0.0.7\",\"conditions\":[{\"type\":\"Ready\","
        "\"status\":\"True\"}],\"containerStatuses\":[{\"state\":{\"running\":{}}}]}",
        "{\"phase\":\"Running\",\"podIP\":\"10.0.0.7\",\"conditions\":[{\"type\":\"Ready\","
        "\"status\":\"False\"}],\"containerStatuses\":[{\"state\":{\"waiting\":{}},"
        "\"restartCount\":4}]}",
        "{\"phase\":\"Pending\",\"podIP\":\"10.0.0.7\"}",
    };
    char conditions[128];
    char text[512];

    (void)state;
    for (unsigned i = 0; i < 27 * 3; i++) {
        enum k8s_tri ready = (enum k8s_tri)(i % 3);
        enum k8s_tri serving = (enum k8s_tri)(i / 3 % 3);
        enum k8s_tri terminating = (enum k8s_tri)(i / 9 % 3);
        struct k8s_slice slice = {0};
        struct k8s_endpoint endpoint = {0};
        struct k8s_pod pod = {.name = "compute-7"};
        struct k8s_pod_life life = {0};
        struct err err = {0};
        cJSON *slice_object = NULL;
        cJSON *pod_object = NULL;

        (void)snprintf(conditions, sizeof(conditions), "{");
        put_condition(conditions, sizeof(conditions), "ready", ready);
        put_condition(conditions, sizeof(conditions), "serving", serving);
        put_condition(conditions, sizeof(conditions), "terminating", terminating);
        (void)snprintf(
            text, sizeof(text),
            "{\"metadata\":{\"name\":\"s\",\"uid\":\"su\"},\"addressType\":\"IPv4\","
            "\"endpoints\":[{\"addresses\":[\"10.0.0.7\"],\"conditions\":%s},"
            "\"targetRef\":{\"kind\":\"Pod\",\"uid\":\"u1\",\"name\":\"compute-7\"}}]}",
            conditions);
        slice_object = parse(text);
        (void)snprintf(text, sizeof(text), "{\"status\":%s}", pods[i / 27]);
        pod_object = parse(text);
        pod.object = pod_object;
        assert_int_equal(k8s_slice_parse(slice_object, &slice, &err), 0);
        assert_int_equal(k8s_slice_next(&slice, &endpoint, &err), 1);
        assert_int_equal(endpoint.ready, ready);
        assert_int_equal(endpoint.serving, serving);
        assert_int_equal(endpoint.terminating, terminating);
        assert_int_equal(k8s_pod_life_parse(&pod, &life, &err), 0);
        assert_false(life.is_terminal);
        judge(&endpoint, &life);
        cJSON_Delete(slice_object);
        cJSON_Delete(pod_object);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_d09_all_27_combinations),
};

UNIT_MAIN(tests)
