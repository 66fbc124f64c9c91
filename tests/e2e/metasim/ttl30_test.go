// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"metasim/internal/clock"
)

// The cuts of the original's own lengths, with all its defaults: lease and acquire time-out 30 s.
func TestTTL30(t *testing.T) {
	if !long() {
		t.Skip("needs -long or METASIM_LONG=1: it lasts two minutes")
	}
	const lease = 30 * time.Second
	for name, k := range map[string]struct {
		mode string
		d    time.Duration
		want fate
	}{
		"B1Stall20":       {"stall", 20 * time.Second, kept},
		"B1Stall28.5":     {"stall", 28500 * time.Millisecond, kept},
		"B3Stall33":       {"stall", 33 * time.Second, zombie},
		"B3Stall40":       {"stall", 40 * time.Second, zombie},
		"B5Reset40":       {"reset", 40 * time.Second, zombie},
		"B6OldDead100":    {"old-dead", 100 * time.Second, zombie},
		"B7CutInCampaign": {"", 40 * time.Second, gone},
		"F1Freeze40":      {"freeze", 40 * time.Second, gone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, setup{lease: lease})
			o := &outage{t: t, clusters: []*cluster{c}, leaders: []*node{c.start()}}
			old := o.leaders[0]
			o.down = clock.BootNS()
			switch k.mode {
			case "":
				old.link("cut-before-query INTO election_leader")
				lasts(k.d)
				old.link("mode pass")
			case "freeze":
				freeze(old, k.d)
			default:
				cut(old, k.mode, k.d)
			}
			o.up = clock.BootNS()
			if f := o.settle(0, patience); f != k.want {
				c.dump()
				t.Errorf("old leader: %s, want %s", f, k.want)
			}
			rep := c.check()
			if overlap := rep.Overlaps > 0; overlap != (k.want != kept) && k.mode != "freeze" {
				t.Errorf("overlaps %d", rep.Overlaps)
			}
			for _, tk := range rep.Takeovers {
				wait := time.Duration(tk.FirstUS-tk.LastRenewalUS) * time.Microsecond
				if wait < lease || wait > lease+1500*time.Millisecond {
					t.Errorf("takeover %v after the last renewal", wait)
				}
			}
		})
	}
}
