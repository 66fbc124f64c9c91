// SPDX-License-Identifier: Apache-2.0
// One pass as a row of phases, each over rows, pods, endpoints or slots of memory: so that a
// caller with other things to do goes through a large one bit by bit. Nothing that a pass looks
// at may change meanwhile.
#include <string.h>

#include "agent/reconcile/internal.h"

// --- a pass that judges nobody ---

static void judge_none(const struct pass *pass, enum worker_reason reason)
{
    for (uint32_t i = 0; i < pass->snapshot->row_count; i++)
        pass->plan->judgments[i] = (struct worker_judgment){
            .verdict = VERDICT_UNKNOWN, .reason = (uint8_t)reason, .pod = -1, .known_pod = -1};
}

static void count_none(const struct pass *pass, enum worker_reason reason)
{
    for (uint32_t i = 0; i < pass->snapshot->row_count; i++)
        pass->plan->verdicts[pass->snapshot->rows[i].type][VERDICT_UNKNOWN]++;
    pass->plan->reasons[reason] = pass->snapshot->row_count;
}

// Fresh confirmation, counted from the recovery.
static enum pass_phase give_up(struct pass *pass, enum worker_reason reason)
{
    judge_none(pass, reason);
    memory_restart(pass->memory);
    pass->is_given_up = true;
    if (pass->snapshot->rows_complete && pass->space.row_memory)
        return PHASE_PLAN;
    count_none(pass, reason);
    return PHASE_DONE;
}

static bool any_pod_lives(const struct worker_snapshot *snapshot)
{
    for (uint32_t i = 0; i < snapshot->pod_count; i++) {
        if (!snapshot->pods[i].is_terminal)
            return true;
    }
    return false;
}

// A process that was stopped between looking and judging judges yesterday's world.
static bool is_complete(const struct pass *pass)
{
    const struct worker_snapshot *snapshot = pass->snapshot;

    return snapshot->rows_complete && snapshot->pods_complete && snapshot->endpoints_complete &&
           instant_since(pass->facts.now, snapshot->taken_at) <= pass->config.confirm_after_ns;
}

// --- phases ---

// Slices and sets are asked only about rows whose own pod has ended, and mostly there are none.
// No row's pod becomes one that has ended while rows are judged.
static void find_ended(struct pass *pass, uint32_t index)
{
    int32_t slot = pass->space.row_memory[index];
    int32_t pod = slot < 0 ? -1 : pass->memory->rows[slot].pod;

    if (pod >= 0 && (pass->memory->pods[pod].flags & POD_ENDED))
        pass->has_ended = true;
}

static void index_rest_of(struct pass *pass, uint32_t index)
{
    index_rest(&pass->space.endpoints, pass->snapshot, index);
}

static void sweep_rows_of(struct pass *pass, uint32_t slot)
{
    memory_sweep_rows(pass->memory, slot);
}

static void sweep_pods_of(struct pass *pass, uint32_t slot)
{
    memory_sweep_pods(pass->memory, slot);
}

// One of what the phase is over.
static void run_phase(struct pass *pass, uint32_t at)
{
    switch (pass->phase) {
    case PHASE_NOTE_ROWS: decide_note_row(pass, at); break;
    case PHASE_NOTE_PODS: decide_note_pod(pass, at); break;
    case PHASE_INDEX_PODS: index_pod(&pass->space.pods, pass->snapshot, at); break;
    case PHASE_FIND_ENDED: find_ended(pass, at); break;
    case PHASE_INDEX_REST: index_rest_of(pass, at); break;
    case PHASE_JUDGE: decide_row(pass, at); break;
    case PHASE_DUPLICATES: candidate_chain(pass, at); break;
    case PHASE_PLAN: plan_row(pass, at); break;
    case PHASE_VANISHED: plan_vanished(pass, at); break;
    case PHASE_SWEEP_ROWS: sweep_rows_of(pass, at); break;
    case PHASE_SWEEP_PODS: sweep_pods_of(pass, at); break;
    case PHASE_DONE: break;
    }
}

static uint32_t count_of(const struct pass *pass)
{
    const struct worker_snapshot *snapshot = pass->snapshot;

    switch (pass->phase) {
    case PHASE_NOTE_ROWS: return snapshot->rows_complete ? snapshot->row_count : 0;
    case PHASE_NOTE_PODS: return snapshot->pods_complete ? snapshot->pod_count : 0;
    case PHASE_INDEX_PODS:
    case PHASE_DUPLICATES: return snapshot->pod_count;
    case PHASE_FIND_ENDED:
    case PHASE_JUDGE:
    case PHASE_PLAN: return snapshot->row_count;
    case PHASE_INDEX_REST:
        return pass->has_ended ? snapshot->endpoint_count + snapshot->set_count : 0;
    case PHASE_VANISHED:
    case PHASE_SWEEP_ROWS: return pass->memory->row_slots;
    case PHASE_SWEEP_PODS: return pass->memory->pod_slots;
    case PHASE_DONE: break;
    }
    return 0;
}

// Ends the phase; the next one.
static enum pass_phase next_of(struct pass *pass)
{
    switch (pass->phase) {
    case PHASE_NOTE_PODS:
        if (!is_complete(pass) || pass->is_no_list)
            return give_up(pass, REASON_INCOMPLETE);
        if (!any_pod_lives(pass->snapshot))
            return give_up(pass, REASON_NO_PODS);
        break;
    case PHASE_INDEX_REST:
        if (pass->space.pods.is_full || pass->space.endpoints.is_full)
            return give_up(pass, REASON_TOO_MANY);
        break;
    case PHASE_JUDGE: decide_orphans(pass); break;
    case PHASE_PLAN:
        plan_actions(pass);
        if (pass->is_given_up)
            return PHASE_DONE;
        break;
    case PHASE_SWEEP_PODS: pass->memory->last_taken = pass->snapshot->taken_at; break;
    case PHASE_NOTE_ROWS:
    case PHASE_INDEX_PODS:
    case PHASE_FIND_ENDED:
    case PHASE_DUPLICATES:
    case PHASE_VANISHED:
    case PHASE_SWEEP_ROWS:
    case PHASE_DONE: break;
    }
    return pass->phase + 1;
}

// --- a pass ---

// A tombstone is of its term: what lies there of an older one is not ours to take back.
static void forget_burials(struct reconcile_memory *memory)
{
    for (uint32_t slot = 0; slot < memory->row_slots; slot++) {
        for (int32_t at = memory->row_heads[slot]; at >= 0; at = memory->rows[at].next)
            memory->rows[at].flags &= (uint8_t)~ROW_BURIED;
    }
}

static void begin_term(struct reconcile_memory *memory, const struct reconcile_facts *facts)
{
    if (memory->was_leader && memory->term == facts->term)
        return;
    memory_restart(memory);
    forget_burials(memory);
    memory->term = facts->term;
    memory->was_leader = true;
}

static struct pass *pass_of(struct reconcile_plan *plan)
{
    _Static_assert(sizeof(struct pass) <= sizeof(plan->run), "room for a pass");
    return (struct pass *)(void *)plan->run;
}

static void clear(struct reconcile_plan *plan)
{
    struct worker_judgment *judgments = plan->judgments;
    void *scratch = plan->scratch;
    size_t scratch_bytes = plan->scratch_bytes;

    memset(plan, 0, sizeof(*plan));
    plan->judgments = judgments;
    plan->scratch = scratch;
    plan->scratch_bytes = scratch_bytes;
    plan->orphans = -1;
}

void reconcile_begin(const struct reconcile_config *config, const struct reconcile_facts *facts,
                     struct reconcile_memory *memory, struct reconcile_plan *plan)
{
    struct pass *pass = pass_of(plan);

    clear(plan);
    *pass = (struct pass){.config = *config, .facts = *facts, .memory = memory, .plan = plan};
    pass->snapshot = &pass->facts.snapshot;
    judge_none(pass, REASON_NOT_JUDGED);
    if (config->mode == RECONCILE_OFF || !facts->is_leader) {
        memory->was_leader = false;
        count_none(pass, REASON_NOT_JUDGED);
        pass->phase = PHASE_DONE;
        return;
    }
    plan->is_dry = config->mode != RECONCILE_ENFORCE || facts->guard == RECONCILE_GUARD_OFF;
    begin_term(memory, facts);
    memory->pass++;
    if (!space_init(&pass->space, pass->snapshot, plan->scratch, plan->scratch_bytes))
        pass->phase = give_up(pass, REASON_TOO_MANY);
}

bool reconcile_step(struct reconcile_plan *plan, uint32_t units)
{
    struct pass *pass = pass_of(plan);

    while (pass->phase != PHASE_DONE && units > 0) {
        uint32_t count = count_of(pass);

        for (; pass->at < count && units > 0; units--)
            run_phase(pass, pass->at++);
        if (pass->at < count)
            return false;
        pass->phase = next_of(pass);
        pass->at = 0;
    }
    return pass->phase == PHASE_DONE;
}

void reconcile_decide(const struct reconcile_config *config,
                      const struct reconcile_facts *facts, struct reconcile_memory *memory,
                      struct reconcile_plan *plan)
{
    reconcile_begin(config, facts, memory, plan);
    while (!reconcile_step(plan, UINT32_MAX))
        ;
}

void reconcile_abort(struct reconcile_memory *memory)
{
    memory->was_leader = false;
}

void reconcile_bury_failed(struct reconcile_memory *memory, int32_t worker_id)
{
    int32_t slot = memory_find_row(memory, worker_id);

    if (slot >= 0)
        memory->rows[slot].flags &= (uint8_t) ~(ROW_BURIED | ROW_APPROVED);
}

void reconcile_interrupted(struct reconcile_memory *memory)
{
    memory_restart(memory);
}

void reconcile_unbury_failed(struct reconcile_memory *memory, int32_t worker_id)
{
    int32_t slot = memory_find_row(memory, worker_id);

    // Of a row that is gone nothing else would remember it.
    if (slot < 0)
        slot = memory_add_row(memory, worker_id);
    if (slot >= 0)
        memory->rows[slot].flags |= ROW_BURIED;
}
