// SPDX-License-Identifier: Apache-2.0

package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"metasim/internal/clock"
)

// lockRow holds the election row until the returned function is called.
func lockRow(c *cluster) (release func()) {
	c.t.Helper()
	return begin(c, `SELECT * FROM election_leader FOR UPDATE`)
}

// begin holds an open transaction with one statement in it.
func begin(c *cluster, sql string) (release func()) {
	c.t.Helper()
	tx, err := c.connect().BeginTx(c.t.Context(), pgx.TxOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := tx.Exec(c.t.Context(), sql); err != nil {
		c.t.Fatal(err)
	}
	return func() {
		c.t.Helper()
		if err := tx.Rollback(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
	}
}

// TERM in an outage: the services go at once, the process at the first acquire deadline.
func TestG1TermInAStall(t *testing.T) {
	samples(t, pick(3, 12), func(t *testing.T) {
		c := newCluster(t, setup{})
		l := c.start()
		at := cutBetweenCampaigns(l, "stall")
		lasts(1500 * time.Millisecond)
		l.signal(syscall.SIGTERM)
		c.await(patience, "leader services gone", func() bool { return l.has("services_down", at) && !listens(l.service) })
		l.mustExit(0, 7*time.Second)
		errs := l.since("err", at)
		if len(errs) != 1 {
			c.dump()
			t.Fatalf("%d Err, want to leave at the first acquire deadline", len(errs))
		}
		if l.has("resign", at) {
			t.Error("a round that forgot its leadership can't resign")
		}
		if id, _ := c.row(); id == "" {
			t.Error("the row is gone")
		}
		if n := len(l.since("tick", errs[0].Boot-int64(300*time.Millisecond))); n == 0 {
			t.Error("background work goes on until the exit")
		}
	})
}

func TestG2TermWhileTheRowIsLocked(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{})
	l := c.start()
	release := lockRow(c)
	c.await(patience, "a campaign of the leader on the lock", func() bool {
		return c.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND application_name = 'n0' AND wait_event_type = 'Lock'`) > 0
	})
	l.signal(syscall.SIGTERM)
	lasts(pickDuration(8*time.Second, 150*time.Second))
	if !l.alive() {
		t.Fatal("TERM has no bound while a statement waits in Postgres")
	}
	at := clock.BootNS()
	release()
	l.mustExit(0, patience)
	// The renewal that was held is older than the lease. Where the leader's next choice is to campaign once
	// more, another may have taken the row before.
	if lost := l.has("lost", at) && c.holder() != l; l.has("resign", at) == lost {
		t.Errorf("want a resign after the release, or the loss of the expired row (lost: %t)", lost)
	}
}

func pickDuration(short, many time.Duration) time.Duration {
	if long() {
		return many
	}
	return short
}

func TestG3TermUnderReset(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{})
	l := c.start()
	l.link("mode reset")
	c.await(patience, "an Err", func() bool { return l.has("err", 0) })
	l.signal(syscall.SIGTERM)
	l.mustExit(0, ttl/2)
	f := c.nodes[1]
	f.link("mode stall")
	lasts(1500 * time.Millisecond)
	f.signal(syscall.SIGTERM)
	f.mustExit(0, ttl/2)
	g := c.nodes[2]
	release := lockRow(c)
	lasts(1500 * time.Millisecond)
	g.signal(syscall.SIGTERM)
	g.mustExit(0, ttl/2)
	release()
}

func TestSecondInterrupt(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1})
	l := c.start()
	release := lockRow(c)
	defer release()
	lasts(1200 * time.Millisecond)
	l.signal(syscall.SIGINT)
	l.awaitEvent("services_down", 0)
	l.signal(syscall.SIGTERM) // a TERM after the first signal does nothing
	lasts(500 * time.Millisecond)
	if !l.alive() {
		t.Fatal("ended by a second TERM")
	}
	l.signal(syscall.SIGINT)
	l.mustExit(1, patience)
}
