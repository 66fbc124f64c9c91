// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "agent/reconcile/internal.h"

// --- what is known of rows and pods from before ---

static uint64_t hash_text(uint64_t sum, const char *text)
{
    static const char none[] = "\377";

    // With the NUL byte: "a", "bc" is not "ab", "c".
    return text ? hash_whole(sum, text, strlen(text) + 1) : hash_whole(sum, none, sizeof(none));
}

static void change_row(struct row_memory *known, const struct worker_row *row,
                       struct instant taken)
{
    int32_t numbers[2] = {row->port, (int32_t)row->type};
    int32_t status = (int32_t)row->status;
    uint64_t endpoint = hash_text(hash_whole(0, numbers, sizeof(numbers)), row->host);
    uint64_t content =
        hash_text(hash_whole(endpoint, &status, sizeof(status)), row->row_version);
    bool is_first = known->first_seen.ns == 0;

    if (!is_first && known->content == content)
        return;
    // The same id at another endpoint: what was known of the old one is of no use.
    if (!is_first && known->endpoint != endpoint) {
        known->pod = -1;
        known->flags |= ROW_HAUNTED;
    }
    if (is_first)
        known->first_seen = taken;
    else
        known->flags |= ROW_CHANGED;
    known->changed_at = taken;
    known->content = content;
    known->endpoint = endpoint;
    known->gone_since.ns = 0;
}

void decide_note_row(struct pass *pass, uint32_t index)
{
    struct reconcile_memory *memory = pass->memory;
    const struct worker_row *row = &pass->snapshot->rows[index];
    int32_t slot = memory_find_row(memory, row->id);
    struct row_memory *known = NULL;

    if (slot < 0)
        slot = memory_add_row(memory, row->id);
    pass->space.row_memory[index] = slot;
    if (slot < 0)
        return;
    known = &memory->rows[slot];
    if (known->pass == memory->pass) {
        known->flags |= ROW_TWICE | ROW_HAUNTED;
        return;
    }
    known->flags &= (uint8_t)~ROW_TWICE;
    known->pass = memory->pass;
    change_row(known, row, pass->snapshot->taken_at);
}

void decide_note_pod(struct pass *pass, uint32_t index)
{
    struct reconcile_memory *memory = pass->memory;
    const struct worker_pod *pod = &pass->snapshot->pods[index];
    int32_t slot = -1;

    // One that says not who it is, or one that is there twice: this is no list.
    if (!pod->uid || !pod->name)
        pass->is_no_list = true;
    if (pass->is_no_list)
        return;
    slot = memory_find_pod(memory, pod->uid);
    if (slot >= 0 && memory->pods[slot].pass == memory->pass) {
        pass->is_no_list = true;
        return;
    }
    slot = memory_note_pod(memory, pod, pass->snapshot->taken_at);
    pass->space.pod_memory[index] = slot;
    if (slot < 0)
        return;
    memory->pods[slot].pass = memory->pass;
    memory->pods[slot].index = (int32_t)index;
}

// --- one row ---

// Between the last whole look and this one somebody may have had the row whom no list showed.
static bool is_after_gap(const struct pass *pass)
{
    struct instant last = pass->memory->last_taken;

    return last.ns == 0 ||
           instant_since(pass->snapshot->taken_at, last) > pass->config.confirm_after_ns;
}

// From here on the row is this pod's. Who had it before and has not ended may come back.
static void bind(const struct pass *pass, struct row_memory *row, const struct holder *holder)
{
    int32_t slot = pass->space.pod_memory[holder->pod];

    if (holder->count > 1 || slot < 0) {
        row->flags |= ROW_HAUNTED;
        return;
    }
    if (row->pod == slot)
        return;
    // A row that is older than its first pod was somebody's whom we never saw.
    if (row->pod < 0 ? instant_before(row->first_seen, pass->memory->pods[slot].first_seen)
                     : !(pass->memory->pods[row->pod].flags & POD_ENDED) || is_after_gap(pass))
        row->flags |= ROW_HAUNTED;
    row->pod = slot;
}

static void judge_with_holder(const struct pass *pass, uint32_t index, struct row_memory *row,
                              const struct address *address, const struct holder *holder)
{
    struct worker_judgment *judgment = &pass->plan->judgments[index];
    const struct worker_pod *pod = &pass->snapshot->pods[holder->pod];
    enum worker_reason reason = REASON_POD_RUNS;

    judgment->verdict = (uint8_t)judge_held(pod, &reason);
    judgment->reason = (uint8_t)reason;
    judgment->pod = holder->pod;
    if (holder->count > 1 && address->kind == ADDRESS_NAME) {
        judgment->verdict = VERDICT_UNKNOWN;
        judgment->reason = REASON_AMBIGUOUS;
    }
    // Also one that is not known to have started: its kubelet may have been cut off first.
    bind(pass, row, holder);
    if (holder->count == 1) {
        pass->space.next_row[index] = pass->space.pod_rows[holder->pod];
        pass->space.pod_rows[holder->pod] = (int32_t)index;
    }
}

static bool is_young(const struct pass *pass, const struct worker_row *row,
                     const struct row_memory *known)
{
    return row->status == WORKER_STARTING &&
           instant_since(pass->snapshot->taken_at, known->first_seen) <
               pass->config.starting_grace_ns;
}

static void judge_by_address(const struct pass *pass, uint32_t index, struct row_memory *known)
{
    const struct worker_row *row = &pass->snapshot->rows[index];
    struct worker_judgment *judgment = &pass->plan->judgments[index];
    struct address address = address_parse(row->host);
    struct holder holder;

    if (address.kind == ADDRESS_BAD) {
        judgment->reason = REASON_BAD_ADDRESS;
        return;
    }
    holder = judge_holder(pass, row, &address);
    if (holder.pod >= 0) {
        judge_with_holder(pass, index, known, &address, &holder);
        known->flags &= (uint8_t)~ROW_CHANGED;
        return;
    }
    judgment->pod = holder.other;
    // Somebody wrote it who is no more to be seen.
    if (known->flags & ROW_CHANGED)
        known->flags |= ROW_HAUNTED;
    known->flags &= (uint8_t)~ROW_CHANGED;
    judgment->reason = REASON_YOUNG;
    if (!is_young(pass, row, known))
        judgment->reason = (uint8_t)candidate_reason(pass, known, &address, &holder);
}

void decide_row(struct pass *pass, uint32_t index)
{
    const struct worker_row *row = &pass->snapshot->rows[index];
    struct worker_judgment *judgment = &pass->plan->judgments[index];
    int32_t slot = pass->space.row_memory[index];

    if (row->type == WORKER_RISECTL)
        judgment->reason = REASON_RISECTL;
    else if (row->type == WORKER_OTHER)
        judgment->reason = REASON_UNKNOWN_TYPE;
    else if (slot < 0)
        judgment->reason = REASON_TOO_MANY;
    else if (pass->memory->rows[slot].flags & ROW_TWICE)
        judgment->reason = REASON_AMBIGUOUS;
    else
        judge_by_address(pass, index, &pass->memory->rows[slot]);
}

// --- rows that are lost ---

// Memory of its leader is all that still knows such a worker: it beats, is answered, and never
// registers again.
static bool is_orphan(const struct pass *pass, const struct worker_row *lost)
{
    struct worker_row row = *lost;
    struct address address = address_parse(lost->host);
    bool is_typed = lost->type != WORKER_OTHER;
    enum worker_reason reason = REASON_COUNT;

    for (int type = WORKER_COMPUTE; address.kind != ADDRESS_BAD && type <= WORKER_COMPACTOR;
         type++) {
        struct holder holder;

        if (is_typed && (int)lost->type != type)
            continue;
        row.type = (enum worker_type)type;
        holder = judge_holder(pass, &row, &address);
        if (holder.count == 1 && pass->snapshot->pods[holder.pod].is_running &&
            pass->space.pod_rows[holder.pod] < 0 &&
            judge_held(&pass->snapshot->pods[holder.pod], &reason) == VERDICT_LIVE)
            return reason == REASON_POD_RUNS;
    }
    return false;
}

void decide_orphans(struct pass *pass)
{
    uint32_t count = pass->snapshot->lost_count;

    pass->plan->orphans = 0;
    pass->plan->orphans_at = pass->snapshot->taken_at;
    for (uint32_t i = 0; i < count && i < RECONCILE_LOST_MAX; i++)
        pass->plan->orphans += is_orphan(pass, &pass->snapshot->lost[i]);
}
