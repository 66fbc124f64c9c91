// SPDX-License-Identifier: Apache-2.0
#pragma once
// seamparts: what seam.c and seamhost.c share; nobody else includes it.

#include "agent/agent.h"
#include "agent/kube/parts.h"
#include "tests/sim/seam.h"
#include "tests/sim/seamlibc.h"

struct loop {
    struct loop_timer *timers;
    unsigned count;
};

struct loop_timer {
    struct loop *loop;
    loop_timer_fn *fn;
    void *arg;
    struct instant at; // INSTANT_NEVER: not armed
    struct loop_timer *next;
};

struct k8s {
    char name_space[64];
    struct k8s_request *requests;
    unsigned count;
    uint32_t last_id;
    struct k8s_stats stats;
};

struct k8s_request {
    struct k8s *k8s;
    uint32_t id;
    char method[8];
    char path[256]; // for messages
    k8s_result_fn *fn;
    const struct k8s_stream_ops *ops; // NULL: no stream
    void *arg;
    struct instant sent_at;
    struct k8s_request *next;
};

struct seam {
    struct agent agent;
    struct loop loop;
    void *world;
    int pod;
    enum seam_plant plant;
    char file[1024]; // being written
    size_t file_used;
};

// The real code asks for the time without saying who asks: one process at a time runs.
extern struct seam *seam_current;

struct loop_timer *seam_due_timer(struct loop *loop, struct instant now); // NULL: none
struct k8s_request *seam_find(struct seam *seam, uint32_t id);            // NULL: it is over
void seam_free_request(struct k8s_request *request);
