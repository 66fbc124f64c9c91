// SPDX-License-Identifier: Apache-2.0
// TLS: whose certificate is believed, and a CA that is replaced while we run.
#include "tests/unit/k8s/script.h"

#include <stdio.h>
#include <string.h>

#include <openssl/ssl.h>

#include "tests/unit/k8s/cert.h"

#define ADDRESS "IP:127.0.0.1"

struct world {
    struct script script;
    struct cert_authority *old;
    struct cert_authority *next;
    int answers;
    struct k8s_result last;
};

static void answer(struct script_conn *conn, const struct script_request *request)
{
    assert_non_null(strstr(request->head, "Authorization: Bearer token-1\r\n"));
    // Each request has a connection of its own.
    conn->is_closing = true;
    script_reply(conn, 200, "{}");
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    if (!w)
        return -1;
    script_init(&w->script, answer, NULL);
    w->old = cert_authority_new("old");
    w->next = cert_authority_new("new");
    (void)snprintf(w->script.url, sizeof(w->script.url), "https://127.0.0.1:%d",
                   w->script.port);
    w->script.config.ca_file = w->script.ca_file;
    *state = w;
    return 0;
}

static void serve(struct world *w, struct cert_authority *authority, const char *alt_name,
                  bool is_expired)
{
    SSL_CTX_free(w->script.tls);
    w->script.tls = cert_server(authority, alt_name, is_expired);
}

static int teardown(void **state)
{
    struct world *w = *state;

    script_done(&w->script);
    SSL_CTX_free(w->script.tls);
    cert_authority_free(w->old);
    cert_authority_free(w->next);
    free(w);
    return 0;
}

static void on_result(const struct k8s_result *result, void *arg)
{
    struct world *w = arg;

    w->answers++;
    w->last = *result;
}

static enum k8s_outcome ask(struct world *w)
{
    static const struct k8s_call call = {.method = "GET", .path = "/x"};
    int before = w->answers;

    (void)k8s_send(w->script.k8s, &call, on_result, w);
    SCRIPT_UNTIL(&w->script, w->answers > before);
    return w->last.outcome;
}

static void test_trust(void **state)
{
    struct world *w = *state;

    serve(w, w->old, ADDRESS, false);
    cert_authority_write(w->old, w->script.ca_file);
    script_client(&w->script);
    if (ask(w) != K8S_OK)
        fail_msg("%s", w->last.err.msg);
    serve(w, w->next, ADDRESS, false); // signed by somebody else
    assert_int_equal(ask(w), K8S_NOT_SENT);
    assert_non_null(strstr(w->last.err.msg, "certificate"));
    serve(w, w->old, "IP:127.0.0.2", false); // another address
    assert_int_equal(ask(w), K8S_NOT_SENT);
    serve(w, w->old, "DNS:127.0.0.1", false); // a name is no address
    assert_int_equal(ask(w), K8S_NOT_SENT);
    serve(w, w->old, ADDRESS, true); // expired five minutes ago
    assert_int_equal(ask(w), K8S_NOT_SENT);
    assert_non_null(strstr(w->last.err.msg, "expired"));
    serve(w, w->old, ADDRESS, false);
    assert_int_equal(SSL_CTX_set_max_proto_version(w->script.tls, TLS1_1_VERSION), 1);
    assert_int_equal(ask(w), K8S_NOT_SENT);  // too old
    assert_int_equal(w->script.requests, 1); // the token was shown to none of them
}

// old → new: the file is swapped, and the next connection knows.
static void test_rotated_ca(void **state)
{
    struct world *w = *state;

    serve(w, w->old, ADDRESS, false);
    cert_authority_write(w->old, w->script.ca_file);
    script_client(&w->script);
    assert_int_equal(ask(w), K8S_OK);
    serve(w, w->next, ADDRESS, false);
    assert_int_equal(ask(w), K8S_NOT_SENT);
    cert_authority_write(w->next, w->script.ca_file);
    if (ask(w) != K8S_OK)
        fail_msg("%s", w->last.err.msg);
    serve(w, w->old, ADDRESS, false); // the old one is not believed any more
    assert_int_equal(ask(w), K8S_NOT_SENT);
}

static void test_bad_ca_file(void **state)
{
    struct world *w = *state;

    serve(w, w->old, ADDRESS, false);
    script_client(&w->script);
    assert_int_equal(ask(w), K8S_NOT_SENT); // none yet
    assert_non_null(strstr(w->last.err.msg, w->script.ca_file));
    script_write_file(w->script.ca_file, "");
    assert_int_equal(ask(w), K8S_NOT_SENT);
    script_write_file(w->script.ca_file, "no certificate\n");
    assert_int_equal(ask(w), K8S_NOT_SENT);
    cert_authority_write(w->old, w->script.ca_file);
    if (ask(w) != K8S_OK)
        fail_msg("%s", w->last.err.msg);
}

static void test_plain_server(void **state)
{
    struct world *w = *state;

    cert_authority_write(w->old, w->script.ca_file);
    w->script.config.timeout_ns = 100 * NS_PER_MS;
    script_client(&w->script);
    assert_int_equal(ask(w), K8S_NOT_SENT); // it waits for a request in plain text
    assert_int_equal(w->script.requests, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_trust, setup, teardown),
    cmocka_unit_test_setup_teardown(test_rotated_ca, setup, teardown),
    cmocka_unit_test_setup_teardown(test_bad_ca_file, setup, teardown),
    cmocka_unit_test_setup_teardown(test_plain_server, setup, teardown),
};

UNIT_MAIN(tests)
