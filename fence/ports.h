// SPDX-License-Identifier: Apache-2.0
#pragma once
// ports: which of meta's three ports listen, as the kernel says (socket monitor, else
// /proc/net/tcp and tcp6): no connection, so it disturbs nobody and needs no answer. Invariant:
// a table that is not understood to its last byte says UNKNOWN, never "closed".

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

struct ports_reader {
    struct ports_wanted wanted;
    bool has_ipv6;
    int diag_fd; // -1: the kernel has no socket monitor for us
    uint32_t seq;
};

void ports_open(struct ports_reader *reader, const struct ports_wanted *wanted);
void ports_close(struct ports_reader *reader);

// Our network namespace: SHIM_PORTS_KNOWN and what listens, or 0 if unknown. Never blocks.
uint32_t ports_read(struct ports_reader *reader);

// The same from /proc alone. A host without IPv6 has no tcp6.
uint32_t ports_read_proc(const struct ports_wanted *wanted);

// As ports_read, but a port of `before` that seems closed is believed only if two more reads
// agree: the kernel lists a changing table in pieces and may skip an entry.
uint32_t ports_read_stable(struct ports_reader *reader, uint32_t before);
