// SPDX-License-Identifier: Apache-2.0
#pragma once
// listen: a listening TCP socket, on one address or on all of both families.

#include <stdint.h>

#include "base/err.h"

// Listens on `address`, numeric IPv4 or IPv6 without brackets, or "" for all addresses, IPv6
// and IPv4 by one socket (IPv4 alone where the kernel has no IPv6). `port` 0 takes any free
// one; *ret_port is what it became. *ret_fd is non-blocking, the caller's to close. Errors:
// INVALID (an address that is none), CONFLICT (the port is taken), DENIED (a privileged port,
// an address that is not ours), TRANSIENT.
must_check int listen_tcp(const char *address, uint16_t port, int *ret_fd, uint16_t *ret_port,
                          struct err *err);
