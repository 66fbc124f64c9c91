// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"metasim/internal/clock"
)

// trigger installs a trigger on the election row whose body may use NEW, OLD and `tag`. Mind that a
// campaign is an upsert: BEFORE INSERT fires for each one, AFTER INSERT only for a new row.
func trigger(c *cluster, when, body string) {
	c.t.Helper()
	c.exec(fmt.Sprintf(`CREATE OR REPLACE FUNCTION test_fault() RETURNS trigger LANGUAGE plpgsql AS $$
		DECLARE tag text := current_setting('application_name');
		BEGIN %s RETURN NEW; END $$`, body))
	c.exec(`CREATE OR REPLACE TRIGGER aa_test_fault ` + when + ` ON election_leader
		FOR EACH ROW EXECUTE FUNCTION test_fault()`)
}

func dropTrigger(c *cluster) {
	c.t.Helper()
	c.exec(`DROP TRIGGER aa_test_fault ON election_leader`)
}

func TestH1OneErrPerRenewal(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{})
	l := c.start()
	at := clock.BootNS()
	c.exec(`CREATE SEQUENCE test_calls`)
	trigger(c, "BEFORE UPDATE", `IF tag = 'n0' AND nextval('test_calls') % 2 = 1 THEN RAISE EXCEPTION 'test fault'; END IF;`)
	c.await(3*patience, "five Err", func() bool { return len(l.since("err", at)) >= 5 })
	dropTrigger(c)
	l.awaitEvent("renew", clock.BootNS())
	if c.holder() != l || len(l.since("leader_up", 0)) != 1 {
		t.Error("single errors are harmless while the row is ours: no other leader, no second start of services")
	}
	if n := len(l.since("elected", at)); n < 5 {
		t.Errorf("elected %d times, want once after each Err", n)
	}
}

func TestH2ErrBeyondTheLease(t *testing.T) {
	t.Parallel()
	hot.Lock()
	defer hot.Unlock()
	c := newCluster(t, setup{})
	old := c.start()
	at := clock.BootNS()
	trigger(c, "BEFORE UPDATE", `IF tag = 'n0' THEN RAISE EXCEPTION 'test fault'; END IF;`)
	c.awaitOther(old, ttl+patience)
	dropTrigger(c)
	if n := len(old.since("err", at)); n < 50 {
		t.Errorf("%d Err, want a hot loop", n)
	}
	lasts(1500 * time.Millisecond)
	old.mustBeZombie()
}

func TestH3TriggerReturnsNull(t *testing.T) {
	t.Parallel()
	hot.Lock()
	defer hot.Unlock()
	c := newCluster(t, setup{lease: 3 * ttl}) // outlives the fault, however slowly the test looks
	l := c.start()
	at := clock.BootNS()
	trigger(c, "BEFORE UPDATE", `IF tag = 'n0' THEN RETURN NULL; END IF;`)
	c.await(2*patience, "a hot loop of Err", func() bool { return len(l.since("err", at)) >= 30 })
	dropTrigger(c)
	errs := l.since("err", at)
	if !strings.Contains(errs[0].Fields["msg"], "bad result from postgres") {
		t.Errorf("Err %q, want `bad result from postgres`", errs[0].Fields["msg"])
	}
	l.awaitEvent("renew", clock.BootNS())
}

const lockOnChange = `IF TG_OP = 'INSERT' OR NEW.id <> OLD.id THEN PERFORM pg_advisory_xact_lock(42); END IF;`

// holdAdvisory takes what the winner's trigger waits for.
func holdAdvisory(c *cluster) (release func()) {
	return begin(c, `SELECT pg_advisory_xact_lock_shared(42)`)
}

func TestL1LockInTheTrigger(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{})
	old := c.start()
	trigger(c, "AFTER INSERT OR UPDATE", lockOnChange)
	release := holdAdvisory(c)
	at := clock.BootNS()
	old.signal(syscall.SIGKILL)
	waiting := func() int {
		return c.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	}
	c.await(ttl+patience, "the winner on the advisory lock, the other on the row", func() bool { return waiting() == 2 })
	lasts(2 * time.Second)
	if h := c.holder(); h != old {
		t.Error("nobody can win while the lock is held")
	}
	release()
	c.awaitOther(old, patience)
	for _, n := range c.nodes[1:] {
		if n.has("err", at) {
			t.Errorf("node %d had an Err: a wait is none", n.index)
		}
	}
}

// NOW() is before the wait: who waits as long as the lease wins one that has run out.
func TestL2BackdatedLease(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{acquire: 4 * ttl})
	old := c.start()
	trigger(c, "AFTER INSERT OR UPDATE", lockOnChange)
	release := holdAdvisory(c)
	old.signal(syscall.SIGKILL)
	c.await(ttl+patience, "a waiting winner", func() bool {
		return c.count(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`) > 0
	})
	lasts(ttl + time.Second)
	released := clock.BootNS()
	offset := c.check().OffsetUS
	release()
	c.awaitOther(old, patience)
	for _, n := range c.nodes[1:] {
		if won := n.since("elected", released); len(won) > 0 {
			var hb int64
			if _, err := fmt.Sscan(won[0].Fields["hb_us"], &hb); err != nil {
				t.Fatal(err)
			}
			if age := time.Duration(released/1000+offset-hb) * time.Microsecond; age >= ttl {
				return // the first winner's lease was over when it won
			}
		}
	}
	c.dump()
	t.Error("no winner with a lease from before its wait")
}

func TestL3GlobalLockTimeout(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{env: []string{"PGOPTIONS=-c lock_timeout=1000"}})
	old := c.start()
	trigger(c, "AFTER INSERT OR UPDATE", lockOnChange)
	release := holdAdvisory(c)
	at := clock.BootNS()
	old.signal(syscall.SIGKILL)
	c.await(ttl+patience, "Err of a waiter", func() bool {
		for _, n := range c.nodes[1:] {
			for _, e := range n.since("err", at) {
				if strings.Contains(e.Fields["msg"], "55P03") {
					return true
				}
			}
		}
		return false
	})
	release()
	c.awaitOther(old, patience)
}

func TestM1InsertOfAKilledLeaderCommits(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{})
	l := c.start()
	release := begin(c, `LOCK TABLE witness_tick IN SHARE MODE`)
	waiting := func() int {
		return c.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND application_name = 'n0' AND wait_event_type = 'Lock'`)
	}
	c.await(patience, "a waiting INSERT", func() bool { return waiting() == 1 })
	before := c.count(`SELECT count(*) FROM witness_tick`)
	l.signal(syscall.SIGKILL)
	l.awaitExit(patience)
	lasts(3 * time.Second)
	if waiting() != 1 {
		t.Error("the session of the dead process must still wait")
	}
	release()
	c.await(patience, "the dead leader's row", func() bool {
		return c.count(`SELECT count(*) FROM witness_tick WHERE tag = 'n0'`) == before+1
	})
}

func TestM2CampaignOfAKilledLeaderCommits(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1})
	l := c.start()
	l.awaitEvent("renew", clock.BootNS())
	release := lockRow(c)
	_, age := c.row()
	locked := time.Now().Add(-age)
	c.await(patience, "a waiting campaign", func() bool {
		return c.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND application_name = 'n0' AND wait_event_type = 'Lock'`) == 1
	})
	l.signal(syscall.SIGKILL)
	l.awaitExit(patience)
	lasts(2 * time.Second)
	release()
	c.await(patience, "the dead leader's renewal", func() bool {
		_, age := c.row()
		moved := time.Now().Add(-age).Sub(locked)
		return moved > 500*time.Millisecond && moved < 1500*time.Millisecond
	})
}

func TestNSerializable(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{env: []string{"PGOPTIONS=-c default_transaction_isolation=serializable"}})
	l := c.start()
	lasts(pickDuration(8*time.Second, 20*time.Second))
	if c.holder() != l || len(l.since("leader_up", 0)) != 1 {
		t.Error("serialization errors must leave the leader alone")
	}
}
