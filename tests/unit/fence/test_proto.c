// SPDX-License-Identifier: Apache-2.0
// Messages from outside: whole ones are taken, each way to be broken is refused with its field
// named.
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "fence/proto.h"

static struct fence_order good_order(void)
{
    return (struct fence_order){.seq = 3,
                                .incarnation = 2,
                                .role = FENCE_ROLE_LEADER,
                                .flags = FENCE_ORDER_ARMED,
                                .row = FENCE_ROW_OURS,
                                .database = FENCE_DATABASE_UP,
                                .deadline_ns = 1000,
                                .read_ns = 900,
                                .heartbeat_age_ns = -5,
                                .heartbeat_tag = "metafence:11111111:aaaaaaaaaaaaaaaa"};
}

static struct fence_status good_status(void)
{
    return (struct fence_status){.boot_id = "b",
                                 .tag = "t",
                                 .incarnation = 1,
                                 .state = SHIM_RUNNING,
                                 .flags = SHIM_ALIVE,
                                 .ports = SHIM_PORTS_KNOWN,
                                 .hold_until_ns = INT64_MAX,
                                 .last_death = {.tag = "x", .wait_status = -1}};
}

static void test_good_messages(void **state)
{
    struct fence_order order = good_order();
    struct fence_order order_back = {0};
    struct fence_status status = good_status();
    struct fence_status status_back = {0};
    struct err err = {0};

    (void)state;
    fence_order_seal(&order);
    assert_int_equal(fence_order_parse(&order, sizeof(order), &order_back, &err), 0);
    assert_memory_equal(&order, &order_back, sizeof(order));
    fence_status_seal(&status);
    assert_int_equal(fence_status_parse(&status, sizeof(status), &status_back, &err), 0);
    assert_memory_equal(&status, &status_back, sizeof(status));
}

// Pinned: another language must come to the same number (Python: zlib.crc32).
static void test_checksum_is_crc32(void **state)
{
    struct fence_order order = {0};

    (void)state;
    fence_order_seal(&order);
    assert_int_equal(order.checksum, UINT32_C(0x322d0de6));
}

#define BREAK_ORDER(function, statement)                                                       \
    static void function(struct fence_order *order)                                            \
    {                                                                                          \
        statement;                                                                             \
    }

BREAK_ORDER(bad_role, order->role = 4)
BREAK_ORDER(bad_reason, order->reason = 9)
BREAK_ORDER(bad_flags, order->flags = 1U << 7)
BREAK_ORDER(bad_row, order->row = 4)
BREAK_ORDER(bad_database, order->database = 3)
BREAK_ORDER(bad_deadline, order->deadline_ns = -1)
BREAK_ORDER(no_deadline, order->deadline_ns = 0)
BREAK_ORDER(bad_pause, order->pause_end_ns = INT64_MIN)
BREAK_ORDER(bad_read, order->read_ns = -1)
BREAK_ORDER(no_read, order->read_ns = 0)
BREAK_ORDER(bad_still, order->heartbeat_still_ns = -1)
BREAK_ORDER(bad_tag, memset(order->heartbeat_tag, 'x', sizeof(order->heartbeat_tag)))
BREAK_ORDER(no_incarnation, order->incarnation = 0)
BREAK_ORDER(bad_reserved, order->reserved = 1)

static void no_reason(struct fence_order *order)
{
    order->role = FENCE_ROLE_KILL;
    order->reason = FENCE_REASON_NONE;
}

static const struct {
    void (*spoil)(struct fence_order *order);
    const char *message;
} broken_orders[] = {
    {bad_role, "role is 4"},
    {bad_reason, "reason is 9"},
    {bad_flags, "flags 0x80"},
    {bad_row, "row is 4"},
    {bad_database, "database is 3"},
    {bad_deadline, "deadline_ns is -1"},
    {no_deadline, "leader permit without deadline_ns"},
    {bad_pause, "pause_end_ns is -9223372036854775808"},
    {bad_read, "read_ns is -1"},
    {no_read, "row is known but read_ns is 0"},
    {bad_still, "heartbeat_still_ns is -1"},
    {bad_tag, "heartbeat_tag does not end within 64 bytes"},
    {no_incarnation, "role Leader names no incarnation"},
    {bad_reserved, "reserved is 1"},
    {no_reason, "kill without reason"},
};

static void test_each_field_of_an_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(broken_orders) / sizeof(broken_orders[0]); i++) {
        struct fence_order order = good_order();
        struct fence_order back = {.seq = 77};
        struct err err = {0};

        broken_orders[i].spoil(&order);
        fence_order_seal(&order);
        if (fence_order_parse(&order, sizeof(order), &back, &err) == 0)
            fail_msg("taken: %s", broken_orders[i].message);
        if (err.kind != ERR_INVALID || !strstr(err.msg, broken_orders[i].message))
            fail_msg("\"%s\" instead of \"%s\"", err.msg, broken_orders[i].message);
        assert_int_equal(back.seq, 77); // untouched
    }
}

#define BREAK_STATUS(function, statement)                                                      \
    static void function(struct fence_status *status)                                          \
    {                                                                                          \
        statement;                                                                             \
    }

BREAK_STATUS(bad_state, status->state = 5)
BREAK_STATUS(bad_permit, status->permit = FENCE_ROLE_KILL)
BREAK_STATUS(bad_hold, status->hold = 11)
BREAK_STATUS(bad_death_reason, status->last_death.reason = 9)
BREAK_STATUS(bad_death_engaged, status->last_death.engaged = 2)
BREAK_STATUS(bad_death_reserved, status->last_death.reserved = 1)
BREAK_STATUS(bad_status_flags, status->flags = 1U << 9)
BREAK_STATUS(bad_ports, status->ports = 1U << 4)
BREAK_STATUS(bad_written, status->written_ns = -1)
BREAK_STATUS(bad_pid, status->pid = -1)
BREAK_STATUS(bad_started, status->started_ns = -1)
BREAK_STATUS(bad_engaged, status->engaged_ns = -1)
BREAK_STATUS(bad_status_deadline, status->deadline_ns = -1)
BREAK_STATUS(bad_until, status->hold_until_ns = -1)
BREAK_STATUS(bad_status_pause, status->pause_end_ns = -1)
BREAK_STATUS(bad_decided, status->last_death.decided_ns = -1)
BREAK_STATUS(bad_dead, status->last_death.dead_ns = -1)
BREAK_STATUS(bad_death_deadline, status->last_death.deadline_ns = -1)
BREAK_STATUS(bad_boot, memset(status->boot_id, 'x', sizeof(status->boot_id)))
BREAK_STATUS(bad_own_tag, memset(status->tag, 'x', sizeof(status->tag)))
BREAK_STATUS(bad_death_tag, memset(status->last_death.tag, 'x', sizeof(status->last_death.tag)))

static const struct {
    void (*spoil)(struct fence_status *status);
    const char *message;
} broken_statuses[] = {
    {bad_state, "state is 5"},
    {bad_permit, "permit is 3"},
    {bad_hold, "hold is 11"},
    {bad_death_reason, "last_death.reason is 9"},
    {bad_death_engaged, "last_death.engaged is 2"},
    {bad_death_reserved, "last_death.reserved is 1"},
    {bad_status_flags, "flags 0x200"},
    {bad_ports, "ports 0x10"},
    {bad_written, "written_ns is -1"},
    {bad_pid, "pid is -1"},
    {bad_started, "started_ns is -1"},
    {bad_engaged, "engaged_ns is -1"},
    {bad_status_deadline, "deadline_ns is -1"},
    {bad_until, "hold_until_ns is -1"},
    {bad_status_pause, "pause_end_ns is -1"},
    {bad_decided, "last_death.decided_ns is -1"},
    {bad_dead, "last_death.dead_ns is -1"},
    {bad_death_deadline, "last_death.deadline_ns is -1"},
    {bad_boot, "boot_id does not end"},
    {bad_own_tag, "tag does not end"},
    {bad_death_tag, "last_death.tag does not end"},
};

static void test_each_field_of_a_status(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(broken_statuses) / sizeof(broken_statuses[0]); i++) {
        struct fence_status status = good_status();
        struct fence_status back = {0};
        struct err err = {0};

        broken_statuses[i].spoil(&status);
        fence_status_seal(&status);
        if (fence_status_parse(&status, sizeof(status), &back, &err) == 0)
            fail_msg("taken: %s", broken_statuses[i].message);
        if (err.kind != ERR_INVALID || !strstr(err.msg, broken_statuses[i].message))
            fail_msg("\"%s\" instead of \"%s\"", err.msg, broken_statuses[i].message);
    }
}

static void expect_refused(const void *bytes, size_t size, const char *message)
{
    struct fence_order back = {0};
    struct err err = {0};

    if (fence_order_parse(bytes, size, &back, &err) == 0)
        fail_msg("taken: %s", message);
    if (err.kind != ERR_INVALID || !strstr(err.msg, message))
        fail_msg("\"%s\" instead of \"%s\"", err.msg, message);
}

static void test_envelope(void **state)
{
    struct fence_order order = good_order();
    struct fence_order spoiled = {0};
    char longer[sizeof(order) + 1] = {0};

    (void)state;
    fence_order_seal(&order);
    memcpy(longer, &order, sizeof(order));
    for (size_t size = 0; size < sizeof(order); size++)
        expect_refused(&order, size, size < 8 ? "are no message" : "must be 176");
    expect_refused(longer, sizeof(longer), "177 bytes, says 176, must be 176");
    spoiled = order;
    spoiled.magic = FENCE_STATUS_MAGIC;
    expect_refused(&spoiled, sizeof(spoiled), "magic is 0x4d465331");
    spoiled = order;
    spoiled.version = 2;
    expect_refused(&spoiled, sizeof(spoiled), "version 2, we speak 1");
    spoiled = order;
    spoiled.size = 175;
    expect_refused(&spoiled, sizeof(spoiled), "says 175");
}

// Every flipped bit is noticed.
static void test_every_bit(void **state)
{
    struct fence_order order = good_order();

    (void)state;
    fence_order_seal(&order);
    for (size_t bit = 0; bit < sizeof(order) * 8; bit++) {
        unsigned char bytes[sizeof(order)];
        struct fence_order back = {0};
        struct err err = {0};

        memcpy(bytes, &order, sizeof(order));
        bytes[bit / 8] = (unsigned char)(bytes[bit / 8] ^ (1U << (bit % 8)));
        assert_int_equal(fence_order_parse(bytes, sizeof(bytes), &back, &err), -1);
    }
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(fence_reason_name(FENCE_REASON_SUPERSEDED), "Superseded");
    assert_string_equal(fence_reason_name(FENCE_REASON_NONE), "None");
    assert_string_equal(shim_hold_name(SHIM_HOLD_IDENTITY), "Identity");
    assert_string_equal(shim_state_name(SHIM_KILLING), "Killing");
    assert_string_equal(fence_role_name(FENCE_ROLE_LEADER), "Leader");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_good_messages),
    cmocka_unit_test(test_checksum_is_crc32),
    cmocka_unit_test(test_each_field_of_an_order),
    cmocka_unit_test(test_each_field_of_a_status),
    cmocka_unit_test(test_envelope),
    cmocka_unit_test(test_every_bit),
    cmocka_unit_test(test_names),
};

UNIT_MAIN(tests)
