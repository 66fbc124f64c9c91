// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/fencelink.h"
#include "fence/state.h"

struct scene {
    char dir[64];
    char path[96];
    struct loop *loop;
    struct fencelink *link;
    int listener;
    int conn;
    int ups, downs, statuses, garbage;
    uint64_t incarnation; // of the last status
};

static void on_status(const struct fence_status *status, void *arg)
{
    struct scene *scene = arg;

    scene->statuses++;
    scene->incarnation = status->incarnation;
}

static void on_down(const struct err *err, void *arg)
{
    struct scene *scene = arg;

    scene->downs++;
    assert_non_null(strstr(err->msg, scene->path));
}

static void on_up(void *arg)
{
    ((struct scene *)arg)->ups++;
}

static void on_garbage(const struct err *err, void *arg)
{
    assert_int_equal(err->kind, ERR_INVALID);
    ((struct scene *)arg)->garbage++;
}

static const struct fencelink_ops ops = {on_status, on_down, on_up, on_garbage};

static void start_server(struct scene *scene)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    (void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", scene->path);
    scene->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(scene->listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(scene->listener, 4), 0);
}

static void stop_server(struct scene *scene)
{
    if (scene->conn >= 0)
        close(scene->conn);
    if (scene->listener >= 0)
        close(scene->listener);
    scene->conn = scene->listener = -1;
    (void)unlink(scene->path);
}

static void turn_until(struct scene *scene, const int *counter, int at_least)
{
    while (*counter < at_least)
        assert_true(loop_turn(scene->loop));
}

static struct fence_status a_status(uint64_t incarnation)
{
    struct fence_status status = {.incarnation = incarnation, .state = SHIM_RUNNING};

    (void)snprintf(status.boot_id, sizeof(status.boot_id), "x");
    fence_status_seal(&status);
    return status;
}

static void accept_link(struct scene *scene)
{
    while (!fencelink_is_up(scene->link))
        assert_true(loop_turn(scene->loop));
    scene->conn = accept4(scene->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(scene->conn >= 0);
}

// As metafence-run does it: its status comes first.
static void connect_link(struct scene *scene, int ups)
{
    struct fence_status status = a_status(1);

    accept_link(scene);
    assert_int_equal(send(scene->conn, &status, sizeof(status), 0), sizeof(status));
    turn_until(scene, &scene->ups, ups);
    assert_int_equal(scene->statuses, ups);
}

static int set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    struct err err = {0};

    scene->listener = scene->conn = -1;
    (void)snprintf(scene->dir, sizeof(scene->dir), "/tmp/metafence-test-link-XXXXXX");
    assert_non_null(mkdtemp(scene->dir));
    (void)snprintf(scene->path, sizeof(scene->path), "%s/fence.sock", scene->dir);
    assert_int_equal(loop_new(&scene->loop, &err), 0);
    scene->link = fencelink_new(scene->loop, scene->path, &ops, scene);
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    fencelink_free(scene->link);
    stop_server(scene);
    loop_free(scene->loop);
    assert_int_equal(rmdir(scene->dir), 0);
    free(scene);
    return 0;
}

static void test_connects_again(void **state)
{
    struct scene *scene = *state;
    struct fence_order order = {.incarnation = 1};

    turn_until(scene, &scene->downs, 1);
    assert_false(fencelink_send(scene->link, &order)); // nobody there
    for (int i = 1; i <= 3; i++) {
        start_server(scene);
        connect_link(scene, i);
        assert_int_equal(scene->downs, i); // told once, whatever number of tries
        stop_server(scene);
        turn_until(scene, &scene->downs, i + 1);
        assert_false(fencelink_is_up(scene->link));
    }
}

// Another user is configured there: it accepts and hangs up, for hours.
static void test_hung_up_on(void **state)
{
    struct scene *scene = *state;

    start_server(scene);
    for (int i = 0; i < 5; i++) {
        accept_link(scene);
        close(scene->conn);
        scene->conn = -1;
        while (fencelink_is_up(scene->link))
            assert_true(loop_turn(scene->loop));
    }
    assert_int_equal(scene->ups, 0);
    assert_int_equal(scene->downs, 1);
    connect_link(scene, 1);
    stop_server(scene);
    turn_until(scene, &scene->downs, 2);
}

static void test_orders(void **state)
{
    struct scene *scene = *state;
    struct fence_order order = {.incarnation = 7, .role = FENCE_ROLE_FOLLOWER};
    struct fence_order got;
    struct err err = {0};
    char packet[512];

    start_server(scene);
    connect_link(scene, 1);
    for (uint64_t seq = 1; seq <= 3; seq++) {
        assert_true(fencelink_send(scene->link, &order));
        assert_int_equal(recv(scene->conn, packet, sizeof(packet), 0), sizeof(order));
        if (fence_order_parse(packet, sizeof(order), &got, &err) != 0)
            fail_msg("%s", err.msg);
        assert_int_equal(got.seq, seq);
        assert_int_equal(got.incarnation, 7);
    }
    assert_int_equal(order.seq, 0); // the caller's is not touched
}

// A reader that stands still gets the newest order once it reads again, and none older after
// it.
static void test_full_socket(void **state)
{
    struct scene *scene = *state;
    struct fence_order order = {.role = FENCE_ROLE_KEEP};
    struct fence_order got = {0};
    struct err err = {0};
    uint64_t last_seq = 0;
    const uint64_t sent = 5000;

    start_server(scene);
    connect_link(scene, 1);
    for (uint64_t i = 1; i <= sent; i++) {
        order.incarnation = i;
        assert_true(fencelink_send(scene->link, &order));
    }
    while (got.incarnation < sent) {
        char packet[512];
        ssize_t n = recv(scene->conn, packet, sizeof(packet), 0);

        if (n < 0) {
            assert_true(loop_turn(scene->loop)); // the pending one follows
            continue;
        }
        assert_int_equal(fence_order_parse(packet, (size_t)n, &got, &err), 0);
        assert_true(got.seq > last_seq);
        last_seq = got.seq;
    }
    assert_int_equal(last_seq, sent);
}

static void test_statuses_and_garbage(void **state)
{
    struct scene *scene = *state;
    struct fence_status status = a_status(3);
    char longer[sizeof(status) + 8] = {0};

    start_server(scene);
    connect_link(scene, 1);
    assert_int_equal(send(scene->conn, &status, sizeof(status), 0), sizeof(status));
    turn_until(scene, &scene->statuses, 2);
    assert_int_equal(scene->incarnation, 3);
    assert_int_equal(send(scene->conn, "x", 1, 0), 1);
    status.checksum ^= 1;
    assert_int_equal(send(scene->conn, &status, sizeof(status), 0), sizeof(status));
    assert_int_equal(send(scene->conn, &status, sizeof(status) - 1, 0), sizeof(status) - 1);
    memcpy(longer, &status, sizeof(status));
    assert_int_equal(send(scene->conn, longer, sizeof(longer), 0), sizeof(longer));
    turn_until(scene, &scene->garbage, 4);
    assert_int_equal(scene->statuses, 2);
    assert_true(fencelink_is_up(scene->link));
    status = a_status(4);
    for (int i = 0; i < 40; i++)
        assert_int_equal(send(scene->conn, &status, sizeof(status), 0), sizeof(status));
    turn_until(scene, &scene->statuses, 42);
    assert_int_equal(scene->incarnation, 4);
}

// It ends with our orders unread, one more of them waiting for room: what it said last is told
// all the same, before the loss.
static void test_last_words(void **state)
{
    struct scene *scene = *state;
    struct fence_order order = {.role = FENCE_ROLE_KEEP};
    struct fence_status status = a_status(9);

    start_server(scene);
    connect_link(scene, 1);
    for (int i = 0; i < 5000; i++)
        assert_true(fencelink_send(scene->link, &order));
    for (int i = 0; i < 3; i++)
        assert_int_equal(send(scene->conn, &status, sizeof(status), 0), sizeof(status));
    stop_server(scene);
    turn_until(scene, &scene->downs, 1);
    assert_int_equal(scene->statuses, 4);
    assert_int_equal(scene->incarnation, 9);
    assert_int_equal(scene->garbage, 0);
}

static void write_state(struct scene *scene, uint64_t incarnation, const char *boot_id)
{
    struct fence_status status = a_status(incarnation);
    char path[96];
    int fd = -1;

    (void)snprintf(path, sizeof(path), "%s/state", scene->dir);
    (void)snprintf(status.boot_id, sizeof(status.boot_id), "%s", boot_id);
    fence_status_seal(&status);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, &status, sizeof(status)), sizeof(status));
    close(fd);
}

static void on_patience(void *arg)
{
    (*(int *)arg)++;
}

// A stopped metafence-run: the kernel takes the connection, and nobody says anything. Its state
// file does, unless it was written before the machine was booted.
static void test_silent_peer(void **state)
{
    struct scene *scene = *state;
    struct fence_order order = {.role = FENCE_ROLE_KEEP};
    int patience = 0;
    struct loop_timer *timer = loop_timer_new(scene->loop, on_patience, &patience);
    char boot_id[40];
    char path[96];

    (void)snprintf(path, sizeof(path), "%s/state", scene->dir);
    state_boot_id(boot_id, sizeof(boot_id));
    start_server(scene);
    write_state(scene, 6, "11111111-2222-3333-4444-555555555555");
    accept_link(scene);
    loop_timer_arm(timer, 1500 * NS_PER_MS);
    turn_until(scene, &patience, 1);
    assert_int_equal(scene->statuses, 0);
    stop_server(scene);
    turn_until(scene, &scene->downs, 1);

    write_state(scene, 7, boot_id);
    start_server(scene);
    accept_link(scene);
    turn_until(scene, &scene->statuses, 1);
    assert_int_equal(scene->incarnation, 7);
    assert_int_equal(scene->ups, 0);
    assert_true(fencelink_send(scene->link, &order));
    // It runs again.
    const struct fence_status live = a_status(8);
    assert_int_equal(send(scene->conn, &live, sizeof(live), 0), sizeof(live));
    turn_until(scene, &scene->ups, 1);
    assert_int_equal(scene->incarnation, 8);
    assert_int_equal(scene->statuses, 2);
    loop_timer_free(timer);
    assert_int_equal(unlink(path), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_connects_again, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_hung_up_on, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_orders, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_full_socket, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_statuses_and_garbage, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_last_words, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_silent_peer, set_up, tear_down),
};

UNIT_MAIN(tests)
