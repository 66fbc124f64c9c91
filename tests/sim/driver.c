// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/driver.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/chance.h"

#define PLANT_TRIES    4000
#define COVERAGE_COUNT 300
#define SHRINK_TRIES   300
#define PLANT_SHRINKS  40 // enough to show that it works

struct options {
    const char *seeds; // NULL: none
    uint64_t seed;
    uint64_t count;
    bool is_verbose;
    bool wants_plants;
    int plant;
    struct muted muted;
};

// ---- for the world

int64_t driver_between(struct driver_run *run, int64_t low, int64_t high)
{
    return chance_between(&run->rng, low, high);
}

bool driver_chance(struct driver_run *run, int percent)
{
    return driver_between(run, 0, 100) < percent;
}

bool driver_mutes_next(struct driver_run *run)
{
    return muted_has(&run->muted, run->fault_count++);
}

void driver_say(const struct driver_run *run, const char *fmt, ...)
{
    va_list args;

    if (!run->is_verbose)
        return;
    (void)printf("%10.3f s  ", (double)run->now / 1e9);
    va_start(args, fmt);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started above
    (void)vprintf(fmt, args);
    va_end(args);
    (void)printf("\n");
}

void driver_fail(struct driver_run *run, const char *fmt, ...)
{
    va_list args;

    if (run->failed)
        return;
    run->failed = true;
    va_start(args, fmt);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started above
    (void)vsnprintf(run->why, sizeof(run->why), fmt, args);
    va_end(args);
    driver_say(run, "VIOLATION %s", run->why);
}

// ---- schedules

// True: it broke a promise, and run->why says which.
static bool run_once(const struct driver *driver, struct driver_run *run, void *stats)
{
    run->rng = run->seed * UINT64_C(0x2545f4914f6cdd1d);
    run->now = 0;
    run->fault_count = 0;
    run->failed = false;
    run->why[0] = '\0';
    driver->play(run, stats);
    return run->failed;
}

static void *make_stats(const struct driver *driver)
{
    void *stats = calloc(1, driver->stats_bytes);

    if (!stats)
        abort();
    return stats;
}

// ---- shrinking

struct search {
    const struct driver *driver;
    const struct driver_run *first;
    void *stats;
};

static bool still_fails(void *arg, const struct muted *muted)
{
    const struct search *search = arg;
    struct driver_run run = {
        .seed = search->first->seed, .plant = search->first->plant, .muted = *muted};

    return run_once(search->driver, &run, search->stats) &&
           shrink_is_same(search->first->why, run.why);
}

// Mutes what is not needed. Returns how many faults are left.
static int shrink_run(const struct driver *driver, struct driver_run *failed, int tries)
{
    const struct driver_run first = *failed;
    struct search search = {.driver = driver, .first = &first, .stats = make_stats(driver)};
    int left = shrink_muted(&failed->muted, failed->fault_count, tries, still_fails, &search);

    free(search.stats);
    return left;
}

// As a timeline, with as few faults as still break it.
static void report(const struct driver *driver, const struct driver_run *failed)
{
    struct driver_run run = *failed;
    void *unused = make_stats(driver);
    int left = 0;

    (void)printf("seed %" PRIu64 ": %s\n", run.seed, run.why);
    left = shrink_run(driver, &run, SHRINK_TRIES);
    (void)printf("with %d of %d faults:\n", left, run.fault_count);
    run.is_verbose = true;
    (void)run_once(driver, &run, unused);
    (void)printf("again: %s --seed %" PRIu64, driver->name, run.seed);
    shrink_print_kept(&run.muted, failed->fault_count);
    (void)printf(" --verbose\n");
    free(unused);
}

// ---- planted bugs

static bool breaks_as_planted(const struct driver *driver, const struct driver_run *run)
{
    const char *breaks = driver->plants[run->plant].breaks;

    return strncmp(run->why, breaks, strlen(breaks)) == 0;
}

// Is it found, and does the shrunk schedule still break the same promise?
static bool find_plant(const struct driver *driver, int plant, void *stats)
{
    struct driver_run run = {0};
    bool found = false;
    uint64_t seed = 1;
    int left = 0;

    for (; seed <= PLANT_TRIES && !found; seed++) {
        run = (struct driver_run){.seed = seed, .plant = plant};
        found = run_once(driver, &run, stats) && breaks_as_planted(driver, &run);
    }
    if (found) {
        struct search search = {.driver = driver, .first = &run, .stats = stats};
        struct driver_run shrunk = run;
        left = shrink_run(driver, &shrunk, PLANT_SHRINKS);
        found = still_fails(&search, &shrunk.muted);
    }
    (void)printf("%-24s %s after %3d schedules, %2d of %2d faults left  %s\n",
                 driver->plants[plant].name, found ? "found " : "MISSED", (int)seed - 1, left,
                 run.fault_count, run.why);
    return found;
}

static int run_plants(const struct driver *driver)
{
    void *unused = make_stats(driver);
    int missed = 0;

    for (int plant = 1; plant < driver->plant_count; plant++)
        missed += !find_plant(driver, plant, unused);
    free(unused);
    (void)printf("%d passed, %d failed\n", driver->plant_count - 1 - missed, missed);
    return missed;
}

// Digits alone; 0 for what is none.
static uint64_t number_of(const char *text)
{
    uint64_t value = 0;

    for (; *text >= '0' && *text <= '9' && value < 1000000000; text++)
        value = value * 10 + (uint64_t)(*text - '0');
    return *text == '\0' ? value : 0;
}

// 1: it broke a promise.
static int run_and_say(const struct driver *driver, struct driver_run run, void *stats)
{
    if (!run_once(driver, &run, stats))
        return 0;
    report(driver, &run);
    return 1;
}

// Each line that begins with a number.
static int replay(const struct driver *driver, const char *path, void *stats,
                  uint64_t *ret_count)
{
    FILE *file = fopen(path, "re");
    char line[256];
    int failed = 0;

    if (!file) {
        (void)fprintf(stderr, "cannot read %s: %s\n", path, strerror(errno));
        return 1;
    }
    while (fgets(line, sizeof(line), file)) {
        uint64_t seed = 0;
        line[strspn(line, "0123456789")] = '\0';
        seed = number_of(line);
        if (seed == 0)
            continue;
        ++*ret_count;
        failed += run_and_say(driver, (struct driver_run){.seed = seed}, stats);
    }
    (void)fclose(file);
    return failed;
}

static int run_many(const struct driver *driver, const struct options *options)
{
    void *stats = make_stats(driver);
    uint64_t replayed = 0;
    int failed = 0;
    int missing = 0;

    if (options->seeds)
        failed += replay(driver, options->seeds, stats, &replayed);
    if (options->seeds && driver->needs_seeds && replayed == 0)
        failed += printf("%s holds no seed\n", options->seeds) > 0;
    for (uint64_t i = 0; i < options->count; i++)
        failed += run_and_say(
            driver, (struct driver_run){.seed = options->seed + i, .plant = options->plant},
            stats);
    missing = driver->print_counts(stats);
    if (options->count >= COVERAGE_COUNT && missing > 0) {
        (void)printf("%d kinds never came up\n", missing);
        failed += missing;
    }
    (void)printf("%" PRIu64 " passed, %d failed\n", options->count + replayed, failed);
    free(stats);
    return failed;
}

static bool run_verbosely(const struct driver *driver, const struct options *options)
{
    void *stats = make_stats(driver);
    struct driver_run run = {.seed = options->seed,
                             .plant = options->plant,
                             .is_verbose = true,
                             .muted = options->muted};
    bool failed = run_once(driver, &run, stats);

    free(stats);
    return failed;
}

static int plant_of(const struct driver *driver, const char *name)
{
    for (int plant = 0; plant < driver->plant_count; plant++)
        if (strcmp(name, driver->plants[plant].name) == 0)
            return plant;
    return 0;
}

// False: that is no option, or its value is missing.
static bool take_option(const struct driver *driver, const char *word, const char *value,
                        struct options *options)
{
    if (strcmp(word, "--plants") == 0)
        options->wants_plants = true;
    else if (strcmp(word, "--verbose") == 0)
        options->is_verbose = true;
    else if (!value)
        return false;
    else if (strcmp(word, "--seed") == 0)
        options->seed = number_of(value);
    else if (strcmp(word, "--seeds") == 0)
        options->seeds = value;
    else if (strcmp(word, "--count") == 0)
        options->count = number_of(value);
    else if (strcmp(word, "--plant") == 0)
        options->plant = plant_of(driver, value);
    else if (strcmp(word, "--keep") == 0)
        return muted_keep(&options->muted, value);
    else
        return false;
    return true;
}

int driver_main(const struct driver *driver, int argc, char **argv)
{
    const char *schedules = getenv("METAFENCE_SIM_SCHEDULES"); // NOLINT(concurrency-mt-unsafe)
    struct options options = {.seed = 1, .count = driver->count};

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (schedules)
        options.count = number_of(schedules) / driver->share;
    for (int i = 1; i < argc; i++) {
        bool has_value = strcmp(argv[i], "--plants") != 0 && strcmp(argv[i], "--verbose") != 0;

        if (!take_option(driver, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &options)) {
            (void)fprintf(stderr,
                          "usage: %s [--seed N] [--count N] [--seeds FILE] "
                          "[--verbose] [--plant NAME] [--plants] [--keep FAULT,...]\n",
                          driver->name);
            return 2;
        }
        i += has_value;
    }
    if (options.wants_plants)
        return run_plants(driver) ? 1 : 0;
    if (options.is_verbose)
        return run_verbosely(driver, &options) ? 1 : 0;
    return run_many(driver, &options) ? 1 : 0;
}
