// SPDX-License-Identifier: Apache-2.0
#pragma once
// parts: what the files of this folder share; nobody else includes it. One step is under way at
// a time: a look (actors, state), then, when it is due, a pass (rows, log, pods, slices, sets,
// verdict) and what it plans. Each step ends in a callback, which begins the next or ends the
// round; leadership that is lost ends it at once.

#include <stdbool.h>
#include <stdint.h>

#include "agent/grpc/calls.h"
#include "agent/grpc/client.h"
#include "agent/pg/answer.h"
#include "agent/reconcile/converge.h"
#include "agent/reconcile/verdict.h"
#include "agent/workers/gather.h"
#include "agent/workers/store.h"
#include "agent/workers/workers.h"
#include "base/clock.h"
#include "base/loop.h"
#include "k8s/follow.h"
#include "k8s/list.h"

#define WORKERS_ACTORS_MAX 4096 // workers that actors may run on

// One thing that was done, or would be.
struct workers_deed {
    const char *action; // "bury", "unbury", "delete", "recover", "restart"
    int64_t worker_id;  // -1: none
    char endpoint[300];
    const char *reason; // literal
    char evidence[400];
    char outcome[200];
};

enum workers_count { // of deeds, for metrics
    WORKERS_BURIED = 0,
    WORKERS_UNBURIED,
    WORKERS_DELETED,
    WORKERS_RECOVERED,
    WORKERS_RESTARTED,
    WORKERS_COUNTS,
};

struct workers_cure {
    struct converge_config config;
    struct converge_memory memory;
    struct converge_plan plan;
    struct converge_facts facts; // of the last decision
    enum converge_outcome outcome;
    struct instant outcome_at;
    enum converge_reason said;
    struct workers_deed deed;         // of the last cure
    char restart_tag[STORE_TAG_SIZE]; // of the incarnation whose restart was ordered
    // The leader's recovery status, asked for in each round; UNKNOWN without an answer.
    struct grpc_client *asker;
    enum converge_status status;
    struct instant status_since; // when its first answer of this kind was asked for
    // What the leader's actors run on.
    uint32_t actors[WORKERS_ACTORS_MAX];
    size_t actor_count;
    bool actors_known;
    bool are_actors_asked;         // the round waits for them
    struct instant actors_at;      // when they were asked for
    struct instant actors_next_at; // when they are to be asked for again
};

// What is listed, in this order.
enum pass_list {
    PASS_PODS = 0,
    PASS_SLICES,
    PASS_SETS,
    PASS_KRUISE_SETS,
    PASS_LISTS,
};

// The last pass that was judged, for people.
struct pass_summary {
    struct instant at; // ns 0: none yet
    uint32_t rows[VERDICT_GONE + 1];
    int32_t orphans; // -1: not judged
    bool is_whole;   // all parts could be read
};

// A change of a pod that waits: all of it that matters then.
struct pass_change {
    struct worker_pod pod; // no strings but the uid
    char uid[WORKER_UID_SIZE];
    bool is_deleted;
};

struct workers_pass {
    struct gather gather;
    enum pass_list at; // list under way
    struct k8s_list *list;
    struct k8s_follow *follow; // of the pods; while leading
    char error[200];           // the first part that is not complete, and why; "": all are
    struct reconcile_memory memory;
    void *block; // of memory
    struct reconcile_plan plan;
    // The verdict goes through a large table in steps, each in a turn of its own; changes of
    // pods wait meanwhile.
    bool is_judging;
    struct loop_timer *step_timer; // of the verdict, or of the rows
    struct pg_reply rows;          // kept: what Postgres said, until all of it is taken in
    size_t row_at;                 // the next to be taken in
    struct pass_change *changes;
    size_t change_count, change_room;
    bool has_judged; // plan speaks of gather's snapshot
    uint64_t number; // passes that were judged
    struct instant next_at;
    bool has_failed;        // the last one was not done to its end: what it said stays true
    unsigned failed;        // passes one after the other in which a part was not complete
    int64_t retry_after_ns; // as a server said in this one; 0: none did
    bool is_ordered;        // asked for by an operator: now
    bool is_dry;            // … and nothing is to be done
    bool runs_dry;          // the one under way, or the last
    // Actions: the next to be done, and ids that were buried and told.
    unsigned action;
    uint8_t results[RECONCILE_ACTIONS_MAX]; // 0: not tried; 1: done; 2: not done
    int32_t buried[RECONCILE_BURY_MAX];
    unsigned buried_count;
    // A removal by the leader: announced, to be looked at once more before it is asked for.
    int32_t intended; // worker id; -1: none
    uint64_t intended_term;
    char intended_version[64];
    bool is_recheck;          // this pass is that second look
    bool is_removing;         // the call is under way
    struct workers_deed deed; // of the removal
    uint32_t held;            // rows that the brake holds, as said last
    struct pass_summary last;
    char bury_error[200]; // why the last tombstone was not written; "": it was
};

struct workers {
    struct agent *agent;
    struct loop_timer *timer;
    struct pg_params params;
    struct pg *pg; // while leading
    struct grpc_calls *calls;

    bool is_leading;
    struct instant leading_since;
    uint64_t incarnation; // of our meta, that leads
    bool is_busy;         // a round is under way
    struct store_state state;
    struct instant state_at; // before it was asked for; ns 0: not known
    char error[300];         // of the last round; "": fine
    uint64_t rounds;
    uint64_t failures; // rounds that ended with an error

    struct workers_cure cure;
    struct workers_pass pass;
    uint64_t counts[WORKERS_COUNTS][2]; // [1]: done; [0]: failed, refused, not known
};

// --- workers.c ---

// The meta beside us is the verified leader now, of the term that the state names.
bool workers_may_act(const struct workers *workers);
// The round is over; `error` NULL: all of it was done.
void workers_end_round(struct workers *workers, const char *error);
// … for what Postgres, or the parsing of its answer, said.
void workers_end_fault(struct workers *workers, const char *what, const struct pg_fault *fault,
                       const struct err *err);
// Sends a statement on our session. False: it was not, and the round is over.
bool workers_ask(struct workers *workers, const struct pg_request *request, pg_done_fn *fn);

// --- cure.c ---

void cure_init(struct workers *workers);
void cure_free(struct workers *workers);
void cure_begin_leading(struct workers *workers);
void cure_end_leading(struct workers *workers); // no answer that comes later is a round's
// After each decision: an order to restart ends with its incarnation, whose number may be used
// again.
void cure_turn(struct workers *workers);
// Begins a round: what do the leader's actors run on, then the state. Goes on with
// workers_round_goes_on().
void cure_look(struct workers *workers);
// Compares what the state says with the leader's memory, and begins what is due.
void cure_judge(struct workers *workers);
void cure_call_done(struct workers *workers, const struct grpc_call_result *result);
// How long the leader has been seen in a global recovery; 0: it is not, or that is not known.
int64_t cure_recovering_ns(const struct workers_cure *cure);

// --- pass.c ---

void pass_init(struct workers *workers);
void pass_begin_leading(struct workers *workers);
// What is under way is given up; what is remembered stays.
void pass_end_leading(struct workers *workers);
void pass_free(struct workers *workers);
// From the end of a pass to the next: one that read not all comes again soon, but with a
// cluster's API down not every 2 s with all rows, and never sooner than its server wants.
int64_t pass_wait_ns(const struct workers_pass *pass, int64_t interval_ns);
// How long one turn goes on with a pass.
#define PASS_SLICE_NS (3 * NS_PER_MS)
// After a look: begins a pass if one is due, and then goes on with acts_run(); else ends the
// round.
void pass_run(struct workers *workers);

// --- judge.c ---

// Judges what was read, in as many turns as it takes, and goes on with acts_run().
void judge_begin(struct workers *workers);
void judge_step(struct workers *workers);   // one turn of it
void judge_stop(struct workers_pass *pass); // no verdict comes; what waits is taken in
// Takes a change of a pod in, or lets it wait.
void judge_saw_pod(struct workers_pass *pass, const struct worker_pod *pod, bool is_deleted);
// Memory for what was read, made before the verdict.
void pass_fit_memory(struct workers_pass *pass);

// --- acts.c ---

// Does what the plan says, one thing after the other, and ends the round.
void acts_run(struct workers *workers);
void acts_removed(struct workers *workers, const struct grpc_call_result *result);
void acts_forget(struct workers *workers); // leadership is lost

// --- say.c ---

// Log, event, history of the agent, counter.
void say_deed(struct workers *workers, enum workers_count count, bool is_done,
              const struct workers_deed *deed);
// … and a row in metafence.reconcile; `fn` when it is written or can't be (NULL: nobody waits).
void say_record(struct workers *workers, const struct workers_deed *deed, pg_done_fn *fn);
// What only a person can judge: log, event, history.
void say_alarm(struct workers *workers, enum converge_reason reason);
void say_metrics(struct workers *workers);
