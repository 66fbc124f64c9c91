// SPDX-License-Identifier: Apache-2.0
// The second method: when our own pidfd can be used beside metafence-run. The process is real,
// the /proc that shows it is ours.
#include "tests/unit/agent/procfs.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/methods.h"

#define TAG "metafence:aaaaaaaa:0000000000000001"
#define T0  (1000 * NS_PER_SEC)

struct scene {
    struct procfs procfs;
    struct config config;
    struct loop *loop;
    struct methods methods;
    struct facts facts;
    pid_t meta;
};

static void on_change(void *arg)
{
    (void)arg;
}

static const struct fencelink_ops ops;

static void put_meta(struct scene *scene, const char *environment)
{
    const struct procfs_process process = {.pid = scene->meta,
                                           .parent = 1,
                                           .start_ticks = scene->facts.fence.status.start_ticks,
                                           .uid = getuid(),
                                           .mount_ns = PROCFS_META_NS,
                                           .arguments = "/risingwave meta-node",
                                           .environment = environment};

    procfs_put(&scene->procfs, &process);
}

// metafence-run says that it has started meta at T0.
static void begin(struct scene *scene)
{
    const struct methods_config config = {&scene->config, &ops, on_change, NULL};
    struct fence_status *status = &scene->facts.fence.status;
    struct err err = {0};

    *scene = (struct scene){0};
    procfs_make(&scene->procfs);
    config_defaults(&scene->config);
    (void)snprintf(scene->config.fence_socket, sizeof(scene->config.fence_socket),
                   "%s/fence.sock", scene->procfs.root);
    assert_int_equal(loop_new(&scene->loop, &err), 0);
    methods_open(&scene->methods, scene->loop, &config);
    pidfd_view_init(&scene->methods.view, scene->procfs.root);
    scene->facts.fence.known = true;
    *status = (struct fence_status){.incarnation = 1, .flags = SHIM_ALIVE, .started_ns = T0};
    memcpy(status->tag, TAG, sizeof(TAG));
    scene->meta = status->pid = procfs_spawn(&status->start_ticks);
}

static void end(struct scene *scene)
{
    methods_close(&scene->methods);
    loop_free(scene->loop);
    (void)kill(scene->meta, SIGKILL);
    assert_int_equal(waitpid(scene->meta, NULL, 0), scene->meta);
    procfs_remove(&scene->procfs);
}

static bool is_usable_at(struct scene *scene, int64_t after_ns)
{
    scene->facts.now.ns = T0 + after_ns;
    methods_look(&scene->methods, &scene->facts);
    return scene->facts.methods.pidfd;
}

// metafence-run speaks of it before the kernel shows its environment.
static void test_what_is_being_executed_is_looked_at_again(void **state)
{
    struct scene scene;

    (void)state;
    begin(&scene);
    assert_false(is_usable_at(&scene, 0));
    put_meta(&scene, NULL);
    assert_false(is_usable_at(&scene, NS_PER_MS));
    assert_string_equal(scene.methods.why, "");
    put_meta(&scene, "A=1 PGAPPNAME=" TAG);
    assert_true(is_usable_at(&scene, 2 * NS_PER_MS));
    end(&scene);
}

// Later that is its nature, and no reason to look in each turn.
static void test_what_can_not_be_seen_is_let_be(void **state)
{
    struct scene scene;

    (void)state;
    begin(&scene);
    put_meta(&scene, "A=1 PGAPPNAME=metafence:bbbbbbbb:0000000000000001");
    assert_false(is_usable_at(&scene, 2 * NS_PER_SEC));
    assert_non_null(strstr(scene.methods.why, "runAsUser"));
    put_meta(&scene, "A=1 PGAPPNAME=" TAG);
    assert_false(is_usable_at(&scene, 3 * NS_PER_SEC));
    scene.facts.fence.status.incarnation = 2;
    assert_true(is_usable_at(&scene, 4 * NS_PER_SEC));
    end(&scene);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_what_is_being_executed_is_looked_at_again),
    cmocka_unit_test(test_what_can_not_be_seen_is_let_be),
};

UNIT_MAIN(tests)
