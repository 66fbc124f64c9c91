// SPDX-License-Identifier: Apache-2.0
// The few numbers of the metas' own TOML that the design leans on. No parser of TOML: lines of
// "[section]" and "key = number" are all that they are written in.
#include <stdio.h>
#include <string.h>

#include "agent/config.h"
#include "agent/doctor/doctor.h"
#include "base/clock.h"

#define LINE_SIZE         256
#define DEFAULT_LEASE_S   30 // RisingWave's, as of v3.0.3
#define DEFAULT_ACQUIRE_S 30

struct scan {
    char section[LINE_SIZE];
    int64_t lease_s;
    int64_t acquire_s;
};

// The whole number behind the first '=', or -1.
static int64_t number_of(const char *text)
{
    size_t digits = 0;
    int64_t value = 0;

    text += strspn(text, " \t");
    digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 9 || text[digits + strspn(text + digits, " \t\r")] > '#')
        return -1;
    for (size_t i = 0; i < digits; i++)
        value = value * 10 + (text[i] - '0');
    return value;
}

static void take_pair(struct scan *scan, const char *line)
{
    const char *equals = strchr(line, '=');
    char key[2 * LINE_SIZE];
    size_t len = equals ? strcspn(line, " \t=") : 0;
    int64_t value = equals ? number_of(equals + 1) : -1;

    if (value < 0)
        return;
    (void)snprintf(key, sizeof(key), "%s%s%.*s", scan->section, scan->section[0] ? "." : "",
                   (int)len, line);
    if (strcmp(key, "meta.meta_leader_lease_secs") == 0)
        scan->lease_s = value;
    if (strcmp(key, "meta.meta_store_config.acquire_timeout_sec") == 0)
        scan->acquire_s = value;
}

static void take_line(struct scan *scan, const char *text, size_t len)
{
    char line[LINE_SIZE];
    size_t blank = strspn(text, " \t");

    if (blank >= len)
        return;
    (void)snprintf(line, sizeof(line), "%.*s", (int)(len - blank), text + blank);
    if (line[0] != '[') {
        take_pair(scan, line);
        return;
    }
    line[strcspn(line, "]")] = '\0';
    (void)snprintf(scan->section, sizeof(scan->section), "%s", line + 1);
}

void doctor_meta_config(struct doctor *doctor, const char *text, const struct config *config)
{
    struct scan scan = {.lease_s = DEFAULT_LEASE_S, .acquire_s = DEFAULT_ACQUIRE_S};
    char ttl[32], fix[200];

    while (*text) {
        size_t len = strcspn(text, "\n");

        take_line(&scan, text, len);
        text += len + (text[len] == '\n');
    }
    duration_format(config->core.ttl_ns, ttl, sizeof(ttl));
    if (scan.lease_s * NS_PER_SEC != config->core.ttl_ns) {
        (void)snprintf(fix, sizeof(fix),
                       "set election.ttl and metafence-run's --ttl to %llds, or the metas' "
                       "meta_leader_lease_secs to election.ttl",
                       (long long)scan.lease_s);
        doctor_bad(doctor, "meta.lease", fix,
                   "the metas' lease is %llds, election.ttl is %s: every deadline is wrong",
                   (long long)scan.lease_s, ttl);
    } else {
        doctor_ok(doctor, "meta.lease", "%s on both sides", ttl);
    }
    if (scan.acquire_s * NS_PER_SEC <= config->core.ttl_ns)
        doctor_warn(doctor, "meta.acquire-timeout",
                    "set acquire_timeout_sec = 300 in [meta.meta_store_config]",
                    "a meta gives up on its database after %llds, not above the lease of %s: "
                    "after an outage it rather stays as a second leader than leaves",
                    (long long)scan.acquire_s, ttl);
    else
        doctor_ok(doctor, "meta.acquire-timeout", "%llds, above the lease",
                  (long long)scan.acquire_s);
}
