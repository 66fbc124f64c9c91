// SPDX-License-Identifier: Apache-2.0
// The fence that watches /proc: what it tells, when it kills, and what outlives its agent. The
// processes are real, the /proc that shows them is ours.
#include "tests/unit/agent/procfs.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/pidfence.h"
#include "base/listen.h"

#define MS   NS_PER_MS
#define META PROCFS_META_NS
#define TAG  "metafence:aaaaaaaa:0000000000000001"

struct scene {
    struct procfs procfs;
    struct config config;
    struct loop *loop;
    struct pidfence *fence;
    struct fence_status status; // the last one told
    int statuses;
    int changes;
    pid_t meta;
    uint64_t start_ticks;
};

static void on_status(const struct fence_status *status, void *arg)
{
    struct scene *scene = arg;

    scene->status = *status;
    scene->statuses++;
}

static void on_change(void *arg)
{
    ((struct scene *)arg)->changes++;
}

static const struct fencelink_ops ops = {.on_status = on_status};

static void start_fence(struct scene *scene)
{
    const struct pidfence_config config = {.config = &scene->config,
                                           .proc = scene->procfs.root,
                                           .ops = &ops,
                                           .on_change = on_change,
                                           .arg = scene};
    struct err err = {0};

    assert_int_equal(loop_new(&scene->loop, &err), 0);
    scene->fence = pidfence_new(scene->loop, &config);
}

static void stop_fence(struct scene *scene)
{
    pidfence_free(scene->fence);
    loop_free(scene->loop);
    scene->status = (struct fence_status){0};
}

static void begin(struct scene *scene)
{
    *scene = (struct scene){0};
    procfs_make(&scene->procfs);
    config_defaults(&scene->config);
    scene->config.core.ttl_ns = 5000 * MS;
    scene->config.core.margin_ns = 300 * MS;
    scene->config.core.kill_budget_ns = 300 * MS;
    // Nobody listens there.
    scene->config.meta_service_port = 1;
    scene->config.meta_metrics_port = 2;
    scene->config.meta_dashboard_port = 3;
    (void)snprintf(scene->config.fence_command, sizeof(scene->config.fence_command),
                   "meta-node");
    (void)snprintf(scene->config.fence_socket, sizeof(scene->config.fence_socket),
                   "%s/fence.sock", scene->procfs.root);
    start_fence(scene);
}

static void put_meta(struct scene *scene, const char *environment)
{
    procfs_put(&scene->procfs,
               &(struct procfs_process){scene->meta, 1, scene->start_ticks, getuid(), META, 0,
                                        "/risingwave meta-node --x", environment});
}

static void start_meta(struct scene *scene)
{
    scene->meta = procfs_spawn(&scene->start_ticks);
    put_meta(scene, "A=1 PGAPPNAME=" TAG);
}

static void reap_meta(struct scene *scene)
{
    assert_int_equal(waitpid(scene->meta, NULL, 0), scene->meta);
    procfs_drop(&scene->procfs, scene->meta);
    scene->meta = 0;
}

static void end(struct scene *scene)
{
    stop_fence(scene);
    if (scene->meta) {
        (void)kill(scene->meta, SIGKILL);
        reap_meta(scene);
    }
    procfs_remove(&scene->procfs);
}

#define TURN_UNTIL(scene, condition)                                                           \
    while (!(condition))                                                                       \
    assert_true(loop_turn((scene)->loop))

static bool is_alive(const struct scene *scene)
{
    return scene->status.flags & SHIM_ALIVE;
}

static struct fence_order an_order(const struct scene *scene, enum fence_role role)
{
    return (struct fence_order){.incarnation = scene->status.incarnation,
                                .role = role,
                                .flags = FENCE_ORDER_ARMED,
                                .row = FENCE_ROW_OTHER,
                                .database = FENCE_DATABASE_UP,
                                .read_ns = clock_now().ns};
}

static void order_kill(struct scene *scene, enum fence_reason reason, uint32_t flags)
{
    struct fence_order order = an_order(scene, FENCE_ROLE_KILL);

    order.reason = reason;
    order.flags |= flags;
    assert_true(pidfence_send(scene->fence, &order));
}

static void permit(struct scene *scene, int64_t for_ns, uint32_t flags)
{
    struct fence_order order = an_order(scene, FENCE_ROLE_LEADER);

    order.row = FENCE_ROW_OURS;
    order.flags |= flags;
    order.deadline_ns = clock_now().ns + for_ns;
    assert_true(pidfence_send(scene->fence, &order));
}

static bool meta_lives(const struct scene *scene)
{
    siginfo_t info = {0};

    assert_int_equal(waitid(P_PID, (id_t)scene->meta, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info.si_pid == 0;
}

static void test_finds_and_kills(void **state)
{
    struct scene scene;

    (void)state;
    begin(&scene);
    TURN_UNTIL(&scene, scene.statuses > 0);
    assert_int_equal(scene.status.incarnation, 0);
    assert_false(is_alive(&scene));
    assert_int_equal(scene.status.hold, SHIM_HOLD_NONE);
    start_meta(&scene);
    TURN_UNTIL(&scene, is_alive(&scene));
    assert_int_equal(scene.status.incarnation, 1);
    assert_int_equal(scene.status.pid, scene.meta);
    assert_true(scene.status.start_ticks == scene.start_ticks);
    assert_string_equal(scene.status.tag, TAG);
    assert_true(scene.status.started_ns <= clock_now().ns);
    assert_true(scene.status.started_ns > clock_now().ns - 10 * NS_PER_SEC);
    assert_string_equal(pidfence_unusable(scene.fence), "");

    order_kill(&scene, FENCE_REASON_SUPERSEDED, FENCE_ORDER_ENGAGED);
    TURN_UNTIL(&scene, !is_alive(&scene));
    assert_false(meta_lives(&scene));
    assert_int_equal(scene.status.last_death.incarnation, 1);
    assert_int_equal(scene.status.last_death.reason, FENCE_REASON_SUPERSEDED);
    assert_int_equal(scene.status.last_death.wait_status, SIGKILL);
    assert_int_equal(scene.status.last_death.engaged, 1);
    assert_int_equal(scene.status.fences, 1);
    assert_int_equal(scene.status.hold, SHIM_HOLD_NONE); // which nothing could enforce
    reap_meta(&scene);
    start_meta(&scene);
    TURN_UNTIL(&scene, is_alive(&scene));
    assert_int_equal(scene.status.incarnation, 2);
    assert_int_equal(scene.status.restarts, 1);
    assert_false(scene.status.flags & (SHIM_ENGAGED | SHIM_SUPERSEDED));
    end(&scene);
}

// Nobody orders anything any more: the last permit's end is enough.
static void test_deadline_kills(void **state)
{
    struct scene scene;

    (void)state;
    begin(&scene);
    start_meta(&scene);
    TURN_UNTIL(&scene, is_alive(&scene));
    permit(&scene, 300 * MS, FENCE_ORDER_ENGAGED);
    assert_true(meta_lives(&scene));
    TURN_UNTIL(&scene, !is_alive(&scene));
    assert_int_equal(scene.status.last_death.reason, FENCE_REASON_LEASE_EXPIRED);
    assert_true(scene.status.last_death.dead_ns >= scene.status.last_death.deadline_ns);
    end(&scene);
}

static void test_ends_by_itself(void **state)
{
    struct scene scene;

    (void)state;
    begin(&scene);
    start_meta(&scene);
    put_meta(&scene, NULL);
    TURN_UNTIL(&scene, is_alive(&scene));
    assert_string_equal(scene.status.tag, "");
    assert_int_equal(kill(scene.meta, SIGTERM), 0);
    TURN_UNTIL(&scene, !is_alive(&scene));
    assert_int_equal(scene.status.last_death.reason, FENCE_REASON_NONE);
    assert_int_equal(scene.status.last_death.wait_status, PIDFENCE_WAIT_UNKNOWN);
    assert_int_equal(scene.status.state, SHIM_HOLDING);
    end(&scene);
}

// A hold that an order asked for kills what appears under it, whoever starts it.
static void test_holds_kill_again(void **state)
{
    static const struct {
        enum fence_reason reason;
        uint32_t flag;
        enum shim_hold hold;
    } cases[] = {
        {FENCE_REASON_MANUAL, FENCE_ORDER_MANUAL_HOLD, SHIM_HOLD_MANUAL},
        {FENCE_REASON_TWIN_IDENTITY, FENCE_ORDER_TWIN_HOLD, SHIM_HOLD_TWIN},
        {FENCE_REASON_PHANTOM_LEADER, FENCE_ORDER_PHANTOM_HOLD, SHIM_HOLD_PHANTOM},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scene;

        begin(&scene);
        start_meta(&scene);
        TURN_UNTIL(&scene, is_alive(&scene));
        order_kill(&scene, cases[i].reason, cases[i].flag);
        TURN_UNTIL(&scene, scene.status.last_death.incarnation == 1);
        assert_int_equal(scene.status.hold, cases[i].hold);
        reap_meta(&scene);
        start_meta(&scene);
        TURN_UNTIL(&scene, scene.status.last_death.incarnation == 2);
        assert_int_equal(scene.status.last_death.reason, cases[i].reason);
        assert_false(meta_lives(&scene));
        reap_meta(&scene);

        // Taken back: the next one lives.
        struct fence_order order = an_order(&scene, FENCE_ROLE_KEEP);
        assert_true(pidfence_send(scene.fence, &order));
        start_meta(&scene);
        TURN_UNTIL(&scene, scene.status.incarnation == 3);
        assert_true(is_alive(&scene));
        end(&scene);
    }
}

static void test_latches_outlive_the_agent(void **state)
{
    struct scene scene;
    int64_t started_ns = 0;
    int64_t deadline_ns = 0;

    (void)state;
    begin(&scene);
    start_meta(&scene);
    TURN_UNTIL(&scene, is_alive(&scene));
    permit(&scene, 60000 * MS, FENCE_ORDER_ENGAGED);
    TURN_UNTIL(&scene, scene.status.flags & SHIM_ENGAGED);
    started_ns = scene.status.started_ns;
    deadline_ns = scene.status.deadline_ns;
    assert_true(deadline_ns != 0);
    stop_fence(&scene);

    // The very same life, and nobody judges it before the first order.
    start_fence(&scene);
    TURN_UNTIL(&scene, is_alive(&scene));
    assert_int_equal(scene.status.incarnation, 1);
    assert_int_equal(scene.status.flags & (SHIM_ENGAGED | SHIM_ARMED),
                     SHIM_ENGAGED | SHIM_ARMED);
    assert_true(scene.status.started_ns == started_ns);
    assert_true(scene.status.deadline_ns == deadline_ns);
    assert_string_equal(scene.status.tag, TAG);
    stop_fence(&scene);

    // It died while no agent was there.
    (void)kill(scene.meta, SIGKILL);
    reap_meta(&scene);
    start_fence(&scene);
    TURN_UNTIL(&scene, scene.status.last_death.incarnation == 1);
    assert_false(is_alive(&scene));
    assert_int_equal(scene.status.last_death.engaged, 1);
    stop_fence(&scene);

    // Another one came instead: nothing of the old one clings to it.
    start_meta(&scene);
    start_fence(&scene);
    TURN_UNTIL(&scene, is_alive(&scene));
    assert_int_equal(scene.status.incarnation, 2);
    assert_false(scene.status.flags & (SHIM_ENGAGED | SHIM_SUPERSEDED));
    end(&scene);
}

// Superseded once is superseded for life: also for an agent that knows nothing of it yet.
static void test_superseded_outlives_the_agent(void **state)
{
    struct scene scene;
    struct fence_order order;

    (void)state;
    begin(&scene);
    start_meta(&scene);
    TURN_UNTIL(&scene, is_alive(&scene));
    order = an_order(&scene, FENCE_ROLE_KEEP);
    order.flags |= FENCE_ORDER_ENGAGED | FENCE_ORDER_SUPERSEDED;
    order.pause_end_ns = clock_now().ns + 600000 * MS; // else it would not live to see it
    assert_true(pidfence_send(scene.fence, &order));
    assert_true(meta_lives(&scene));
    stop_fence(&scene);
    start_fence(&scene);
    TURN_UNTIL(&scene, is_alive(&scene));
    assert_true(scene.status.flags & SHIM_SUPERSEDED);
    assert_true(scene.status.pause_end_ns == order.pause_end_ns);
    order = an_order(&scene, FENCE_ROLE_KEEP); // the pause is over
    assert_true(pidfence_send(scene.fence, &order));
    TURN_UNTIL(&scene, !is_alive(&scene));
    assert_int_equal(scene.status.last_death.reason, FENCE_REASON_SUPERSEDED);
    end(&scene);
}

static void test_manual_outlives_the_agent(void **state)
{
    struct scene scene;

    (void)state;
    begin(&scene);
    start_meta(&scene);
    TURN_UNTIL(&scene, is_alive(&scene));
    order_kill(&scene, FENCE_REASON_MANUAL, FENCE_ORDER_MANUAL_HOLD);
    TURN_UNTIL(&scene, !is_alive(&scene));
    reap_meta(&scene);
    stop_fence(&scene);
    start_fence(&scene);
    TURN_UNTIL(&scene, scene.status.hold == SHIM_HOLD_MANUAL);
    start_meta(&scene);
    TURN_UNTIL(&scene, scene.status.last_death.incarnation == 2);
    assert_true(scene.status.flags & SHIM_MANUAL);
    assert_int_equal(scene.status.last_death.reason, FENCE_REASON_MANUAL);
    end(&scene);
}

// The number is the old one's, the process is not.
static void test_reused_pid_is_another_life(void **state)
{
    struct scene scene;

    (void)state;
    begin(&scene);
    start_meta(&scene);
    TURN_UNTIL(&scene, is_alive(&scene));
    order_kill(&scene, FENCE_REASON_NONE, 0); // no valid kill: only a turn
    permit(&scene, 60000 * MS, FENCE_ORDER_ENGAGED);
    TURN_UNTIL(&scene, scene.status.flags & SHIM_ENGAGED);
    stop_fence(&scene);
    // In our /proc it was born in the year after.
    scene.start_ticks += UINT64_C(100) * 3600 * 24 * 365;
    put_meta(&scene, NULL);
    start_fence(&scene);
    TURN_UNTIL(&scene, scene.status.last_death.incarnation == 1);
    assert_false(scene.status.flags & SHIM_ENGAGED);
    assert_true(meta_lives(&scene));
    end(&scene);
}

static void test_two_containers_are_not_usable(void **state)
{
    struct scene scene;
    uint64_t start_ticks = 0;
    pid_t other = procfs_spawn(&start_ticks);

    (void)state;
    begin(&scene);
    start_meta(&scene);
    procfs_put(&scene.procfs, &(struct procfs_process){other, 1, start_ticks, getuid(), 8, 0,
                                                       "rw meta-node --help", NULL});
    TURN_UNTIL(&scene, scene.changes == 1);
    assert_non_null(strstr(pidfence_unusable(scene.fence), "not usable: processes "));
    assert_non_null(strstr(pidfence_unusable(scene.fence), "meta-node"));
    assert_false(is_alive(&scene));
    // That meta is down is not what it says.
    assert_true(pidfence_is_blind(scene.fence));
    assert_int_equal(scene.statuses, 0);
    procfs_drop(&scene.procfs, other);
    TURN_UNTIL(&scene, is_alive(&scene));
    assert_string_equal(pidfence_unusable(scene.fence), "");
    assert_false(pidfence_is_blind(scene.fence));
    assert_int_equal(scene.status.pid, scene.meta);
    (void)kill(other, SIGKILL);
    (void)waitpid(other, NULL, 0);
    end(&scene);
}

// Who may kill whom is seen as it changes: an entrypoint drops root after it was found.
static void test_users_change(void **state)
{
    struct scene scene;

    (void)state;
    if (getuid() != 0)
        skip();
    begin(&scene);
    start_meta(&scene);
    TURN_UNTIL(&scene, is_alive(&scene));
    assert_string_equal(pidfence_unusable(scene.fence), "");
    assert_int_equal(chmod(scene.procfs.root, 0755), 0);
    assert_int_equal(setresuid(65534, 65534, 0), 0);
    TURN_UNTIL(&scene, pidfence_unusable(scene.fence)[0]);
    assert_non_null(strstr(pidfence_unusable(scene.fence), "runs as uid 0 and we"));
    assert_false(pidfence_is_blind(scene.fence));
    assert_int_equal(setresuid(0, 0, 0), 0);
    TURN_UNTIL(&scene, !pidfence_unusable(scene.fence)[0]);
    assert_true(meta_lives(&scene));
    end(&scene);
}

// A pod without a shared PID namespace, or another name for meta's command.
static void test_served_but_unseen_is_not_usable(void **state)
{
    struct scene scene;
    uint16_t port = 0;
    struct err err = {0};
    int fd = -1;
    int statuses = 0;

    (void)state;
    assert_int_equal(listen_tcp("127.0.0.1", 0, &fd, &port, &err), 0);
    begin(&scene);
    stop_fence(&scene);
    scene.config.meta_service_port = port;
    start_fence(&scene);
    TURN_UNTIL(&scene, pidfence_is_blind(scene.fence));
    assert_non_null(strstr(pidfence_unusable(scene.fence), "shareProcessNamespace"));
    statuses = scene.statuses;
    for (int i = 0; i < 3; i++)
        assert_true(loop_turn(scene.loop));
    assert_int_equal(scene.statuses, statuses);
    assert_int_equal(close(fd), 0);
    TURN_UNTIL(&scene, scene.statuses > statuses);
    assert_string_equal(pidfence_unusable(scene.fence), "");
    assert_false(is_alive(&scene));
    end(&scene);
}

// Without a place for its state it fences all the same.
static void test_no_state_file(void **state)
{
    struct scene scene;

    (void)state;
    begin(&scene);
    stop_fence(&scene);
    (void)snprintf(scene.config.fence_socket, sizeof(scene.config.fence_socket),
                   "%s/nowhere/fence.sock", scene.procfs.root);
    start_fence(&scene);
    start_meta(&scene);
    TURN_UNTIL(&scene, is_alive(&scene));
    order_kill(&scene, FENCE_REASON_SUPERSEDED, 0);
    TURN_UNTIL(&scene, !is_alive(&scene));
    end(&scene);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_finds_and_kills),
    cmocka_unit_test(test_deadline_kills),
    cmocka_unit_test(test_ends_by_itself),
    cmocka_unit_test(test_holds_kill_again),
    cmocka_unit_test(test_latches_outlive_the_agent),
    cmocka_unit_test(test_superseded_outlives_the_agent),
    cmocka_unit_test(test_manual_outlives_the_agent),
    cmocka_unit_test(test_reused_pid_is_another_life),
    cmocka_unit_test(test_two_containers_are_not_usable),
    cmocka_unit_test(test_users_change),
    cmocka_unit_test(test_served_but_unseen_is_not_usable),
    cmocka_unit_test(test_no_state_file),
};

UNIT_MAIN(tests)
