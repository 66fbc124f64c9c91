// SPDX-License-Identifier: Apache-2.0
#include <stddef.h>
#include <string.h>

#include "agent/reconcile/converge.h"
#include "agent/reconcile/verdict.h"

static const char *const types[WORKER_TYPES] = {
    [WORKER_COMPUTE] = "COMPUTE_NODE", [WORKER_FRONTEND] = "FRONTEND",
    [WORKER_COMPACTOR] = "COMPACTOR",  [WORKER_RISECTL] = "RISE_CTL",
    [WORKER_OTHER] = "OTHER",
};

static const char *const reasons[REASON_COUNT] = {
    [REASON_POD_RUNS] = "PodRuns",
    [REASON_POD_PENDING] = "PodPending",
    [REASON_POD_TERMINATING] = "PodTerminating",
    [REASON_POD_ENDED] = "PodEnded",
    [REASON_POD_GONE] = "PodGone",
    [REASON_SUPERSEDED] = "Superseded",
    [REASON_NOT_JUDGED] = "NotJudged",
    [REASON_INCOMPLETE] = "Incomplete",
    [REASON_NO_PODS] = "NoPods",
    [REASON_RISECTL] = "Risectl",
    [REASON_UNKNOWN_TYPE] = "UnknownType",
    [REASON_BAD_ADDRESS] = "BadAddress",
    [REASON_YOUNG] = "Young",
    [REASON_TOO_MANY] = "TooMany",
    [REASON_NEVER_SEEN] = "NeverSeen",
    [REASON_NODE_UNREACHABLE] = "NodeUnreachable",
    [REASON_FORCE_DELETED] = "ForceDeleted",
    [REASON_END_UNSEEN] = "EndUnseen",
    [REASON_ENDED_RUNNING] = "EndedRunning",
    [REASON_ADDRESS_MOVED] = "AddressMoved",
    [REASON_AMBIGUOUS] = "Ambiguous",
    [REASON_DUPLICATE] = "Duplicate",
    [REASON_STRANGER] = "Stranger",
    [REASON_PORT_MISMATCH] = "PortMismatch",
    [REASON_NAME_MISMATCH] = "NameMismatch",
    [REASON_SLICE_DISAGREES] = "SliceDisagrees",
    [REASON_REPLICA_EXPECTED] = "ReplicaExpected",
    [REASON_REPLICAS_UNKNOWN] = "ReplicasUnknown",
    [REASON_UNCONFIRMED] = "Unconfirmed",
};

static const char *const converge_reasons[CONVERGE_REASONS] = {
    [CONVERGE_FINE] = "Fine",
    [CONVERGE_NOT_LEADER] = "NotLeader",
    [CONVERGE_UNREADABLE] = "Unreadable",
    [CONVERGE_RUNNING] = "CureRunning",
    [CONVERGE_SETTLING] = "Settling",
    [CONVERGE_RECOVERING] = "Recovering",
    [CONVERGE_SLOW] = "Slow",
    [CONVERGE_STUCK] = "Stuck",
    [CONVERGE_UNSURE] = "Unsure",
    [CONVERGE_UNKNOWN_ROW] = "UnknownRow",
    [CONVERGE_REBORN] = "Reborn",
    [CONVERGE_GHOST] = "Ghost",
    [CONVERGE_ORPHAN] = "Orphan",
    [CONVERGE_NO_EFFECT] = "NoEffect",
    [CONVERGE_GAVE_UP] = "GaveUp",
};

enum worker_type worker_type_of(const char *text)
{
    for (int i = 0; text && i < WORKER_OTHER; i++) {
        if (strcmp(text, types[i]) == 0)
            return (enum worker_type)i;
    }
    return WORKER_OTHER;
}

const char *worker_type_name(enum worker_type type)
{
    return types[type];
}

enum worker_status worker_status_of(const char *text)
{
    if (text && strcmp(text, "STARTING") == 0)
        return WORKER_STARTING;
    return text && strcmp(text, "RUNNING") == 0 ? WORKER_RUNNING : WORKER_STATUS_OTHER;
}

enum pod_owner pod_owner_of(const char *kind, const char *api_version)
{
    static const char kruise[] = "apps.kruise.io/";
    bool is_apps = api_version && strncmp(api_version, "apps/", 5) == 0;
    bool is_kruise = api_version && strncmp(api_version, kruise, sizeof(kruise) - 1) == 0;

    if (!kind)
        return POD_OWNER_NONE;
    if (is_apps && strcmp(kind, "ReplicaSet") == 0)
        return POD_OWNER_REPLICASET;
    if (is_apps && strcmp(kind, "StatefulSet") == 0)
        return POD_OWNER_STATEFULSET;
    if (is_kruise && strcmp(kind, "CloneSet") == 0)
        return POD_OWNER_CLONESET;
    if (is_kruise && strcmp(kind, "StatefulSet") == 0)
        return POD_OWNER_KRUISE_STATEFUL;
    return POD_OWNER_OTHER;
}

const char *worker_verdict_name(enum worker_verdict verdict)
{
    switch (verdict) {
    case VERDICT_UNKNOWN: return "UNKNOWN";
    case VERDICT_LIVE: return "LIVE";
    case VERDICT_GONE: return "GONE";
    }
    return "?";
}

const char *worker_reason_name(enum worker_reason reason)
{
    return reasons[reason];
}

const char *converge_cure_name(enum converge_cure cure)
{
    switch (cure) {
    case CURE_NONE: return "none";
    case CURE_RECOVER: return "recover";
    case CURE_RESTART_LEADER: return "restart leader";
    }
    return "?";
}

const char *converge_reason_name(enum converge_reason reason)
{
    return converge_reasons[reason];
}
