// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"
	"time"

	"metasim/internal/clock"
	"metasim/internal/witness"
)

// outage is one Postgres of its own under several clusters that all lose it together.
type outage struct {
	t        *testing.T
	pg       *postgres
	clusters []*cluster
	leaders  []*node
	down, up int64
}

// newOutage starts n clusters; phases nil means random ones.
func newOutage(t *testing.T, n int, s setup) *outage {
	t.Helper()
	o := &outage{t: t, pg: ownPostgres(t)}
	s.pg = o.pg
	random := s.phases == nil
	for range n {
		if random {
			s.phases = randomPhases()
		}
		c := newCluster(t, s)
		o.clusters = append(o.clusters, c)
		o.leaders = append(o.leaders, c.start())
	}
	return o
}

// run takes the server away for d, counted to the moment at which it answers again.
func (o *outage) run(d time.Duration) {
	o.t.Helper()
	o.down = clock.BootNS()
	if err := o.pg.down(); err != nil {
		o.t.Fatal(err)
	}
	lasts(d - time.Duration(clock.BootNS()-o.down))
	if err := o.pg.up(); err != nil {
		o.t.Fatal(err)
	}
	o.up = clock.BootNS()
	for _, c := range o.clusters {
		c.conn = c.connect()
	}
}

// fate of an old leader after an outage.
type fate string

const (
	kept   fate = "kept"   // it renewed and nobody else led
	zombie fate = "zombie" // another leads and it goes on
	gone   fate = "gone"   // it saw the other and left
)

// settle waits until a cluster's row is renewed again and its old leader has seen it.
func (o *outage) settle(k int, within time.Duration) fate {
	o.t.Helper()
	c, old := o.clusters[k], o.leaders[k]
	c.await(within, "the old leader renews, sees another, or is gone", func() bool {
		return !old.alive() || old.has("renew", o.up) || seesOther(old, o.down)
	})
	switch {
	case !old.alive():
		return gone
	case seesOther(old, o.down) && !old.has("err", o.down):
		old.mustExit(0, patience) // a round without an error knows that it led
		return gone
	case seesOther(old, o.down):
		old.mustBeZombie()
		return zombie
	}
	return kept
}

func seesOther(n *node, bootNS int64) bool {
	last := ""
	for _, l := range n.since("row", bootNS) {
		last = l.Fields["leader"]
	}
	return last != "" && last != n.id
}

// A restart that is shorter than the lease changes nothing.
func TestB8ShortOutage(t *testing.T) {
	t.Parallel()
	const lease = 8 * time.Second
	forced(t, func(t *testing.T) string {
		o := newOutage(t, pick(3, 8), setup{lease: lease})
		o.run(3 * time.Second)
		if took := time.Duration(o.up - o.down); took > lease/2 {
			return fmt.Sprintf("the server was away for %v", took)
		}
		for k, c := range o.clusters {
			if f := o.settle(k, 2*patience); f != kept || c.holder() != o.leaders[k] {
				t.Errorf("cluster %d: %s, want kept", k, f)
			}
			if rep := c.check(); len(rep.Takeovers) != 0 {
				t.Errorf("cluster %d: %+v", k, rep.Takeovers)
			}
		}
		return ""
	})
}

// After an outage longer than lease and acquire time-out the row goes to whoever reconnects first:
// a draw among three.
func TestB9LongOutageFree(t *testing.T) {
	perServer := 6
	freeRun(t, 2.0/3, pick(2, 6), func(t *testing.T, record func(bool)) {
		o := newOutage(t, perServer, setup{})
		o.run(8 * time.Second)
		for k := range o.clusters {
			f := o.settle(k, 2*patience)
			if f == gone {
				t.Logf("cluster %d: clean exit", k)
			}
			record(f != kept)
		}
	})
}

// With starts in fixed phase (b10) the draw is none. Attempts come 0.31, 0.63, 1.27, then each second after the
// start of an acquire (the back-off's cap is a fifth of the time-out), which starts with the campaign and
// again each 5 s: 8.1 s after the begin a node in phase 100 is the next one, at 8.37.
func outageFixedPhase(t *testing.T) {
	for want, phases := range map[fate][]int{kept: {100, 500, 600}, zombie: {600, 100, 500}} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			forced(t, func(t *testing.T) string {
				c := newCluster(t, setup{phases: phases})
				o := &outage{t: t, clusters: []*cluster{c}, leaders: []*node{c.start()}}
				all := func(mode string) {
					for _, n := range c.nodes {
						n.link("mode " + mode)
					}
				}
				missed := late(o.leaders[0], phases[0]) + onTime(0, func() { all("refuse") })
				o.down = clock.BootNS()
				lasts(7500 * time.Millisecond)
				missed += onTime(100, func() { all("pass") })
				o.up = clock.BootNS()
				for k, n := range c.nodes {
					// An acquire runs out 5 s after the campaign, in its phase: later attempts are in step with it.
					for _, e := range n.since("err", o.down) {
						if behind := (e.Boot/1e6 - int64(phases[k]) + 1000) % 1000; behind > slack.Milliseconds() {
							missed += fmt.Sprintf("node %d gave up %d ms behind its phase; ", k, behind)
						}
					}
				}
				if missed != "" {
					return missed
				}
				if f := o.settle(0, 2*patience); f != want {
					c.dump()
					t.Errorf("old leader: %s, want %s", f, want)
				}
				return ""
			})
		})
	}
}

// An acquire time-out far above the lease: no Err in the outage, so no zombie without one.
func TestB11OutageLongAcquire(t *testing.T) {
	t.Parallel()
	o := newOutage(t, pick(3, 8), setup{acquire: 30 * time.Second})
	o.run(8 * time.Second)
	for k := range o.clusters {
		f := o.settle(k, 30*time.Second)
		errs := o.leaders[k].since("err", o.down)
		if f == zombie && len(errs) == 0 {
			t.Errorf("cluster %d: a zombie without an Err", k)
		}
		t.Logf("cluster %d: %s, %s", k, f, describe(errs))
	}
}

func describe(errs []witness.Line) string {
	if len(errs) == 0 {
		return "no Err"
	}
	return fmt.Sprintf("%d Err, first %s", len(errs), errs[0].Fields["msg"])
}
