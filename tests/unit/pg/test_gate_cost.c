// SPDX-License-Identifier: Apache-2.0
// What ordered recovery costs: a checkpoint's commit, with and without its trigger in turns on
// one session, as the difference of each pair; and what a drop is delayed by. The figures are
// printed; only a gross loss fails, for the machine is shared.
#include "tests/unit/pg/recovering.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PAIRS = 1500, DROPS = 200, GROUPS = 50 };

// As a checkpoint writes it: 50 groups, 40 tables in field 11, about 12 kB.
static struct delta checkpoint(uint64_t id)
{
    static uint8_t group[200], table[24];
    struct delta delta = {0};

    memset(group, 0x4a, sizeof group);
    delta_put_number(&delta, 1, id);
    delta_put_number(&delta, 2, id - 1);
    for (int i = 0; i < GROUPS; i++)
        delta_put_bytes(&delta, 3, group, sizeof group);
    for (int i = 0; i < 40; i++)
        delta_put_bytes(&delta, 11, table, sizeof table);
    return delta;
}

// Into the table with the trigger, or into its like that has only the guard's.
static int64_t time_commit(struct scene *s, bool has_trigger, uint64_t id)
{
    static const char *const sql[] = {"INSERT INTO bare VALUES ($1, 0, 0, 0, false, $2)",
                                      "INSERT INTO hummock_version_delta VALUES ($1, 0, 0, 0,"
                                      " false, $2)"};
    struct delta delta = checkpoint(id);
    char text[24];
    const char *values[] = {text, (const char *)delta.bytes};
    const int lengths[] = {0, (int)delta.len};
    const int formats[] = {0, 1};

    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)id);
    struct instant begin = clock_now();
    PGresult *result =
        PQexecParams(s->b1, sql[has_trigger], 2, NULL, values, lengths, formats, 0);
    int64_t took = instant_since(clock_now(), begin);
    assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
    delta_free(&delta);
    return took;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

// Prints the median of the differences with its 95 % interval, by their order, which a few that
// the machine disturbed don't move; returns the upper end in µs.
static double print_pairs(const char *name, double *differences, size_t count)
{
    size_t half = (size_t)(0.98 * sqrt((double)count)) + 1;

    qsort(differences, count, sizeof differences[0], compare);
    print_message("%-30s median %+.1f us, 95 %% interval %+.1f .. %+.1f us\n", name,
                  differences[count / 2], differences[count / 2 - half],
                  differences[count / 2 + half]);
    return differences[count / 2 + half];
}

static double compare_commits(struct scene *s, const char *name)
{
    static double differences[PAIRS];
    static uint64_t id = 100000;

    for (int i = 0; i < 40; i++)
        (void)time_commit(s, i % 2 == 0, ++id);
    for (size_t i = 0; i < PAIRS; i++) {
        int64_t took[2];
        for (size_t k = 0; k < 2; k++) {
            bool has_trigger = (i + k) % 2 == 0; // each is first in turn
            took[has_trigger] = time_commit(s, has_trigger, ++id);
        }
        differences[i] = (double)(took[1] - took[0]) / 1000;
    }
    return print_pairs(name, differences, PAIRS);
}

static void test_checkpoints(void **state)
{
    struct scene *s = *state;

    pgt_run(s->psql, "CREATE TABLE bare (LIKE hummock_version_delta INCLUDING ALL)");
    pgt_run(s->admin, "CREATE TRIGGER metafence_insert AFTER INSERT ON bare REFERENCING NEW"
                      " TABLE AS metafence_rows FOR EACH STATEMENT EXECUTE FUNCTION"
                      " metafence.on_write()");
    pgt_run(s->b1, "SET synchronous_commit = off");
    assert_true(compare_commits(s, "nothing open, nothing dropped") < 10000);
    drop_job(s->b1, 11); // each is walked for field 9 then
    assert_true(compare_commits(s, "a drop is pending") < 10000);
    assert_string_equal(pgt_get(s->admin, "SELECT count(*) FROM metafence.dropped"), "1");
    assert_int_equal(counter(s, "recovery_failed"), 0);
}

// A drop outside of a recovery: its catalog change and its removal.
static void test_drops(void **state)
{
    struct scene *s = *state;
    static double differences[DROPS];

    pgt_run(s->b1, "SET synchronous_commit = off");
    for (int i = 0; i < DROPS; i++) {
        int64_t took[2];
        for (int k = 0; k < 2; k++) {
            bool is_on = (i + k) % 2 == 0;
            set_recovery(s, is_on ? "enforce" : "off");
            create_job(s->b1, 1000 + 2 * i + k, "mv", "[5001, 5002, 5003]");
            uint32_t ids[] = {5001, 5002, 5003};
            struct instant begin = clock_now();
            drop_job(s->b1, 1000 + 2 * i + k);
            assert_string_equal(insert_delta(s->b1, DELTA_REMOVAL, ids, 3), "");
            took[is_on] = instant_since(clock_now(), begin);
        }
        differences[i] = (double)(took[1] - took[0]) / 1000;
    }
    assert_true(print_pairs("a drop", differences, DROPS) < 100000);
    assert_int_equal(counter(s, "recovery_failed"), 0);
}

static const struct CMUnitTest tests[] = {
    RECOVERY_TEST(test_checkpoints),
    RECOVERY_TEST(test_drops),
};

UNIT_MAIN(tests)
