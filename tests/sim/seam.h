// SPDX-License-Identifier: Apache-2.0
#pragma once
// seam: where the agent's own Kubernetes code meets the simulation. agent/kube and k8s/{watch,
// write,pod,answer,json,path}.c are compiled as they are; in place of curl, the event loop, the
// clocks and the file of unwritten orders they find the world's. One struct seam is the
// Kubernetes part of one agent process. Invariant: as with the real client, nothing is called
// back from inside a call.

#include <stdbool.h>
#include <stdint.h>

#include "agent/core/decide.h"

struct seam;

struct seam_start {
    void *world; // handed back to seam_host_*
    int pod;
    const char *name;
    const char *uid;
    const char *socket;              // its path names the pod's emptyDir
    const struct order_fact *orders; // as metafence-run has kept them
    bool observe;                    // kubernetes.onConflict
    int64_t resync_ns;
    int64_t timeout_ns;
};

// A request as it goes to the server; all borrowed.
struct seam_call {
    uint32_t id; // of this process
    const char *method;
    const char *path;
    const char *body;  // NULL: none
    bool is_stream;    // a watch
    bool is_label;     // an apply of labels …
    bool is_own_label; // … of our own pod
};

// --- given by the world ---

struct instant seam_host_now(void *world, int pod);
int64_t seam_host_wall_ns(void *world);
uint32_t seam_host_random(void *world);
void seam_host_arm(void *world, int pod, struct instant at); // seam_tick is due then
void seam_host_send(void *world, int pod, const struct seam_call *call);
void seam_host_cancel(void *world, int pod, uint32_t id);
void seam_host_log(void *world, int pod, const char *text);
// The file beside the control socket: outlives the agent's container. NULL takes it away.
const char *seam_host_load(void *world, int pod);
void seam_host_save(void *world, int pod, const char *bytes);

// --- life ---

struct seam *seam_new(const struct seam_start *start);
void seam_free(struct seam *seam); // accepts NULL

// --- a turn ---

// What the agent knows and decided; the API's fact and the orders stay the seam's own.
void seam_take(struct seam *seam, const struct facts *facts, const struct core_memory *memory,
               const struct plan *plan);
void seam_label(struct seam *seam, enum role_label role);
void seam_say(struct seam *seam);
void seam_delete_pod(struct seam *seam);
bool seam_can_delete_pod(struct seam *seam);
void seam_order(struct seam *seam, const struct order_fact *orders); // by the control socket
struct api_fact seam_api(const struct seam *seam);
struct order_fact seam_orders(const struct seam *seam);
bool seam_wants_turn(struct seam *seam); // once

// --- what comes from outside ---

void seam_tick(struct seam *seam);

struct seam_answer {
    int http_status; // 0: none; then
    bool is_sent;    // it may have been received
    int64_t retry_after_ns;
    const char *body;
};
void seam_answer(struct seam *seam, uint32_t id, const struct seam_answer *answer);
void seam_stream_open(struct seam *seam, uint32_t id);
void seam_stream_line(struct seam *seam, uint32_t id, const char *line);

// --- for the checks ---

struct seam_view {
    bool has_wish;
    enum role_label wish; // newest role that is to be shown
    bool is_sending;
    enum role_label sending;
    struct instant sent_at; // of the last patch of our label
    bool is_confirmed;
    bool is_waiting;  // for the end of a back-off, or of a server's Retry-After
    bool is_halted;   // the pod of our name is not ours
    uint64_t cleared; // stale labels of siblings
    uint64_t events_dropped;
    unsigned events_waiting;
    unsigned in_flight; // requests, streams among them
    unsigned timers;
};
struct seam_view seam_look(struct seam *seam);

// --- faults of our own ---

enum seam_plant {
    SEAM_PLANT_NONE = 0,
    SEAM_PLANT_NO_SIBLINGS, // nobody clears a dead pod's label
    SEAM_PLANT_OLD_VALUE,   // what is being retried wins over what is newer
    SEAM_PLANT_NO_RECHECK,  // what was confirmed once is not looked at again
    SEAM_PLANT_NO_BACKOFF,  // a refused or failed request is repeated at once
    SEAM_PLANT_API_VERDICT, // an API that does not answer does not list us
};
void seam_plant(struct seam *seam, enum seam_plant plant);
