// SPDX-License-Identifier: Apache-2.0
// Orders that take their time: who may give one, what is carried out of what is planned, and
// what its end is called.
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/reclaim/parts.h"
#include "base/buf.h"

#define INCARNATION 3

struct world {
    struct agent agent;
    struct reclaim reclaim;
    struct order_plan plan;
    struct loop_timer *timer;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    struct err err = {0};

    if (!w || loop_new(&w->agent.loop, &err) < 0)
        return -1;
    w->agent.reclaim = &w->reclaim;
    w->reclaim.facts.is_leader = true;
    w->agent.plan.rule = RULE_LEADER;
    w->agent.config.meta_service_port = 1; // nobody listens
    w->agent.memory.incarnation = INCARNATION;
    w->agent.facts.election.members_known = true;
    w->agent.facts.election.other_members = 2;
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    planned_free(&w->agent.planned);
    loop_timer_free(w->timer);
    loop_free(w->agent.loop);
    free(w);
    return 0;
}

static void give(struct world *w, enum control_command command, struct buf *answer)
{
    struct control_request request = {.command = command, .wait_ns = 5 * NS_PER_SEC};

    (void)snprintf(request.reason, sizeof(request.reason), "why");
    buf_clear(answer);
    planned_order(&w->agent, &request, answer);
}

static void turn(struct world *w)
{
    const struct order_drops drops = {.known = true};

    planned_turn(&w->agent, &w->plan, &drops);
}

// --- who may ---

static void is_off(struct world *w)
{
    w->agent.reclaim = NULL;
}

static void is_paused(struct world *w)
{
    w->agent.plan.rule = RULE_PAUSED;
}

static void follows(struct world *w)
{
    w->agent.plan.rule = RULE_FOLLOWER;
    w->agent.facts.election.known = true;
    w->agent.facts.election.row = ROW_OTHER;
    (void)snprintf(w->agent.facts.election.owner_id, FACT_ID_SIZE, "meta-2:5690");
}

static void is_unverified(struct world *w)
{
    w->reclaim.facts.is_leader = false;
}

static void has_no_shim(struct world *w)
{
    w->agent.facts.methods.by_pidfd = true;
}

static void members_are_unknown(struct world *w)
{
    w->agent.facts.election.members_known = false;
}

static void is_alone(struct world *w)
{
    w->agent.facts.election.other_members = 0;
}

static void has_another(struct world *w)
{
    struct buf answer = {0};

    give(w, CONTROL_RECOVER, &answer);
    buf_done(&answer);
}

static void test_refused(void **state)
{
    static const struct {
        void (*change)(struct world *);
        const char *recover, *handover; // part of the error; NULL: taken
    } rows[] = {
        {is_off, "recovery.mode is off", "recovery.mode is off"},
        {is_paused, "resume first", "resume first"},
        {follows, "of meta-2:5690", "of meta-2:5690"},
        {is_unverified, "doctor", "doctor"},
        {has_no_shim, NULL, "without metafence-run"},
        {members_are_unknown, NULL, "not known"},
        {is_alone, NULL, "no other meta"},
        {has_another, "recover is under way", "recover is under way"},
    };
    struct buf answer = {0};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
        const char *want = i % 2 ? rows[i / 2].handover : rows[i / 2].recover;
        void *fresh = NULL;

        if (setup(&fresh) < 0 || !fresh) {
            fail_msg("no world");
            break;
        }
        rows[i / 2].change(fresh);
        give(fresh, i % 2 ? CONTROL_HANDOVER : CONTROL_RECOVER, &answer);
        if (!strstr(buf_str(&answer), want ? want : "\"ok\":true") ||
            (want && !strstr(buf_str(&answer), "\"ok\":false")))
            fail_msg("row %zu: %s", i, buf_str(&answer));
        teardown(&fresh);
    }
    buf_done(&answer);
}

static void test_an_order_is_a_fact_until_it_ends(void **state)
{
    struct world *w = *state;
    struct order_facts facts = {0};
    struct buf answer = {0};

    planned_facts(&w->agent.planned, &facts);
    assert_int_equal(facts.request.kind, ORDER_REQUEST_NONE);
    for (uint64_t id = 1; id <= 2; id++) {
        give(w, CONTROL_RECOVER, &answer);
        w->plan = (struct order_plan){.step = ORDER_DRAIN};
        turn(w);
        planned_facts(&w->agent.planned, &facts);
        assert_int_equal(facts.request.kind, ORDER_REQUEST_RECOVER);
        assert_int_equal(facts.request.id, id); // another one for each
        assert_int_equal(facts.request.wait_ns, 5 * NS_PER_SEC);
        w->plan.ended = ORDER_END_FAILED;
        turn(w);
        planned_facts(&w->agent.planned, &facts);
        assert_int_equal(facts.request.kind, ORDER_REQUEST_NONE);
    }
    buf_done(&answer);
}

// --- what is done ---

static void test_handover(void **state)
{
    struct world *w = *state;
    struct buf answer = {0};

    give(w, CONTROL_HANDOVER, &answer);
    w->plan.step = ORDER_DRAIN;
    turn(w);
    assert_int_equal(w->agent.facts.orders.handover, 0); // it still waits
    w->plan = (struct order_plan){.step = ORDER_FENCE, .fence_meta = true};
    w->agent.memory.incarnation++; // a restart meanwhile: another one was meant
    turn(w);
    assert_int_equal(w->agent.facts.orders.handover, INCARNATION);
    w->plan = (struct order_plan){.step = ORDER_ADMIT, .wait = ORDER_WAIT_SUCCESSOR};
    turn(w);
    assert_int_equal(w->agent.facts.orders.handover, 0);
    w->plan.ended = ORDER_END_DONE;
    turn(w);
    assert_int_equal(w->agent.planned.end, PLANNED_DONE);
    buf_done(&answer);
}

static void test_what_is_planned_without_an_order_is_not_its(void **state)
{
    struct world *w = *state;

    w->plan =
        (struct order_plan){.step = ORDER_FENCE, .fence_meta = true, .send_recover = true};
    turn(w);
    assert_int_equal(w->agent.facts.orders.handover, 0);
    assert_null(w->agent.planned.calls);
}

static void stop_when_answered(void *arg)
{
    struct world *w = arg;

    if (w->agent.planned.order.recover != ORDER_CALL_PENDING)
        loop_stop(w->agent.loop);
    else
        loop_timer_arm(w->timer, NS_PER_MS);
}

static void test_recover_that_nobody_takes(void **state)
{
    struct world *w = *state;
    struct buf text = {0};
    struct err err = {0};

    give(w, CONTROL_RECOVER, &text);
    w->plan = (struct order_plan){.step = ORDER_ADMIT, .send_recover = true};
    turn(w);
    w->timer = loop_timer_new(w->agent.loop, stop_when_answered, w);
    loop_timer_arm(w->timer, NS_PER_MS);
    assert_int_equal(loop_run(w->agent.loop, &err), 0);
    assert_int_equal(w->agent.planned.order.recover, ORDER_CALL_FAILED);
    w->plan = (struct order_plan){.ended = ORDER_END_FAILED};
    turn(w);
    assert_int_equal(w->agent.planned.end, PLANNED_FAILED); // surely not done
    buf_clear(&text);
    planned_status_json(&w->agent, clock_now(), &text);
    assert_non_null(strstr(buf_str(&text), "\"result\":\"failed\""));
    assert_non_null(strstr(buf_str(&text), "Recover: not sent"));
    buf_done(&text);
}

// What was begun and not seen to end is unknown, never failed.
static void test_ends(void **state)
{
    static const struct {
        enum control_command command;
        enum order_step step;
        enum order_outcome recover;
        enum order_end ended;
        enum planned_end end;
    } rows[] = {
        {CONTROL_RECOVER, ORDER_DRAIN, ORDER_CALL_NONE, ORDER_END_FAILED, PLANNED_FAILED},
        {CONTROL_RECOVER, ORDER_ADMIT, ORDER_CALL_DONE, ORDER_END_DONE, PLANNED_DONE},
        {CONTROL_RECOVER, ORDER_ADMIT, ORDER_CALL_FAILED, ORDER_END_FAILED, PLANNED_FAILED},
        {CONTROL_RECOVER, ORDER_ADMIT, ORDER_CALL_PENDING, ORDER_END_FAILED, PLANNED_UNKNOWN},
        {CONTROL_RECOVER, ORDER_RESET_NODES, ORDER_CALL_UNKNOWN, ORDER_END_FAILED,
         PLANNED_UNKNOWN},
        {CONTROL_HANDOVER, ORDER_DRAIN, ORDER_CALL_NONE, ORDER_END_FAILED, PLANNED_FAILED},
        {CONTROL_HANDOVER, ORDER_FENCE, ORDER_CALL_NONE, ORDER_END_FAILED, PLANNED_UNKNOWN},
        {CONTROL_HANDOVER, ORDER_ADMIT, ORDER_CALL_NONE, ORDER_END_FAILED, PLANNED_UNKNOWN},
        {CONTROL_HANDOVER, ORDER_ADMIT, ORDER_CALL_NONE, ORDER_END_DONE, PLANNED_DONE},
    };
    struct world *w = *state;
    struct buf answer = {0};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        give(w, rows[i].command, &answer);
        w->plan = (struct order_plan){.step = rows[i].step};
        turn(w);
        w->agent.planned.order.recover = rows[i].recover;
        w->plan.ended = rows[i].ended;
        turn(w);
        if (w->agent.planned.end != rows[i].end)
            fail_msg("row %zu: %d", i, w->agent.planned.end);
        assert_int_equal(w->agent.planned.detail[0] == '\0', rows[i].end == PLANNED_DONE);
    }
    buf_done(&answer);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_refused),
    cmocka_unit_test_setup_teardown(test_an_order_is_a_fact_until_it_ends, setup, teardown),
    cmocka_unit_test_setup_teardown(test_handover, setup, teardown),
    cmocka_unit_test_setup_teardown(test_what_is_planned_without_an_order_is_not_its, setup,
                                    teardown),
    cmocka_unit_test_setup_teardown(test_recover_that_nobody_takes, setup, teardown),
    cmocka_unit_test_setup_teardown(test_ends, setup, teardown),
};

UNIT_MAIN(tests)
