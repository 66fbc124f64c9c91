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

static int leader_exists(struct admin *admin, bool *ret_exists, struct err *err)
{
    char sql[256], value[8];

    (void)snprintf(sql, sizeof sql, "SELECT to_regclass('%s') IS NOT NULL", admin->table);
    if (admin_value(admin, sql, value, sizeof value, err) < 0)
        return err_wrap(err, "look for table %s", admin->table);
    *ret_exists = value[0] == 't';
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

    if (leader_exists(admin, &exists, err) < 0)
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
    return leader_exists(admin, &exists, &ignored) == 0 && exists ? 0 : -1;
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

// "", "on", or "off" (present, but not as we want it).
static int trigger_state(struct admin *admin, char *buf, size_t size, struct err *err)
{
    char sql[512];

    // tgtype 21: row, insert, update, after. tgenabled O or A: fires for ordinary sessions.
    (void)snprintf(
        sql, sizeof sql,
        "SELECT CASE WHEN t.tgtype = 21 AND t.tgenabled IN ('O','A') AND n.nspname = "
        "'" SQL_SCHEMA
        "' THEN 'on' ELSE 'off' END FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid"
        " JOIN pg_namespace n ON n.oid = p.pronamespace"
        " WHERE t.tgrelid = to_regclass('%s') AND t.tgname = '" SQL_TRIGGER_NAME "'",
        admin->table);
    return admin_value(admin, sql, buf, size, err);
}

static int install_trigger(struct admin *admin, struct err *err)
{
    struct buf sql = {0};
    char state[8];
    int rc = trigger_state(admin, state, sizeof state, err);

    if (rc < 0)
        return -1;
    if (strcmp(state, "on") == 0) {
        admin_say(admin, "trigger on %s is installed", admin->table);
        return 0;
    }
    if (state[0])
        buf_printf(&sql, "DROP TRIGGER " SQL_TRIGGER_NAME " ON %s;", admin->table);
    put_replaced(&sql, sql_trigger, SQL_LEADER_TABLE, admin->table);
    rc = admin_run_locked(admin, "create the trigger", buf_str(&sql), err);
    buf_done(&sql);
    if (rc == 0)
        admin_say(admin, "trigger on %s created", admin->table);
    return rc;
}

int sql_install(const struct sql_options *options, struct err *err)
{
    __attribute__((cleanup(admin_done))) struct admin admin = {.options = options};

    if (admin_begin(&admin, err) < 0 || lock_out_others(&admin, err) < 0 ||
        check_existing(&admin, err) < 0 ||
        admin_run_locked(&admin, "create the schema", sql_schema, err) < 0)
        return -1;
    admin_say(&admin, "schema version %d is in place", SQL_VERSION);
    if (ensure_leader(&admin, err) < 0 || give_to_owner(&admin, err) < 0 ||
        grant_all(&admin, err) < 0)
        return -1;
    return install_trigger(&admin, err);
}

int sql_uninstall(const struct sql_options *options, struct err *err)
{
    __attribute__((cleanup(admin_done))) struct admin admin = {.options = options};

    if (admin_begin(&admin, err) < 0 || lock_out_others(&admin, err) < 0 ||
        check_existing(&admin, err) < 0 ||
        admin_run_locked(&admin, "uninstall", sql_remove, err) < 0)
        return -1;
    admin_say(&admin, "nothing of metafence is left in this database");
    return 0;
}

int sql_print(const struct sql_options *options, struct buf *ret_text, struct err *err)
{
    char table[2 * ELECTION_TABLE_SIZE + 8];

    if (election_table_quote(options->leader_table, table, sizeof table, err) < 0)
        return err_wrap(err, "election.leaderTable");
    buf_printf(ret_text, "BEGIN;\n" LOCK_TIMEOUT "\n%sCOMMIT;\n\n", sql_schema);
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
    buf_puts(ret_text, "COMMIT;\n\nBEGIN;\n" LOCK_TIMEOUT "\n");
    put_replaced(ret_text, sql_trigger, SQL_LEADER_TABLE, table);
    buf_puts(ret_text, "COMMIT;\n");
    return 0;
}

static int read_counts(struct admin *admin, struct sql_status *status, struct err *err)
{
    char text[64];
    const struct {
        const char *sql;
        int64_t *ret;
    } counts[] = {
        {"SELECT coalesce(max(term), 0) FROM " SQL_SCHEMA ".term", &status->term},
        {"SELECT count(*) FROM " SQL_SCHEMA ".tag", &status->tags},
        {"SELECT count(*) FROM " SQL_SCHEMA ".death", &status->deaths},
    };
    int64_t version = 0;

    if (admin_value(admin, "SELECT value FROM " SQL_SCHEMA ".setting WHERE name = 'guard'",
                    status->guard, sizeof status->guard, err) < 0 ||
        admin_value(admin,
                    "SELECT value FROM " SQL_SCHEMA ".setting WHERE name = 'schema_version'",
                    text, sizeof text, err) < 0)
        return -1;
    status->version =
        election_parse_count(text, &version) && version < 1000000 ? (int)version : 0;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (admin_value(admin, counts[i].sql, text, sizeof text, err) < 0)
            return -1;
        if (!election_parse_count(text, counts[i].ret))
            return err_set(err, ERR_INVALID, 0, "not a count: \"%s\"", text);
    }
    status->can_read = true;
    return 0;
}

int sql_status(const struct sql_options *options, struct sql_status *ret_status,
               struct err *err)
{
    __attribute__((cleanup(admin_done))) struct admin admin = {.options = options};
    struct sql_status status = {0};
    char state[8];

    if (admin_begin(&admin, err) < 0 || leader_exists(&admin, &status.has_table, err) < 0 ||
        trigger_state(&admin, state, sizeof state, err) < 0 ||
        admin_value(
            &admin,
            "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = '" SQL_SCHEMA
            "'",
            status.owner, sizeof status.owner, err) < 0)
        return -1;
    status.has_schema = status.owner[0] != '\0';
    status.has_trigger = state[0] != '\0';
    status.is_trigger_on = strcmp(state, "on") == 0;
    // Without rights the rest stays empty, which can_read says.
    if (status.has_schema && read_counts(&admin, &status, err) < 0 &&
        strcmp(admin.sqlstate, "42501") != 0 && strcmp(admin.sqlstate, "42P01") != 0)
        return -1;
    *ret_status = status;
    return 0;
}
