// SPDX-License-Identifier: Apache-2.0
// Heads of requests: what is taken, what is refused and how, and that cutting one anywhere
// changes nothing.
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/httphead.h"

#define HOST "Host: a\r\n"

static const struct {
    const char *name;
    const char *bytes;
    int status; // 0: whole
    enum httphead_method method;
    const char *path, *query, *accept;
    bool is_persistent, has_body;
} heads[] = {
    {"plain", "GET /livez HTTP/1.1\r\n" HOST "\r\n", 0, HTTPHEAD_GET, "/livez", "", "", true,
     false},
    {"bare LF", "GET /livez HTTP/1.1\nHost: a\n\n", 0, HTTPHEAD_GET, "/livez", "", "", true,
     false},
    {"empty lines before", "\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", 0, HTTPHEAD_GET, "/", "",
     "", true, false},
    {"query", "GET /readyz?verbose&x=1?2 HTTP/1.1\r\n" HOST "\r\n", 0, HTTPHEAD_GET, "/readyz",
     "verbose&x=1?2", "", true, false},
    {"empty query", "GET /a? HTTP/1.1\r\n" HOST "\r\n", 0, HTTPHEAD_GET, "/a", "", "", true,
     false},
    {"accept", "GET / HTTP/1.1\r\n" HOST "aCCept: \t text/plain;q=0.5, */* \r\n\r\n", 0,
     HTTPHEAD_GET, "/", "", "text/plain;q=0.5, */*", true, false},
    {"first accept", "GET / HTTP/1.1\r\n" HOST "Accept: a\r\nAccept: b\r\n\r\n", 0,
     HTTPHEAD_GET, "/", "", "a", true, false},
    {"head", "HEAD / HTTP/1.1\r\n" HOST "\r\n", 0, HTTPHEAD_HEAD, "/", "", "", true, false},
    {"options", "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", 0, HTTPHEAD_OPTIONS, "*", "", "", true,
     false},
    {"methods have a case", "get / HTTP/1.1\r\n" HOST "\r\n", 0, HTTPHEAD_OTHER, "/", "", "",
     true, false},
    {"post", "POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc", 0, HTTPHEAD_OTHER, "/",
     "", "", true, true},
    {"no body", "GET / HTTP/1.1\r\n" HOST "Content-Length: 00\r\n\r\n", 0, HTTPHEAD_GET, "/",
     "", "", true, false},
    {"a length beyond 64 bits",
     "GET / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999999\r\n\r\n", 0,
     HTTPHEAD_GET, "/", "", "", true, true},
    {"absolute", "GET http://a:9/x?y HTTP/1.1\r\n" HOST "\r\n", 0, HTTPHEAD_GET, "/x", "y", "",
     true, false},
    {"close", "GET / HTTP/1.1\r\n" HOST "Connection: foo , Close\r\n\r\n", 0, HTTPHEAD_GET, "/",
     "", "", false, false},
    {"1.0", "GET / HTTP/1.0\r\n\r\n", 0, HTTPHEAD_GET, "/", "", "", false, false},
    {"1.0 keep-alive", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 0, HTTPHEAD_GET, "/",
     "", "", true, false},
    {"1.7", "GET / HTTP/1.7\r\n" HOST "\r\n", 0, HTTPHEAD_GET, "/", "", "", true, false},
    {"bytes beyond ASCII in a value", "GET / HTTP/1.1\r\n" HOST "X: \xc3\xa4\r\n\r\n", 0,
     HTTPHEAD_GET, "/", "", "", true, false},
    {"0.9", "GET /\r\n\r\n", 400, 0, NULL, NULL, NULL, false, false},
    {"2.0", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, 0, NULL, NULL, NULL, false, false},
    {"lower case version", "GET / http/1.1\r\n" HOST "\r\n", 400, 0, NULL, NULL, NULL, false,
     false},
    {"long version", "GET / HTTP/1.10\r\n" HOST "\r\n", 400, 0, NULL, NULL, NULL, false, false},
    {"two spaces", "GET  / HTTP/1.1\r\n" HOST "\r\n", 400, 0, NULL, NULL, NULL, false, false},
    {"no method", " / HTTP/1.1\r\n" HOST "\r\n", 400, 0, NULL, NULL, NULL, false, false},
    {"no slash", "GET livez HTTP/1.1\r\n" HOST "\r\n", 400, 0, NULL, NULL, NULL, false, false},
    {"authority", "CONNECT a:1 HTTP/1.1\r\n" HOST "\r\n", 400, 0, NULL, NULL, NULL, false,
     false},
    {"no path", "GET http://a HTTP/1.1\r\n" HOST "\r\n", 400, 0, NULL, NULL, NULL, false,
     false},
    {"fragment", "GET /a#b HTTP/1.1\r\n" HOST "\r\n", 400, 0, NULL, NULL, NULL, false, false},
    {"control in the path", "GET /a\x01 HTTP/1.1\r\n" HOST "\r\n", 400, 0, NULL, NULL, NULL,
     false, false},
    {"beyond ASCII in the path", "GET /\xc3\xa4 HTTP/1.1\r\n" HOST "\r\n", 400, 0, NULL, NULL,
     NULL, false, false},
    {"TLS", "\x16\x03\x01\n\n", 400, 0, NULL, NULL, NULL, false, false},
    {"no host", "GET / HTTP/1.1\r\n\r\n", 400, 0, NULL, NULL, NULL, false, false},
    {"two hosts", "GET / HTTP/1.1\r\n" HOST HOST "\r\n", 400, 0, NULL, NULL, NULL, false,
     false},
    {"space before the colon", "GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400, 0, NULL, NULL, NULL,
     false, false},
    {"folded", "GET / HTTP/1.1\r\n" HOST "X: a\r\n b\r\n\r\n", 400, 0, NULL, NULL, NULL, false,
     false},
    {"no colon", "GET / HTTP/1.1\r\n" HOST "X\r\n\r\n", 400, 0, NULL, NULL, NULL, false, false},
    {"bare CR", "GET / HTTP/1.1\r\n" HOST "X: a\rb\r\n\r\n", 400, 0, NULL, NULL, NULL, false,
     false},
    {"two lengths", "GET / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
     400, 0, NULL, NULL, NULL, false, false},
    {"negative length", "GET / HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\n", 400, 0, NULL,
     NULL, NULL, false, false},
    {"empty length", "GET / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n", 400, 0, NULL, NULL,
     NULL, false, false},
    {"chunked", "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", 501, 0, NULL,
     NULL, NULL, false, false},
    {"chunked and a length",
     "GET / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400,
     0, NULL, NULL, NULL, false, false},
    {"chunked in 1.0", "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, 0, NULL,
     NULL, NULL, false, false},
};
#define HEAD_COUNT (sizeof(heads) / sizeof(heads[0]))

static void check_text(const char *name, struct httphead_text is, const char *wanted)
{
    if (!httphead_text_is(is, wanted))
        fail_msg("%s: \"%.*s\" is not \"%s\"", name, (int)is.len, is.data, wanted);
}

static void test_heads(void **state)
{
    struct httphead head;
    size_t len = 0;

    (void)state;
    for (size_t i = 0; i < HEAD_COUNT; i++) {
        int status = 0;
        enum httphead_result result =
            httphead_parse(heads[i].bytes, strlen(heads[i].bytes), &head, &len, &status);

        if ((result == HTTPHEAD_WHOLE) != (heads[i].status == 0) || status != heads[i].status)
            fail_msg("%s: result %d, status %d", heads[i].name, (int)result, status);
        if (result != HTTPHEAD_WHOLE)
            continue;
        assert_int_equal(head.method, heads[i].method);
        check_text(heads[i].name, head.path, heads[i].path);
        check_text(heads[i].name, head.query, heads[i].query);
        check_text(heads[i].name, head.accept, heads[i].accept);
        if (head.is_persistent != heads[i].is_persistent || head.has_body != heads[i].has_body)
            fail_msg("%s: persistent %d, body %d", heads[i].name, head.is_persistent,
                     head.has_body);
    }
}

// No prefix of a head is taken for one, and none is refused: it is judged when it is whole.
// Each is a heap block of exactly its size, so that the sanitizer sees a byte too far.
static void test_cut_anywhere(void **state)
{
    struct httphead head;

    (void)state;
    for (size_t i = 0; i < HEAD_COUNT; i++) {
        size_t whole = 0;
        int status = 0;

        if (httphead_parse(heads[i].bytes, strlen(heads[i].bytes), &head, &whole, &status) !=
            HTTPHEAD_WHOLE)
            continue;
        for (size_t len = 1; len < whole; len++) {
            char *bytes = malloc(len);

            memcpy(bytes, heads[i].bytes, len);
            if (httphead_parse(bytes, len, &head, &(size_t){0}, &status) != HTTPHEAD_PARTIAL)
                fail_msg("%s: judged after %zu of %zu bytes", heads[i].name, len, whole);
            free(bytes);
        }
    }
}

static void test_nul_bytes(void **state)
{
    static const char in_value[] = "GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n";
    static const char in_name[] = "GET / HTTP/1.1\r\nHo\0st: ab\r\n\r\n";
    static const char in_path[] = "GET /\0 HTTP/1.1\r\nHost: ab\r\n\r\n";
    const char *const all[] = {in_value, in_name, in_path};
    const size_t sizes[] = {sizeof(in_value) - 1, sizeof(in_name) - 1, sizeof(in_path) - 1};
    struct httphead head;
    size_t len = 0;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        int status = 0;

        assert_int_equal(httphead_parse(all[i], sizes[i], &head, &len, &status),
                         HTTPHEAD_REFUSED);
        assert_int_equal(status, 400);
    }
}

static void test_many_headers(void **state)
{
    struct buf bytes = {0};
    struct httphead head;
    size_t len = 0;
    int status = 0;

    (void)state;
    buf_puts(&bytes, "GET / HTTP/1.1\r\n" HOST);
    for (int i = 0; i < 64; i++)
        buf_printf(&bytes, "X%d: y\r\n", i);
    buf_puts(&bytes, "\r\n");
    assert_int_equal(httphead_parse(bytes.data, bytes.len, &head, &len, &status),
                     HTTPHEAD_REFUSED);
    assert_int_equal(status, 431);
    buf_done(&bytes);
}

// What is behind a head stays for the next one.
static void test_pipelined(void **state)
{
    static const char bytes[] =
        "GET /a HTTP/1.1\r\n" HOST "\r\n\r\nHEAD /b HTTP/1.1\r\n" HOST "\r\n";
    struct httphead head;
    size_t len = 0;
    int status = 0;

    (void)state;
    assert_int_equal(httphead_parse(bytes, sizeof(bytes) - 1, &head, &len, &status),
                     HTTPHEAD_WHOLE);
    check_text("first", head.path, "/a");
    assert_int_equal(httphead_parse(bytes + len, sizeof(bytes) - 1 - len, &head, &len, &status),
                     HTTPHEAD_WHOLE);
    check_text("second", head.path, "/b");
    assert_int_equal(head.method, HTTPHEAD_HEAD);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_heads),     cmocka_unit_test(test_cut_anywhere),
    cmocka_unit_test(test_nul_bytes), cmocka_unit_test(test_many_headers),
    cmocka_unit_test(test_pipelined),
};

UNIT_MAIN(tests)
