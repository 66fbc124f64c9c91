// SPDX-License-Identifier: Apache-2.0
// What the guard costs a meta's writes: the modes side by side, in turns, on one session.
// Ratios are printed and only a gross loss fails, for the machine is shared; and that days of
// renewals and refusals leave no trace that grows.
#include "tests/unit/pg/scene.h"

#include <stdio.h>
#include <string.h>

enum { NONE, OFF, OBSERVE, ENFORCE, MODES, ROUNDS = 7, SAMPLES = 400 };

static const char *const modes[MODES] = {"no trigger", "off", "observe", "enforce"};

// A checkpoint in small, and a registration.
static const struct {
    const char *name;
    const char *tables; // whose triggers are switched
    const char *sql[5];
} loads[] = {
    {"checkpoint",
     "hummock_version_delta hummock_sequence",
     {"BEGIN",
      "INSERT INTO hummock_version_delta SELECT coalesce(max(id), 0) + 1, 0, 0, 0, false,"
      " decode(repeat('ab', 1200), 'hex') FROM hummock_version_delta",
      "UPDATE hummock_sequence SET seq = seq + 1 WHERE name = 'now'", "COMMIT", NULL}},
    {"worker",
     "worker",
     {"BEGIN", "UPDATE worker SET status = 'RUNNING' WHERE worker_id = 1", "COMMIT", NULL}},
};

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void set_triggers(struct scene *s, const char *list, bool on)
{
    char names[128];

    (void)snprintf(names, sizeof names, "%s", list);
    for (char *name = names, *end = NULL; name; name = end) {
        end = strchr(name, ' ');
        if (end)
            *end++ = '\0';
        pgt_run(s->admin, "ALTER TABLE %s %s TRIGGER USER; TRUNCATE hummock_version_delta;",
                name, on ? "ENABLE" : "DISABLE");
    }
}

static void measure(struct scene *s, size_t load, int64_t *samples)
{
    for (int i = 0; i < SAMPLES; i++) {
        struct instant begin = clock_now();
        for (const char *const *sql = loads[load].sql; *sql; sql++) {
            PGresult *result = PQexec(s->a1, *sql);
            assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
            PQclear(result);
        }
        samples[i] = instant_since(clock_now(), begin);
    }
}

static void test_modes_side_by_side(void **state)
{
    struct scene *s = *state;
    static int64_t samples[SAMPLES], p50[MODES][ROUNDS], p99[MODES][ROUNDS];

    (void)pgt_campaign(s->a1, "meta-a");
    pgt_run(s->a1, "INSERT INTO hummock_sequence VALUES ('now', 0);"
                   "INSERT INTO worker VALUES (1, 'C', 'h', 1, 'S');"
                   "SET synchronous_commit = off");
    for (size_t load = 0; load < sizeof loads / sizeof loads[0]; load++) {
        for (int round = 0; round < ROUNDS; round++) {
            for (int mode = NONE; mode < MODES; mode++) {
                set_triggers(s, loads[load].tables, mode != NONE);
                if (mode != NONE)
                    set_guard(s, modes[mode]);
                pgt_run(s->admin, "VACUUM hummock_sequence, worker");
                measure(s, load, samples);
                qsort(samples, SAMPLES, sizeof samples[0], compare);
                p50[mode][round] = samples[SAMPLES / 2];
                p99[mode][round] = samples[SAMPLES * 99 / 100];
            }
        }
        for (int mode = NONE; mode < MODES; mode++) {
            qsort(p50[mode], ROUNDS, sizeof p50[0][0], compare);
            qsort(p99[mode], ROUNDS, sizeof p99[0][0], compare);
            // The best of the rounds is the one that the machine disturbed least.
            print_message("%-10s %-10s p50 %6lld us (x %.2f), p99 %6lld us (x %.2f)\n",
                          loads[load].name, modes[mode], (long long)(p50[mode][0] / 1000),
                          (double)p50[mode][0] / (double)p50[NONE][0],
                          (long long)(p99[mode][0] / 1000),
                          (double)p99[mode][0] / (double)p99[NONE][0]);
        }
        assert_true(p50[ENFORCE][0] < 100 * p50[NONE][0]);
    }
    assert_int_equal(counter(s, "refused") + counter(s, "not_owner") + counter(s, "unreadable"),
                     0);
}

// Of one campaign, which is the time that RisingWave waits for our triggers on its table.
static void test_campaign(void **state)
{
    struct scene *s = *state;
    static int64_t samples[SAMPLES];
    int64_t p50[2];

    (void)pgt_campaign(s->a1, "meta-a");
    for (int on = 0; on < 2; on++) {
        pgt_run(s->admin, "ALTER TABLE election_leader %s TRIGGER USER",
                on ? "ENABLE" : "DISABLE");
        for (int i = 0; i < SAMPLES; i++) {
            struct instant begin = clock_now();
            (void)pgt_campaign(s->a1, "meta-a");
            samples[i] = instant_since(clock_now(), begin);
        }
        qsort(samples, SAMPLES, sizeof samples[0], compare);
        p50[on] = samples[SAMPLES / 2];
        print_message("campaign %-8s p50 %lld us, p99 %lld us\n", on ? "guarded" : "bare",
                      (long long)(p50[on] / 1000),
                      (long long)(samples[SAMPLES * 99 / 100] / 1000));
    }
    assert_true(p50[1] < 100 * p50[0]);
}

// A zombie for hours: its campaigns come to nothing, its writes are refused or recorded.
static void test_zombie_leaves_no_growth(void **state)
{
    struct scene *s = *state;
    int rounds = getenv("METAFENCE_LONG") ? 20000 : 3000;
    int64_t size = 0;

    (void)pgt_campaign(s->a1, "meta-a");
    take_over(s, s->b1, "meta-b");
    pgt_run(s->b1, "INSERT INTO hummock_sequence VALUES ('now', 0)");
    for (int observe = 0; observe < 2; observe++) {
        set_guard(s, observe ? "observe" : "enforce");
        pgt_run(s->a1,
                "DO $$ BEGIN FOR i IN 1..%d LOOP"
                " BEGIN UPDATE hummock_sequence SET seq = i; EXCEPTION WHEN SQLSTATE 'MF001'"
                " THEN NULL; END;"
                " INSERT INTO election_leader AS e VALUES ('svc', 'meta-a', clock_timestamp())"
                " ON CONFLICT (service) DO UPDATE SET last_heartbeat = CASE WHEN e.id ="
                " excluded.id THEN excluded.last_heartbeat ELSE e.last_heartbeat END;"
                " COMMIT; END LOOP; END $$",
                rounds);
    }
    assert_true(election_parse_count(
        pgt_get(s->admin,
                "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE"
                " relnamespace = 'metafence'::regnamespace AND relkind IN ('r', 'S')"),
        &size));
    print_message("%d rounds: %lld bytes\n", rounds, (long long)size);
    assert_true(size <= 2 * 1024 * 1024);
    assert_int_equal(counter(s, "refused"), rounds);
    assert_int_equal(counter(s, "observed"), rounds);
    assert_int_equal(counter(s, "held"), rounds);
    assert_term(s, "2 " TAG_B1 " meta-b");
}

static const struct CMUnitTest tests[] = {
    SCENE_TEST(test_modes_side_by_side),
    SCENE_TEST(test_campaign),
    SCENE_TEST(test_zombie_leaves_no_growth),
};

UNIT_MAIN(tests)
