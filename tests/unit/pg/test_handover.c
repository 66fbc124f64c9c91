// SPDX-License-Identifier: Apache-2.0
// Many takeovers beside writers: nothing of a superseded tag is written after the next leader
// began, nobody who leads is refused, whatever fails inside of the triggers; and no deadlock.
#include "tests/unit/pg/scene.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WRITERS = 4 };

// --- writers ---

// Of the sessions that are ended here.
static void ignore(void *arg, const char *message)
{
    (void)arg;
    (void)message;
}

static void name_tag(PGconn *pq, unsigned round)
{
    pgt_run(pq, "SET application_name = 'metafence:cccccccc:%016x'", round);
}

// Four sessions of the leader of that round write until they are stopped. The witness of the
// test: each row carries who wrote it.
static void start_writers(PGconn *writers[WRITERS], unsigned round)
{
    char tag[64], sql[512];

    (void)snprintf(tag, sizeof tag, "metafence:cccccccc:%016x", round);
    for (size_t i = 0; i < WRITERS; i++) {
        if (!writers[i] || PQstatus(writers[i]) != CONNECTION_OK) {
            PQfinish(writers[i]);
            writers[i] = pgt_connect("meta", PGT_DATABASE, tag);
            (void)PQsetNoticeProcessor(writers[i], ignore, NULL);
        } else {
            name_tag(writers[i], round);
        }
        (void)snprintf(sql, sizeof sql,
                       "DO $$ BEGIN FOR i IN 1..100000 LOOP INSERT INTO hummock_sstable_info"
                       " VALUES (nextval('witness'), %u, '\\xab'); UPDATE hummock_sequence SET"
                       " seq = seq + 1 WHERE name = '%zu'; COMMIT; END LOOP; END $$",
                       round, i % 2);
        assert_int_equal(PQsendQuery(writers[i], sql), 1);
    }
}

// They lead: none of them has been given anything but its work.
static void assert_all_write(PGconn *writers[WRITERS])
{
    for (size_t i = 0; i < WRITERS; i++) {
        assert_int_equal(PQconsumeInput(writers[i]), 1);
        if (!PQisBusy(writers[i]))
            fail_msg("writer %zu was stopped while it led: %s", i,
                     PQresultErrorMessage(PQgetResult(writers[i])));
    }
}

// Their term is over: refused or ended, never anything else. With `may_go_on`, where the move
// was not written down and the guard is open, they are stopped by us; a refusal whose text
// can't be made is another error, and a refusal all the same.
static void drain(struct scene *s, PGconn *writers[WRITERS], bool may_go_on)
{
    for (size_t i = 0; i < WRITERS; i++) {
        if (may_go_on)
            pgt_run(s->admin, "SELECT pg_terminate_backend(%d)", PQbackendPID(writers[i]));
        for (PGresult *result = PQgetResult(writers[i]); result;
             result = PQgetResult(writers[i])) {
            const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
            bool is_ours =
                state && (strcmp(state, "MF001") == 0 || strcmp(state, "57P01") == 0 ||
                          (may_go_on && strcmp(state, "42883") == 0));
            if (!is_ours && PQstatus(writers[i]) == CONNECTION_OK)
                fail_msg("writer %zu: %s", i, PQresultErrorMessage(result));
            PQclear(result);
        }
        if (may_go_on) { // it may be told to end only now
            PQfinish(writers[i]);
            writers[i] = NULL;
        }
    }
}

static void set_stage(struct scene *s)
{
    pgt_run(s->admin, "CREATE SEQUENCE witness; GRANT USAGE ON SEQUENCE witness TO meta;"
                      "INSERT INTO hummock_sequence VALUES ('0', 0), ('1', 0);"
                      "CREATE INDEX ON hummock_sstable_info (object_id);"
                      "CREATE TABLE seen (round bigint, rows bigint)");
    // The work of cascades and of the expiry is not what is tested here.
    pgt_run(s->psql, "ALTER TABLE hummock_sstable_info SET (autovacuum_enabled = off)");
}

// A new incarnation wins, writes at once, and notes what it sees of its predecessor.
static void next_leader(struct scene *s, unsigned round)
{
    char visible[24];

    name_tag(s->a1, round);
    take_over(s, s->a1, round % 2 ? "meta-a" : "meta-b");
    (void)snprintf(visible, sizeof visible, "%s",
                   pgt_get(s->a1,
                           "SELECT count(*) FROM hummock_sstable_info WHERE object_id = %u",
                           round - 1));
    pgt_run(s->admin, "INSERT INTO seen VALUES (%u, %s)", round - 1, visible);
}

static void test_forced_takeovers(void **state)
{
    struct scene *s = *state;
    PGconn *writers[WRITERS] = {0};
    unsigned rounds = getenv("METAFENCE_LONG") ? 10000 : 2000;
    struct pgt_lateness late = pgt_lateness_begin();
    char expected[24];

    set_stage(s);
    for (unsigned round = 1; round <= rounds; round++) {
        next_leader(s, round);
        if (round > 1)
            drain(s, writers, false);
        pgt_run(s->a1, "UPDATE hummock_sequence SET seq = seq + 1"); // never refused
        start_writers(writers, round);
        (void)poll(NULL, 0, (int)(round % 4) * 2);
        assert_all_write(writers);
    }
    next_leader(s, rounds + 1);
    drain(s, writers, false);
    int64_t worst_ms = pgt_lateness_end(&late);
    // What its successor saw of each leader when it began is all that there ever was.
    assert_string_equal(pgt_get(s->admin,
                                "SELECT count(*) FROM seen WHERE rows <> (SELECT count(*) FROM"
                                " hummock_sstable_info WHERE object_id = seen.round)"),
                        "0");
    assert_string_not_equal(pgt_get(s->admin, "SELECT sum(rows) FROM seen"), "0");
    print_message("%u takeovers: %s rows, %lld ended sessions, machine late by %lld ms\n",
                  rounds, pgt_get(s->admin, "SELECT sum(rows) FROM seen"),
                  (long long)counter(s, "ended"), (long long)worst_ms);
    if (worst_ms < PGT_LATE_MS)
        assert_int_equal(counter(s, "takeover_without_lock"), 0);
    assert_int_equal(counter(s, "takeover"), rounds);
    assert_int_equal(counter(s, "unrecorded") + counter(s, "unreadable"), 0);
    (void)snprintf(expected, sizeof expected, "%u", rounds + 1);
    assert_string_equal(pgt_get(s->admin, "SELECT term FROM metafence.term"), expected);
    for (size_t i = 0; i < WRITERS; i++)
        PQfinish(writers[i]);
}

// --- each statement of the bookkeeping fails ---

// What makes one fail, and how it is healed.
static const struct {
    const char *name;
    const char *fault;
    const char *heal;
} faults[] = {
#define STATEMENT(table, operation)                                                            \
    {                                                                                          \
        operation " of " table,                                                                \
            "CREATE TRIGGER fault BEFORE " operation " ON metafence." table                    \
            " EXECUTE FUNCTION fault()",                                                       \
            "DROP TRIGGER fault ON metafence." table                                           \
    }
#define RENAMED(kind, name)                                                                    \
    {                                                                                          \
        name, "ALTER " kind " metafence." name " RENAME TO gone",                              \
            "ALTER " kind " metafence.gone RENAME TO " name                                    \
    }
    STATEMENT("tag", "INSERT"),
    STATEMENT("tag", "UPDATE"),
    STATEMENT("tag", "DELETE"),
    STATEMENT("renewal", "UPDATE"),
    STATEMENT("term", "INSERT"),
    STATEMENT("term", "UPDATE"),
    STATEMENT("death", "DELETE"),
    STATEMENT("tombstone", "UPDATE"),
    STATEMENT("tombstone", "DELETE"),
    STATEMENT("mutation", "INSERT"),
    STATEMENT("mutation", "DELETE"),
    STATEMENT("takeover", "INSERT"),
    STATEMENT("takeover", "UPDATE"),
    STATEMENT("recovery", "INSERT"),
    STATEMENT("recovery", "UPDATE"),
    RENAMED("TABLE", "setting"),
    RENAMED("TABLE", "tag"),
    RENAMED("TABLE", "renewal"),
    RENAMED("TABLE", "term"),
    RENAMED("TABLE", "death"),
    RENAMED("TABLE", "tombstone"),
    RENAMED("TABLE", "mutation"),
    RENAMED("TABLE", "takeover"),
    RENAMED("TABLE", "recovery"),
    RENAMED("TABLE", "intent"),
    RENAMED("FUNCTION", "session_tag"),
    RENAMED("FUNCTION", "identity"),
    RENAMED("FUNCTION", "move_term"),
    RENAMED("FUNCTION", "close_term"),
    RENAMED("FUNCTION", "end_writers"),
    RENAMED("FUNCTION", "end_lockers"),
    RENAMED("FUNCTION", "wait_shared"),
    RENAMED("FUNCTION", "apply_tombstones"),
    RENAMED("FUNCTION", "note_takeover"),
    RENAMED("FUNCTION", "note_recovery"),
    RENAMED("FUNCTION", "count_of"),
    RENAMED("FUNCTION", "judge"),
    RENAMED("FUNCTION", "judge_again"),
    RENAMED("FUNCTION", "is_plain"),
    RENAMED("FUNCTION", "property_version"),
    RENAMED("FUNCTION", "remove_worker"),
    RENAMED("FUNCTION", "refusal"),
    RENAMED("FUNCTION", "key_of"),
    RENAMED("FUNCTION", "count_unreadable"),
    RENAMED("SEQUENCE", "moves"),
    RENAMED("SEQUENCE", "recovery_change"),
    RENAMED("SEQUENCE", "tag_seq_seq"),
    RENAMED("SEQUENCE", "mutation_id_seq"),
    RENAMED("SEQUENCE", "count_takeover"),
    RENAMED("SEQUENCE", "count_ended"),
    RENAMED("SEQUENCE", "count_takeover_without_lock"),
    RENAMED("SEQUENCE", "count_refused"),
    RENAMED("SEQUENCE", "count_held"),
    RENAMED("SEQUENCE", "count_not_owner"),
    RENAMED("SEQUENCE", "count_unrecorded"),
    RENAMED("SEQUENCE", "count_unlocked"),
};

static void bury_somebody(struct scene *s)
{
    pgt_run(s->admin, "INSERT INTO worker (worker_type, host, port, status) VALUES ('C',"
                      " 'h' || nextval('witness'), 1, 'S')");
    pgt_run(s->admin,
            "SELECT metafence.bury('svc', t.term, w.worker_id, w.host, w.port, w.row_version,"
            " 'pod', '1 min') FROM metafence.workers() AS w, metafence.term AS t");
}

static void test_failing_bookkeeping(void **state)
{
    struct scene *s = *state;
    PGconn *writers[WRITERS] = {0};
    unsigned round = 0;

    set_stage(s);
    pgt_run(s->admin, "CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$"
                      "BEGIN RAISE EXCEPTION 'fault'; END $$");
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        for (unsigned k = 0; k < 3; k++) { // with the fault, with it again, healed
            next_leader(s, ++round);
            if (round > 1)
                drain(s, writers, true);
            if (k == 0)
                bury_somebody(s);
            start_writers(writers, round);
            if (k < 2)
                pgt_run(s->admin, "%s", k == 0 ? faults[i].fault : faults[i].heal);
            // The leader: renews, writes; an idle zombie of its own pod does not.
            if (strcmp(pgt_campaign(s->a1, round % 2 ? "meta-a" : "meta-b"),
                       round % 2 ? "meta-a" : "meta-b") != 0)
                fail_msg("%s: the leader lost the row", faults[i].name);
            if (pgt_try(s->a1, "UPDATE hummock_sequence SET seq = seq + 1;"
                               " UPDATE worker SET status = 'R'")[0])
                fail_msg("%s: %s", faults[i].name, pgt_message(s->a1));
            assert_all_write(writers);
        }
        // Healed, and the term is the leader's again.
        char tag[64];
        (void)snprintf(tag, sizeof tag, "metafence:cccccccc:%016x", round);
        assert_string_equal(pgt_get(s->admin, "SELECT owner_tag FROM metafence.term"), tag);
    }
    next_leader(s, ++round);
    drain(s, writers, true);
    for (size_t i = 0; i < WRITERS; i++)
        PQfinish(writers[i]);
}

// --- everything at once ---

#define FOLLOWER_CAMPAIGN                                                                      \
    "INSERT INTO election_leader AS e VALUES ('svc', 'meta-z', NOW()) ON CONFLICT (service)"   \
    " DO UPDATE SET id = e.id, last_heartbeat = e.last_heartbeat"

// What ten sessions do, each again and again. "%": the number of the turn.
static const struct {
    const char *user;
    const char *tag;
    const char *sql;
} actors[] = {
    {"meta", TAG_A1,
     "BEGIN; UPDATE worker SET status = 'A' WHERE worker_id = 1; UPDATE worker_property SET"
     " parallelism = 4 WHERE worker_id = 1; UPDATE catalog_version SET version = version + 1;"
     " COMMIT"},
    {"meta", TAG_A1,
     "BEGIN; UPDATE hummock_sequence SET seq = seq + 1 WHERE name = '0'; INSERT INTO"
     " hummock_gc_history VALUES (nextval('witness'), now()); COMMIT"},
    {"meta", TAG_A1,
     "INSERT INTO worker (worker_type, host, port, status) VALUES ('C', 'h', 1, 'S') ON"
     " CONFLICT (host, port) DO UPDATE SET status = 'T'; DELETE FROM worker WHERE host = 'h'"},
    {"meta", TAG_B1,
     "INSERT INTO election_leader AS e VALUES ('svc', 'meta-b', NOW()) ON CONFLICT (service)"
     " DO UPDATE SET id = e.id, last_heartbeat = CASE WHEN e.id = 'meta-b' THEN NOW() ELSE"
     " e.last_heartbeat END"},
    {"meta", TAG_A2, FOLLOWER_CAMPAIGN},
    {"meta", TAG_A3,
     "UPDATE hummock_version_stats SET stats = '{}'; UPDATE worker SET status = 'X' WHERE"
     " worker_id = 1"},
    {"meta", "psql",
     "UPDATE catalog_version SET version = version + 1; UPDATE worker SET status = 'Y' WHERE"
     " worker_id = 1"},
    {"postgres", "metafence",
     "SELECT metafence.bury('svc', t.term, w.worker_id, w.host, w.port, w.row_version, 'p',"
     " '1 min') FROM metafence.workers() AS w, metafence.term AS t WHERE w.host = 'h';"
     " SELECT metafence.unbury('svc', t.term, x.worker_id) FROM metafence.tombstone AS x,"
     " metafence.term AS t"},
    {"postgres", "metafence",
     "SELECT metafence.intend('svc', t.term, 7, 'h', 2, 'x') FROM metafence.term AS t;"
     " SELECT metafence.withdraw('svc', t.term, 7) FROM metafence.term AS t;"
     " SELECT metafence.complete()"},
};
#define ACTORS (sizeof actors / sizeof actors[0])

static pid_t start_actor(size_t which, struct instant end)
{
    static const char *const may[] = {"MF001", "MF002", "57P01", "55P03"};
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    PGconn *pq = pgt_connect(actors[which].user, PGT_DATABASE, actors[which].tag);
    while (!instant_reached(clock_now(), end)) {
        const char *state = pgt_try(pq, "%s", actors[which].sql);
        bool is_fine = !state[0];
        for (size_t i = 0; i < sizeof may / sizeof may[0]; i++)
            is_fine = is_fine || strcmp(state, may[i]) == 0;
        if (!is_fine && PQstatus(pq) == CONNECTION_OK) {
            (void)fprintf(stderr, "actor %zu: %s", which, pgt_message(pq));
            _exit(3);
        }
        if (PQstatus(pq) != CONNECTION_OK) {
            PQfinish(pq);
            pq = pgt_connect(actors[which].user, PGT_DATABASE, actors[which].tag);
        } else if (state[0]) {
            PQclear(PQexec(pq, "ROLLBACK"));
        }
    }
    PQfinish(pq);
    _exit(0);
}

// Ten sessions: the leader's, a follower, a zombie, an unknown tag, psql, two agents; and this
// one, which moves the term all the time.
static void test_no_deadlock(void **state)
{
    struct scene *s = *state;
    int64_t seconds = getenv("METAFENCE_LONG") ? 600 : 8;
    struct instant end = instant_add(clock_now(), seconds * NS_PER_SEC);
    pid_t pids[ACTORS];
    unsigned round = 0;

    pgt_run(s->admin, "CREATE SEQUENCE witness; GRANT USAGE ON SEQUENCE witness TO meta;"
                      "INSERT INTO hummock_sequence VALUES ('0', 0);"
                      "INSERT INTO catalog_version VALUES ('notification', 0);"
                      "INSERT INTO hummock_version_stats VALUES (0, '{}');"
                      "INSERT INTO worker VALUES (1, 'C', 'g', 1, 'S');"
                      "INSERT INTO worker_property VALUES (1, 4, true, true, false);"
                      "SELECT setval('worker_worker_id_seq', 10)");
    (void)pgt_campaign(s->a1, "meta-a");
    for (size_t i = 0; i < ACTORS; i++)
        pids[i] = start_actor(i, end);
    while (!instant_reached(clock_now(), end)) {
        pgt_run(s->a3, "SET application_name = 'metafence:eeeeeeee:%016x'", ++round);
        take_over(s, s->a3, round % 2 ? "meta-c" : "meta-d");
        (void)poll(NULL, 0, 60);
    }
    for (size_t i = 0; i < ACTORS; i++) {
        int status = -1;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        if (status != 0)
            fail_msg("actor %zu ended with status %d", i, status);
    }
    pgt_run(s->admin, "SELECT pg_stat_force_next_flush()");
    const char *deadlocks = pgt_get(s->admin, "SELECT deadlocks FROM pg_stat_database WHERE"
                                              " datname = current_database()");
    print_message("%lld s, %u takeovers: %s deadlocks, %s transactions\n", (long long)seconds,
                  round, deadlocks,
                  pgt_get(s->admin, "SELECT xact_commit FROM pg_stat_database WHERE datname ="
                                    " current_database()"));
    assert_string_equal(deadlocks, "0");
    assert_true(round > 2);
}

static const struct CMUnitTest tests[] = {
    SCENE_TEST(test_forced_takeovers),
    SCENE_TEST(test_failing_bookkeeping),
    SCENE_TEST(test_no_deadlock),
};

UNIT_MAIN(tests)
