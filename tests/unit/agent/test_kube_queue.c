// SPDX-License-Identifier: Apache-2.0
// Events: bounded in memory and in rate, the newest are kept.
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "agent/kube/queue.h"

static struct instant at(int64_t ms)
{
    return (struct instant){1000 * NS_PER_SEC + ms * NS_PER_MS};
}

static void put(struct kube_queue *queue, int64_t ms, const char *note)
{
    const struct kube_event event = {.action = "ChangedRole", .reason = "X", .note = note};

    kube_queue_put(queue, &event, at(ms), ms);
}

static void assert_next(struct kube_queue *queue, int64_t ms, const char *note)
{
    const struct kube_queued *queued = kube_queue_next(queue, at(ms));

    assert_non_null(queued);
    assert_string_equal(queued->note, note);
    assert_null(kube_queue_next(queue, at(ms))); // one at a time
}

static void test_in_order(void **state)
{
    struct kube_queue queue = {0};

    (void)state;
    assert_int_equal(kube_queue_wake(&queue).ns, INSTANT_NEVER.ns);
    put(&queue, 0, "one");
    put(&queue, 1, "two");
    assert_next(&queue, 2, "[fence] one");
    kube_queue_done(&queue, K8S_OK, 0, at(3));
    assert_next(&queue, 3, "[fence] two");
    kube_queue_done(&queue, K8S_CONFLICT, 0, at(4)); // a lost answer: it is there
    assert_null(kube_queue_next(&queue, at(5)));
    assert_int_equal(queue.sent, 2);
    assert_int_equal(queue.dropped, 0);
}

static void test_repeats_are_counted(void **state)
{
    struct kube_queue queue = {0};

    (void)state;
    for (int i = 0; i < 50; i++)
        put(&queue, i * 1000, "again");
    assert_next(&queue, 50000, "[fence] again");
    kube_queue_done(&queue, K8S_OK, 0, at(50001));
    assert_null(kube_queue_next(&queue, at(50002)));
    assert_int_equal(queue.repeated, 49);
    put(&queue, 60000, "again"); // after a minute, with the number
    assert_next(&queue, 60000, "[fence] again (and 49 times before)");
}

static void test_overflow_keeps_the_newest(void **state)
{
    struct kube_queue queue = {0};
    char note[32];

    (void)state;
    put(&queue, 0, "first");
    assert_next(&queue, 0, "[fence] first"); // under way: stays whole
    for (int i = 0; i < KUBE_QUEUE_SIZE + 3; i++) {
        (void)snprintf(note, sizeof(note), "%d", i);
        put(&queue, 1, note);
    }
    assert_int_equal(queue.dropped, 3);
    kube_queue_done(&queue, K8S_OK, 0, at(2));
    assert_next(&queue, 2, "[fence] 3");
}

static void test_bursts_are_cut(void **state)
{
    struct kube_queue queue = {0};
    char note[32];
    uint64_t sent = 0;

    (void)state;
    // Ten minutes, ten different events a second.
    for (int i = 0; i < 6000; i++) {
        (void)snprintf(note, sizeof(note), "%d", i);
        put(&queue, i * 100, note);
        while (kube_queue_next(&queue, at(i * 100))) {
            kube_queue_done(&queue, K8S_OK, 0, at(i * 100));
            sent++;
        }
    }
    assert_in_range(sent, KUBE_EVENT_BURST, KUBE_EVENT_BURST + 600 / 5 + 1);
    assert_int_equal(queue.sent + queue.dropped, 6000);
}

static void test_outcomes(void **state)
{
    static const struct {
        enum k8s_outcome outcome;
        unsigned tries; // until it is dropped; 0: never
    } cases[] = {{K8S_UNKNOWN, 4}, {K8S_BUSY, 4},      {K8S_GARBAGE, 4}, {K8S_GONE, 4},
                 {K8S_DENIED, 1},  {K8S_NOT_FOUND, 1}, {K8S_REFUSED, 1}, {K8S_NOT_SENT, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kube_queue queue = {0};
        struct instant now = at(0);
        unsigned tries = 0;

        put(&queue, 0, "x");
        for (; tries < 100 && kube_queue_next(&queue, now); tries++) {
            kube_queue_done(&queue, cases[i].outcome, 0, now);
            // Never hot.
            assert_true(instant_since(queue.not_before, now) >= NS_PER_SEC);
            now = queue.not_before;
        }
        assert_int_equal(tries, cases[i].tries ? cases[i].tries : 100);
        assert_int_equal(queue.dropped, cases[i].tries ? 1 : 0);
    }
}

static void test_outage_keeps_the_newest(void **state)
{
    struct kube_queue queue = {0};
    struct instant now = at(0);
    char note[32];

    (void)state;
    // Ten minutes without the API, an event each 20 s.
    for (int i = 0; i < 30; i++) {
        (void)snprintf(note, sizeof(note), "%d", i);
        kube_queue_put(&queue, &(struct kube_event){.action = "A", .reason = "R", .note = note},
                       at(i * 20000), i);
        for (now = at(i * 20000); instant_before(now, at(i * 20000 + 20000));
             now = instant_add(now, NS_PER_SEC))
            if (kube_queue_next(&queue, now))
                kube_queue_done(&queue, K8S_NOT_SENT, 0, now);
    }
    kube_queue_hurry(&queue, now);
    for (int i = 0; kube_queue_next(&queue, now); i++) {
        (void)snprintf(note, sizeof(note), "[fence] %d", 30 - KUBE_QUEUE_SIZE + i);
        if (i == 0 && strcmp(queue.current.note, note) != 0)
            i--; // one more was under way
        else
            assert_string_equal(queue.current.note, note);
        kube_queue_done(&queue, K8S_OK, 0, now);
    }
    assert_in_range(queue.sent, KUBE_QUEUE_SIZE, KUBE_QUEUE_SIZE + 1);
}

static void test_long_notes(void **state)
{
    struct kube_queue queue = {0};
    char note[2 * KUBE_NOTE_SIZE];

    (void)state;
    memset(note, 'x', sizeof(note) - 1);
    note[sizeof(note) - 1] = '\0';
    put(&queue, 0, note);
    put(&queue, 1, note);
    put(&queue, 61000, note);
    assert_non_null(kube_queue_next(&queue, at(61000)));
    kube_queue_done(&queue, K8S_OK, 0, at(61000));
    assert_non_null(kube_queue_next(&queue, at(61000)));
    assert_non_null(strstr(queue.current.note, "(and 1 times before)"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_in_order),
    cmocka_unit_test(test_repeats_are_counted),
    cmocka_unit_test(test_overflow_keeps_the_newest),
    cmocka_unit_test(test_bursts_are_cut),
    cmocka_unit_test(test_outcomes),
    cmocka_unit_test(test_outage_keeps_the_newest),
    cmocka_unit_test(test_long_notes),
};

UNIT_MAIN(tests)
