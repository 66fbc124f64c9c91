// SPDX-License-Identifier: Apache-2.0
// What a pass has planned, one statement after the other. Each is bound to the term in
// Postgres; the call to the leader is bound to an intent and to a second look at everything.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/workers/parts.h"
#include "base/log.h"

static void next(struct workers *workers);
static void go_on(struct workers *workers, const struct pg_reply *reply);

static const struct reconcile_action *action_of(const struct workers *workers)
{
    return &workers->pass.plan.actions[workers->pass.action];
}

static void put_endpoint(const struct worker_row *row, char *to, size_t size)
{
    const char *host = row->host ? row->host : "NULL";

    (void)snprintf(to, size, strchr(host, ':') ? "[%.253s]:%" PRId32 : "%.253s:%" PRId32, host,
                   row->port);
}

// What is to be told of an action, but for its outcome.
static struct workers_deed deed_of(struct workers *workers,
                                   const struct reconcile_action *action)
{
    static const char *const names[] = {[RECONCILE_BURY] = "bury",
                                        [RECONCILE_UNBURY] = "unbury",
                                        [RECONCILE_DELETE_RPC] = "delete"};
    const struct workers_pass *pass = &workers->pass;
    struct workers_deed deed = {.action = names[action->kind],
                                .worker_id = action->worker_id,
                                .reason = "row is not there any more"};
    const struct worker_judgment *judgment = NULL;
    const struct worker_row *row = NULL;

    if (action->row < 0)
        return deed;
    row = &pass->gather.snapshot.rows[action->row];
    judgment = &pass->plan.judgments[action->row];
    put_endpoint(row, deed.endpoint, sizeof(deed.endpoint));
    deed.reason = worker_reason_name((enum worker_reason)judgment->reason);
    (void)snprintf(deed.evidence, sizeof(deed.evidence),
                   "%s %s, row version %.60s, its pod %.40s, %u pods and %u rows seen",
                   worker_type_name(row->type),
                   worker_verdict_name((enum worker_verdict)judgment->verdict),
                   row->row_version, reconcile_pod_uid(&pass->memory, judgment->known_pod),
                   pass->gather.snapshot.pod_count, pass->gather.snapshot.row_count);
    return deed;
}

// --- tombstones ---

static bool was_buried(const struct workers_pass *pass, int32_t worker_id)
{
    for (unsigned i = 0; i < pass->buried_count; i++)
        if (pass->buried[i] == worker_id)
            return true;
    return false;
}

static void forget_buried(struct workers_pass *pass, int32_t worker_id)
{
    for (unsigned i = 0; i < pass->buried_count; i++)
        if (pass->buried[i] == worker_id)
            pass->buried[i] = pass->buried[--pass->buried_count];
}

// Whether the statement said yes; else why not.
static bool is_done(const struct pg_reply *reply, char *why, size_t size)
{
    const char *field = NULL;
    struct err err = {0};

    if (reply->fault.kind != PG_OK) {
        const char *fix = store_fix(&reply->fault);

        (void)snprintf(why, size, "%.120s%s%.70s", reply->fault.err.msg, fix ? ": " : "",
                       fix ? fix : "");
        return false;
    }
    if (pg_answer_rows(reply) == 1 && pg_answer_row(reply, 0, &field, 1, &err) == 0 &&
        store_is_true(field))
        return true;
    (void)snprintf(why, size, "refused: the term is another one, or too many wait");
    return false;
}

// Once, until one is written again: a hundred that are refused in each pass are one piece of
// news.
static void say_not_buried(struct workers *workers, const struct pg_reply *reply,
                           const struct workers_deed *deed)
{
    struct workers_pass *pass = &workers->pass;

    if (strcmp(pass->bury_error, deed->outcome) == 0) {
        workers->counts[WORKERS_BURIED][0]++;
        return;
    }
    (void)snprintf(pass->bury_error, sizeof(pass->bury_error), "%s", deed->outcome);
    say_deed(workers, WORKERS_BURIED, false, deed);
    if (reply->fault.kind == PG_OK)
        say_record(workers, deed, NULL);
}

static void on_buried(const struct pg_reply *reply, void *arg)
{
    struct workers *workers = arg;
    struct workers_pass *pass = &workers->pass;
    const struct reconcile_action *action = action_of(workers);
    struct workers_deed deed = deed_of(workers, action);
    bool is_good = is_done(reply, deed.outcome, sizeof(deed.outcome));

    workers->pass.results[workers->pass.action] = is_good ? 1 : 2;
    if (!is_good) {
        if (reply->fault.kind != PG_SILENT) // else it may be there
            reconcile_bury_failed(&pass->memory, action->worker_id);
        say_not_buried(workers, reply, &deed);
    } else if (!was_buried(pass, action->worker_id)) { // a renewal is no news
        if (pass->buried_count < RECONCILE_BURY_MAX)
            pass->buried[pass->buried_count++] = action->worker_id;
        (void)snprintf(deed.outcome, sizeof(deed.outcome), "waits for the next takeover");
        say_deed(workers, WORKERS_BURIED, true, &deed);
        say_record(workers, &deed, NULL);
    }
    if (is_good)
        pass->bury_error[0] = '\0';
    go_on(workers, reply);
}

static void on_unburied(const struct pg_reply *reply, void *arg)
{
    struct workers *workers = arg;
    const struct reconcile_action *action = action_of(workers);
    struct workers_deed deed = deed_of(workers, action);
    bool is_good = is_done(reply, deed.outcome, sizeof(deed.outcome));

    workers->pass.results[workers->pass.action] = is_good ? 1 : 2;
    if (is_good) {
        forget_buried(&workers->pass, action->worker_id);
        (void)snprintf(deed.outcome, sizeof(deed.outcome), "tombstone taken back");
        say_record(workers, &deed, NULL);
    } else {
        reconcile_unbury_failed(&workers->pass.memory, action->worker_id);
    }
    say_deed(workers, WORKERS_UNBURIED, is_good, &deed);
    go_on(workers, reply);
}

static void bury(struct workers *workers, const struct reconcile_action *action)
{
    const struct workers_pass *pass = &workers->pass;
    const struct worker_row *row = &pass->gather.snapshot.rows[action->row];
    const struct worker_judgment *judgment = &pass->plan.judgments[action->row];
    char term[24], id[16], port[16], seconds[32];
    const char *params[] = {workers->agent->config.election.service,
                            term,
                            id,
                            row->host,
                            port,
                            row->row_version,
                            reconcile_pod_uid(&pass->memory, judgment->known_pod),
                            seconds};
    const struct pg_request request = {
        .sql = store_sql_bury, .param_count = 8, .params = params};

    (void)snprintf(term, sizeof(term), "%" PRIu64, workers->state.term);
    (void)snprintf(id, sizeof(id), "%" PRId32, row->id);
    (void)snprintf(port, sizeof(port), "%" PRId32, row->port);
    (void)snprintf(seconds, sizeof(seconds), "%.3f",
                   2.0 * (double)workers->agent->config.core.ttl_ns / (double)NS_PER_SEC);
    (void)workers_ask(workers, &request, on_buried);
}

static void unbury(struct workers *workers, const struct reconcile_action *action)
{
    char term[24], id[16];
    const char *params[] = {workers->agent->config.election.service, term, id};
    const struct pg_request request = {
        .sql = store_sql_unbury, .param_count = 3, .params = params};

    (void)snprintf(term, sizeof(term), "%" PRIu64, workers->state.term);
    (void)snprintf(id, sizeof(id), "%" PRId32, action->worker_id);
    (void)workers_ask(workers, &request, on_unburied);
}

// --- removal by the leader ---

static void on_withdrawn(const struct pg_reply *reply, void *arg)
{
    (void)arg;
    if (reply->fault.kind != PG_OK)
        log_warn("reconcile: an intent could not be withdrawn; it ends with the term",
                 kv_err(&reply->fault.err));
}

static void withdraw(struct workers *workers, int32_t worker_id)
{
    char term[24], id[16];
    const char *params[] = {workers->agent->config.election.service, term, id};
    const struct pg_request request = {
        .sql = store_sql_withdraw, .param_count = 3, .params = params};
    struct err err = {0};

    (void)snprintf(term, sizeof(term), "%" PRIu64, workers->pass.intended_term);
    (void)snprintf(id, sizeof(id), "%" PRId32, worker_id);
    if (!workers->pg || pg_send(workers->pg, &request, on_withdrawn, workers, &err) < 0)
        log_warn("reconcile: an intent could not be withdrawn; it ends with the term",
                 kv_int("worker_id", worker_id));
}

static void on_intended(const struct pg_reply *reply, void *arg)
{
    struct workers *workers = arg;
    struct workers_pass *pass = &workers->pass;
    const struct reconcile_action *action = action_of(workers);
    struct workers_deed deed = deed_of(workers, action);

    pass->results[pass->action] = is_done(reply, deed.outcome, sizeof(deed.outcome)) ? 1 : 2;
    if (pass->results[pass->action] == 2) {
        // It may have been written all the same, or stand for an earlier call: it ends with
        // the term, or with the next that is answered.
        say_deed(workers, WORKERS_DELETED, false, &deed);
        go_on(workers, reply);
        return;
    }
    pass->deed = deed;
    pass->intended = action->worker_id;
    (void)snprintf(pass->intended_version, sizeof(pass->intended_version), "%s",
                   pass->gather.snapshot.rows[action->row].row_version);
    pass->is_recheck = true; // a pass of its own, at once
    next(workers);
}

static void intend(struct workers *workers, const struct reconcile_action *action)
{
    const struct worker_row *row = &workers->pass.gather.snapshot.rows[action->row];
    char term[24], id[16], port[16];
    const char *params[] = {
        workers->agent->config.election.service, term, id, row->host, port, row->row_version};
    const struct pg_request request = {
        .sql = store_sql_intend, .param_count = 6, .params = params};

    workers->pass.intended_term = workers->state.term;
    (void)snprintf(term, sizeof(term), "%" PRIu64, workers->state.term);
    (void)snprintf(id, sizeof(id), "%" PRId32, row->id);
    (void)snprintf(port, sizeof(port), "%" PRId32, row->port);
    (void)workers_ask(workers, &request, on_intended);
}

// Why the announced removal is not to be asked for after all; NULL: it is.
static const char *objection(const struct workers *workers, const struct worker_row *row)
{
    const struct workers_pass *pass = &workers->pass;
    const struct worker_judgment *judgment = NULL;

    if (!row)
        return "the row is gone already";
    judgment = &pass->plan.judgments[row - pass->gather.rows];
    if (strcmp(row->row_version, pass->intended_version) != 0)
        return "the row has been written since";
    if (judgment->verdict != VERDICT_GONE || judgment->is_held)
        return "the second look does not agree";
    if (!row->leader_knows)
        return "the leader may not know the row: the call would abort it";
    if (!workers_may_act(workers))
        return "leadership was lost";
    return NULL;
}

// After the second look.
static void remove_intended(struct workers *workers)
{
    struct workers_pass *pass = &workers->pass;
    const struct worker_row *row = gather_find(&pass->gather, pass->intended);
    const char *why_not = objection(workers, row);
    struct err err = {0};

    pass->is_recheck = false;
    if (!why_not &&
        grpc_delete_worker(workers->calls, row->host, row->port, clock_now(), &err) == 0) {
        pass->is_removing = true;
        return;
    }
    (void)snprintf(pass->deed.outcome, sizeof(pass->deed.outcome), "not asked for: %.150s",
                   why_not ? why_not : err.msg);
    say_deed(workers, WORKERS_DELETED, false, &pass->deed);
    withdraw(workers, pass->intended);
    pass->intended = -1;
}

void acts_removed(struct workers *workers, const struct grpc_call_result *result)
{
    struct workers_pass *pass = &workers->pass;
    struct workers_deed *deed = &pass->deed;

    pass->is_removing = false;
    (void)snprintf(deed->outcome, sizeof(deed->outcome), "%s%s%s",
                   grpc_outcome_name(result->outcome), result->detail[0] ? ": " : "",
                   result->detail);
    say_deed(workers, WORKERS_DELETED, result->outcome == GRPC_CALL_OK, deed);
    say_record(workers, deed, NULL);
    // Not known: the call may come at any time, also when its row is long gone. It stays
    // announced until the term moves.
    if (result->outcome != GRPC_CALL_UNKNOWN) {
        withdraw(workers, pass->intended);
        pass->next_at = clock_now();
    }
    pass->intended = -1;
}

void acts_forget(struct workers *workers)
{
    struct workers_pass *pass = &workers->pass;

    pass->is_recheck = false;
    pass->buried_count = 0;
    pass->bury_error[0] = '\0';
    if (!pass->is_removing)
        pass->intended = -1;
}

// --- one after the other ---

// Where Postgres is silent or lets nobody in, each of a hundred statements would wait as long:
// the rest is for the next pass.
static void go_on(struct workers *workers, const struct pg_reply *reply)
{
    struct workers_pass *pass = &workers->pass;

    if (reply->fault.kind == PG_OK || reply->fault.kind == PG_FAILED) {
        next(workers);
        return;
    }
    for (unsigned i = pass->action + 1; i < pass->plan.action_count; i++)
        if (pass->plan.actions[i].kind == RECONCILE_UNBURY)
            reconcile_unbury_failed(&pass->memory, pass->plan.actions[i].worker_id);
    workers_end_fault(workers, "actions", &reply->fault, NULL);
}

static void next(struct workers *workers)
{
    struct workers_pass *pass = &workers->pass;
    const struct reconcile_action *action = NULL;

    pass->action++;
    if (pass->action >= pass->plan.action_count || pass->plan.is_dry ||
        !workers_may_act(workers)) {
        pass->has_failed = pass->error[0] != '\0';
        workers_end_round(workers, pass->error[0] ? pass->error : NULL);
        return;
    }
    action = action_of(workers);
    switch (action->kind) {
    case RECONCILE_BURY: bury(workers, action); break;
    case RECONCILE_UNBURY: unbury(workers, action); break;
    case RECONCILE_DELETE_RPC: intend(workers, action); break;
    }
}

void acts_run(struct workers *workers)
{
    struct workers_pass *pass = &workers->pass;

    if (pass->is_recheck)
        remove_intended(workers);
    pass->action = (unsigned)-1; // next() begins with 0
    memset(pass->results, 0, sizeof(pass->results));
    next(workers);
}
