// SPDX-License-Identifier: Apache-2.0
// Nothing LIVE is ever in the plan: a small cluster with nodes that are cut off, pods that are
// deleted politely and by force, addresses that are handed on, watches and lists that fail.
// What is true is known here, and only here: a row is live while some process heartbeats with
// its id.
#include "tests/unit/reconcile/world.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS   300
#define TURNS   250
#define NODES   3
#define IPS     12
#define ROW_IDS 4096
#define SLOTS   24 // pods and processes that exist at one time

struct truth_pod {
    bool is_object; // the API has it
    bool is_process;
    int node;
    char uid[16];
    char name[24];
    char ip[16];
    int32_t row; // id with which the process heartbeats; 0: not registered
    unsigned registration;
    bool is_seen; // a complete look showed the pod and that row
    bool by_name;
    int dress;
    bool is_deleting;
    bool is_terminal;  // in the API
    bool says_running; // … as its kubelet last said
    bool says_started;
    enum pod_owner owner;
    enum worker_type type;
};

// One who judges the same in small steps.
struct stepper {
    struct reconcile_memory memory;
    struct reconcile_plan plan;
    struct worker_judgment judgments[WORLD_ROWS];
    void *block;
    unsigned steps;
};

struct truth {
    struct world world;
    struct stepper stepper;
    struct truth_pod pods[SLOTS];
    char hosts[WORLD_ROWS][96];
    bool is_cut[NODES];
    unsigned next_uid;
    int32_t next_row;
    unsigned registrations;
    unsigned newest[ROW_IDS]; // registration of each row
    unsigned buried;
    unsigned judged_live;
};

static uint64_t random_state;

static unsigned draw(unsigned below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)(random_state % below);
}

static bool chance(unsigned percent)
{
    return draw(100) < percent;
}

// --- what the API says of a pod ---

static struct worker_pod show(const struct truth_pod *pod, bool is_cut)
{
    struct worker_pod shown = {.uid = pod->uid,
                               .name = pod->name,
                               .name_space = "ns",
                               .subdomain = "compute-headless",
                               .owner = pod->owner,
                               .ips = {pod->ip},
                               .ip_count = 1,
                               .types = (uint8_t)(1 << pod->type),
                               .port_count = 1,
                               .is_terminal = pod->is_terminal,
                               .is_deleting = pod->is_deleting,
                               .has_started = pod->says_started,
                               .is_running = pod->says_running};

    shown.ports[0] = pod->type == WORKER_COMPUTE ? COMPUTE_PORT : FRONTEND_PORT;
    shown.is_unreachable = is_cut && chance(50); // noticed after a while
    return shown;
}

static void event(struct truth *truth, const struct truth_pod *pod, bool is_deleted)
{
    struct worker_pod shown = show(pod, truth->is_cut[pod->node]);

    if (!chance(85)) // the watch had a gap
        return;
    reconcile_saw_pod(&truth->world.memory, &shown, is_deleted);
    reconcile_saw_pod(&truth->stepper.memory, &shown, is_deleted);
}

// --- what happens ---

static struct truth_pod *draw_pod(struct truth *truth, bool is_object)
{
    struct truth_pod *pod = &truth->pods[draw(SLOTS)];

    return pod->is_object == is_object ? pod : NULL;
}

static bool has_name(const struct truth *truth, const char *name)
{
    for (int i = 0; i < SLOTS; i++) {
        if (truth->pods[i].is_object && strcmp(truth->pods[i].name, name) == 0)
            return true;
    }
    return false;
}

// An address is free when no object says it is in use; a process behind a cut may keep it.
static bool is_ip_free(const struct truth *truth, const char *ip)
{
    for (int i = 0; i < SLOTS; i++) {
        const struct truth_pod *pod = &truth->pods[i];

        if (strcmp(pod->ip, ip) == 0 && ((pod->is_object && !pod->is_terminal) ||
                                         (pod->is_process && !truth->is_cut[pod->node])))
            return false;
    }
    return true;
}

static void create(struct truth *truth)
{
    struct truth_pod *pod = draw_pod(truth, false);
    char ip[16];

    (void)snprintf(ip, sizeof(ip), "10.0.0.%u", 1 + draw(IPS));
    if (!pod || pod->is_process || !is_ip_free(truth, ip))
        return;
    *pod = (struct truth_pod){.node = (int)draw(NODES)};
    pod->dress = (int)draw(4);
    if (truth->is_cut[pod->node])
        return;
    pod->type = chance(60) ? WORKER_COMPUTE : WORKER_FRONTEND;
    pod->owner = pod->type == WORKER_COMPUTE ? POD_OWNER_STATEFULSET : POD_OWNER_REPLICASET;
    if (chance(10))
        pod->owner = chance(50) ? POD_OWNER_NONE : POD_OWNER_OTHER;
    pod->by_name = pod->type == WORKER_COMPUTE && chance(70);
    (void)snprintf(pod->uid, sizeof(pod->uid), "u%u", ++truth->next_uid);
    if (pod->type == WORKER_COMPUTE)
        (void)snprintf(pod->name, sizeof(pod->name), "compute-%u", draw(6));
    else
        (void)snprintf(pod->name, sizeof(pod->name), "f-x%u", truth->next_uid);
    memcpy(pod->ip, ip, sizeof(ip));
    pod->is_object = !has_name(truth, pod->name);
}

static void put_host(const struct truth_pod *pod, char *host, size_t size)
{
    static const char *const rests[] = {"", ".compute-headless", ".Compute-Headless.ns.svc",
                                        ".compute-headless.ns.svc.cluster.local."};

    if (pod->by_name)
        (void)snprintf(host, size, "%s%s", pod->name, rests[pod->dress]);
    else
        (void)snprintf(host, size, "%s%s", pod->dress ? "::ffff:" : "", pod->ip);
}

static void registered(struct truth *truth, struct truth_pod *pod, int32_t id)
{
    assert_true(id < ROW_IDS);
    pod->row = id;
    pod->is_seen = false;
    pod->registration = ++truth->registrations;
    truth->newest[id] = pod->registration;
}

// As add_worker: by the very host and port, else a new id.
static void register_worker(struct truth *truth, struct truth_pod *pod)
{
    struct worker_snapshot *snapshot = &truth->world.facts.snapshot;
    int32_t port = pod->type == WORKER_COMPUTE ? COMPUTE_PORT : FRONTEND_PORT;
    char host[96];
    const struct worker_row *row = NULL;

    put_host(pod, host, sizeof(host));
    for (uint32_t i = 0; i < snapshot->row_count; i++) {
        row = &truth->world.rows[i];
        if (row->port != port || strcmp(row->host, host) != 0)
            continue;
        if (row->type != pod->type)
            return; // the leader refuses it
        world_touch_row(&truth->world, row->id);
        registered(truth, pod, row->id);
        return;
    }
    if (snapshot->row_count == WORLD_ROWS)
        return;
    memcpy(truth->hosts[snapshot->row_count], host, sizeof(host));
    row = world_row(&truth->world, ++truth->next_row, pod->type,
                    truth->hosts[snapshot->row_count], port);
    registered(truth, pod, row->id);
}

// Its kubelet, where it can be heard, and its process.
static void live(struct truth *truth)
{
    struct truth_pod *pod = &truth->pods[draw(SLOTS)];
    bool is_cut = truth->is_cut[pod->node];

    if (pod->is_process && pod->row == 0) {
        register_worker(truth, pod);
    } else if (pod->is_process && chance(15)) {
        pod->is_process = false; // it crashes; its kubelet starts it again
        pod->row = 0;
    } else if (!pod->is_process && pod->is_object && !pod->is_terminal && !pod->is_deleting) {
        pod->is_process = true;
        pod->row = 0;
    }
    if (pod->is_object && !is_cut && !pod->is_terminal) {
        pod->says_started = pod->says_started || pod->is_process;
        pod->says_running = pod->is_process || pod->says_started;
        event(truth, pod, false);
    }
}

// Deleted politely, or evicted: the process ends, then the kubelet says so, then the object
// goes.
static void end_pod(struct truth *truth)
{
    struct truth_pod *pod = draw_pod(truth, true);

    if (!pod)
        return;
    if (!pod->is_deleting && !pod->is_terminal) {
        pod->is_deleting = chance(80);
        if (pod->is_deleting) {
            event(truth, pod, false);
            return;
        }
    }
    if (truth->is_cut[pod->node])
        return;
    if (!pod->is_terminal || pod->says_running) {
        pod->is_process = false;
        pod->row = 0;
        pod->is_terminal = true;
        pod->says_running = false;
        event(truth, pod, false);
        return;
    }
    event(truth, pod, true);
    pod->is_object = false;
}

static void force_delete(struct truth *truth)
{
    struct truth_pod *pod = draw_pod(truth, true);

    if (!pod)
        return;
    if (chance(30)) { // the garbage collector calls it failed first
        pod->is_terminal = true;
        event(truth, pod, false);
    }
    event(truth, pod, true);
    pod->is_object = false;
}

// A process whose object is gone is killed by its kubelet, unless that can't be told.
static void reap(struct truth *truth)
{
    for (int i = 0; i < SLOTS; i++) {
        struct truth_pod *pod = &truth->pods[i];

        if (!pod->is_object && pod->is_process && !truth->is_cut[pod->node] && chance(20))
            pod->is_process = false;
    }
}

// The leader expires what does not heartbeat.
static void expire(struct truth *truth)
{
    struct worker_snapshot *snapshot = &truth->world.facts.snapshot;
    uint32_t at = snapshot->row_count ? draw(snapshot->row_count) : 0;

    if (snapshot->row_count == 0)
        return;
    for (int i = 0; i < SLOTS; i++) {
        if (truth->pods[i].is_process && truth->pods[i].row == truth->world.rows[at].id)
            return;
    }
    memmove(truth->hosts[at], truth->hosts[snapshot->row_count - 1], sizeof(truth->hosts[0]));
    world_drop_row(&truth->world, truth->world.rows[at].id);
    if (at < snapshot->row_count)
        truth->world.rows[at].host = truth->hosts[at];
}

static void happen(struct truth *truth)
{
    switch (draw(10)) {
    case 0: create(truth); break;
    case 1: end_pod(truth); break;
    case 2: end_pod(truth); break;
    case 3:
        if (chance(15))
            force_delete(truth);
        break;
    case 4:
        if (chance(20)) {
            unsigned node = draw(NODES);

            truth->is_cut[node] = chance(30);
        }
        break;
    case 5:
        if (chance(10))
            expire(truth);
        break;
    case 6:
        if (chance(10))
            truth->world.sets[0].replicas = (int32_t)draw(6);
        break;
    default: live(truth); break;
    }
    reap(truth);
}

// --- looking and judging ---

static void list_pods(struct truth *truth)
{
    struct worker_snapshot *snapshot = &truth->world.facts.snapshot;

    snapshot->pod_count = 0;
    snapshot->endpoint_count = 0;
    for (int i = 0; i < SLOTS; i++) {
        const struct truth_pod *pod = &truth->pods[i];

        if (!pod->is_object)
            continue;
        truth->world.pods[snapshot->pod_count++] = show(pod, truth->is_cut[pod->node]);
        if (chance(80))
            world_endpoint(&truth->world, pod->ip, pod->uid);
    }
    snapshot->pods_complete = chance(95);
    snapshot->endpoints_complete = chance(97);
    snapshot->sets_complete = chance(97);
}

// A tombstone or a call takes effect on the row as it was read.
static void check(struct truth *truth, const struct worker_row *seen)
{
    const struct reconcile_plan *plan = &truth->world.plan;

    for (unsigned i = 0; i < plan->action_count; i++) {
        const struct reconcile_action *action = &plan->actions[i];

        if (action->kind == RECONCILE_UNBURY)
            continue;
        truth->buried++;
        for (int k = 0; k < SLOTS; k++) {
            const struct truth_pod *pod = &truth->pods[k];
            const struct worker_row *now = NULL;

            if (!pod->is_process || pod->row != action->worker_id ||
                (!pod->is_seen && pod->registration != truth->newest[pod->row]))
                continue;
            now = world_find_row(&truth->world, action->worker_id);
            if (strcmp(now->row_version, seen[action->row].row_version) == 0)
                fail_msg("row %d of live %s (%s on node %d%s) at %s: %s", now->id, pod->uid,
                         pod->name, pod->node, truth->is_cut[pod->node] ? ", cut off" : "",
                         now->host,
                         worker_reason_name(
                             (enum worker_reason)plan->judgments[action->row].reason));
        }
    }
}

// What this look shows, if it is a whole one.
static void note_seen(struct truth *truth, const struct worker_row *rows, uint32_t count)
{
    for (int i = 0; i < SLOTS; i++) {
        for (uint32_t k = 0; k < count; k++) {
            if (truth->pods[i].is_object && truth->pods[i].row == rows[k].id)
                truth->pods[i].is_seen = true;
        }
    }
}

static void begin_stepper(struct stepper *stepper, const struct reconcile_plan *plan)
{
    stepper->block = malloc(reconcile_memory_bytes(WORLD_ROWS, 2 * WORLD_PODS));
    stepper->plan.scratch = malloc(plan->scratch_bytes);
    assert_non_null(stepper->block);
    assert_non_null(stepper->plan.scratch);
    stepper->plan.scratch_bytes = plan->scratch_bytes;
    stepper->plan.judgments = stepper->judgments;
    reconcile_memory_init(&stepper->memory, stepper->block, WORLD_ROWS, 2 * WORLD_PODS);
}

static void end_stepper(struct stepper *stepper)
{
    free(stepper->block);
    free(stepper->plan.scratch);
}

static void step_alike(struct truth *truth)
{
    const struct world *world = &truth->world;
    struct reconcile_plan *plan = &truth->stepper.plan;
    reconcile_begin(&world->config, &world->facts, &truth->stepper.memory, plan);
    while (!reconcile_step(plan, 1 + draw(40)))
        truth->stepper.steps++;
    assert_int_equal(plan->action_count, world->plan.action_count);
    assert_int_equal(plan->orphans, world->plan.orphans);
    for (unsigned i = 0; i < plan->action_count; i++) {
        assert_int_equal(plan->actions[i].kind, world->plan.actions[i].kind);
        assert_int_equal(plan->actions[i].worker_id, world->plan.actions[i].worker_id);
    }
    for (uint32_t i = 0; i < world->facts.snapshot.row_count; i++) {
        assert_int_equal(plan->judgments[i].verdict, world->judgments[i].verdict);
        assert_int_equal(plan->judgments[i].reason, world->judgments[i].reason);
        assert_int_equal(plan->judgments[i].is_held, world->judgments[i].is_held);
        assert_int_equal(plan->judgments[i].confirm_in_ns, world->judgments[i].confirm_in_ns);
    }
}

static void look(struct truth *truth, int64_t at_ns)
{
    static struct worker_row rows[WORLD_ROWS];
    static char hosts[WORLD_ROWS][96];
    static char versions[WORLD_ROWS][24];
    struct worker_snapshot *snapshot = &truth->world.facts.snapshot;
    struct worker_snapshot now;
    uint32_t count = snapshot->row_count;

    memcpy(rows, truth->world.rows, sizeof(rows));
    memcpy(hosts, truth->hosts, sizeof(hosts));
    memcpy(versions, truth->world.versions, sizeof(versions));
    for (uint32_t i = 0; i < count; i++) {
        rows[i].host = hosts[i];
        rows[i].row_version = versions[i];
    }
    while (chance(50)) // between the reads
        happen(truth);
    list_pods(truth);
    snapshot->rows_complete = chance(97);
    if (snapshot->rows_complete && snapshot->pods_complete && snapshot->endpoints_complete)
        note_seen(truth, rows, count);
    while (chance(30))
        happen(truth);
    now = *snapshot;
    snapshot->rows = rows;
    snapshot->row_count = count;
    world_pass(&truth->world, at_ns);
    step_alike(truth);
    for (int type = 0; type < WORKER_TYPES; type++)
        truth->judged_live += truth->world.plan.verdicts[type][VERDICT_LIVE];
    *snapshot = now;
    check(truth, rows);
}

static void test_nothing_live_is_in_the_plan(void **state)
{
    static struct truth truth;
    unsigned buried = 0;
    unsigned judged_live = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        random_state = seed * UINT64_C(0x9e3779b97f4a7c15);
        memset(&truth, 0, sizeof(truth));
        world_init(&truth.world);
        begin_stepper(&truth.stepper, &truth.world.plan);
        truth.world.facts.snapshot.pod_count = 0;
        truth.world.config.max_permille = 1000;
        truth.world.config.starting_grace_ns = 10 * S;
        for (int turn = 0; turn < TURNS; turn++) {
            for (unsigned i = draw(12); i > 0; i--)
                happen(&truth);
            if (chance(2))
                truth.world.facts.term++;
            look(&truth, (turn + 1) * 10 * S);
        }
        buried += truth.buried;
        judged_live += truth.judged_live;
        assert_true(truth.stepper.steps > TURNS);
        world_done(&truth.world);
        end_stepper(&truth.stepper);
    }
    print_message("%u seeds: %u times a row was judged live, %u actions on dead ones\n", SEEDS,
                  judged_live, buried);
    // Neither is it safe by doing nothing.
    assert_true(buried > SEEDS);
    assert_true(judged_live > SEEDS * TURNS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_nothing_live_is_in_the_plan),
};

UNIT_MAIN(tests)
