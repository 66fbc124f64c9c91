// SPDX-License-Identifier: Apache-2.0
// What compute nodes say, whole, cut off and hostile.
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "agent/grpc/compute.h"
#include "agent/grpc/wire.h"
#include "base/buf.h"

static void put_varint(struct buf *buf, uint64_t value)
{
    while (value > 0x7f) {
        buf_putc(buf, (char)(value | 0x80));
        value >>= 7;
    }
    buf_putc(buf, (char)value);
}

// An entry of fragment_stats.
static void put_fragment(struct buf *buf, uint32_t id, uint64_t actors)
{
    struct buf entry = {0};
    struct buf stats = {0};

    buf_putc(&stats, 0x10); // actor_count
    put_varint(&stats, actors);
    buf_putc(&stats, 0x18); // current_epoch
    put_varint(&stats, UINT64_C(7600000000000000));
    buf_putc(&entry, 0x08);
    put_varint(&entry, id);
    buf_putc(&entry, 0x12);
    put_varint(&entry, stats.len);
    buf_append(&entry, stats.data, stats.len);
    buf_putc(buf, 0x12);
    put_varint(buf, entry.len);
    buf_append(buf, entry.data, entry.len);
    buf_done(&entry);
    buf_done(&stats);
}

static int count(const struct buf *buf, const uint32_t *ids, size_t n, uint32_t *ret)
{
    const struct grpc_fragments fragments = {ids, n};
    struct err err = {0};

    return grpc_count_running((const uint8_t *)buf_str(buf), buf->len, &fragments, ret, &err);
}

static void test_running(void **state)
{
    static const uint32_t ids[] = {0, 3, 300, 70000, UINT32_MAX};
    struct buf buf = {0};
    uint32_t running = 99;

    (void)state;
    assert_int_equal(count(&buf, ids, 5, &running), 0);
    assert_int_equal(running, 0);
    put_fragment(&buf, 3, 0); // a gauge that has gone to zero
    put_fragment(&buf, 4, 1);
    put_fragment(&buf, 300, 2);
    put_fragment(&buf, UINT32_MAX, UINT64_MAX);
    buf_append(&buf, "\x0a\3\x0a\1x\x1a\2\x08\1", 9); // channel_stats, relation_stats
    buf_append(&buf, "\x12\4\x12\2\x10\1", 6);        // of fragment 0, which is not written
    assert_int_equal(count(&buf, ids, 5, &running), 0);
    assert_int_equal(running, 3);
    assert_int_equal(count(&buf, ids, 0, &running), 0);
    assert_int_equal(running, 0);
    assert_int_equal(count(&buf, NULL, 0, &running), 0);
    buf_done(&buf);
}

// Whatever is missing at the end is seen, or was whole without it.
static void test_cut(void **state)
{
    static const uint32_t ids[] = {7};
    struct buf buf = {0};
    size_t first = 0;

    (void)state;
    put_fragment(&buf, 6, 1);
    first = buf.len;
    put_fragment(&buf, 7, 1);
    for (size_t cut = 0; cut <= buf.len; cut++) {
        const struct buf part = {.data = buf.data, .len = cut};
        uint32_t running = 99;
        bool is_whole = cut == 0 || cut == first || cut == buf.len;

        if (count(&part, ids, 1, &running) != (is_whole ? 0 : -1))
            fail_msg("%zu bytes", cut);
        assert_int_equal(running, !is_whole ? 99 : cut == buf.len);
    }
    buf_done(&buf);
}

static void test_wrong(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } rows[] = {
        {"\x10\1", 2},                             // fragment_stats is a number
        {"\x15\1\2\3\4", 5},                       // … four bytes
        {"\x12\2\x0a\0", 4},                       // the key is bytes
        {"\x12\7\x08\x80\x80\x80\x80\x10\x12", 9}, // … beyond 32 bits
        {"\x12\4\x08\7\x10\1", 6},                 // the value is a number
        {"\x12\6\x08\7\x12\2\x12\0", 8},           // actor_count is bytes
        {"\x12\6\x08\7\x12\2\x10\x80", 8},         // … without an end
        {"\x13", 1},                               // a group
        {"\x02\0", 2},                             // field 0
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10},
        {"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\1", 11}, // 2^64 - 1 bytes
    };
    static const uint32_t ids[] = {7};
    static const struct grpc_fragments fragments = {ids, 1};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint32_t running = 99;
        struct err err = {0};

        if (grpc_count_running((const uint8_t *)rows[i].bytes, rows[i].len, &fragments,
                               &running, &err) != -1)
            fail_msg("row %zu", i);
        assert_int_equal(err.kind, ERR_INVALID);
        assert_int_equal(running, 99);
    }
}

static void test_100000_fragments(void **state)
{
    uint32_t *ids = malloc(100000 * sizeof(*ids));
    struct buf buf = {0};
    uint32_t running = 0;

    (void)state;
    assert_non_null(ids);
    for (uint32_t i = 0; i < 100000; i++) {
        ids[i] = 2 * i;
        put_fragment(&buf, 3 * i, 1);
    }
    assert_true(buf.len < COMPUTE_STATS_MAX);
    assert_int_equal(count(&buf, ids, 100000, &running), 0);
    assert_int_equal(running, 33334); // multiples of 6 below 200000
    buf.len--;
    assert_int_equal(count(&buf, ids, 100000, &running), -1);
    buf_done(&buf);
    free(ids);
}

static void test_init_response(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        bool want;
    } rows[] = {
        {"\x0a\0", 2, true},
        {"\x0a\2\x08\1", 4, true}, // a field that is new
        {"", 0, false},
        {"\x0a", 1, false},
        {"\x0a\1", 2, false},
        {"\x08\0", 2, false},
        {"\x12\0", 2, false},
        {"\x0a\0\x12\0", 4, false},
        {"\x12\0\x0a\0", 4, false},
        {"\x0a\0\x0a", 3, false},
        {"\x0a\1\x80", 3, false},
        {"\x0d\1\2\3\4", 5, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (grpc_is_init_response((const uint8_t *)rows[i].bytes, rows[i].len) != rows[i].want)
            fail_msg("row %zu", i);
}

static void test_first_message(void **state)
{
    static const uint8_t body[] = {0, 0, 0, 0, 2, 0x0a, 0, 0, 0};
    static const uint8_t most[] = {0, 0, 0, 0xff, 0xfb}; // 65536 - 5
    static const uint8_t more[] = {0, 0, 0, 0xff, 0xfc};
    static const uint8_t compressed[] = {1};
    const uint8_t *message = NULL;
    size_t len = 0;

    (void)state;
    for (size_t i = 0; i <= sizeof(body); i++)
        assert_int_equal(grpc_first_message(body, i, &message, &len),
                         i < 7 ? GRPC_FIRST_MORE : GRPC_FIRST_WHOLE);
    assert_ptr_equal(message, body + 5);
    assert_int_equal(len, 2);
    assert_int_equal(grpc_first_message(most, 5, &message, &len), GRPC_FIRST_MORE);
    assert_int_equal(grpc_first_message(more, 5, &message, &len), GRPC_FIRST_BAD);
    assert_int_equal(grpc_first_message(compressed, 1, &message, &len), GRPC_FIRST_BAD);
}

static void test_wire(void **state)
{
    static const uint8_t bytes[] = {0x08, 0x96, 1,    0x11, 1, 2, 3, 4,    5, 6,
                                    7,    8,    0x1d, 1,    2, 3, 4, 0x22, 1, 'x'};
    static const struct {
        uint32_t number;
        enum wire_type type;
        uint64_t value;
    } want[] = {{1, WIRE_VARINT, 150}, {2, WIRE_64, 0}, {3, WIRE_32, 0}, {4, WIRE_BYTES, 0}};
    struct wire wire = {bytes, sizeof(bytes)};
    struct wire_field field = {0};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(wire_next(&wire, &field), WIRE_FIELD);
        assert_true(field.number == want[i].number && field.type == want[i].type &&
                    field.value == want[i].value);
    }
    assert_true(field.len == 1 && field.bytes[0] == 'x');
    assert_int_equal(wire_next(&wire, &field), WIRE_END);
    wire = (struct wire){bytes + 3, 8};
    assert_int_equal(wire_next(&wire, &field), WIRE_BAD);
    assert_int_equal(wire_next(&wire, &field), WIRE_BAD); // and stays so
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_running),       cmocka_unit_test(test_cut),
    cmocka_unit_test(test_wrong),         cmocka_unit_test(test_100000_fragments),
    cmocka_unit_test(test_init_response), cmocka_unit_test(test_first_message),
    cmocka_unit_test(test_wire),
};

UNIT_MAIN(tests)
