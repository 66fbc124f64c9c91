// SPDX-License-Identifier: Apache-2.0
// What a list of pods proves about a compute node's process: little, and nothing by absence.
#include "tests/unit/unit.h"

#include "agent/reclaim/gone.h"

static const struct gone_pod a_pod = {
    .pod = "compute-0",
    .uid = "uid-a",
    .container_id = "containerd://1",
    .ips = {"10.0.0.7"},
    .ip_count = 1,
    .name = {"compute-0", "compute-headless", "ns"},
};

static void test_whose_pod(void **state)
{
    static const struct {
        const char *host;
        bool is_its;
    } rows[] = {
        {"10.0.0.7", true},
        {"::ffff:10.0.0.7", true},
        {"10.0.0.8", false},
        {"compute-0.compute-headless", true},
        {"compute-0.compute-headless.ns.svc", true},
        {"compute-0.compute-headless.other.svc", false},
        {"compute-1.compute-headless", false},
        {"compute-0.elsewhere", false}, // can't be judged
        {"127.0.0.1", false},
        {"", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct address host = address_parse(rows[i].host);

        if (gone_is_pod_of(&host, &a_pod) != rows[i].is_its)
            fail_msg("%s", rows[i].host);
    }
}

static struct order_node look_at(const struct gone_pod *pods, size_t count, uint64_t *base)
{
    struct gone_look look = {0};
    struct order_node node = {.endpoint = 1, .incarnation = 99, .is_ended = true};

    for (size_t i = 0; i < count; i++)
        gone_add(&look, &pods[i], *base);
    gone_take(&look, (struct instant){5}, base, &node);
    assert_int_equal(node.seen_at.ns, 5);
    return node;
}

static void test_a_container_that_is_replaced(void **state)
{
    struct gone_pod pod = a_pod;
    uint64_t base = 0;
    struct order_node first = look_at(&pod, 1, &base);
    struct order_node second;

    (void)state;
    assert_true(first.incarnation != 0 && !first.is_ended && base != 0);
    assert_true(look_at(&pod, 1, &base).incarnation == first.incarnation);
    pod.has_ended = true; // the kubelet's word, before it starts another
    second = look_at(&pod, 1, &base);
    assert_true(second.incarnation == first.incarnation && second.is_ended);
    pod.has_ended = false;
    pod.container_id = "containerd://2";
    second = look_at(&pod, 1, &base);
    assert_true(second.incarnation != 0 && second.incarnation != first.incarnation);
    assert_false(second.is_ended);
    pod.container_id = NULL; // it is being created
    assert_int_equal(look_at(&pod, 1, &base).incarnation, 0);
}

// The one before it may run on where nobody sees it.
static void test_another_pod_of_the_name_proves_nothing(void **state)
{
    struct gone_pod pods[2] = {a_pod, a_pod};
    uint64_t base = 0;
    struct order_node node;

    (void)state;
    (void)look_at(pods, 1, &base);
    pods[0].uid = "uid-b";
    pods[0].has_ended = pods[0].is_terminal = true;
    node = look_at(pods, 1, &base);
    assert_true(node.incarnation == 0 && !node.is_ended);
    node = look_at(pods, 0, &base); // nor does absence
    assert_true(node.incarnation == 0 && !node.is_ended);
    // Beside its successor the old one still counts.
    pods[1].is_terminal = true;
    node = look_at(pods, 2, &base);
    assert_true(node.incarnation != 0 && node.is_ended);
}

static void test_two_pods_of_one_address(void **state)
{
    struct gone_pod pods[2] = {a_pod, a_pod};
    uint64_t base = 0;
    struct order_node node;

    (void)state;
    pods[1].uid = "uid-b";
    pods[1].is_terminal = true;
    node = look_at(pods, 2, &base);
    assert_true(node.incarnation == 0 && !node.is_ended && base == 0);
}

// By deleting its pod: only one that is told, of a process of its own.
static void test_whose_end_is_that_of_the_process(void **state)
{
    struct gone_pod pods[2] = {a_pod, a_pod};
    uint64_t base = 0;
    struct gone_look look = {0};

    (void)state;
    assert_true(look_at(pods, 1, &base).can_fence);
    assert_true(look_at(pods, 1, &base).incarnation == gone_process_of(&pods[0]));
    assert_true(base == gone_uid_of(pods[0].uid));
    gone_add(&look, &pods[0], base);
    assert_string_equal(look.pod_name, "compute-0");
    pods[1].container_id = NULL; // it is being created
    assert_false(look_at(&pods[1], 1, &base).can_fence);
    assert_true(gone_process_of(&pods[1]) == 0);
    pods[1] = a_pod;
    pods[1].host_network = true; // others may have that address
    assert_false(look_at(&pods[1], 1, &base).can_fence);
    pods[1] = a_pod;
    pods[1].uid = "uid-b";
    base = 0;
    assert_false(look_at(pods, 2, &base).can_fence); // of two
    assert_false(look_at(pods, 0, &base).can_fence);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_whose_pod),
    cmocka_unit_test(test_a_container_that_is_replaced),
    cmocka_unit_test(test_another_pod_of_the_name_proves_nothing),
    cmocka_unit_test(test_two_pods_of_one_address),
    cmocka_unit_test(test_whose_end_is_that_of_the_process),
};

UNIT_MAIN(tests)
