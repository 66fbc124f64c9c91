// SPDX-License-Identifier: Apache-2.0
// The verdict of a pass. A hundred thousand rows take longer than a turn of the loop may,
// beside which permits are renewed: a few milliseconds a turn, and all that happens to pods
// meanwhile waits, so that the pass judges one moment.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/workers/parts.h"
#include "base/log.h"

#define STEP_UNITS 512 // between two looks at the clock

// --- changes that wait ---

void judge_saw_pod(struct workers_pass *pass, const struct worker_pod *pod, bool is_deleted)
{
    struct pass_change *change = NULL;

    if (!pass->is_judging) {
        reconcile_saw_pod(&pass->memory, pod, is_deleted);
        return;
    }
    if (!pod->uid)
        return;
    if (pass->change_count == pass->change_room) {
        size_t room = pass->change_room ? 2 * pass->change_room : 16;
        struct pass_change *changes = realloc(pass->changes, room * sizeof(*changes));

        if (!changes)
            abort();
        pass->changes = changes;
        pass->change_room = room;
    }
    change = &pass->changes[pass->change_count++];
    *change = (struct pass_change){.pod = {.is_terminal = pod->is_terminal,
                                           .is_running = pod->is_running,
                                           .has_started = pod->has_started,
                                           .is_unreachable = pod->is_unreachable,
                                           .owner = pod->owner},
                                   .is_deleted = is_deleted};
    (void)snprintf(change->uid, sizeof(change->uid), "%s", pod->uid);
}

static void take_changes(struct workers_pass *pass)
{
    for (size_t i = 0; i < pass->change_count; i++) {
        pass->changes[i].pod.uid = pass->changes[i].uid;
        reconcile_saw_pod(&pass->memory, &pass->changes[i].pod, pass->changes[i].is_deleted);
    }
    pass->change_count = 0;
}

// --- the verdict ---

static void prepare_plan(struct workers_pass *pass)
{
    const struct worker_snapshot *snapshot = &pass->gather.snapshot;
    struct reconcile_plan *plan = &pass->plan;
    size_t bytes = reconcile_scratch_bytes(snapshot->row_count, snapshot->pod_count,
                                           snapshot->endpoint_count);

    free(plan->judgments);
    free(plan->scratch);
    *plan = (struct reconcile_plan){
        .judgments = calloc((size_t)snapshot->row_count + 1, sizeof(*plan->judgments)),
        .scratch = malloc(bytes + 1),
        .scratch_bytes = bytes,
    };
    if (!plan->judgments || !plan->scratch)
        abort();
}

static uint32_t held_of(const struct reconcile_plan *plan)
{
    uint32_t held = 0;

    for (unsigned i = 0; i < WORKER_TYPES; i++)
        held += plan->held[i];
    return held;
}

static void sum_up(struct workers_pass *pass, struct instant now)
{
    struct pass_summary *last = &pass->last;

    *last = (struct pass_summary){
        .at = now, .orphans = pass->plan.orphans, .is_whole = !pass->error[0]};
    for (int type = 0; type < WORKER_TYPES; type++)
        for (int verdict = 0; verdict <= VERDICT_GONE; verdict++)
            last->rows[verdict] += pass->plan.verdicts[type][verdict];
}

static void say_held(struct workers *workers)
{
    struct workers_pass *pass = &workers->pass;
    uint32_t held = held_of(&pass->plan);
    char note[160];

    if (held == pass->held)
        return;
    pass->held = held;
    if (held == 0) {
        log_info("reconcile: the brake holds nothing any more");
        return;
    }
    (void)snprintf(note, sizeof(note),
                   "%u rows are gone by all evidence, more than reconcile.maxPercent of their "
                   "type at once: they are left alone for now",
                   held);
    log_warn("reconcile: the brake holds", kv_int("rows", held));
    kube_say(workers->agent->kube,
             &(struct kube_event){true, "Reconcile", "ReconcileBrake", note});
    history_add(&workers->agent->history, &workers->agent->facts, &workers->agent->memory,
                "reconcile brake", note);
}

void judge_step(struct workers *workers)
{
    struct workers_pass *pass = &workers->pass;
    struct instant began = clock_now();
    struct instant now = began;
    bool is_done = false;

    while (!is_done && instant_since(now, began) < PASS_SLICE_NS) {
        is_done = reconcile_step(&pass->plan, STEP_UNITS);
        now = clock_now();
    }
    if (!is_done) {
        loop_timer_arm(pass->step_timer, 0);
        return;
    }
    pass->is_judging = false;
    take_changes(pass);
    pass->has_judged = true;
    pass->number++;
    sum_up(pass, now);
    say_held(workers);
    acts_run(workers);
}

void judge_begin(struct workers *workers)
{
    struct workers_pass *pass = &workers->pass;
    const struct config_reconcile *own = &workers->agent->config.reconcile;
    const struct reconcile_config config = {
        .mode = pass->runs_dry ? RECONCILE_OBSERVE : own->mode,
        .confirm_after_ns = own->confirm_after_ns,
        .starting_grace_ns = own->starting_grace_ns,
        .max_permille = (uint32_t)own->max_percent * 10,
    };
    struct reconcile_facts facts = {
        .now = clock_now(),
        .is_leader = workers_may_act(workers),
        .term = workers->state.term,
        .guard = workers->state.guard,
        // Those of calls that got no answer bar nobody: each call is bound to its own row.
        .intent_open = pass->is_removing || pass->intended >= 0,
    };

    gather_close(&pass->gather);
    facts.snapshot = pass->gather.snapshot;
    pass_fit_memory(pass);
    prepare_plan(pass);
    reconcile_begin(&config, &facts, &pass->memory, &pass->plan);
    pass->is_judging = true;
    loop_timer_arm(pass->step_timer, 0);
}

void judge_stop(struct workers_pass *pass)
{
    if (!pass->is_judging)
        return;
    pass->is_judging = false;
    reconcile_abort(&pass->memory);
    take_changes(pass);
}
