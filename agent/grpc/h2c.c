// SPDX-License-Identifier: Apache-2.0
#include "agent/grpc/h2c.h"

#include "base/clock.h"

CURLcode h2c_set_options(CURL *easy, const char *url, int64_t timeout_ns,
                         struct curl_slist *headers)
{
    long timeout_ms = (long)(timeout_ns / NS_PER_MS);
    CURLcode bad = curl_easy_setopt(easy, CURLOPT_URL, url);

    bad |=
        curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
    bad |= curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http");
    bad |= curl_easy_setopt(easy, CURLOPT_PROXY, ""); // whatever http_proxy says
    bad |= curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, timeout_ms > 0 ? timeout_ms : 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    bad |= curl_easy_setopt(easy, CURLOPT_POST, 1L);
    return bad;
}
