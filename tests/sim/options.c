// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool options_take_number(const char **at, uint64_t *ret)
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

    if (options_take_number(&at, ret) && *at == '\0')
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

bool options_parse(int argc, char **argv, struct options *options)
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
    if (options->jobs < 1 || options->jobs > OPTIONS_JOBS_MAX || options->minutes > 60) {
        (void)fprintf(stderr, "--jobs must be from 1 to %d, --minutes up to 60\n",
                      OPTIONS_JOBS_MAX);
        return false;
    }
    if (err.msg[0])
        (void)fprintf(stderr, "--ttl: %s\n", err.msg);
    return good && optind == argc;
}

bool options_take_environment(struct options *options)
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
