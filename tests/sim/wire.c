// SPDX-License-Identifier: Apache-2.0
// The way between an agent and the API server. A request is a call from when it is sent until
// nothing of it can arrive any more, also when nobody waits for it.
#include "tests/sim/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SILENCE_NS (150 * S)
#define BEAT_NS    (50 * S)

static struct api_call *find_call(struct world *world, uint32_t serial)
{
    struct api_call *call = &world->cluster->calls[serial % CALLS_MAX];

    return serial != 0 && call->serial == serial ? call : NULL;
}

void wire_free(struct api_call *call)
{
    free(call->path);
    free(call->body);
    free(call->answer);
    *call = (struct api_call){0};
}

// --- the client's end ---

// The process that sent it still waits.
static struct seam *waiting(struct world *world, const struct api_call *call)
{
    struct pod *p = &world->pods[call->pod];

    if (call->is_over || !p->agent.alive || p->agent.gen != call->gen)
        return NULL;
    return world->cluster->nodes[call->pod].seam;
}

static void deliver(struct world *world, struct api_call *call,
                    const struct seam_answer *answer)
{
    struct seam *seam = waiting(world, call);
    int pod = call->pod;

    call->is_over = true;
    if (!seam)
        return;
    seam_answer(seam, call->id, answer);
    cluster_take_turn(world, pod);
}

static void end_stream(struct world *world, struct api_call *call, bool in_order)
{
    const struct seam_answer answer = {
        .http_status = in_order ? 200 : 0, .is_sent = true, .body = "{}"};

    deliver(world, call, &answer);
    wire_free(call);
}

// --- the way there ---

static bool is_blocked(const struct kube_node *node)
{
    return node->cut > 0 || node->mute > 0;
}

static void hold(struct world *world, struct api_call *call)
{
    const struct kube_node *node = &world->cluster->nodes[call->pod];

    call->is_held = true;
    cluster_count(world, node->mute > 0 ? HAPPENED_ONE_WAY_API : HAPPENED_CUT_API);
}

static int64_t latency(struct world *world)
{
    const struct api_server *api = &world->cluster->api;

    if (api->slow > 0)
        return cluster_between(world, api->slow_ns / 4, api->slow_ns);
    return cluster_between(world, MS / 2, 4 * MS);
}

static void travel(struct world *world, struct api_call *call)
{
    const struct api_server *api = &world->cluster->api;

    if (api->down > 0) {
        cluster_count(world, HAPPENED_REFUSED);
        cluster_post(world, MS, CLUSTER_ANSWER, call->pod, call->serial);
        return;
    }
    call->is_sent = world->cluster->nodes[call->pod].is_connected;
    if (is_blocked(&world->cluster->nodes[call->pod])) {
        call->is_lost = !call->is_sent; // a connection that is not there carries nothing
        hold(world, call);
        return;
    }
    call->is_sent = true;
    if (api->lost > 0 && call->is_write && cluster_chance(world, 60)) {
        call->is_lost = true;
        cluster_count(world, HAPPENED_LOST);
        return;
    }
    if (api->late > 0 && call->is_write && cluster_chance(world, 60)) {
        cluster_post(world, cluster_between(world, 300 * MS, 12 * S), CLUSTER_ARRIVE, call->pod,
                     call->serial);
        return;
    }
    cluster_post(world, latency(world), CLUSTER_ARRIVE, call->pod, call->serial);
}

static struct api_call *new_call(struct world *world, int pod)
{
    struct cluster *cluster = world->cluster;
    struct api_call *call = NULL;

    for (int tries = 0; tries < CALLS_MAX; tries++) {
        call = &cluster->calls[++cluster->next_serial % CALLS_MAX];
        if (call->serial == 0)
            break;
    }
    if (call->serial != 0) {
        sim_fail(world, pod, "the simulation's own table of calls is full");
        wire_free(call);
    }
    *call = (struct api_call){.serial = cluster->next_serial, .pod = pod};
    return call;
}

void seam_host_send(void *arg, int pod, const struct seam_call *sent)
{
    struct world *world = arg;
    struct api_call *call = new_call(world, pod);

    call->gen = world->pods[pod].agent.gen;
    call->id = sent->id;
    call->is_stream = sent->is_stream;
    call->is_label = sent->is_label;
    call->is_write = strcmp(sent->method, "GET") != 0 && strcmp(sent->method, "POST") != 0;
    (void)snprintf(call->method, sizeof(call->method), "%s", sent->method);
    call->path = strdup(sent->path);
    call->body = sent->body ? strdup(sent->body) : NULL;
    sim_trace(world, pod, "sends %s %s%s", sent->method,
              sent->is_stream ? "watch" : sent->path + strlen("/api/v1/namespaces/ns"),
              strstr(sent->body ? sent->body : "", "\"leader\"") ? " leader" : "");
    promise_sent(world, pod, sent);
    travel(world, call);
    cluster_post(world, CLUSTER_TIMEOUT_NS, CLUSTER_GIVE_UP, pod, call->serial);
}

void seam_host_cancel(void *arg, int pod, uint32_t id)
{
    struct world *world = arg;

    for (int i = 0; i < CALLS_MAX; i++) {
        struct api_call *call = &world->cluster->calls[i];
        if (call->serial == 0 || call->pod != pod || call->id != id || call->is_over ||
            call->gen != world->pods[pod].agent.gen)
            continue;
        call->is_over = true;
        if (call->is_label && world->pods[pod].agent.alive)
            cluster_count(world, HAPPENED_GIVEN_UP);
        if (call->is_stream)
            wire_free(call);
    }
}

// --- at the server, and back ---

static void refuse_for(struct world *world, struct api_call *call)
{
    static const int codes[] = {429, 500, 503, 504};
    static const int64_t waits[] = {0, 0, S, 5 * S, 30 * S};

    call->status = codes[cluster_between(world, 0, 4)];
    call->retry_after_ns = waits[cluster_between(world, 0, 5)];
    free(call->answer);
    call->answer = NULL;
}

// Returns false when it has been refused before it was looked at.
static bool is_admitted(struct world *world, struct api_call *call)
{
    const struct api_server *api = &world->cluster->api;

    if (api->errors > 0 && cluster_chance(world, 60)) {
        bool is_done = !call->is_stream && cluster_chance(world, 40);

        if (is_done)
            api_execute(world, call);
        refuse_for(world, call);
        cluster_count(world, is_done ? HAPPENED_BUSY_DONE : HAPPENED_BUSY);
        return false;
    }
    if (api->denied > 0 && call->is_write) {
        call->status = 403;
        cluster_count(world, HAPPENED_DENIED);
        return false;
    }
    if (api->conflict > 0 && call->is_write && cluster_chance(world, 60)) {
        call->status = 409;
        cluster_count(world, HAPPENED_CONFLICT);
        return false;
    }
    return true;
}

static void open_stream(struct world *world, struct api_call *call)
{
    struct seam *seam = waiting(world, call);

    call->is_open = true;
    call->line_at = world->now;
    if (!seam) {
        wire_free(call);
        return;
    }
    seam_stream_open(seam, call->id);
    cluster_take_turn(world, call->pod);
    cluster_post(world, MS, CLUSTER_PUMP, call->pod, call->serial);
    cluster_post(world, BEAT_NS, CLUSTER_BEAT, call->pod, call->serial);
    if (world->cluster->api.expired > 0 && cluster_chance(world, 50))
        wire_expire(world, call);
}

static void count_late(struct world *world, const struct api_call *call)
{
    const struct pod *p = &world->pods[call->pod];

    if (!call->is_over || !call->is_write)
        return;
    world->cluster->nodes[call->pod].calm_since = world->now;
    cluster_count(world, HAPPENED_LATE);
    if (call->is_label && strstr(call->body, "\"leader\"") && p->meta.state != META_LEADER)
        cluster_count(world, HAPPENED_LATE_LEADER);
}

static void on_arrive(struct world *world, struct api_call *call)
{
    const struct api_server *api = &world->cluster->api;

    if (is_blocked(&world->cluster->nodes[call->pod])) {
        hold(world, call);
        return;
    }
    call->has_arrived = true;
    if (api->down > 0) {
        cluster_post(world, MS, CLUSTER_ANSWER, call->pod, call->serial);
        return;
    }
    if (is_admitted(world, call)) {
        api_execute(world, call);
        count_late(world, call);
    }
    if (call->is_over) {
        wire_free(call);
        return;
    }
    if (api->no_answer > 0 && cluster_chance(world, 60)) {
        if (call->is_write)
            cluster_count(world, HAPPENED_UNANSWERED);
        return;
    }
    cluster_post(world, latency(world), CLUSTER_ANSWER, call->pod, call->serial);
}

static void on_answer(struct world *world, struct api_call *call)
{
    struct kube_node *node = &world->cluster->nodes[call->pod];
    bool was_received = call->status != 0;
    struct seam_answer answer = {.http_status = call->status,
                                 .is_sent = call->has_arrived,
                                 .retry_after_ns = call->retry_after_ns,
                                 .body = call->answer};

    if (was_received && (node->cut > 0 || node->dumb > 0)) {
        cluster_count(world, node->dumb > 0 ? HAPPENED_ONE_WAY_API : HAPPENED_CUT_API);
        return; // the client gives up
    }
    node->is_connected = was_received;
    if (call->is_stream && call->status == 200) {
        open_stream(world, call);
        return;
    }
    deliver(world, call, &answer);
    wire_free(call);
}

static void on_give_up(struct world *world, struct api_call *call)
{
    const struct seam_answer answer = {.is_sent = call->is_sent};

    if (call->is_open)
        return;
    if (!call->is_over) {
        cluster_count(world, HAPPENED_TIMED_OUT);
        world->cluster->nodes[call->pod].is_connected = false;
        deliver(world, call, &answer);
    }
    // What changes something and is still on its way will arrive.
    if (call->has_arrived || call->is_lost || !call->is_write)
        wire_free(call);
}

// --- streams ---

static void pump(struct world *world, struct api_call *call)
{
    const struct api_server *api = &world->cluster->api;
    const struct kube_node *node = &world->cluster->nodes[call->pod];
    uint64_t first = api->change_count > CHANGES_MAX ? api->change_count - CHANGES_MAX : 0;
    uint32_t serial = call->serial;

    if (node->cut > 0 || node->dumb > 0 || call->is_deaf)
        return;
    for (uint64_t i = first; i < api->change_count && call->serial == serial; i++) {
        const struct api_change *change = &api->changes[i % CHANGES_MAX];
        struct seam *seam = waiting(world, call);
        char *line = NULL;
        if (change->name != call->name || change->version <= call->cursor || !seam)
            continue;
        if (change->at + call->lag_ns > world->now) {
            cluster_post(world, change->at + call->lag_ns - world->now, CLUSTER_PUMP, call->pod,
                         serial);
            return;
        }
        if (call->lag_ns > 0)
            cluster_count(world, HAPPENED_STALE);
        call->cursor = change->version;
        call->line_at = world->now;
        line = api_event_line(change);
        seam_stream_line(seam, call->id, line);
        free(line);
        cluster_take_turn(world, call->pod);
    }
}

static void send_line(struct world *world, struct api_call *call, const char *line)
{
    struct seam *seam = waiting(world, call);

    call->line_at = world->now;
    if (!seam)
        return;
    seam_stream_line(seam, call->id, line);
    cluster_take_turn(world, call->pod);
}

// Bookmarks, the server's own end of a watch, and the client's patience.
static void on_beat(struct world *world, struct api_call *call)
{
    const struct kube_node *node = &world->cluster->nodes[call->pod];
    uint32_t serial = call->serial;
    int pod = call->pod;

    if (node->cut > 0 || node->dumb > 0 || call->is_deaf) {
        if (world->now - call->line_at >= SILENCE_NS) {
            end_stream(world, call, false);
            return;
        }
    } else if (world->now >= call->ends_at) {
        end_stream(world, call, true);
        return;
    } else {
        send_line(world, call,
                  "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"metadata\":{"
                  "\"resourceVersion\":\"1\"}}}");
    }
    cluster_post(world, BEAT_NS, CLUSTER_BEAT, pod, serial);
}

void wire_expire(struct world *world, struct api_call *call)
{
    if (world->now < world->pods[call->pod].agent.frozen_until)
        return;
    cluster_count(world, HAPPENED_GONE_EVENT);
    send_line(world, call,
              "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"message\":"
              "\"too old resource version\"}}");
}

void wire_changed(struct world *world, int name)
{
    for (int i = 0; i < CALLS_MAX; i++) {
        struct api_call *call = &world->cluster->calls[i];
        if (call->serial != 0 && call->is_open && call->name == name)
            cluster_post(world, cluster_between(world, MS / 2, 4 * MS), CLUSTER_PUMP, call->pod,
                         call->serial);
    }
}

static void release(struct world *world, struct api_call *call)
{
    int64_t after_ns = cluster_between(world, MS, 2 * S);

    if (call->is_held) {
        call->is_held = false;
        cluster_post(world, after_ns, CLUSTER_ARRIVE, call->pod, call->serial);
    } else if (call->is_open) {
        cluster_post(world, after_ns, CLUSTER_PUMP, call->pod, call->serial);
    }
}

void wire_healed(struct world *world, int pod)
{
    const struct kube_node *node = &world->cluster->nodes[pod];

    for (int i = 0; i < CALLS_MAX && !is_blocked(node); i++) {
        struct api_call *call = &world->cluster->calls[i];
        if (call->serial != 0 && call->pod == pod && !call->is_lost)
            release(world, call);
    }
}

void wire_event(struct world *world, const struct event *event)
{
    struct api_call *call = find_call(world, event->gen);

    if (!call)
        return;
    switch (event->arg) {
    case CLUSTER_ARRIVE: on_arrive(world, call); break;
    case CLUSTER_ANSWER: on_answer(world, call); break;
    case CLUSTER_GIVE_UP: on_give_up(world, call); break;
    case CLUSTER_PUMP: pump(world, call); break;
    case CLUSTER_BEAT: on_beat(world, call); break;
    default: break;
    }
}
