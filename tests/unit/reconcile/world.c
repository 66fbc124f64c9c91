// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/reconcile/world.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/unit.h"

static void renew_version(struct world *world, struct worker_row *row)
{
    char *version = world->versions[row - world->rows];

    world->version++;
    (void)snprintf(version, sizeof(world->versions[0]), "%u (0,%u)", world->version,
                   world->version % 7);
    row->row_version = version;
}

void world_init(struct world *world)
{
    struct worker_snapshot *snapshot = &world->facts.snapshot;
    size_t bytes = reconcile_memory_bytes(WORLD_ROWS, 2 * WORLD_PODS);
    size_t scratch = reconcile_scratch_bytes(WORLD_ROWS, WORLD_PODS, 2 * WORLD_PODS + 8);

    *world = (struct world){0};
    world->config = (struct reconcile_config){.mode = RECONCILE_ENFORCE,
                                              .confirm_after_ns = 30 * S,
                                              .starting_grace_ns = 120 * S,
                                              .max_permille = 100};
    world->facts.is_leader = true;
    world->facts.term = 7;
    world->facts.guard = RECONCILE_GUARD_ENFORCE;
    world->block = malloc(bytes);
    world->scratch = malloc(scratch);
    assert_non_null(world->block);
    assert_non_null(world->scratch);
    reconcile_memory_init(&world->memory, world->block, WORLD_ROWS, 2 * WORLD_PODS);
    world->plan.judgments = world->judgments;
    world->plan.scratch = world->scratch;
    world->plan.scratch_bytes = scratch;
    snapshot->rows = world->rows;
    snapshot->pods = world->pods;
    snapshot->endpoints = world->endpoints;
    snapshot->sets = world->sets;
    snapshot->rows_complete = true;
    snapshot->pods_complete = true;
    snapshot->endpoints_complete = true;
    snapshot->sets_complete = true;
    snapshot->kruise_sets_complete = true;
    world->sets[0] = (struct worker_set){.name = "compute", .replicas = 3};
    snapshot->set_count = 1;
    (void)world_compute(world, "anchor", "anchor-0", "10.255.255.1");
}

void world_done(struct world *world)
{
    free(world->block);
    free(world->scratch);
}

int world_setup(void **state)
{
    struct world *world = malloc(sizeof(*world));

    if (!world)
        return -1;
    world_init(world);
    *state = world;
    return 0;
}

int world_teardown(void **state)
{
    world_done(*state);
    free(*state);
    return 0;
}

// --- rows ---

struct worker_row *world_row(struct world *world, int32_t id, enum worker_type type,
                             const char *host, int32_t port)
{
    struct worker_row *row = &world->rows[world->facts.snapshot.row_count++];

    assert_true(world->facts.snapshot.row_count <= WORLD_ROWS);
    *row = (struct worker_row){.id = id,
                               .type = type,
                               .status = WORKER_RUNNING,
                               .host = host,
                               .port = port,
                               .leader_knows = true};
    renew_version(world, row);
    return row;
}

struct worker_row *world_find_row(struct world *world, int32_t id)
{
    for (uint32_t i = 0; i < world->facts.snapshot.row_count; i++) {
        if (world->rows[i].id == id)
            return &world->rows[i];
    }
    fail_msg("no row %d", id);
    return NULL;
}

void world_drop_row(struct world *world, int32_t id)
{
    struct worker_row *row = world_find_row(world, id);
    struct worker_row *last = &world->rows[--world->facts.snapshot.row_count];

    memcpy(world->versions[row - world->rows], world->versions[last - world->rows],
           sizeof(world->versions[0]));
    *row = *last;
    row->row_version = world->versions[row - world->rows];
}

void world_touch_row(struct world *world, int32_t id)
{
    renew_version(world, world_find_row(world, id));
}

// --- pods ---

static struct worker_pod *add_pod(struct world *world, const char *uid, const char *name,
                                  const char *ip)
{
    struct worker_pod *pod = &world->pods[world->facts.snapshot.pod_count++];

    assert_true(world->facts.snapshot.pod_count <= WORLD_PODS);
    *pod = (struct worker_pod){.uid = uid,
                               .name = name,
                               .name_space = "ns",
                               .ips = {ip},
                               .ip_count = ip ? 1 : 0,
                               .port_count = 1,
                               .has_started = true,
                               .is_running = true};
    return pod;
}

struct worker_pod *world_compute(struct world *world, const char *uid, const char *name,
                                 const char *ip)
{
    struct worker_pod *pod = add_pod(world, uid, name, ip);

    pod->owner = POD_OWNER_STATEFULSET;
    pod->subdomain = "compute-headless";
    pod->ports[0] = COMPUTE_PORT;
    pod->types = 1 << WORKER_COMPUTE;
    return pod;
}

struct worker_pod *world_frontend(struct world *world, const char *uid, const char *name,
                                  const char *ip)
{
    struct worker_pod *pod = add_pod(world, uid, name, ip);

    pod->owner = POD_OWNER_REPLICASET;
    pod->ports[0] = FRONTEND_PORT;
    pod->types = 1 << WORKER_FRONTEND;
    return pod;
}

struct worker_pod *world_find_pod(struct world *world, const char *uid)
{
    for (uint32_t i = 0; i < world->facts.snapshot.pod_count; i++) {
        if (strcmp(world->pods[i].uid, uid) == 0)
            return &world->pods[i];
    }
    fail_msg("no pod %s", uid);
    return NULL;
}

void world_end_pod(struct world *world, const char *uid)
{
    struct worker_pod *pod = world_find_pod(world, uid);

    pod->is_terminal = true;
    pod->is_running = false;
}

void world_drop_pod(struct world *world, const char *uid)
{
    struct worker_pod *pod = world_find_pod(world, uid);

    *pod = world->pods[--world->facts.snapshot.pod_count];
}

void world_delete_pod(struct world *world, const char *uid)
{
    world_find_pod(world, uid)->is_deleting = true;
    reconcile_saw_pod(&world->memory, world_find_pod(world, uid), false);
    world_end_pod(world, uid);
    reconcile_saw_pod(&world->memory, world_find_pod(world, uid), false);
    reconcile_saw_pod(&world->memory, world_find_pod(world, uid), true);
    world_drop_pod(world, uid);
}

void world_force_delete(struct world *world, const char *uid)
{
    reconcile_saw_pod(&world->memory, world_find_pod(world, uid), true);
    world_drop_pod(world, uid);
}

void world_endpoint(struct world *world, const char *address, const char *uid)
{
    world->endpoints[world->facts.snapshot.endpoint_count++] =
        (struct worker_endpoint){.address = address, .target_uid = uid};
}

// --- passes ---

void world_pass(struct world *world, int64_t at_ns)
{
    world->at_ns = at_ns;
    world->facts.snapshot.taken_at.ns = WORLD_T0 + at_ns;
    world->facts.now.ns = WORLD_T0 + at_ns + S / 10;
    reconcile_decide(&world->config, &world->facts, &world->memory, &world->plan);
}

void world_confirm(struct world *world)
{
    world_pass(world, world->at_ns + S);
    world_pass(world, world->at_ns + 30 * S);
}

void world_known_frontend(struct world *world)
{
    (void)world_frontend(world, "u1", "frontend-a", "10.0.0.7");
    (void)world_row(world, 1, WORKER_FRONTEND, "10.0.0.7", FRONTEND_PORT);
    world_pass(world, 0);
}

void world_known_compute(struct world *world)
{
    (void)world_compute(world, "u1", "compute-7", "10.0.0.7");
    (void)world_row(world, 1, WORKER_COMPUTE, "compute-7.compute-headless", COMPUTE_PORT);
    world_pass(world, 0);
}

const struct worker_judgment *world_judgment(struct world *world, int32_t id)
{
    return &world->judgments[world_find_row(world, id) - world->rows];
}

bool world_has(const struct world *world, enum reconcile_action_kind kind, int32_t id)
{
    for (unsigned i = 0; i < world->plan.action_count; i++) {
        if (world->plan.actions[i].kind == kind && world->plan.actions[i].worker_id == id)
            return true;
    }
    return false;
}

void world_is(struct world *world, int32_t id, enum worker_verdict verdict,
              enum worker_reason reason, int line)
{
    const struct worker_judgment *judgment = world_judgment(world, id);

    if (judgment->verdict != verdict || judgment->reason != reason)
        fail_msg("line %d: row %d is %s %s, want %s %s", line, id,
                 worker_verdict_name((enum worker_verdict)judgment->verdict),
                 worker_reason_name((enum worker_reason)judgment->reason),
                 worker_verdict_name(verdict), worker_reason_name(reason));
}
