// SPDX-License-Identifier: Apache-2.0
// What a pass of the reconciler costs: CPU of the second and the third pass (the first also
// pays for fresh memory), and all bytes that it works on, for 1,000 to 100,000 rows against a
// tenth as many pods. Prints a line for each size; exits 1 beyond the targets of the largest,
// which are those of the design with nothing else running: 100 ms and 32 MB.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "agent/reconcile/verdict.h"

#define TARGET_MS 100.0
#define TARGET_MB 32.0
#define TEXT      64

struct load {
    uint32_t rows, pods;
    struct worker_row *row;
    struct worker_pod *pod;
    struct worker_endpoint *endpoint;
    char *text;
    size_t text_used;
    size_t bytes;
};

static void *take(struct load *load, size_t bytes)
{
    void *block = calloc(1, bytes);

    if (!block)
        abort();
    load->bytes += bytes;
    return block;
}

static const char *say(struct load *load, const char *format, unsigned a, unsigned b)
{
    char *text = load->text + load->text_used;
    int len = 0;

    // The formats are this file's own.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    len = snprintf(text, TEXT, format, a, b);
#pragma GCC diagnostic pop
    load->text_used += (size_t)len + 1;
    return text;
}

static void make_pod(struct load *load, uint32_t i)
{
    bool is_compute = i % 2 == 0;

    load->pod[i] = (struct worker_pod){
        .uid = say(load, "0f8fad5b-d9cb-469f-%04x-%012x", i >> 16, i),
        .name = say(load, is_compute ? "compute-%u" : "frontend-7d9f8-%05u", i / 2, 0),
        .name_space = "risingwave",
        .subdomain = is_compute ? "compute-headless" : NULL,
        .owner = is_compute ? POD_OWNER_STATEFULSET : POD_OWNER_REPLICASET,
        .ips = {say(load, "10.%u.%u.1", i / 256, i % 256), say(load, "fd00::%x", i + 16, 0)},
        .ip_count = 2,
        .ports = {is_compute ? 5688 : 4567, 1222},
        .port_count = 2,
        .types = (uint8_t)(1 << (is_compute ? WORKER_COMPUTE : WORKER_FRONTEND)),
        .has_started = true,
        .is_running = true};
    for (unsigned k = 0; k < 2; k++)
        load->endpoint[2 * i + k] = (struct worker_endpoint){
            .address = load->pod[i].ips[k],
            .hostname = load->pod[i].subdomain ? load->pod[i].name : NULL,
            .target_uid = load->pod[i].uid,
            .target_name = load->pod[i].name};
}

// A tenth of the rows has a live pod; the others are names and addresses of nobody.
static void make_row(struct load *load, uint32_t i)
{
    bool is_compute = i % 2 == 0;
    const char *host = NULL;

    if (is_compute)
        host = say(load, "compute-%u.compute-headless.risingwave.svc.cluster.local", i / 2, 0);
    else
        host = say(load, "10.%u.%u.1", i / 256 % 256, i % 256 + 256 * (i / 65536));
    load->row[i] =
        (struct worker_row){.id = (int32_t)i + 1,
                            .type = is_compute ? WORKER_COMPUTE : WORKER_FRONTEND,
                            .status = WORKER_RUNNING,
                            .port = is_compute ? 5688 : 4567,
                            .host = host,
                            .row_version = say(load, "%u (12,%u)", 900000 + i, i % 90),
                            .leader_knows = true};
}

static void make(struct load *load, uint32_t rows)
{
    *load = (struct load){.rows = rows, .pods = rows / 10};
    load->row = take(load, load->rows * sizeof(*load->row));
    load->pod = take(load, load->pods * sizeof(*load->pod));
    load->endpoint = take(load, 2 * load->pods * sizeof(*load->endpoint));
    // Reserved generously, counted as it is used.
    load->text = calloc(load->rows * 2UL + load->pods * 4UL, TEXT);
    if (!load->text)
        abort();
    for (uint32_t i = 0; i < load->pods; i++)
        make_pod(load, i);
    for (uint32_t i = 0; i < load->rows; i++)
        make_row(load, i);
    load->bytes += load->text_used;
}

static double cpu_ms(void)
{
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) < 0)
        abort();
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000.0 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000.0;
}

#define STEP 512 // units, as agent/workers

struct cost {
    double ms;
    double longest_ms; // of the steps between two looks at the clock
    double mb;
};

static double wall_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1000.0 + (double)now.tv_nsec / 1e6;
}

// As the agent does, between turns.
static double decide_in_steps(const struct reconcile_config *config,
                              const struct reconcile_facts *facts,
                              struct reconcile_memory *memory, struct reconcile_plan *plan)
{
    double began = wall_ms();
    double longest = 0;
    bool is_done = false;

    reconcile_begin(config, facts, memory, plan);
    do {
        double now = 0;

        is_done = reconcile_step(plan, STEP);
        now = wall_ms();
        longest = now - began > longest ? now - began : longest;
        began = now;
    } while (!is_done);
    return longest;
}

static struct cost measure(uint32_t rows)
{
    struct load load;
    struct reconcile_config config = {.mode = RECONCILE_ENFORCE,
                                      .confirm_after_ns = 30 * NS_PER_SEC,
                                      .starting_grace_ns = 120 * NS_PER_SEC,
                                      .max_permille = 100};
    struct reconcile_facts facts = {
        .is_leader = true, .term = 7, .guard = RECONCILE_GUARD_ENFORCE};
    struct reconcile_memory memory;
    struct reconcile_plan plan = {0};
    struct worker_set set = {.name = "compute", .replicas = 1};
    struct cost cost = {0};
    void *block = NULL;

    make(&load, rows);
    plan.scratch_bytes = reconcile_scratch_bytes(load.rows, load.pods, 2 * load.pods + 1);
    plan.scratch = take(&load, plan.scratch_bytes);
    plan.judgments = take(&load, load.rows * sizeof(*plan.judgments));
    block = take(&load, reconcile_memory_bytes(load.rows, 2 * load.pods));
    reconcile_memory_init(&memory, block, load.rows, 2 * load.pods);
    facts.snapshot = (struct worker_snapshot){.rows = load.row,
                                              .pods = load.pod,
                                              .endpoints = load.endpoint,
                                              .sets = &set,
                                              .row_count = load.rows,
                                              .pod_count = load.pods,
                                              .endpoint_count = 2 * load.pods,
                                              .set_count = 1,
                                              .rows_complete = true,
                                              .pods_complete = true,
                                              .endpoints_complete = true,
                                              .sets_complete = true,
                                              .kruise_sets_complete = true};
    for (int pass = 0; pass < 3; pass++) {
        double began = 0;
        double longest = 0;

        facts.now.ns += 30 * NS_PER_SEC;
        facts.snapshot.taken_at = facts.now;
        // A tenth of the pods ends: proofs, slices and sets are looked up too.
        for (uint32_t i = 0; pass == 1 && i < load.pods; i += 10) {
            load.pod[i].is_terminal = true;
            load.pod[i].is_running = false;
        }
        began = cpu_ms();
        longest = decide_in_steps(&config, &facts, &memory, &plan);
        if (pass > 0 && cpu_ms() - began > cost.ms)
            cost.ms = cpu_ms() - began;
        if (pass > 0 && longest > cost.longest_ms)
            cost.longest_ms = longest;
    }
    cost.mb = (double)load.bytes / 1048576.0;
    (void)printf("%7u rows %6u pods %6u endpoints: %7.2f ms CPU, longest step %.2f ms, "
                 "%5.2f MB; live %u, gone %u\n",
                 load.rows, load.pods, 2 * load.pods, cost.ms, cost.longest_ms, cost.mb,
                 plan.reasons[REASON_POD_RUNS],
                 plan.verdicts[WORKER_COMPUTE][VERDICT_GONE] +
                     plan.verdicts[WORKER_FRONTEND][VERDICT_GONE]);
    free(load.row);
    free(load.pod);
    free(load.endpoint);
    free(load.text);
    free(plan.scratch);
    free(plan.judgments);
    free(block);
    return cost;
}

int main(void)
{
    struct cost small = measure(1000);
    struct cost middle = measure(10000);
    struct cost large = measure(100000);

    (void)printf("growth of CPU per row: 1,000 -> 10,000 x %.1f, 1,000 -> 100,000 x %.1f\n",
                 middle.ms / 10 / small.ms, large.ms / 100 / small.ms);
    (void)printf("targets at 100,000 rows: %.0f ms CPU, %.0f MB\n", TARGET_MS, TARGET_MB);
    return large.ms > TARGET_MS || large.mb > TARGET_MB;
}
