// SPDX-License-Identifier: Apache-2.0
#include "agent/observe.h"

#include <assert.h>
#include <string.h>

static_assert(FACT_ID_SIZE == ELECTION_ID_SIZE, "ids are copied whole");
static_assert(FENCE_TAG_SIZE == ELECTION_TAG_SIZE, "tags are copied whole");

static bool set_database(struct facts *facts, enum database_state state, struct instant now)
{
    if (facts->database.state == state)
        return false;
    facts->database.state = state;
    facts->database.since = now;
    return true;
}

static enum database_state state_of_fault(const struct pg_fault *fault)
{
    switch (fault->kind) {
    case PG_REFUSAL: return DATABASE_REFUSES;
    case PG_MISSING: return DATABASE_ANSWERS;
    case PG_OK:
    case PG_SILENT:
    case PG_FAILED: break; // an error is no verdict: it counts toward the deadline, as silence
    }
    return DATABASE_SILENT;
}

static enum row_defect defect_of(const struct election_read *read, int64_t max_clock_jump_ns)
{
    if (read->status == ELECTION_MISSING)
        return ROW_DEFECT_RELATION_MISSING;
    if (read->status == ELECTION_UNREADABLE)
        return ROW_DEFECT_UNREADABLE;
    if (!read->row_present)
        return ROW_DEFECT_NONE;
    if (read->id_is_null)
        return ROW_DEFECT_UNREADABLE;
    if (read->heartbeat_is_null)
        return ROW_DEFECT_HEARTBEAT_NULL;
    return read->age_ns < -max_clock_jump_ns ? ROW_DEFECT_HEARTBEAT_FUTURE : ROW_DEFECT_NONE;
}

static void take_term(struct election_fact *fact, const struct election_read *read)
{
    fact->term_known = read->term_known;
    fact->term = read->term;
    memcpy(fact->term_owner_id, read->term_owner_id, sizeof(fact->term_owner_id));
    memcpy(fact->owner_tag, read->owner_tag, sizeof(fact->owner_tag));
    memcpy(fact->heartbeat_tag, read->heartbeat_tag, sizeof(fact->heartbeat_tag));
    fact->tag_owned_term = read->tag_owned_term;
    fact->tag_superseded = read->tag_superseded;
    fact->guard_enforcing = read->guard_enforcing;
}

// The core compares the id with ours by itself: ROW_OTHER here says only that there is one.
static void take_row(struct election_fact *fact, const struct election_read *read)
{
    fact->row = read->row_present ? ROW_OTHER : ROW_ABSENT;
    if (fact->defect != ROW_DEFECT_NONE)
        fact->row = ROW_BROKEN;
    memcpy(fact->owner_id, read->id, sizeof(fact->owner_id));
    fact->heartbeat_us = read->heartbeat_us;
    fact->age_ns = read->age_ns;
}

bool observe_read(struct facts *facts, const struct election_read *read, const char *tag,
                  int64_t max_clock_jump_ns, struct instant now)
{
    struct election_fact fact = {
        .known = true, .sent_at = read->sent_at, .received_at = read->received_at};

    switch (read->status) {
    case ELECTION_REFUSED: set_database(facts, DATABASE_REFUSES, now); return true;
    case ELECTION_SILENT: set_database(facts, DATABASE_SILENT, now); return true;
    case ELECTION_STANDBY: set_database(facts, DATABASE_STANDBY, now); return true;
    case ELECTION_OK:
    case ELECTION_MISSING:
    case ELECTION_UNREADABLE: set_database(facts, DATABASE_ANSWERS, now); break;
    }
    if (facts->election.known && instant_before(read->sent_at, facts->election.sent_at))
        return true;
    fact.defect = defect_of(read, max_clock_jump_ns);
    take_row(&fact, read);
    if (read->status == ELECTION_OK) {
        fact.db_now_us = read->db_now_us;
        fact.members_known = read->members_known;
        fact.other_members = read->other_members;
        fact.system_id = read->system_id;
        fact.timeline = read->timeline;
        take_term(&fact, read);
        memcpy(fact.asked_tag, tag, strnlen(tag, sizeof(fact.asked_tag) - 1));
    }
    facts->election = fact;
    return true;
}

bool observe_database_down(struct facts *facts, const struct pg_fault *fault,
                           struct instant now)
{
    return set_database(facts, state_of_fault(fault), now);
}

// Without what changes although nothing has happened: the echo of the order and of its ends.
static struct fence_status essence(const struct fence_status *status)
{
    struct fence_status copy;

    memcpy(&copy, status, sizeof(copy)); // with its padding: the result is compared by memcmp
    copy.order_seq = 0;
    copy.written_ns = 0;
    copy.deadline_ns = 0;
    copy.pause_end_ns = 0;
    copy.checksum = 0;
    return copy;
}

bool observe_fence_status(struct facts *facts, const struct fence_status *status,
                          struct instant now)
{
    struct fence_status new_essence = essence(status);
    struct fence_status old_essence = essence(&facts->fence.status);
    bool is_news =
        !facts->fence.known || memcmp(&new_essence, &old_essence, sizeof(new_essence)) != 0;

    facts->fence.known = true;
    facts->fence.received_at = now;
    memcpy(&facts->fence.status, status, sizeof(*status));
    return is_news;
}

bool observe_is_new_count(const struct facts *facts, const struct fence_status *status)
{
    const struct fence_status *last = &facts->fence.status;

    if (status->incarnation != last->incarnation)
        return status->incarnation < last->incarnation;
    return last->tag[0] && status->tag[0] && strcmp(last->tag, status->tag) != 0;
}

bool observe_fence_down(struct facts *facts)
{
    bool was_known = facts->fence.known;

    facts->fence.known = false;
    return was_known;
}

static enum rpc_answer rpc_answer_of(enum grpc_answer answer)
{
    switch (answer) {
    case GRPC_UNKNOWN: return RPC_UNKNOWN;
    case GRPC_LEADING: return RPC_LEADING;
    case GRPC_FOLLOWING: return RPC_FOLLOWING;
    case GRPC_REFUSED: return RPC_REFUSED;
    }
    return RPC_UNKNOWN;
}

bool observe_rpc(struct facts *facts, const struct grpc_result *result, uint64_t incarnation,
                 struct instant now)
{
    facts->rpc.answer = rpc_answer_of(result->answer);
    facts->rpc.incarnation = incarnation;
    facts->rpc.sent_at = result->sent_at;
    facts->rpc.observed_at = now;
    return true;
}

void observe_time(struct facts *facts, struct observe_clock *clock, struct instant boottime,
                  struct instant monotonic)
{
    int64_t suspended_ns = 0;

    if (clock->is_known)
        suspended_ns = instant_since(boottime, clock->boottime) -
                       instant_since(monotonic, clock->monotonic);
    facts->now = boottime;
    // The two clocks are read one after the other: what is below that is no suspend.
    facts->suspended_ns = suspended_ns > 0 ? suspended_ns : 0;
    *clock = (struct observe_clock){true, boottime, monotonic};
}
