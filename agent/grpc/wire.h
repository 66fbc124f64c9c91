// SPDX-License-Identifier: Apache-2.0
#pragma once
// wire: the fields of a protobuf message one by one, where they are. For answers of which a
// huge or hostile one must cost no memory: nothing is allocated, nothing recurses. Pure.

#include <stddef.h>
#include <stdint.h>

enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct wire {
    const uint8_t *at;
    size_t left;
};

struct wire_field {
    uint32_t number;
    enum wire_type type;
    uint64_t value;       // of a VARINT; of others 0
    const uint8_t *bytes; // of BYTES; borrowed
    size_t len;
};

enum wire_result { WIRE_END = 0, WIRE_FIELD, WIRE_BAD };

// The next field. BAD: cut off, a group, a number or a varint that is none; it stays BAD.
enum wire_result wire_next(struct wire *wire, struct wire_field *ret_field);
