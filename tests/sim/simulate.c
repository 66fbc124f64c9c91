// SPDX-License-Identifier: Apache-2.0
// simulate: runs schedules and says what it saw. `--seed N --verbose` shows one as a timeline.
#include "tests/sim/cluster.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRACE_BYTES    ((size_t)TRACE_MAX * 200)
#define PLANT_TRIES    60000
#define COVERAGE_COUNT 2000 // schedules after which every rule must have fired

struct options {
    uint64_t seed;
    uint64_t count;
    int64_t ttl_ns; // 0: three in four at 5 s, the others at 30 s
    bool verbose;
    bool plants;
    enum plant plant;
    const char *seeds;
    uint64_t calm_hours;
    bool plain; // without Kubernetes
};

static struct world *world_new(struct stats *stats)
{
    struct world *world = calloc(1, sizeof(*world));

    if (!world)
        abort();
    world->stats = stats;
    return world;
}

static int64_t ttl_of(const struct options *options, uint64_t seed)
{
    if (options->ttl_ns != 0)
        return options->ttl_ns;
    return seed % 4 == 3 ? 30 * S : 5 * S;
}

// Every third schedule has Kubernetes in it.
static bool has_cluster(const struct options *options, uint64_t seed)
{
    return plant_needs_cluster(options->plant) ||
           (!options->plain && options->plant == PLANT_NONE && seed % 3 == 1);
}

struct run {
    uint64_t seed;
    int64_t ttl_ns;
    enum plant plant;
    bool calm;
    uint32_t dropped; // bit per fault, then per trouble
    bool has_cluster;
    char *trace;
    bool verbose;
};

// Returns whether a promise was broken; *why then says which.
static bool run_one(const struct run *run, struct stats *stats, char why[256])
{
    struct world *world = world_new(stats);
    bool failed = false;

    world->plant = run->plant;
    world->calm = run->calm;
    world->trace = run->trace;
    world->verbose = run->verbose;
    world->among = plant_theme(run->plant);
    world->trouble_among = plant_troubles(run->plant);
    world_init(world, run->seed, run->ttl_ns, run->has_cluster);
    for (int i = 0; i < world->fault_count; i++)
        world->faults[i].dropped = run->dropped & (1U << i);
    for (int i = 0; world->cluster && i < world->cluster->trouble_count; i++)
        world->cluster->troubles[i].dropped = run->dropped & (1U << (FAULTS_MAX + i));
    world_run(world);
    failed = world->failed;
    memcpy(why, world->failure, sizeof(world->failure));
    if (failed && run->trace)
        sim_print_trace(world);
    cluster_free(world);
    free(world);
    return failed;
}

// Drops faults one by one as long as something still breaks.
static uint32_t shrink(const struct run *failed)
{
    struct stats unused = {0};
    struct run run = *failed;
    char why[256];

    run.trace = NULL;
    run.verbose = false;
    for (int i = 0; i < FAULTS_MAX + (run.has_cluster ? TROUBLES_MAX : 0); i++) {
        run.dropped |= 1U << i;
        if (!run_one(&run, &unused, why))
            run.dropped &= ~(1U << i);
    }
    return run.dropped;
}

static void report(const struct run *failed, const char *why)
{
    struct stats unused = {0};
    struct run run = *failed;
    char text[256];

    (void)printf("seed %" PRIu64 " ttl %" PRId64 "s: %s\n", run.seed, run.ttl_ns / S, why);
    run.dropped = shrink(failed);
    run.trace = calloc(1, TRACE_BYTES);
    if (!run.trace)
        abort();
    (void)printf("with as few faults as still break something:\n");
    (void)run_one(&run, &unused, text);
    (void)printf("again: simulate --seed %" PRIu64 " --ttl %" PRId64 "s %s--verbose\n\n",
                 run.seed, run.ttl_ns / S,
                 !run.has_cluster && run.seed % 3 == 1 ? "--plain " : "");
    free(run.trace);
}

static void print_cluster(const struct stats *stats)
{
    (void)printf("troubles:");
    for (int i = 0; i < TROUBLE_COUNT; i++)
        (void)printf(" %s=%" PRIu64, trouble_name((enum trouble_kind)i), stats->troubles[i]);
    (void)printf("\nhappened:");
    for (int i = 0; i < HAPPENING_COUNT; i++)
        (void)printf(" %s=%" PRIu64, happening_name((enum happening)i), stats->happenings[i]);
    (void)printf("\n%" PRIu64 " schedules with Kubernetes, %" PRIu64
                 " requests to it, at most %u of one agent in a minute\n",
                 stats->clusters, stats->requests, stats->most_requests);
}

static void print_counts(const struct stats *stats)
{
    (void)printf("rules:");
    for (int i = 0; i < RULE_COUNT; i++)
        (void)printf(" %s=%" PRIu64, rule_name((enum rule)i), stats->rules[i]);
    (void)printf("\nholds:");
    for (int i = 1; i <= SHIM_HOLD_LAST; i++)
        (void)printf(" %s=%" PRIu64, shim_hold_name((enum shim_hold)i), stats->holds[i]);
    (void)printf("\nfences:");
    for (int i = 1; i <= FENCE_REASON_LAST; i++)
        (void)printf(" %s=%" PRIu64, fence_reason_name((enum fence_reason)i),
                     stats->reasons[i]);
    (void)printf("\nfaults:");
    for (int i = 0; i < FAULT_COUNT; i++)
        (void)printf(" %s=%" PRIu64, fault_name((enum fault_kind)i), stats->faults[i]);
    (void)printf("\n%" PRIu64 " schedules, %.1f virtual hours, %" PRIu64 " events, %" PRIu64
                 " terms, %" PRIu64 " zombies, %" PRIu64 " late wins, %" PRIu64
                 " winners fenced before the first read\n",
                 stats->runs, (double)stats->virtual_ns / 3.6e12, stats->events,
                 stats->takeovers, stats->zombies, stats->late_wins, stats->hasty);
    if (stats->clusters > 0)
        print_cluster(stats);
    if (stats->worst_margin_ns != INT64_MAX)
        (void)printf("worst margin of a death by the clock %.1f ms\n",
                     (double)stats->worst_margin_ns / 1e6);
}

// Every rule, hold and reason must have come up, else the schedules prove less than they seem
// to.
static int uncovered(const struct stats *stats)
{
    int missing = 0;

    for (int i = 0; i < RULE_COUNT; i++)
        if (stats->rules[i] == 0)
            missing += printf("rule %s never fired\n", rule_name((enum rule)i)) > 0;
    for (int i = 1; i <= SHIM_HOLD_LAST; i++)
        if (stats->holds[i] == 0 && i != SHIM_HOLD_AGENT_REQUIRED)
            missing += printf("hold %s never applied\n", shim_hold_name((enum shim_hold)i)) > 0;
    for (int i = 1; i <= FENCE_REASON_LAST; i++)
        if (stats->reasons[i] == 0)
            missing += printf("nobody was fenced for %s\n",
                              fence_reason_name((enum fence_reason)i)) > 0;
    for (int i = 0; i < TROUBLE_COUNT; i++)
        if (stats->troubles[i] == 0)
            missing +=
                printf("trouble %s never began\n", trouble_name((enum trouble_kind)i)) > 0;
    for (int i = 0; i < HAPPENING_COUNT; i++)
        if (stats->happenings[i] == 0)
            missing += printf("%s never happened\n", happening_name((enum happening)i)) > 0;
    return missing;
}

static int run_many(const struct options *options, struct stats *stats)
{
    int failed = 0;
    char why[256];

    for (uint64_t i = 0; i < options->count; i++) {
        struct run run = {.seed = options->seed + i, .plant = options->plant};
        run.ttl_ns = ttl_of(options, run.seed);
        run.has_cluster = has_cluster(options, run.seed);
        if (!run_one(&run, stats, why))
            continue;
        failed++;
        if (failed <= 3)
            report(&run, why);
        else
            (void)printf("seed %" PRIu64 " ttl %" PRId64 "s: %s\n", run.seed, run.ttl_ns / S,
                         why);
    }
    return failed;
}

static int show_one(const struct options *options, struct stats *stats)
{
    struct run run = {.seed = options->seed, .plant = options->plant, .verbose = true};
    char why[256];
    bool failed = false;

    run.calm = options->calm_hours > 0;
    run.has_cluster = !run.calm && has_cluster(options, run.seed);
    run.ttl_ns = ttl_of(options, run.seed);
    run.trace = calloc(1, TRACE_BYTES);
    if (!run.trace)
        abort();
    failed = run_one(&run, stats, why);
    free(run.trace);
    return failed;
}

// Digits behind blanks, up to the first other character. False: none, or too many.
static bool take_number(const char **at, uint64_t *ret)
{
    uint64_t value = 0;
    const char *c = *at;

    while (*c == ' ' || *c == '\t')
        c++;
    *at = c;
    for (; *c >= '0' && *c <= '9'; c++)
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(*c - '0'), &value))
            return false;
    if (c == *at)
        return false;
    *at = c;
    *ret = value;
    return true;
}

// Lines of "SEED TTL_SECONDS [k8s]", # begins a comment: schedules that once broke something,
// those with "k8s" in a world that has Kubernetes.
static int replay(const char *path, struct stats *stats, int *ret_count)
{
    FILE *file = fopen(path, "re");
    char line[256];
    char why[256];
    int failed = 0;

    if (!file) {
        (void)fprintf(stderr, "cannot read %s: %s\n", path, strerror(errno));
        return 1;
    }
    while (fgets(line, sizeof(line), file)) {
        const char *at = line;
        struct run run = {0};
        uint64_t ttl_s = 0;
        if (!take_number(&at, &run.seed) || !take_number(&at, &ttl_s))
            continue;
        run.ttl_ns = (int64_t)ttl_s * S;
        run.has_cluster = strncmp(at + strspn(at, " \t"), "k8s", 3) == 0;
        (*ret_count)++;
        if (!run_one(&run, stats, why))
            continue;
        failed++;
        report(&run, why);
    }
    (void)fclose(file);
    return failed;
}

// Hours of leading, with nothing but disturbances that a lease outlasts: nobody may be killed,
// and the first leader of each schedule leads to its end.
static int run_calm(const struct options *options)
{
    struct stats stats = {.worst_margin_ns = INT64_MAX};
    uint64_t wanted_ns = options->calm_hours * 3600 * (uint64_t)S;
    struct run run = {.seed = options->seed, .calm = true};
    char why[256] = "";
    int failed = 0;

    for (; (uint64_t)stats.virtual_ns < wanted_ns; run.seed++) {
        run.ttl_ns = ttl_of(options, run.seed);
        if (!run_one(&run, &stats, why))
            continue;
        failed++;
        report(&run, why);
    }
    if (stats.takeovers != stats.runs) {
        (void)printf("%" PRIu64 " terms in %" PRIu64 " schedules: leadership moved\n",
                     stats.takeovers, stats.runs);
        failed++;
    }
    print_counts(&stats);
    (void)printf("%" PRIu64 " passed, %d failed\n", stats.runs - (uint64_t)failed, failed);
    return failed;
}

// Each planted fault must be found.
static int run_plants(const struct options *options)
{
    int missed = 0;

    for (int plant = 1; plant < PLANT_COUNT; plant++) {
        struct stats unused = {0};
        struct run run = {.seed = options->seed, .plant = (enum plant)plant};
        char why[256] = "";
        int tries = 0;
        bool found = false;
        run.has_cluster = plant_needs_cluster(run.plant);
        for (; tries < PLANT_TRIES && !found; tries++, run.seed++) {
            run.ttl_ns = ttl_of(options, run.seed);
            found = run_one(&run, &unused, why) && plant_breaks(run.plant, why);
        }
        missed += !found;
        (void)printf("%-18s %s after %3d schedules  %s\n", plant_name(run.plant),
                     found ? "found " : "MISSED", tries, why);
    }
    (void)printf("%d passed, %d failed\n", PLANT_COUNT - 1 - missed, missed);
    return missed;
}

static bool parse_plant(const char *text, enum plant *ret)
{
    for (int i = 0; i < PLANT_COUNT; i++) {
        if (strcmp(text, plant_name((enum plant)i)) != 0)
            continue;
        *ret = (enum plant)i;
        return true;
    }
    (void)fprintf(stderr, "--plant %s: there is none of that name; one of:", text);
    for (int i = 1; i < PLANT_COUNT; i++)
        (void)fprintf(stderr, " %s", plant_name((enum plant)i));
    (void)fprintf(stderr, "\n");
    return false;
}

static bool parse_number(const char *name, const char *text, uint64_t *ret)
{
    const char *at = text;

    if (take_number(&at, ret) && *at == '\0')
        return true;
    (void)fprintf(stderr, "%s %s: must be a whole number\n", name, text);
    return false;
}

static const struct option long_options[] = {
    {"seed", required_argument, NULL, 's'},  {"count", required_argument, NULL, 'c'},
    {"ttl", required_argument, NULL, 't'},   {"verbose", no_argument, NULL, 'v'},
    {"plant", required_argument, NULL, 'p'}, {"plants", no_argument, NULL, 'P'},
    {"seeds", required_argument, NULL, 'f'}, {"calm", required_argument, NULL, 'h'},
    {"plain", no_argument, NULL, 'n'},       {0},
};

static bool parse_options(int argc, char **argv, struct options *options)
{
    struct err err = {0};
    bool good = true;
    int key = 0;

    // The only use of getopt in a program of one thread.
    while (good && (key = getopt_long(argc, argv, "", long_options, NULL)) != -1) { // NOLINT
        switch (key) {
        case 's': good = parse_number("--seed", optarg, &options->seed); break;
        case 'c': good = parse_number("--count", optarg, &options->count); break;
        case 't': good = duration_parse(optarg, &options->ttl_ns, &err) == 0; break;
        case 'v': options->verbose = true; break;
        case 'p': good = parse_plant(optarg, &options->plant); break;
        case 'P': options->plants = true; break;
        case 'n': options->plain = true; break;
        case 'f': options->seeds = optarg; break;
        case 'h': good = parse_number("--calm", optarg, &options->calm_hours); break;
        default: good = false; break;
        }
    }
    if (options->ttl_ns != 0 && (options->ttl_ns < 5 * S || options->ttl_ns > 60 * S)) {
        (void)fprintf(stderr, "--ttl must be from 5s to 60s\n");
        return false;
    }
    if (err.msg[0])
        (void)fprintf(stderr, "--ttl: %s\n", err.msg);
    return good && optind == argc;
}

static int run_schedules(const struct options *options)
{
    struct stats stats = {.worst_margin_ns = INT64_MAX};
    int replayed = 0;
    int failed = 0;

    if (options->seeds)
        failed += replay(options->seeds, &stats, &replayed);
    failed += run_many(options, &stats);
    print_counts(&stats);
    if (options->count >= COVERAGE_COUNT && options->plant == PLANT_NONE && !options->plain)
        failed += uncovered(&stats);
    (void)printf("%" PRIu64 " passed, %d failed\n",
                 options->count + (uint64_t)replayed - (uint64_t)failed, failed);
    return failed;
}

int main(int argc, char **argv)
{
    const char *schedules = getenv("METAFENCE_SIM_SCHEDULES"); // NOLINT(concurrency-mt-unsafe)
    struct options options = {.seed = 1, .count = 5000};
    struct stats stats = {.worst_margin_ns = INT64_MAX};

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (schedules && !parse_number("METAFENCE_SIM_SCHEDULES", schedules, &options.count))
        return 2;
    if (!parse_options(argc, argv, &options)) {
        (void)fprintf(stderr,
                      "usage: simulate [--seed N] [--count N] [--ttl 5s|30s] [--verbose] "
                      "[--seeds FILE] [--plant NAME] [--plants] [--calm HOURS] "
                      "[--plain]\n");
        return 2;
    }
    if (options.plants)
        return run_plants(&options) ? 1 : 0;
    if (options.calm_hours > 0 && !options.verbose)
        return run_calm(&options) ? 1 : 0;
    if (options.verbose)
        return show_one(&options, &stats) ? 1 : 0;
    return run_schedules(&options) ? 1 : 0;
}
