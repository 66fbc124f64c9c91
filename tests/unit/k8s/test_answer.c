// SPDX-License-Identifier: Apache-2.0
// What an answer means, and what a server's URL may be.
#include "tests/unit/unit.h"

#include <string.h>

#include <cjson/cJSON.h>

#include "k8s/answer.h"
#include "k8s/server.h"

#define OWNED(reason)                                                                          \
    "{\"message\":\"because\",\"details\":{\"causes\":[{},{\"reason\":\"" reason "\"}]}}"

static void test_outcomes(void **state)
{
    static const char status[] = "{\"kind\":\"Status\",\"message\":\"because\"}";
    static const struct {
        int http_status;
        const char *body;
        enum k8s_outcome want;
        const char *err;
    } cases[] = {
        {200, "{}", K8S_OK, ""},
        {201, "{\"a\":1}", K8S_OK, ""},
        {200, "", K8S_GARBAGE, "GET /p: HTTP 200: no JSON"},
        {200, "[]", K8S_GARBAGE, "JSON, but no object"},
        {200, "null", K8S_GARBAGE, "JSON, but no object"},
        {200, "{\"a\":", K8S_GARBAGE, "no JSON: error at byte"},
        {200, "<html></html>", K8S_GARBAGE, "no JSON"},
        {204, "", K8S_GARBAGE, "HTTP 204"},
        {301, status, K8S_GARBAGE, "HTTP 301: because"},
        {100, "", K8S_GARBAGE, "HTTP 100"},
        {0, "", K8S_GARBAGE, "HTTP 0"},
        {400, status, K8S_REFUSED, "GET /p: HTTP 400: because"},
        {401, status, K8S_DENIED, "HTTP 401: because"},
        {403, "", K8S_DENIED, "GET /p: HTTP 403"},
        {404, "<html>", K8S_NOT_FOUND, "HTTP 404"},
        {405, "{\"message\":5}", K8S_REFUSED, "HTTP 405"},
        {408, status, K8S_BUSY, "HTTP 408: because"},
        {409, status, K8S_CONFLICT, "HTTP 409: because"},
        {409, "", K8S_CONFLICT, "HTTP 409"},
        {409, OWNED("FieldManagerConflict"), K8S_OWNED, "HTTP 409: because"},
        {409, OWNED("FieldValueInvalid"), K8S_CONFLICT, "HTTP 409: because"},
        {409, "{\"details\":{\"causes\":[5,null,{\"reason\":{}}]}}", K8S_CONFLICT, "HTTP 409"},
        {409, "{\"details\":[]}", K8S_CONFLICT, "HTTP 409"},
        {422, OWNED("FieldManagerConflict"), K8S_REFUSED, "HTTP 422: because"},
        {410, status, K8S_GONE, "HTTP 410: because"},
        {422, status, K8S_REFUSED, "HTTP 422: because"},
        {429, status, K8S_BUSY, "HTTP 429: because"},
        {500, status, K8S_BUSY, "HTTP 500: because"},
        {502, "[", K8S_BUSY, "HTTP 502"},
        {503, status, K8S_BUSY, "HTTP 503"},
        {504, status, K8S_BUSY, "HTTP 504"},
        {599, status, K8S_BUSY, "HTTP 599"},
        {600, status, K8S_GARBAGE, "HTTP 600"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct k8s_answer answer = {.http_status = cases[i].http_status,
                                    .method = "GET",
                                    .path = "/p?watch=1",
                                    .body = cases[i].body,
                                    .len = strlen(cases[i].body)};
        struct err err = {0};
        cJSON *object = NULL;
        enum k8s_outcome got = k8s_answer_judge(&answer, &object, &err);

        if (got != cases[i].want || !strstr(err.msg, cases[i].err) || strchr(err.msg, '?') ||
            (got == K8S_OK || got == K8S_OWNED) != (object != NULL) ||
            err.kind != k8s_outcome_err(got))
            fail_msg("%d: %s \"%s\"", cases[i].http_status, k8s_outcome_name(got), err.msg);
        cJSON_Delete(object);
    }
}

static void test_servers(void **state)
{
    static const struct {
        const char *url;
        const char *base; // NULL: refused
        const char *host; // or the error
        bool is_name;
    } cases[] = {
        {"https://10.96.0.1:443", "https://10.96.0.1:443", "10.96.0.1", false},
        {"https://10.96.0.1", "https://10.96.0.1:443", "10.96.0.1", false},
        {"https://10.96.0.1:6443/", "https://10.96.0.1:6443", "10.96.0.1", false},
        {"http://127.0.0.1:80", "http://127.0.0.1:80", "127.0.0.1", false},
        {"https://[fd00::1]:443", "https://[fd00::1]:443", "fd00::1", false},
        {"https://[::1]", "https://[::1]:443", "::1", false},
        {"https://[fe80::1%25eth0]:6443", "https://[fe80::1%25eth0]:6443", "fe80::1", false},
        {"https://kubernetes.default.svc", "https://kubernetes.default.svc:443",
         "kubernetes.default.svc", true},
        {"https://fd00::1:443", NULL, "", false},
        {"10.96.0.1:443", NULL, "write https://HOST:PORT", false},
        {"", NULL, "write https://HOST:PORT", false},
        {"https://", NULL, "write https://HOST:PORT", false},
        {"https://host:port", NULL, "write https://HOST:PORT", false},
        {"https://host:70000", NULL, "write https://HOST:PORT", false},
        {"ftp://host", NULL, "only https and http", false},
        {"https://host/path", NULL, "it has a path", false},
        {"https://host?x=y", NULL, "it has a query", false},
        {"https://host#x", NULL, "it has a #", false},
        {"https://user:hidden@host", NULL, "it has a user", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct k8s_server server = {0};
        struct err err = {0};
        int result = k8s_server_parse(cases[i].url, &server, &err);

        if ((result == 0) != (cases[i].base != NULL))
            fail_msg("\"%s\": %s", cases[i].url, err.msg);
        if (result < 0) {
            assert_int_equal(err.kind, ERR_INVALID);
            assert_null(strstr(err.msg, "hidden"));
            if (!strstr(err.msg, cases[i].host))
                fail_msg("\"%s\": %s", cases[i].url, err.msg);
            continue;
        }
        assert_string_equal(server.base, cases[i].base);
        assert_string_equal(server.host, cases[i].host);
        assert_int_equal(server.is_name, cases[i].is_name);
        assert_int_equal(server.is_tls, cases[i].url[4] == 's');
        k8s_server_done(&server);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_outcomes),
    cmocka_unit_test(test_servers),
};

UNIT_MAIN(tests)
