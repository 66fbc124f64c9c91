// SPDX-License-Identifier: Apache-2.0
#pragma once
// sim: a world in which the real decisions of agent and metafence-run live: pods, one Postgres,
// links that break, clocks that differ. Time is virtual: step = earliest event, ties by order
// of creation; all chance comes from the seed. Invariants are checked after each step
// (check.c). Each host has its own BOOTTIME (another zero, a slightly other rate); world time
// is nobody's clock and written as plain int64_t nanoseconds named *_at or `now`.

#include "agent/core/decide.h"
#include "fence/shim.h"
#include "tests/sim/shrink.h"

#define MS NS_PER_MS
#define S  NS_PER_SEC

#define PODS_MAX   4
#define TAGS_MAX   1024
#define REQS_MAX   256
#define FAULTS_MAX 16
#define ROUNDS_MAX 32 // of faults and rest in a schedule
#define ROUND_BITS 32 // numbers of a round's faults, then of its troubles
#define PAST_MAX   128
#define EVENTS_MAX 4096
#define TRACE_MAX  400

#define HAPPENINGS_MAX    64 // of cluster.h
#define TROUBLE_KINDS_MAX 32

#define SAMPLE_NS (100 * MS) // metafence-run looks at the ports so often

enum event_kind {
    EV_NONE = 0,
    EV_DB_EXEC,     // a statement reaches Postgres
    EV_DB_ANSWER,   // its answer reaches the client
    EV_DB_FAIL,     // the client learns that it failed
    EV_READ_HEDGE,  // half of the time-out is over
    EV_READ_GIVEUP, // the whole of it
    EV_META_TICK,
    EV_META_ACQUIRE, // try to get a connection
    EV_META_ACQUIRE_OVER,
    EV_META_PHASE, // start or init is done
    EV_META_DEATH,
    EV_SHIM_START,
    EV_SHIM_WAKE,
    EV_AGENT_POLL,
    EV_AGENT_WAKE,
    EV_ORDER, // arrives at metafence-run
    EV_RPC,
    EV_FAULT_BEGIN,
    EV_FAULT_END,
    EV_CHECK,
    EV_CLUSTER, // Kubernetes; arg says what
};

struct event {
    int64_t at;
    uint64_t seq;
    enum event_kind kind;
    int pod;
    uint32_t gen; // of what it speaks of: stale ones are dropped
    int arg;
};

enum fault_kind {
    FAULT_STALL = 0,
    FAULT_RESET,
    FAULT_OLD_DEAD,
    FAULT_DROP,
    FAULT_LATENCY,
    FAULT_DATABASE_DOWN,
    FAULT_FAILOVER,
    FAULT_META_FREEZE,
    FAULT_META_CRASH,
    FAULT_META_ERR,
    FAULT_POOL_FULL,
    FAULT_AGENT_KILL,
    FAULT_AGENT_FREEZE,
    FAULT_IPC_DELAY,
    FAULT_SHIM_RESTART,
    FAULT_MANUAL,
    FAULT_PAUSE,
    FAULT_CLOCK_STEP,
    FAULT_SLOW_INIT,
    FAULT_STUCK_INIT,
    FAULT_PHANTOM,
    FAULT_HEARTBEAT_NULL,
    FAULT_REFUSED,
    FAULT_ROW_DELETED,
    FAULT_ROW_MOVED,
    FAULT_TWIN,
    // Of machines and of the database beneath (host.c).
    FAULT_CLOCK_RATE,    // BOOTTIME runs faster or slower
    FAULT_CLOCK_LEAP,    // … and leaps ahead
    FAULT_SUSPEND,       // all of a node stands still, its BOOTTIME goes on
    FAULT_GUEST_PAUSE,   // all of a node stands still, its BOOTTIME too
    FAULT_FAILOVER_LOSS, // to a standby that lacks the last seconds
    FAULT_COUNT,
};
#define FAULT_HOST_FIRST FAULT_CLOCK_RATE

struct fault {
    enum fault_kind kind;
    int pod;
    int64_t at;
    int64_t span_ns;
    int64_t amount_ns;
    bool on_leader; // the pod that leads when it begins
};

// Faults of our own: what must break when one mechanism is taken away at the boundary of the
// cores.
enum plant {
    PLANT_NONE = 0,
    PLANT_MARGIN_SIGN,
    PLANT_RECEIVED_FOR_SENT,
    PLANT_AGE_IGNORED,
    PLANT_NO_LEASE_HOLD,
    PLANT_START_BESIDE,
    PLANT_LATCH_LOST,
    PLANT_LATE_PERMIT,
    PLANT_ERROR_IS_VERDICT,
    PLANT_NO_TIMER,
    PLANT_PORTS_BLIND,
    PLANT_ANY_INCARNATION,
    PLANT_NEVER_START,
    PLANT_LABEL_AFTER_KILL,
    PLANT_LABEL_AWAITED,
    PLANT_NO_SIBLINGS,
    PLANT_OLD_VALUE,
    PLANT_NO_RECHECK,
    PLANT_API_VERDICT,
    PLANT_NO_BACKOFF,
    PLANT_TIMER_SLEEPS,
    PLANT_TIMELINE_IGNORED,
    PLANT_COUNT,
};

enum link_mode { LINK_OK = 0, LINK_STALL, LINK_RESET, LINK_OLD_DEAD, LINK_DROP, LINK_DUMB };

struct link {
    enum link_mode mode;
    uint32_t conns;  // opened so far: a connection is its number
    uint32_t killed; // all up to this one get a reset when used
    uint32_t muted;  // all up to this one are silent
    int64_t there_ns;
    int64_t back_ns;
    int64_t sound_since; // link, database, processes of this pod: nothing is wrong since
};

enum req_kind { REQ_CAMPAIGN = 0, REQ_READ };

// What a read saw, by the database.
struct row_view {
    bool exists;
    bool null;
    int id;
    int tag;
    int64_t heartbeat_us;
    int64_t now_us;
    uint64_t term;
    int owner_id;
    int owner_tag;
    bool asked_owned;
    bool asked_superseded;
    uint32_t timeline;
    int64_t exec_at;
};

struct req {
    uint32_t serial; // 0: free
    enum req_kind kind;
    int pod;
    uint32_t gen;
    uint32_t conn;
    int tag;
    enum event_kind held; // EV_NONE: not held
    int read;             // attempt, of REQ_READ
    struct instant sent;  // by the client's clock
    bool refused;
    struct row_view view;
};

struct db_tag {
    char text[FENCE_TAG_SIZE];
    int id;
    uint32_t seq; // 0: not registered
    int64_t seq_at;
    uint64_t owned_term;
    int64_t owned_at;
    bool superseded;
    int64_t superseded_at;
};

// What a standby may still show: the row and the term until that moment.
struct db_past {
    int64_t until;
    bool row;
    int id, row_tag, owner_id, owner_tag;
    int64_t heartbeat_us;
    uint64_t term;
    uint32_t next_seq;
    int64_t member_since[PODS_MAX];
};

struct database {
    bool up;
    int64_t step_ns;
    int64_t steps_ns; // sum of absolute steps
    bool row;
    bool null;
    int id;
    int64_t heartbeat_us;
    int row_tag;
    uint64_t term;
    int owner_id;
    int owner_tag;
    uint32_t timeline;
    uint32_t next_seq;
    int64_t member_since[PODS_MAX]; // when an id's first member row was written; 0: none
    int tag_count;
    struct db_tag tags[TAGS_MAX];
    uint32_t past_next;
    struct db_past past[PAST_MAX]; // a ring
};

enum meta_state { META_DOWN = 0, META_STARTING, META_FOLLOWER, META_PROMOTING, META_LEADER };

struct meta {
    enum meta_state state;
    uint32_t gen; // one each process
    int tag;
    bool is_leader; // of its election loop
    bool phantom;
    bool exit_after_init;
    bool hung; // a statement waits for an answer that may never come
    int64_t frozen_until;
    int64_t frozen_at;
    uint32_t conn;
    uint32_t spare_conn; // a second idle one
    uint32_t acquiring;  // serial of the acquire under way, 0: none
    uint32_t acquires;
    int64_t served_at;  // 5690 was opened
    int64_t engaged_at; // it acts since; 0: it doesn't
    int64_t renewed_at; // its last campaign that took or kept the row
    int64_t expiry_us;  // of that, by the database's clock
    bool won_in_time;   // the answer that elected it came within the lease
    int64_t lost_at;    // the row named another since it engaged; 0: never
    int64_t promoting_at;
    uint32_t timeline;     // when it engaged
    bool is_timeline_read; // by its agent, since
    int wait_status;
};

struct agent {
    bool alive;
    int64_t started_at;
    uint32_t gen;
    uint32_t wake_gen;
    int64_t wake_at; // a wake that is on its way; 0: none
    int64_t frozen_until;
    struct core_memory memory;
    struct facts facts;
    struct plan plan;
    uint32_t conn;
    uint32_t reads;
    bool reading;
    uint32_t attempt[2];      // serials of the requests, 0: none
    struct instant last_sent; // newest answer that was applied
    struct row_view view;     // of it
    bool view_known;
    bool rpc_asked;
    bool in_turn;
    bool again;
    struct fence_order sent_order;
    int64_t order_at;
    uint64_t order_seq;
};

#define ORDER_RING 64

struct shim {
    bool alive;
    uint32_t gen;
    uint32_t wake_gen;
    int64_t wake_at; // as the agent's
    struct shim_memory memory;
    struct shim_plan plan;
    struct fence_status told; // last status that the agent got
    struct fence_status file; // what a successor finds
    bool dying;
    bool term;
    struct fence_order ring[ORDER_RING];
    uint32_t ring_next;
    uint32_t ring_done; // older ones were overtaken
    int64_t ipc_ns;
    uint32_t ports;
    bool looks_first; // its clock has moved on: the next look at the ports is due
};

struct pod {
    bool exists;
    int id;
    char uid[9];
    int64_t clock_zero;
    int64_t clock_ppm;
    int64_t usual_ns; // latency of its link, one way
    struct link link;
    struct meta meta;
    struct agent agent;
    struct shim shim;
    bool pool_full;
    bool next_phantom;
    int64_t next_init_ns;
    bool stuck_init;
    // A cut that waits for the next campaign of this pod: 1 before it is sent, 2 once it is
    // executed.
    int trap;
    enum link_mode trap_mode;
    int unsound; // faults under way that concern this pod
    bool manual;
    int64_t pause_until; // world time
    bool refused;
    int64_t standstill_until; // the whole node: suspended, or a guest that is paused
    int64_t lag_until;        // its clock lost time: leases are judged late until then
    int64_t leapt_at;
    int64_t clock_moved_ns; // against all others, in this round
    uint32_t read_timeline; // that its agent has read last …
    int64_t timeline_read_at;
    uint32_t
        owned_timeline; // on which its agent first read that this incarnation owns the term
    // What the checks remember.
    bool armed;        // an agent's order that arms has reached this metafence-run
    bool is_uncovered; // at the last step
    int64_t uncovered_until;
    bool lost_seen;      // a read after engagement showed that this incarnation lost the row
    int64_t manual_at;   // the last moment at which somebody asked for a fence
    int64_t proof_until; // P2: no kill by the clock before that
    int64_t died_at;
    enum fence_reason died_of;
    int64_t read_since_death;
    int64_t held_until; // by storm limit, back-off or handover, now or the last time
};

struct stats {
    uint64_t events;
    uint64_t runs;
    uint64_t rules[RULE_COUNT];
    uint64_t holds[SHIM_HOLD_LAST + 1];
    uint64_t reasons[FENCE_REASON_LAST + 1];
    uint64_t faults[FAULT_COUNT];
    uint64_t takeovers;
    uint64_t zombies;
    uint64_t hasty;     // fences by the clock of a rightful winner within its first half second
    uint64_t late_wins; // elected by an answer that came after the lease
    int64_t worst_margin_ns; // between a death by the clock and the end of the lease
    int64_t virtual_ns;
    uint64_t clusters; // schedules with Kubernetes
    uint64_t troubles[TROUBLE_KINDS_MAX];
    uint64_t happenings[HAPPENINGS_MAX];
    uint64_t requests;
    unsigned most_requests; // of one agent in a minute
    uint64_t hosts;         // schedules with faults of machines
    uint64_t rounds;
    uint64_t lost_terms; // by a failover that lost seconds
    uint64_t lost_renewals;
    uint64_t lag_zombies; // beyond the lease, by a guest that was paused
};

struct world {
    uint64_t seed;
    uint64_t rng;
    int64_t ttl_ns;
    enum plant plant;
    bool verbose;
    uint32_t among; // kinds of faults, a bit each; 0: as drawn
    bool calm;      // only disturbances that a lease outlasts: nothing at all may be killed
    struct cluster *cluster; // Kubernetes; NULL: none
    bool has_hosts;          // faults of machines
    int64_t least_ns;        // it lasts for at least so long: rounds
    int round;
    struct muted muted;     // by shrinking: round * ROUND_BITS + fault
    uint32_t trouble_among; // as `among`
    int64_t now;
    uint64_t next_seq;
    int event_count;
    struct event events[EVENTS_MAX];
    int pod_count;
    struct pod pods[PODS_MAX];
    struct database db;
    struct req reqs[REQS_MAX];
    uint32_t next_serial;
    struct core_config core;
    struct shim_config shim;
    int64_t acquire_ns;
    bool api_known;
    int fault_count;
    struct fault faults[FAULTS_MAX];
    int64_t faults_end;
    int64_t settled_by;
    int64_t twin_since;
    int64_t end_at;
    bool failed;
    char failure[256];
    char *trace; // lines, a ring
    uint32_t trace_next;
    struct stats *stats;
};

// world.c
uint64_t sim_random(struct world *world);
int64_t sim_between(struct world *world, int64_t low, int64_t high);
bool sim_chance(struct world *world, int percent);
void sim_post(struct world *world, int64_t at, struct event event);
bool sim_next(struct world *world, struct event *ret_event);
struct instant sim_local(const struct world *world, const struct pod *pod);
int64_t sim_world_time(const struct pod *pod, struct instant local); // not before that instant
void sim_trace(struct world *world, int pod, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void sim_fail(struct world *world, int pod, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void sim_print_trace(const struct world *world);

// link.c
uint32_t link_open(struct link *link);
void link_send(struct world *world, struct req *req, enum event_kind kind);
// Called when a message arrives: false when it is held, lost or failed after all.
bool link_arrives(struct world *world, struct req *req, enum event_kind kind);
// The campaign has got to `stage`: a cut that waits for this moment happens now.
void link_trap(struct world *world, int pod, int stage);
void link_set(struct world *world, int pod, enum link_mode mode);
struct req *req_new(struct world *world, int pod, enum req_kind kind);
struct req *req_find(struct world *world, uint32_t serial);

// postgres.c
int64_t db_now_us(const struct world *world);
void db_exec(struct world *world, struct req *req);
int db_new_tag(struct world *world, const struct pod *pod);
void db_stop(struct world *world);
void db_start(struct world *world);
void db_end_sessions(struct world *world, const char *tag);
void db_disturb(struct world *world, enum fault_kind kind);
bool db_drop_phantom(struct world *world, int id, int64_t heartbeat_us);
void db_lose_since(struct world *world, int64_t at);

// meta.c
void meta_start(struct world *world, int pod, int tag);
void meta_event(struct world *world, const struct event *event);
void meta_answer(struct world *world, struct req *req);
void meta_fail(struct world *world, struct req *req);
void meta_link_healed(struct world *world, int pod);
void meta_exit(struct world *world, int pod, int wait_status, int64_t after_ns);
void meta_gone(struct world *world, int pod);
uint32_t meta_ports(const struct meta *meta);
int meta_leading(const struct world *world, int otherwise); // the pod whose meta leads

// agent.c
void agent_start(struct world *world, int pod);
void agent_stop(struct world *world, int pod);
void agent_event(struct world *world, const struct event *event);
void agent_answer(struct world *world, struct req *req);
void agent_fail(struct world *world, struct req *req);
void agent_status(struct world *world, int pod);
void agent_turn(struct world *world, int pod);

// shim.c
void shim_boot(struct world *world, int pod);
void shim_event(struct world *world, const struct event *event);
void shim_turn(struct world *world, int pod);
void shim_order(struct world *world, int pod, const struct fence_order *order);
void shim_kill_container(struct world *world, int pod);
void shim_reap(struct world *world, int pod);
void shim_look(struct world *world, int pod); // ports changed: seen at the next sample

// fault.c
void fault_plan(struct world *world);
void fault_begin(struct world *world, int index);
void fault_end(struct world *world, int index);
void fault_describe(const struct fault *fault, char *buf, size_t size);
const char *fault_name(enum fault_kind kind);
void fault_unsound(struct world *world, const struct fault *fault, int change);

// host.c
void host_plan(struct world *world);
bool host_begin(struct world *world, struct fault *fault); // false: none of its kinds
bool host_end(struct world *world, const struct fault *fault);
bool host_stands_still(const struct world *world, int pod);
// What its processes would do happens when it runs again: true, and it is posted anew.
bool host_puts_off(struct world *world, const struct event *event);

void pod_boot(struct world *world, int pod, int id);

// check.c
void check_step(struct world *world);
void check_kill(struct world *world, int pod, enum fence_reason reason);
void check_start(struct world *world, int pod);
void check_permit(struct world *world, int pod, const struct fence_order *order);
void check_sent(struct world *world, int pod, const struct fence_order *order);
void check_settled(struct world *world);
void check_read(struct world *world, int pod, const struct row_view *view);

// run.c
void world_init(struct world *world, uint64_t seed, int64_t ttl_ns, bool has_cluster);
int world_faults(const struct world *world); // numbers that its faults have had so far
bool plant_needs_cluster(enum plant plant);
bool plant_needs_hosts(enum plant plant);
uint32_t plant_troubles(enum plant plant);
uint32_t plant_theme(enum plant plant); // kinds of faults that suit it, 0: all
void world_run(struct world *world);
const char *plant_name(enum plant plant);
bool plant_breaks(enum plant plant, const char *failure); // in the way it must
