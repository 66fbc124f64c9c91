// SPDX-License-Identifier: Apache-2.0
// simulate: runs schedules and says what it saw. `--seed N --verbose` shows one as a timeline.
#include "tests/sim/cluster.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRACE_BYTES    ((size_t)TRACE_MAX * 200)
#define PLANT_TRIES    60000
#define COVERAGE_COUNT 2000 // schedules after which every rule must have fired
#define SHRINK_TRIES   400
#define PLANT_SHRINKS  40 // enough to show that it works
#define JOBS_MAX       64
#define REPORTS_MAX    3
#define MINUTE         (60 * S)

struct options {
    uint64_t seed;
    uint64_t count;
    int64_t ttl_ns; // 0: three in four at 5 s, the others at 30 s
    bool verbose;
    bool plants;
    enum plant plant;
    const char *seeds;
    uint64_t calm_hours;
    bool plain, with_cluster, with_hosts; // whatever the seed
    uint64_t minutes; // 0: every fifth lasts for ten, the others for two or three
    uint64_t jobs;    // processes
    struct muted muted;
};

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

static void add_all(uint64_t *to, const uint64_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

#define ADD_ALL(to, from, field)                                                               \
    add_all((to)->field, (from)->field, sizeof((to)->field) / sizeof((to)->field[0]))

static void stats_add(struct stats *to, const struct stats *from)
{
    ADD_ALL(to, from, rules);
    ADD_ALL(to, from, holds);
    ADD_ALL(to, from, reasons);
    ADD_ALL(to, from, faults);
    ADD_ALL(to, from, troubles);
    ADD_ALL(to, from, happenings);
    to->events += from->events;
    to->runs += from->runs;
    to->takeovers += from->takeovers;
    to->zombies += from->zombies;
    to->hasty += from->hasty;
    to->late_wins += from->late_wins;
    to->virtual_ns += from->virtual_ns;
    to->clusters += from->clusters;
    to->requests += from->requests;
    to->hosts += from->hosts;
    to->rounds += from->rounds;
    to->lost_terms += from->lost_terms;
    to->lost_renewals += from->lost_renewals;
    to->lag_zombies += from->lag_zombies;
    if (from->worst_margin_ns < to->worst_margin_ns)
        to->worst_margin_ns = from->worst_margin_ns;
    if (from->most_requests > to->most_requests)
        to->most_requests = from->most_requests;
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
    (void)printf("%" PRIu64 " further rounds; %" PRIu64
                 " schedules with troubles of machines: %" PRIu64 " terms and %" PRIu64
                 " renewals lost by a failover, %" PRIu64
                 " steps of a leader past its lease after its guest was paused\n",
                 stats->rounds, stats->hosts, stats->lost_terms, stats->lost_renewals,
                 stats->lag_zombies);
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
    for (int i = 0; i < FAULT_COUNT; i++)
        if (stats->faults[i] == 0)
            missing += printf("fault %s never began\n", fault_name((enum fault_kind)i)) > 0;
    if (stats->lost_terms == 0 || stats->lost_renewals == 0)
        missing += printf("no failover lost anything\n") > 0;
    for (int i = 0; i < TROUBLE_COUNT; i++)
        if (stats->troubles[i] == 0)
            missing +=
                printf("trouble %s never began\n", trouble_name((enum trouble_kind)i)) > 0;
    for (int i = 0; i < HAPPENING_COUNT; i++)
        if (stats->happenings[i] == 0)
            missing += printf("%s never happened\n", happening_name((enum happening)i)) > 0;
    return missing;
}

// What one process of several found.
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
    pid_t pids[JOBS_MAX] = {0};
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
        take_words(at, &run);
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
    print_counts(&stats);
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
    {"seed", required_argument, NULL, 's'},
    {"count", required_argument, NULL, 'c'},
    {"ttl", required_argument, NULL, 't'},
    {"verbose", no_argument, NULL, 'v'},
    {"plant", required_argument, NULL, 'p'},
    {"plants", no_argument, NULL, 'P'},
    {"seeds", required_argument, NULL, 'f'},
    {"calm", required_argument, NULL, 'h'},
    {"plain", no_argument, NULL, 'n'},
    {"k8s", no_argument, NULL, 'k'},
    {"hosts", no_argument, NULL, 'o'},
    {"minutes", required_argument, NULL, 'm'},
    {"jobs", required_argument, NULL, 'j'},
    {"keep", required_argument, NULL, 'K'},
    {0},
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
        case 'k': options->with_cluster = true; break;
        case 'o': options->with_hosts = true; break;
        case 'm': good = parse_number("--minutes", optarg, &options->minutes); break;
        case 'j': good = parse_number("--jobs", optarg, &options->jobs); break;
        case 'K': good = muted_keep(&options->muted, optarg); break;
        case 'f': options->seeds = optarg; break;
        case 'h': good = parse_number("--calm", optarg, &options->calm_hours); break;
        default: good = false; break;
        }
    }
    if (options->ttl_ns != 0 && (options->ttl_ns < 5 * S || options->ttl_ns > 60 * S)) {
        (void)fprintf(stderr, "--ttl must be from 5s to 60s\n");
        return false;
    }
    if (options->jobs < 1 || options->jobs > JOBS_MAX || options->minutes > 60) {
        (void)fprintf(stderr, "--jobs must be from 1 to %d, --minutes up to 60\n", JOBS_MAX);
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
    if (options->count >= COVERAGE_COUNT && options->plant == PLANT_NONE && !options->plain &&
        !options->with_cluster && !options->with_hosts)
        failed += uncovered(&stats);
    (void)printf("%" PRIu64 " passed, %d failed\n",
                 options->count + (uint64_t)replayed - (uint64_t)failed, failed);
    return failed;
}

// What a test run sets for all simulations. False: it is no number.
static bool take_environment(struct options *options)
{
    const struct {
        const char *name;
        uint64_t *number;
    } variables[] = {{"METAFENCE_SIM_SCHEDULES", &options->count},
                     {"METAFENCE_SIM_MINUTES", &options->minutes},
                     {"METAFENCE_SIM_JOBS", &options->jobs}};
    bool good = true;

    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const char *text = getenv(variables[i].name); // NOLINT(concurrency-mt-unsafe)
        if (text)
            good &= parse_number(variables[i].name, text, variables[i].number);
    }
    return good;
}

int main(int argc, char **argv)
{
    struct options options = {.seed = 1, .count = 5000, .jobs = 1};
    struct stats stats = {.worst_margin_ns = INT64_MAX};

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (!take_environment(&options))
        return 2;
    if (!parse_options(argc, argv, &options)) {
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
