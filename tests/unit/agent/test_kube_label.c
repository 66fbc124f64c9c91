// SPDX-License-Identifier: Apache-2.0
// The role label: which patch goes out when. An API server that answers what each step says.
#include "tests/unit/unit.h"

#include <string.h>

#include "agent/kube/label.h"

#define RESYNC (300 * NS_PER_SEC)

static struct instant at(int64_t ms)
{
    return (struct instant){1000 * NS_PER_SEC + ms * NS_PER_MS};
}

static struct kube_label a_label(bool observe)
{
    const struct kube_label_config config = {
        .has_role_key = true, .observe = observe, .resync_ns = RESYNC, .seed = 7};
    struct kube_label label;

    kube_label_init(&label, &config);
    return label;
}

static void assert_sends(struct kube_label *label, int64_t ms, enum role_label role,
                         bool with_role_key)
{
    struct kube_label_send send = {0};

    assert_true(kube_label_next(label, at(ms), &send));
    assert_int_equal(send.role, role);
    assert_int_equal(send.with_role_key, with_role_key);
    // One at a time, whatever is wished meanwhile.
    assert_false(kube_label_next(label, at(ms), &send));
}

static void assert_quiet(struct kube_label *label, int64_t ms)
{
    struct kube_label_send send = {0};

    assert_false(kube_label_next(label, at(ms), &send));
}

static bool done(struct kube_label *label, int64_t ms, enum k8s_outcome outcome,
                 const char *version)
{
    // A conflict is about the second key, unless a test says otherwise.
    const struct kube_label_answer answer = {
        .outcome = outcome, .version = version, .role_key_is_owned = outcome == K8S_OWNED};

    return kube_label_done(label, &answer, at(ms));
}

static void seen(struct kube_label *label, int64_t ms, const char *version, const char *own,
                 const char *role)
{
    const struct kube_label_state state = {version, own, role};

    kube_label_seen(label, &state, at(ms));
}

// A leader whose label is confirmed in version 10.
static struct kube_label a_leader(void)
{
    struct kube_label label = a_label(false);

    kube_label_wish(&label, LABEL_LEADER, at(0));
    assert_sends(&label, 0, LABEL_LEADER, true);
    assert_false(done(&label, 5, K8S_OK, "10"));
    seen(&label, 10, "10", "leader", "leader");
    return label;
}

static void test_one_patch_per_change(void **state)
{
    struct kube_label label = a_leader();

    (void)state;
    kube_label_wish(&label, LABEL_LEADER, at(20));
    assert_quiet(&label, 20);
    kube_label_wish(&label, LABEL_UNKNOWN, at(30));
    assert_sends(&label, 30, LABEL_UNKNOWN, true);
    assert_false(done(&label, 40, K8S_OK, "11"));
    assert_quiet(&label, 41);
    assert_true(label.is_confirmed);
    assert_int_equal(label.confirmed, LABEL_UNKNOWN);
    assert_int_equal(kube_label_wake(&label).ns, instant_add(at(40), RESYNC).ns);
}

static void test_newest_wins(void **state)
{
    struct kube_label label = a_leader();

    (void)state;
    kube_label_wish(&label, LABEL_UNKNOWN, at(100));
    assert_sends(&label, 100, LABEL_UNKNOWN, true);
    kube_label_wish(&label, LABEL_FOLLOWER, at(110));
    assert_quiet(&label, 110);
    // The older one is answered: the newer goes at once.
    assert_false(kube_label_is_overdue(&label, at(200)));
    assert_false(done(&label, 200, K8S_OK, "11"));
    assert_sends(&label, 200, LABEL_FOLLOWER, true);
}

static void test_old_value_that_hangs_is_given_up(void **state)
{
    struct kube_label label = a_label(false);

    (void)state;
    kube_label_wish(&label, LABEL_LEADER, at(0));
    assert_sends(&label, 0, LABEL_LEADER, true);
    // The same wish is never overdue: its own time-out ends it.
    assert_false(kube_label_is_overdue(&label, at(4000)));
    kube_label_wish(&label, LABEL_UNKNOWN, at(4000));
    assert_true(kube_label_is_overdue(&label, at(4000)));
    assert_false(done(&label, 4000, K8S_UNKNOWN, NULL));
    assert_sends(&label, 4000, LABEL_UNKNOWN, true);
    assert_false(done(&label, 4010, K8S_OK, "12"));
    // What was given up may land after this: once more, later.
    assert_quiet(&label, 13999);
    assert_sends(&label, 14010, LABEL_UNKNOWN, true);
    assert_false(done(&label, 14020, K8S_OK, "12"));
    assert_int_equal(kube_label_wake(&label).ns, instant_add(at(14020), RESYNC).ns);
}

static void test_late_old_patch_is_repaired(void **state)
{
    struct kube_label label = a_leader();

    (void)state;
    kube_label_wish(&label, LABEL_FOLLOWER, at(100));
    assert_sends(&label, 100, LABEL_FOLLOWER, true);
    assert_false(done(&label, 110, K8S_OK, "11"));
    seen(&label, 120, "11", "follower", "follower");
    seen(&label, 8000, "12", "leader", "leader"); // the past has landed
    assert_sends(&label, 8000, LABEL_FOLLOWER, true);
    assert_false(done(&label, 8010, K8S_OK, "13"));
    // A second time at once only with a pause: no fight.
    seen(&label, 8020, "13", "follower", "follower");
    seen(&label, 8030, "14", "leader", "leader");
    assert_quiet(&label, 8040);
    assert_quiet(&label, 12999);
    assert_sends(&label, 13000, LABEL_FOLLOWER, true);
}

static void test_stale_watch_repairs_nothing(void **state)
{
    struct kube_label label = a_leader();

    (void)state;
    kube_label_wish(&label, LABEL_UNKNOWN, at(100));
    assert_sends(&label, 100, LABEL_UNKNOWN, true);
    assert_false(done(&label, 110, K8S_OK, "15"));
    seen(&label, 120, "13", "leader", "leader"); // from before our patch
    assert_quiet(&label, 121);
    seen(&label, 130, "15", "unknown", "unknown");
    assert_quiet(&label, 5000);
    // A list may jump over our version: after a while the watch is believed.
    kube_label_wish(&label, LABEL_FOLLOWER, at(6000));
    assert_sends(&label, 6000, LABEL_FOLLOWER, true);
    assert_false(done(&label, 6010, K8S_OK, "16"));
    seen(&label, 6020, "20", "leader", "leader");
    assert_quiet(&label, 6021);
    assert_int_equal(kube_label_wake(&label).ns, instant_add(at(6010), KUBE_AWAIT_NS).ns);
    assert_sends(&label, 9010, LABEL_FOLLOWER, true);
}

static void test_silent_watch_repairs_nothing(void **state)
{
    struct kube_label label = a_leader();

    (void)state;
    kube_label_wish(&label, LABEL_UNKNOWN, at(100));
    assert_sends(&label, 100, LABEL_UNKNOWN, true);
    assert_false(done(&label, 110, K8S_OK, "11"));
    // The watch still shows the leader of version 10, and says nothing more.
    assert_quiet(&label, 60000);
    // Nor does what was not judged yet when the next patch went out.
    kube_label_wish(&label, LABEL_LEADER, at(61000));
    assert_sends(&label, 61000, LABEL_LEADER, true);
    assert_false(done(&label, 61010, K8S_OK, "12"));
    seen(&label, 61020, "11", "unknown", "unknown");
    kube_label_wish(&label, LABEL_UNKNOWN, at(61030));
    assert_sends(&label, 61030, LABEL_UNKNOWN, true);
    assert_false(done(&label, 61040, K8S_OK, "13"));
    kube_label_wish(&label, LABEL_LEADER, at(61050));
    assert_sends(&label, 61050, LABEL_LEADER, true);
    assert_false(done(&label, 61060, K8S_OK, "14"));
    assert_quiet(&label, 80000);
}

static void test_conflict_yields_second_key(void **state)
{
    struct kube_label label = a_leader();

    (void)state;
    kube_label_wish(&label, LABEL_UNKNOWN, at(100));
    assert_sends(&label, 100, LABEL_UNKNOWN, true);
    assert_false(done(&label, 110, K8S_OWNED, NULL));
    assert_sends(&label, 110, LABEL_UNKNOWN, false); // our own at once
    assert_false(done(&label, 120, K8S_OK, "12"));
    assert_int_equal(label.role_key, KUBE_ROLE_KEY_YIELDED);
    seen(&label, 130, "12", "unknown", "leader");
    assert_true(kube_label_role_differs(&label));
    kube_label_wish(&label, LABEL_FOLLOWER, at(1000));
    assert_sends(&label, 1000, LABEL_FOLLOWER, false); // still theirs
    assert_false(done(&label, 1010, K8S_OK, "13"));
    // The next resync asks for it again.
    assert_sends(&label, 1010 + RESYNC / NS_PER_MS, LABEL_FOLLOWER, true);
}

// Somebody has written our key: it is taken back together with the second one, which our key
// alone would take off.
static void test_conflict_about_our_own_key(void **state)
{
    const struct kube_label_answer owned = {.outcome = K8S_OWNED};
    struct kube_label label = a_leader();
    struct kube_label_send send = {0};

    (void)state;
    kube_label_wish(&label, LABEL_UNKNOWN, at(100));
    assert_true(kube_label_next(&label, at(100), &send));
    assert_true(send.with_role_key && !send.force);
    assert_false(kube_label_done(&label, &owned, at(110)));
    assert_true(kube_label_next(&label, at(110), &send));
    assert_true(send.with_role_key && send.force);
    assert_false(done(&label, 120, K8S_OK, "12"));
    assert_int_equal(label.role_key, KUBE_ROLE_KEY_OURS);
    kube_label_wish(&label, LABEL_FOLLOWER, at(1000));
    assert_true(kube_label_next(&label, at(1000), &send));
    assert_false(send.force); // once
}

static void test_labeler_is_not_fought(void **state)
{
    struct kube_label label = a_leader();
    struct kube_label_send send = {0};
    int sent = 0;

    (void)state;
    // Ten minutes of a labeler that rewrites the second key every 2 s.
    for (int64_t ms = 2000; ms < 600000; ms += 2000) {
        seen(&label, ms, ms % 4000 ? "21" : "22", "leader", "follower");
        while (kube_label_next(&label, at(ms), &send)) {
            sent++;
            assert_false(done(&label, ms + 1, send.with_role_key ? K8S_OWNED : K8S_OK, "22"));
        }
    }
    assert_int_equal(label.role_key, KUBE_ROLE_KEY_YIELDED);
    // One resync has passed: both keys, then ours alone.
    assert_in_range(sent, 2, 4);
}

static void test_stripped_labels_come_back(void **state)
{
    struct kube_label label = a_leader();

    (void)state;
    seen(&label, 5000, "11", NULL, NULL);
    assert_sends(&label, 5000, LABEL_LEADER, true);
    // The second key alone: somebody wants it so, until the next resync.
    assert_false(done(&label, 5010, K8S_OK, "12"));
    seen(&label, 5020, "12", "leader", "leader");
    seen(&label, 5030, "13", "leader", NULL);
    assert_quiet(&label, 6000);
    assert_int_equal(label.role_key, KUBE_ROLE_KEY_YIELDED);
}

static void test_observe_never_writes_second_key(void **state)
{
    struct kube_label label = a_label(true);

    (void)state;
    kube_label_wish(&label, LABEL_LEADER, at(0));
    assert_sends(&label, 0, LABEL_LEADER, false);
    assert_false(done(&label, 5, K8S_OK, "10"));
    seen(&label, 10, "10", "leader", "follower");
    assert_true(kube_label_role_differs(&label));
    assert_sends(&label, 5 + RESYNC / NS_PER_MS, LABEL_LEADER, false);
    assert_int_equal(label.role_key, KUBE_ROLE_KEY_OBSERVED);
}

// Each outcome: how soon the wish goes out again at the earliest and the latest.
static void test_outcomes(void **state)
{
    static const struct {
        enum k8s_outcome outcome;
        int64_t first_ms, last_ms; // of the first retry
        int64_t settled_ms;        // of any later one, at most
        bool looks, doubts;
    } cases[] = {
        {K8S_NOT_SENT, 187, 250, 3000, false, false},
        {K8S_UNKNOWN, 187, 250, 3000, false, true},
        {K8S_BUSY, 187, 250, 3000, false, true},
        {K8S_GARBAGE, 187, 250, 3000, false, true},
        {K8S_GONE, 187, 250, 3000, false, true},
        {K8S_NOT_FOUND, 187, 250, 3000, true, false},
        {K8S_CONFLICT, 187, 250, 3000, true, false},
        {K8S_REFUSED, 187, 250, 3000, true, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kube_label label = a_label(false);
        struct kube_label_send send = {0};
        struct instant now = at(0);

        kube_label_wish(&label, LABEL_LEADER, now);
        for (int tries = 0; tries < 8; tries++) {
            const struct kube_label_answer answer = {.outcome = cases[i].outcome};
            int64_t wait_ns = 0;

            assert_true(kube_label_next(&label, now, &send));
            assert_int_equal(kube_label_done(&label, &answer, now), cases[i].looks);
            wait_ns = instant_since(kube_label_wake(&label), now);
            assert_in_range(wait_ns, cases[i].first_ms * NS_PER_MS,
                            (tries ? cases[i].settled_ms : cases[i].last_ms) * NS_PER_MS);
            assert_false(kube_label_next(&label, instant_add(now, wait_ns - 1), &send));
            now = instant_add(now, wait_ns);
        }
        assert_int_equal(label.in_doubt, cases[i].doubts);
        assert_false(label.is_confirmed);
        assert_int_equal(label.role_key, KUBE_ROLE_KEY_OURS);
        kube_label_hurry(&label, instant_add(now, -NS_PER_MS));
        assert_true(kube_label_next(&label, instant_add(now, -NS_PER_MS), &send));
    }
}

static void test_retry_after_is_honored(void **state)
{
    struct kube_label label = a_label(false);
    const struct kube_label_answer busy = {.outcome = K8S_BUSY,
                                           .retry_after_ns = 6 * NS_PER_SEC};

    (void)state;
    kube_label_wish(&label, LABEL_LEADER, at(0));
    assert_sends(&label, 0, LABEL_LEADER, true);
    assert_false(kube_label_done(&label, &busy, at(1)));
    kube_label_wish(&label, LABEL_UNKNOWN, at(1000));
    kube_label_hurry(&label, at(1000));
    assert_quiet(&label, 6000);
    assert_sends(&label, 7501, LABEL_UNKNOWN, true);
}

// A server that is back sooner than it said finds the label right within 10 s.
static void test_retry_after_is_bounded(void **state)
{
    struct kube_label label = a_label(false);
    const struct kube_label_answer busy = {.outcome = K8S_BUSY,
                                           .retry_after_ns = K8S_RETRY_AFTER_MAX_NS};

    (void)state;
    kube_label_wish(&label, LABEL_LEADER, at(0));
    assert_sends(&label, 0, LABEL_LEADER, true);
    assert_false(kube_label_done(&label, &busy, at(1)));
    kube_label_wish(&label, LABEL_UNKNOWN, at(1000));
    assert_quiet(&label, 7000);
    assert_sends(&label, 9500, LABEL_UNKNOWN, true);
}

static void test_denied(void **state)
{
    struct kube_label label = a_label(false);

    (void)state;
    kube_label_wish(&label, LABEL_LEADER, at(0));
    assert_sends(&label, 0, LABEL_LEADER, true);
    assert_false(done(&label, 1, K8S_DENIED, NULL));
    assert_sends(&label, 1, LABEL_LEADER, false); // perhaps only the second key is not allowed
    assert_false(done(&label, 2, K8S_DENIED, NULL));
    assert_true(label.is_denied);
    assert_quiet(&label, 5000);
    assert_sends(&label, 8002, LABEL_LEADER, true);
    assert_false(done(&label, 8003, K8S_DENIED, NULL));
    assert_sends(&label, 8003, LABEL_LEADER, false);
    assert_false(done(&label, 8004, K8S_OK, "9"));
    assert_false(label.is_denied);
    assert_int_equal(label.role_key, KUBE_ROLE_KEY_DENIED);
    // Was it a policy, or a server in trouble? Our key alone may have taken the second one off.
    assert_quiet(&label, 13003);
    assert_sends(&label, 13004, LABEL_LEADER, true);
    assert_false(done(&label, 13005, K8S_DENIED, NULL));
    assert_sends(&label, 13005, LABEL_LEADER, false);
    assert_false(done(&label, 13006, K8S_OK, "10"));
    assert_quiet(&label, 23005); // twice as long
    assert_sends(&label, 23006, LABEL_LEADER, true);
    assert_false(done(&label, 23007, K8S_OK, "11"));
    assert_int_equal(label.role_key, KUBE_ROLE_KEY_OURS);
    assert_quiet(&label, 60000);
}

static void test_twin_is_not_patched(void **state)
{
    struct kube_label label = a_leader();

    (void)state;
    kube_label_wish(&label, LABEL_UNKNOWN, at(100));
    assert_sends(&label, 100, LABEL_UNKNOWN, true);
    assert_true(done(&label, 120, K8S_CONFLICT, NULL)); // another uid
    kube_label_found(&label, false, at(130));
    assert_quiet(&label, 100000);
    kube_label_wish(&label, LABEL_FOLLOWER, at(100001));
    assert_quiet(&label, 100001);
    assert_int_equal(kube_label_wake(&label).ns, INSTANT_NEVER.ns);
    kube_label_found(&label, true, at(110000));
    assert_sends(&label, 110000, LABEL_FOLLOWER, true);
}

static void test_flapping_roles_are_bounded(void **state)
{
    struct kube_label label = a_label(false);
    struct kube_label_send send = {0};
    int sent = 0;

    (void)state;
    // A minute of a role that changes ten times a second, while nothing can be sent.
    for (int64_t ms = 0; ms < 60000; ms += 100) {
        kube_label_wish(&label, ms % 200 ? LABEL_LEADER : LABEL_UNKNOWN, at(ms));
        if (kube_label_next(&label, at(ms), &send)) {
            sent++;
            assert_false(done(&label, ms, K8S_NOT_SENT, NULL));
        }
    }
    assert_in_range(sent, 1, 60000 / 250 + 1);
}

// Random answers and delays: after the last fault the label is the wish, and no
// patch is ever sent beside another.
static uint32_t draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525U + 1013904223U;
    return (*seed >> 8) % below;
}

static void test_random_faults_converge(void **state)
{
    static const enum k8s_outcome bad[] = {K8S_NOT_SENT, K8S_UNKNOWN, K8S_BUSY,    K8S_OWNED,
                                           K8S_GARBAGE,  K8S_DENIED,  K8S_CONFLICT};

    (void)state;
    for (uint32_t run = 1; run <= 500; run++) {
        uint32_t seed = run;
        struct kube_label label = a_label(run % 3 == 0);
        enum role_label server = LABEL_UNKNOWN;
        enum role_label wish = LABEL_UNKNOWN;
        int64_t answer_ms = -1;
        struct kube_label_send send = {0};

        for (int64_t ms = 0; ms < 60000; ms += 50) {
            bool is_healthy = ms > 30000;

            if (!is_healthy && draw(&seed, 20) == 0) {
                wish = (enum role_label)draw(&seed, 3);
                kube_label_wish(&label, wish, at(ms));
            }
            if (label.is_sending &&
                (answer_ms <= ms || kube_label_is_overdue(&label, at(ms)))) {
                bool is_given_up = answer_ms > ms;
                enum k8s_outcome outcome = is_given_up ? K8S_UNKNOWN : K8S_OK;

                if (!is_healthy && !is_given_up && draw(&seed, 2))
                    outcome = bad[draw(&seed, sizeof(bad) / sizeof(bad[0]))];
                if (outcome == K8S_OK || (outcome == K8S_UNKNOWN && draw(&seed, 2)))
                    server = send.role;
                (void)done(&label, ms, outcome, NULL);
            }
            if (kube_label_next(&label, at(ms), &send)) {
                assert_int_equal(send.role, wish);
                answer_ms = ms + (int64_t)draw(&seed, is_healthy ? 20 : 2000);
            }
        }
        if (label.has_wish)
            assert_int_equal(server, wish);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_one_patch_per_change),
    cmocka_unit_test(test_newest_wins),
    cmocka_unit_test(test_old_value_that_hangs_is_given_up),
    cmocka_unit_test(test_late_old_patch_is_repaired),
    cmocka_unit_test(test_stale_watch_repairs_nothing),
    cmocka_unit_test(test_silent_watch_repairs_nothing),
    cmocka_unit_test(test_conflict_yields_second_key),
    cmocka_unit_test(test_conflict_about_our_own_key),
    cmocka_unit_test(test_labeler_is_not_fought),
    cmocka_unit_test(test_stripped_labels_come_back),
    cmocka_unit_test(test_observe_never_writes_second_key),
    cmocka_unit_test(test_outcomes),
    cmocka_unit_test(test_retry_after_is_honored),
    cmocka_unit_test(test_retry_after_is_bounded),
    cmocka_unit_test(test_denied),
    cmocka_unit_test(test_twin_is_not_patched),
    cmocka_unit_test(test_flapping_roles_are_bounded),
    cmocka_unit_test(test_random_faults_converge),
};

UNIT_MAIN(tests)
