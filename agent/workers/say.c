// SPDX-License-Identifier: Apache-2.0
// Everything that was done is told five times: log, event, the agent's history, a row in
// Postgres, a counter.
#include <stdio.h>

#include "agent/agent.h"
#include "agent/workers/parts.h"
#include "base/log.h"

static const char *const event_reasons[WORKERS_COUNTS] = {
    [WORKERS_BURIED] = "WorkerBuried",
    [WORKERS_UNBURIED] = "WorkerUnburied",
    [WORKERS_DELETED] = "WorkerRemoved",
    [WORKERS_RECOVERED] = "LeaderRecovered",
    [WORKERS_RESTARTED] = "LeaderRestarted"};

void say_deed(struct workers *workers, enum workers_count count, bool is_done,
              const struct workers_deed *deed)
{
    struct agent *agent = workers->agent;
    char note[KUBE_NOTE_SIZE];

    workers->counts[count][is_done]++;
    if (is_done)
        log_info("reconcile", kv_str("action", deed->action),
                 kv_int("worker_id", deed->worker_id), kv_str("endpoint", deed->endpoint),
                 kv_str("reason", deed->reason), kv_str("evidence", deed->evidence),
                 kv_int("term", (int64_t)workers->state.term),
                 kv_str("outcome", deed->outcome));
    else
        log_warn("reconcile: not done", kv_str("action", deed->action),
                 kv_int("worker_id", deed->worker_id), kv_str("endpoint", deed->endpoint),
                 kv_str("reason", deed->reason), kv_str("evidence", deed->evidence),
                 kv_int("term", (int64_t)workers->state.term),
                 kv_str("outcome", deed->outcome));
    (void)snprintf(note, sizeof(note), "%s %.200s: %s: %.60s (%.150s)", deed->action,
                   deed->endpoint, deed->reason, deed->outcome, deed->evidence);
    kube_say(agent->kube,
             &(struct kube_event){!is_done, "Reconcile", event_reasons[count], note});
    // The history cuts it.
    (void)snprintf(note, sizeof(note), "%s%s %.60s: %s%s%.100s",
                   is_done ? "" : "not done: ", deed->action, deed->endpoint, deed->reason,
                   is_done ? "" : ": ", is_done ? "" : deed->outcome);
    history_add(&agent->history, &agent->facts, &agent->memory, "reconcile", note);
}

static void on_recorded(const struct pg_reply *reply, void *arg)
{
    (void)arg;
    if (reply->fault.kind != PG_OK)
        log_warn("reconcile: not recorded in Postgres", kv_err(&reply->fault.err));
}

void say_record(struct workers *workers, const struct workers_deed *deed, pg_done_fn *fn)
{
    char term[24], id[24];
    const char *params[] = {workers->agent->config.election.service,
                            term,
                            deed->action,
                            deed->worker_id >= 0 ? id : NULL,
                            deed->endpoint,
                            deed->reason,
                            deed->evidence,
                            deed->outcome};
    const struct pg_request request = {
        .sql = store_sql_note, .param_count = 8, .params = params};
    const struct pg_reply none = {.fault = {.kind = PG_SILENT}};
    struct err err = {0};

    (void)snprintf(term, sizeof(term), "%llu", (unsigned long long)workers->state.term);
    (void)snprintf(id, sizeof(id), "%lld", (long long)deed->worker_id);
    if (workers->pg &&
        pg_send(workers->pg, &request, fn ? fn : on_recorded, workers, &err) == 0)
        return;
    if (fn)
        fn(&none, workers);
}

static const char *note_of(enum converge_reason alarm)
{
    if (alarm == CONVERGE_SLOW)
        return "the leader's global recovery takes more than a minute: nothing is done about "
               "it; its log says what it waits for";
    if (alarm == CONVERGE_STUCK)
        return "the leader's global recovery takes more than a minute, and rows of workers "
               "were "
               "deleted by others since it leads: nothing is done about it; see "
               "metafence.mutation";
    return "the leader's memory is not what the table says, and what could be done was done or "
           "got no answer: see metafence.reconcile and metafence.mutation";
}

void say_alarm(struct workers *workers, enum converge_reason reason)
{
    static const char *const events[CONVERGE_REASONS] = {
        [CONVERGE_SLOW] = "RecoverySlow",
        [CONVERGE_STUCK] = "RecoveryStuck",
        [CONVERGE_GAVE_UP] = "ReconcileGaveUp",
    };
    struct agent *agent = workers->agent;

    log_warn("reconcile: the leader's memory", kv_str("state", converge_reason_name(reason)),
             kv_str("note", note_of(reason)));
    kube_say(agent->kube,
             &(struct kube_event){true, "Reconcile", events[reason], note_of(reason)});
    history_add(&agent->history, &agent->facts, &agent->memory, "reconcile alarm",
                converge_reason_name(reason));
}

static void write_rows(struct prom *prom, const struct workers *workers)
{
    const struct pass_summary *last = &workers->pass.last;

    if (last->at.ns == 0)
        return;
    prom_family(prom, PROM_GAUGE, "metafence_reconcile_rows",
                "Rows of workers by the verdict of the last pass.");
    for (int i = 0; i <= VERDICT_GONE; i++)
        prom_int(prom, PROM_LABELS({"verdict", worker_verdict_name((enum worker_verdict)i)}),
                 last->rows[i]);
    prom_one_int(prom, "metafence_reconcile_held",
                 "Rows that are gone and that the brake holds.", workers->pass.held);
}

// One that is not known is left out.
static void write_memory(struct prom *prom, const struct workers *workers)
{
    const struct workers_cure *cure = &workers->cure;

    prom_family(prom, PROM_GAUGE, "metafence_reconcile_memory",
                "1 for what is known of the leader's memory of the worker rows.");
    for (int i = 0; i < CONVERGE_REASONS; i++)
        prom_int(prom, PROM_LABELS({"state", converge_reason_name((enum converge_reason)i)}),
                 workers->is_leading && cure->plan.reason == (enum converge_reason)i);
    if (cure->status != CONVERGE_STATUS_UNKNOWN)
        prom_one_seconds(prom, "metafence_reconcile_recovering_seconds",
                         "How long the leader has been in a global recovery; 0: it is not.",
                         cure_recovering_ns(cure));
}

static void write_metrics(struct prom *prom, void *arg)
{
    static const char *const actions[WORKERS_COUNTS] = {
        [WORKERS_BURIED] = "bury",       [WORKERS_UNBURIED] = "unbury",
        [WORKERS_DELETED] = "delete",    [WORKERS_RECOVERED] = "recover",
        [WORKERS_RESTARTED] = "restart",
    };
    static const struct store_state none;
    const struct workers *workers = arg;
    // What was seen of a leader that is no more is nobody's divergence.
    const struct store_state *state = workers->state_at.ns != 0 ? &workers->state : &none;

    prom_family(prom, PROM_COUNTER, "metafence_reconcile_actions",
                "What was done about worker rows and the leader's memory of them.");
    for (unsigned i = 0; i < WORKERS_COUNTS; i++) {
        prom_count(prom, PROM_LABELS({"action", actions[i]}, {"result", "done"}),
                   workers->counts[i][1]);
        prom_count(prom, PROM_LABELS({"action", actions[i]}, {"result", "not_done"}),
                   workers->counts[i][0]);
    }
    prom_family(prom, PROM_COUNTER, "metafence_reconcile_rounds", "Looks at the worker rows.");
    prom_count(prom, PROM_LABELS({"result", "done"}), workers->rounds - workers->failures);
    prom_count(prom, PROM_LABELS({"result", "failed"}), workers->failures);
    prom_family(prom, PROM_GAUGE, "metafence_reconcile_divergence",
                "Rows by which the leader's memory is known to differ from the table.");
    prom_int(prom, PROM_LABELS({"kind", "unknown_row"}), state->unknown_rows);
    prom_int(prom, PROM_LABELS({"kind", "lost_row"}), state->lost_rows);
    prom_int(prom, PROM_LABELS({"kind", "reborn_row"}), state->reborn_rows);
    prom_int(prom, PROM_LABELS({"kind", "actor_ghost"}), state->ghosts);
    write_rows(prom, workers);
    write_memory(prom, workers);
}

void say_metrics(struct workers *workers)
{
    metrics_add_source(&workers->agent->metrics, write_metrics, workers);
}
