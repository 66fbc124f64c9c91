// SPDX-License-Identifier: Apache-2.0
// From answers and messages to facts.
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "agent/observe.h"

#define JUMP NS_PER_SEC

static struct instant at(int64_t ms)
{
    return (struct instant){ms * NS_PER_MS};
}

// A good read of a row that says "other", sent at `ms`.
static struct election_read a_read(int64_t ms)
{
    struct election_read read = {.status = ELECTION_OK,
                                 .sent_at = at(ms),
                                 .received_at = at(ms + 1),
                                 .system_id = 7,
                                 .timeline = 1,
                                 .row_present = true,
                                 .id = "other:1",
                                 .heartbeat_us = 1000,
                                 .age_ns = 5 * NS_PER_MS,
                                 .members_known = true,
                                 .other_members = 2,
                                 .term_known = true,
                                 .term = 3,
                                 .term_owner_id = "other:1",
                                 .owner_tag = "metafence:aaaaaaaa:1",
                                 .heartbeat_tag = "metafence:aaaaaaaa:1",
                                 .tag_owned_term = true,
                                 .tag_superseded = true};

    return read;
}

static void test_good_read(void **state)
{
    struct facts facts = {0};
    struct election_read read = a_read(100);

    (void)state;
    assert_true(observe_read(&facts, &read, "metafence:bbbbbbbb:2", JUMP, at(102)));
    assert_int_equal(facts.database.state, DATABASE_ANSWERS);
    assert_int_equal(facts.database.since.ns, at(102).ns);
    assert_true(facts.election.known);
    assert_int_equal(facts.election.row, ROW_OTHER);
    assert_int_equal(facts.election.sent_at.ns, at(100).ns);
    assert_string_equal(facts.election.owner_id, "other:1");
    assert_int_equal(facts.election.age_ns, 5 * NS_PER_MS);
    assert_int_equal(facts.election.other_members, 2);
    assert_int_equal(facts.election.term, 3);
    assert_string_equal(facts.election.asked_tag, "metafence:bbbbbbbb:2");
    assert_true(facts.election.tag_superseded);
    assert_int_equal(facts.election.system_id, 7);
}

// Answers count in the order in which they were sent, whatever their order of arrival.
static void test_send_order(void **state)
{
    struct facts facts = {0};
    struct election_read newer = a_read(200);
    struct election_read older = a_read(100);

    (void)state;
    (void)observe_read(&facts, &newer, "", JUMP, at(201));
    older.age_ns = 0;
    (void)observe_read(&facts, &older, "", JUMP, at(300));
    assert_int_equal(facts.election.sent_at.ns, at(200).ns);
    assert_int_equal(facts.election.age_ns, 5 * NS_PER_MS);
}

static void test_new_count(void **state)
{
    static const struct {
        const char *name;
        uint64_t incarnation, last_incarnation;
        const char *tag, *last_tag;
        bool is_new;
    } cases[] = {
        {"nothing was known", 1, 0, "a", "", false},
        {"the same", 3, 3, "a", "a", false},
        {"the next", 4, 3, "b", "a", false},
        {"its tag is not seen yet", 3, 3, "", "a", false},
        {"its tag is seen now", 3, 3, "a", "", false},
        {"from 1 again", 1, 3, "b", "a", true},
        {"from 1 again, after one", 1, 1, "b", "a", true},
        {"nothing was started yet", 0, 1, "", "a", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct facts facts = {.fence.status.incarnation = cases[i].last_incarnation};
        struct fence_status status = {.incarnation = cases[i].incarnation};

        (void)snprintf(status.tag, sizeof(status.tag), "%s", cases[i].tag);
        (void)snprintf(facts.fence.status.tag, sizeof(facts.fence.status.tag), "%s",
                       cases[i].last_tag);
        if (observe_is_new_count(&facts, &status) != cases[i].is_new)
            fail_msg("%s", cases[i].name);
    }
}

static const struct {
    const char *name;
    enum election_status status;
    bool row_present, id_is_null, heartbeat_is_null;
    int64_t age_ns;
    enum row_state row;
    enum row_defect defect;
} rows[] = {
    {"no row", ELECTION_OK, false, false, false, 0, ROW_ABSENT, ROW_DEFECT_NONE},
    {"id NULL", ELECTION_OK, true, true, false, 0, ROW_BROKEN, ROW_DEFECT_UNREADABLE},
    {"heartbeat NULL", ELECTION_OK, true, false, true, 0, ROW_BROKEN,
     ROW_DEFECT_HEARTBEAT_NULL},
    {"ahead, allowed", ELECTION_OK, true, false, false, -JUMP, ROW_OTHER, ROW_DEFECT_NONE},
    {"ahead by 1 ns more", ELECTION_OK, true, false, false, -JUMP - 1, ROW_BROKEN,
     ROW_DEFECT_HEARTBEAT_FUTURE},
    {"infinity", ELECTION_OK, true, false, false, INT64_MIN, ROW_BROKEN,
     ROW_DEFECT_HEARTBEAT_FUTURE},
    {"-infinity is old", ELECTION_OK, true, false, false, INT64_MAX, ROW_OTHER,
     ROW_DEFECT_NONE},
    {"no table", ELECTION_MISSING, false, false, false, 0, ROW_BROKEN,
     ROW_DEFECT_RELATION_MISSING},
    {"another table", ELECTION_UNREADABLE, false, false, false, 0, ROW_BROKEN,
     ROW_DEFECT_UNREADABLE},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct facts facts = {0};
        struct election_read read = a_read(100);

        read.status = rows[i].status;
        read.row_present = rows[i].row_present;
        read.id_is_null = rows[i].id_is_null;
        read.heartbeat_is_null = rows[i].heartbeat_is_null;
        read.age_ns = rows[i].age_ns;
        (void)observe_read(&facts, &read, "", JUMP, at(101));
        if (facts.election.row != rows[i].row || facts.election.defect != rows[i].defect)
            fail_msg("%s: row %d defect %d", rows[i].name, (int)facts.election.row,
                     (int)facts.election.defect);
        assert_true(facts.election.known);
        assert_int_equal(facts.database.state, DATABASE_ANSWERS);
    }
}

// What is no read leaves the last one as it was.
static void test_failures(void **state)
{
    static const struct {
        enum election_status status;
        enum database_state want;
    } cases[] = {
        {ELECTION_SILENT, DATABASE_SILENT},
        {ELECTION_REFUSED, DATABASE_REFUSES},
        {ELECTION_STANDBY, DATABASE_STANDBY},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct facts facts = {0};
        struct election_read good = a_read(100);
        struct election_read bad = {.status = cases[i].status, .sent_at = at(200)};
        struct election_fact before;

        (void)observe_read(&facts, &good, "", JUMP, at(101));
        before = facts.election;
        (void)observe_read(&facts, &bad, "", JUMP, at(201));
        assert_int_equal(facts.database.state, cases[i].want);
        assert_memory_equal(&facts.election, &before, sizeof(before));
    }
}

static void test_database_down(void **state)
{
    struct facts facts = {0};
    struct pg_fault fault = {.kind = PG_SILENT};

    (void)state;
    assert_true(observe_database_down(&facts, &fault, at(1)));
    assert_int_equal(facts.database.state, DATABASE_SILENT);
    assert_false(observe_database_down(&facts, &fault, at(2))); // no news
    assert_int_equal(facts.database.since.ns, at(1).ns);
    fault.kind = PG_REFUSAL;
    assert_true(observe_database_down(&facts, &fault, at(3)));
    assert_int_equal(facts.database.state, DATABASE_REFUSES);
}

// The answer to each order confirms what is known; only news ask for a decision.
static void test_fence_status(void **state)
{
    struct facts facts = {0};
    struct fence_status status = {.incarnation = 1, .flags = SHIM_ALIVE, .pid = 5};

    (void)state;
    assert_true(observe_fence_status(&facts, &status, at(1)));
    status.order_seq = 9;
    status.written_ns = 99;
    status.deadline_ns = 12345;
    status.pause_end_ns = 777;
    status.checksum = 3;
    assert_false(observe_fence_status(&facts, &status, at(2)));
    assert_int_equal(facts.fence.received_at.ns, at(2).ns);
    assert_int_equal(facts.fence.status.deadline_ns, 12345); // taken all the same
    status.ports = SHIM_PORTS_KNOWN;
    assert_true(observe_fence_status(&facts, &status, at(3)));
    status.flags |= SHIM_ENGAGED;
    assert_true(observe_fence_status(&facts, &status, at(4)));
    status.last_death.incarnation = 1;
    assert_true(observe_fence_status(&facts, &status, at(5)));
    assert_true(observe_fence_down(&facts));
    assert_false(observe_fence_down(&facts));
    assert_true(observe_fence_status(&facts, &status, at(6))); // connected again
}

static void test_time(void **state)
{
    struct facts facts = {0};
    struct observe_clock clock = {0};

    (void)state;
    observe_time(&facts, &clock, at(1000), at(900));
    assert_int_equal(facts.suspended_ns, 0); // the first turn has nothing to compare with
    observe_time(&facts, &clock, at(1100), at(1000));
    assert_int_equal(facts.suspended_ns, 0);
    observe_time(&facts, &clock, at(6200), at(1100));
    assert_int_equal(facts.suspended_ns, 5000 * NS_PER_MS);
    assert_int_equal(facts.now.ns, at(6200).ns);
    // Monotonic was read a little later: never negative.
    observe_time(&facts, &clock, at(6300), at(1201));
    assert_int_equal(facts.suspended_ns, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_good_read),     cmocka_unit_test(test_send_order),
    cmocka_unit_test(test_rows),          cmocka_unit_test(test_failures),
    cmocka_unit_test(test_database_down), cmocka_unit_test(test_fence_status),
    cmocka_unit_test(test_time),          cmocka_unit_test(test_new_count),
};

UNIT_MAIN(tests)
