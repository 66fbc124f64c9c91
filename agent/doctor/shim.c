// SPDX-License-Identifier: Apache-2.0
// metafence-run's options against the agent's: the two must keep the same deadline.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/config.h"
#include "agent/doctor/doctor.h"
#include "base/clock.h"

const char *doctor_shim_value(const struct doctor_shim *shim, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < shim->count; i++) {
        const char *arg = shim->args[i];

        if (strncmp(arg, "--", 2) != 0 || strncmp(arg + 2, name, len) != 0)
            continue;
        if (arg[2 + len] == '=')
            return arg + 2 + len + 1;
        if (arg[2 + len] == '\0')
            return i + 1 < shim->count ? shim->args[i + 1] : "";
    }
    return NULL;
}

static bool check_duration(struct doctor *doctor, const struct doctor_shim *shim,
                           const char *name, const char *fallback, int64_t want_ns)
{
    const char *given = doctor_shim_value(shim, name);
    char want[32], fix[160];
    int64_t got_ns = 0;
    struct err err = {0};

    if (duration_parse(given ? given : fallback, &got_ns, &err) == 0 && got_ns == want_ns)
        return true;
    duration_format(want_ns, want, sizeof(want));
    (void)snprintf(fix, sizeof(fix), "give metafence-run --%s=%s", name, want);
    doctor_bad(doctor, "shim.timing", fix, "metafence-run's --%s is %.40s, the agent's is %s",
               name, given ? given : fallback, want);
    return false;
}

static bool check_text(struct doctor *doctor, const struct doctor_shim *shim, const char *name,
                       const char *want)
{
    const char *given = doctor_shim_value(shim, name);
    char fix[320];

    if (given && strcmp(given, want) == 0)
        return true;
    (void)snprintf(fix, sizeof(fix), "give metafence-run --%s=%.200s", name, want);
    doctor_bad(doctor, "shim.options", fix,
               "metafence-run's --%s is %.100s, the agent's is %.100s", name,
               given ? given : "not given", want);
    return false;
}

static void check_timing(struct doctor *doctor, const struct doctor_shim *shim,
                         const struct core_config *core)
{
    bool is_good = check_duration(doctor, shim, "ttl", "30s", core->ttl_ns);

    is_good &= check_duration(doctor, shim, "margin", "2s", core->margin_ns);
    is_good &= check_duration(doctor, shim, "kill-budget", "500ms", core->kill_budget_ns);
    if (is_good)
        doctor_ok(doctor, "shim.timing", "metafence-run has the agent's lease and margins");
}

void doctor_shim(struct doctor *doctor, const struct doctor_shim *shim,
                 const struct config *config)
{
    const char *lost = doctor_shim_value(shim, "when-agent-lost");
    const char *port = doctor_shim_value(shim, "service-port");
    char want[16];
    bool is_good = check_text(doctor, shim, "socket", config->fence_socket);

    check_timing(doctor, shim, &config->core);
    is_good &= check_text(doctor, shim, "pod-uid", config->pod_uid);
    (void)snprintf(want, sizeof(want), "%" PRId64, config->meta_service_port);
    if (port || config->meta_service_port != 5690)
        is_good &= check_text(doctor, shim, "service-port", want);
    if (is_good)
        doctor_ok(doctor, "shim.options", "metafence-run and agent mean the same meta");
    if (lost && strcmp(lost, "hold") == 0)
        doctor_warn(doctor, "shim.agent-lost", "leave --when-agent-lost out: fence",
                    "with --when-agent-lost=hold a leader without an agent is not covered");
    else
        doctor_ok(doctor, "shim.agent-lost", "a leader without an agent ends at its deadline");
}
