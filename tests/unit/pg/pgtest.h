// SPDX-License-Identifier: Apache-2.0
#pragma once
// pgtest: what the tests beside a real Postgres share. Blocking sessions to set the scene, a
// loop that runs until something became true, and a relay that can stall or cut what goes
// through it.

#include "tests/unit/unit.h"

#include <sys/types.h>

#include "agent/pg/election.h"

// --- the scene: blocking, fails the test on any error ---

#define PGT_DATABASE "scene"
#define PGT_TABLES                                                                             \
    "CREATE TABLE election_leader (service VARCHAR, id VARCHAR, last_heartbeat TIMESTAMPTZ,"   \
    " PRIMARY KEY (service));"                                                                 \
    "CREATE TABLE election_member (service VARCHAR, id VARCHAR, last_heartbeat TIMESTAMPTZ,"   \
    " PRIMARY KEY (service, id))"

uint16_t pgt_port(void);
uint16_t pgt_standby_port(void);
const char *pgt_socket_dir(void);
const char *pgt_root_cert(void);

// Drops and creates PGT_DATABASE, owned by role "meta" (password "secret-meta", made when
// missing).
void pgt_fresh_database(void);
PGconn *pgt_connect(const char *user, const char *database, const char *application_name);
void pgt_run(PGconn *pq, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// First value as text, "NULL" for NULL; valid until the fourth call from now.
const char *pgt_get(PGconn *pq, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// SQLSTATE of a statement, "" when it worked.
const char *pgt_try(PGconn *pq, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// Message of the session's last error.
const char *pgt_message(PGconn *pq);
// One campaign as a meta does it; returns the owner's id.
const char *pgt_campaign(PGconn *pq, const char *id);

// --- how late this machine is: our protocol has half a second, a stalled machine has not ---

#define PGT_LATE_MS 100 // from then on its limits are not judged

struct pgt_lateness {
    pid_t pid;
    int64_t *worst_ms; // shared with the process that measures
};

// Measures in a process of its own how late one is woken, until the end, which says the worst.
struct pgt_lateness pgt_lateness_begin(void);
int64_t pgt_lateness_end(struct pgt_lateness *late);

// How long this process and the server's of `pq` have been ready to run and had to wait for a
// processor, in ns since they began. 0 where the kernel does not count it. Unlike lateness,
// which is the worst of single moments, it adds up over all steps of what is timed.
int64_t pgt_starved_ns(PGconn *pq);

// --- the loop ---

struct pgt {
    struct loop *loop;
    struct resolver *resolver;
    bool is_late;
};

// cmocka set-up and tear-down; *state is a struct pgt.
int pgt_setup(void **state);
int pgt_teardown(void **state);
// Turns the loop until *flag or until `timeout_ms` passed, which fails the test.
void pgt_wait(struct pgt *pgt, const bool *flag, int timeout_ms);
// The same until `is_done(arg)`.
void pgt_wait_for(struct pgt *pgt, bool (*is_done)(void *arg), void *arg, int timeout_ms);
// Turns the loop for `ms`: to show that something does not happen.
void pgt_idle(struct pgt *pgt, int ms);

// Session parameters that reach `port` as role meta.
struct pg_params pgt_params(uint16_t port);

// --- relay: a TCP hop on the same loop, so that a test has the order of things in its hand ---

struct relay;
enum relay_mode {
    RELAY_PASS,
    RELAY_STALL,     // nothing passes, new connections are accepted and stall too
    RELAY_STALL_OLD, // what is connected now stalls, new connections pass
    RELAY_STALL_NEW, // the reverse
    RELAY_RESET,     // everything is reset, also new connections
};

struct relay *relay_new(struct pgt *pgt, uint16_t target_port);
void relay_free(struct relay *relay);
uint16_t relay_port(const struct relay *relay);
void relay_set(struct relay *relay, enum relay_mode mode);
// Where new connections lead from now on.
void relay_retarget(struct relay *relay, uint16_t target_port);
unsigned relay_accepted(const struct relay *relay); // connections so far
unsigned relay_open(const struct relay *relay);     // now
