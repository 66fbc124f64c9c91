// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"syscall"
	"testing"

	"metasim/internal/clock"
)

func TestJ1EnvironmentReachesAllSessions(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1, env: []string{
		"PGAPPNAME=metafence:12345678:0123456789abcdef",
		"PGOPTIONS=-c statement_timeout=61s -c lock_timeout=62s -c idle_in_transaction_session_timeout=63s",
	}})
	c.exec(`CREATE TABLE seen (tag text, a text, b text, c text)`)
	c.exec(`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO seen VALUES (current_setting('application_name'), current_setting('statement_timeout'),
			current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'));
		RETURN NULL; END $$`)
	c.exec(`CREATE TRIGGER note AFTER INSERT OR UPDATE ON election_leader FOR EACH ROW EXECUTE FUNCTION note()`)
	l := c.start()
	l.awaitEvent("write", 0)
	c.exec(`CREATE TRIGGER note AFTER INSERT ON witness_tick FOR EACH ROW EXECUTE FUNCTION note()`)
	c.await(patience, "20 rows seen", func() bool { return c.count(`SELECT count(*) FROM seen`) >= 20 })
	if n := c.count(`SELECT count(*) FROM seen WHERE (tag, a, b, c) IS DISTINCT FROM
		('metafence:12345678:0123456789abcdef', '61s', '62s', '63s')`); n != 0 {
		t.Errorf("%d statements without the environment's settings", n)
	}
	tagged := c.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'metafence:%'`)
	all := c.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
		AND backend_type = 'client backend'`)
	if tagged == 0 || tagged != all {
		t.Errorf("%d of %d sessions carry the tag", tagged, all)
	}
}

func TestJ2LongNameIsCut(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("x", 80)
	c := newCluster(t, setup{nodes: 1, env: []string{"PGAPPNAME=" + name}})
	c.start()
	if n := c.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`, name[:63]); n == 0 {
		t.Error("no session with the first 63 bytes as its name")
	}
}

func TestJ3StatementTimeout(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{lease: 2 * ttl, env: []string{"PGOPTIONS=-c statement_timeout=1s"}})
	l := c.start()
	l.awaitEvent("renew", clock.BootNS())
	at := clock.BootNS()
	release := lockRow(c)
	c.await(2*patience, "three Err", func() bool { return len(l.since("err", at)) >= 3 })
	release()
	l.awaitEvent("renew", clock.BootNS())
	errs := l.since("err", at)
	if !strings.Contains(errs[0].Fields["msg"], "57014") {
		t.Errorf("Err %q, want query_canceled", errs[0].Fields["msg"])
	}
	if c.holder() != l || len(l.since("leader_up", 0)) != 1 {
		t.Error("leadership must be kept: the row was ours all the time")
	}
}

// The tag that a trigger sees is the winner's, whatever ended the lease before.
func TestK1TagsOfWinners(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{phases: []int{100, 400, 700}})
	old := c.start()
	ends := []func(){
		func() { old.signal(syscall.SIGTERM) },
		func() { old.signal(syscall.SIGKILL) },
		func() { old.signal(syscall.SIGTERM) },
	}
	for _, end := range ends {
		end()
		old.awaitExit(patience)
		next := c.awaitOther(old, ttl+patience)
		old.start()
		old.awaitEvent("row", old.startedNS)
		old = next
	}
	rep := c.check()
	if len(rep.Takeovers) != len(ends) || rep.UnknownRenewals != 0 {
		t.Errorf("takeovers %+v", rep)
	}
	bad := c.count(`SELECT count(*) FROM witness.renewal r WHERE op <> 'delete' AND tag IS DISTINCT FROM CASE id
		WHEN $1 THEN 'n0' WHEN $2 THEN 'n1' WHEN $3 THEN 'n2' END`, c.nodes[0].id, c.nodes[1].id, c.nodes[2].id)
	if bad != 0 {
		t.Errorf("%d renewals with a tag that is not the owner's", bad)
	}
}

// Whoever looks for the campaign in pg_stat_activity finds the original's statement.
func TestStatementsReachPostgres(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1})
	c.start()
	c.await(patience, "the campaign among the sessions' last statements", func() bool {
		var found int
		err := c.conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND query LIKE 'INSERT INTO election_leader (service, id, last_heartbeat)%ON CONFLICT (service) DO UPDATE%RETURNING service, id, last_heartbeat;'`).Scan(&found)
		return err == nil && found > 0
	})
	var service, leader string
	if err := c.conn.QueryRow(t.Context(), `SELECT service, id FROM election_leader`).Scan(&service, &leader); err != nil {
		t.Fatal(err)
	}
	if service != "__meta_election_" || !strings.Contains(leader, ":") {
		t.Errorf("row (%q, %q)", service, leader)
	}
}
