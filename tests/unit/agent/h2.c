// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent/h2.h"

#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

void h2_hang_up(struct h2_server *server)
{
    loop_io_stop(server->conn_io);
    if (server->conn >= 0)
        close(server->conn);
    server->conn = -1;
}

static void on_accept(int fd, unsigned events, void *arg)
{
    struct h2_server *server = arg;
    struct err err = {0};

    (void)events;
    h2_hang_up(server);
    server->conn = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    server->accepted++;
    assert_int_equal(loop_io_set(server->conn_io, server->conn, LOOP_READ, &err), 0);
}

void h2_listen(struct h2_server *server, struct loop *loop, loop_io_fn *on_conn, void *arg)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    struct err err = {0};

    *server = (struct h2_server){.conn = -1};
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server->listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(server->listener, 8), 0);
    assert_int_equal(getsockname(server->listener, (struct sockaddr *)&addr, &len), 0);
    server->port = ntohs(addr.sin_port);
    server->listener_io = loop_io_new(loop, on_accept, server);
    server->conn_io = loop_io_new(loop, on_conn, arg);
    assert_int_equal(loop_io_set(server->listener_io, server->listener, LOOP_READ, &err), 0);
}

void h2_stop_listening(struct h2_server *server)
{
    loop_io_stop(server->listener_io);
    if (server->listener >= 0)
        close(server->listener);
    server->listener = -1;
}

void h2_done(struct h2_server *server)
{
    h2_hang_up(server);
    h2_stop_listening(server);
    loop_io_free(server->listener_io);
    loop_io_free(server->conn_io);
}
