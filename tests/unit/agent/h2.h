// SPDX-License-Identifier: Apache-2.0
#pragma once
// h2: a server for gRPC's clients, in the loop of the test: one connection at a time, and
// frames of HTTP/2 to answer with as they stand here.

#include <stdint.h>

#include "base/loop.h"

// Length (3 bytes), type, flags, stream (4 bytes).
#define H2_SETTINGS     "\0\0\0\4\0\0\0\0\0"
#define H2_SETTINGS_ACK "\0\0\0\4\1\0\0\0\0"
#define H2_HELLO        H2_SETTINGS H2_SETTINGS_ACK
// :status 200 (indexed), content-type (name 31 of the static table) application/grpc
#define H2_GRPC                                                                                \
    "\x88\x0f\x10\x10"                                                                         \
    "application/grpc"
#define H2_GRPC_STATUS                                                                         \
    "\0\x0b"                                                                                   \
    "grpc-status"
#define H2_HEADERS "\0\0\x14\1\4\0\0\0\1" H2_GRPC
#define H2_HEADERS_12                                                                          \
    "\0\0\x24\1\5\0\0\0\1" H2_GRPC H2_GRPC_STATUS "\2"                                         \
    "12"
#define H2_HEADERS_14                                                                          \
    "\0\0\x24\1\5\0\0\0\1" H2_GRPC H2_GRPC_STATUS "\2"                                         \
    "14"
#define H2_TRAILERS_0                                                                          \
    "\0\0\x0f\1\5\0\0\0\1" H2_GRPC_STATUS "\1"                                                 \
    "0"
#define H2_DATA(len) "\0\0" len "\0\0\0\0\0\1"
#define H2_RESET     "\0\0\4\3\0\0\0\0\1\0\0\0\2"
#define H2_GOAWAY    "\0\0\x8\7\0\0\0\0\0\0\0\0\0\0\0\0\2"

struct h2_server {
    struct loop_io *listener_io;
    struct loop_io *conn_io;
    int listener; // -1: nobody listens
    int conn;     // -1: none
    uint16_t port;
    int accepted;
};

// On a port of 127.0.0.1. `on_conn` is told when the connection can be read; a new connection
// takes the place of the one before. Ends the test when it can't.
void h2_listen(struct h2_server *server, struct loop *loop, loop_io_fn *on_conn, void *arg);
void h2_hang_up(struct h2_server *server);
void h2_stop_listening(struct h2_server *server);
void h2_done(struct h2_server *server);
