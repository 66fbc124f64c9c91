// SPDX-License-Identifier: Apache-2.0
// The session with Postgres while connections stall, die silently, are reset or ended:
// time-outs, hedged reads, reconnects.
#include "tests/unit/pg/asked.h"

#include <string.h>

static struct pg_params quick_params(uint16_t port)
{
    struct pg_params params = pgt_params(port);

    params.connect_timeout_ns = 1000 * NS_PER_MS;
    params.query_timeout_ns = 400 * NS_PER_MS;
    return params;
}

static void test_connect_timeout(void **state)
{
    struct pgt *pgt = *state;
    struct relay *relay = relay_new(pgt, pgt_port());
    struct pg_params params = quick_params(relay_port(relay));
    struct seen seen = {0};

    relay_set(relay, RELAY_STALL);
    params.connect_timeout_ns = 300 * NS_PER_MS;
    struct instant begin = clock_now();
    struct pg *pg = start(pgt, &params, &seen);
    pgt_wait(pgt, &seen.is_down, 2000);
    assert_in_range(ms_since(begin), 300, 4000);
    assert_int_equal(seen.down_fault.kind, PG_SILENT);
    assert_non_null(strstr(seen.down_fault.err.msg, "within 300ms"));
    relay_set(relay, RELAY_PASS);
    pgt_wait(pgt, &seen.is_up, 2000);
    pg_free(pg);
    relay_free(relay);
}

static void test_hedge(void **state)
{
    struct pgt *pgt = *state;
    struct relay *relay = relay_new(pgt, pgt_port());
    struct pg_params params = quick_params(relay_port(relay));
    struct seen seen = {0};
    struct pg *pg = start(pgt, &params, &seen);
    struct answer first = {0}, second = {0}, third = {0};

    ask(pg, "SELECT 1", true, &first);
    pgt_wait(pgt, &first.is_done, 2000);
    assert_int_equal(relay_accepted(relay), 1);

    // The idle connection has died silently, new ones work.
    relay_set(relay, RELAY_STALL_OLD);
    struct instant begin = clock_now();
    ask(pg, "SELECT 2", true, &second);
    pgt_wait(pgt, &second.is_done, 2000);
    assert_in_range(ms_since(begin), 200, 1600); // half the time-out first
    assert_string_equal(second.value, "2");
    assert_true(second.reply.was_hedged);
    // Its own time, not that of the first copy.
    assert_true(instant_since(second.reply.sent_at, begin) >= 200 * NS_PER_MS);
    assert_int_equal(pg_stats(pg)->hedges, 1);
    assert_int_equal(pg_stats(pg)->hedge_wins, 1);
    assert_int_equal(seen.downs, 0);
    assert_int_equal(relay_accepted(relay), 2);

    // What was stalled arrives late: nobody is called twice, and the next read is quick again.
    relay_set(relay, RELAY_PASS);
    ask(pg, "SELECT 3", true, &third);
    pgt_wait(pgt, &third.is_done, 2000);
    assert_false(third.reply.was_hedged);
    pgt_idle(pgt, 300);
    assert_int_equal(first.count + second.count + third.count, 3);
    assert_int_equal(relay_open(relay), 1);
    pg_free(pg);
    relay_free(relay);
}

static void test_slow_answer_keeps_session(void **state)
{
    struct pgt *pgt = *state;
    struct relay *relay = relay_new(pgt, pgt_port());
    struct pg_params params = quick_params(relay_port(relay));
    params.connect_timeout_ns = 4 * NS_PER_SEC; // the life of a request
    struct seen seen = {0};
    struct pg *pg = start(pgt, &params, &seen);
    struct answer first = {0}, slow = {0};

    ask(pg, "SELECT 1", true, &first);
    pgt_wait(pgt, &first.is_done, 2000);
    // Everything stalls, successors too: the working session must stay, and answer once it can.
    relay_set(relay, RELAY_STALL);
    struct instant begin = clock_now();
    ask(pg, "SELECT 7", true, &slow);
    pgt_idle(pgt, 700); // longer than the query time-out, shorter than the request's life
    assert_false(slow.is_done);
    assert_int_equal(relay_open(relay), 2);
    relay_set(relay, RELAY_PASS);
    pgt_wait(pgt, &slow.is_done, 2000);
    assert_string_equal(slow.value, "7");
    assert_false(slow.reply.was_hedged);
    assert_true(instant_since(slow.reply.sent_at, begin) < 700 * NS_PER_MS); // first copy
    assert_int_equal(seen.downs, 0);
    pgt_idle(pgt, 300);
    assert_int_equal(slow.count, 1);
    assert_int_equal(relay_open(relay), 1);
    pg_free(pg);
    relay_free(relay);
}

static void test_silence_ends_requests(void **state)
{
    struct pgt *pgt = *state;
    struct relay *relay = relay_new(pgt, pgt_port());
    struct pg_params params = quick_params(relay_port(relay));
    struct seen seen = {0};
    struct pg *pg = start(pgt, &params, &seen);
    struct answer first = {0}, read = {0}, write = {0};

    ask(pg, "SELECT 1", true, &first);
    pgt_wait(pgt, &first.is_done, 2000);
    relay_set(relay, RELAY_STALL);
    struct instant begin = clock_now();
    ask(pg, "SELECT pg_notify('x', '')", false, &write);
    ask(pg, "SELECT 2", true, &read);
    pgt_wait(pgt, &write.is_done, 2000);
    assert_in_range(ms_since(begin), 400, 1400); // its own deadline
    assert_int_equal(write.reply.fault.kind, PG_SILENT);
    assert_int_equal(write.reply.fault.err.kind, ERR_UNKNOWN_OUTCOME);
    assert_true(write.reply.sent_at.ns != 0);
    pgt_wait(pgt, &read.is_done, 3000);
    assert_in_range(ms_since(begin), 1500, 3000); // connect 1 s + 1.5 x 0.4 s
    assert_int_equal(read.reply.fault.kind, PG_SILENT);
    assert_int_equal(read.reply.fault.err.kind, ERR_TRANSIENT);
    relay_set(relay, RELAY_PASS);
    struct answer again = {0};
    begin = clock_now();
    ask(pg, "SELECT 3", true, &again);
    pgt_wait(pgt, &again.is_done, 2000);
    assert_string_equal(again.value, "3");
    assert_int_equal(write.count + read.count, 2);
    pg_free(pg);
    relay_free(relay);
}

static void test_write_does_not_block_reads(void **state)
{
    struct pgt *pgt = *state;
    struct pg_params params = pgt_params(pgt_port());
    params.query_timeout_ns = 1600 * NS_PER_MS;
    struct seen seen = {0};
    struct pg *pg = start(pgt, &params, &seen);
    struct answer write = {0}, read = {0};

    ask(pg, "SELECT pg_sleep(1.2)", false, &write);
    ask(pg, "SELECT 2", true, &read);
    pgt_wait(pgt, &read.is_done, 3000);
    assert_false(write.is_done); // the successor took the read over at half the write's time
    pgt_wait(pgt, &write.is_done, 3000);
    assert_int_equal(write.reply.fault.kind, PG_OK); // and the write kept its connection
    assert_false(write.reply.was_hedged);
    pg_free(pg);
}

static void test_reset_and_reconnect(void **state)
{
    struct pgt *pgt = *state;
    struct relay *relay = relay_new(pgt, pgt_port());
    struct pg_params params = pgt_params(relay_port(relay));
    struct seen seen = {0};
    struct pg *pg = start(pgt, &params, &seen);
    struct answer read = {0};

    pgt_wait(pgt, &seen.is_up, 2000);
    ask(pg, "SELECT 1", true, &read);
    pgt_wait(pgt, &read.is_done, 2000);
    relay_set(relay, RELAY_RESET);
    pgt_wait(pgt, &seen.is_down, 1000);
    assert_false(pg_is_up(pg));
    seen.is_up = false;
    pgt_idle(pgt, 500);
    relay_set(relay, RELAY_PASS);
    struct instant begin = clock_now();
    pgt_wait(pgt, &seen.is_up, 2000);
    assert_true(ms_since(begin) < 1500); // the back-off never grows beyond 500 ms
    pg_free(pg);
    relay_free(relay);
}

static void test_terminated(void **state)
{
    struct pgt *pgt = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct seen seen = {0};
    struct pg *pg = start(pgt, &params, &seen);
    PGconn *admin = pgt_connect("postgres", PGT_DATABASE, "scene");

    pgt_wait(pgt, &seen.is_up, 2000);
    seen.is_up = false;
    pgt_run(admin,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'meta'");
    pgt_wait(pgt, &seen.is_down, 1000);
    assert_string_equal(seen.down_fault.sqlstate, "57P01");
    assert_int_equal(seen.down_fault.kind, PG_SILENT);
    pgt_wait(pgt, &seen.is_up, 1000);
    PQfinish(admin);
    pg_free(pg);
}

// A pooler without a server answers each first statement with an error and hangs up: attempts
// grow rare, although each logs in and each is answered.
static void test_thrown_out_each_time(void **state)
{
    struct pgt *pgt = *state;
    struct pg_params params = pgt_params(pgt_port());
    struct seen seen = {0};
    struct pg *pg = start(pgt, &params, &seen);
    struct answer answer = {0};
    struct instant begin = clock_now();

    for (int i = 0; i < 6; i++) {
        answer = (struct answer){0};
        ask(pg, "SELECT pg_terminate_backend(pg_backend_pid())", true, &answer);
        pgt_wait(pgt, &answer.is_done, 3000);
        assert_string_equal(answer.reply.fault.sqlstate, "57P01");
    }
    assert_true(ms_since(begin) >= 50 + 100 + 200 + 400 + 500);
    // One that is answered well counts as healed.
    answer = (struct answer){0};
    ask(pg, "SELECT 1", true, &answer);
    pgt_wait(pgt, &answer.is_done, 3000);
    assert_string_equal(answer.value, "1");
    pg_free(pg);
}

#define SESSION_TEST(fn) cmocka_unit_test_setup_teardown(fn, pgt_setup, pgt_teardown)

static const struct CMUnitTest tests[] = {
    SESSION_TEST(test_connect_timeout),
    SESSION_TEST(test_hedge),
    SESSION_TEST(test_slow_answer_keeps_session),
    SESSION_TEST(test_silence_ends_requests),
    SESSION_TEST(test_write_does_not_block_reads),
    SESSION_TEST(test_reset_and_reconnect),
    SESSION_TEST(test_terminated),
    SESSION_TEST(test_thrown_out_each_time),
};

UNIT_MAIN(tests)
