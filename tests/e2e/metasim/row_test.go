// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"metasim/internal/clock"
)

// phases of the forced runs: the leader campaigns at 500 ms of each second, the others well after it.
var leaderAt500 = []int{500, 930, 980}

const (
	beforeLeader = 200 // the old leader campaigns next
	afterLeader  = 670 // another campaigns next
)

func TestCTombstone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{})
	old := c.start()
	at := clock.BootNS()
	c.exec(`UPDATE election_leader SET id = 'tombstone', last_heartbeat = now()`)
	old.mustExit(0, 2500*time.Millisecond)
	if old.has("resign", at) {
		t.Error("a leader that sees another id must not resign")
	}
	c.awaitOther(old, ttl+patience)
	var seconds float64
	err := c.conn.QueryRow(t.Context(), `SELECT extract(epoch FROM min(heartbeat) -
		(SELECT heartbeat FROM witness.renewal WHERE id = 'tombstone'))::float8 FROM witness.renewal
		WHERE heartbeat > (SELECT heartbeat FROM witness.renewal WHERE id = 'tombstone')`).Scan(&seconds)
	if took := time.Duration(seconds * float64(time.Second)); err != nil || took < ttl || took >= 2*ttl {
		t.Errorf("next leader %v after the tombstone (%v), want ttl to ttl + 1 s", took, err)
	}
}

// forcedRow runs an action on the row right before or right after the leader's campaign.
func forcedRow(t *testing.T, sql string) {
	t.Helper()
	t.Run("old wins", func(t *testing.T) {
		t.Parallel()
		forced(t, func(t *testing.T) string {
			c := newCluster(t, setup{phases: leaderAt500})
			old := c.start()
			at := clock.BootNS()
			missed := onTime(beforeLeader, func() { c.exec(sql) })
			lasts(1500 * time.Millisecond)
			if missed = missed + late(old, leaderAt500[0]); missed != "" {
				return missed
			}
			if !old.alive() || c.holder() != old || old.has("lost", at) || len(old.since("leader_up", 0)) != 1 {
				c.dump()
				t.Error("the old leader must take the row again and go on without a word")
			}
			return ""
		})
	})
	t.Run("old loses", func(t *testing.T) {
		t.Parallel()
		forced(t, func(t *testing.T) string {
			c := newCluster(t, setup{phases: leaderAt500})
			old := c.start()
			at := clock.BootNS()
			missed := onTime(afterLeader, func() { c.exec(sql) })
			lasts(1500 * time.Millisecond)
			if missed = missed + late(old, leaderAt500[0]); missed != "" {
				return missed
			}
			old.mustExit(0, patience)
			if old.has("resign", at) || !old.has("lost", at) {
				t.Error("want an exit by lost leadership, without a resign")
			}
			c.awaitOther(old, patience)
			if rep := c.check(); rep.TicksAfterSuccessor == 0 {
				t.Errorf("two leaders for most of a second: %+v", rep)
			}
			return ""
		})
	})
}

// evenPhases make the draw fair, whoever leads: of three random phases the leader's successor is the one
// with the longest wait before it more often than not, and then leads in the trials that follow.
var evenPhases = []int{0, 333, 667}

// freeRow counts how often the old leader wins when the action comes at any moment.
func freeRow(t *testing.T, sql string) {
	freeRun(t, 1.0/3, 6, func(t *testing.T, record func(bool)) {
		c := newCluster(t, setup{phases: evenPhases})
		old := c.start()
		for range pick(4, 10) {
			randomPhase()
			at := clock.BootNS()
			c.exec(sql)
			c.await(patience, "somebody renews and an old leader that lost is gone", func() bool {
				h := c.holder()
				return h != nil && h.has("renew", at+1.2e9) && (h == old) == old.alive()
			})
			record(old.alive())
			if !old.alive() {
				old.start()
				old.awaitEvent("row", old.startedNS)
				old = c.awaitOther(old, patience)
			}
		}
	})
}

const (
	backdate  = `UPDATE election_leader SET id = 'other', last_heartbeat = now() - interval '1 hour'`
	deleteRow = `DELETE FROM election_leader`
)

func TestC2BackdatedFree(t *testing.T) { freeRow(t, backdate) }
func TestDDeleteFree(t *testing.T)     { freeRow(t, deleteRow) }
func TestE3TruncateFree(t *testing.T)  { freeRow(t, `TRUNCATE election_leader`) }

func TestD2BrokenHeartbeat(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{})
	l := c.start()
	for _, value := range []string{"NULL", "now() + interval '1 hour'"} {
		c.exec(`UPDATE election_leader SET last_heartbeat = ` + value)
		c.await(patience, "the live owner repairs "+value, func() bool {
			return c.count(`SELECT count(*) FROM election_leader
				WHERE last_heartbeat BETWEEN now() - interval '2 s' AND now()`) == 1
		})
	}
	l.signal(syscall.SIGKILL)
	l.awaitExit(patience)
	c.exec(`UPDATE election_leader SET last_heartbeat = NULL`)
	lasts(ttl + 3*time.Second)
	if id, _ := c.row(); id != l.id {
		t.Errorf("row is %q: with a dead owner and no heartbeat nobody can lead", id)
	}
}

func TestEDropLeaderTable(t *testing.T) {
	t.Parallel()
	hot.Lock()
	defer hot.Unlock()
	c := newCluster(t, setup{nodes: 4})
	late := c.nodes[3]
	c.nodes = c.nodes[:3]
	old := c.start()
	c.nodes = append(c.nodes, late)
	at := clock.BootNS()
	c.exec(`DROP TABLE election_leader`)
	c.await(2*patience, "a hot loop of Err in all, while the leader's work goes on", func() bool {
		for _, n := range c.nodes[:3] {
			if len(n.since("err", at)) < 30 || !n.alive() {
				return false
			}
		}
		return old.writesOK(at) >= 15
	})
	late.start() // creates the table again
	c.await(patience, "the table", func() bool {
		return c.count(`SELECT count(*) FROM pg_class WHERE relname = 'election_leader'`) == 1
	})
	c.await(patience, "a row", func() bool { return c.holder() != nil })
	if h := c.holder(); h != old {
		old.mustBeZombie()
	} else {
		old.awaitEvent("renew", late.startedNS)
	}
}

func TestE2DropMemberTable(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{})
	l := c.start()
	at := clock.BootNS()
	c.exec(`DROP TABLE election_member`)
	lasts(3 * time.Second)
	l.awaitEvent("renew", clock.BootNS())
	if l.has("err", at) || c.holder() != l {
		t.Error("the member table is decoration")
	}
	if !strings.Contains(l.log(), "WARN risingwave_meta::rpc::election::sql: trim candidates failed") {
		t.Error("no warning about the trim")
	}
}

func TestOWatchPulse(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1})
	l := c.start()
	c.await(patience, "four renewals", func() bool { return len(l.since("renew", 0)) >= 4 })
	for i, r := range l.since("renew", 0) {
		if want := map[bool]string{true: "true", false: "false"}[i == 0]; r.Fields["pulse"] != want {
			t.Errorf("renewal %d: pulse %s, want %s", i, r.Fields["pulse"], want)
		}
	}
}
