// SPDX-License-Identifier: Apache-2.0
#pragma once
// server: the URL of the API server, taken apart and checked.

#include <stdbool.h>

#include "base/err.h"

struct k8s_server {
    char *base; // "https://[fd00::1]:443", without a slash at the end; owned, as all are
    char *host; // without brackets
    char *port;
    bool is_tls;
    bool is_name; // to be resolved: no address
};

// Errors: INVALID, with what is wrong: no http or https, no host, a user, a path, a query.
must_check int k8s_server_parse(const char *url, struct k8s_server *ret, struct err *err);
// Accepts a zeroed one.
void k8s_server_done(struct k8s_server *server);
