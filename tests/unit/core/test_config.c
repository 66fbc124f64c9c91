// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/core/scene.h"
#include "tests/unit/unit.h"

#include <string.h>

// 2*(2 s + 2 s) + 250 ms + 3 s + 2 s + 500 ms
#define NEEDED_NS (13750 * MS)

static void test_inequality_boundary(void **state)
{
    static const struct {
        int64_t ttl_ns;
        bool ok;
    } cases[] = {
        {NEEDED_NS - 1, false}, {NEEDED_NS, false}, {NEEDED_NS + 1, true}, {30 * S, true}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene;
        struct err err = {0};

        scene_init(&scene);
        scene.config.ttl_ns = cases[i].ttl_ns;
        assert_int_equal(core_config_check(&scene.config, &err) == 0, cases[i].ok);
        if (!cases[i].ok) {
            assert_int_equal(err.kind, ERR_INVALID);
            assert_non_null(strstr(err.msg, "connectTimeout 2s + queryTimeout 2s"));
            assert_non_null(strstr(err.msg, "killBudget 500ms = 13750ms"));
            assert_non_null(strstr(err.msg, "shorten these"));
            assert_non_null(strstr(err.msg, "ttl above 13750ms"));
        }
    }
}

static void test_profile_of_short_lease(void **state)
{
    struct scene scene;
    struct err err = {0};

    (void)state;
    scene_init(&scene);
    scene.config.ttl_ns = 5 * S;
    scene.config.connect_timeout_ns = 200 * MS;
    scene.config.query_timeout_ns = 200 * MS;
    scene.config.poll_ns = 100 * MS;
    scene.config.renew_gap_ns = 1500 * MS;
    scene.config.margin_ns = 300 * MS;
    scene.config.kill_budget_ns = 300 * MS;
    assert_int_equal(core_config_check(&scene.config, &err), 0);
}

static void test_longest_message_is_whole(void **state)
{
    struct scene scene;
    struct err err = {0};

    (void)state;
    scene_init(&scene);
    scene.config.ttl_ns = 12345678901;
    scene.config.connect_timeout_ns = 2345678901;
    scene.config.query_timeout_ns = 2345678901;
    scene.config.margin_ns = 2345678901;
    assert_int_equal(core_config_check(&scene.config, &err), -1);
    assert_non_null(strstr(err.msg, "ttl above"));
    assert_non_null(strstr(strstr(err.msg, "ttl above"), "ns"));
}

static void test_huge_numbers_do_not_wrap(void **state)
{
    struct scene scene;
    struct err err = {0};

    (void)state;
    scene_init(&scene);
    scene.config.connect_timeout_ns = INT64_MAX - 1;
    assert_int_equal(core_config_check(&scene.config, &err), -1);
    scene.config.connect_timeout_ns = INT64_MAX / 2;
    scene.config.query_timeout_ns = INT64_MAX / 2;
    assert_int_equal(core_config_check(&scene.config, &err), -1);
}

static void test_each_number_must_be_positive(void **state)
{
    static const struct {
        size_t offset;
        const char *name;
    } cases[] = {
        {offsetof(struct core_config, ttl_ns), "election.ttl"},
        {offsetof(struct core_config, connect_timeout_ns), "postgres.connectTimeout"},
        {offsetof(struct core_config, query_timeout_ns), "postgres.queryTimeout"},
        {offsetof(struct core_config, poll_ns), "timing.poll"},
        {offsetof(struct core_config, renew_gap_ns), "timing.renewGap"},
        {offsetof(struct core_config, margin_ns), "timing.margin"},
        {offsetof(struct core_config, kill_budget_ns), "timing.killBudget"},
        {offsetof(struct core_config, max_clock_jump_ns), "timing.maxClockJump"},
        {offsetof(struct core_config, phantom_after_ns), "timing.phantomAfter"},
        {offsetof(struct core_config, promote_after_ns), "timing.promoteAfter"},
        {offsetof(struct core_config, confirm_after_ns), "timing.confirmAfter"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int64_t bad[] = {0, -1};

        for (size_t k = 0; k < 2; k++) {
            struct scene scene;
            struct err err = {0};

            scene_init(&scene);
            memcpy((char *)&scene.config + cases[i].offset, &bad[k], sizeof(bad[k]));
            assert_int_equal(core_config_check(&scene.config, &err), -1);
            assert_int_equal(err.kind, ERR_INVALID);
            assert_non_null(strstr(err.msg, cases[i].name));
            assert_non_null(strstr(err.msg, "above zero"));
        }
    }
}

static void test_id_must_be_given(void **state)
{
    struct scene scene;
    struct err err = {0};

    (void)state;
    scene_init(&scene);
    scene.config.id[0] = '\0';
    assert_int_equal(core_config_check(&scene.config, &err), -1);
    assert_non_null(strstr(err.msg, "advertise address"));
}

static void test_lease_deadline(void **state)
{
    // ttl 30 s - margin 2 s - budget 500 ms
    static const struct {
        int64_t sent_ns;
        int64_t age_ns;
        int64_t want_ns;
    } cases[] = {
        {1000 * S, 0, 1027500 * MS},
        {1000 * S, 1, 1027500 * MS - 1},
        {1000 * S, -1, 1027500 * MS},
        {1000 * S, INT64_MIN, 1027500 * MS},
        {1000 * S, 27500 * MS, 1000 * S},
        {1000 * S, 27500 * MS + 1, 1000 * S - 1},
        {1000 * S, 40 * S, 987500 * MS},
        {INT64_MAX - S, 0, INT64_MAX},
        {0, INT64_MAX, 27500 * MS - INT64_MAX},
        {-40 * S, INT64_MAX, INT64_MIN},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene;
        struct instant sent_at = {cases[i].sent_ns};
        struct instant deadline;

        scene_init(&scene);
        deadline = lease_deadline(&scene.config, sent_at, cases[i].age_ns);
        assert_true(deadline.ns == cases[i].want_ns);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_inequality_boundary),
    cmocka_unit_test(test_profile_of_short_lease),
    cmocka_unit_test(test_longest_message_is_whole),
    cmocka_unit_test(test_huge_numbers_do_not_wrap),
    cmocka_unit_test(test_each_number_must_be_positive),
    cmocka_unit_test(test_id_must_be_given),
    cmocka_unit_test(test_lease_deadline),
};

UNIT_MAIN(tests)
