// SPDX-License-Identifier: Apache-2.0
// A server that answers oddly: too little, too much, errors of every class, half a message, or
// nothing behind a good log-in. Anything but exactly the expected shape is no proof, no verdict
// and no crash, and the next good answer counts.
#include "tests/unit/pg/puppet.h"

#include <string.h>

typedef void put_fn(struct puppet_answer *answer, const char *sqlstate);

static const char *const good_probe[ELECTION_PROBE_FIELDS] = {"t", "t", "f", "f", "0", "0",
                                                              "f", "f", "f", "f", "f"};
// Columns of the read: in recovery, identity, timeline, clock, row, id, heartbeat, members, ...
static const char *const good_row[ELECTION_FIELDS] = {
    "f", NULL, NULL, "1700000001000000", "t", "meta-a", "1700000000000000"};

static void put_row(struct puppet_answer *answer, const char *const *row, size_t count)
{
    puppet_columns(answer, count);
    puppet_row(answer, row, count);
}

static void put_good(struct puppet_answer *answer, const char *sqlstate)
{
    (void)sqlstate;
    put_row(answer, good_row, ELECTION_FIELDS);
    puppet_end(answer, "SELECT 1");
}

static void put_with(struct puppet_answer *answer, size_t column, const char *value)
{
    const char *row[ELECTION_FIELDS];

    memcpy(row, good_row, sizeof row);
    row[column] = value;
    put_row(answer, row, ELECTION_FIELDS);
    puppet_end(answer, "SELECT 1");
}

static void put_null_role(struct puppet_answer *answer, const char *sqlstate)
{
    (void)sqlstate;
    put_with(answer, 0, NULL);
}

static void put_odd_role(struct puppet_answer *answer, const char *sqlstate)
{
    (void)sqlstate;
    put_with(answer, 0, "maybe");
}

static void put_odd_clock(struct puppet_answer *answer, const char *sqlstate)
{
    (void)sqlstate;
    put_with(answer, 3, "noon");
}

static void put_standby(struct puppet_answer *answer, const char *sqlstate)
{
    (void)sqlstate;
    put_with(answer, 0, "t");
}

static void put_no_row(struct puppet_answer *answer, const char *sqlstate)
{
    (void)sqlstate;
    puppet_columns(answer, ELECTION_FIELDS);
    puppet_end(answer, "SELECT 0");
}

static void put_two_rows(struct puppet_answer *answer, const char *sqlstate)
{
    (void)sqlstate;
    put_row(answer, good_row, ELECTION_FIELDS);
    puppet_row(answer, good_row, ELECTION_FIELDS);
    puppet_end(answer, "SELECT 2");
}

static void put_column_less(struct puppet_answer *answer, const char *sqlstate)
{
    (void)sqlstate;
    put_row(answer, good_row, ELECTION_FIELDS - 1);
    puppet_end(answer, "SELECT 1");
}

static void put_column_more(struct puppet_answer *answer, const char *sqlstate)
{
    static const char *const more[ELECTION_FIELDS + 1] = {"f"};

    (void)sqlstate;
    put_row(answer, more, ELECTION_FIELDS + 1);
    puppet_end(answer, "SELECT 1");
}

static void put_notice_too(struct puppet_answer *answer, const char *sqlstate)
{
    puppet_error(answer, 'N', sqlstate);
    put_good(answer, "");
}

static void put_error(struct puppet_answer *answer, const char *sqlstate)
{
    puppet_error(answer, 'E', sqlstate);
    puppet_end(answer, NULL);
}

static void put_row_and_error(struct puppet_answer *answer, const char *sqlstate)
{
    put_row(answer, good_row, ELECTION_FIELDS);
    put_error(answer, sqlstate);
}

static void put_last_words(struct puppet_answer *answer, const char *sqlstate)
{
    puppet_error(answer, 'E', sqlstate);
    answer->is_last = true;
}

static void put_garbage(struct puppet_answer *answer, const char *sqlstate)
{
    static const char garbage[] = "D\xff\xff\xff\xffHTTP/1.1 400 Bad Request\r\n\r\n";

    (void)sqlstate;
    puppet_raw(answer, garbage, sizeof garbage);
}

static void put_half_a_row(struct puppet_answer *answer, const char *sqlstate)
{
    (void)sqlstate;
    put_row(answer, good_row, ELECTION_FIELDS);
    answer->len -= 20;
}

static void put_row_and_silence(struct puppet_answer *answer, const char *sqlstate)
{
    (void)sqlstate;
    put_row(answer, good_row, ELECTION_FIELDS);
}

static void put_nothing(struct puppet_answer *answer, const char *sqlstate)
{
    (void)sqlstate;
    answer->len = 0; // nor that the statement was understood
}

static void put_the_end(struct puppet_answer *answer, const char *sqlstate)
{
    (void)sqlstate;
    answer->is_last = true;
}

struct oddity {
    const char *name;
    put_fn *put;
    const char *sqlstate;
    enum election_status status;
};

static const struct oddity good = {"good", put_good, "", ELECTION_OK};
static const struct oddity cases[] = {
    {"no row", put_no_row, "", ELECTION_UNREADABLE},
    {"two rows", put_two_rows, "", ELECTION_UNREADABLE},
    {"a column less", put_column_less, "", ELECTION_UNREADABLE},
    {"a column more", put_column_more, "", ELECTION_UNREADABLE},
    {"NULL for the role", put_null_role, "", ELECTION_UNREADABLE},
    {"neither t nor f", put_odd_role, "", ELECTION_UNREADABLE},
    {"clock is a word", put_odd_clock, "", ELECTION_UNREADABLE},
    {"standby", put_standby, "", ELECTION_STANDBY},
    {"a notice before it", put_notice_too, "01000", ELECTION_OK},
    {"row and then an error", put_row_and_error, "57014", ELECTION_SILENT},
    {"cannot connect now", put_error, "57P03", ELECTION_SILENT},
    {"too many connections", put_error, "53300", ELECTION_REFUSED},
    {"wrong password", put_error, "28P01", ELECTION_REFUSED},
    {"no right", put_error, "42501", ELECTION_REFUSED},
    {"deadlock", put_error, "40P01", ELECTION_SILENT},
    {"serialization", put_error, "40001", ELECTION_SILENT},
    {"lock not available", put_error, "55P03", ELECTION_SILENT},
    {"idle in transaction", put_error, "25P03", ELECTION_SILENT},
    {"read only", put_error, "25006", ELECTION_SILENT},
    {"out of memory", put_error, "53200", ELECTION_SILENT},
    {"internal error", put_error, "XX000", ELECTION_SILENT},
    {"shut down", put_last_words, "57P01", ELECTION_SILENT},
    {"connection failure", put_last_words, "08006", ELECTION_SILENT},
    {"garbage", put_garbage, "", ELECTION_SILENT},
    {"half a row", put_half_a_row, "", ELECTION_SILENT},
    {"row and silence", put_row_and_silence, "", ELECTION_SILENT},
    {"silence", put_nothing, "", ELECTION_SILENT},
    {"closed", put_the_end, "", ELECTION_SILENT},
};

struct play {
    struct pgt *pgt;
    struct puppet *puppet;
    struct pg_params params;
    struct election_config config;
    struct pg *pg;
    struct election *election;
    const struct oddity *now;
    unsigned reads;
    bool is_done;
    struct election_read read;
};

static void on_statement(const char *sql, struct puppet_answer *answer, void *arg)
{
    struct play *play = arg;

    if (strncmp(sql, "SELECT pg_is_in_recovery()", 26) == 0) {
        play->reads++;
        play->now->put(answer, play->now->sqlstate);
    } else if (strncmp(sql, "WITH leader", 11) == 0) {
        put_row(answer, good_probe, ELECTION_PROBE_FIELDS);
        puppet_end(answer, "SELECT 1");
    } else {
        puppet_end(answer, "SET");
    }
}

static void on_read(const struct election_read *read, void *arg)
{
    struct play *play = arg;

    play->is_done = true;
    play->read = *read;
}

static enum election_status look(struct play *play)
{
    play->is_done = false;
    assert_true(election_read(play->election, "", on_read, play));
    pgt_wait(play->pgt, &play->is_done, 3000);
    return play->read.status;
}

static const struct pg_ops no_ops = {0};

static int setup(void **state)
{
    struct play *play = calloc(1, sizeof *play);
    const struct resolve_config resolve = {.query_timeout_ns = 200 * NS_PER_MS};
    struct err err;

    play->pgt = calloc(1, sizeof *play->pgt);
    assert_int_equal(loop_new(&play->pgt->loop, &err), 0);
    assert_int_equal(resolver_new(play->pgt->loop, &resolve, &play->pgt->resolver, &err), 0);
    play->puppet = puppet_new(play->pgt->loop, on_statement, play);
    play->params = pgt_params(puppet_port(play->puppet));
    play->params.connect_timeout_ns = 400 * NS_PER_MS;
    play->params.query_timeout_ns = 400 * NS_PER_MS;
    play->config =
        (struct election_config){"svc", "election_leader", "election_member", "meta-a"};
    const struct pg_net net = {play->pgt->loop, play->pgt->resolver, &play->params};
    if (pg_new(&net, &no_ops, play, &play->pg, &err) < 0 ||
        election_new(play->pg, &play->config, &play->election, &err) < 0)
        fail_msg("%s", err.msg);
    *state = play;
    return 0;
}

static int teardown(void **state)
{
    struct play *play = *state;

    pg_free(play->pg);
    election_free(play->election);
    puppet_free(play->puppet);
    (void)pgt_teardown((void **)&play->pgt);
    free(play);
    return 0;
}

static void check(struct play *play, const struct oddity *one)
{
    bool is_row = one->status == ELECTION_OK;
    unsigned reads = play->reads;

    play->now = one;
    if (look(play) != one->status)
        fail_msg("%s: status %d, expected %d: %s", one->name, (int)play->read.status,
                 (int)one->status, play->read.fault.err.msg);
    if (play->reads == reads)
        fail_msg("%s: nobody asked", one->name);
    if (play->read.row_present != is_row || (play->read.age_ns != 0) != is_row)
        fail_msg("%s: something was read", one->name);
    if (!is_row && !play->read.fault.err.msg[0])
        fail_msg("%s: nothing says why", one->name);
    if (one->sqlstate[0] && !is_row && strcmp(play->read.fault.sqlstate, one->sqlstate) != 0)
        fail_msg("%s: SQLSTATE %s", one->name, play->read.fault.sqlstate);
}

// Once each, and the good one behind it counts.
static void test_odd_answers(void **state)
{
    struct play *play = *state;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check(play, &cases[i]);
        // What stalled may still have to be given up: at most a few reads later all is well.
        play->now = &good;
        for (int tries = 0; look(play) != ELECTION_OK; tries++)
            if (tries == 5)
                fail_msg("not well after: %s", cases[i].name);
        assert_string_equal(play->read.id, "meta-a");
        assert_true(play->read.age_ns == NS_PER_SEC);
    }
}

// For as long as it lasts: the same answer, and never more than two connections at a time.
static void test_odd_answers_that_last(void **state)
{
    struct play *play = *state;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        play->now = &cases[i];
        for (int n = 0; n < 3; n++) {
            enum election_status status = look(play);
            // While the connection is being replaced nobody is asked.
            if (status != cases[i].status && status != ELECTION_SILENT)
                fail_msg("%s: status %d", cases[i].name, (int)status);
            assert_true(status == ELECTION_OK || !play->read.row_present);
            assert_in_range(puppet_open(play->puppet), 0, 3); // one may be on its way out
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_odd_answers, setup, teardown),
    cmocka_unit_test_setup_teardown(test_odd_answers_that_last, setup, teardown),
};

UNIT_MAIN(tests)
