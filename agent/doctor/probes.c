// SPDX-License-Identifier: Apache-2.0
// Who is asked by each of the kubelet's probes. A liveness probe of meta that asks meta's port
// kills a meta that promotes, and never one that has to be dead.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/cli/client.h"
#include "agent/config.h"
#include "agent/doctor/doctor.h"

#define READY_MIN_S 30

// The n-th word of an exec probe; "" when there is none.
static const char *word_at(const cJSON *probe, int n)
{
    const cJSON *item = cJSON_GetArrayItem(client_get(probe, "exec.command"), n);

    return cJSON_IsString(item) ? item->valuestring : "";
}

static bool asks_shim(const cJSON *probe, const char *kind, const char *state)
{
    const char *slash = strrchr(word_at(probe, 0), '/');
    const char *program = slash ? slash + 1 : word_at(probe, 0);
    const char *third = word_at(probe, 3);

    if (strcmp(program, "metafence-run") != 0 || strcmp(word_at(probe, 1), "probe") != 0 ||
        strcmp(word_at(probe, 2), kind) != 0)
        return false;
    if (strncmp(third, "--state=", 8) == 0)
        third += 8;
    else
        third = strcmp(third, "--state") == 0 ? word_at(probe, 4) : "";
    return !state || strcmp(third, state) == 0;
}

static void check_shim_probe(struct doctor *doctor, const struct doctor_probes *probes,
                             const char *kind, const char *check)
{
    char name[24], fix[320];
    const cJSON *probe = NULL;

    (void)snprintf(name, sizeof(name), "%sProbe", kind);
    probe = client_get(probes->meta, name);
    (void)snprintf(fix, sizeof(fix), "exec: [metafence-run, probe, %s, --state, %.150s]", kind,
                   probes->state ? probes->state : "PATH");
    if (!probe)
        doctor_bad(doctor, check, fix, "meta has no %s", name);
    else if (!asks_shim(probe, kind, probes->state))
        doctor_bad(doctor, check, fix, "meta's %s does not ask metafence-run's state", name);
    else if (strcmp(kind, "liveness") == 0 &&
             client_number(probe, "terminationGracePeriodSeconds", 30) > 1)
        doctor_warn(doctor, check, "terminationGracePeriodSeconds: 1 in meta's livenessProbe",
                    "a meta that has to be dead gets the pod's grace period");
    else
        doctor_ok(doctor, check, "asks metafence-run's state");
}

// `http.port` by number, or by the name that a port of the container has.
static bool is_agent_port(const struct doctor_probes *probes, const cJSON *port)
{
    const cJSON *item = NULL;
    double number = (double)probes->config->http_port;

    if (cJSON_IsNumber(port))
        return port->valuedouble == number;
    cJSON_ArrayForEach(item, client_get(probes->sidecar, "ports"))
    {
        if (cJSON_IsString(port) && strcmp(client_text(item, "name"), port->valuestring) == 0)
            return client_number(item, "containerPort", 0) == number;
    }
    return false;
}

struct wanted {
    const cJSON *container;
    const char *whose;
    const char *kind;
    const char *path;
};

static bool check_agent_probe(struct doctor *doctor, const struct doctor_probes *probes,
                              const char *check, const struct wanted *wanted)
{
    char name[24], fix[160];
    const cJSON *probe = NULL;

    (void)snprintf(name, sizeof(name), "%sProbe", wanted->kind);
    probe = client_get(wanted->container, name);
    (void)snprintf(fix, sizeof(fix), "httpGet: {path: %s, port: %" PRId64 "}", wanted->path,
                   probes->config->http_port);
    if (probe && strcmp(client_text(probe, "httpGet.path"), wanted->path) == 0 &&
        is_agent_port(probes, client_get(probe, "httpGet.port")))
        return true;
    doctor_bad(doctor, check, fix, "%s %s does not ask the agent for %s", wanted->whose, name,
               wanted->path);
    return false;
}

static void check_sidecar_probes(struct doctor *doctor, const struct doctor_probes *probes)
{
    static const char *const all[][2] = {
        {"startup", "/startupz"}, {"readiness", "/readyz"}, {"liveness", "/livez"}};
    const cJSON *ready = client_get(probes->sidecar, "readinessProbe");
    double window =
        client_number(ready, "periodSeconds", 10) * client_number(ready, "failureThreshold", 3);
    bool is_good = true;

    for (size_t i = 0; i < 3; i++)
        is_good &= check_agent_probe(
            doctor, probes, "probe.sidecar",
            &(struct wanted){probes->sidecar, "the sidecar's", all[i][0], all[i][1]});
    if (ready && window < READY_MIN_S) {
        doctor_bad(
            doctor, "probe.sidecar", "periodSeconds × failureThreshold of 30 s or more",
            "the sidecar's readiness gives up after %.0f s: a restart of the agent takes "
            "meta out of DNS",
            window);
        is_good = false;
    }
    if (is_good)
        doctor_ok(doctor, "probe.sidecar", "all three ask the agent");
}

void doctor_probes(struct doctor *doctor, const struct doctor_probes *probes)
{
    if (probes->config->fence_method == FENCE_BY_SHIM) {
        check_shim_probe(doctor, probes, "startup", "probe.startup");
        check_shim_probe(doctor, probes, "readiness", "probe.readiness");
        check_shim_probe(doctor, probes, "liveness", "probe.liveness");
    } else if (check_agent_probe(
                   doctor, probes, "probe.liveness",
                   &(struct wanted){probes->meta, "meta's", "liveness", "/meta/livez"})) {
        doctor_ok(doctor, "probe.liveness", "asks the agent whether meta has to be dead");
    }
    check_sidecar_probes(doctor, probes);
}
