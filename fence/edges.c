// SPDX-License-Identifier: Apache-2.0
#include "fence/edges.h"

#include <sys/wait.h>

#include "fence/log.h"

#define MS(ns)        ((long long)((ns) / NS_PER_MS))
#define PAUSE_STEP_NS (10 * NS_PER_SEC)

static bool rose(const struct fence_status *before, const struct fence_status *after,
                 uint32_t flag)
{
    return !(before->flags & flag) && (after->flags & flag);
}

static bool fell(const struct fence_status *before, const struct fence_status *after,
                 uint32_t flag)
{
    return rose(after, before, flag);
}

static void log_death(const struct fence_status *after)
{
    const struct fence_death *death = &after->last_death;
    int status = death->wait_status;
    bool by_signal = WIFSIGNALED(status);

    if (death->reason == FENCE_REASON_NONE) {
        fence_log(FENCE_LOG_INFO, "meta ended by itself",
                  "incarnation=%llu tag=%s %s=%d engaged=%u dead_boot_ns=%lld",
                  (unsigned long long)death->incarnation, death->tag,
                  by_signal ? "signal" : "exit_code",
                  by_signal ? WTERMSIG(status) : WEXITSTATUS(status), death->engaged,
                  (long long)death->dead_ns);
        return;
    }
    fence_log(FENCE_LOG_WARN, "meta is dead",
              "incarnation=%llu tag=%s reason=%s decided_boot_ns=%lld dead_boot_ns=%lld "
              "took_us=%lld deadline_boot_ns=%lld fences=%u",
              (unsigned long long)death->incarnation, death->tag,
              fence_reason_name((enum fence_reason)death->reason), (long long)death->decided_ns,
              (long long)death->dead_ns, (long long)(death->dead_ns - death->decided_ns) / 1000,
              (long long)death->deadline_ns, after->fences);
}

static void log_life(const struct fence_status *before, const struct fence_status *after)
{
    if (before->last_death.incarnation != after->last_death.incarnation)
        log_death(after);
    if (before->incarnation != after->incarnation)
        fence_log(FENCE_LOG_INFO, "meta started",
                  "incarnation=%llu pid=%d tag=%s restarts=%u armed=%d",
                  (unsigned long long)after->incarnation, after->pid, after->tag,
                  after->restarts, !!(after->flags & SHIM_ARMED));
    if (before->incarnation != after->incarnation && !(after->flags & SHIM_ARMED))
        fence_log(FENCE_LOG_WARN, "not covered until an agent has read the election",
                  "incarnation=%llu", (unsigned long long)after->incarnation);
    if (rose(before, after, SHIM_ENGAGED))
        fence_log(FENCE_LOG_INFO, "meta shows signs of leading",
                  "incarnation=%llu ports=0x%x permit=%s deadline_boot_ns=%lld",
                  (unsigned long long)after->incarnation, after->ports,
                  fence_role_name((enum fence_role)after->permit),
                  (long long)after->deadline_ns);
    if (rose(before, after, SHIM_SUPERSEDED))
        fence_log(FENCE_LOG_WARN, "meta has been superseded", "incarnation=%llu",
                  (unsigned long long)after->incarnation);
    if (before->permit != after->permit && after->permit != FENCE_ROLE_KEEP)
        fence_log(FENCE_LOG_INFO, "permit changed", "incarnation=%llu permit=%s prev=%s",
                  (unsigned long long)after->incarnation,
                  fence_role_name((enum fence_role)after->permit),
                  fence_role_name((enum fence_role)before->permit));
}

// Not each step of an end that the agent keeps moving ahead: for as long as it holds that would
// be some lines a second.
static bool pause_is_news(const struct fence_status *before, const struct fence_status *after)
{
    bool was = before->pause_end_ns > before->written_ns;
    bool is = after->pause_end_ns > after->written_ns;
    int64_t moved_ns = after->pause_end_ns - before->pause_end_ns;

    return was != is || (is && (moved_ns < 0 || moved_ns > PAUSE_STEP_NS));
}

static void log_agent(const struct fence_status *before, const struct fence_status *after)
{
    if (rose(before, after, SHIM_AGENT_PRESENT))
        fence_log(FENCE_LOG_INFO, "agent is there", "armed=%d", !!(after->flags & SHIM_ARMED));
    if (fell(before, after, SHIM_AGENT_PRESENT))
        fence_log(FENCE_LOG_WARN, "agent is lost", "deadline_boot_ns=%lld armed=%d",
                  (long long)after->deadline_ns, !!(after->flags & SHIM_ARMED));
    if (rose(before, after, SHIM_ARMED))
        fence_log(FENCE_LOG_INFO, "armed: silence counts", "incarnation=%llu",
                  (unsigned long long)after->incarnation);
    if (fell(before, after, SHIM_ARMED))
        fence_log(FENCE_LOG_WARN, "unarmed until an agent is back: not covered",
                  "incarnation=%llu", (unsigned long long)after->incarnation);
    if (rose(before, after, SHIM_SILENCE_HELD))
        fence_log(FENCE_LOG_WARN, "deadline passed and agent lost: meta lives on, not covered",
                  "incarnation=%llu when_agent_lost=hold",
                  (unsigned long long)after->incarnation);
    if (fell(before, after, SHIM_SILENCE_HELD))
        fence_log(FENCE_LOG_INFO, "covered again", "incarnation=%llu",
                  (unsigned long long)after->incarnation);
    if (rose(before, after, SHIM_MANUAL))
        fence_log(FENCE_LOG_WARN, "manual fence is set", "incarnation=%llu",
                  (unsigned long long)after->incarnation);
    if (fell(before, after, SHIM_MANUAL))
        fence_log(FENCE_LOG_INFO, "manual fence is lifted", "incarnation=%llu",
                  (unsigned long long)after->incarnation);
    if (pause_is_news(before, after))
        fence_log(FENCE_LOG_WARN, "pause changed", "pause_end_boot_ns=%lld in_ms=%lld",
                  (long long)after->pause_end_ns,
                  after->pause_end_ns == 0 ? 0LL : MS(after->pause_end_ns - clock_now().ns));
}

void edges_log(const struct fence_status *before, const struct fence_status *after)
{
    log_life(before, after);
    log_agent(before, after);
    if (after->hold != SHIM_HOLD_NONE &&
        (before->hold != after->hold || before->state != after->state))
        fence_log(FENCE_LOG_INFO, "start is held", "hold=%s until_boot_ns=%lld at_most_ms=%lld",
                  shim_hold_name((enum shim_hold)after->hold), (long long)after->hold_until_ns,
                  after->hold_until_ns == INT64_MAX
                      ? -1LL
                      : MS(after->hold_until_ns - clock_now().ns));
}
