// SPDX-License-Identifier: Apache-2.0
#include "agent/grpc/wire.h"

#include <stdbool.h>

#define VARINT_MAX 10 // bytes

static bool take_varint(struct wire *wire, uint64_t *ret_value)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < VARINT_MAX && i < wire->left; i++) {
        uint64_t bits = wire->at[i] & 0x7f;

        if (i == VARINT_MAX - 1 && bits > 1)
            return false; // beyond 64 bits
        value |= bits << (7 * i);
        if (wire->at[i] & 0x80)
            continue;
        wire->at += i + 1;
        wire->left -= i + 1;
        *ret_value = value;
        return true;
    }
    return false;
}

static bool skip(struct wire *wire, size_t len)
{
    if (len > wire->left)
        return false;
    wire->at += len;
    wire->left -= len;
    return true;
}

static bool take_value(struct wire *wire, struct wire_field *field)
{
    uint64_t len = 0;

    switch (field->type) {
    case WIRE_VARINT: return take_varint(wire, &field->value);
    case WIRE_64: return skip(wire, 8);
    case WIRE_32: return skip(wire, 4);
    case WIRE_BYTES:
        if (!take_varint(wire, &len) || len > wire->left)
            return false;
        field->bytes = wire->at;
        field->len = (size_t)len;
        return skip(wire, field->len);
    }
    return false; // groups
}

enum wire_result wire_next(struct wire *wire, struct wire_field *ret_field)
{
    struct wire at = *wire;
    struct wire_field field = {0};
    uint64_t tag = 0;

    if (wire->left == 0)
        return WIRE_END;
    if (!take_varint(&at, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
        return WIRE_BAD;
    field.number = (uint32_t)(tag >> 3);
    field.type = (enum wire_type)(tag & 7);
    if (!take_value(&at, &field))
        return WIRE_BAD;
    *wire = at;
    *ret_field = field;
    return WIRE_FIELD;
}
