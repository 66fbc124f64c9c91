// SPDX-License-Identifier: Apache-2.0
#pragma once
// diag: listening TCP ports from the kernel's socket monitor (NETLINK_SOCK_DIAG), which walks
// listeners only: microseconds, where /proc/net/tcp costs milliseconds as soon as there are a
// thousand connections.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// One answer to a dump, fed datagram by datagram.
struct diag_answer {
    uint32_t seq; // of the request
    bool is_done;
    bool is_broken; // an error, a table that changed meanwhile, or bytes that are no answer
};

// Called with each listening port, in host order.
typedef void diag_fn(uint16_t port, void *arg);

// Takes one datagram. Pure.
void diag_feed(struct diag_answer *answer, const void *bytes, size_t size, diag_fn *fn,
               void *arg);

// An unconnected netlink socket, or -1 if the kernel has none for us. The caller closes it.
int diag_open(void);

// Dumps the listeners of AF_INET or AF_INET6. False: not answered in full; nothing may be
// concluded. Never blocks.
bool diag_listeners(int fd, uint32_t seq, int family, diag_fn *fn, void *arg);
