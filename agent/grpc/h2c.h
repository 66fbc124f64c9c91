// SPDX-License-Identifier: Apache-2.0
#pragma once
// h2c: what every call to a RisingWave process has in common: HTTP/2 without TLS, on a
// connection of its own, past any proxy.

#include <stdint.h>

#include "base/curlmulti.h"

// `headers` is borrowed until the call is over. Not CURLE_OK: an option was refused.
CURLcode h2c_set_options(CURL *easy, const char *url, int64_t timeout_ns,
                         struct curl_slist *headers);
