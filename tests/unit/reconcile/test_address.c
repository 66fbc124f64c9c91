// SPDX-License-Identifier: Apache-2.0
// One address in all its dresses, on both sides.
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "agent/reconcile/address.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void test_d16_spellings_of_an_ip(void **state)
{
    // The texts of a row are the same address; rows differ from each other.
    static const char *const same[][8] = {
        {"10.0.0.7", "::ffff:10.0.0.7", "::FFFF:a00:7", "[::ffff:10.0.0.7]",
         "0:0:0:0:0:ffff:10.0.0.7", "10-0-0-7.ns.pod.cluster.local", "10-0-0-7.ns.pod."},
        {"fd00::1", "FD00::1", "[fd00::1]", "fd00:0:0:0:0:0:0:1", "fd00:0000::0001",
         "fd00::0:1", "fd00--1.ns.pod.k8s.example"},
        {"fd00::", "fd00:0::0", "fd00:0:0:0::"},
        {"::2", "0::2", "0:0::0.0.0.2"},
        {"1:2:3:4:5:6:7:8", "1:2:3:4:5:6:0.7.0.8", "0001:2:3:4:5:6:7:8"},
        {"255.255.255.255"},
        {"1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"},
        {"::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(same); i++) {
        struct address first = address_parse(same[i][0]);

        for (size_t k = 0; k < 8 && same[i][k]; k++) {
            struct address address = address_parse(same[i][k]);

            if (address.kind != ADDRESS_IP || memcmp(address.ip, first.ip, 16) != 0)
                fail_msg("%s is not %s", same[i][k], same[i][0]);
        }
        for (size_t k = 0; k < i; k++)
            assert_memory_not_equal(first.ip, address_parse(same[k][0]).ip, 16);
    }
}

static void test_d16_bad(void **state)
{
    static const char *const bad[] = {
        NULL,
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "a b",
        "a/b",
        "a:5688",
        "10.0.0",
        "10.0.0.256",
        "10.7",
        "010.0.0.7",
        "10.0.0.07",
        "10.0.0.7.1",
        "1e3.2",
        "0x0a.0.0.7",
        "10",
        "a.10",
        "-",
        "::1",
        "127.0.0.1",
        "127.1.2.3",
        "0.0.0.0",
        "::",
        "localhost",
        "LocalHost.",
        "x.localhost",
        "fe80::1",
        "fe80::1%eth0",
        "[fd00::1",
        "fd00::1]",
        "[10.0.0.7]",
        "[",
        "[]",
        "[a]",
        "fd00::1::2",
        "fd00:::1",
        "1:2:3:4:5:6:7",
        "1:2:3:4:5:6:7:8:9",
        "12345::",
        ":1:2",
        "1:2:",
        "::ffff:10.0.0.256",
        "1:2:3:4:5:6:7:1.2.3.4",
        "1::2:3:4:5:6:7:8",
        "\303\244.b",
        "compute-0\n",
        "127-0-0-1.ns.pod.cluster.local",
        "::ffff:127.0.0.1",
    };
    char longest[256];

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        if (address_parse(bad[i]).kind == ADDRESS_BAD)
            continue;
        // "-" is what a name may hold: no pod is called so, it finds none.
        if (strcmp(bad[i], "-") != 0)
            fail_msg("\"%s\" is no address", bad[i]);
    }
    memset(longest, 'a', sizeof(longest));
    for (size_t i = 50; i < sizeof(longest); i += 51)
        longest[i] = '.';
    longest[253] = '\0';
    assert_int_equal(address_parse(longest).kind, ADDRESS_NAME);
    longest[253] = 'a';
    longest[254] = '\0';
    assert_int_equal(address_parse(longest).kind, ADDRESS_BAD);
    memset(longest, 'a', 64);
    longest[64] = '\0';
    assert_int_equal(address_parse(longest).kind, ADDRESS_BAD);
    longest[63] = '\0';
    assert_int_equal(address_parse(longest).kind, ADDRESS_NAME);
}

static const struct {
    const char *row;
    struct address_pod pod;
    enum address_match match;
} names[] = {
    {"c-1", {"c-1", "c-headless", "ns"}, ADDRESS_YES},
    {"C-1.", {"c-1", "c-headless", "ns"}, ADDRESS_YES},
    {"c-1.c-headless", {"c-1", "c-headless", "ns"}, ADDRESS_YES},
    {"c-1.C-HEADLESS.", {"c-1", "c-headless", "ns"}, ADDRESS_YES},
    {"c-1.c-headless.ns", {"c-1", "c-headless", "ns"}, ADDRESS_YES},
    {"c-1.c-headless.ns.svc", {"c-1", "c-headless", "ns"}, ADDRESS_YES},
    {"c-1.c-headless.ns.svc.cluster.local", {"c-1", "c-headless", "ns"}, ADDRESS_YES},
    {"c-1.c-headless.ns.svc.cluster.local.", {"c-1", "c-headless", "ns"}, ADDRESS_YES},
    {"c-1.c-headless.ns.svc.k8s.example.com", {"c-1", "c-headless", "ns"}, ADDRESS_YES},
    {"c-1.c-headless.other.svc", {"c-1", "c-headless", "ns"}, ADDRESS_NO},
    {"c-1.c-headless.ns2", {"c-1", "c-headless", "ns"}, ADDRESS_NO},
    {"c-1.c-headless.any.svc", {"c-1", "c-headless", NULL}, ADDRESS_YES},
    {"c-1.c-headless.any", {"c-1", "c-headless", NULL}, ADDRESS_YES},
    {"c-1.c-headless.ns.pods", {"c-1", "c-headless", "ns"}, ADDRESS_MAYBE},
    {"c-1.c-other", {"c-1", "c-headless", "ns"}, ADDRESS_MAYBE},
    {"c-1.c-headless2", {"c-1", "c-headless", "ns"}, ADDRESS_MAYBE},
    {"c-1.c", {"c-1", NULL, "ns"}, ADDRESS_MAYBE},
    {"c-11.c-headless", {"c-1", "c-headless", "ns"}, ADDRESS_NO},
    {"c-1", {"c-11", "c-headless", "ns"}, ADDRESS_NO},
    {"a.b.svc.ns", {"a.b", "svc", "ns"}, ADDRESS_YES}, // a pod's name with a dot
    {"a.b.svc.ns", {"a", "svc", "ns"}, ADDRESS_MAYBE},
    {"10.0.0.7", {"10", "0", "0"}, ADDRESS_NO},
};

static void test_d16_names(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        struct address address = address_parse(names[i].row);

        if (address_names(&address, &names[i].pod) != names[i].match)
            fail_msg("%s and pod %s", names[i].row, names[i].pod.host);
    }
}

static void test_ordinals(void **state)
{
    static const struct {
        const char *name;
        const char *set; // NULL: none
        int32_t ordinal;
    } cases[] = {
        {"compute-0", "compute", 0},
        {"compute-12.compute-headless.ns", "compute", 12},
        {"rw-compute-default-3.x", "rw-compute-default", 3},
        {"a-2147483647", "a", INT32_MAX},
        {"a-2147483648", NULL, 0},
        {"a-99999999999", NULL, 0},
        {"a-01", NULL, 0},
        {"compute", NULL, 0},
        {"compute1.x-2", NULL, 0},
        {"-1.x", NULL, 0},
        {"frontend-7d9f8-x2x1x", NULL, 0},
        {"10.0.0.7", NULL, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct address address = address_parse(cases[i].name);
        size_t len = 0;
        int32_t ordinal = 0;
        bool is = address_ordinal(&address, &len, &ordinal);

        if (is != (cases[i].set != NULL) ||
            (is && (ordinal != cases[i].ordinal || len != strlen(cases[i].set) ||
                    memcmp(address.name, cases[i].set, len) != 0)))
            fail_msg("%s", cases[i].name);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_d16_spellings_of_an_ip),
    cmocka_unit_test(test_d16_bad),
    cmocka_unit_test(test_d16_names),
    cmocka_unit_test(test_ordinals),
};

UNIT_MAIN(tests)
