// SPDX-License-Identifier: Apache-2.0
// simulate: runs schedules and says what it saw. `--seed N --verbose` shows one as a timeline.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sim/cluster.h"
#include "tests/sim/options.h"
#include "tests/sim/stats.h"

#define TRACE_BYTES    ((size_t)TRACE_MAX * 200)
#define PLANT_TRIES    60000
#define COVERAGE_COUNT 2000 // schedules after which every rule must have fired
#define SHRINK_TRIES   400
#define PLANT_SHRINKS  40 // enough to show that it works
#define REPORTS_MAX    3
#define MINUTE         (60 * S)

static struct world *world_new(struct stats *stats)
{
    struct world *world = calloc(1, sizeof(*world));

    if (!world)
        abort();
    world->stats = stats;
    return world;
}

struct run {
    uint64_t seed;
    int64_t ttl_ns;
    enum plant plant;
    bool calm;
    bool has_cluster;
    bool has_hosts;
    int64_t minutes;
    struct muted muted;
    int fault_count; // set by a run: numbers that its faults have had
    char *trace;
    bool verbose;
};

// Every third schedule has Kubernetes in it, every second one the troubles of machines.
static struct run run_of(const struct options *options, uint64_t seed)
{
    struct run run = {.seed = seed,
                      .ttl_ns = options->ttl_ns,
                      .plant = options->plant,
                      .minutes = (int64_t)options->minutes,
                      .muted = options->muted};
    bool is_drawn = !options->plain && options->plant == PLANT_NONE && !options->with_cluster &&
                    !options->with_hosts;

    if (run.ttl_ns == 0)
        run.ttl_ns = seed % 4 == 3 ? 30 * S : 5 * S;
    run.has_cluster = plant_needs_cluster(options->plant) || options->with_cluster ||
                      (is_drawn && seed % 3 == 1);
    run.has_hosts = plant_needs_hosts(options->plant) || options->with_hosts ||
                    (is_drawn && seed / 4 % 2 == 1);
    if (run.minutes == 0 && options->plant == PLANT_NONE && seed % 5 == 4)
        run.minutes = 10;
    return run;
}

// Returns whether a promise was broken; *why then says which.
static bool run_one(struct run *run, struct stats *stats, char why[256])
{
    struct world *world = world_new(stats);
    bool failed = false;

    world->plant = run->plant;
    world->calm = run->calm;
    world->trace = run->trace;
    world->verbose = run->verbose;
    world->among = plant_theme(run->plant);
    world->trouble_among = plant_troubles(run->plant);
    world->has_hosts = run->has_hosts;
    world->least_ns = run->minutes * MINUTE;
    world->muted = run->muted;
    world_init(world, run->seed, run->ttl_ns, run->has_cluster);
    world_run(world);
    run->fault_count = world_faults(world);
    failed = world->failed;
    memcpy(why, world->failure, sizeof(world->failure));
    if (failed && run->trace)
        sim_print_trace(world);
    cluster_free(world);
    free(world);
    return failed;
}

struct search {
    struct run run;
    const char *why;
};

static bool still_fails(void *arg, const struct muted *muted)
{
    struct search *search = arg;
    struct stats unused = {0};
    struct run run = search->run;
    char why[256];

    run.muted = *muted;
    return run_one(&run, &unused, why) && shrink_is_same(search->why, why);
}

// Fewer faults, and so a shorter schedule, that break the same promise. How many are left of
// the numbers, most of which no fault ever had.
static int shrink_run(struct run *failed, const char *why, int tries)
{
    struct search search = {.run = *failed, .why = why};

    search.run.trace = NULL;
    search.run.verbose = false;
    return shrink_muted(&failed->muted, failed->fault_count, tries, still_fails, &search);
}

static void report(const struct run *failed, const char *why)
{
    struct stats unused = {0};
    struct run run = *failed;
    char text[256];

    (void)printf("seed %" PRIu64 " ttl %" PRId64 "s: %s\n", run.seed, run.ttl_ns / S, why);
    (void)shrink_run(&run, why, SHRINK_TRIES);
    run.trace = calloc(1, TRACE_BYTES);
    if (!run.trace)
        abort();
    (void)printf("with as few faults as still break it:\n");
    (void)run_one(&run, &unused, text);
    (void)printf("again: simulate --seed %" PRIu64 " --ttl %" PRId64 "s --minutes %" PRId64
                 "%s%s%s",
                 run.seed, run.ttl_ns / S, run.minutes,
                 run.has_cluster || run.has_hosts ? "" : " --plain",
                 run.has_cluster ? " --k8s" : "", run.has_hosts ? " --hosts" : "");
    shrink_print_kept(&run.muted, run.fault_count);
    (void)printf(" --verbose\n\n");
    free(run.trace);
}

struct part {
    struct stats stats;
    uint64_t failed;
    uint64_t seeds[REPORTS_MAX]; // the first ones that failed
    char why[REPORTS_MAX][256];
};

static void run_part(const struct options *options, uint64_t first, struct part *part)
{
    char why[256];

    for (uint64_t i = first; i < options->count; i += options->jobs) {
        struct run run = run_of(options, options->seed + i);
        if (!run_one(&run, &part->stats, why))
            continue;
        // At once: a long run may be ended before it can report.
        (void)printf("seed %" PRIu64 " ttl %" PRId64 "s: %s\n", run.seed, run.ttl_ns / S, why);
        if (part->failed < REPORTS_MAX) {
            part->seeds[part->failed] = run.seed;
            memcpy(part->why[part->failed], why, sizeof(why));
        }
        part->failed++;
    }
}

static void report_part(const struct options *options, const struct part *part)
{
    for (uint64_t i = 0; i < part->failed && i < REPORTS_MAX; i++) {
        struct stats unused = {0};
        char why[256];
        struct run run = run_of(options, part->seeds[i]);
        (void)run_one(&run, &unused, why); // for the number of its faults
        report(&run, part->why[i]);
    }
}

// Each job in a process of its own. Returns how many failed; one that dies counts.
static int run_parts(const struct options *options, struct part *parts)
{
    pid_t pids[OPTIONS_JOBS_MAX] = {0};
    int failed = 0;

    (void)fflush(stdout);
    for (uint64_t i = 0; i < options->jobs; i++) {
        pids[i] = fork();
        if (pids[i] < 0)
            abort();
        if (pids[i] == 0) {
            run_part(options, i, &parts[i]);
            exit(0); // NOLINT(concurrency-mt-unsafe): of one thread
        }
    }
    for (uint64_t i = 0; i < options->jobs; i++) {
        int status = 0;
        if (waitpid(pids[i], &status, 0) == pids[i] && status == 0)
            continue;
        (void)printf("job %" PRIu64 " ended with wait status %d\n", i, status);
        failed++;
    }
    return failed;
}

static int run_many(const struct options *options, struct stats *stats)
{
    size_t bytes = sizeof(struct part) * (size_t)options->jobs;
    struct part *parts =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int failed = 0;

    if (parts == MAP_FAILED)
        abort();
    for (uint64_t i = 0; i < options->jobs; i++)
        parts[i].stats.worst_margin_ns = INT64_MAX;
    if (options->jobs == 1)
        run_part(options, 0, parts);
    else
        failed += run_parts(options, parts);
    for (uint64_t i = 0; i < options->jobs; i++) {
        report_part(options, &parts[i]);
        failed += (int)parts[i].failed;
        stats_add(stats, &parts[i].stats);
    }
    (void)munmap(parts, bytes);
    return failed;
}

static int show_one(const struct options *options, struct stats *stats)
{
    struct run run = run_of(options, options->seed);
    char why[256];
    bool failed = false;

    run.verbose = true;
    run.calm = options->calm_hours > 0;
    if (run.calm)
        run.has_cluster = run.has_hosts = false;
    run.trace = calloc(1, TRACE_BYTES);
    if (!run.trace)
        abort();
    failed = run_one(&run, stats, why);
    free(run.trace);
    return failed;
}

// The words behind a seed, up to the first that is none: the rest says what it once broke.
static void take_words(const char *at, struct run *ret)
{
    static const char *const words[] = {"k8s", "hosts", "10m"};
    bool *flags[] = {&ret->has_cluster, &ret->has_hosts, NULL};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]);) {
        size_t length = strlen(words[i]);
        at += strspn(at, " \t");
        if (strncmp(at, words[i], length) != 0 || !strchr(" \t\n", at[length])) {
            i++;
            continue;
        }
        at += length;
        if (flags[i])
            *flags[i] = true;
        else
            ret->minutes = 10;
        i = 0;
    }
}

// Lines of "SEED TTL_SECONDS [k8s] [hosts] [10m]", # begins a comment: schedules that once
// broke something, in a world with Kubernetes, with the troubles of machines, of ten minutes.
// A schedule is its seed, or no failure could be looked at: the same twice, to the last count.
static int check_repeats(const struct run *run)
{
    struct stats *both = calloc(2, sizeof(*both));
    char why[256];
    int failed = 0;

    if (!both)
        abort();
    for (int i = 0; i < 2; i++) {
        struct run again = *run;
        (void)run_one(&again, &both[i], why);
    }
    if (memcmp(&both[0], &both[1], sizeof(*both)) != 0)
        failed = printf("seed %" PRIu64 " is not the same schedule twice\n", run->seed) > 0;
    free(both);
    return failed;
}

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
        if (!options_take_number(&at, &run.seed) || !options_take_number(&at, &ttl_s))
            continue;
        run.ttl_ns = (int64_t)ttl_s * S;
        take_words(at, &run);
        (*ret_count)++;
        failed += check_repeats(&run);
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
    char why[256] = "";
    int failed = 0;

    for (uint64_t seed = options->seed; (uint64_t)stats.virtual_ns < wanted_ns; seed++) {
        struct run run = run_of(options, seed);
        run.calm = true;
        run.has_cluster = run.has_hosts = false;
        run.minutes = 0;
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
    stats_print(&stats);
    (void)printf("%" PRIu64 " passed, %d failed\n", stats.runs - (uint64_t)failed, failed);
    return failed;
}

// Is it found, and does the shrunk schedule still break the same promise?
static bool find_plant(const struct options *options, enum plant plant, uint64_t *seed)
{
    struct options planted = *options;
    struct stats unused = {0};
    char why[256] = "", text[256] = "";
    int tries = 0;
    int before = 0;
    bool found = false;
    struct run run = {0};

    planted.plant = plant;
    for (; tries < PLANT_TRIES && !found; tries++, ++*seed) {
        run = run_of(&planted, *seed);
        found = run_one(&run, &unused, why) && plant_breaks(plant, why);
    }
    before = run.fault_count;
    if (found) {
        int left = shrink_run(&run, why, PLANT_SHRINKS);
        found = left <= before && run_one(&run, &unused, text) && shrink_is_same(why, text);
        (void)printf("%-18s %s after %3d schedules, %d fault%s left  %s\n", plant_name(plant),
                     found ? "found " : "MISSED", tries, left, left == 1 ? "" : "s", why);
        return found;
    }
    (void)printf("%-18s MISSED after %3d schedules  %s\n", plant_name(plant), tries, why);
    return false;
}

// Each planted fault must be found.
static int run_plants(const struct options *options)
{
    int missed = 0;

    for (int plant = 1; plant < PLANT_COUNT; plant++) {
        uint64_t seed = options->seed;
        missed += !find_plant(options, (enum plant)plant, &seed);
    }
    (void)printf("%d passed, %d failed\n", PLANT_COUNT - 1 - missed, missed);
    return missed;
}

static int run_schedules(const struct options *options)
{
    struct stats stats = {.worst_margin_ns = INT64_MAX};
    int replayed = 0;
    int failed = 0;

    if (options->seeds)
        failed += replay(options->seeds, &stats, &replayed);
    failed += run_many(options, &stats);
    stats_print(&stats);
    if (options->count >= COVERAGE_COUNT && options->plant == PLANT_NONE && !options->plain &&
        !options->with_cluster && !options->with_hosts)
        failed += stats_missing(&stats);
    (void)printf("%" PRIu64 " passed, %d failed\n",
                 options->count + (uint64_t)replayed - (uint64_t)failed, failed);
    return failed;
}

int main(int argc, char **argv)
{
    struct options options = {.seed = 1, .count = 5000, .jobs = 1};
    struct stats stats = {.worst_margin_ns = INT64_MAX};

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (!options_take_environment(&options))
        return 2;
    if (!options_parse(argc, argv, &options)) {
        (void)fprintf(
            stderr,
            "usage: simulate [--seed N] [--count N] [--ttl 5s|30s] [--verbose] "
            "[--seeds FILE] [--plant NAME] [--plants] [--calm HOURS] "
            "[--plain] [--k8s] [--hosts] [--minutes N] [--jobs N] [--keep FAULT,...]\n");
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
