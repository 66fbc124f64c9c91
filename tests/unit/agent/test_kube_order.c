// SPDX-License-Identifier: Apache-2.0
// Orders by annotation: times, and who has the last word.
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "agent/kube/order.h"
#include "agent/kube/server.h"

static struct instant at(int64_t ms)
{
    return (struct instant){1000 * NS_PER_SEC + ms * NS_PER_MS};
}

static void test_times(void **state)
{
    static const struct {
        const char *text;
        int64_t seconds; // -1: refused
        int64_t ns;
    } cases[] = {
        {"1970-01-01T00:00:00Z", 0, 0},
        {"2000-02-29T12:30:15Z", 951827415, 0},
        {"2025-11-29T22:20:00Z", 1764454800, 0},
        {"2025-11-29t22:20:00z", 1764454800, 0},
        {"2025-11-29 22:20:00Z", 1764454800, 0},
        {"2025-11-29T22:20:00.25Z", 1764454800, 250000000},
        {"2025-11-29T22:20:00.1234567891Z", 1764454800, 123456789},
        {"2025-11-29T23:50:00+01:30", 1764454800, 0},
        {"2025-11-29T14:20:00-08:00", 1764454800, 0},
        {"2100-03-01T00:00:00Z", 4107542400, 0},
        {"2262-01-01T00:00:00Z", 9214646400, 0},
        {"", -1, 0},
        {"soon", -1, 0},
        {"30m", -1, 0},
        {"2025-11-29", -1, 0},
        {"2025-11-29T22:20:00", -1, 0},
        {"2025-11-29T22:20Z", -1, 0},
        {"2025-13-01T00:00:00Z", -1, 0},
        {"2025-02-29T00:00:00Z", -1, 0},
        {"2025-11-29T24:00:00Z", -1, 0},
        {"2025-11-29T22:60:00Z", -1, 0},
        {"2025-11-29T22:20:00.Z", -1, 0},
        {"2025-11-29T22:20:00+1:00", -1, 0},
        {"2025-11-29T22:20:00Z ", -1, 0},
        {"1969-12-31T23:59:59Z", -1, 0},
        {"1970-01-01T00:00:00+01:00", -1, 0},
        {"9999-01-01T00:00:00Z", -1, 0},
        {"1764454800", -1, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = {0};
        int64_t wall_ns = -7;
        int result = kube_time_parse(cases[i].text, &wall_ns, &err);

        if (cases[i].seconds < 0) {
            assert_int_equal(result, -1);
            assert_int_equal(err.kind, ERR_INVALID);
            assert_non_null(strstr(err.msg, "2030-01-31T18:00:00Z"));
            assert_int_equal(wall_ns, -7);
            continue;
        }
        assert_int_equal(result, 0);
        assert_int_equal(wall_ns, cases[i].seconds * NS_PER_SEC + cases[i].ns);
    }
}

static void test_times_go_round(void **state)
{
    char text[KUBE_TIME_SIZE];
    struct err err = {0};
    int64_t wall_ns = 0;

    (void)state;
    for (int64_t day = 0; day < 80000; day += 13) {
        int64_t wanted_ns = (day * 86400 + day % 86400) * NS_PER_SEC;

        kube_time_format(wanted_ns, text);
        assert_int_equal(kube_time_parse(text, &wall_ns, &err), 0);
        assert_int_equal(wall_ns, wanted_ns);
    }
    // A pause is never shorter than asked.
    assert_string_equal(kube_time_format(1764454799 * NS_PER_SEC + 1, text),
                        "2025-11-29T22:20:00Z");
}

static void test_first_word_counts(void **state)
{
    struct kube_order order = {0};

    (void)state;
    assert_false(kube_order_sync(&order, at(0))); // nothing was read: nothing changes
    kube_order_seen(&order, NULL, "10");
    assert_true(kube_order_sync(&order, at(1))); // takes back what metafence-run has kept
    assert_false(order.taken.is_present);
    kube_order_seen(&order, NULL, "11");
    assert_false(kube_order_sync(&order, at(2)));
    kube_order_seen(&order, "maintenance", "12");
    assert_true(kube_order_sync(&order, at(3)));
    assert_string_equal(order.taken.text, "maintenance");
    kube_order_seen(&order, "", "13"); // an empty reason is one
    assert_true(kube_order_sync(&order, at(4)));
    assert_true(order.taken.is_present);
    assert_false(kube_order_next(&order, at(5))); // what came from there is not written there
}

static struct kube_order a_synced(const char *text)
{
    struct kube_order order = {0};

    kube_order_seen(&order, text, "10");
    assert_true(kube_order_sync(&order, at(0)));
    return order;
}

static void test_mirror(void **state)
{
    struct kube_order order = a_synced(NULL);

    (void)state;
    kube_order_mirror(&order, "by hand");
    kube_order_seen(&order, NULL, "11");
    assert_false(kube_order_sync(&order, at(10))); // not written yet: no word against it
    assert_true(kube_order_next(&order, at(10)));
    assert_false(kube_order_next(&order, at(10)));
    kube_order_seen(&order, NULL, "12");
    assert_false(kube_order_sync(&order, at(11)));
    kube_order_done(&order, K8S_OK, "13", at(20));
    assert_false(order.is_pending);
    assert_false(kube_order_sync(&order, at(21))); // version 12 is from before it
    kube_order_seen(&order, NULL, "12");
    assert_false(kube_order_sync(&order, at(22)));
    kube_order_seen(&order, "by hand", "13");
    assert_false(kube_order_sync(&order, at(23)));
    kube_order_seen(&order, NULL, "14"); // taken back by kubectl
    assert_true(kube_order_sync(&order, at(24)));
    assert_false(order.taken.is_present);
}

static void test_mirror_is_tried_until_written(void **state)
{
    struct kube_order order = a_synced("old");
    struct instant now = at(0);

    (void)state;
    kube_order_mirror(&order, NULL);
    for (int tries = 0; tries < 10; tries++) {
        assert_true(kube_order_next(&order, now));
        kube_order_done(&order, tries % 2 ? K8S_UNKNOWN : K8S_NOT_SENT, NULL, now);
        kube_order_seen(&order, "old", "10");
        assert_false(kube_order_sync(&order, now));
        assert_in_range(instant_since(kube_order_wake(&order), now), 500 * NS_PER_MS,
                        4 * NS_PER_SEC);
        now = kube_order_wake(&order);
    }
    assert_true(order.is_pending);
    // An unanswered one may have arrived: then it is what the watch shows.
    kube_order_seen(&order, NULL, "11");
    assert_false(kube_order_sync(&order, now));
    assert_false(order.is_pending);
    assert_false(order.taken.is_present);
}

static void test_newer_order_while_one_is_under_way(void **state)
{
    struct kube_order order = a_synced(NULL);

    (void)state;
    kube_order_mirror(&order, "one");
    assert_true(kube_order_next(&order, at(0)));
    kube_order_mirror(&order, NULL);
    assert_false(kube_order_next(&order, at(1)));
    kube_order_done(&order, K8S_OK, "11", at(2));
    assert_true(order.is_pending);
    kube_order_seen(&order, "one", "11");
    assert_false(kube_order_sync(&order, at(3)));
    assert_true(kube_order_next(&order, at(3)));
    assert_false(order.sent.is_present);
}

// Fenced and unfenced in one breath: that the annotation is not there yet says nothing.
static void test_taken_back_while_under_way(void **state)
{
    struct kube_order order = a_synced(NULL);

    (void)state;
    kube_order_mirror(&order, "one");
    assert_true(kube_order_next(&order, at(0)));
    kube_order_mirror(&order, NULL);
    kube_order_seen(&order, NULL, "11"); // a label's change, older than the write
    kube_order_done(&order, K8S_OK, "12", at(2));
    assert_false(kube_order_sync(&order, at(3)));
    assert_true(kube_order_next(&order, at(3)));
    assert_false(order.sent.is_present);
    kube_order_done(&order, K8S_OK, "13", at(4));
    kube_order_seen(&order, "one", "12");
    assert_false(kube_order_sync(&order, at(5)));
    kube_order_seen(&order, NULL, "13");
    assert_false(kube_order_sync(&order, at(6)));
    assert_false(order.taken.is_present);
}

// The same, when the first was not answered: it may land later.
static void test_taken_back_in_doubt(void **state)
{
    static const enum k8s_outcome doubts[] = {K8S_UNKNOWN, K8S_BUSY, K8S_GARBAGE};

    (void)state;
    for (size_t i = 0; i < sizeof(doubts) / sizeof(doubts[0]); i++) {
        struct kube_order order = a_synced(NULL);

        kube_order_mirror(&order, "one");
        assert_true(kube_order_next(&order, at(0)));
        kube_order_done(&order, doubts[i], NULL, at(1));
        kube_order_mirror(&order, NULL);
        kube_order_seen(&order, NULL, "11");
        assert_false(kube_order_sync(&order, at(2)));
        assert_true(kube_order_next(&order, at(2)));
        kube_order_done(&order, K8S_OK, "13", at(3));
        assert_false(order.is_pending);
        kube_order_mirror(&order, "two"); // no doubt is left
        kube_order_seen(&order, "two", "14");
        assert_false(kube_order_sync(&order, at(4)));
        assert_false(order.is_pending);
    }
}

// A watch that lags is no reason to take back what was just written: a read has the word.
static void test_watch_lags(void **state)
{
    struct kube_order order = a_synced("stay down");

    (void)state;
    kube_order_mirror(&order, NULL);
    assert_true(kube_order_next(&order, at(0)));
    kube_order_done(&order, K8S_OK, "13", at(10));
    kube_order_seen(&order, "stay down", "11");
    assert_false(kube_order_sync(&order, at(20)));
    assert_int_equal(kube_order_wake(&order).ns, at(10).ns + KUBE_AWAIT_NS);
    assert_false(order.needs_look);
    assert_false(kube_order_sync(&order, at(60000)));
    assert_true(order.needs_look);
    assert_int_equal(kube_order_wake(&order).ns, INSTANT_NEVER.ns);
    assert_false(order.taken.is_present);
    kube_order_read(&order, "stay down", "11", at(5)); // asked for before the answer
    assert_false(kube_order_sync(&order, at(60001)));
    assert_true(order.needs_look);
    kube_order_read(&order, "by kubectl", "20", at(60001));
    assert_false(order.needs_look);
    assert_true(kube_order_sync(&order, at(60002)));
    assert_string_equal(order.taken.text, "by kubectl");
}

static void test_denied_mirror_can_be_overruled(void **state)
{
    struct kube_order order = a_synced(NULL);

    (void)state;
    kube_order_mirror(&order, "by hand");
    assert_true(kube_order_next(&order, at(0)));
    kube_order_done(&order, K8S_DENIED, NULL, at(1));
    kube_order_seen(&order, NULL, "11");
    assert_false(kube_order_sync(&order, at(2))); // the order stays in force
    assert_true(order.is_pending);
    assert_string_equal(order.taken.text, "by hand");
    kube_order_seen(&order, "by kubectl", "12"); // a newer word
    assert_true(kube_order_sync(&order, at(3)));
    kube_order_seen(&order, NULL, "13");
    assert_true(kube_order_sync(&order, at(4)));
    assert_false(order.taken.is_present);
}

// The annotation that an order was given against is no newer word.
static void test_denied_mirror_stands_against_the_old(void **state)
{
    struct kube_order order = a_synced("old");

    (void)state;
    kube_order_mirror(&order, NULL);
    assert_true(kube_order_next(&order, at(0)));
    kube_order_done(&order, K8S_DENIED, NULL, at(1));
    kube_order_seen(&order, "old", "11");
    assert_false(kube_order_sync(&order, at(2)));
    assert_false(order.taken.is_present);
    assert_true(order.is_pending);
}

static void test_long_reasons_are_cut(void **state)
{
    char text[2 * KUBE_ORDER_SIZE];
    struct kube_order order = {0};

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    kube_order_seen(&order, text, "10");
    assert_true(kube_order_sync(&order, at(0)));
    assert_int_equal(strlen(order.taken.text), KUBE_ORDER_SIZE - 1);
    kube_order_seen(&order, text, "11");
    assert_false(kube_order_sync(&order, at(1)));
}

static void test_server_urls(void **state)
{
    static const struct {
        const char *host, *port, *url; // url NULL: refused
    } cases[] = {
        {"10.96.0.1", "443", "https://10.96.0.1:443"},
        {"10.96.0.1", NULL, "https://10.96.0.1:443"},
        {"fd00::1", "6443", "https://[fd00::1]:6443"},
        {"[fd00::1]", "6443", "https://[fd00::1]:6443"},
        {"fe80::1%eth0", "443", "https://[fe80::1%25eth0]:443"},
        {"[fe80::1%25eth0]", "443", "https://[fe80::1%25eth0]:443"},
        {"kubernetes.default.svc", "443", "https://kubernetes.default.svc:443"},
        {NULL, "443", NULL},
        {"", "443", NULL},
        {"10.96.0.1/x", "443", NULL},
        {"user@host", "443", NULL},
        {"fd00::1]x", "443", NULL},
        {"fe80::1%", "443", NULL},
        {"10.96.0.1", "0", NULL},
        {"10.96.0.1", "65536", NULL},
        {"10.96.0.1", "tcp://10.96.0.1:443", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char url[KUBE_SERVER_SIZE] = "";
        struct err err = {0};
        int result = kube_server_url(cases[i].host, cases[i].port, url, &err);

        assert_int_equal(result, cases[i].url ? 0 : -1);
        if (cases[i].url)
            assert_string_equal(url, cases[i].url);
        else
            assert_non_null(strstr(err.msg, "KUBERNETES_SERVICE_"));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_times),
    cmocka_unit_test(test_times_go_round),
    cmocka_unit_test(test_first_word_counts),
    cmocka_unit_test(test_mirror),
    cmocka_unit_test(test_mirror_is_tried_until_written),
    cmocka_unit_test(test_newer_order_while_one_is_under_way),
    cmocka_unit_test(test_taken_back_while_under_way),
    cmocka_unit_test(test_taken_back_in_doubt),
    cmocka_unit_test(test_watch_lags),
    cmocka_unit_test(test_denied_mirror_can_be_overruled),
    cmocka_unit_test(test_denied_mirror_stands_against_the_old),
    cmocka_unit_test(test_long_reasons_are_cut),
    cmocka_unit_test(test_server_urls),
};

UNIT_MAIN(tests)
