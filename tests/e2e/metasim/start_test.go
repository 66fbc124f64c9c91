// SPDX-License-Identifier: Apache-2.0

package main

import (
	"syscall"
	"testing"
	"time"

	"metasim/internal/clock"
)

func TestA1StartInOrder(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{})
	l := c.start()
	if took := time.Duration(l.awaitEvent("leader_up", 0).Boot - l.startedNS); took > patience {
		t.Errorf("leader services %v after exec, want about 0.1 s", took)
	}
	for _, n := range c.nodes[1:] {
		if n.has("elected", 0) {
			t.Errorf("node %d was elected too", n.index)
		}
	}
	if rep := c.check(); rep.Overlaps+rep.LateTicks+rep.UnknownTicks != 0 {
		t.Errorf("healthy start: %+v", rep)
	}
}

// A first start of three at once: CREATE TABLE IF NOT EXISTS collides and the losers abort. The
// collision is forced by a transaction that holds the table's name and lets go.
func TestA2FirstStartAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{})
	c.exec(`DROP TABLE election_member, election_leader`)
	tx, err := c.conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `CREATE TABLE election_member (service varchar)`); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.nodes {
		n.start()
	}
	watch := c.connect()
	c.await(patience, "three waiting CREATE TABLE", func() bool {
		var waiting int
		err := watch.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		return err == nil && waiting == 3
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	aborted := 0
	c.await(patience, "each node up or gone", func() bool {
		aborted = 0
		settled := 0
		for _, n := range c.nodes {
			if !n.alive() {
				aborted++
			}
			if !n.alive() || n.has("row", 0) {
				settled++
			}
		}
		return settled == 3
	})
	if aborted == 0 || aborted == 3 {
		t.Errorf("%d of 3 ended, want 1 or 2", aborted)
	}
	for _, n := range c.nodes {
		if !n.alive() {
			n.mustExit(134, patience)
		}
	}
}

func TestA3KillOfTheLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{})
	old := c.start()
	old.signal(syscall.SIGKILL)
	c.awaitOther(old, ttl+patience)
	rep := c.check()
	if len(rep.Takeovers) != 1 || rep.Takeovers[0].Kind != "expired" || rep.Overlaps+rep.LateTicks != 0 {
		t.Fatalf("takeovers %+v", rep)
	}
	tk := rep.Takeovers[0]
	if wait := time.Duration(tk.FirstUS-tk.LastRenewalUS) * time.Microsecond; wait <= ttl || wait >= 2*ttl {
		t.Errorf("takeover %v after the last renewal, want ttl to ttl + 1 s", wait)
	}
	if tk.MarginMS < 3900 {
		t.Errorf("margin %v ms, want about ttl minus the renewal period", tk.MarginMS)
	}
}

func TestA4TermOfTheLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{})
	old := c.start()
	sent := clock.BootNS()
	old.signal(syscall.SIGTERM)
	old.mustExit(0, patience)
	if r := old.since("resign", sent); len(r) != 1 || r[0].Fields["ok"] != "true" {
		t.Fatalf("resign %v, want one that worked", r)
	}
	next := c.awaitOther(old, patience)
	if took := next.awaitEvent("leader_up", sent).Boot - sent; took > int64(ttl/2) {
		t.Errorf("new leader %v after TERM, want at most 1 s", time.Duration(took))
	}
	if n := c.count(`SELECT count(*) FROM election_member WHERE id = $1`, old.id); n != 0 {
		t.Error("the member row is still there after the resign")
	}
	if rep := c.check(); rep.Overlaps != 0 || rep.Takeovers[0].Kind != "released" {
		t.Errorf("planned handover: %+v", rep)
	}
}

func TestA5SameIDAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{})
	l := c.start()
	l.signal(syscall.SIGKILL)
	l.awaitExit(patience)
	lasts(time.Second)
	l.start()
	up := l.awaitEvent("leader_up", l.startedNS)
	if took := time.Duration(up.Boot - l.startedNS); took > ttl/2 {
		t.Errorf("leads again %v after exec, want about 30 ms", took)
	}
	if rep := c.check(); rep.Overlaps != 0 || rep.TwinTicks != 0 {
		t.Errorf("a dead predecessor is no twin: %+v", rep)
	}
}

func TestA6TermOfAFollower(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{})
	c.start()
	f := c.nodes[1]
	c.await(patience, "the follower's member row", func() bool {
		return c.count(`SELECT count(*) FROM election_member WHERE id = $1`, f.id) == 1
	})
	f.signal(syscall.SIGTERM)
	f.mustExit(0, ttl/2)
	if f.has("resign", 0) {
		t.Error("a follower must not resign")
	}
	if c.count(`SELECT count(*) FROM election_member WHERE id = $1`, f.id) != 1 {
		t.Error("the member row of a follower stays")
	}
	c.await(2*ttl+patience, "the leader trims it after 2 x ttl", func() bool {
		return c.count(`SELECT count(*) FROM election_member WHERE id = $1`, f.id) == 0
	})
}
