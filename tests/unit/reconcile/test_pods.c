// SPDX-License-Identifier: Apache-2.0
// What a pod's life says about its row: proofs, and all that is none.
#include "tests/unit/reconcile/world.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

// --- the proof, for each kind of pod ---

struct kind {
    const char *name;
    enum pod_owner owner;
    const char *host; // of the row
    enum worker_type type;
    int32_t port;
    bool host_network;
};

static void test_deleted_pod_is_proof(void **state)
{
    static const struct kind kinds[] = {
        {"compute-5", POD_OWNER_STATEFULSET, "compute-5.compute-headless", WORKER_COMPUTE,
         COMPUTE_PORT, false},
        {"compute-5", POD_OWNER_STATEFULSET, "10.0.0.5", WORKER_COMPUTE, COMPUTE_PORT, false},
        {"compute-5", POD_OWNER_KRUISE_STATEFUL, "compute-5.compute-headless.ns.svc",
         WORKER_COMPUTE, COMPUTE_PORT, false},
        {"frontend-7d9f8-x2x1x", POD_OWNER_REPLICASET, "10.0.0.5", WORKER_FRONTEND,
         FRONTEND_PORT, false},
        {"compactor-x1x2x", POD_OWNER_CLONESET, "10.0.0.5", WORKER_COMPACTOR, COMPACTOR_PORT,
         false},
        {"frontend-a", POD_OWNER_REPLICASET, "fd00::5", WORKER_FRONTEND, FRONTEND_PORT, false},
        {"compute-5", POD_OWNER_STATEFULSET, "10.0.0.5", WORKER_COMPUTE, COMPUTE_PORT, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct world world;
        struct worker_pod *pod = NULL;

        world_init(&world);
        pod = world_compute(&world, "u5", kinds[i].name, "10.0.0.5");
        pod->ips[1] = "FD00:0::5";
        pod->ip_count = 2;
        pod->owner = kinds[i].owner;
        pod->types = (uint8_t)(1 << kinds[i].type);
        pod->ports[0] = (uint16_t)kinds[i].port;
        pod->host_network = kinds[i].host_network;
        (void)world_row(&world, 1, kinds[i].type, kinds[i].host, kinds[i].port);
        world_pass(&world, 0);
        WORLD_IS(&world, 1, VERDICT_LIVE, REASON_POD_RUNS);
        world_delete_pod(&world, "u5");
        world_pass(&world, 10 * S);
        WORLD_IS(&world, 1, VERDICT_UNKNOWN, REASON_UNCONFIRMED);
        assert_int_equal(world_judgment(&world, 1)->proof, REASON_POD_GONE);
        assert_true(world_judgment(&world, 1)->confirm_in_ns == 30 * S);
        world_pass(&world, 40 * S - 1);
        WORLD_IS(&world, 1, VERDICT_UNKNOWN, REASON_UNCONFIRMED);
        assert_true(world_judgment(&world, 1)->confirm_in_ns == 1);
        world_pass(&world, 40 * S);
        WORLD_IS(&world, 1, VERDICT_GONE, REASON_POD_GONE);
        assert_string_equal(
            reconcile_pod_uid(&world.memory, world_judgment(&world, 1)->known_pod), "u5");
        assert_true(world_has(&world, RECONCILE_BURY, 1));
        world_done(&world);
    }
}

static void test_d06_failed_pod_that_stays_listed(void **state)
{
    struct world *world = *state;

    world_known_frontend(world);
    world_end_pod(world, "u1");
    world_endpoint(world, "10.0.0.7", "u1"); // still said to be ready
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_GONE, REASON_POD_ENDED);
    // Its object goes: the same proof.
    world_drop_pod(world, "u1");
    world_pass(world, world->at_ns + S);
    WORLD_IS(world, 1, VERDICT_GONE, REASON_POD_GONE);
}

static void test_d06_new_pod_of_the_name_is_pending(void **state)
{
    struct world *world = *state;
    struct worker_pod *pod = NULL;

    world_known_compute(world);
    world_delete_pod(world, "u1");
    pod = world_compute(world, "u2", "compute-7", NULL);
    pod->has_started = false;
    pod->is_running = false;
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_LIVE, REASON_POD_PENDING);
}

static void test_d06_failed_by_the_garbage_collector(void **state)
{
    struct world *world = *state;

    world_known_frontend(world);
    world_find_pod(world, "u1")->is_terminal = true; // a container still "runs"
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_ENDED_RUNNING);
    world_force_delete(world, "u1");
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_ENDED_RUNNING);
}

static void test_never_seen_is_no_proof(void **state)
{
    struct world *world = *state;

    (void)world_row(world, 1, WORKER_FRONTEND, "10.0.0.7", FRONTEND_PORT);
    (void)world_row(world, 2, WORKER_COMPUTE, "compute-9.compute-headless", COMPUTE_PORT);
    (void)world_row(world, 3, WORKER_COMPUTE, "vm.example.com", COMPUTE_PORT);
    // Ended before this agent came: was it this row's?
    (void)world_frontend(world, "u4", "frontend-a", "10.0.0.4");
    world_end_pod(world, "u4");
    (void)world_row(world, 4, WORKER_FRONTEND, "10.0.0.4", FRONTEND_PORT);
    for (int i = 0; i < 20; i++)
        world_confirm(world);
    for (int id = 1; id <= 4; id++)
        WORLD_IS(world, id, VERDICT_UNKNOWN, REASON_NEVER_SEEN);
    assert_int_equal(world->plan.action_count, 0);
}

// --- D12: unreachable and forced ---

static void test_d12_unreachable_node(void **state)
{
    struct world *world = *state;
    struct worker_pod *pod = world_compute(world, "u1", "compute-7", "10.0.0.7");

    (void)world_row(world, 1, WORKER_COMPUTE, "compute-7.compute-headless", COMPUTE_PORT);
    world_pass(world, 0);
    pod->is_unreachable = true;
    pod->is_deleting = true;
    world_pass(world, 600 * S);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_NODE_UNREACHABLE);
    world_force_delete(world, "u1");
    for (int i = 0; i < 20; i++)
        world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_NODE_UNREACHABLE);
}

static void test_d12_forced_delete(void **state)
{
    struct world *world = *state;

    world_known_frontend(world);
    world_force_delete(world, "u1");
    for (int i = 0; i < 20; i++)
        world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_FORCE_DELETED);
}

// The name lives on in a successor, and the one behind the partition may live as well: when the
// successor is properly gone, that proves nothing about the other.
static void test_d12_forced_and_replaced(void **state)
{
    struct world *world = *state;

    world_known_compute(world);
    world_force_delete(world, "u1");
    (void)world_compute(world, "u2", "compute-7", "10.0.0.8");
    world_touch_row(world, 1);
    world_pass(world, S);
    WORLD_IS(world, 1, VERDICT_LIVE, REASON_POD_RUNS);
    world_delete_pod(world, "u2");
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_END_UNSEEN);
}

// Its kubelet was cut off before it could say that the pod has started: whoever had the address
// before is no proof of anything.
static void test_d12_cut_off_before_it_was_said_to_start(void **state)
{
    struct world *world = *state;
    struct worker_pod *pod = NULL;

    world_known_frontend(world);
    world_delete_pod(world, "u1");
    pod = world_frontend(world, "u2", "frontend-b", "10.0.0.7");
    pod->has_started = false;
    pod->is_running = false;
    world_touch_row(world, 1);
    world_pass(world, 10 * S);
    WORLD_IS(world, 1, VERDICT_LIVE, REASON_POD_PENDING);
    pod->is_terminal = true; // says the garbage collector
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_ENDED_RUNNING);
    world_force_delete(world, "u2");
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_ENDED_RUNNING);
}

// An eviction that leaves no status of a container behind: it had started before.
static void test_d06_evicted_without_statuses(void **state)
{
    struct world *world = *state;

    world_known_frontend(world);
    world_end_pod(world, "u1");
    world_find_pod(world, "u1")->has_started = false;
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_GONE, REASON_POD_ENDED);
}

static void test_end_that_nobody_watched(void **state)
{
    struct world *world = *state;

    world_known_frontend(world);
    world_drop_pod(world, "u1");
    for (int i = 0; i < 20; i++)
        world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_END_UNSEEN);
}

// --- D05: addresses are handed on ---

static void test_d05_address_of_another_app(void **state)
{
    struct world *world = *state;
    struct worker_pod *pod = NULL;

    world_known_frontend(world);
    // Not in the list of workers at all, or in it by its labels only.
    world_delete_pod(world, "u1");
    pod = world_frontend(world, "u2", "app-b", "10.0.0.7");
    pod->owner = POD_OWNER_OTHER;
    pod->types = 0;
    pod->ports[0] = 80;
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_GONE, REASON_POD_GONE);
}

static void test_d05_address_of_another_release(void **state)
{
    struct world *world = *state;

    world_known_frontend(world);
    world_delete_pod(world, "u1");
    world_frontend(world, "u2", "other-frontend", "10.0.0.7")->is_foreign = true;
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_GONE, REASON_POD_GONE);
}

static void test_d05_address_of_another_worker_of_ours(void **state)
{
    struct world *world = *state;

    world_known_frontend(world);
    world_delete_pod(world, "u1");
    // Registering it will reuse that very row.
    (void)world_frontend(world, "u2", "frontend-b", "10.0.0.7");
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_LIVE, REASON_POD_RUNS);
    // The old one's end is told late: it is about another uid.
    {
        struct worker_pod late = *world_find_pod(world, "u2");

        late.uid = "u1";
        late.is_terminal = true;
        late.is_running = false;
        reconcile_saw_pod(&world->memory, &late, true);
    }
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_LIVE, REASON_POD_RUNS);
    // Another component at the address has another port: the row is nobody's.
    world_delete_pod(world, "u2");
    (void)world_compute(world, "u3", "compute-9", "10.0.0.7");
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_GONE, REASON_POD_GONE);
}

static void test_d05_pod_changes_its_address(void **state)
{
    struct world *world = *state;

    world_known_frontend(world);
    world_find_pod(world, "u1")->ips[0] = "10.0.0.8";
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_ADDRESS_MOVED);
}

// Two pods say that they have it: one is on its way out, or its status is old.
static void test_d05_two_pods_of_one_address(void **state)
{
    struct world *world = *state;

    world_known_frontend(world);
    world_find_pod(world, "u1")->is_deleting = true;
    (void)world_frontend(world, "u2", "frontend-b", "10.0.0.7");
    world_pass(world, S);
    WORLD_IS(world, 1, VERDICT_LIVE, REASON_POD_RUNS);
    assert_string_equal(world->pods[world_judgment(world, 1)->pod].uid, "u2");
    world_delete_pod(world, "u1");
    world_delete_pod(world, "u2");
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_END_UNSEEN);
}

// --- D13, D14: rows that are being written ---

static void test_d13_registered_again(void **state)
{
    struct world *world = *state;

    world_known_frontend(world);
    world_delete_pod(world, "u1");
    world_confirm(world);
    assert_true(world_has(world, RECONCILE_BURY, 1));
    // Somebody whom no list has seen yet has written the row: never again is it proven dead.
    world_touch_row(world, 1);
    world_pass(world, world->at_ns + S);
    assert_true(world_has(world, RECONCILE_UNBURY, 1));
    assert_false(world_has(world, RECONCILE_BURY, 1));
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_END_UNSEEN);
    // A new id at the same address is a row of its own.
    world_drop_row(world, 1);
    (void)world_row(world, 2, WORKER_FRONTEND, "10.0.0.7", FRONTEND_PORT);
    world_confirm(world);
    WORLD_IS(world, 2, VERDICT_UNKNOWN, REASON_NEVER_SEEN);
}

static void test_d14_row_before_its_pod(void **state)
{
    struct world *world = *state;
    struct worker_row *row =
        world_row(world, 1, WORKER_COMPUTE, "compute-7.compute-headless", COMPUTE_PORT);

    row->status = WORKER_STARTING;
    world_pass(world, 0);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_YOUNG);
    world_pass(world, 120 * S - 1);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_YOUNG);
    world_pass(world, 120 * S);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_NEVER_SEEN);
    // Pending, image pull back-off, running and never ready: existence is what counts.
    world_compute(world, "u1", "compute-7", NULL)->has_started = false;
    world_pass(world, 150 * S);
    WORLD_IS(world, 1, VERDICT_LIVE, REASON_POD_PENDING);
    world_find_pod(world, "u1")->has_started = true;
    world_pass(world, 180 * S);
    WORLD_IS(world, 1, VERDICT_LIVE, REASON_POD_RUNS);
}

static void test_d14_young_row_of_a_pod_that_ended(void **state)
{
    struct world *world = *state;
    struct worker_row *row = world_row(world, 1, WORKER_FRONTEND, "10.0.0.7", FRONTEND_PORT);

    row->status = WORKER_STARTING;
    (void)world_frontend(world, "u1", "frontend-a", "10.0.0.7");
    world_pass(world, 0);
    world_delete_pod(world, "u1");
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_YOUNG);
    world_pass(world, 120 * S);
    world_pass(world, 150 * S);
    WORLD_IS(world, 1, VERDICT_GONE, REASON_POD_GONE);
}

// --- D18: strangers ---

static void test_d18_strangers_elsewhere(void **state)
{
    struct world *world = *state;

    (void)world_compute(world, "u1", "compute-7", "10.0.0.7");
    (void)world_row(world, 1, WORKER_COMPUTE, "compute-7.compute-headless", COMPUTE_PORT);
    (void)world_row(world, 2, WORKER_COMPUTE, "10.0.0.9", COMPUTE_PORT);
    world_pass(world, 0);
    world_delete_pod(world, "u1");
    // A backup job, a test pod, a copy for debugging and a canary, all with its labels.
    world_compute(world, "u2", "backup-x1", "10.0.0.8")->owner = POD_OWNER_OTHER;
    world_compute(world, "u3", "compute-7-debug", "10.0.0.9")->owner = POD_OWNER_NONE;
    (void)world_compute(world, "u4", "canary-0", "10.0.0.10");
    (void)world_row(world, 4, WORKER_COMPUTE, "canary-0.compute-headless", COMPUTE_PORT);
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_GONE, REASON_POD_GONE);
    WORLD_IS(world, 2, VERDICT_UNKNOWN, REASON_STRANGER); // at its very address: it may use it
    WORLD_IS(world, 4, VERDICT_LIVE, REASON_POD_RUNS);    // a worker by owner and port
}

static void test_d18_stranger_at_the_address(void **state)
{
    static const struct {
        enum pod_owner owner;
        uint16_t port; // 0: none declared
        uint8_t types;
        enum worker_reason reason;
    } cases[] = {
        {POD_OWNER_OTHER, 0, 1 << WORKER_COMPUTE, REASON_POD_GONE},
        {POD_OWNER_OTHER, 80, 1 << WORKER_COMPUTE, REASON_POD_GONE},
        {POD_OWNER_OTHER, COMPUTE_PORT, 1 << WORKER_COMPUTE, REASON_STRANGER},
        {POD_OWNER_NONE, 0, 1 << WORKER_COMPUTE, REASON_STRANGER},
        {POD_OWNER_NONE, 80, 1 << WORKER_COMPUTE, REASON_POD_GONE},
        {POD_OWNER_NONE, COMPUTE_PORT, 0, REASON_STRANGER},
        {POD_OWNER_REPLICASET, 80, 1 << WORKER_COMPUTE, REASON_PORT_MISMATCH},
        {POD_OWNER_REPLICASET, 80, 0, REASON_PORT_MISMATCH},
        {POD_OWNER_REPLICASET, 80, 1 << WORKER_FRONTEND, REASON_POD_GONE},
        {POD_OWNER_REPLICASET, COMPUTE_PORT, 1 << WORKER_FRONTEND, REASON_PORT_MISMATCH},
        {POD_OWNER_REPLICASET, COMPUTE_PORT, 0, REASON_POD_RUNS},
        {POD_OWNER_CLONESET, COMPUTE_PORT, WORLD_ALL, REASON_POD_RUNS},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world world;
        struct worker_pod *pod = NULL;

        world_init(&world);
        (void)world_compute(&world, "u1", "compute-7", "10.0.0.7");
        (void)world_row(&world, 1, WORKER_COMPUTE, "10.0.0.7", COMPUTE_PORT);
        world_pass(&world, 0);
        world_delete_pod(&world, "u1");
        pod = world_compute(&world, "u2", "stranger", "10.0.0.7");
        pod->owner = cases[i].owner;
        pod->ports[0] = cases[i].port;
        pod->port_count = cases[i].port ? 1 : 0;
        pod->types = cases[i].types;
        world_confirm(&world);
        if (world_judgment(&world, 1)->reason != cases[i].reason)
            fail_msg("case %zu: %s", i,
                     worker_reason_name((enum worker_reason)world_judgment(&world, 1)->reason));
        world_done(&world);
    }
}

// A pod of the name that is no worker: the name is its, and it may have registered.
static void test_d18_stranger_of_the_name(void **state)
{
    struct world *world = *state;

    world_known_compute(world);
    world_delete_pod(world, "u1");
    world_compute(world, "u2", "compute-7", "10.0.0.9")->owner = POD_OWNER_NONE;
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_STRANGER);
    world_find_pod(world, "u2")->owner = POD_OWNER_STATEFULSET;
    world_find_pod(world, "u2")->subdomain = "other-headless";
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_NAME_MISMATCH);
}

static void test_rows_left_alone(void **state)
{
    struct world *world = *state;

    (void)world_row(world, 1, WORKER_RISECTL, "risectl-0b6e", 0);
    (void)world_row(world, 2, WORKER_OTHER, "10.0.0.7", 1);
    (void)world_row(world, 3, WORKER_COMPUTE, NULL, COMPUTE_PORT);
    (void)world_row(world, 4, WORKER_COMPUTE, "127.0.0.1", COMPUTE_PORT);
    (void)world_row(world, 5, WORKER_COMPUTE, "compute-0:5688", COMPUTE_PORT);
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_RISECTL);
    WORLD_IS(world, 2, VERDICT_UNKNOWN, REASON_UNKNOWN_TYPE);
    for (int id = 3; id <= 5; id++)
        WORLD_IS(world, id, VERDICT_UNKNOWN, REASON_BAD_ADDRESS);
}

// --- D16, D08: dresses ---

static void test_d16_every_dress_is_found(void **state)
{
    static const char *const hosts[] = {"compute-1",
                                        "Compute-1.",
                                        "compute-1.compute-headless",
                                        "compute-1.compute-headless.ns",
                                        "COMPUTE-1.compute-headless.ns.svc",
                                        "compute-1.compute-headless.ns.svc.cluster.local",
                                        "compute-1.compute-headless.ns.svc.k8s.example.",
                                        "10.0.0.1",
                                        "::ffff:10.0.0.1",
                                        "10-0-0-1.ns.pod.cluster.local",
                                        "[fd00::1]",
                                        "FD00:0:0::1"};

    (void)state;
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        struct world world;
        struct worker_pod *pod = NULL;

        world_init(&world);
        pod = world_compute(&world, "u1", "compute-1", "10.0.0.1");
        pod->ips[1] = "fd00::1";
        pod->ip_count = 2;
        (void)world_row(&world, 1, WORKER_COMPUTE, hosts[i], COMPUTE_PORT);
        world_pass(&world, 0);
        WORLD_IS(&world, 1, VERDICT_LIVE, REASON_POD_RUNS);
        world_done(&world);
    }
}

static void test_d16_names_with_dots_and_hostnames(void **state)
{
    struct world *world = *state;
    struct worker_pod *pod = world_compute(world, "u1", "static.node-1", NULL);

    (void)world_row(world, 1, WORKER_COMPUTE, "static.node-1.compute-headless", COMPUTE_PORT);
    pod = world_compute(world, "u2", "compute-abcde", NULL);
    pod->hostname = "worker-a";
    (void)world_row(world, 2, WORKER_COMPUTE, "worker-a.compute-headless.ns.svc", COMPUTE_PORT);
    (void)world_row(world, 3, WORKER_COMPUTE, "compute-abcde", COMPUTE_PORT);
    world_pass(world, 0);
    WORLD_IS(world, 1, VERDICT_LIVE, REASON_POD_RUNS);
    WORLD_IS(world, 2, VERDICT_LIVE, REASON_POD_RUNS);
    // By the name that it does not call itself: undecided, not dead.
    WORLD_IS(world, 3, VERDICT_UNKNOWN, REASON_NAME_MISMATCH);
    // A name that fits two pods.
    (void)world_compute(world, "u3", "static", NULL);
    world_find_pod(world, "u3")->subdomain = "node-1";
    (void)world_row(world, 4, WORKER_COMPUTE, "static.node-1", COMPUTE_PORT);
    world_pass(world, S);
    WORLD_IS(world, 4, VERDICT_UNKNOWN, REASON_AMBIGUOUS);
}

static void test_d08_losing_a_family_is_not_losing_the_pod(void **state)
{
    struct world *world = *state;
    struct worker_pod *pod = world_compute(world, "u1", "compute-1", "10.0.0.1");

    pod->ips[1] = "fd00:0::1";
    pod->ip_count = 2;
    world_endpoint(world, "10.0.0.1", "u1");
    world_endpoint(world, "fd00::0001", "u1");
    (void)world_row(world, 1, WORKER_COMPUTE, "fd00::1", COMPUTE_PORT);
    world_pass(world, 0);
    WORLD_IS(world, 1, VERDICT_LIVE, REASON_POD_RUNS);
    world->facts.snapshot.endpoint_count = 1; // one family's slice is gone
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_LIVE, REASON_POD_RUNS);
    world_find_pod(world, "u1")->ip_count = 1; // … and the pod's status has lost it
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_UNKNOWN, REASON_ADDRESS_MOVED);
}

static void test_host_network(void **state)
{
    struct world *world = *state;
    struct worker_pod *a = world_compute(world, "a", "compute-7", "192.168.0.1");
    struct worker_pod *b = world_frontend(world, "b", "frontend-x", "192.168.0.1");

    a->host_network = true;
    b->host_network = true;
    (void)world_row(world, 1, WORKER_COMPUTE, "192.168.0.1", COMPUTE_PORT);
    (void)world_row(world, 2, WORKER_FRONTEND, "192.168.0.1", FRONTEND_PORT);
    (void)world_row(world, 3, WORKER_COMPACTOR, "192.168.0.1", COMPACTOR_PORT);
    world_pass(world, 0);
    WORLD_IS(world, 1, VERDICT_LIVE, REASON_POD_RUNS);
    WORLD_IS(world, 2, VERDICT_LIVE, REASON_POD_RUNS);
    WORLD_IS(world, 3, VERDICT_UNKNOWN, REASON_NEVER_SEEN);
    // The node's address is still there, its pod is not.
    world_delete_pod(world, "a");
    world_confirm(world);
    WORLD_IS(world, 1, VERDICT_GONE, REASON_POD_GONE);
    WORLD_IS(world, 2, VERDICT_LIVE, REASON_POD_RUNS);
    // Nobody on that node says which ports it has.
    world_find_pod(world, "b")->port_count = 0;
    world_confirm(world);
    WORLD_IS(world, 2, VERDICT_UNKNOWN, REASON_PORT_MISMATCH);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_deleted_pod_is_proof),
    WORLD_TEST(test_d06_failed_pod_that_stays_listed),
    WORLD_TEST(test_d06_new_pod_of_the_name_is_pending),
    WORLD_TEST(test_d06_failed_by_the_garbage_collector),
    WORLD_TEST(test_never_seen_is_no_proof),
    WORLD_TEST(test_d12_unreachable_node),
    WORLD_TEST(test_d12_forced_delete),
    WORLD_TEST(test_d12_forced_and_replaced),
    WORLD_TEST(test_d12_cut_off_before_it_was_said_to_start),
    WORLD_TEST(test_d06_evicted_without_statuses),
    WORLD_TEST(test_end_that_nobody_watched),
    WORLD_TEST(test_d05_address_of_another_app),
    WORLD_TEST(test_d05_address_of_another_release),
    WORLD_TEST(test_d05_address_of_another_worker_of_ours),
    WORLD_TEST(test_d05_pod_changes_its_address),
    WORLD_TEST(test_d05_two_pods_of_one_address),
    WORLD_TEST(test_d13_registered_again),
    WORLD_TEST(test_d14_row_before_its_pod),
    WORLD_TEST(test_d14_young_row_of_a_pod_that_ended),
    WORLD_TEST(test_d18_strangers_elsewhere),
    cmocka_unit_test(test_d18_stranger_at_the_address),
    WORLD_TEST(test_d18_stranger_of_the_name),
    WORLD_TEST(test_rows_left_alone),
    cmocka_unit_test(test_d16_every_dress_is_found),
    WORLD_TEST(test_d16_names_with_dots_and_hostnames),
    WORLD_TEST(test_d08_losing_a_family_is_not_losing_the_pod),
    WORLD_TEST(test_host_network),
};

UNIT_MAIN(tests)
