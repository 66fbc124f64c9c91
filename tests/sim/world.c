// SPDX-License-Identifier: Apache-2.0
// The queue of events, chance, clocks and the timeline.
#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/chance.h"

#define TRACE_LINE 200

uint64_t sim_random(struct world *world)
{
    return chance_next(&world->rng);
}

int64_t sim_between(struct world *world, int64_t low, int64_t high)
{
    return chance_between(&world->rng, low, high);
}

bool sim_chance(struct world *world, int percent)
{
    return sim_between(world, 0, 100) < percent;
}

static bool earlier(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

static void swap_events(struct event *a, struct event *b)
{
    struct event other = *a;

    *a = *b;
    *b = other;
}

void sim_post(struct world *world, int64_t at, struct event event)
{
    struct event *heap = world->events;
    int i = world->event_count;

    if (world->event_count == EVENTS_MAX) {
        sim_fail(world, event.pod, "the simulation's own queue is full");
        return;
    }
    event.at = at < world->now ? world->now : at;
    event.seq = world->next_seq++;
    heap[i] = event;
    world->event_count++;
    for (; i > 0 && earlier(&heap[i], &heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap_events(&heap[i], &heap[(i - 1) / 2]);
}

bool sim_next(struct world *world, struct event *ret_event)
{
    struct event *heap = world->events;
    int i = 0;

    if (world->event_count == 0)
        return false;
    *ret_event = heap[0];
    heap[0] = heap[--world->event_count];
    for (;;) {
        int child = 2 * i + 1;
        if (child >= world->event_count)
            break;
        if (child + 1 < world->event_count && earlier(&heap[child + 1], &heap[child]))
            child++;
        if (!earlier(&heap[child], &heap[i]))
            break;
        swap_events(&heap[child], &heap[i]);
        i = child;
    }
    return true;
}

static int64_t local_ns(const struct pod *pod, int64_t at)
{
    return pod->clock_zero + at + at / 1000000 * pod->clock_ppm;
}

struct instant sim_local(const struct world *world, const struct pod *pod)
{
    return (struct instant){local_ns(pod, world->now)};
}

int64_t sim_world_time(const struct pod *pod, struct instant local)
{
    int64_t at = local.ns - pod->clock_zero;

    if (local.ns == INT64_MAX)
        return INT64_MAX;
    at -= at / 1000000 * pod->clock_ppm;
    while (local_ns(pod, at) < local.ns)
        at += local.ns - local_ns(pod, at);
    return at;
}

static void add_line(struct world *world, const char *line)
{
    memcpy(world->trace + (size_t)(world->trace_next % TRACE_MAX) * TRACE_LINE, line,
           strlen(line) + 1);
    world->trace_next++;
    if (world->verbose)
        (void)printf("%s\n", line);
}

__attribute__((format(printf, 3, 0))) static void add_trace(struct world *world, int pod,
                                                            const char *fmt, va_list args)
{
    char line[TRACE_LINE] = {0};
    int used = 0;

    if (pod < 0)
        used = snprintf(line, sizeof(line), "%10.4f s        ", (double)world->now / 1e9);
    else
        used = snprintf(line, sizeof(line), "%10.4f s  pod%d  ", (double)world->now / 1e9, pod);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started by the caller
    (void)vsnprintf(line + used, sizeof(line) - (size_t)used, fmt, args);
    add_line(world, line);
}

void sim_trace(struct world *world, int pod, const char *fmt, ...)
{
    va_list args;

    if (!world->trace)
        return;
    va_start(args, fmt);
    add_trace(world, pod, fmt, args);
    va_end(args);
}

void sim_fail(struct world *world, int pod, const char *fmt, ...)
{
    va_list args;

    if (world->failed)
        return;
    world->failed = true;
    va_start(args, fmt);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started above
    (void)vsnprintf(world->failure, sizeof(world->failure), fmt, args);
    va_end(args);
    sim_trace(world, pod, "VIOLATION %s", world->failure);
}

void sim_print_trace(const struct world *world)
{
    uint32_t first = world->trace_next > TRACE_MAX ? world->trace_next - TRACE_MAX : 0;

    if (world->verbose)
        return; // shown already
    for (uint32_t i = first; i < world->trace_next; i++)
        (void)printf("%s\n", world->trace + (size_t)(i % TRACE_MAX) * TRACE_LINE);
}
