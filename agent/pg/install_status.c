// SPDX-License-Identifier: Apache-2.0
// `metafence sql status`: what is installed, what it covers and what it counted.
#include <stdio.h>
#include <string.h>

#include "agent/pg/admin.h"
#include "agent/pg/install.h"
#include "sql/sql.h"

#define SETTING(name) "SELECT value FROM " SQL_SCHEMA ".setting WHERE name = '" name "'"

struct count {
    const char *sql;
    int64_t *ret;
};

static int read_counts(struct admin *admin, const struct count *counts, size_t count,
                       struct err *err)
{
    char text[64];

    for (size_t i = 0; i < count; i++) {
        if (admin_value(admin, counts[i].sql, text, sizeof text, err) < 0)
            return -1;
        if (!election_parse_count(text, counts[i].ret))
            return err_set(err, ERR_INVALID, 0, "not a count: \"%s\"", text);
    }
    return 0;
}

// "name value" a line.
static void take_counter(struct sql_counters *counters, const char *name, const char *value)
{
    const struct {
        const char *name;
        int64_t *ret;
    } all[] = {
        {"refused", &counters->refused},
        {"observed", &counters->observed},
        {"held", &counters->held},
        {"untagged", &counters->untagged},
        {"not_owner", &counters->not_owner},
        {"unreadable", &counters->unreadable},
        {"unlocked", &counters->unlocked},
        {"unrecorded", &counters->unrecorded},
        {"unlogged", &counters->unlogged},
        {"intended", &counters->intended},
        {"takeover", &counters->takeover},
        {"ended", &counters->ended},
        {"takeover_without_lock", &counters->takeover_without_lock},
        {"recovery_refused", &counters->recovery_refused},
        {"recovery_observed", &counters->recovery_observed},
        {"recovery_bound", &counters->recovery_bound},
        {"recovery_open", &counters->recovery_open},
        {"recovery_failed", &counters->recovery_failed},
        {"recovery_unknown", &counters->recovery_unknown},
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(name, all[i].name) == 0 && !election_parse_count(value, all[i].ret))
            *all[i].ret = 0;
    }
}

static int read_counters(struct admin *admin, struct sql_counters *counters, struct err *err)
{
    char text[1024];

    if (admin_value(admin,
                    "SELECT string_agg(name || ' ' || value, E'\n') FROM " SQL_SCHEMA
                    ".counters()",
                    text, sizeof text, err) < 0)
        return -1;
    for (char *line = text; line[0];) {
        size_t len = strcspn(line, "\n");
        char *next = line[len] ? line + len + 1 : line + len;
        char *value = NULL;
        line[len] = '\0';
        value = strchr(line, ' ');
        if (value) {
            *value = '\0';
            take_counter(counters, line, value + 1);
        }
        line = next;
    }
    return 0;
}

// What came with version 2.
static int read_guard(struct admin *admin, struct sql_status *status, struct err *err)
{
    const struct count counts[] = {
        {"SELECT count(*) FROM " SQL_SCHEMA ".guarded_tables() WHERE is_covered",
         &status->guarded},
        {"SELECT count(*) FROM " SQL_SCHEMA ".guarded_tables() WHERE NOT is_covered",
         &status->unguarded},
        {"SELECT count(*) FROM " SQL_SCHEMA ".tombstone WHERE outcome IS NULL",
         &status->tombstones},
        {"SELECT count(*) FROM " SQL_SCHEMA ".mutation", &status->mutations},
        {"SELECT count(backend) - count(DISTINCT backend) FROM " SQL_SCHEMA ".tag",
         &status->pooled_tags},
    };
    char has_tables[8];

    if (read_counts(admin, counts, sizeof counts / sizeof counts[0], err) < 0 ||
        admin_value(admin,
                    "SELECT string_agg(name, ', ' ORDER BY name) FROM " SQL_SCHEMA
                    ".guarded_tables() WHERE NOT is_covered",
                    status->unguarded_names, sizeof status->unguarded_names, err) < 0 ||
        admin_value(admin,
                    "SELECT count(*) > 0 FROM " SQL_SCHEMA
                    ".guarded_tables() WHERE name = 'worker'",
                    has_tables, sizeof has_tables, err) < 0)
        return -1;
    status->has_tables = has_tables[0] == 't';
    return read_counters(admin, &status->counters, err);
}

// Ordered recovery came later in version 2: without its setting it is not installed.
static int read_recovery(struct admin *admin, struct sql_status *status, struct err *err)
{
    const struct count counts[] = {
        {"SELECT count(*) FROM " SQL_SCHEMA ".recovery WHERE closed_at IS NULL",
         &status->open_recoveries},
        {"SELECT count(*) FROM " SQL_SCHEMA ".dropped", &status->dropped},
        {"SELECT count(*) FROM " SQL_SCHEMA ".purge", &status->purges},
    };
    char is_verified[8];

    if (admin_value(admin, SETTING("recovery"), status->recovery, sizeof status->recovery,
                    err) < 0)
        return -1;
    if (!status->recovery[0])
        return 0;
    if (read_counts(admin, counts, sizeof counts / sizeof counts[0], err) < 0 ||
        admin_value(admin,
                    "SELECT string_agg(name, ', ' ORDER BY name) FROM " SQL_SCHEMA
                    ".recovery_tables() WHERE NOT is_covered",
                    status->unwatched_names, sizeof status->unwatched_names, err) < 0 ||
        admin_value(admin, "SELECT version FROM " SQL_SCHEMA ".catalog_version()",
                    status->catalog_version, sizeof status->catalog_version, err) < 0 ||
        admin_value(admin, "SELECT is_verified FROM " SQL_SCHEMA ".catalog_version()",
                    is_verified, sizeof is_verified, err) < 0)
        return -1;
    status->is_verified = is_verified[0] == 't';
    return 0;
}

static int read_schema(struct admin *admin, struct sql_status *status, struct err *err)
{
    const struct count counts[] = {
        {"SELECT coalesce(max(term), 0) FROM " SQL_SCHEMA ".term", &status->term},
        {"SELECT count(*) FROM " SQL_SCHEMA ".tag", &status->tags},
        {"SELECT count(*) FROM " SQL_SCHEMA ".death", &status->deaths},
    };
    char text[64];
    int64_t version = 0;

    if (admin_value(admin, SETTING("guard"), status->guard, sizeof status->guard, err) < 0 ||
        admin_value(admin, SETTING("schema_version"), text, sizeof text, err) < 0)
        return -1;
    status->version =
        election_parse_count(text, &version) && version < 1000000 ? (int)version : 0;
    if (read_counts(admin, counts, sizeof counts / sizeof counts[0], err) < 0)
        return -1;
    if (status->version >= 2 &&
        (read_guard(admin, status, err) < 0 || read_recovery(admin, status, err) < 0))
        return -1;
    status->can_read = true;
    return 0;
}

// The states of both triggers of the leader table.
static int read_triggers(struct admin *admin, struct sql_status *status, struct err *err)
{
    char term[8], hold[8];

    if (admin_trigger_state(admin, SQL_TRIGGER_NAME, term, sizeof term, err) < 0 ||
        admin_trigger_state(admin, SQL_HOLD_NAME, hold, sizeof hold, err) < 0)
        return -1;
    status->has_trigger = term[0] != '\0';
    status->is_trigger_on = strcmp(term, "on") == 0 &&
                            (strcmp(hold, "on") == 0 || (status->version == 1 && !hold[0]));
    return 0;
}

int sql_status(const struct sql_options *options, struct sql_status *ret_status,
               struct err *err)
{
    __attribute__((cleanup(admin_done))) struct admin admin = {.options = options};
    struct sql_status status = {0};

    if (admin_begin(&admin, err) < 0 ||
        admin_leader_exists(&admin, &status.has_table, err) < 0 ||
        admin_is_pooled(&admin, &status.is_pooled, err) < 0 ||
        admin_value(
            &admin,
            "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = '" SQL_SCHEMA
            "'",
            status.owner, sizeof status.owner, err) < 0)
        return -1;
    status.has_schema = status.owner[0] != '\0';
    // Without rights the rest stays empty, which can_read says.
    if (status.has_schema && read_schema(&admin, &status, err) < 0 &&
        strcmp(admin.sqlstate, "42501") != 0 && strcmp(admin.sqlstate, "42P01") != 0)
        return -1;
    if (read_triggers(&admin, &status, err) < 0)
        return -1;
    *ret_status = status;
    return 0;
}
