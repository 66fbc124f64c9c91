// SPDX-License-Identifier: Apache-2.0
#pragma once
// config: what an operator can set. One table of options yields parsing, ranges, defaults,
// environment overrides, `config show` and the help text; nothing else knows an option's name.
// The parser works on bytes and reads no file, so that it can be fuzzed. Invariant: a struct
// config that config_parse filled is whole, in range, and its timing keeps P1. It holds no
// secret: agent/pg reads the password where it is used.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/core/decide.h"
#include "agent/reconcile/verdict.h"
#include "agent/recovery/order.h"
#include "base/err.h"

struct buf;

#define CONFIG_FILE_MAX    (64 * 1024) // bytes
#define CONFIG_PATH_SIZE   1024
#define CONFIG_SOCKET_SIZE 108 // sun_path
#define CONFIG_NAME_SIZE   64  // Postgres cuts identifiers at 63 bytes
#define CONFIG_OPTIONS_MAX 64
#define CONFIG_ERROR_SIZE  256

// What a pod's own annotations are called; some options, and the image, which the injection
// reads, may be said there.
#define CONFIG_ANNOTATIONS      "metafence.io/"
#define CONFIG_IMAGE_ANNOTATION CONFIG_ANNOTATIONS "image"
#define CONFIG_ANNOTATION_SIZE  64

enum config_source {
    CONFIG_FROM_DEFAULT = 0,
    CONFIG_FROM_FILE,
    CONFIG_FROM_ENV,
};

struct config_postgres {
    char host[256];
    int64_t port;
    char database[CONFIG_NAME_SIZE];
    char user[CONFIG_NAME_SIZE];
    char password_file[CONFIG_PATH_SIZE]; // empty: PGPASSWORD of the start, or none
    char sslmode[16];
    char ssl_root_cert[CONFIG_PATH_SIZE];
    char application_name[CONFIG_NAME_SIZE];
};

struct config_election {
    char service[CONFIG_NAME_SIZE];
    char leader_table[2 * CONFIG_NAME_SIZE]; // [schema.]table
    char member_table[2 * CONFIG_NAME_SIZE];
};

enum kubernetes_enabled { KUBERNETES_AUTO = 0, KUBERNETES_ON, KUBERNETES_OFF };
enum on_conflict { ON_CONFLICT_YIELD = 0, ON_CONFLICT_OBSERVE };

struct config_kubernetes {
    enum kubernetes_enabled enabled;
    char server[256];
    char name_space[64];
    char token_file[CONFIG_PATH_SIZE];
    char ca_file[CONFIG_PATH_SIZE];
    char role_label[318]; // prefix (253), slash, name (63)
    enum on_conflict on_conflict;
    int64_t resync_ns;
    int64_t timeout_ns;
    bool events;
};

// Keeping the worker rows true to the endpoints that live.
struct config_reconcile {
    enum reconcile_mode mode;
    char worker_selector[512];
    int64_t interval_ns;
    int64_t confirm_after_ns;
    int64_t max_percent; // of a type, in one pass
    int64_t starting_grace_ns;
    int64_t recover_timeout_ns;
};

// Nothing is reclaimed before every compute node has reset.
enum recovery_policy_choice { RECOVERY_POLICY_OPEN = 0, RECOVERY_POLICY_HOLD };

struct config_recovery {
    enum order_mode mode;
    enum recovery_policy_choice policy;
    int64_t max_hold_ns;
    int64_t reset_before_start_ns;
    int64_t init_timeout_ns;
    bool kill_nodes;
    int64_t kill_after_ns;
};

enum fence_method_choice { FENCE_BY_SHIM = 0, FENCE_BY_PIDFD };

struct config {
    struct core_config core;
    char pod_uid[64];
    char pod_name[254];
    struct config_postgres postgres;
    struct config_election election;
    struct config_kubernetes kubernetes;
    struct config_reconcile reconcile;
    struct config_recovery recovery;
    enum fence_method_choice fence_method;
    char fence_command[CONFIG_NAME_SIZE];
    char metafence_run[CONFIG_PATH_SIZE];
    bool fence_delete_pod;
    char http_address[64];
    int64_t http_port;
    char fence_socket[CONFIG_SOCKET_SIZE];
    char control_socket[CONFIG_SOCKET_SIZE];
    int64_t meta_service_port;
    int64_t meta_metrics_port;
    int64_t meta_dashboard_port;
    bool notify;
    char log_level[8];
    // What is wrong with the pod's own annotations, none of which holds then; "": nothing.
    char override_error[CONFIG_ERROR_SIZE];
    // Where each option's value came from, in the order of the table; line is 0 unless from a
    // file.
    struct {
        enum config_source source;
        int line;
    } origin[CONFIG_OPTIONS_MAX];
};

// Looks an environment variable up; NULL when it is not set. A parameter so that tests own it.
typedef const char *config_getenv(const char *name, void *arg);

// What to parse: `len` bytes of YAML and the name that messages call them by.
struct config_input {
    const char *name;
    const char *bytes;
    size_t len;
    config_getenv *getenv; // NULL: no environment
    void *getenv_arg;
};

// The built-in values. They name no meta and no database: good enough to answer on the sockets
// only.
void config_defaults(struct config *ret);

// Parses and checks everything, including core_config_check. On success *ret is wholly
// overwritten; what the pod's own annotations say counts if all of it can be read and fits into
// the lease, else none of it does and override_error has the reason. On failure *ret holds what
// could be understood before and after the mistake, over the defaults: only where to listen
// (control, HTTP), where metafence-run is and where its copy goes may be used of it. Errors:
// INVALID, "FILE:line:column: key: what is wrong, the fix".
must_check int config_parse(const struct config_input *input, struct config *ret,
                            struct err *err);

// Reads a whole file of at most CONFIG_FILE_MAX bytes. Errors: INVALID (too large, not a file),
// DENIED (missing or unreadable). Blocks for as long as the disk does; called at start only.
must_check int config_read_file(const char *path, struct buf *ret_bytes, struct err *err);

// config_read_file and config_parse with the process environment, which holds without a file,
// too.
must_check int config_load(const char *path, struct config *ret, struct err *err);

// Whether an annotation of the pod is one of those that say an option for it.
bool config_is_annotation(const char *key);
// How many options the pod's own annotations have said.
size_t config_override_count(const struct config *config);

// What `config show` prints: valid YAML, each line with its value's origin, never a secret.
// `password_in_env` only says where the password would come from.
void config_show_yaml(const struct config *config, bool password_in_env, struct buf *out);
// The same as one JSON object {"key": {"value":…, "source":"…"}, …}.
void config_show_json(const struct config *config, bool password_in_env, struct buf *out);
// All options with type, default and meaning, for `config options`.
void config_describe(struct buf *out);
// The same as a JSON array of {"key", "type", "default", "required", "environment", "doc"}.
void config_describe_json(struct buf *out);
