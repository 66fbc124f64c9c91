// SPDX-License-Identifier: Apache-2.0
// What the bytes of compute nodes mean. Field numbers are those of stream_service.proto and
// monitor_service.proto, the same from v2.3 on.
#include <stdlib.h>

#include "agent/grpc/compute.h"
#include "agent/grpc/wire.h"

#define FIELD_INIT           1 // StreamingControlStreamResponse.init
#define FIELD_FRAGMENT_STATS 2 // GetStreamingStatsResponse.fragment_stats, a map
#define FIELD_KEY            1 // … of which an entry has these two
#define FIELD_VALUE          2
#define FIELD_ACTOR_COUNT    2 // FragmentStats.actor_count

enum grpc_first grpc_first_message(const uint8_t *body, size_t len, const uint8_t **ret_message,
                                   size_t *ret_len)
{
    uint32_t message_len = 0;

    if (len > 0 && body[0] != 0)
        return GRPC_FIRST_BAD;
    if (len < GRPC_FRAME_HEADER)
        return GRPC_FIRST_MORE;
    message_len = (uint32_t)body[1] << 24 | (uint32_t)body[2] << 16 | (uint32_t)body[3] << 8 |
                  (uint32_t)body[4];
    if (message_len > GRPC_BODY_MAX - GRPC_FRAME_HEADER)
        return GRPC_FIRST_BAD;
    if (len - GRPC_FRAME_HEADER < message_len)
        return GRPC_FIRST_MORE;
    *ret_message = body + GRPC_FRAME_HEADER;
    *ret_len = message_len;
    return GRPC_FIRST_WHOLE;
}

// All fields of a message are well-formed.
static bool is_message(const uint8_t *bytes, size_t len)
{
    struct wire wire = {bytes, len};
    struct wire_field field;
    enum wire_result result = WIRE_END;

    do
        result = wire_next(&wire, &field);
    while (result == WIRE_FIELD);
    return result == WIRE_END;
}

bool grpc_is_init_response(const uint8_t *message, size_t len)
{
    struct wire wire = {message, len};
    struct wire_field field;

    // A oneof, of which the last one counts: any other means that it is something else.
    return wire_next(&wire, &field) == WIRE_FIELD && field.number == FIELD_INIT &&
           field.type == WIRE_BYTES && is_message(field.bytes, field.len) &&
           wire_next(&wire, &field) == WIRE_END;
}

// --- statistics ---

struct fragment {
    uint64_t id;
    bool is_running;
};

static bool parse_stats(const uint8_t *bytes, size_t len, struct fragment *fragment)
{
    struct wire wire = {bytes, len};
    struct wire_field field;
    enum wire_result result = WIRE_END;

    while ((result = wire_next(&wire, &field)) == WIRE_FIELD) {
        if (field.number != FIELD_ACTOR_COUNT)
            continue;
        if (field.type != WIRE_VARINT)
            return false;
        fragment->is_running |= field.value > 0;
    }
    return result == WIRE_END;
}

static bool parse_entry(const uint8_t *bytes, size_t len, struct fragment *fragment)
{
    struct wire wire = {bytes, len};
    struct wire_field field;
    enum wire_result result = WIRE_END;

    while ((result = wire_next(&wire, &field)) == WIRE_FIELD) {
        if (field.number == FIELD_KEY) {
            if (field.type != WIRE_VARINT || field.value > UINT32_MAX)
                return false;
            fragment->id = field.value;
        } else if (field.number == FIELD_VALUE) {
            if (field.type != WIRE_BYTES || !parse_stats(field.bytes, field.len, fragment))
                return false;
        }
    }
    return result == WIRE_END;
}

static int compare_ids(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a;
    uint32_t right = *(const uint32_t *)b;

    return (left > right) - (left < right);
}

static bool is_one_of(const struct grpc_fragments *fragments, uint64_t id)
{
    uint32_t key = (uint32_t)id;

    return fragments->count > 0 && bsearch(&key, fragments->ids, fragments->count,
                                           sizeof(*fragments->ids), compare_ids);
}

int grpc_count_running(const uint8_t *message, size_t len,
                       const struct grpc_fragments *fragments, uint32_t *ret_running,
                       struct err *err)
{
    struct wire wire = {message, len};
    struct wire_field field;
    enum wire_result result = WIRE_END;
    uint32_t running = 0;

    while ((result = wire_next(&wire, &field)) == WIRE_FIELD) {
        struct fragment fragment = {0};

        if (field.number != FIELD_FRAGMENT_STATS)
            continue;
        if (field.type != WIRE_BYTES || !parse_entry(field.bytes, field.len, &fragment))
            return err_set(err, ERR_INVALID, 0, "byte %zu of %zu: no entry of fragment_stats",
                           len - wire.left, len);
        running += fragment.is_running && is_one_of(fragments, fragment.id);
    }
    if (result == WIRE_BAD)
        return err_set(err, ERR_INVALID, 0, "byte %zu of %zu: no GetStreamingStatsResponse",
                       len - wire.left, len);
    *ret_running = running;
    return 0;
}
