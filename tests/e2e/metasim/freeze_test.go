// SPDX-License-Identifier: Apache-2.0

package main

import (
	"syscall"
	"testing"
	"time"

	"metasim/internal/clock"
)

func freeze(n *node, d time.Duration) (cont int64) {
	n.c.t.Helper()
	n.signal(syscall.SIGSTOP)
	lasts(d)
	cont = clock.BootNS()
	n.signal(syscall.SIGCONT)
	return cont
}

func TestF1FrozenBeyondTheLease(t *testing.T) {
	samples(t, pick(2, 6), func(t *testing.T) {
		c := newCluster(t, setup{})
		old := c.start()
		cont := freeze(old, 8*time.Second)
		old.mustExit(0, patience)
		if took := old.awaitEvent("lost", cont).Boot - cont; took > int64(500*time.Millisecond) {
			t.Errorf("left %v after CONT, want 1 to 12 ms", time.Duration(took))
		}
		// One late tick in 9 of 10 cases of the original, none in the tenth.
		n := len(old.since("tick", cont))
		if n > 5 {
			t.Errorf("%d ticks after CONT, want about one", n)
		}
		if rep := c.check(); rep.Overlaps != n {
			t.Errorf("%d late ticks, the witness saw %d", n, rep.Overlaps)
		}
	})
}

// A freeze between ttl/2 and ttl makes campaign and time-out due together.
const freezeF2 = 3500 * time.Millisecond

func TestF2FrozenInsideTheLease(t *testing.T) {
	t.Run("timeout", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, setup{flags: []string{"--tie", "timeout"}})
		l := c.start()
		cont := freeze(l, freezeF2)
		l.mustExit(0, patience)
		if why := l.awaitEvent("lost", cont).Fields["why"]; why != "election timeout" || l.has("resign", cont) {
			t.Errorf("left by %q, want by the election time-out, without resign", why)
		}
		if c.holder() != l {
			t.Error("the row stays until it expires")
		}
		c.awaitOther(l, ttl+patience)
	})
	t.Run("campaign", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, setup{flags: []string{"--tie", "campaign"}})
		l := c.start()
		cont := freeze(l, freezeF2)
		l.awaitEvent("renew", cont)
		lasts(time.Second)
		if !l.alive() || c.holder() != l || len(l.since("leader_up", 0)) != 1 {
			t.Error("want the leader to go on")
		}
	})
}

// 20 of 30 left in the original.
func TestF2Free(t *testing.T) {
	freeRun(t, 2.0/3, 4, func(t *testing.T, record func(bool)) {
		c := newCluster(t, setup{})
		c.start()
		for range pick(4, 10) {
			var conts []int64
			followers := c.nodes[1:]
			randomPhase() // else who stayed once would stay each time
			for _, n := range followers {
				n.signal(syscall.SIGSTOP)
			}
			lasts(freezeF2)
			for _, n := range followers {
				conts = append(conts, clock.BootNS())
				n.signal(syscall.SIGCONT)
			}
			lasts(time.Second)
			for i, n := range followers {
				record(!n.alive())
				if n.alive() {
					continue
				}
				if n.awaitEvent("lost", conts[i]).Fields["why"] != "election timeout" {
					t.Error("a follower can only leave by the election time-out")
				}
				n.start()
				n.awaitEvent("row", n.startedNS)
			}
		}
	})
}
