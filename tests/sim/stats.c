// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/stats.h"

#include <inttypes.h>
#include <stdio.h>

static void print_cluster(const struct stats *stats)
{
    (void)printf("troubles:");
    for (int i = 0; i < TROUBLE_COUNT; i++)
        (void)printf(" %s=%" PRIu64, trouble_name((enum trouble_kind)i), stats->troubles[i]);
    (void)printf("\nhappened:");
    for (int i = 0; i < HAPPENING_COUNT; i++)
        (void)printf(" %s=%" PRIu64, happening_name((enum happening)i), stats->happenings[i]);
    (void)printf("\n%" PRIu64 " schedules with Kubernetes, %" PRIu64
                 " requests to it, at most %u of one agent in a minute\n",
                 stats->clusters, stats->requests, stats->most_requests);
}

static void add_all(uint64_t *to, const uint64_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

#define ADD_ALL(to, from, field)                                                               \
    add_all((to)->field, (from)->field, sizeof((to)->field) / sizeof((to)->field[0]))

void stats_add(struct stats *to, const struct stats *from)
{
    ADD_ALL(to, from, rules);
    ADD_ALL(to, from, holds);
    ADD_ALL(to, from, reasons);
    ADD_ALL(to, from, faults);
    ADD_ALL(to, from, troubles);
    ADD_ALL(to, from, happenings);
    to->events += from->events;
    to->runs += from->runs;
    to->takeovers += from->takeovers;
    to->zombies += from->zombies;
    to->hasty += from->hasty;
    to->late_wins += from->late_wins;
    to->virtual_ns += from->virtual_ns;
    to->clusters += from->clusters;
    to->requests += from->requests;
    to->hosts += from->hosts;
    to->rounds += from->rounds;
    to->lost_terms += from->lost_terms;
    to->lost_renewals += from->lost_renewals;
    to->lag_zombies += from->lag_zombies;
    if (from->worst_margin_ns < to->worst_margin_ns)
        to->worst_margin_ns = from->worst_margin_ns;
    if (from->most_requests > to->most_requests)
        to->most_requests = from->most_requests;
}

void stats_print(const struct stats *stats)
{
    (void)printf("rules:");
    for (int i = 0; i < RULE_COUNT; i++)
        (void)printf(" %s=%" PRIu64, rule_name((enum rule)i), stats->rules[i]);
    (void)printf("\nholds:");
    for (int i = 1; i <= SHIM_HOLD_LAST; i++)
        (void)printf(" %s=%" PRIu64, shim_hold_name((enum shim_hold)i), stats->holds[i]);
    (void)printf("\nfences:");
    for (int i = 1; i <= FENCE_REASON_LAST; i++)
        (void)printf(" %s=%" PRIu64, fence_reason_name((enum fence_reason)i),
                     stats->reasons[i]);
    (void)printf("\nfaults:");
    for (int i = 0; i < FAULT_COUNT; i++)
        (void)printf(" %s=%" PRIu64, fault_name((enum fault_kind)i), stats->faults[i]);
    (void)printf("\n%" PRIu64 " schedules, %.1f virtual hours, %" PRIu64 " events, %" PRIu64
                 " terms, %" PRIu64 " zombies, %" PRIu64 " late wins, %" PRIu64
                 " winners fenced before the first read\n",
                 stats->runs, (double)stats->virtual_ns / 3.6e12, stats->events,
                 stats->takeovers, stats->zombies, stats->late_wins, stats->hasty);
    (void)printf("%" PRIu64 " further rounds; %" PRIu64
                 " schedules with troubles of machines: %" PRIu64 " terms and %" PRIu64
                 " renewals lost by a failover, %" PRIu64
                 " steps of a leader past its lease after its guest was paused\n",
                 stats->rounds, stats->hosts, stats->lost_terms, stats->lost_renewals,
                 stats->lag_zombies);
    if (stats->clusters > 0)
        print_cluster(stats);
    if (stats->worst_margin_ns != INT64_MAX)
        (void)printf("worst margin of a death by the clock %.1f ms\n",
                     (double)stats->worst_margin_ns / 1e6);
}

int stats_missing(const struct stats *stats)
{
    int missing = 0;

    for (int i = 0; i < RULE_COUNT; i++)
        if (stats->rules[i] == 0)
            missing += printf("rule %s never fired\n", rule_name((enum rule)i)) > 0;
    for (int i = 1; i <= SHIM_HOLD_LAST; i++)
        if (stats->holds[i] == 0 && i != SHIM_HOLD_AGENT_REQUIRED)
            missing += printf("hold %s never applied\n", shim_hold_name((enum shim_hold)i)) > 0;
    for (int i = 1; i <= FENCE_REASON_LAST; i++)
        if (stats->reasons[i] == 0)
            missing += printf("nobody was fenced for %s\n",
                              fence_reason_name((enum fence_reason)i)) > 0;
    for (int i = 0; i < FAULT_COUNT; i++)
        if (stats->faults[i] == 0)
            missing += printf("fault %s never began\n", fault_name((enum fault_kind)i)) > 0;
    if (stats->lost_terms == 0 || stats->lost_renewals == 0)
        missing += printf("no failover lost anything\n") > 0;
    for (int i = 0; i < TROUBLE_COUNT; i++)
        if (stats->troubles[i] == 0)
            missing +=
                printf("trouble %s never began\n", trouble_name((enum trouble_kind)i)) > 0;
    for (int i = 0; i < HAPPENING_COUNT; i++)
        if (stats->happenings[i] == 0)
            missing += printf("%s never happened\n", happening_name((enum happening)i)) > 0;
    return missing;
}

// What one process of several found.
