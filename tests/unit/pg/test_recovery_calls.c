// SPDX-License-Identifier: Apache-2.0
// The agent's calls about recoveries against a real Postgres, by a role that owns nothing.
#include "tests/unit/pg/recovering.h"

#include <stdio.h>
#include <string.h>

#include "agent/pg/answer.h"
#include "agent/pg/install.h"
#include "agent/pg/recovery.h"

struct calls {
    struct pgt *pgt;
    struct scene *scene;
    struct pg_params params;
    struct election_config config;
    struct pg *pg;
    struct election *election;
    // The last answer.
    bool is_done;
    int rc;
    struct recovery_state state;
    struct err err;
    int64_t count;
    struct pg_fault fault;
    char rows[1024];
    char heard[256];
};

static void on_notify(const char *payload, void *arg)
{
    struct calls *calls = arg;

    (void)snprintf(calls->heard, sizeof calls->heard, "%s", payload);
}

static const struct pg_ops ops = {.notify = on_notify};

static void install_for_agent(struct scene *s)
{
    struct pg_params params = pgt_params(pgt_port());
    const char *roles[] = {"lookout"};
    const struct sql_options options = {.params = &params,
                                        .leader_table = "election_leader",
                                        .roles = roles,
                                        .role_count = 1,
                                        .timeout_ns = 30 * NS_PER_SEC};
    struct err err;

    if (strcmp(pgt_get(s->admin, "SELECT count(*) FROM pg_roles WHERE rolname = 'lookout'"),
               "0") == 0)
        pgt_run(s->admin, "CREATE ROLE lookout LOGIN");
    pgt_run(s->admin, "ALTER ROLE lookout PASSWORD 'secret-lookout'");
    params.user = "postgres";
    params.password = NULL;
    if (sql_install(&options, &err) < 0)
        fail_msg("%s", err.msg);
}

static int setup(void **state)
{
    struct calls *calls = calloc(1, sizeof *calls);
    struct err err;

    (void)pgt_setup((void **)&calls->pgt);
    (void)recovering_setup((void **)&calls->scene);
    install_for_agent(calls->scene);
    calls->params = pgt_params(pgt_port());
    calls->params.user = "lookout";
    calls->params.password = "secret-lookout";
    calls->params.query_timeout_ns = 30 * NS_PER_SEC;
    calls->config =
        (struct election_config){"svc", "election_leader", "election_member", "meta-b"};
    const struct pg_net net = {calls->pgt->loop, calls->pgt->resolver, &calls->params};
    if (pg_new(&net, &ops, calls, &calls->pg, &err) < 0 ||
        election_new(calls->pg, &calls->config, &calls->election, &err) < 0)
        fail_msg("%s", err.msg);
    *state = calls;
    return 0;
}

static int teardown(void **state)
{
    struct calls *calls = *state;

    pg_free(calls->pg);
    election_free(calls->election);
    (void)scene_teardown((void **)&calls->scene);
    (void)pgt_teardown((void **)&calls->pgt);
    free(calls);
    return 0;
}

static void on_state(const struct pg_reply *reply, void *arg)
{
    struct calls *calls = arg;

    calls->is_done = true;
    calls->rc = recovery_take_state(reply, &calls->state, &calls->err);
}

static void on_rows(const struct pg_reply *reply, void *arg)
{
    struct calls *calls = arg;
    const char *fields[RECOVERY_ROW_FIELDS];
    struct recovery_row row;
    size_t len = 0;

    calls->is_done = true;
    calls->rows[0] = '\0';
    for (size_t i = 0; i < pg_answer_rows(reply); i++) {
        assert_int_equal(pg_answer_row(reply, i, fields, RECOVERY_ROW_FIELDS, &calls->err), 0);
        assert_int_equal(recovery_parse_row(fields, &row, &calls->err), 0);
        len += (size_t)snprintf(calls->rows + len, sizeof calls->rows - len, "%d:%lld%s%s ",
                                row.kind, (long long)row.id, row.has_reset ? "r" : "",
                                row.has_none ? "n" : "");
    }
}

static void on_listen(const struct pg_reply *reply, void *arg)
{
    struct calls *calls = arg;

    assert_int_equal(reply->fault.kind, PG_OK);
    calls->is_done = true;
}

static void ask(struct calls *calls, const char *sql, size_t count, pg_done_fn *fn)
{
    const char *params[] = {"svc"};
    const struct pg_request request = {
        .sql = sql, .param_count = count, .params = params, .is_read = true};

    calls->is_done = false;
    assert_int_equal(pg_send(calls->pg, &request, fn, calls, &calls->err), 0);
    pgt_wait(calls->pgt, &calls->is_done, 10000);
}

static void look(struct calls *calls)
{
    ask(calls, recovery_sql_state, 1, on_state);
    if (calls->rc < 0)
        fail_msg("%s", calls->err.msg);
}

static void on_count(int64_t count, const struct pg_fault *fault, void *arg)
{
    struct calls *calls = arg;

    calls->is_done = true;
    calls->count = count;
    calls->fault = fault ? *fault : (struct pg_fault){0};
}

static int64_t count_of(struct calls *calls, int rc)
{
    assert_int_equal(rc, 0);
    calls->is_done = false; // its answer comes from the loop
    pgt_wait(calls->pgt, &calls->is_done, 10000);
    if (calls->fault.kind != PG_OK)
        fail_msg("%s", calls->fault.err.msg);
    return calls->count;
}

static int64_t acknowledge_node(struct calls *calls, int id, enum recovery_how how,
                                const struct recovery_state *known)
{
    const struct recovery_ack ack = {.recovery = known->id,
                                     .worker_id = id,
                                     .host = id == 1 ? "cn-1" : "cn-2",
                                     .port = 5688,
                                     .how = how,
                                     .evidence = "{\"took_ms\": 12}",
                                     .snapshot = known->snapshot};

    return count_of(calls,
                    recovery_acknowledge(calls->election, &ack, on_count, calls, &calls->err));
}

static bool has_heard(void *arg)
{
    struct calls *calls = arg;

    return strncmp(calls->heard, "recovery ", 9) == 0;
}

static void test_a_recovery(void **state)
{
    struct calls *calls = *state;
    struct scene *s = calls->scene;
    struct recovery_gate gate = {.service = "svc",
                                 .tag = TAG_B1,
                                 .policy = RECOVERY_HOLD,
                                 .max_hold_ms = 600000,
                                 .lifetime_ms = 60000,
                                 .dead_after_ms = -1};

    pgt_run(s->admin, "DELETE FROM metafence.gate");
    look(calls);
    assert_true(calls->state.term == 2 && calls->state.mode == RECOVERY_ENFORCE);
    assert_true(calls->state.id == 0 && !calls->state.is_gate_fresh && calls->state.live == 2);
    assert_string_equal(calls->state.owner_tag, TAG_B1);
    assert_int_equal(
        count_of(calls, recovery_refresh(calls->election, &gate, on_count, calls, &calls->err)),
        1);
    gate.tag = TAG_A1; // which has lost its term
    assert_int_equal(
        count_of(calls, recovery_refresh(calls->election, &gate, on_count, calls, &calls->err)),
        0);
    pgt_run(s->admin, "UPDATE metafence.gate SET expires_at = 'infinity'"); // ... and again
    ask(calls, recovery_sql_listen, 0, on_listen);
    drop_job(s->b1, 11);
    begin_attempt(s->b1, 0);
    pgt_wait_for(calls->pgt, has_heard, calls, 10000);
    assert_string_equal(remove_table(s->b1, 1001), "MF003");
    look(calls);
    struct recovery_state known = calls->state;
    assert_true(known.id > 0 && known.attempts == 1 && known.is_refused && known.missing == 2);
    assert_true(known.policy == RECOVERY_HOLD && known.is_gate_fresh && known.hold_left_ms > 0);
    assert_true(known.refused_ago_ms >= 0 && known.dropped == 1 && known.is_catalog_known);
    assert_int_equal(acknowledge_node(calls, 1, RECOVERY_NONE, &known), 1);
    assert_int_equal(acknowledge_node(calls, 2, RECOVERY_RESET, &known), 1);
    ask(calls, recovery_sql_rows, 1, on_rows);
    assert_string_equal(calls->rows, "0:1n 0:2r 1:111 ");
    begin_attempt(s->b1, 0);
    // An attempt has begun since it was read.
    assert_int_equal(
        count_of(calls, recovery_end(calls->election, &known, on_count, calls, &calls->err)),
        0);
    assert_string_equal(remove_table(s->b1, 1001), "");
    look(calls);
    assert_int_equal(count_of(calls, recovery_end(calls->election, &calls->state, on_count,
                                                  calls, &calls->err)),
                     1);
    assert_int_equal(acknowledge_node(calls, 1, RECOVERY_GONE, &known), 0); // it is over
}

static void test_refusals(void **state)
{
    struct calls *calls = *state;
    struct scene *s = calls->scene;

    pgt_run(s->admin, "REVOKE EXECUTE ON FUNCTION metafence.recovery_state(text) FROM lookout");
    ask(calls, recovery_sql_state, 1, on_state);
    assert_true(calls->rc == -1 && calls->err.kind == ERR_DENIED);
    assert_non_null(strstr(calls->err.msg, "metafence sql install --agent-role"));
    pgt_run(s->admin, "ALTER FUNCTION metafence.recovery_state(text) RENAME TO x");
    ask(calls, recovery_sql_state, 1, on_state);
    assert_true(calls->rc == -1 && calls->err.kind == ERR_DENIED);
    ask(calls, "DO $$BEGIN RAISE EXCEPTION 'boom'; END$$", 0, on_state);
    assert_int_equal(calls->rc, -1);
    assert_null(strstr(calls->err.msg, "sql install"));
    ask(calls, "SELECT 1", 0, on_state);
    assert_true(calls->rc == -1 && calls->err.kind == ERR_INVALID);
    ask(calls, "SELECT 1 WHERE false", 0, on_state);
    assert_true(calls->rc == -1 && calls->err.kind == ERR_INVALID);
}

#define CALLS_TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

static const struct CMUnitTest tests[] = {
    CALLS_TEST(test_a_recovery),
    CALLS_TEST(test_refusals),
};

UNIT_MAIN(tests)
