// SPDX-License-Identifier: Apache-2.0
// simulate-workers: schedules of the guard and the reconciler. `--seed N --verbose` shows one.
#include "tests/sim/worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAULTS_END (300 * WK_S)
#define END_AT     (FAULTS_END + 420 * WK_S)

static const char *const fault_names[WK_FAULTS] = {
    "freeze",   "zombie",    "crash",        "hung",      "bookkeeping", "clock-jump",
    "api-down", "truncated", "stale",        "cut-node",  "mass-gone",   "given-away",
    "scale",    "late-call", "unknown-call", "agent-stop"};

static const struct driver_plant plants[WK_PLANTS] = {
    [WK_PLANT_NONE] = {"none", ""},
    [WK_PLANT_NO_BRAKE] = {"no-brake", "P6: the brake"},
    [WK_PLANT_TOMBSTONE_ANY_TERM] = {"tombstone-any-term", "P6"},
    [WK_PLANT_NO_INTENT] = {"no-intent", "P6: DeleteWorkerNode"},
    [WK_PLANT_INTENT_BY_ID] = {"intent-by-id", "P6: DeleteWorkerNode"},
    [WK_PLANT_WITHDRAW_UNKNOWN] = {"withdraw-unknown", "P6: DeleteWorkerNode"},
    [WK_PLANT_NO_ROW_VERSION] = {"no-row-version", "P6: a tombstone"},
    [WK_PLANT_ALLOW_LIST] = {"allow-list", "P2"},
    [WK_PLANT_NO_DENY_LIST] = {"no-deny-list", "P5"},
    [WK_PLANT_NO_LOCK] = {"no-lock", "P5"},
    [WK_PLANT_UNJUDGED] = {"unjudged", "P5"},
    [WK_PLANT_NO_END_LOCKERS] = {"no-end-lockers", "takeover: tag"},
    [WK_PLANT_END_ANY_LOCKER] = {"end-any-locker", "takeover: it ended"},
    [WK_PLANT_WAIT_FOR_LOCKERS] = {"wait-for-lockers", "takeover: it took"},
    [WK_PLANT_FORCED_IS_GONE] = {"forced-is-gone", "P6"},
    [WK_PLANT_INCOMPLETE_IS_COMPLETE] = {"incomplete-is-complete", "P6"},
    [WK_PLANT_NO_CURE] = {"no-cure", "end"},
};

bool wk_is_on(const struct wk_world *world, enum wk_fault fault)
{
    return world->until[fault] > world->run->now;
}

// ---- faults

static void begin_fault(struct wk_world *world)
{
    enum wk_fault fault = (enum wk_fault)driver_between(world->run, 0, WK_FAULTS);
    int leader = world->db.holder;
    struct wk_meta *m = leader == WK_NONE ? NULL : &world->metas[leader];
    int64_t until = world->run->now + driver_between(world->run, 5 * WK_S, 90 * WK_S);

    if (driver_mutes_next(world->run))
        return;
    world->until[fault] = until;
    world->stats->faults[fault]++;
    driver_say(world->run, "FAULT %s until %.1f s", fault_names[fault], (double)until / 1e9);
    wk_pods_fault(world, fault);
    for (int i = 0; i < WK_METAS && fault == WK_AGENT_STOP; i++)
        world->agents[i].stopped_until = until;
    if (!m || m->state != WK_LEADER)
        return;
    switch ((int)fault) {
    case WK_FREEZE: m->frozen_until = until; break;
    case WK_ZOMBIE: m->zombie_until = until; break;
    case WK_CRASH:
    case WK_BOOKKEEPING: wk_meta_die(world, leader); break;
    case WK_CLOCK_JUMP:
        for (int id = 0; id < WK_IDS; id++)
            m->beat_at[id] -= driver_chance(world->run, 50) ? 120 * WK_S : 0;
        break;
    case WK_HUNG:
        for (int i = 0; i < WK_TXS; i++)
            world->db.txs[i].hung_until = until;
        break;
    default: break;
    }
}

static void calm_down(struct wk_world *world)
{
    world->is_calm = true;
    memset(world->until, 0, sizeof(world->until));
    for (int i = 0; i < WK_METAS; i++) {
        world->metas[i].frozen_until = 0;
        world->metas[i].zombie_until = 0;
        world->agents[i].stopped_until = 0;
    }
    for (int i = 0; i < WK_TXS; i++)
        world->db.txs[i].hung_until = 0;
    world->replicas = WK_COMPUTES;
    driver_say(world->run, "the faults are over");
}

// ---- checks

// Observe, a leader without a term or a takeover without the lock: the guard lets pass then,
// and says so.
static bool is_open(const struct wk_world *world)
{
    return !world->db.is_enforcing || world->db.unrecorded + world->db.unlocked > 0;
}

// Under enforce the rightful leader's memory is the table, unless bookkeeping failed.
static void check_memory(struct wk_world *world)
{
    const struct wk_database *db = &world->db;
    const struct wk_meta *m = db->holder == WK_NONE ? NULL : &world->metas[db->holder];

    if (!m || is_open(world) || !db->is_memory_known || m->state != WK_LEADER ||
        db->owner_tag != m->tag)
        return;
    for (int place = 0; place < WK_PLACES; place++)
        if (db->rows[place].id != 0 && !m->memory[db->rows[place].id])
            driver_fail(world->run, "end: the leader's memory lacks row %d",
                        db->rows[place].id);
}

static int ids_at(const struct wk_world *world, const struct wk_meta *m, int place)
{
    int found = 0;

    for (int i = 0; i < world->db.log_count; i++)
        if (!world->db.log[i].is_delete && world->db.log[i].place == place)
            found |= m->active[world->db.log[i].id] &&
                     world->db.rows[place].id != world->db.log[i].id;
    return found;
}

// What no cure finds where the guard was open: a zombie wrote its row after this leader had
// loaded and before its term was healed, of which the log can't tell the order.
static bool is_left_over(const struct wk_world *world, const struct wk_meta *m,
                         const struct wk_pod *pod)
{
    const struct wk_row *row = &world->db.rows[pod->place];

    if (!is_open(world) || world->db.is_memory_known)
        return false;
    return pod->id != 0 ? row->id == 0 && m->memory[pod->id]
                        : row->id != 0 && !m->memory[row->id] && row->seq <= world->db.term_seq;
}

static void check_end(struct wk_world *world)
{
    const struct wk_database *db = &world->db;
    const struct wk_meta *m = db->holder == WK_NONE ? NULL : &world->metas[db->holder];

    if (!m || m->state != WK_LEADER || db->owner_tag != m->tag) {
        driver_fail(world->run, "end: there is no leader");
        return;
    }
    for (int i = 0; i < world->pod_count; i++) {
        const struct wk_pod *pod = &world->pods[i];
        if (!pod->exists || !pod->is_alive || pod->is_stranger)
            continue;
        if (is_left_over(world, m, pod)) {
            world->stats->orphans++;
            continue;
        }
        if (pod->id == 0 || !pod->is_active || db->rows[pod->place].id != pod->id)
            driver_fail(world->run, "end: %s has id %d, its row %d", pod->name, pod->id,
                        db->rows[pod->place].id);
        else if (!m->memory[pod->id])
            driver_fail(world->run, "end: the leader does not know %d", pod->id);
    }
    for (int place = 0; place < WK_PLACES; place++) {
        int id = db->rows[place].id;
        if (ids_at(world, m, place))
            driver_fail(world->run, "end: place %d has two ids", place);
        if (id != 0 && !is_open(world) && !wk_lives(world, place, id))
            driver_fail(world->run, "end: row %d is of nobody", id);
    }
}

// ---- a schedule

static void step(struct wk_world *world)
{
    int first = (int)driver_between(world->run, 0, WK_METAS);

    world->run->now += driver_between(world->run, 20 * WK_MS, 400 * WK_MS);
    if (!world->is_calm && world->run->now >= FAULTS_END)
        calm_down(world);
    if (!world->is_calm && world->run->now > 20 * WK_S &&
        driver_between(world->run, 0, 40) == 0)
        begin_fault(world);
    wk_pods_step(world);
    for (int i = 0; i < WK_METAS; i++) {
        wk_meta_step(world, (first + i) % WK_METAS);
        wk_agent_step(world, (first + i) % WK_METAS);
    }
    for (int i = 0; i < world->pod_count; i++)
        if (world->pods[i].exists)
            wk_node_step(world, i);
    for (int i = 0; i < WK_TXS; i++)
        wk_tx_step(world, &world->db.txs[i]);
    wk_takeover_step(world);
    check_memory(world);
}

static void run_one(struct driver_run *run, void *stats)
{
    struct wk_world *world = calloc(1, sizeof(*world));

    if (!world)
        abort();
    world->run = run;
    world->stats = stats;
    world->db.is_enforcing = run->plant != WK_PLANT_NO_CURE && driver_chance(run, 70);
    world->db.holder = world->db.owner = world->db.owner_tag = world->db.taker = WK_NONE;
    wk_pods_begin(world);
    for (int i = 0; i < WK_METAS; i++)
        wk_agent_begin(world, i);
    while (!run->failed && run->now < END_AT)
        step(world);
    if (!run->failed)
        check_end(world);
    world->stats->runs++;
    for (int i = 0; i < WK_METAS; i++)
        free(world->agents[i].block);
    free(world);
}

static int print_counts(const void *stats)
{
    const struct wk_stats *s = stats;
    int missing = 0;

    (void)printf("faults:");
    for (int i = 0; i < WK_FAULTS; i++)
        (void)printf(" %s=%" PRIu64, fault_names[i], s->faults[i]);
    (void)printf("\nreasons:");
    for (int i = 0; i < REASON_COUNT; i++)
        (void)printf(" %s=%" PRIu64, worker_reason_name((enum worker_reason)i), s->reasons[i]);
    (void)printf("\nconvergence:");
    for (int i = 0; i < CONVERGE_REASONS; i++)
        (void)printf(" %s=%" PRIu64, converge_reason_name((enum converge_reason)i),
                     s->cures[i]);
    (void)printf("\n");
    for (int i = 0; i < WK_FAULTS; i++)
        if (s->faults[i] == 0)
            missing += printf("fault %s never came\n", fault_names[i]) > 0;
    struct {
        const char *name;
        uint64_t count;
    } counts[] = {{"takeovers", s->takeovers},
                  {"sessions ended", s->ended},
                  {"of them with rows alone", s->lockers},
                  {"not to be ended", s->kept},
                  {"takeovers without the lock", s->unlocked},
                  {"writes refused", s->refused},
                  {"deletes refused for an intent", s->intended},
                  {"tombstones written", s->buried},
                  {"applied", s->removed},
                  {"void", s->void_tombs},
                  {"calls", s->called},
                  {"rows removed by calls", s->deleted},
                  {"late calls", s->late_calls},
                  {"unknown calls", s->unknown_calls},
                  {"ids used again", s->returned},
                  {"zombie writes", s->zombie_writes},
                  {"recovers", s->recovers},
                  {"restarts", s->restarts},
                  {"leaders without a term", s->unrecorded}};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        (void)printf("%s%s %" PRIu64, i ? ", " : "", counts[i].name, counts[i].count);
        missing += counts[i].count == 0;
    }
    (void)printf("; left diverged %" PRIu64 "\n", s->orphans);
    return missing;
}

int main(int argc, char **argv)
{
    static const struct driver driver = {.name = "simulate-workers",
                                         .plants = plants,
                                         .plant_count = WK_PLANTS,
                                         .stats_bytes = sizeof(struct wk_stats),
                                         .count = 300,
                                         .share = 10,
                                         .needs_seeds = true,
                                         .play = run_one,
                                         .print_counts = print_counts};

    return driver_main(&driver, argc, argv);
}
