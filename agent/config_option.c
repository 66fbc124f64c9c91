// SPDX-License-Identifier: Apache-2.0
#include "agent/config_option.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "agent/config.h"

#define NAME_MAX_LEN 48 // longer keys are compared by their beginning

#define ENV_PREFIX "METAFENCE_"

#define MS NS_PER_MS
#define S  NS_PER_SEC
#define H  (INT64_C(3600) * NS_PER_SEC)

#define SERVICE_ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount"

#define AT(field) offsetof(struct config, field), sizeof(((struct config *)0)->field)

// clang-format off
#define TEXT(key, flags, fallback, env, field, doc) \
    {key, OPTION_TEXT, flags, fallback, 0, 0, NULL, env, AT(field), doc}
#define DURATION(key, fallback, min, max, field, doc) \
    {key, OPTION_DURATION, 0, fallback, min, max, NULL, NULL, AT(field), doc}
#define PER_POD(key, fallback, min, max, env, field, doc) \
    {key, OPTION_DURATION, OPTION_PER_POD, fallback, min, max, NULL, env, AT(field), doc}
#define NUMBER(key, fallback, min, max, field, doc) \
    {key, OPTION_NUMBER, 0, fallback, min, max, NULL, NULL, AT(field), doc}

const struct config_option config_options[] = {
    TEXT("id", OPTION_REQUIRED | OPTION_NO_SPACE, NULL, "METAFENCE_ID", core.id,
         "meta's advertise address, as it stands in the election row"),
    TEXT("podUid", OPTION_NO_SPACE, NULL, "POD_UID", pod_uid, "uid of the own pod"),
    TEXT("podName", OPTION_NO_SPACE, NULL, "POD_NAME", pod_name, "name of the own pod"),
    {"onSilence", OPTION_CHOICE, 0, "auto", 0, 0, "auto|fence", NULL, AT(core.on_silence),
     "when the lease runs out unseen: auto holds a provably single replica, fence never does"},
    {"notify", OPTION_BOOL, 0, "true", 0, 0, NULL, NULL, AT(notify),
     "listen for the term trigger's NOTIFY, besides polling"},
    {"logLevel", OPTION_CHOICE_TEXT, OPTION_PER_POD, "info", 0, 0, "debug|info|warn|error",
     "METAFENCE_LOG_LEVEL", AT(log_level), "lines below this level are not written"},

    TEXT("postgres.host", OPTION_REQUIRED | OPTION_NO_SPACE, NULL, NULL, postgres.host,
         "host name or address of the meta store's Postgres"),
    NUMBER("postgres.port", "5432", 1, 65535, postgres.port, "its port"),
    TEXT("postgres.database", OPTION_REQUIRED, NULL, NULL, postgres.database,
         "database of the meta store"),
    TEXT("postgres.user", OPTION_REQUIRED, NULL, NULL, postgres.user, "role to connect as"),
    TEXT("postgres.passwordFile", OPTION_ABSOLUTE, NULL, NULL, postgres.password_file,
         "file whose first line is the password, read at each connect; without it PGPASSWORD is used"),
    {"postgres.sslmode", OPTION_CHOICE_TEXT, 0, "prefer", 0, 0,
     "disable|allow|prefer|require|verify-ca|verify-full", NULL, AT(postgres.sslmode),
     "as in libpq"},
    TEXT("postgres.sslRootCert", OPTION_ABSOLUTE, NULL, NULL, postgres.ssl_root_cert,
         "certificates of the authorities that may sign the server's"),
    PER_POD("postgres.connectTimeout", "2s", 10 * MS, 60 * S, "METAFENCE_CONNECT_TIMEOUT",
            core.connect_timeout_ns,
            "for a new connection, authentication included"),
    PER_POD("postgres.queryTimeout", "2s", 10 * MS, 60 * S, "METAFENCE_QUERY_TIMEOUT",
            core.query_timeout_ns,
            "for a read; after half of it a second connection is tried"),
    TEXT("postgres.applicationName", OPTION_REQUIRED, "metafence", NULL,
         postgres.application_name, "application_name of the agent's own sessions"),

    TEXT("election.service", OPTION_REQUIRED, "__meta_election_", NULL, election.service,
         "key of the election row"),
    TEXT("election.leaderTable", OPTION_REQUIRED | OPTION_TABLE, "election_leader", NULL,
         election.leader_table, "table with the election row"),
    TEXT("election.memberTable", OPTION_REQUIRED | OPTION_TABLE, "election_member", NULL,
         election.member_table, "table with the members"),
    DURATION("election.ttl", "30s", 1 * S, 24 * H, core.ttl_ns,
             "meta_leader_lease_secs of the metas: must be the same number"),

    PER_POD("timing.poll", "250ms", 10 * MS, 1 * H, "METAFENCE_POLL", core.poll_ns,
            "between two reads"),
    DURATION("timing.renewGap", "3s", 100 * MS, 60 * S, core.renew_gap_ns,
             "longest pause between two renewals of a healthy leader"),
    DURATION("timing.margin", "2s", 10 * MS, 60 * S, core.margin_ns,
             "kept between the deadline and the end of the lease"),
    DURATION("timing.killBudget", "500ms", 10 * MS, 60 * S, core.kill_budget_ns,
             "time that a kill may take until death is confirmed"),
    DURATION("timing.maxClockJump", "1s", 10 * MS, 1 * H, core.max_clock_jump_ns,
             "a larger jump of a clock voids the proof of leadership"),
    DURATION("timing.phantomAfter", "60s", 100 * MS, 1 * H, core.phantom_after_ns,
             "a meta that owns the row for so long without leading is a phantom"),
    DURATION("timing.promoteAfter", "10m", 1 * S, 24 * H, core.promote_after_ns,
             "longest promotion"),

    DURATION("timing.confirmAfter", "30s", 1 * S, 1 * H, core.confirm_after_ns,
             "a meta that has to be dead and is not is then fenced by deleting its pod"),

    {"fence.method", OPTION_CHOICE, 0, "shim", 0, 0, "shim|pidfd", NULL, AT(fence_method),
     "shim: metafence-run is meta's parent; pidfd: the weaker way, in a shared PID namespace"},
    TEXT("fence.command", OPTION_REQUIRED, "meta-node", NULL, fence_command,
         "pidfd: the argument by which a process is known as meta"),
    TEXT("fence.metafenceRun", OPTION_ABSOLUTE, NULL, "METAFENCE_RUN", metafence_run,
         "where to put a copy of metafence-run for meta's container; empty: nowhere"),
    {"fence.deletePod", OPTION_BOOL, 0, "true", 0, 0, NULL, NULL, AT(fence_delete_pod),
     "the last method: delete the own pod through the Kubernetes API"},
    TEXT("fence.socket", OPTION_REQUIRED | OPTION_ABSOLUTE, "/run/metafence/fence.sock", NULL,
         fence_socket, "where metafence-run listens"),
    NUMBER("meta.servicePort", "5690", 1, 65535, meta_service_port, "meta's gRPC port in this pod"),
    NUMBER("meta.metricsPort", "1250", 1, 65535, meta_metrics_port,
           "pidfd: meta's port for metrics, which only a leader opens"),
    NUMBER("meta.dashboardPort", "5691", 1, 65535, meta_dashboard_port,
           "pidfd: meta's port for the dashboard, which only a leader opens"),
    TEXT("control.socket", OPTION_REQUIRED | OPTION_ABSOLUTE, "/run/metafence/agent.sock", NULL,
         control_socket, "where the agent answers the command line"),

    TEXT("http.address", OPTION_NO_SPACE, NULL, NULL, http_address,
         "where probes and metrics are served; empty: all addresses"),
    {"http.port", OPTION_NUMBER, 0, "9690", 0, 65535, NULL, "METAFENCE_HTTP_PORT", AT(http_port),
     "its port; 0 serves none"},

    {"kubernetes.enabled", OPTION_CHOICE, 0, "auto", 0, 0, "auto|on|off", NULL,
     AT(kubernetes.enabled), "auto: on in a pod with a service account"},
    TEXT("kubernetes.server", OPTION_NO_SPACE, NULL, NULL, kubernetes.server,
         "URL of the API server; empty: as the pod's environment says"),
    TEXT("kubernetes.namespace", OPTION_NO_SPACE, NULL, "POD_NAMESPACE", kubernetes.name_space,
         "of the own pod; empty: the service account's"),
    TEXT("kubernetes.tokenFile", OPTION_ABSOLUTE, SERVICE_ACCOUNT "/token", NULL,
         kubernetes.token_file, "bearer token, read again when it is rotated"),
    TEXT("kubernetes.caFile", OPTION_ABSOLUTE, SERVICE_ACCOUNT "/ca.crt", NULL, kubernetes.ca_file,
         "certificates of the authorities that may sign the API server's"),
    TEXT("kubernetes.roleLabel", OPTION_NO_SPACE, "risingwave/meta-role", NULL,
         kubernetes.role_label, "second label for the role, besides metafence.io/role; empty: none"),
    {"kubernetes.onConflict", OPTION_CHOICE, 0, "yield", 0, 0, "yield|observe", NULL,
     AT(kubernetes.on_conflict),
     "yield: leave roleLabel to another writer of it; observe: never write it"},
    DURATION("kubernetes.resync", "5m", 1 * S, 24 * H, kubernetes.resync_ns,
             "labels are compared and repaired so often without a change"),
    DURATION("kubernetes.requestTimeout", "5s", 100 * MS, 60 * S, kubernetes.timeout_ns,
             "for one request"),
    {"kubernetes.events", OPTION_BOOL, 0, "true", 0, 0, NULL, NULL, AT(kubernetes.events),
     "write events about the own pod"},

    {"reconcile.mode", OPTION_CHOICE, 0, "enforce", 0, 0, "off|observe|enforce", NULL,
     AT(reconcile.mode),
     "enforce: the leader's agent removes the rows of workers that are proven gone and mends a leader"
     " whose memory differs; observe: it only says what it would do"},
    TEXT("reconcile.workerSelector", OPTION_REQUIRED,
         "risingwave/component in (compute,frontend,compactor,standalone)", NULL,
         reconcile.worker_selector, "label selector of the workers' pods in the own namespace"),
    DURATION("reconcile.interval", "10s", 100 * MS, 1 * H, reconcile.interval_ns,
             "between two comparisons of the worker rows with the pods"),
    DURATION("reconcile.confirmAfter", "30s", 100 * MS, 1 * H, reconcile.confirm_after_ns,
             "two complete looks so far apart must agree that a worker is gone"),
    NUMBER("reconcile.maxPercent", "10", 1, 100, reconcile.max_percent,
           "of the rows of a type that one pass may remove, at least one"),
    DURATION("reconcile.startingGrace", "2m", 1 * S, 1 * H, reconcile.starting_grace_ns,
             "a row in status STARTING is left alone for so long"),
    DURATION("reconcile.recoverTimeout", "60s", 1 * S, 1 * H, reconcile.recover_timeout_ns,
             "how long the answer of a recovery is waited for"),

    {"recovery.mode", OPTION_CHOICE, 0, "observe", 0, 0, "off|observe|enforce", NULL,
     AT(recovery.mode),
     "enforce: the agent resets compute nodes before their state tables are purged, and holds the purge"
     " and the start of its own meta for that; observe: it only says what is pending"},
    {"recovery.policy", OPTION_CHOICE, 0, "open", 0, 0, "open|hold", NULL, AT(recovery.policy),
     "when recovery.maxHold has passed: open lets the purge pass, said loudly; hold goes on refusing it"},
    DURATION("recovery.maxHold", "60s", 2 * S, 1 * H, recovery.max_hold_ns,
             "a purge is held for so long, from the first attempt of its recovery"),
    DURATION("recovery.resetBeforeStart", "15s", 100 * MS, 10 * 60 * S,
             recovery.reset_before_start_ns,
             "after its leader's death a meta is not started for so long at most, until all compute nodes have reset"),
    DURATION("recovery.initTimeout", "20s", 100 * MS, 10 * 60 * S, recovery.init_timeout_ns,
             "how long one reset of a compute node is waited for before it is asked again"),
    {"recovery.killNodes", OPTION_BOOL, 0, "false", 0, 0, NULL, NULL, AT(recovery.kill_nodes),
     "opt-in: the pod of a compute node that holds a purge because its actors don't end is deleted"},
    DURATION("recovery.killAfter", "30s", 1 * S, 1 * H, recovery.kill_after_ns,
             "with recovery.killNodes: so long after the node got a reset that it has not answered"),
};
// clang-format on

const size_t config_option_count = sizeof(config_options) / sizeof(config_options[0]);
static_assert(sizeof(config_options) / sizeof(config_options[0]) <= CONFIG_OPTIONS_MAX,
              "struct config has too few origins");

static char letter_of_annotation(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c - 'A' + 'a');
    return c == '_' ? '-' : c;
}

char *config_annotation(const struct config_option *option, char *buf, size_t size)
{
    size_t used = 0;

    assert((option->flags & OPTION_PER_POD) && strlen(option->env) > strlen(ENV_PREFIX));
    used =
        (size_t)snprintf(buf, size, CONFIG_ANNOTATIONS "%s", option->env + strlen(ENV_PREFIX));
    assert(used < size);
    for (size_t i = strlen(CONFIG_ANNOTATIONS); i < used; i++)
        buf[i] = letter_of_annotation(buf[i]);
    return buf;
}

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;

    return least < c ? least : c;
}

// Levenshtein distance of the first NAME_MAX_LEN bytes.
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_LEN + 1];
    size_t a_len = strnlen(a, NAME_MAX_LEN);
    size_t b_len = strnlen(b, NAME_MAX_LEN);

    for (size_t j = 0; j <= b_len; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t above = row[j];
            size_t changed = a[i - 1] != b[j - 1];

            row[j] = min3(row[j - 1] + 1, above + 1, diagonal + changed);
            diagonal = above;
        }
    }
    return row[b_len];
}

static const char *leaf_of(const char *key)
{
    const char *dot = strrchr(key, '.');

    return dot ? dot + 1 : key;
}

// A wrong or missing section costs one step, whatever its length.
static size_t key_distance(const char *key, const char *known)
{
    size_t whole = distance(key, known);
    size_t leaf = distance(leaf_of(key), leaf_of(known)) + 1;

    return whole < leaf ? whole : leaf;
}

const char *config_nearest(const char *key)
{
    const char *nearest = NULL;
    size_t best = strlen(leaf_of(key)) / 3 + 2; // farther is no help

    for (size_t i = 0; i < config_option_count; i++) {
        size_t d = key_distance(key, config_options[i].key);

        if (d < best) {
            best = d;
            nearest = config_options[i].key;
        }
    }
    return nearest;
}
