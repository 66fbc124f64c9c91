// SPDX-License-Identifier: Apache-2.0
// How the pod is put together.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "agent/cli/client.h"
#include "agent/config.h"
#include "agent/doctor/doctor.h"
#include "agent/kube/order.h"
#include "base/buf.h"

#define SIDECAR "metafence"
#define SHIM    "metafence-run"

struct parts {
    const cJSON *pod;
    const cJSON *meta;
    const cJSON *sidecar;
    bool is_native; // the sidecar is one of initContainers that goes on
    const struct config *config;
    struct buf expanded; // the strings of `shim`, each with its NUL
    struct doctor_shim shim;
};

static const cJSON *named(const cJSON *list, const char *name)
{
    const cJSON *item = NULL;

    cJSON_ArrayForEach(item, list)
    {
        if (strcmp(client_text(item, "name"), name) == 0)
            return item;
    }
    return NULL;
}

static bool ends_with_program(const char *word, const char *program)
{
    const char *slash = strrchr(word, '/');

    return strcmp(slash ? slash + 1 : word, program) == 0;
}

static bool has_word(const cJSON *container, const char *list, const char *program)
{
    const cJSON *item = NULL;

    cJSON_ArrayForEach(item, client_get(container, list))
    {
        if (cJSON_IsString(item) && ends_with_program(item->valuestring, program))
            return true;
    }
    return false;
}

bool doctor_pod_has_agent(const cJSON *pod)
{
    return named(client_get(pod, "spec.initContainers"), SIDECAR) ||
           named(client_get(pod, "spec.containers"), SIDECAR);
}

const cJSON *doctor_pod_meta(const cJSON *pod, const struct config *config)
{
    bool is_shim = config->fence_method == FENCE_BY_SHIM;
    const char *word = is_shim ? SHIM : config->fence_command;
    const cJSON *item = NULL;

    cJSON_ArrayForEach(item, client_get(pod, "spec.containers"))
    {
        if (strcmp(client_text(item, "name"), SIDECAR) != 0 &&
            (has_word(item, "command", word) || has_word(item, "args", word)))
            return item;
    }
    return NULL;
}

// --- metafence-run's arguments ---

// $(POD_NAME) and its like, as the kubelet puts them in; what is not known stays.
static void put_expanded(struct buf *out, const char *text, const cJSON *pod)
{
    const struct {
        const char *name;
        const char *path;
    } known[] = {{"$(POD_NAME)", "metadata.name"},
                 {"$(POD_UID)", "metadata.uid"},
                 {"$(POD_NAMESPACE)", "metadata.namespace"},
                 {"$(POD_IP)", "status.podIP"}};

    while (*text) {
        size_t taken = 0;

        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && !taken; i++) {
            if (strncmp(text, known[i].name, strlen(known[i].name)) != 0)
                continue;
            buf_puts(out, client_text(pod, known[i].path));
            taken = strlen(known[i].name);
        }
        if (!taken) {
            buf_putc(out, *text);
            taken = 1;
        }
        text += taken;
    }
}

static size_t take_words(struct parts *parts, const char *list, size_t *ret_offsets,
                         size_t count)
{
    const cJSON *item = NULL;

    cJSON_ArrayForEach(item, client_get(parts->meta, list))
    {
        if (!cJSON_IsString(item) || count == DOCTOR_ARGS_MAX)
            continue;
        ret_offsets[count++] = parts->expanded.len;
        put_expanded(&parts->expanded, item->valuestring, parts->pod);
        buf_append(&parts->expanded, "", 1);
    }
    return count;
}

static void take_shim(struct parts *parts)
{
    size_t offsets[DOCTOR_ARGS_MAX];
    size_t count = take_words(parts, "command", offsets, 0);

    count = take_words(parts, "args", offsets, count);
    for (size_t i = 0; i < count; i++) {
        const char *word = parts->expanded.data + offsets[i];

        if (strcmp(word, "--") == 0)
            return;
        parts->shim.args[parts->shim.count++] = word;
    }
}

// --- users ---

// -1: neither said nor seen.
static double user_of(const cJSON *pod, const cJSON *container, int64_t seen)
{
    double own = client_number(container, "securityContext.runAsUser", -1);

    return own >= 0 ? own : client_number(pod, "spec.securityContext.runAsUser", (double)seen);
}

static void check_users(struct doctor *doctor, const struct parts *parts,
                        const struct doctor_users *users)
{
    double sidecar = user_of(parts->pod, parts->sidecar, users->agent);
    double meta = user_of(parts->pod, parts->meta, users->meta);
    const char *peer = doctor_shim_value(&parts->shim, "peer-uid");
    char fix[200], text[32];

    (void)snprintf(text, sizeof(text), "%.0f", sidecar);
    (void)snprintf(fix, sizeof(fix),
                   "runAsUser: %.0f in the securityContext of meta's container%s", sidecar,
                   parts->config->fence_method == FENCE_BY_SHIM
                       ? ", or metafence-run --peer-uid with the agent's user"
                       : "");
    if (peer && strcmp(peer, text) == 0)
        doctor_ok(doctor, "pod.users", "metafence-run lets user %s in", text);
    else if (peer)
        doctor_bad(doctor, "pod.users", fix,
                   "the agent is user %s, metafence-run lets only user %.20s in", text, peer);
    else if (meta < 0)
        doctor_warn(doctor, "pod.users", fix,
                    "meta's user is its image's (RisingWave's is root), the agent's is %s",
                    text);
    else if (meta != sidecar && (parts->config->fence_method == FENCE_BY_SHIM || sidecar != 0))
        doctor_bad(doctor, "pod.users", fix,
                   "meta is user %.0f, the agent is user %s: neither may kill nor talk to it",
                   meta, text);
    else
        doctor_ok(doctor, "pod.users", "both are user %s", text);
}

// --- the rest ---

static void check_sidecar(struct doctor *doctor, const struct parts *parts)
{
    if (!parts->is_native)
        doctor_bad(
            doctor, "pod.sidecar",
            "put it first into initContainers, with restartPolicy: Always",
            "the agent is an ordinary container: it may start after meta and stop before "
            "it");
    else
        doctor_ok(doctor, "pod.sidecar", "a native sidecar");
}

static void check_namespace(struct doctor *doctor, const struct parts *parts)
{
    bool is_shared = client_is_true(parts->pod, "spec.shareProcessNamespace");
    bool is_pidfd = parts->config->fence_method == FENCE_BY_PIDFD;

    if (is_pidfd && !is_shared)
        doctor_bad(doctor, "pod.process-namespace", "shareProcessNamespace: true in the pod",
                   "fence.method pidfd does not see meta without a shared PID namespace");
    else if (!is_pidfd && is_shared)
        doctor_warn(doctor, "pod.process-namespace", "leave shareProcessNamespace out",
                    "in a shared PID namespace metafence-run is not PID 1, and meta's "
                    "environment is readable beside it");
    else
        doctor_ok(doctor, "pod.process-namespace", is_pidfd ? "shared" : "meta's own");
}

// The mount of `container` that holds `path`, by the longest mountPath.
static const char *volume_of(const cJSON *container, const char *path)
{
    const cJSON *item = NULL;
    const char *best = NULL;
    size_t best_len = 0;

    cJSON_ArrayForEach(item, client_get(container, "volumeMounts"))
    {
        const char *mount = client_text(item, "mountPath");
        size_t len = strlen(mount);

        if (len > best_len && strncmp(path, mount, len) == 0 && path[len] == '/') {
            best = client_text(item, "name");
            best_len = len;
        }
    }
    return best;
}

static void check_volume(struct doctor *doctor, const struct parts *parts)
{
    const char *path = parts->config->fence_socket;
    const char *ours = volume_of(parts->sidecar, path);
    const char *theirs = volume_of(parts->meta, path);
    const cJSON *volume = NULL;
    char fix[200];

    (void)snprintf(fix, sizeof(fix),
                   "mount one emptyDir with medium: Memory in both, at %.100s", path);
    if (parts->config->fence_method == FENCE_BY_PIDFD) {
        doctor_skip(doctor, "pod.volume", "fence.method pidfd shares none");
        return;
    }
    if (!ours || !theirs || strcmp(ours, theirs) != 0) {
        doctor_bad(doctor, "pod.volume", fix,
                   "%.100s is in no volume that both containers mount", path);
        return;
    }
    volume = named(client_get(parts->pod, "spec.volumes"), ours);
    if (!client_get(volume, "emptyDir"))
        doctor_bad(doctor, "pod.volume", fix, "volume %.60s outlives the pod", ours);
    else if (strcmp(client_text(volume, "emptyDir.medium"), "Memory") != 0)
        doctor_warn(doctor, "pod.volume", fix, "volume %.60s is on a disk, which can hang",
                    ours);
    else
        doctor_ok(doctor, "pod.volume", "%.60s, in memory", ours);
}

// The value of an environment variable as it is written; NULL: not there, or from elsewhere.
static const char *env_of(const cJSON *container, const char *name)
{
    const cJSON *item = named(client_get(container, "env"), name);
    const char *value = client_text(item, "value");

    return item && *value ? value : NULL;
}

static void check_identity(struct doctor *doctor, const struct parts *parts)
{
    const char *given = env_of(parts->meta, "RW_ADVERTISE_ADDR");
    struct buf id = {0};

    if (given)
        put_expanded(&id, given, parts->pod);
    if (!given || strchr(buf_str(&id), '$'))
        doctor_skip(doctor, "pod.id", "the advertise address is not in meta's environment");
    else if (strcasecmp(buf_str(&id), parts->config->core.id) != 0)
        doctor_bad(doctor, "pod.id", "give the agent meta's own address, as id or METAFENCE_ID",
                   "meta is %.100s in the election, the agent guards %.100s", buf_str(&id),
                   parts->config->core.id);
    else
        doctor_ok(doctor, "pod.id", "%.100s", buf_str(&id));
    buf_done(&id);
}

static bool is_known_annotation(const char *key)
{
    return strcmp(key, KUBE_FENCE_KEY) == 0 || strcmp(key, KUBE_PAUSE_KEY) == 0 ||
           strcmp(key, CONFIG_IMAGE_ANNOTATION) == 0 || config_is_annotation(key);
}

// A word that nobody reads would be taken for one that counts.
static void check_annotations(struct doctor *doctor, const struct parts *parts)
{
    const cJSON *annotations = client_get(parts->pod, "metadata.annotations");
    const cJSON *image = cJSON_GetObjectItemCaseSensitive(annotations, CONFIG_IMAGE_ANNOTATION);
    const char *runs = client_text(parts->sidecar, "image");
    size_t before = doctor->count;
    const cJSON *item = NULL;

    cJSON_ArrayForEach(item, annotations)
    {
        if (strncmp(item->string, CONFIG_ANNOTATIONS, strlen(CONFIG_ANNOTATIONS)) == 0 &&
            !is_known_annotation(item->string))
            doctor_bad(doctor, "pod.annotations",
                       "docs/reference.md has all of them: correct its name, or remove it",
                       "nobody reads %.100s", item->string);
    }
    if (cJSON_IsString(image) && strcmp(image->valuestring, runs) != 0)
        doctor_bad(doctor, "pod.annotations",
                   "write a whole reference on the pods' template: it is read when a pod is "
                   "injected",
                   "%s is \"%.80s\", the sidecar runs %.80s", CONFIG_IMAGE_ANNOTATION,
                   image->valuestring, runs);
    if (doctor->count == before)
        doctor_ok(doctor, "pod.annotations", "each of " CONFIG_ANNOTATIONS " is known");
}

static void find_parts(struct parts *parts)
{
    const cJSON *native = named(client_get(parts->pod, "spec.initContainers"), SIDECAR);

    parts->sidecar = native;
    parts->is_native = native && strcmp(client_text(native, "restartPolicy"), "Always") == 0;
    if (!native)
        parts->sidecar = named(client_get(parts->pod, "spec.containers"), SIDECAR);
    parts->meta = doctor_pod_meta(parts->pod, parts->config);
    if (parts->meta && parts->config->fence_method == FENCE_BY_SHIM)
        take_shim(parts);
}

void doctor_pod(struct doctor *doctor, const cJSON *pod, const struct config *config,
                const struct doctor_users *users)
{
    struct parts parts = {.pod = pod, .config = config};
    bool is_shim = config->fence_method == FENCE_BY_SHIM;

    find_parts(&parts);
    if (!parts.sidecar)
        doctor_bad(doctor, "pod.sidecar", "add the sidecar, see charts/metafence/README.md",
                   "this pod has no container named " SIDECAR);
    if (!parts.meta)
        doctor_bad(doctor, "pod.meta",
                   is_shim ? "wrap meta's command: metafence-run … -- COMMAND"
                           : "set fence.command to an argument of meta's command",
                   is_shim ? "no container of this pod is started by metafence-run"
                           : "no container of this pod has fence.command in its command");
    if (parts.sidecar && parts.meta) {
        check_sidecar(doctor, &parts);
        check_users(doctor, &parts, users);
        check_namespace(doctor, &parts);
        check_volume(doctor, &parts);
        check_identity(doctor, &parts);
        check_annotations(doctor, &parts);
        doctor_probes(doctor,
                      &(struct doctor_probes){.meta = parts.meta,
                                              .sidecar = parts.sidecar,
                                              .state = doctor_shim_value(&parts.shim, "state"),
                                              .config = config});
        if (is_shim)
            doctor_shim(doctor, &parts.shim, config);
    }
    buf_done(&parts.expanded);
}
