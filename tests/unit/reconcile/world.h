// SPDX-License-Identifier: Apache-2.0
#pragma once
// world: rows, pods, slices and sets as one agent sees them, to be bent by a test and judged in
// passes. Times are relative to T0. A pod that ends does so as a kubelet says it, unless the
// test says otherwise.

#include "agent/reconcile/verdict.h"

#define S NS_PER_SEC

#define WORLD_T0   (1000 * S)
#define WORLD_ROWS 64
#define WORLD_PODS 64
#define WORLD_ALL  7 // every component

#define COMPUTE_PORT   5688
#define FRONTEND_PORT  4567
#define COMPACTOR_PORT 6660

struct world {
    struct reconcile_config config;
    struct reconcile_facts facts;
    struct reconcile_memory memory;
    struct reconcile_plan plan;
    struct worker_row rows[WORLD_ROWS];
    char versions[WORLD_ROWS][24];
    struct worker_pod pods[WORLD_PODS];
    struct worker_endpoint endpoints[2 * WORLD_PODS];
    struct worker_set sets[8];
    struct worker_judgment judgments[WORLD_ROWS];
    uint32_t version;
    int64_t at_ns; // of the last pass
    void *block;
    void *scratch;
};

// A verified leader of term 7, guard and reconciler enforcing, confirm_after 30 s, grace 2 min,
// brake 10 %; StatefulSet "compute" of apps/v1 with 3 replicas; one pod "anchor" that lives and
// is nobody's row, so that the list is never empty.
void world_init(struct world *world);
void world_done(struct world *world);

// The fixture of a test: *state is a world of its own.
#define WORLD_TEST(function)                                                                   \
    cmocka_unit_test_setup_teardown(function, world_setup, world_teardown)
int world_setup(void **state);
int world_teardown(void **state);

// RUNNING, its id known to the leader.
struct worker_row *world_row(struct world *world, int32_t id, enum worker_type type,
                             const char *host, int32_t port);
struct worker_row *world_find_row(struct world *world, int32_t id);
void world_drop_row(struct world *world, int32_t id);
// Somebody writes it: its version changes.
void world_touch_row(struct world *world, int32_t id);

// Of StatefulSet "compute", component compute, port 5688, subdomain "compute-headless",
// namespace "ns"; runs.
struct worker_pod *world_compute(struct world *world, const char *uid, const char *name,
                                 const char *ip);
// Of a Deployment, port 4567.
struct worker_pod *world_frontend(struct world *world, const char *uid, const char *name,
                                  const char *ip);
struct worker_pod *world_find_pod(struct world *world, const char *uid);
void world_end_pod(struct world *world, const char *uid);  // Failed, all containers terminated
void world_drop_pod(struct world *world, const char *uid); // its object goes, nobody watched
// As kubectl delete does it: deleted, ended, gone, all seen by the watch.
void world_delete_pod(struct world *world, const char *uid);
// --force --grace-period=0: gone at once, seen by the watch.
void world_force_delete(struct world *world, const char *uid);
void world_endpoint(struct world *world, const char *address, const char *uid);

// Row 1 and its pod "u1" at 10.0.0.7, which runs, and a pass that has seen both: "frontend-a"
// by its address, "compute-7" by its name.
void world_known_frontend(struct world *world);
void world_known_compute(struct world *world);

// One pass at T0 + at_ns.
void world_pass(struct world *world, int64_t at_ns);
// A pass now + 1 s, and one 30 s later.
void world_confirm(struct world *world);

const struct worker_judgment *world_judgment(struct world *world, int32_t id);
bool world_has(const struct world *world, enum reconcile_action_kind kind, int32_t id);

// Says which row, and what it was instead.
#define WORLD_IS(world, id, verdict, reason) world_is(world, id, verdict, reason, __LINE__)
void world_is(struct world *world, int32_t id, enum worker_verdict verdict,
              enum worker_reason reason, int line);
