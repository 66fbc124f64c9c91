// SPDX-License-Identifier: Apache-2.0
// Parser of what Postgres answers. Pure: plain strings in, no allocation, no assertion on
// input.
#include "agent/pg/election.h"

#include <stdio.h>
#include <string.h>

enum {
    COL_IN_RECOVERY,
    COL_SYSTEM_ID,
    COL_TIMELINE,
    COL_DB_NOW,
    COL_ROW_PRESENT,
    COL_ID,
    COL_HEARTBEAT,
    COL_OTHER_MEMBERS,
    COL_TERM,
    COL_TERM_OWNER_ID,
    COL_OWNER_TAG,
    COL_TERM_SYSTEM_ID,
    COL_TERM_TIMELINE,
    COL_HEARTBEAT_TAG,
    COL_TAG_OWNED,
    COL_TAG_SUPERSEDED,
    COL_GUARD,
    COL_COUNT,
};

_Static_assert((int)COL_COUNT == (int)ELECTION_FIELDS, "columns of the read");

static const char *const column_names[COL_COUNT] = {
    "in_recovery",    "system_id",     "timeline",
    "db_now",         "row_present",   "id",
    "heartbeat",      "other_members", "term",
    "term_owner_id",  "owner_tag",     "term_system_id",
    "term_timeline",  "heartbeat_tag", "tag_owned",
    "tag_superseded", "guard",
};

struct row {
    const char *const *fields;
    struct err *err;
};

static int bad(const struct row *row, int col, const char *expected)
{
    const char *value = row->fields[col];

    return err_set(row->err, ERR_INVALID, 0,
                   "election answer, column %s: %s%.40s%s, expected %s", column_names[col],
                   value ? "\"" : "", value ? value : "NULL", value ? "\"" : "", expected);
}

// NULL gives false when `may_be_null`.
static int get_bool(const struct row *row, int col, bool may_be_null, bool *ret)
{
    const char *value = row->fields[col];

    if (!value && may_be_null) {
        *ret = false;
        return 0;
    }
    if (!value || (strcmp(value, "t") != 0 && strcmp(value, "f") != 0))
        return bad(row, col, "t or f");
    *ret = value[0] == 't';
    return 0;
}

// Digits only; false also when it does not fit.
static bool parse_u64(const char *text, unsigned base, uint64_t *ret)
{
    uint64_t value = 0;

    if (!text[0])
        return false;
    for (; *text; text++) {
        unsigned digit = 99;
        if (*text >= '0' && *text <= '9')
            digit = (unsigned)(*text - '0');
        else if (*text >= 'A' && *text <= 'F')
            digit = (unsigned)(*text - 'A') + 10;
        if (digit >= base || __builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *ret = value;
    return true;
}

bool election_parse_count(const char *text, int64_t *ret_count)
{
    uint64_t count = 0;

    if (!text || !parse_u64(text, 10, &count) || count > INT64_MAX)
        return false;
    *ret_count = (int64_t)count;
    return true;
}

static bool is_digits(const char *text)
{
    return text[0] && text[strspn(text, "0123456789")] == '\0';
}

// Microseconds since 1970. Beyond int64 (the far end of timestamptz, ±infinity) it saturates.
static int get_micros(const struct row *row, int col, int64_t *ret)
{
    const char *value = row->fields[col];
    bool is_negative = value && value[0] == '-';
    const char *digits = is_negative ? value + 1 : value;
    uint64_t magnitude = 0;

    if (!value || (!is_digits(digits) && strcmp(digits, "infinity") != 0))
        return bad(row, col, "microseconds");
    if (!parse_u64(digits, 10, &magnitude) || magnitude > INT64_MAX)
        magnitude = INT64_MAX;
    *ret = is_negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return 0;
}

// NULL gives 0.
static int get_u64(const struct row *row, int col, uint64_t max, uint64_t *ret)
{
    const char *value = row->fields[col];
    uint64_t parsed = 0;

    if (value && (!parse_u64(value, 10, &parsed) || parsed > max))
        return bad(row, col, "an unsigned number");
    *ret = parsed;
    return 0;
}

// The 8 hex digits that start a WAL file's name. NULL gives 0.
static int get_timeline(const struct row *row, int col, uint32_t *ret)
{
    const char *value = row->fields[col];
    uint64_t parsed = 0;

    if (value && (strlen(value) != 8 || !parse_u64(value, 16, &parsed)))
        return bad(row, col, "8 hex digits");
    *ret = (uint32_t)parsed;
    return 0;
}

// A cut id could equal another: too long is an error. NULL gives "".
static int get_text(const struct row *row, int col, size_t size, char *ret)
{
    const char *value = row->fields[col] ? row->fields[col] : "";

    if (strlen(value) >= size)
        return bad(row, col, "a shorter text");
    memcpy(ret, value, strlen(value) + 1);
    return 0;
}

static int64_t age_ns(int64_t now_us, int64_t heartbeat_us)
{
    int64_t age = 0;

    if (__builtin_sub_overflow(now_us, heartbeat_us, &age) ||
        __builtin_mul_overflow(age, 1000, &age))
        return now_us > heartbeat_us ? INT64_MAX : INT64_MIN;
    return age;
}

static int parse_row(const struct row *row, struct election_read *read)
{
    const char *const *fields = row->fields;

    if (get_bool(row, COL_ROW_PRESENT, false, &read->row_present) < 0)
        return -1;
    if (!read->row_present)
        return 0;
    read->id_is_null = !fields[COL_ID];
    read->heartbeat_is_null = !fields[COL_HEARTBEAT];
    if (get_text(row, COL_ID, sizeof read->id, read->id) < 0)
        return -1;
    if (read->heartbeat_is_null)
        return 0;
    if (get_micros(row, COL_HEARTBEAT, &read->heartbeat_us) < 0)
        return -1;
    read->age_ns = age_ns(read->db_now_us, read->heartbeat_us);
    return 0;
}

static int parse_term(const struct row *row, struct election_read *read)
{
    const char *const *fields = row->fields;

    read->guard_enforcing = fields[COL_GUARD] && strcmp(fields[COL_GUARD], "enforce") == 0;
    read->term_known = fields[COL_TERM] != NULL;
    if (get_u64(row, COL_TERM, INT64_MAX, &read->term) < 0 ||
        get_text(row, COL_TERM_OWNER_ID, sizeof read->term_owner_id, read->term_owner_id) < 0 ||
        get_text(row, COL_OWNER_TAG, sizeof read->owner_tag, read->owner_tag) < 0 ||
        get_u64(row, COL_TERM_SYSTEM_ID, UINT64_MAX, &read->term_system_id) < 0 ||
        get_timeline(row, COL_TERM_TIMELINE, &read->term_timeline) < 0 ||
        get_text(row, COL_HEARTBEAT_TAG, sizeof read->heartbeat_tag, read->heartbeat_tag) < 0 ||
        get_bool(row, COL_TAG_OWNED, true, &read->tag_owned_term) < 0 ||
        get_bool(row, COL_TAG_SUPERSEDED, true, &read->tag_superseded) < 0)
        return -1;
    return 0;
}

// What is broken in our own tables costs the term, never the row: that would let a healthy
// leader's proof run out.
static void take_term(const struct row *row, struct election_read *read)
{
    struct err ignored = {0};
    const struct row term = {row->fields, &ignored};
    struct election_read bare = *read;

    if (parse_term(&term, read) < 0)
        *read = bare;
}

static int parse_fields(const struct row *row, struct election_read *read)
{
    bool in_recovery = false;
    uint64_t members = 0;

    if (get_bool(row, COL_IN_RECOVERY, false, &in_recovery) < 0 ||
        get_u64(row, COL_SYSTEM_ID, UINT64_MAX, &read->system_id) < 0 ||
        get_timeline(row, COL_TIMELINE, &read->timeline) < 0 ||
        get_micros(row, COL_DB_NOW, &read->db_now_us) < 0)
        return -1;
    if (in_recovery) {
        read->status = ELECTION_STANDBY;
        return 0;
    }
    read->members_known = row->fields[COL_OTHER_MEMBERS] != NULL;
    if (get_u64(row, COL_OTHER_MEMBERS, UINT32_MAX, &members) < 0 || parse_row(row, read) < 0)
        return -1;
    read->other_members = (uint32_t)members;
    take_term(row, read);
    return 0;
}

int election_parse(const char *const *fields, size_t count, struct election_read *ret_read,
                   struct err *err)
{
    struct row row = {fields, err};
    struct election_read read = {
        .sent_at = ret_read->sent_at,
        .received_at = ret_read->received_at,
        .was_hedged = ret_read->was_hedged,
    };
    struct election_read empty = read;

    *ret_read = empty;
    if (count != ELECTION_FIELDS)
        return err_set(err, ERR_INVALID, 0, "election answer has %zu columns, expected %d",
                       count, ELECTION_FIELDS);
    if (parse_fields(&row, &read) < 0)
        return -1;
    *ret_read = read;
    return 0;
}

int election_parse_probe(const char *const *fields, size_t count,
                         struct election_caps *ret_caps, struct err *err)
{
    bool flags[ELECTION_PROBE_FIELDS] = {false};
    uint64_t tables = 0, readable = 0;

    if (count != ELECTION_PROBE_FIELDS)
        return err_set(err, ERR_INVALID, 0, "catalog answer has %zu columns, expected %d",
                       count, ELECTION_PROBE_FIELDS);
    for (size_t i = 0; i < count; i++) {
        bool is_count = i == 4 || i == 5;
        uint64_t *number = i == 4 ? &tables : &readable;
        if (!fields[i] || (is_count && !parse_u64(fields[i], 10, number)) ||
            (!is_count && strcmp(fields[i], "t") != 0 && strcmp(fields[i], "f") != 0))
            return err_set(err, ERR_INVALID, 0, "catalog answer, column %zu: \"%.40s\"", i,
                           fields[i] ? fields[i] : "NULL");
        flags[i] = !is_count && fields[i][0] == 't';
    }
    *ret_caps = (struct election_caps){
        .known = true,
        .leader_exists = flags[0],
        .leader_typed = flags[1],
        .member_readable = flags[3],
        .member_denied = flags[2] && !flags[3],
        .schema_readable = readable == 4,
        .schema_denied = tables > 0 && readable < tables,
        .can_end = flags[6],
        .can_record = flags[7],
        .can_drop = flags[8],
        .can_identify = flags[9],
        .can_complete = flags[10],
    };
    return 0;
}
