// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/doctor_kube.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/cli/client.h"
#include "agent/config.h"
#include "agent/doctor/doctor.h"
#include "agent/kube/client.h"
#include "base/buf.h"
#include "base/loop.h"
#include "k8s/client.h"
#include "k8s/path.h"

#define SIBLINGS_MAX 16 // pods of the set that are looked at
#define API_FIX      "see kubernetes.server, tokenFile, caFile and the network policy"

// One request at a time.
struct asker {
    struct loop *loop;
    struct k8s *k8s;
    enum k8s_outcome outcome;
    cJSON *body; // of an answer that is K8S_OK
    struct err err;
};

static void on_answer(const struct k8s_result *result, void *arg)
{
    struct asker *asker = arg;

    asker->outcome = result->outcome;
    asker->err = result->err;
    if (result->outcome == K8S_OK)
        asker->body = cJSON_Duplicate(result->body, true);
    loop_stop(asker->loop);
}

static enum k8s_outcome ask(struct asker *asker, const struct k8s_call *call)
{
    cJSON_Delete(asker->body);
    asker->body = NULL;
    asker->outcome = K8S_NOT_SENT;
    (void)k8s_send(asker->k8s, call, on_answer, asker);
    // It ends with the request, which has its own time-out.
    if (loop_run(asker->loop, &asker->err) < 0)
        asker->outcome = K8S_NOT_SENT;
    return asker->outcome;
}

static enum k8s_outcome get_pod(struct asker *asker, const char *name)
{
    struct buf path = {0};
    enum k8s_outcome outcome = K8S_NOT_SENT;

    k8s_put_pods_path(&path, k8s_namespace(asker->k8s), name);
    outcome = ask(asker, &(struct k8s_call){.method = "GET", .path = buf_str(&path)});
    buf_done(&path);
    return outcome;
}

// --- rights ---

struct right {
    const char *verb;
    const char *group;
    const char *resource;
    bool is_needed;
};

// < 0: could not be asked; the finding says so.
static int ask_right(struct asker *asker, struct doctor *doctor, const struct right *right)
{
    struct buf body = {0};

    buf_puts(&body, "{\"apiVersion\":\"authorization.k8s.io/v1\","
                    "\"kind\":\"SelfSubjectAccessReview\",\"spec\":{\"resourceAttributes\":"
                    "{\"namespace\":");
    buf_put_json(&body, k8s_namespace(asker->k8s));
    buf_printf(&body, ",\"verb\":\"%s\",\"group\":\"%s\",\"resource\":\"%s\"}}}", right->verb,
               right->group, right->resource);
    (void)ask(asker, &(struct k8s_call){
                         .method = "POST",
                         .path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                         .content_type = "application/json",
                         .body = buf_str(&body)});
    buf_done(&body);
    if (asker->outcome != K8S_OK) {
        doctor_bad(doctor, "rbac", API_FIX, "rights can't be asked for: %.200s",
                   asker->err.msg);
        return -1;
    }
    return client_is_true(asker->body, "status.allowed");
}

static int check_rights(struct asker *asker, struct doctor *doctor, const struct config *config)
{
    bool reconciles = config->reconcile.mode != RECONCILE_OFF;
    bool deletes = config->fence_delete_pod ||
                   (config->recovery.mode == ORDER_ENFORCE && config->recovery.kill_nodes);
    const struct right rights[] = {
        {"get", "", "pods", true},
        {"list", "", "pods", true},
        {"watch", "", "pods", true},
        {"patch", "", "pods", true},
        {"delete", "", "pods", deletes},
        {"create", "events.k8s.io", "events", config->kubernetes.events},
        {"list", "discovery.k8s.io", "endpointslices", reconciles},
        {"list", "apps", "statefulsets", reconciles},
    };
    char fix[160];
    bool is_good = true;

    for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++) {
        const struct right *right = &rights[i];
        int allowed = right->is_needed ? ask_right(asker, doctor, right) : 1;

        if (allowed < 0)
            return -1;
        if (allowed)
            continue;
        is_good = false;
        (void)snprintf(fix, sizeof(fix),
                       "add verb %s on %s (apiGroup \"%s\") to the Role, or rbac.create: true",
                       right->verb, right->resource, right->group);
        doctor_bad(doctor, "rbac", fix, "the service account may not %s %s", right->verb,
                   right->resource);
    }
    if (is_good)
        doctor_ok(doctor, "rbac", "the service account has the rights that are needed");
    return 0;
}

// --- the policy ---

// A label that no agent has any business with, on our own pod, as a dry run: the policy is in
// force if that is refused.
static void check_policy(struct asker *asker, struct doctor *doctor, const char *pod)
{
    struct buf path = {0};

    k8s_put_pods_path(&path, k8s_namespace(asker->k8s), pod);
    buf_puts(&path, "?dryRun=All&fieldManager=metafence-doctor");
    (void)ask(asker,
              &(struct k8s_call){
                  .method = "PATCH",
                  .path = buf_str(&path),
                  .content_type = "application/merge-patch+json",
                  .body = "{\"metadata\":{\"labels\":{\"metafence.io/doctor\":\"x\"}}}"});
    buf_done(&path);
    if (asker->outcome == K8S_DENIED && strstr(asker->err.msg, "ValidatingAdmissionPolicy"))
        doctor_ok(doctor, "policy", "an agent is held to its own pod");
    else if (asker->outcome == K8S_OK)
        doctor_warn(doctor, "policy",
                    "admissionPolicy.enabled: true, on Kubernetes 1.30 or newer",
                    "no policy holds an agent to its own pod: whoever has its token may change "
                    "every pod of the namespace");
    else
        doctor_skip(doctor, "policy", "not known: %.200s", asker->err.msg);
}

// --- pods ---

// "meta-" of "meta-0", when a StatefulSet made it; 0 else.
static size_t set_prefix(const cJSON *pod)
{
    const char *name = client_text(pod, "metadata.name");
    const char *dash = strrchr(name, '-');
    const cJSON *owner = cJSON_GetArrayItem(client_get(pod, "metadata.ownerReferences"), 0);

    if (!dash || strcmp(client_text(owner, "kind"), "StatefulSet") != 0)
        return 0;
    return (size_t)(dash - name) + 1;
}

static void check_siblings(struct asker *asker, struct doctor *doctor, const cJSON *own)
{
    size_t prefix = set_prefix(own);
    char name[300];
    unsigned seen = 0;
    unsigned bare = 0;

    for (unsigned i = 0; prefix && i < SIBLINGS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "%.*s%u", (int)prefix,
                       client_text(own, "metadata.name"), i);
        if (get_pod(asker, name) != K8S_OK)
            break;
        seen++;
        if (doctor_pod_has_agent(asker->body))
            continue;
        bare++;
        doctor_bad(doctor, "siblings", "delete the pod once its StatefulSet has the sidecar",
                   "pod %.200s has no metafence: as a leader it is not guarded", name);
    }
    if (seen == 0)
        doctor_skip(doctor, "siblings", "this pod is not one of a StatefulSet");
    else if (!bare)
        doctor_ok(doctor, "siblings", "%u pods, each with metafence", seen);
}

static void check_pods(struct asker *asker, struct doctor *doctor, const struct config *config)
{
    struct doctor_users users = {.agent = (int64_t)geteuid(), .meta = -1};
    struct stat socket;
    cJSON *own = NULL;

    if (!config->pod_name[0] || get_pod(asker, config->pod_name) != K8S_OK) {
        doctor_bad(doctor, "pod", "see podName, kubernetes.namespace and the Role",
                   "pod %.100s can't be read: %.150s", config->pod_name, asker->err.msg);
        return;
    }
    own = asker->body;
    asker->body = NULL;
    if (strcmp(client_text(own, "metadata.uid"), config->pod_uid) != 0)
        doctor_bad(doctor, "pod.uid", "podUid comes from the pod: fieldPath metadata.uid",
                   "pod %.100s has uid %.60s, the configuration says %.60s", config->pod_name,
                   client_text(own, "metadata.uid"), config->pod_uid);
    if (stat(config->fence_socket, &socket) == 0)
        users.meta = (int64_t)socket.st_uid;
    doctor_pod(doctor, own, config, &users);
    check_siblings(asker, doctor, own);
    cJSON_Delete(own);
}

void doctor_kube(struct doctor *doctor, const struct config *config)
{
    struct asker asker = {0};
    struct kube_client_place place;

    if (loop_new(&asker.loop, &asker.err) < 0 ||
        kube_client_new(asker.loop, &config->kubernetes, &place, &asker.k8s, &asker.err) < 0) {
        doctor_bad(doctor, "api", API_FIX, "no client: %.200s", asker.err.msg);
    } else if (check_rights(&asker, doctor, config) == 0) {
        check_policy(&asker, doctor, config->pod_name);
        check_pods(&asker, doctor, config);
    }
    cJSON_Delete(asker.body);
    k8s_free(asker.k8s);
    loop_free(asker.loop);
}
