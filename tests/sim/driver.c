// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/driver.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLANT_TRIES    4000
#define COVERAGE_COUNT 300

struct options {
    const char *seeds; // NULL: none
    uint64_t seed;
    uint64_t count;
    bool is_verbose;
    bool wants_plants;
    int plant;
};

static void *make_stats(const struct driver *driver)
{
    void *stats = calloc(1, driver->stats_bytes);

    if (!stats)
        abort();
    return stats;
}

static int run_plants(const struct driver *driver)
{
    void *unused = make_stats(driver);
    int missed = 0;

    for (int plant = 1; plant < driver->plant_count; plant++) {
        const struct driver_plant *planted = &driver->plants[plant];
        char why[DRIVER_WHY_SIZE] = "";
        bool found = false;
        uint64_t seed = 1;

        for (; seed <= PLANT_TRIES && !found; seed++)
            found = driver->run(seed, plant, unused, false, why) &&
                    strncmp(why, planted->breaks, strlen(planted->breaks)) == 0;
        missed += !found;
        (void)printf("%-24s %s after %3d schedules  %s\n", planted->name,
                     found ? "found " : "MISSED", (int)seed - 1, why);
    }
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
static int run_and_say(const struct driver *driver, uint64_t seed, void *stats)
{
    char why[DRIVER_WHY_SIZE];

    if (!driver->run(seed, 0, stats, false, why))
        return 0;
    (void)printf("seed %" PRIu64 ": %s\nagain: %s --seed %" PRIu64 " --verbose\n", seed, why,
                 driver->name, seed);
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
        failed += run_and_say(driver, seed, stats);
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
        failed += run_and_say(driver, options->seed + i, stats);
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
    char why[DRIVER_WHY_SIZE];
    bool failed = driver->run(options->seed, options->plant, stats, true, why);

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
                          "[--verbose] [--plant NAME] [--plants]\n",
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
