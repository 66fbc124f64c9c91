// SPDX-License-Identifier: Apache-2.0
#pragma once
// sock: where the agent connects: SOCK_SEQPACKET, a few connections at a time, of one user id,
// nothing ever blocks. Orders are taken from the connection that was made last among those that
// have ordered, so that neither an old agent that lingers nor a stranger that is silent or
// sends garbage displaces the agent. A connection that sends anything but whole orders of our
// version is closed.

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fence/proto.h"

#define SOCK_PEERS_MAX 4
#define SOCK_POLLS_MAX (1 + SOCK_PEERS_MAX)

struct sock_peer {
    int fd;      // -1: free
    uint64_t id; // counts connections
    uint64_t last_seq;
    bool has_ordered;
    bool wants_status; // it has just connected or ordered
    bool is_shut;      // it takes no more; what it sent before is still read
    pid_t pid;
};

struct sock {
    int fd;
    const char *path; // borrowed
    uid_t peer_uid;
    uint64_t last_id;
    struct sock_peer peers[SOCK_PEERS_MAX];
};

enum sock_input {
    SOCK_INPUT_NONE,    // nothing (more) to read
    SOCK_INPUT_ORDER,   // *ret_order is filled and counts
    SOCK_INPUT_IGNORED, // of an agent that a younger one has replaced, or repeated
    SOCK_INPUT_CLOSED,  // by the peer
    SOCK_INPUT_REFUSED, // garbage: err says what, the connection is closed
};

// Listens. A stale socket file is replaced. Errors: CONFLICT (somebody listens there), DENIED
// (errno).
must_check int sock_listen(struct sock *sock, const char *path, uid_t peer_uid,
                           struct err *err);

// Closes everything and removes the file.
void sock_close(struct sock *sock);

// Fills fds (the listener first, then peers in order) and returns how many.
size_t sock_polls(const struct sock *sock, struct pollfd fds[SOCK_POLLS_MAX]);

// Accepts one connection; the oldest but the agent goes if there are too many. Returns its fd,
// or -1: none, or of another user (err->kind DENIED).
int sock_accept(struct sock *sock, struct err *err);

// Reads at most one packet of the peer with this fd.
enum sock_input sock_receive(struct sock *sock, int fd, struct fence_order *ret_order,
                             struct err *err);

// Sends the status (with the peer's own order_seq) to everybody if it is news, else to those
// who wait for an answer. A peer that does not read is dropped; returns how many were.
int sock_send(struct sock *sock, const struct fence_status *status, bool is_news);

// Somebody waits for an answer.
bool sock_is_asked(const struct sock *sock);

// Somebody is connected who has ordered.
bool sock_has_agent(const struct sock *sock);
