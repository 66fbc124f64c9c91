// SPDX-License-Identifier: Apache-2.0
#pragma once
// cluster: the Kubernetes side of a world: one API server (and a second one whose cache lags),
// the connections to it, a kubelet for each node, the StatefulSet's controller, and what goes
// wrong there. It has a stream of chance of its own, so that a schedule's other half does not
// depend on it. P4 and P8 are judged here (promise.c).

#include "tests/sim/seam.h"
#include "tests/sim/sim.h"

#define CLUSTER_TIMEOUT_NS (5 * S) // kubernetes.requestTimeout

#define TROUBLES_MAX 10
#define CALLS_MAX    256
#define CHANGES_MAX  64
#define VALUE_SIZE   32
#define ORDER_SIZE   256

enum trouble_kind {
    TROUBLE_API_DOWN = 0,
    TROUBLE_API_SLOW,
    TROUBLE_API_ERRORS,    // 429, 5xx, with and without Retry-After, done all the same or not
    TROUBLE_API_DENIED,    // 403 for all that writes
    TROUBLE_API_CONFLICT,  // 409 about the resourceVersion
    TROUBLE_API_LOST,      // requests that never arrive
    TROUBLE_API_NO_ANSWER, // applied, the answer is lost
    TROUBLE_API_LATE,      // applied after the client has given up
    TROUBLE_API_EXPIRED,   // 410, as a status and as an event
    TROUBLE_API_STALE,     // watches end up at a server whose cache lags
    TROUBLE_API_DEAF,      // watches that say nothing any more
    TROUBLE_CHURN,         // another writer moves the resourceVersion all the time
    TROUBLE_FOREIGN,       // another writer of our own label
    TROUBLE_CUT_API,       // node <-> API
    TROUBLE_CUT_POSTGRES,  // node <-> Postgres
    TROUBLE_CUT_NODE,      // both
    TROUBLE_API_MUTE,      // one way: requests are lost
    TROUBLE_API_DUMB,      // one way: answers are lost
    TROUBLE_POSTGRES_DUMB, // one way: statements arrive, answers don't
    TROUBLE_SIDECAR,       // the agent's container ends and is restarted with back-off
    TROUBLE_CONTAINER,     // meta's container, the same
    TROUBLE_RUN_STOPPED,   // metafence-run is stopped: the kubelet's probe is what is left
    TROUBLE_POD_DELETED,   // in good order, and replaced
    TROUBLE_NODE_LOST,     // powered off; the pod is force-deleted and replaced later
    TROUBLE_DIVERGED,      // the leader's memory is not what the worker rows say
    TROUBLE_HANDOVER,      // an operator wants another to lead
    TROUBLE_COUNT,
};

struct trouble {
    enum trouble_kind kind;
    int pod;
    int64_t at;
    int64_t span_ns;
    int64_t amount_ns;
    bool on_leader;
};

// What has to come up in a run, else the schedules prove less than they seem to.
enum happening {
    HAPPENED_REFUSED = 0, // connection refused
    HAPPENED_TIMED_OUT,
    HAPPENED_LOST,
    HAPPENED_UNANSWERED,  // applied
    HAPPENED_LATE,        // applied after the client gave up
    HAPPENED_LATE_LEADER, // … and it was "leader", of a pod that does not lead any more
    HAPPENED_BUSY,
    HAPPENED_BUSY_DONE, // … and applied
    HAPPENED_DENIED,
    HAPPENED_CONFLICT,
    HAPPENED_OWNED,       // a field manager's conflict
    HAPPENED_OTHER_UID,   // the pod of that name is another
    HAPPENED_GONE_STATUS, // 410
    HAPPENED_GONE_EVENT,
    HAPPENED_STALE,   // an event that came late
    HAPPENED_TOO_NEW, // 504: the lagging server does not know that version yet
    HAPPENED_DEAF,
    HAPPENED_CHURN,
    HAPPENED_FOREIGN,
    HAPPENED_GIVEN_UP, // an older value under way made way for a newer one
    HAPPENED_CLEARED,  // a dead pod's label, by the leader's agent
    HAPPENED_ORDER_WRITTEN,
    HAPPENED_CUT_API,
    HAPPENED_CUT_POSTGRES,
    HAPPENED_ONE_WAY_API,
    HAPPENED_ONE_WAY_POSTGRES,
    HAPPENED_PROBE_KILL, // by the kubelet
    HAPPENED_BACK_OFF,   // a restart that waited
    HAPPENED_SIDECAR,
    HAPPENED_POD_REPLACED,
    HAPPENED_FORCED,      // replaced while the old process lives
    HAPPENED_OWN_DELETE,  // by the agent: the last rung
    HAPPENED_TWO_LABELS,  // two living pods were labelled leader for a moment
    HAPPENED_KILL_UNSENT, // a kill while the label could not be sent
    HAPPENING_COUNT,
};

enum manager { NOBODY = 0, US, OPERATOR };

// The object of one name.
struct api_pod {
    bool exists;
    int pod; // whose processes it lists
    char uid[16];
    uint64_t version;
    bool deleting;
    int64_t delete_at;
    char own[VALUE_SIZE], role[VALUE_SIZE]; // "": no such label
    int own_is, role_is;                    // enum role_label; -1: none of them
    enum manager own_manager, role_manager;
    bool has_fence, has_pause;
    char fence[ORDER_SIZE], pause[ORDER_SIZE];
    int64_t labelled_at; // own has this value since
};

struct api_change {
    uint64_t version;
    int64_t at;
    const char *type; // "MODIFIED", …
    int name;
    struct api_pod pod;
};

struct api_call {
    uint32_t serial; // 0: free
    int pod;
    uint32_t gen; // of the agent that sent it
    uint32_t id;
    bool is_stream, is_label;
    bool is_write; // changes a pod
    char method[8];
    char *path, *body;
    bool is_over; // the client does not wait any more
    bool is_held; // on a link that is cut
    bool is_lost; // … and is not sent again
    bool has_arrived;
    bool is_sent; // a connection was there
    // Its answer, on its way.
    int status; // 0: none
    int64_t retry_after_ns;
    char *answer;
    // A stream.
    bool is_open, is_deaf;
    int name;
    uint64_t cursor;
    int64_t lag_ns;
    int64_t line_at;
    int64_t ends_at;
};

struct api_server {
    // Troubles of each kind under way.
    int down, slow, errors, denied, conflict, lost, no_answer, late, expired, stale, churn;
    int64_t slow_ns, lag_ns;
    uint64_t version;
    struct api_pod pods[PODS_MAX]; // by meta's id
    struct api_change changes[CHANGES_MAX];
    uint64_t change_count;
    uint64_t compacted;  // changes up to this version are forgotten
    uint64_t events[32]; // names, as hashes
    unsigned event_count;
};

struct kube_node {
    struct seam *seam;
    int64_t tick_at; // a tick that is on its way; 0: none
    uint32_t tick_gen;
    char socket[32];
    char orders[1024]; // the file; "": there is none
    // The way to the API.
    int cut, mute, dumb;
    bool is_connected;
    // The kubelet.
    bool is_down;      // powered off
    bool is_ending;    // the pod is deleted
    unsigned failures; // of the liveness probe in a row
    unsigned restarts, sidecar_restarts;
    int64_t start_at;               // a container waits until then
    bool is_stopped;                // metafence-run
    int64_t stopped_at, resumed_at; // the last time
    bool reaps_later;
    bool is_cut_by_twin;
    bool wants_order; // an order came meanwhile
    struct fence_order order;
    bool wants_permit; // the first of them that permits to lead, maybe by an agent that is gone
    struct fence_order permit;
    int64_t expired_at; // stopped, and past its deadline since; 0: not
    // What the checks remember.
    bool wire_known;
    enum role_label wire; // last value that went to the API for this pod's label
    int64_t calm_since;   // nothing disturbs agent, API and what is between them
    enum role_label wish;
    int64_t wish_since;
    int64_t leads_since; // 0: its agent does not say so
    uint64_t diverged;   // incarnation of which that was said
    uint64_t handover;   // … that is to let another one lead
    uint64_t killed;     // incarnation whose kill was judged
    uint64_t cleared;
    int64_t wrong_since, role_wrong_since; // 0: the label is right
    uint32_t deaf;                         // serial of a stream that says nothing
    int64_t window_at;                     // requests within it
    unsigned requests;
};

struct cluster {
    uint64_t rng;
    bool is_api_only; // nothing but the API is in trouble: nobody may be killed
    bool has_operator;
    bool observes;
    int64_t resync_ns;
    struct api_server api;
    struct kube_node nodes[PODS_MAX];
    struct api_call calls[CALLS_MAX];
    uint32_t next_serial;
    int foreign; // writers under way
    int64_t two_since;
    int trouble_count;
    struct trouble troubles[TROUBLES_MAX];
};

// cluster.c: life, and the agent's hooks
void cluster_init(struct world *world);
void cluster_free(struct world *world);
void cluster_run(struct world *world);   // the schedule begins
void cluster_round(struct world *world); // the troubles of this round
void cluster_clock_changed(struct world *world, int pod);
bool cluster_is_of_node(const struct event *event); // done by a process of that pod
void cluster_event(struct world *world, const struct event *event);
enum cluster_event_kind {
    CLUSTER_TICK = 0,
    CLUSTER_ARRIVE,
    CLUSTER_ANSWER,
    CLUSTER_GIVE_UP,
    CLUSTER_PUMP,
    CLUSTER_BEAT,
    CLUSTER_TROUBLE_BEGIN,
    CLUSTER_TROUBLE_END,
    CLUSTER_OPERATOR,
    CLUSTER_CHURN,
    CLUSTER_FOREIGN,
    CLUSTER_PROBE,
    CLUSTER_GRACE_OVER,
    CLUSTER_TERM,
    CLUSTER_REMOVE,
    CLUSTER_CREATE,
    CLUSTER_BOOT,
    CLUSTER_SIDECAR,
    CLUSTER_LIVENESS_KILL,
};
void cluster_post(struct world *world, int64_t after_ns, enum cluster_event_kind kind, int pod,
                  uint32_t number);
int64_t cluster_between(struct world *world, int64_t low, int64_t high);
bool cluster_chance(struct world *world, int percent);
void cluster_count(struct world *world, enum happening what);
const char *happening_name(enum happening what);

// The agent's side of it.
void cluster_agent_started(struct world *world, int pod);
void cluster_agent_ended(struct world *world, int pod);
void cluster_before_turn(struct world *world, int pod); // facts
void cluster_pause(struct world *world, int pod, struct instant end);
void cluster_label(struct world *world, int pod);
void cluster_after_turn(struct world *world, int pod);
void cluster_cut_by_twin(struct world *world, int pod); // the old pod's node
void cluster_twin_ended(struct world *world, int pod);
void cluster_delete_pod(struct world *world, int pod);

bool cluster_may_kill(struct world *world, int pod);  // the order may go out now
void cluster_take_turn(struct world *world, int pod); // if the seam has news

// wire.c: between agent and API server
void wire_event(struct world *world, const struct event *event);
void wire_free(struct api_call *call);
void wire_healed(struct world *world, int pod);
void wire_changed(struct world *world, int name);             // for watches
void wire_expire(struct world *world, struct api_call *call); // an open stream: 410

// api.c
void api_init(struct world *world);
void api_execute(struct world *world, struct api_call *call);   // sets its answer
char *api_event_line(const struct api_change *change);          // the caller's to free
bool api_is_known(const struct world *world, uint64_t version); // still has all since then
void api_create(struct world *world, int pod, int name);
void api_remove(struct world *world, int name);
void api_begin_delete(struct world *world, int name, int64_t grace_ns);
void api_touch(struct world *world, int name); // only its resourceVersion
void api_write_label(struct world *world, int name, const char *own, const char *role);
struct api_pod *api_of(struct world *world, int pod); // NULL: it lists another, or none

// kubelet.c
void kubelet_booted(struct world *world, int pod);
bool kubelet_may_run(const struct world *world, int pod);
int64_t kubelet_restart_ns(struct world *world, int pod);
int64_t kubelet_start_at(const struct world *world,
                         int pod); // world time; 0: nothing has waited
void kubelet_begin_end(struct world *world, int pod, int64_t grace_ns);
void kubelet_event(struct world *world, const struct event *event);
void kubelet_restart_sidecar(struct world *world, int pod);
void kubelet_stop_run(struct world *world, int pod, bool stop);

// trouble.c
void trouble_plan(struct world *world);
void trouble_begin(struct world *world, int index);
void trouble_end(struct world *world, int index);
const char *trouble_name(enum trouble_kind kind);
void writer_event(struct world *world, const struct event *event); // others that write labels

// promise.c
void promise_step(struct world *world);
void promise_turn(struct world *world, int pod); // the agent's turn is over
void promise_sent(struct world *world, int pod, const struct seam_call *call);
void promise_kill_order(struct world *world, int pod); // goes out now
const char *promise_unsettled(struct world *world, int *ret_pod);
