// SPDX-License-Identifier: Apache-2.0
#pragma once
// script: a small HTTP/1.1 server in the test's own loop whose every byte is the test's to say,
// and the client under test beside it. One guard timer: nothing waits longer than GUARD_NS.

#include "tests/unit/unit.h"

#include <stdbool.h>

#include "base/buf.h"
#include "base/loop.h"
#include "k8s/client.h"

#define GUARD_NS (60 * NS_PER_SEC)

struct script;
struct script_conn;
struct ssl_ctx_st;
struct ssl_st;

struct script_request {
    char method[16];
    char path[1024];
    const char *head; // whole, NUL-terminated, borrowed
    const char *body;
};

// Answers by script_send and the like, now or later.
typedef void script_fn(struct script_conn *conn, const struct script_request *request);

struct script_conn {
    struct script *script;
    struct script_conn *next;
    int fd;
    struct loop_io *io;
    struct ssl_st *tls; // NULL: plain
    struct buf in;
    struct buf out;
    size_t flood;   // bytes still to send of 'x'
    bool is_stream; // script_stream was called
    bool is_closing;
};

struct script {
    struct loop *loop;
    struct loop_timer *guard;
    struct loop_io *listener_io;
    int listener;
    uint16_t port;
    struct ssl_ctx_st *tls; // set by a test before the first connection; the test's to free
    struct script_conn *conns;
    unsigned accepted;
    unsigned requests;
    script_fn *on_request;
    void *arg;
    char dir[64]; // for the test's files, removed in the end
    char token_file[96];
    char ca_file[96];
    char url[64];
    struct k8s_config config; // of the client: the token file and the URL above
    struct k8s *k8s;          // by script_client
};

void script_init(struct script *script, script_fn *on_request, void *arg);
// Frees the client first.
void script_done(struct script *script);
void script_listen_end(struct script *script); // refuses new connections
void script_client(struct script *script);     // with script->config

void script_write_file(const char *path, const char *text); // by rename, as the kubelet does

void script_send(struct script_conn *conn, const void *bytes, size_t len);
// Status line, JSON headers and length, then the body.
void script_reply(struct script_conn *conn, int status, const char *body);
// Headers of an endless chunked stream, and one chunk of it.
void script_stream(struct script_conn *conn);
void script_chunk(struct script_conn *conn, const void *bytes, size_t len);
void script_chunk_text(struct script_conn *conn, const char *text);
void script_stream_end(struct script_conn *conn);
enum script_how {
    HOLD,  // leave the stream open
    ENDS,  // end it in good order
    BREAK, // close the connection
};
// A stream that says `lines` (NULL: nothing) and then is left, or ends, like that.
void script_play(struct script_conn *conn, const char *lines, enum script_how how);
void script_close(struct script_conn *conn); // after what was sent
void script_reset(struct script_conn *conn); // at once, by RST

// Turns the loop until `what` holds.
#define SCRIPT_UNTIL(script, what)                                                             \
    while (!(what))                                                                            \
    assert_true(loop_turn((script)->loop))
