// SPDX-License-Identifier: Apache-2.0
#pragma once
// scene: one agent's core with the facts of a healthy pod, to be bent by a test. Times are
// relative to the start of the scene (T0), so that a row reads like its story.

#include "agent/core/decide.h"

#define MS NS_PER_MS
#define S  NS_PER_SEC

#define SCENE_T0      (1000 * S)                // BOOTTIME when the scene begins
#define SCENE_DB_US   INT64_C(1700000000000000) // database clock at T0
#define SCENE_ID      "meta-0.meta:5690"
#define SCENE_OTHER   "meta-1.meta:5690"
#define SCENE_TAG     "metafence:aaaaaaaa:0000000000000003" // of incarnation 3, which lives
#define SCENE_DEAD    "metafence:aaaaaaaa:0000000000000002"
#define SCENE_FOREIGN "metafence:bbbbbbbb:0000000000000001"

struct scene {
    struct core_config config;
    struct core_memory memory;
    struct facts facts;
    struct plan plan;
};

// ttl 30 s and the default timing; meta is a live follower that started 100 s ago; Postgres
// answers; the term trigger is installed; nothing read yet.
void scene_init(struct scene *scene);

// Time goes to T0 + at_ns; metafence-run's word is as fresh.
void scene_at(struct scene *scene, int64_t at_ns);

// A read sent and answered at T0 + sent_ns found `row` with a heartbeat at T0 + beat_ns; by our
// tag, or for ROW_OTHER by a foreign one. Identity and term stay as they were set.
void scene_read(struct scene *scene, enum row_state row, int64_t sent_ns, int64_t beat_ns);

// 5690 closed at T0 + at_ns, as metafence-run tells.
void scene_engage(struct scene *scene, int64_t at_ns);

// Leader ports are open, 5690 too.
void scene_ports_up(struct scene *scene);

// The process is gone: metafence-run has reaped it at T0 + at_ns and holds.
void scene_die(struct scene *scene, enum fence_reason reason, int64_t at_ns);

// One decide().
void scene_decide(struct scene *scene);

// Reads and turns each second over [from, to], heartbeat always fresh by our own tag.
void scene_lead(struct scene *scene, int64_t from_ns, int64_t to_ns);

// … of a row that names another.
void scene_follow(struct scene *scene, int64_t from_ns, int64_t to_ns);

// A new scene with a leader: its last heartbeat and read are at 10 s, engaged since 5 s, leader
// ports up.
void scene_leader(struct scene *scene);

// One read at T0 + at_ns, and the turn that follows.
void scene_read_at(struct scene *scene, enum row_state row, int64_t at_ns, int64_t beat_ns);

bool scene_has(const struct scene *scene, enum action_kind kind);

// Deadline of a read as scene_read() makes it.
int64_t scene_deadline(const struct scene *scene, int64_t beat_ns);
