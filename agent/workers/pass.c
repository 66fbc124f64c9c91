// SPDX-License-Identifier: Apache-2.0
// One pass: everything is read, rows first, then judged. A part that could not be read whole is
// handed in as incomplete: then nothing is proven, and each confirmation begins anew.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/workers/parts.h"
#include "base/log.h"
#include "k8s/path.h"
#include "k8s/slice.h"
#include "k8s/statefulset.h"

#define ROWS_AT_FIRST   256
#define PODS_AT_FIRST   256
#define FAILED_AGAIN_NS (2 * NS_PER_SEC)
#define ROWS_A_STEP     256 // between two looks at the clock

// --- what is remembered ---

static void make_memory(struct workers_pass *pass, uint32_t rows, uint32_t pods)
{
    struct reconcile_memory memory = {0};
    void *block = malloc(reconcile_memory_bytes(rows, pods));

    if (!block)
        abort();
    reconcile_memory_init(&memory, block, rows, pods);
    if (pass->block)
        reconcile_memory_move(&memory, &pass->memory);
    free(pass->block);
    pass->memory = memory;
    pass->block = block;
}

void pass_fit_memory(struct workers_pass *pass)
{
    const struct worker_snapshot *snapshot = &pass->gather.snapshot;
    uint32_t rows = ROWS_AT_FIRST;
    uint32_t pods = PODS_AT_FIRST;

    if (reconcile_memory_fits(&pass->memory, snapshot->row_count, snapshot->pod_count))
        return;
    while (rows < 2 * snapshot->row_count || rows < 2 * pass->memory.row_count)
        rows *= 2;
    while (pods < 2 * snapshot->pod_count || pods < 2 * pass->memory.pod_count)
        pods *= 2;
    make_memory(pass, rows, pods);
}

// --- changes of pods between two passes ---

static int on_change(const struct k8s_change *change, void *arg, struct err *err)
{
    struct workers *workers = arg;
    struct worker_pod pod;

    if (gather_pod_of(change->object, kube_release(workers->agent->kube), &pod, err) < 0)
        return -1;
    judge_saw_pod(&workers->pass, &pod, change->kind == K8S_CHANGE_DELETED);
    return 0;
}

static void on_lost(const struct err *err, void *arg)
{
    (void)arg; // the next list begins it again
    log_info("reconcile: changes of pods may have been missed", kv_err(err));
}

static const struct k8s_follow_ops follow_ops = {on_change, on_lost};

// --- reading ---

static void incomplete(struct workers_pass *pass, const char *what, const char *why)
{
    if (!pass->error[0])
        (void)snprintf(pass->error, sizeof(pass->error), "%s: %.150s", what, why);
}

int64_t pass_wait_ns(const struct workers_pass *pass, int64_t interval_ns)
{
    int64_t wait_ns = FAILED_AGAIN_NS;

    for (unsigned i = 1; i < pass->failed && wait_ns < interval_ns; i++)
        wait_ns *= 2;
    if (pass->failed == 0 || wait_ns > interval_ns)
        wait_ns = interval_ns;
    return pass->retry_after_ns > wait_ns ? pass->retry_after_ns : wait_ns;
}

static void end_reading(struct workers *workers)
{
    struct workers_pass *pass = &workers->pass;

    if (!workers_may_act(workers)) {
        workers_end_round(workers, "leadership was lost in a pass");
        return;
    }
    pass->failed = pass->error[0] ? pass->failed + 1 : 0;
    pass->next_at = instant_add(
        clock_now(), pass_wait_ns(pass, workers->agent->config.reconcile.interval_ns));
    judge_begin(workers);
}

static const char *list_name(enum pass_list list)
{
    switch (list) {
    case PASS_PODS: return "pods";
    case PASS_SLICES: return "endpointslices";
    case PASS_SETS: return "statefulsets";
    case PASS_KRUISE_SETS:
    case PASS_LISTS: break;
    }
    return "statefulsets of apps.kruise.io";
}

static bool *complete_of(struct workers_pass *pass)
{
    struct worker_snapshot *snapshot = &pass->gather.snapshot;

    switch (pass->at) {
    case PASS_PODS: return &snapshot->pods_complete;
    case PASS_SLICES: return &snapshot->endpoints_complete;
    case PASS_SETS: return &snapshot->sets_complete;
    case PASS_KRUISE_SETS:
    case PASS_LISTS: break;
    }
    return &snapshot->kruise_sets_complete;
}

static void list_next(struct workers *workers);

static int on_item(const struct cJSON *object, void *arg, struct err *err)
{
    struct workers *workers = arg;
    struct workers_pass *pass = &workers->pass;

    switch (pass->at) {
    case PASS_PODS:
        return gather_pod(&pass->gather, object, kube_release(workers->agent->kube), err);
    case PASS_SLICES: return gather_slice(&pass->gather, object, err);
    case PASS_SETS: return gather_set(&pass->gather, object, false, err);
    case PASS_KRUISE_SETS:
    case PASS_LISTS: break;
    }
    return gather_set(&pass->gather, object, true, err);
}

static void on_list(const struct k8s_list_result *result, void *arg)
{
    struct workers *workers = arg;
    struct workers_pass *pass = &workers->pass;
    bool is_no_such_kind = pass->at == PASS_KRUISE_SETS && result->outcome == K8S_NOT_FOUND;

    pass->list = NULL;
    if (result->retry_after_ns > pass->retry_after_ns)
        pass->retry_after_ns = result->retry_after_ns;
    *complete_of(pass) = result->outcome == K8S_OK || is_no_such_kind;
    if (!*complete_of(pass))
        incomplete(pass, list_name(pass->at), result->err.msg);
    else if (pass->at == PASS_PODS && k8s_follow_is_lost(pass->follow))
        k8s_follow_begin(pass->follow, result->version);
    pass->at++;
    list_next(workers);
}

static const struct k8s_list_ops list_ops = {on_item, on_list};

static void put_list_path(const struct workers *workers, struct buf *path)
{
    const char *name_space = k8s_namespace(kube_client(workers->agent->kube));
    enum k8s_set_kind kind = K8S_SET_STATEFULSET;

    switch (workers->pass.at) {
    case PASS_PODS: k8s_put_pods_path(path, name_space, NULL); return;
    case PASS_SLICES:
        k8s_put_collection_path(path, K8S_SLICES_GROUP, name_space, "endpointslices");
        return;
    case PASS_SETS: break;
    case PASS_KRUISE_SETS:
    case PASS_LISTS: kind = K8S_SET_KRUISE_STATEFULSET; break;
    }
    k8s_put_collection_path(path, k8s_set_group(kind), name_space, k8s_set_resource(kind));
}

static void list_next(struct workers *workers)
{
    static const char *const kinds[PASS_LISTS] = {
        [PASS_PODS] = "PodList",
        [PASS_SLICES] = "EndpointSliceList",
        [PASS_SETS] = "StatefulSetList",
        [PASS_KRUISE_SETS] = "StatefulSetList",
    };
    struct workers_pass *pass = &workers->pass;
    struct buf path = {0};

    if (pass->at == PASS_LISTS) {
        end_reading(workers);
        return;
    }
    put_list_path(workers, &path);
    const struct k8s_list_call call = {
        .path = buf_str(&path),
        .kind = kinds[pass->at],
        .selector =
            pass->at == PASS_PODS ? workers->agent->config.reconcile.worker_selector : NULL,
    };
    pass->list = k8s_list_begin(kube_client(workers->agent->kube), &call, &list_ops, workers);
    buf_done(&path);
}

static void begin_lists(struct workers *workers)
{
    struct workers_pass *pass = &workers->pass;

    if (!kube_knows_us(workers->agent->kube)) {
        incomplete(pass, "pods",
                   pass->follow ? "the API has not shown our own pod yet"
                                : "there is no Kubernetes to ask");
        end_reading(workers);
        return;
    }
    pass->at = PASS_PODS;
    list_next(workers);
}

static int take_entries(struct gather *gather, const struct pg_reply *reply, struct err *err)
{
    const char *fields[STORE_ENTRY_FIELDS];
    struct store_entry entry;

    for (size_t i = 0; i < pg_answer_rows(reply); i++) {
        if (pg_answer_row(reply, i, fields, STORE_ENTRY_FIELDS, err) < 0 ||
            store_parse_entry(fields, &entry, err) < 0)
            return -1;
        gather_entry(gather, &entry);
    }
    return 0;
}

static void on_log(const struct pg_reply *reply, void *arg)
{
    struct workers *workers = arg;
    struct err err = {0};

    if (reply->fault.kind != PG_OK) {
        workers_end_fault(workers, "log of changes", &reply->fault, NULL);
        return;
    }
    gather_known(&workers->pass.gather, workers->state.is_known);
    if (take_entries(&workers->pass.gather, reply, &err) < 0) {
        workers_end_fault(workers, "log of changes", NULL, &err);
        return;
    }
    begin_lists(workers);
}

static int take_row(struct workers_pass *pass, struct err *err)
{
    const char *fields[STORE_ROW_FIELDS];

    if (pg_answer_row(&pass->rows, pass->row_at++, fields, STORE_ROW_FIELDS, err) < 0)
        return -1;
    return gather_row(&pass->gather, fields, err);
}

// A hundred thousand rows are as much work to read as to judge.
static void take_rows(struct workers *workers)
{
    struct workers_pass *pass = &workers->pass;
    const char *params[] = {workers->agent->config.election.service};
    const struct pg_request request = {
        .sql = store_sql_log, .param_count = 1, .params = params, .is_read = true};
    struct instant until = instant_add(clock_now(), PASS_SLICE_NS);
    size_t count = pg_answer_rows(&pass->rows);
    struct err err = {0};
    int status = 0;

    while (status == 0 && pass->row_at < count) {
        status = take_row(pass, &err);
        if (pass->row_at % ROWS_A_STEP == 0 && instant_reached(clock_now(), until))
            break;
    }
    if (status == 0 && pass->row_at < count) {
        loop_timer_arm(pass->step_timer, 0);
        return;
    }
    pg_answer_drop(&pass->rows);
    if (status < 0) {
        workers_end_fault(workers, "worker rows", NULL, &err);
        return;
    }
    pass->gather.snapshot.rows_complete = true;
    (void)workers_ask(workers, &request, on_log);
}

static void on_rows(const struct pg_reply *reply, void *arg)
{
    struct workers *workers = arg;
    struct workers_pass *pass = &workers->pass;

    if (reply->fault.kind != PG_OK) {
        workers_end_fault(workers, "worker rows", &reply->fault, NULL);
        return;
    }
    pass->gather.snapshot.taken_at = reply->sent_at;
    pg_answer_keep(reply, &pass->rows);
    pass->row_at = 0;
    take_rows(workers);
}

static void on_step(void *arg)
{
    struct workers *workers = arg;

    if (workers->pass.is_judging)
        judge_step(workers);
    else
        take_rows(workers);
}

// No pass was due. Nothing "works again" as long as the last one failed.
static void end_round_without(struct workers *workers)
{
    if (!workers->pass.has_failed) {
        workers_end_round(workers, NULL);
        return;
    }
    workers->is_busy = false;
    workers->rounds++;
}

void pass_run(struct workers *workers)
{
    struct workers_pass *pass = &workers->pass;
    const struct pg_request request = {.sql = store_sql_rows, .is_read = true};

    if (!pass->is_ordered && !pass->is_recheck &&
        !instant_reached(clock_now(), pass->next_at)) {
        end_round_without(workers);
        return;
    }
    pass->runs_dry = pass->is_ordered && pass->is_dry && !pass->is_recheck;
    pass->is_ordered = pass->is_ordered && pass->is_recheck;
    pass->has_judged = false;
    pass->has_failed = true; // until it is through
    pass->error[0] = '\0';
    pass->retry_after_ns = 0;
    gather_clear(&pass->gather);
    // One that fails comes again soon.
    pass->next_at = instant_add(clock_now(), FAILED_AGAIN_NS);
    (void)workers_ask(workers, &request, on_rows);
}

// --- life ---

void pass_init(struct workers *workers)
{
    workers->pass.intended = -1;
    workers->pass.step_timer = loop_timer_new(workers->agent->loop, on_step, workers);
    make_memory(&workers->pass, ROWS_AT_FIRST, PODS_AT_FIRST);
}

void pass_begin_leading(struct workers *workers)
{
    struct workers_pass *pass = &workers->pass;
    struct k8s *k8s = kube_client(workers->agent->kube);
    struct buf path = {0};

    pass->next_at = (struct instant){0};
    pass->has_failed = false;
    pass->failed = 0;
    if (!k8s)
        return;
    k8s_put_pods_path(&path, k8s_namespace(k8s), NULL);
    const struct k8s_follow_call call = {
        .path = buf_str(&path),
        .selector = workers->agent->config.reconcile.worker_selector,
    };
    pass->follow = k8s_follow_new(k8s, workers->agent->loop, &call, &follow_ops, workers);
    buf_done(&path);
}

void pass_end_leading(struct workers *workers)
{
    struct workers_pass *pass = &workers->pass;

    judge_stop(pass);
    loop_timer_stop(pass->step_timer);
    pg_answer_drop(&pass->rows);
    k8s_list_cancel(pass->list);
    pass->list = NULL;
    k8s_follow_free(pass->follow);
    pass->follow = NULL;
    gather_clear(&pass->gather);
    pass->has_judged = false;
    pass->last = (struct pass_summary){0};
    pass->held = 0;
}

void pass_free(struct workers *workers)
{
    struct workers_pass *pass = &workers->pass;

    pass_end_leading(workers);
    loop_timer_free(pass->step_timer);
    free(pass->changes);
    free(pass->plan.judgments);
    free(pass->plan.scratch);
    free(pass->block);
}
