// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"metasim/internal/clock"
	"metasim/internal/witness"
)

// samples runs a test in n clusters side by side.
func samples(t *testing.T, n int, fn func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	for range n {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			fn(t)
		})
	}
}

func pick(short, many int) int {
	if long() {
		return many
	}
	return short
}

// nextCampaign is when the leader's next campaign begins: they begin a second apart, and each ends with a renewal
// that is more or less late. The renewal that was the least late tells the phase.
func nextCampaign(renewals []witness.Line) int64 {
	const second, half = int64(time.Second), int64(time.Second / 2)
	last, late := renewals[len(renewals)-1].Boot, int64(0)
	for _, r := range renewals {
		if d := (last - r.Boot) % second; d < half {
			late = max(late, d)
		}
	}
	return last - late + second
}

// cutBetweenCampaigns changes the mode of the leader's link while no statement of a campaign is under way, where
// nearly every cut lands: one inside a campaign or the trim after it ends differently. It returns the moment
// before. On a machine that was too busy to be in time, it heals the link and tries again.
func cutBetweenCampaigns(n *node, mode string) int64 {
	n.c.t.Helper()
	for range 10 {
		at := clock.BootNS()
		n.awaitEvent("trim", at)
		at = clock.BootNS()
		n.link("mode " + mode)
		if clock.BootNS() < nextCampaign(n.since("renew", 0)) {
			return at
		}
		n.link("mode pass")
	}
	n.c.t.Fatal("the machine is too busy to cut a link between two campaigns")
	return 0
}

// cut breaks the leader's link for d, between two campaigns; it returns the moments of cut and heal.
func cut(n *node, mode string, d time.Duration) (at, heal int64) {
	n.c.t.Helper()
	at = cutBetweenCampaigns(n, mode)
	lasts(d)
	heal = clock.BootNS()
	n.link("mode pass")
	return at, heal
}

func TestB1StallInsideTheLease(t *testing.T) {
	for _, d := range []time.Duration{3300 * time.Millisecond, 3900 * time.Millisecond} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, setup{})
			l := c.start()
			at, heal := cut(l, "stall", d)
			c.await(patience, "renewal and writes after heal", func() bool {
				return l.has("renew", heal) && l.writesOK(heal) > 5
			})
			if l.has("err", at) || len(l.since("leader_up", 0)) != 1 || c.holder() != l {
				t.Error("a stall inside the lease must change nothing")
			}
			if rep := c.check(); rep.Overlaps+rep.LateTicks != 0 || len(rep.Takeovers) != 0 {
				t.Errorf("%+v", rep)
			}
		})
	}
}

// A stall a little longer than the lease has both ends (b2); which one depends on the phase of the cut:
// the campaign's acquire runs out 5 s after its start.
func stallAroundTheLease(t *testing.T) {
	phases := []int{300, 450, 500}
	t.Run("clean", func(t *testing.T) {
		t.Parallel()
		forced(t, func(t *testing.T) string {
			c := newCluster(t, setup{phases: phases})
			l := c.start()
			// Just renewed: the next campaign has not timed out when the link heals.
			missed := onTime(550, func() { l.link("mode stall") }) + late(l, phases[0])
			lasts(5350 * time.Millisecond)
			heal := clock.BootNS()
			l.link("mode pass")
			if missed != "" {
				return missed
			}
			l.mustExit(0, patience)
			if l.has("err", 0) || !strings.Contains(l.awaitEvent("lost", heal).Fields["why"], "changed") {
				t.Error("want a clean exit without an Err")
			}
			return ""
		})
	})
	t.Run("zombie", func(t *testing.T) {
		t.Parallel()
		forced(t, func(t *testing.T) string {
			c := newCluster(t, setup{phases: phases})
			l := c.start()
			at := clock.BootNS()
			// The next campaign starts at once and has timed out before the heal.
			missed := late(l, phases[0]) + onTime(50, func() { l.link("mode stall") })
			lasts(5650 * time.Millisecond)
			l.link("mode pass")
			if missed != "" {
				return missed
			}
			if len(l.since("err", at)) != 1 {
				t.Error("want one Err before the heal")
			}
			l.mustBeZombie()
			return ""
		})
	})
}

// A campaign that begins in the first 0.3 s of the stall has timed out before the heal: 1 of 5 in the original.
func TestB2Free(t *testing.T) {
	freeRun(t, 0.3, pick(6, 12), func(t *testing.T, record func(bool)) {
		c := newCluster(t, setup{phases: randomPhases()})
		l := c.start()
		randomPhase()
		l.link("mode stall")
		lasts(ttl + 300*time.Millisecond)
		heal := clock.BootNS()
		l.link("mode pass")
		c.await(patience, "the old leader is gone or has seen the row", func() bool {
			return !l.alive() || l.has("row", heal) || l.has("renew", heal)
		})
		lasts(500 * time.Millisecond)
		h := c.holder()
		record(l.alive() && h != nil && h != l)
	})
}

func TestB3StallBeyondTheLease(t *testing.T) {
	samples(t, pick(3, 14), func(t *testing.T) {
		c := newCluster(t, setup{})
		old := c.start()
		at, heal := cut(old, "stall", 8*time.Second)
		c.awaitOther(old, patience)
		old.mustBeZombie()
		errs := old.since("err", at)
		if len(errs) != 1 || !strings.Contains(errs[0].Fields["msg"], "pool timed out") {
			t.Errorf("errors %v, want one of the pool", errs)
		}
		if rows := old.since("row", heal); len(rows) != 1 {
			t.Errorf("row lines after heal %v, want one", rows)
		}
		rep := c.check()
		if rep.Overlaps == 0 || rep.WorstMarginMS == nil || *rep.WorstMarginMS > -2000 || rep.LateWrites == 0 {
			t.Errorf("the witness must see the zombie: %+v", rep)
		}
	})
}

func TestB4ZombieForEver(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{})
	old := c.start()
	_, heal := cut(old, "stall", 8*time.Second)
	watched := 10 * time.Second
	if long() {
		watched = 3 * time.Minute
	}
	lasts(watched)
	old.mustBeZombie()
	next := c.holder()
	first := old.since("write", heal)
	if len(first) == 0 || first[0].Boot-heal > int64(500*time.Millisecond) {
		t.Errorf("first write after heal %v, want within 20 to 60 ms", first)
	}
	if n, rightful := old.writesOK(heal), next.writesOK(heal); n < rightful*8/10 {
		t.Errorf("%d writes in %v, the rightful leader made %d: want full rate", n, watched, rightful)
	}
}

func TestB5Reset(t *testing.T) {
	t.Parallel()
	hot.Lock()
	defer hot.Unlock()
	c := newCluster(t, setup{})
	old := c.start()
	at, _ := cut(old, "reset", 8*time.Second)
	c.awaitOther(old, patience)
	old.mustBeZombie()
	errs := old.since("err", at)
	if len(errs) < 8*10 {
		t.Errorf("%d Err in 8 s, want a hot loop: a reset connect is not retried", len(errs))
	}
	if first := time.Duration(errs[0].Boot - at); first > 1500*time.Millisecond {
		t.Errorf("first Err after %v, want at the first campaign", first)
	}
}

// Connections that died silently make a zombie while database and network are healthy.
func TestB6OldConnectionsDead(t *testing.T) {
	for _, acquire := range []time.Duration{ttl, 2 * ttl} {
		t.Run(acquire.String(), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, setup{acquire: acquire})
			old := c.start()
			at := cutBetweenCampaigns(old, "old-dead")
			c.awaitOther(old, ttl+patience)
			c.await(acquire+ttl+patience, "the old leader writes again, link untouched", func() bool {
				return old.writesOK(at+int64(ttl)) > 10
			})
			old.mustBeZombie()
			errs := old.since("err", at)
			if len(errs) == 0 || time.Duration(errs[0].Boot-at) < acquire-100*time.Millisecond {
				t.Errorf("errors %v, want the first when the ping has eaten the whole acquire time-out", errs)
			}
		})
	}
}

// A hang inside the campaign's statement ends well once healed.
func TestB7CutInsideTheCampaign(t *testing.T) {
	for _, trap := range []string{"cut-before-query", "cut-before-answer"} {
		t.Run(trap, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, setup{})
			old := c.start()
			at := clock.BootNS()
			old.link(trap + " INTO election_leader")
			lasts(8 * time.Second)
			heal := clock.BootNS()
			old.link("mode pass")
			old.mustExit(0, patience)
			if old.has("err", at) {
				t.Error("want no Err of the election")
			}
			if took := time.Duration(old.awaitEvent("lost", heal).Boot - heal); took > 500*time.Millisecond {
				t.Errorf("left %v after heal, want 10 to 40 ms", took)
			}
			if n := old.writesOK(heal); n > 4 {
				t.Errorf("%d writes after heal, want 0 to 2", n)
			}
		})
	}
}

// An acquire time-out far above the lease turns a stall into a clean exit.
func TestB11LongAcquire(t *testing.T) {
	samples(t, 2, func(t *testing.T) {
		c := newCluster(t, setup{acquire: 50 * time.Second})
		old := c.start()
		at, heal := cut(old, "stall", 8*time.Second)
		old.mustExit(0, patience)
		if old.has("err", at) || !old.has("lost", heal) {
			t.Error("want no Err, and the loss noticed after heal")
		}
	})
}

// A full pool is enough, with a healthy Postgres.
func TestB12FullPool(t *testing.T) {
	for name, s := range map[string]setup{
		"one":  {flags: []string{"--pool-max", "1"}},
		"full": {flags: []string{"--pool-max", "4", "--block-pool", "4"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, s)
			old := c.start()
			at := clock.BootNS()
			tx, err := c.connect().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), `LOCK TABLE witness_tick, metasim_data IN SHARE MODE`); err != nil {
				t.Fatal(err)
			}
			c.await(ttl+patience, "another id in the row", func() bool {
				h := c.holder()
				return h != nil && h != old
			})
			c.await(patience, "the old leader's Err", func() bool { return old.has("err", at) })
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.awaitOther(old, patience)
			old.mustBeZombie()
			if n := len(old.since("err", at)); n > 2 {
				t.Errorf("%d Err, want one", n)
			}
		})
	}
}

func TestB13SessionsTerminated(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{})
	l := c.start()
	at := clock.BootNS()
	for range pick(12, 30) {
		c.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		lasts(500 * time.Millisecond)
	}
	end := clock.BootNS()
	l.awaitEvent("renew", end)
	if c.holder() != l || len(l.since("leader_up", 0)) != 1 {
		t.Error("ending idle sessions must not evict the leader")
	}
	if n := len(l.since("err", at)); n > 2 {
		t.Errorf("%d Err in the leader, want about none", n)
	}
}

func TestB14ZombieWinsAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 2})
	zombie := c.start()
	cut(zombie, "stall", 8*time.Second)
	next := c.awaitOther(zombie, patience)
	zombie.mustBeZombie()
	killed := clock.BootNS()
	next.signal(syscall.SIGKILL)
	c.await(ttl+patience, "the row is the zombie's again", func() bool { return c.holder() == zombie })
	zombie.awaitEvent("elected", killed)
	if n := len(zombie.since("leader_up", 0)); n != 1 {
		t.Errorf("leader services came up %d times, want once: a zombie never starts them anew", n)
	}
}

func TestB15TermOfAZombie(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{})
	zombie := c.start()
	cut(zombie, "stall", 8*time.Second)
	next := c.awaitOther(zombie, patience)
	zombie.mustBeZombie()
	zombie.signal(syscall.SIGTERM)
	zombie.mustExit(0, patience)
	if zombie.has("resign", 0) || c.holder() != next {
		t.Error("a zombie must not resign, and the row stays the true leader's")
	}
}
