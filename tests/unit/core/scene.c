// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/core/scene.h"

#include <stdio.h>
#include <string.h>

static void put(char *to, size_t size, const char *text)
{
    (void)snprintf(to, size, "%s", text);
}

#define PUT(field, text) put(field, sizeof(field), text)

void scene_init(struct scene *scene)
{
    struct fence_status *status = &scene->facts.fence.status;

    *scene = (struct scene){
        .config = {.id = SCENE_ID,
                   .ttl_ns = 30 * S,
                   .poll_ns = 250 * MS,
                   .connect_timeout_ns = 2 * S,
                   .query_timeout_ns = 2 * S,
                   .renew_gap_ns = 3 * S,
                   .margin_ns = 2 * S,
                   .kill_budget_ns = 500 * MS,
                   .max_clock_jump_ns = 1 * S,
                   .phantom_after_ns = 60 * S,
                   .promote_after_ns = 600 * S,
                   .confirm_after_ns = 30 * S},
    };
    scene->facts.database.state = DATABASE_ANSWERS;
    scene->facts.election.term_known = true;
    scene->facts.election.term = 7;
    scene->facts.election.system_id = 4242;
    scene->facts.election.timeline = 1;
    scene->facts.fence.known = true;
    status->incarnation = 3;
    status->pid = 77;
    status->state = SHIM_RUNNING;
    status->started_ns = SCENE_T0 - 100 * S;
    status->flags = SHIM_ALIVE;
    status->ports = SHIM_PORTS_KNOWN | SHIM_PORT_SERVICE;
    PUT(status->tag, SCENE_TAG);
    status->last_death.incarnation = 2;
    status->last_death.dead_ns = SCENE_T0 - 101 * S;
    PUT(status->last_death.tag, SCENE_DEAD);
    scene_at(scene, 0);
}

void scene_at(struct scene *scene, int64_t at_ns)
{
    scene->facts.now.ns = SCENE_T0 + at_ns;
    scene->facts.fence.received_at = scene->facts.now;
}

void scene_read(struct scene *scene, enum row_state row, int64_t sent_ns, int64_t beat_ns)
{
    struct election_fact *election = &scene->facts.election;
    bool ours = row == ROW_OURS;
    const char *tag = scene->facts.fence.status.tag;

    election->known = true;
    election->row = row;
    election->defect = ROW_DEFECT_NONE;
    election->sent_at.ns = SCENE_T0 + sent_ns;
    election->received_at = election->sent_at;
    election->db_now_us = SCENE_DB_US + sent_ns / 1000;
    election->heartbeat_us = SCENE_DB_US + beat_ns / 1000;
    election->age_ns = sent_ns - beat_ns;
    election->tag_owned_term = false;
    election->tag_superseded = false;
    PUT(election->owner_id, row == ROW_ABSENT ? "" : ours ? SCENE_ID : SCENE_OTHER);
    PUT(election->term_owner_id, ours ? SCENE_ID : SCENE_OTHER);
    PUT(election->asked_tag, tag);
    // No owner tag of ours: engagement is each test's own choice.
    PUT(election->owner_tag, ours ? "" : SCENE_FOREIGN);
    PUT(election->heartbeat_tag, row == ROW_ABSENT ? "" : ours ? tag : SCENE_FOREIGN);
}

void scene_engage(struct scene *scene, int64_t at_ns)
{
    struct fence_status *status = &scene->facts.fence.status;

    status->flags |= SHIM_ENGAGED;
    status->engaged_ns = SCENE_T0 + at_ns;
    status->ports = SHIM_PORTS_KNOWN;
}

void scene_ports_up(struct scene *scene)
{
    scene->facts.fence.status.ports =
        SHIM_PORTS_KNOWN | SHIM_PORT_SERVICE | SHIM_PORT_METRICS | SHIM_PORT_DASHBOARD;
}

void scene_die(struct scene *scene, enum fence_reason reason, int64_t at_ns)
{
    struct fence_status *status = &scene->facts.fence.status;

    status->last_death = (struct fence_death){
        .incarnation = status->incarnation,
        .reason = reason,
        .decided_ns = reason ? SCENE_T0 + at_ns : 0,
        .dead_ns = SCENE_T0 + at_ns,
        .engaged = status->flags & SHIM_ENGAGED ? 1 : 0,
    };
    PUT(status->last_death.tag, status->tag);
    status->flags &= ~(uint32_t)SHIM_ALIVE;
    status->state = SHIM_HOLDING;
    status->pid = 0;
    status->ports = SHIM_PORTS_KNOWN;
}

void scene_decide(struct scene *scene)
{
    decide(&scene->config, &scene->facts, &scene->memory, &scene->plan);
}

static void read_each_second(struct scene *scene, enum row_state row, int64_t from_ns,
                             int64_t to_ns)
{
    for (int64_t at = from_ns; at <= to_ns; at += S) {
        scene_at(scene, at);
        scene_read(scene, row, at, at);
        scene_decide(scene);
    }
}

void scene_lead(struct scene *scene, int64_t from_ns, int64_t to_ns)
{
    read_each_second(scene, ROW_OURS, from_ns, to_ns);
}

void scene_follow(struct scene *scene, int64_t from_ns, int64_t to_ns)
{
    read_each_second(scene, ROW_OTHER, from_ns, to_ns);
}

bool scene_has(const struct scene *scene, enum action_kind kind)
{
    for (uint32_t i = 0; i < scene->plan.action_count; i++)
        if (scene->plan.actions[i].kind == kind)
            return true;
    return false;
}

int64_t scene_deadline(const struct scene *scene, int64_t beat_ns)
{
    return SCENE_T0 + beat_ns + scene->config.ttl_ns - scene->config.margin_ns -
           scene->config.kill_budget_ns;
}

void scene_leader(struct scene *scene)
{
    scene_init(scene);
    scene_lead(scene, 0, 4 * S);
    scene_engage(scene, 5 * S);
    scene_ports_up(scene);
    scene_lead(scene, 5 * S, 10 * S);
}

void scene_read_at(struct scene *scene, enum row_state row, int64_t at_ns, int64_t beat_ns)
{
    scene_at(scene, at_ns);
    scene_read(scene, row, at_ns, beat_ns);
    scene_decide(scene);
}
