// SPDX-License-Identifier: Apache-2.0
#include "agent/pg/install.h"

#include <stdio.h>
#include <string.h>

#include "agent/pg/admin.h"
#include "sql/sql.h"

#define ADVISORY_LOCK "7741035926118263" // any number, the same in all versions
#define LOCK_TIMEOUT  "SET LOCAL lock_timeout = '200ms';"

static int lock_out_others(struct admin *admin, struct err *err)
{
    if (admin_run(admin, "SELECT pg_advisory_lock(" ADVISORY_LOCK ")", err) == 0)
        return 0;
    return err_wrap(err, "wait for another installation to end");
}

// Refuses to touch what is newer than this binary or was not made by us.
static int check_existing(struct admin *admin, struct err *err)
{
    char count[24], version[24];
    int64_t found = 0;

    if (admin_value(
            admin,
            "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = '" SQL_SCHEMA "'",
            count, sizeof count, err) < 0)
        return -1;
    if (strcmp(count, "0") == 0)
        return 0;
    if (admin_value(admin,
                    "SELECT value FROM " SQL_SCHEMA ".setting WHERE name = 'schema_version'",
                    version, sizeof version, err) < 0) {
        if (strcmp(admin->sqlstate, "42P01") != 0)
            return err_wrap(err, "read the installed version");
        return err_set(err, ERR_DENIED, 0,
                       "schema " SQL_SCHEMA " exists and was not made by metafence: rename it");
    }
    if (!election_parse_count(version, &found))
        return err_set(err, ERR_DENIED, 0, "installed schema_version \"%s\" is not a number",
                       version);
    if (found > SQL_VERSION)
        return err_set(
            err, ERR_DENIED, 0,
            "schema version %lld is newer than this binary's %d: use the newer metafence",
            (long long)found, SQL_VERSION);
    admin_say(admin, "schema version %lld is installed", (long long)found);
    return 0;
}

static int check_creator(struct admin *admin, struct err *err)
{
    char value[8];

    if (admin->options->meta_role)
        return 0;
    if (admin_value(admin, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user", value,
                    sizeof value, err) < 0)
        return -1;
    if (value[0] != 't')
        return 0;
    return err_set(
        err, ERR_DENIED, 0,
        "table %s does not exist, and as a superuser's table the metas could not use it: "
        "install as the metas' role, or start a meta once before",
        admin->table);
}

// As RisingWave creates it. Metas that start for the first time at this very moment may collide
// with it as they do with each other (they abort and are restarted): so it is one statement,
// and only when it is missing.
static int create_leader(struct admin *admin, struct err *err)
{
    const char *meta_role = admin->options->meta_role;
    struct buf sql = {0};
    int rc = 0;

    buf_printf(&sql,
               "CREATE TABLE IF NOT EXISTS %s (service VARCHAR, id VARCHAR, last_heartbeat"
               " TIMESTAMPTZ, PRIMARY KEY (service))",
               admin->table);
    if (meta_role) {
        char *role = PQescapeIdentifier(admin->pq, meta_role, strlen(meta_role));
        buf_printf(&sql, ";ALTER TABLE %s OWNER TO %s", admin->table, role ? role : "\"\"");
        PQfreemem(role);
    }
    rc = admin_run_locked(admin, "create the leader table", buf_str(&sql), err);
    buf_done(&sql);
    return rc;
}

static int ensure_leader(struct admin *admin, struct err *err)
{
    bool exists = false;
    struct err ignored;

    if (admin_leader_exists(admin, &exists, err) < 0)
        return -1;
    if (exists)
        return 0;
    if (check_creator(admin, err) < 0)
        return -1;
    if (create_leader(admin, err) == 0) {
        admin_say(admin, "table %s created, as a meta would at its first start", admin->table);
        return 0;
    }
    // A meta may have been faster (23505, 42P07).
    return admin_leader_exists(admin, &exists, &ignored) == 0 && exists ? 0 : -1;
}

static void put_replaced(struct buf *text, const char *template, const char *mark,
                         const char *value)
{
    const char *at = template;

    for (const char *hit = strstr(at, mark); hit; hit = strstr(at, mark)) {
        buf_append(text, at, (size_t)(hit - at));
        buf_puts(text, value);
        at = hit + strlen(mark);
    }
    buf_puts(text, at);
}

static void put_grant(struct buf *text, const char *table, const char *quoted_role)
{
    struct buf half = {0};

    put_replaced(&half, sql_grant, SQL_LEADER_TABLE, table);
    put_replaced(text, buf_str(&half), SQL_ROLE, quoted_role);
    buf_done(&half);
}

static int grant_to(struct admin *admin, const char *role, struct err *err)
{
    struct buf sql = {0};
    char *quoted = PQescapeIdentifier(admin->pq, role, strlen(role));
    int rc = 0;

    if (!quoted)
        return err_set(err, ERR_INVALID, 0, "role name is not valid text");
    put_grant(&sql, admin->table, quoted);
    rc = admin_run_locked(admin, "grant", buf_str(&sql), err);
    if (rc == 0)
        admin_say(admin, "rights granted to %s", quoted);
    PQfreemem(quoted);
    buf_done(&sql);
    return rc;
}

static int give_to_owner(struct admin *admin, struct err *err)
{
    struct buf sql = {0};
    int rc = 0;

    put_replaced(&sql, sql_owner, SQL_LEADER_TABLE, admin->table);
    rc = admin_run_locked(admin, "hand drop_phantom to the table's owner", buf_str(&sql), err);
    buf_done(&sql);
    return rc;
}

static int grant_all(struct admin *admin, struct err *err)
{
    char sql[384], owner[ELECTION_TABLE_SIZE];

    (void)snprintf(
        sql, sizeof sql,
        "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = '%s'::regclass AND"
        " pg_get_userbyid(relowner) <> current_user",
        admin->table);
    if (admin_value(admin, sql, owner, sizeof owner, err) < 0)
        return -1;
    if (owner[0] && grant_to(admin, owner, err) < 0)
        return -1;
    for (size_t i = 0; i < admin->options->role_count; i++) {
        if (grant_to(admin, admin->options->roles[i], err) < 0)
            return -1;
    }
    return 0;
}

static int install_trigger(struct admin *admin, struct err *err)
{
    static const char *const names[] = {SQL_HOLD_NAME, SQL_TRIGGER_NAME};
    struct buf sql = {0};
    char state[2][8];
    int rc = 0;

    for (size_t i = 0; i < 2; i++) {
        if (admin_trigger_state(admin, names[i], state[i], sizeof state[i], err) < 0)
            return -1;
    }
    if (strcmp(state[0], "on") == 0 && strcmp(state[1], "on") == 0) {
        admin_say(admin, "triggers on %s are installed", admin->table);
        return 0;
    }
    for (size_t i = 0; i < 2; i++) {
        if (state[i][0])
            buf_printf(&sql, "DROP TRIGGER %s ON %s;", names[i], admin->table);
    }
    put_replaced(&sql, sql_trigger, SQL_LEADER_TABLE, admin->table);
    rc = admin_run_locked(admin, "create the triggers", buf_str(&sql), err);
    buf_done(&sql);
    if (rc == 0)
        admin_say(admin, "triggers on %s created", admin->table);
    return rc;
}

// --- the guard ---

static bool is_mode(const char *guard)
{
    return strcmp(guard, "off") == 0 || strcmp(guard, "observe") == 0 ||
           strcmp(guard, "enforce") == 0;
}

static int check_mode(const char *what, const char *mode, struct err *err)
{
    if (!mode || is_mode(mode))
        return 0;
    return err_set(err, ERR_INVALID, 0, "%s \"%s\": expected off, observe or enforce", what,
                   mode);
}

static int check_modes(const struct sql_options *options, struct err *err)
{
    if (check_mode("guard", options->guard, err) < 0)
        return -1;
    return check_mode("recovery", options->recovery, err);
}

// `name` is that of the setting, `mode` NULL leaves it as it is.
static int set_mode(struct admin *admin, const char *name, const char *mode, struct err *err)
{
    char sql[160], now[16];

    if (mode) {
        (void)snprintf(sql, sizeof sql,
                       "UPDATE " SQL_SCHEMA ".setting SET value = '%s' WHERE name = '%s'", mode,
                       name);
        if (admin_run_locked(admin, "set a mode", sql, err) < 0)
            return -1;
    }
    (void)snprintf(sql, sizeof sql,
                   "SELECT value FROM " SQL_SCHEMA ".setting WHERE name = '%s'", name);
    if (admin_value(admin, sql, now, sizeof now, err) < 0)
        return -1;
    admin_say(admin, "%s: %s", name, now);
    return 0;
}

// A kind of triggers: what lists its tables, what puts them there, and what that makes of one.
struct covering {
    const char *tables, *cover, *done;
};

static const struct covering coverings[] = {
    {"guarded_tables", "cover", "is guarded"},
    {"recovery_tables", "cover_recovery", "is watched for recoveries"},
};

// Off, the guard has no triggers but worker's.
static int say_covered(struct admin *admin, const struct covering *covering, const char *name,
                       struct err *err)
{
    char guard[16];

    if (admin_value(admin, "SELECT value FROM " SQL_SCHEMA ".setting WHERE name = 'guard'",
                    guard, sizeof guard, err) < 0)
        return -1;
    bool is_off = covering == &coverings[0] && strcmp(guard, "off") == 0;
    admin_say(admin, "table %s %s", name,
              is_off && strcmp(name, "worker") != 0 ? "is not guarded any more"
                                                    : covering->done);
    return 0;
}

static int cover(struct admin *admin, const struct covering *covering, const char *name,
                 struct err *err)
{
    char *quoted = PQescapeLiteral(admin->pq, name, strlen(name));
    char sql[256], what[128];
    int rc = 0;

    if (!quoted)
        return err_set(err, ERR_INVALID, 0, "a table's name is not valid text");
    (void)snprintf(sql, sizeof sql, "SELECT " SQL_SCHEMA ".%s(%s)", covering->cover, quoted);
    (void)snprintf(what, sizeof what, "put triggers on table %s", name);
    PQfreemem(quoted);
    rc = admin_run_locked(admin, what, sql, err);
    return rc == 0 ? say_covered(admin, covering, name, err) : rc;
}

// One table a transaction: a CREATE TRIGGER that waits holds up all who write its table.
static int cover_all(struct admin *admin, const struct covering *covering, struct err *err)
{
    char name[ELECTION_TABLE_SIZE], last[ELECTION_TABLE_SIZE] = "", sql[160];

    (void)snprintf(sql, sizeof sql,
                   "SELECT name FROM " SQL_SCHEMA
                   ".%s() WHERE NOT is_covered ORDER BY name LIMIT 1",
                   covering->tables);
    for (;;) {
        if (admin_value(admin, sql, name, sizeof name, err) < 0)
            return err_wrap(err, "look for tables without triggers");
        if (!name[0])
            return 0;
        if (strcmp(name, last) == 0)
            return err_set(err, ERR_BUG, 0, "table %s does not keep its triggers", name);
        if (cover(admin, covering, name, err) < 0)
            return -1;
        memcpy(last, name, sizeof last);
    }
}

// A pooler in transaction mode shows the search_path of whoever had the session before: an
// unqualified name could be anybody's table.
static int check_pooler(struct admin *admin, struct err *err)
{
    bool is_pooled = false;

    if (admin_is_pooled(admin, &is_pooled, err) < 0)
        return -1;
    if (!is_pooled)
        return 0;
    admin_say(admin, "this connection goes through a pooler: use the server's own address, "
                     "for metas and agents as well");
    if (strchr(admin->options->leader_table, '.'))
        return 0;
    return err_set(
        err, ERR_INVALID, 0,
        "election.leaderTable \"%s\" behind a pooler: other clients may have set the "
        "search_path; write schema.%s, or use the server's own address",
        admin->options->leader_table, admin->options->leader_table);
}

int sql_install(const struct sql_options *options, struct err *err)
{
    __attribute__((cleanup(admin_done))) struct admin admin = {.options = options};

    if (check_modes(options, err) < 0 || admin_begin(&admin, err) < 0 ||
        check_pooler(&admin, err) < 0)
        return -1;
    if (lock_out_others(&admin, err) < 0 || check_existing(&admin, err) < 0 ||
        admin_run_locked(&admin, "create the schema", sql_schema, err) < 0)
        return -1;
    admin_say(&admin, "schema version %d is in place", SQL_VERSION);
    if (set_mode(&admin, "guard", options->guard, err) < 0 ||
        set_mode(&admin, "recovery", options->recovery, err) < 0 ||
        ensure_leader(&admin, err) < 0 || give_to_owner(&admin, err) < 0 ||
        grant_all(&admin, err) < 0 || cover_all(&admin, &coverings[0], err) < 0 ||
        cover_all(&admin, &coverings[1], err) < 0)
        return -1;
    return install_trigger(&admin, err);
}

// Tables one by one, the election's last: as long as it has its triggers, terms move and what
// is still guarded is guarded rightly.
static int uncover_all(struct admin *admin, struct err *err)
{
    char sql[2048], last[2048] = "";

    for (;;) {
        if (admin_value(admin,
                        "SELECT string_agg(format('DROP TRIGGER IF EXISTS %I ON %s', t.tgname,"
                        " t.tgrelid::regclass), ';') FROM pg_trigger t"
                        " JOIN pg_proc p ON p.oid = t.tgfoid"
                        " JOIN pg_namespace n ON n.oid = p.pronamespace"
                        " WHERE n.nspname = '" SQL_SCHEMA
                        "' AND NOT t.tgisinternal GROUP BY t.tgrelid"
                        " ORDER BY bool_or(p.proname = 'on_campaign'), t.tgrelid LIMIT 1",
                        sql, sizeof sql, err) < 0)
            return err_wrap(err, "look for triggers");
        if (!sql[0])
            return 0;
        if (strcmp(sql, last) == 0)
            return err_set(err, ERR_BUG, 0, "a trigger does not go away: %.100s", sql);
        if (admin_run_locked(admin, "drop the triggers of a table", sql, err) < 0)
            return -1;
        memcpy(last, sql, sizeof last);
    }
}

int sql_uninstall(const struct sql_options *options, struct err *err)
{
    __attribute__((cleanup(admin_done))) struct admin admin = {.options = options};

    if (admin_begin(&admin, err) < 0 || lock_out_others(&admin, err) < 0 ||
        check_existing(&admin, err) < 0 || uncover_all(&admin, err) < 0 ||
        admin_run_locked(&admin, "uninstall", sql_remove, err) < 0)
        return -1;
    admin_say(&admin, "nothing of metafence is left in this database");
    return 0;
}

// What RisingWave had from v2.3 to 3.2: for the printed text, which can't look.
static const char *const known_tables[] = {
    "worker",
    "worker_property",
    "catalog_version",
    "hummock_version_delta",
    "hummock_version_stats",
    "hummock_sequence",
    "hummock_pinned_version",
    "hummock_pinned_snapshot",
    "hummock_epoch_to_version",
    "hummock_time_travel_version",
    "hummock_time_travel_delta",
    "hummock_sstable_info",
    "hummock_gc_history",
    "hummock_table_change_log",
    "compaction_task",
    "compaction_status",
    "compaction_config",
};

static const char *const watched_tables[] = {"object", "streaming_job", "fragment",
                                             "hummock_version_delta"};

static void put_mode(struct buf *text, const char *name, const char *mode)
{
    if (mode)
        buf_printf(text, "UPDATE " SQL_SCHEMA ".setting SET value = '%s' WHERE name = '%s';\n",
                   mode, name);
}

static void put_cover(struct buf *text, const char *function, const char *table)
{
    buf_printf(text, "BEGIN;\n" LOCK_TIMEOUT "\nSELECT " SQL_SCHEMA ".%s('%s');\nCOMMIT;\n",
               function, table);
}

int sql_print(const struct sql_options *options, struct buf *ret_text, struct err *err)
{
    char table[2 * ELECTION_TABLE_SIZE + 8];

    if (check_modes(options, err) < 0)
        return -1;
    if (election_table_quote(options->leader_table, table, sizeof table, err) < 0)
        return err_wrap(err, "election.leaderTable");
    buf_printf(ret_text, "BEGIN;\n" LOCK_TIMEOUT "\n%s", sql_schema);
    put_mode(ret_text, "guard", options->guard);
    put_mode(ret_text, "recovery", options->recovery);
    buf_puts(ret_text, "COMMIT;\n\n");
    for (size_t i = 0; i < options->role_count; i++) {
        char role[2 * ELECTION_TABLE_SIZE];
        if (election_table_quote(options->roles[i], role, sizeof role, err) < 0)
            return err_wrap(err, "role");
        buf_puts(ret_text, "BEGIN;\n" LOCK_TIMEOUT "\n");
        put_grant(ret_text, table, role);
        buf_puts(ret_text, "COMMIT;\n\n");
    }
    buf_puts(ret_text, "BEGIN;\n" LOCK_TIMEOUT "\n");
    put_replaced(ret_text, sql_owner, SQL_LEADER_TABLE, table);
    buf_puts(ret_text,
             "COMMIT;\n\n-- Each of these tables that is there; false: none, or guarded "
             "already.\n");
    for (size_t i = 0; i < sizeof known_tables / sizeof known_tables[0]; i++)
        put_cover(ret_text, "cover", known_tables[i]);
    for (size_t i = 0; i < sizeof watched_tables / sizeof watched_tables[0]; i++)
        put_cover(ret_text, "cover_recovery", watched_tables[i]);
    buf_puts(ret_text, "\nBEGIN;\n" LOCK_TIMEOUT "\n");
    put_replaced(ret_text, sql_trigger, SQL_LEADER_TABLE, table);
    buf_puts(ret_text, "COMMIT;\n");
    return 0;
}
