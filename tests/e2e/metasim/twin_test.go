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

// addTwin adds a node with the first one's id and its own ports.
func addTwin(c *cluster) *node {
	c.t.Helper()
	n := c.newNode(len(c.nodes))
	n.id = c.nodes[0].id
	c.nodes = append(c.nodes, n)
	return n
}

func TestI1Twins(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 2})
	first := c.start()
	twin := addTwin(c)
	twin.start()
	up := twin.awaitEvent("leader_up", 0)
	if took := time.Duration(up.Boot - twin.startedNS); took > ttl/2 {
		t.Errorf("the twin leads %v after exec, want about 45 ms", took)
	}
	lasts(3 * time.Second)
	for _, n := range []*node{first, twin} {
		if k := n.writesOK(up.Boot); k < 20 {
			t.Errorf("node %d wrote %d ticks in 3 s, want full rate", n.index, k)
		}
	}
	if n := c.count(`SELECT count(*) FROM election_member WHERE id = $1`, first.id); n != 1 {
		t.Errorf("%d member rows for both, want 1", n)
	}
	rep := c.check()
	if rep.TwinTicks < 20 || len(rep.Twins) != 1 || rep.Overlaps < rep.TwinTicks {
		t.Errorf("the witness must see the twins: %+v", rep)
	}
}

// The resign of one twin deletes the row of both (i2); who is next in phase decides.
func termOfATwin(t *testing.T) {
	for name, k := range map[string]struct {
		at    int // phase of the TERM; the third campaigns at 500, the other twin at 900
		loses bool
	}{"other twin loses": {150, true}, "other twin goes on": {700, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forced(t, func(t *testing.T) string {
				c := newCluster(t, setup{nodes: 2, phases: []int{100, 500, 900}})
				first := c.start()
				twin := addTwin(c)
				twin.start()
				twin.awaitEvent("leader_up", 0)
				at := clock.BootNS()
				missed := late(twin, 900) + onTime(k.at, func() { first.signal(syscall.SIGTERM) })
				first.mustExit(0, patience)
				resign := first.awaitEvent("resign", at)
				if (resign.Boot/1e6-int64(k.at)+1000)%1000 > slack.Milliseconds() {
					missed += "the resign was late; "
				}
				third := c.nodes[1]
				lasts(time.Second)
				for _, e := range third.since("elected", at) {
					if phase := e.Boot / 1e6 % 1000; !k.loses && phase > 500 && phase < 900 {
						missed += fmt.Sprintf("the third campaigned at %d; ", phase)
					}
				}
				if missed != "" {
					return missed
				}
				if k.loses {
					twin.mustExit(0, 2*time.Second)
					return ""
				}
				twin.awaitEvent("renew", at+1.2e9)
				if c.holder() != twin && c.holder() != first { // they share the id
					t.Error("the other twin must have inserted itself again")
				}
				return ""
			})
		})
	}
}

// Of the other twin and the third, whoever campaigns first has the row: 5 of 9 in the original.
func TestI2Free(t *testing.T) {
	freeRun(t, 1.0/2, pick(10, 20), func(t *testing.T, record func(bool)) {
		c := newCluster(t, setup{nodes: 2, phases: randomPhases()})
		first := c.start()
		twin := addTwin(c)
		twin.start()
		twin.awaitEvent("leader_up", 0)
		randomPhase()
		at := clock.BootNS()
		first.signal(syscall.SIGTERM)
		first.mustExit(0, patience)
		c.await(patience, "the other twin is gone or renews", func() bool {
			return !twin.alive() || twin.has("renew", at+1.2e9)
		})
		record(twin.alive())
	})
}

// A case variant of a dead owner's id leads at once, but its heartbeat stays the dead one's until ttl.
func TestPCaseVariant(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 2})
	first, second := c.nodes[0], c.nodes[1]
	first.id = fmt.Sprintf("localhost:%d", first.service)
	second.id = strings.ToUpper(first.id)
	first.start()
	first.awaitEvent("leader_up", 0)
	first.signal(syscall.SIGKILL)
	first.awaitExit(patience)
	second.start()
	second.awaitEvent("leader_up", 0)
	lasts(2 * time.Second)
	if id, age := c.row(); id != first.id || age < 2*time.Second {
		t.Errorf("row %q, age %v: want the dead owner's spelling, not refreshed", id, age)
	}
	c.await(ttl, "the row in its own spelling", func() bool {
		id, _ := c.row()
		return id == second.id
	})
	if n := len(second.since("leader_up", 0)); n != 1 || second.has("err", 0) {
		t.Errorf("%d starts of leader services, want 1", n)
	}
}
