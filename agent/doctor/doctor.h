// SPDX-License-Identifier: Apache-2.0
#pragma once
// doctor: what the design assumes, each assumption held against what is there. Every check adds
// at least one finding, so that what was not looked at can't be taken for good. The checks ask
// nobody: agent/cli/doctor_cmd.c gathers, they judge.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;
struct config;
struct pg_survey;

#define DOCTOR_FINDINGS_MAX 96
#define DOCTOR_ARGS_MAX     64

enum doctor_level {
    DOCTOR_OK = 0,
    DOCTOR_WARN, // less cover, or less certain, than could be
    DOCTOR_BAD,  // a promise is not kept
    DOCTOR_SKIP, // not looked at; the text says why
};

struct doctor_finding {
    enum doctor_level level;
    const char *check; // literal, "postgres.guard": an interface
    char text[320];
    char fix[320]; // "" for DOCTOR_OK and DOCTOR_SKIP
};

struct doctor {
    struct doctor_finding list[DOCTOR_FINDINGS_MAX];
    size_t count;
};

void doctor_ok(struct doctor *doctor, const char *check, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void doctor_skip(struct doctor *doctor, const char *check, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
// `fix` is copied: what to do, as a sentence or a command.
void doctor_warn(struct doctor *doctor, const char *check, const char *fix, const char *fmt,
                 ...) __attribute__((format(printf, 4, 5)));
void doctor_bad(struct doctor *doctor, const char *check, const char *fix, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

const char *doctor_level_name(enum doctor_level level); // "ok", "warning", "failed", "skipped"
size_t doctor_count(const struct doctor *doctor, enum doctor_level level);

// What the agent says of itself, its cover and the Kubernetes API: the answer to `status`.
void doctor_agent(struct doctor *doctor, const struct cJSON *status,
                  const struct config *config);
// Schema, rights, guard, tags, time-outs and release of the meta store.
void doctor_postgres(struct doctor *doctor, const struct pg_survey *survey);
// Whether agent and schema agree on ordered recovery: the weaker of the two counts.
void doctor_recovery(struct doctor *doctor, const struct pg_survey *survey,
                     const struct config *config);
// The TOML that the metas read: lease and pool.
void doctor_meta_config(struct doctor *doctor, const char *text, const struct config *config);

// The arguments of metafence-run up to "--". Strings are borrowed.
struct doctor_shim {
    const char *args[DOCTOR_ARGS_MAX];
    size_t count;
};
// The value of "--name=value" or "--name value"; NULL: not given.
const char *doctor_shim_value(const struct doctor_shim *shim, const char *name);
void doctor_shim(struct doctor *doctor, const struct doctor_shim *shim,
                 const struct config *config);

// Users as they are seen to be, for what the pod does not say; -1: not seen.
struct doctor_users {
    int64_t agent;
    int64_t meta; // metafence-run's, who made its socket
};
// How the pod is put together: containers, users, volumes, probes.
void doctor_pod(struct doctor *doctor, const struct cJSON *pod, const struct config *config,
                const struct doctor_users *users);
// Whether a pod has the agent's container.
bool doctor_pod_has_agent(const struct cJSON *pod);
// Of a pod's meta container, as the sidecar's configuration names it; NULL: none is found.
const struct cJSON *doctor_pod_meta(const struct cJSON *pod, const struct config *config);

// For doctor_pod alone.
struct doctor_probes {
    const struct cJSON *meta, *sidecar; // containers
    const char *state;                  // metafence-run's --state; NULL: not known
    const struct config *config;
};
void doctor_probes(struct doctor *doctor, const struct doctor_probes *probes);
