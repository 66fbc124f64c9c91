// SPDX-License-Identifier: Apache-2.0
// What the agent's status shows: whether it covers its meta, and with what.
#include <string.h>
#include <strings.h>

#include "agent/cli/client.h"
#include "agent/config.h"
#include "agent/doctor/doctor.h"

struct reason {
    const char *name; // as plan.not_covered is shown
    const char *check;
    const char *fix;
    const char *what;
};

static const struct reason reasons[] = {
    {"Paused", "cover.paused", "`metafence resume` ends the pause; else it ends by itself",
     "fencing is paused: nothing is killed meanwhile"},
    {"Unarmed", "cover.armed",
     "see the findings about Postgres: the agent needs one good read of the election",
     "the agent has not read the election yet: silence does not count"},
    {"AgentBlind", "cover.blind", "see the findings about Postgres: it refuses the agent",
     "Postgres answers the agent with a refusal, so a silent leader is held, not fenced"},
    {"SingleReplicaHeld", "cover.single", "run two metas or more",
     "no other meta could take over, so a silent leader is held, not fenced"},
    {"NoFence", "cover.fence",
     "start meta by metafence-run, with --socket as fence.socket says, in a directory that "
     "both "
     "containers mount",
     "no connection to metafence-run: nobody can end meta in time"},
    {"FenceUnusable", "cover.fence",
     "fence.method pidfd needs shareProcessNamespace: true and the user of meta's container",
     "meta can't be killed, or can't be told from other processes"},
    {"Untagged", "cover.tags", "metafence sql install --config FILE",
     "there is no term trigger, so twins and superseded metas can't be told apart"},
    {"UntaggedWriters", "cover.writers",
     "start each meta by metafence-run, without a pooler; people and tools take another role",
     "sessions without a tag write metadata: the guard lets them pass"},
};

static void check_cover(struct doctor *doctor, const cJSON *status)
{
    const cJSON *list = client_get(status, "not_covered");
    const cJSON *item = NULL;

    if (cJSON_GetArraySize(list) == 0)
        doctor_ok(doctor, "cover", "the agent covers its meta");
    cJSON_ArrayForEach(item, list)
    {
        const char *name = cJSON_IsString(item) ? item->valuestring : "";
        const struct reason *known = NULL;

        for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
            if (strcmp(reasons[i].name, name) == 0)
                known = &reasons[i];
        if (!known)
            doctor_bad(doctor, "cover", "metafence status", "not covered: %.60s", name);
        else if (strcmp(name, "Paused") == 0)
            doctor_warn(doctor, known->check, known->fix, "%s", known->what);
        else
            doctor_bad(doctor, known->check, known->fix, "%s", known->what);
    }
}

static void check_self(struct doctor *doctor, const cJSON *status, const struct config *config)
{
    const char *version = client_text(status, "version");
    const char *id = client_text(status, "id");

    if (strcmp(version, METAFENCE_VERSION) != 0)
        doctor_warn(doctor, "agent.version", "restart the agent with the new image",
                    "the agent is %.40s, this program is " METAFENCE_VERSION, version);
    else
        doctor_ok(doctor, "agent.version", "%s", version);
    if (!client_is_true(status, "config.valid"))
        doctor_bad(doctor, "agent.config", "correct the file, then restart the agent",
                   "the agent runs on its %s configuration: %.200s",
                   client_text(status, "config.running_on"),
                   client_text(status, "config.error"));
    else if (strcasecmp(id, config->core.id) != 0)
        doctor_bad(doctor, "agent.config", "restart the agent: it reads its file at its start",
                   "the agent guards %.100s, the file says %.100s", id, config->core.id);
    else
        doctor_ok(doctor, "agent.config", "the agent runs on its file, for %.100s", id);
}

static void check_overrides(struct doctor *doctor, const cJSON *status)
{
    const char *error = client_text(status, "config.override_error");

    if (*error)
        doctor_bad(doctor, "agent.overrides",
                   "correct it on the pods' template; a container reads it at its start",
                   "none of the pod's annotations holds: %.240s", error);
    else
        doctor_ok(doctor, "agent.overrides", "no annotation of the pod is refused");
}

static void check_fence(struct doctor *doctor, const cJSON *status)
{
    const char *unusable = client_text(status, "fence.unusable");

    if (*unusable)
        doctor_bad(doctor, "fence.usable",
                   "give the pod what fence.method needs, see README.md", "%.200s", unusable);
    else if (client_is_true(status, "fence.connected") &&
             client_is_true(status, "fence.silent"))
        doctor_bad(doctor, "fence.usable",
                   "look whether metafence-run is stopped, or has no CPU",
                   "metafence-run does not answer");
    else if (client_is_true(status, "fence.connected"))
        doctor_ok(doctor, "fence.usable", "method %s, beside it pidfd: %s",
                  client_text(status, "fence.method"),
                  client_is_true(status, "fence.pidfd_beside") ? "yes" : "no");
    else
        doctor_skip(doctor, "fence.usable", "not connected, see cover.fence");
    if (cJSON_IsObject(client_get(status, "not_fenced")))
        doctor_bad(doctor, "fence.confirmed", "docs/runbooks/MetafenceNotFenced.md",
                   "a kill is not confirmed: %.200s", client_text(status, "not_fenced.why"));
    if (client_is_true(status, "manual_fence"))
        doctor_warn(doctor, "fence.manual", "`metafence unfence` lets meta start",
                    "meta is kept down by an operator: %.200s",
                    client_text(status, "manual_reason"));
}

static void check_replicas(struct doctor *doctor, const cJSON *status)
{
    double members = client_number(status, "members", 0);

    if (members <= 0)
        doctor_skip(doctor, "replicas", "the members of the election are not known");
    else if (members < 2)
        doctor_warn(doctor, "replicas", "run two metas or more",
                    "one meta only: nobody takes over when it is fenced");
    else
        doctor_ok(doctor, "replicas", "%.0f metas", members);
}

static void check_label(struct doctor *doctor, const cJSON *status, const struct config *config)
{
    const char *state = client_text(status, "kubernetes.label.role_label");
    const char *key = config->kubernetes.role_label;
    const char *fix = "read metafence.io/role, which metafence alone writes; set "
                      "kubernetes.roleLabel to \"\" if nobody needs the other";

    if (client_is_true(status, "kubernetes.label.denied") || strcmp(state, "denied") == 0)
        doctor_bad(doctor, "label.rights", "grant `patch` on pods, see charts/metafence",
                   "the role label can't be written");
    else if (client_is_true(status, "kubernetes.label.role_label_differs"))
        doctor_warn(
            doctor, "label.labeler", fix,
            "%.100s is another writer's (the operator's labeler?) and shows another role", key);
    else if (strcmp(state, "yielded") == 0)
        doctor_ok(doctor, "label.labeler", "%.100s is left to another writer, and agrees", key);
    else
        doctor_ok(doctor, "label.labeler", "%.100s: %s", *key ? key : "metafence.io/role alone",
                  state);
}

static void check_kubernetes(struct doctor *doctor, const cJSON *status,
                             const struct config *config)
{
    if (!client_is_true(status, "kubernetes.enabled")) {
        doctor_skip(doctor, "agent.kubernetes", "the agent runs without Kubernetes");
        return;
    }
    if (client_is_true(status, "kubernetes.pod.other"))
        doctor_bad(doctor, "agent.pod", "look for a second pod of this name, or a wrong podUid",
                   "the API server lists another uid for this pod's name");
    if (!client_is_true(status, "kubernetes.up"))
        doctor_bad(doctor, "agent.kubernetes",
                   "see kubernetes.server, tokenFile, caFile and the network policy",
                   "the agent does not see its pod: %.200s",
                   client_text(status, "kubernetes.error"));
    else
        doctor_ok(doctor, "agent.kubernetes", "the agent watches its pod");
    check_label(doctor, status, config);
}

void doctor_agent(struct doctor *doctor, const cJSON *status, const struct config *config)
{
    check_self(doctor, status, config);
    check_overrides(doctor, status);
    check_cover(doctor, status);
    check_fence(doctor, status);
    check_replicas(doctor, status);
    check_kubernetes(doctor, status, config);
}
