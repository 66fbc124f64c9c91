// SPDX-License-Identifier: Apache-2.0
#pragma once
// ports: which of meta's three ports listen, from the kernel's own tables (/proc/net/tcp,
// tcp6): no connection, so it disturbs nobody and needs no answer. Invariant: a table that is
// not understood to its last byte says UNKNOWN, never "closed".

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/proto.h"

struct ports_wanted {
    uint16_t service;
    uint16_t metrics;
    uint16_t dashboard;
};

// The reader of one table, fed in pieces of any size. Zero and `wanted` is a valid start.
struct ports_table {
    struct ports_wanted wanted;
    uint32_t listening; // enum shim_port, without KNOWN
    bool header_seen;
    bool is_broken;
    size_t fed; // bytes
    size_t used;
    char line[512];
};

void ports_feed(struct ports_table *table, const char *bytes, size_t size);

// The table ended. True: ret_listening has the ports that listen. False: it was not understood.
bool ports_end(const struct ports_table *table, uint32_t *ret_listening);

// Reads the tables of our network namespace: SHIM_PORTS_KNOWN and what listens, or 0 if
// unknown. A host without IPv6 has no tcp6. Never blocks.
uint32_t ports_read(const struct ports_wanted *wanted);

// As ports_read, but a port of `before` that seems closed is believed only if two more reads
// agree: the kernel lists a changing table in pieces and may skip an entry.
uint32_t ports_read_stable(const struct ports_wanted *wanted, uint32_t before);
