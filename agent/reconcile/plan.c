// SPDX-License-Identifier: Apache-2.0
// From proofs to actions: confirmed by a second look, braked, bounded, and taken back as soon
// as the proof is gone.
#include "agent/reconcile/internal.h"

static void act(struct reconcile_plan *plan, enum reconcile_action_kind kind, int32_t id,
                int32_t row)
{
    if (plan->action_count < RECONCILE_ACTIONS_MAX)
        plan->actions[plan->action_count++] =
            (struct reconcile_action){.kind = kind, .worker_id = id, .row = row};
}

static struct row_memory *memory_of(const struct pass *pass, uint32_t row)
{
    int32_t slot = pass->space.row_memory[row];

    return slot < 0 ? NULL : &pass->memory->rows[slot];
}

// --- confirmation ---

// The pod's object may go between two looks: that is one proof. To be superseded is another.
static bool is_same_proof(enum worker_reason a, enum worker_reason b)
{
    return (a == REASON_SUPERSEDED) == (b == REASON_SUPERSEDED);
}

static void confirm(const struct pass *pass, struct row_memory *row,
                    struct worker_judgment *judgment)
{
    struct instant taken = pass->snapshot->taken_at;
    int64_t since_ns = 0;

    judgment->proof = judgment->reason;
    if (row->gone_since.ns == 0 ||
        !is_same_proof((enum worker_reason)row->proof, (enum worker_reason)judgment->proof))
        row->gone_since = taken;
    row->proof = judgment->proof;
    since_ns = instant_since(taken, row->gone_since);
    if (since_ns > 0 && since_ns >= pass->config.confirm_after_ns) {
        judgment->verdict = VERDICT_GONE;
        return;
    }
    judgment->verdict = VERDICT_UNKNOWN;
    judgment->reason = REASON_UNCONFIRMED;
    judgment->confirm_in_ns = pass->config.confirm_after_ns - since_ns;
}

static void settle_row(const struct pass *pass, uint32_t index)
{
    struct worker_judgment *judgment = &pass->plan->judgments[index];
    struct row_memory *row = memory_of(pass, index);

    if (!row)
        return;
    judgment->known_pod = row->pod;
    if (is_proof((enum worker_reason)judgment->reason))
        confirm(pass, row, judgment);
    else
        row->gone_since.ns = 0;
    if (judgment->verdict == VERDICT_GONE)
        return;
    row->flags &= (uint8_t)~ROW_APPROVED;
    if (row->flags & ROW_BURIED) {
        if (!pass->plan->is_dry) // one that only says so takes nothing back
            row->flags &= (uint8_t)~ROW_BURIED;
        act(pass->plan, RECONCILE_UNBURY, pass->snapshot->rows[index].id, (int32_t)index);
    }
}

// --- brake ---

static uint32_t limit_of(const struct pass *pass, enum worker_type type)
{
    uint64_t rows = 0;
    uint64_t limit = 0;

    for (int i = 0; i <= VERDICT_GONE; i++)
        rows += pass->plan->verdicts[type][i];
    limit = rows * pass->config.max_permille / 1000;
    return limit < 1 ? 1 : (uint32_t)limit;
}

static void open_window(const struct pass *pass, enum worker_type type)
{
    struct instant *began = &pass->memory->window_began[type];
    struct instant taken = pass->snapshot->taken_at;

    if (began->ns != 0 && instant_since(taken, *began) < pass->config.confirm_after_ns)
        return;
    *began = taken;
    pass->memory->window_used[type] = 0;
}

// True: it may be removed now.
static bool pass_brake(const struct pass *pass, struct row_memory *row, enum worker_type type,
                       unsigned *approved)
{
    uint32_t *used = &pass->memory->window_used[type];

    if (row->flags & ROW_APPROVED)
        return true;
    if (*used >= limit_of(pass, type) || *approved >= RECONCILE_BURY_MAX)
        return false;
    ++*used;
    ++*approved;
    row->flags |= ROW_APPROVED;
    return true;
}

// --- actions ---

static bool may_call(const struct pass *pass, uint32_t index)
{
    // The endpoint of a superseded row lives: a call by host and port is not for it.
    return pass->snapshot->rows[index].leader_knows &&
           pass->plan->judgments[index].reason != REASON_SUPERSEDED;
}

static void bury(const struct pass *pass, uint32_t index, struct row_memory *row)
{
    act(pass->plan, RECONCILE_BURY, pass->snapshot->rows[index].id, (int32_t)index);
    if (!pass->plan->is_dry)
        row->flags |= ROW_BURIED;
}

// One after the other, so that one that always fails keeps no other from its turn.
static void call_one(const struct pass *pass, unsigned callable)
{
    struct reconcile_plan *plan = pass->plan;
    unsigned turn = 0;

    if (callable == 0 || pass->facts.intent_open)
        return;
    turn = pass->memory->pass % callable;
    for (unsigned i = 0; i < plan->action_count; i++) {
        const struct reconcile_action *action = &plan->actions[i];

        if (action->kind != RECONCILE_BURY || !may_call(pass, (uint32_t)action->row))
            continue;
        if (turn-- == 0) {
            act(plan, RECONCILE_DELETE_RPC, action->worker_id, action->row);
            return;
        }
    }
}

static void act_on_gone(const struct pass *pass)
{
    struct reconcile_plan *plan = pass->plan;
    const struct worker_row *rows = pass->snapshot->rows;
    unsigned approved = 0;
    unsigned callable = 0;

    for (uint32_t i = 0; i < pass->snapshot->row_count; i++)
        approved += plan->judgments[i].verdict == VERDICT_GONE &&
                    (memory_of(pass, i)->flags & ROW_APPROVED);
    for (uint32_t i = 0; i < pass->snapshot->row_count; i++) {
        struct row_memory *row = memory_of(pass, i);

        if (plan->judgments[i].verdict != VERDICT_GONE)
            continue;
        if (!pass_brake(pass, row, rows[i].type, &approved)) {
            plan->judgments[i].is_held = true;
            plan->held[rows[i].type]++;
            continue;
        }
        bury(pass, i, row);
        callable += may_call(pass, i);
    }
    call_one(pass, callable);
}

void plan_row(struct pass *pass, uint32_t index)
{
    struct reconcile_plan *plan = pass->plan;
    const struct worker_judgment *judgment = &plan->judgments[index];

    settle_row(pass, index);
    plan->verdicts[pass->snapshot->rows[index].type][judgment->verdict]++;
    plan->reasons[judgment->reason]++;
}

void plan_actions(const struct pass *pass)
{
    for (int type = 0; type < WORKER_TYPES; type++)
        open_window(pass, (enum worker_type)type);
    act_on_gone(pass);
}

void plan_vanished(struct pass *pass, uint32_t slot)
{
    struct reconcile_memory *memory = pass->memory;

    for (int32_t at = memory->row_heads[slot]; at >= 0; at = memory->rows[at].next) {
        const struct row_memory *row = &memory->rows[at];

        if (row->pass != memory->pass && (row->flags & ROW_BURIED))
            act(pass->plan, RECONCILE_UNBURY, row->id, -1);
    }
}
