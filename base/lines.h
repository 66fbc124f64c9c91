// SPDX-License-Identifier: Apache-2.0
#pragma once
// lines: a unix stream listener whose connections exchange lines, for the control socket. It
// owns the socket file, the connections and their buffers. Bounds: connections, line length,
// unsent bytes and idle time; a peer that exceeds one is closed. Peers of another user than
// root or ourselves are closed before a byte is read.

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/loop.h"

struct lines_server;
struct lines_conn;

// One line without its newline, NUL-terminated; borrowed for the call. Bytes are as they came:
// a line may hold NUL bytes before `len`.
typedef void lines_fn(struct lines_conn *conn, const char *line, size_t len, void *arg);
// The connection is about to vanish: forget it. Called once for each connection that had a
// line, unless the server is freed.
typedef void lines_gone_fn(struct lines_conn *conn, void *arg);

struct lines_config {
    const char *path;   // of the socket; copied
    mode_t mode;        // of the socket file
    unsigned max_conns; // further ones are closed at once
    size_t max_line;    // bytes
    size_t max_unsent;  // bytes
    int64_t idle_ns;    // without a line or progress in sending
    lines_fn *on_line;
    lines_gone_fn *on_gone; // may be NULL
    void *arg;              // borrowed
};

// Listens. A socket file that nobody listens on any more is replaced. Errors: CONFLICT when
// another process listens there, INVALID for a path that is too long or not a socket, DENIED
// and TRANSIENT with errno.
must_check int lines_server_new(struct loop *loop, const struct lines_config *config,
                                struct lines_server **ret_server, struct err *err);
// Closes all connections and removes the socket file if it is still ours. Accepts NULL. Not
// from inside a callback of its connections.
void lines_server_free(struct lines_server *server);

// Queues `len` bytes and sends what the socket takes now. May be called inside and outside
// callbacks.
void lines_send(struct lines_conn *conn, const void *data, size_t len);
// Closes after what is queued was sent; no more lines are delivered.
void lines_finish(struct lines_conn *conn);
// The peer's user, as the kernel says.
uid_t lines_peer_uid(const struct lines_conn *conn);
