// SPDX-License-Identifier: Apache-2.0
#pragma once
// server: the API server's URL from what the kubelet puts into each container's
// environment. Pure.

#include <stddef.h>

#include "base/err.h"

#define KUBE_SERVER_SIZE 320

// "10.96.0.1", "fd00::1", "[fd00::1]", "fe80::1%eth0", a name; `port` NULL or "": 443. Errors:
// INVALID, naming the variable.
must_check int kube_server_url(const char *host, const char *port,
                               char ret_url[KUBE_SERVER_SIZE], struct err *err);
