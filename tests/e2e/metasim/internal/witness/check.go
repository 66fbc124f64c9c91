// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"context"
	"encoding/json"
	"sort"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Report is what `witness check` prints. Times named _ms are relative, _us are the database's clock.
type Report struct {
	Overlaps int `json:"overlaps"` // ticks of an old leader after its last renewal + ttl, or of an old twin
	// LateTicks are ticks after the own last renewal + ttl, whether or not another took over.
	LateTicks  int `json:"late_ticks"`
	LateWrites int `json:"late_writes"` // the same for rows of witness_tick
	TwinTicks  int `json:"twin_ticks"`  // ticks of an incarnation after the first tick of a later one with its id
	// TicksAfterSuccessor counts ticks of an old leader after its successor's first renewal, also
	// inside the lease (a deleted row).
	TicksAfterSuccessor int           `json:"ticks_after_successor"`
	Ticks               int           `json:"ticks"`
	UnknownTicks        int           `json:"unknown_ticks"` // by incarnations of which the log knows no renewal
	UnknownRenewals     int           `json:"unknown_renewals"`
	Renewals            int           `json:"renewals"`
	WorstMarginMS       *float64      `json:"worst_margin_ms"` // smallest margin of the expired takeovers
	OffsetUS            int64         `json:"offset_us"`
	UncertaintyUS       int64         `json:"uncertainty_us"`
	Takeovers           []Takeover    `json:"takeovers"`
	Twins               []Twin        `json:"twins"`
	Incarnations        []Incarnation `json:"incarnations"`
}

// String is the JSON, on one line.
func (r Report) String() string {
	b, err := json.Marshal(r)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Takeover is one move of the row from one incarnation to another.
type Takeover struct {
	FromInc string `json:"from_inc"`
	FromID  string `json:"from_id"`
	ToInc   string `json:"to_inc"`
	ToID    string `json:"to_id"`
	// Kind is expired (after the lease), released (before its end) or same-id.
	Kind          string `json:"kind"`
	LastRenewalUS int64  `json:"last_renewal_us"`
	ExpiryUS      int64  `json:"expiry_us"`
	FirstUS       int64  `json:"successor_first_renewal_us"`
	LastTickBoot  int64  `json:"old_last_tick_boot_ns"` // 0: it never ticked
	// MarginMS is how long before the expiry the old leader's last tick was; negative is an overlap.
	MarginMS float64 `json:"margin_ms"`
	// BeforeSuccessorMS is the same against the successor's first renewal.
	BeforeSuccessorMS   float64 `json:"before_successor_ms"`
	OverlapTicks        int     `json:"overlap_ticks"`
	LateWrites          int     `json:"late_writes"`
	TicksAfterSuccessor int     `json:"ticks_after_successor"`
	WritesAfter         int     `json:"writes_after_successor"`
}

// Twin is a pair of incarnations with one id.
type Twin struct {
	ID         string `json:"id"`
	OldInc     string `json:"old_inc"`
	NewInc     string `json:"new_inc"`
	TicksAfter int    `json:"old_ticks_after_new_first"`
}

// Check compares the files with the database. It fails if it can't tell, never guesses.
func Check(ctx context.Context, c *pgx.Conn, ttl time.Duration, sinceNS int64, files []string) (Report, error) {
	off, err := measureOffset(ctx, c)
	if err != nil {
		return Report{}, err
	}
	incs, noted, err := readFiles(files, sinceNS)
	if err != nil {
		return Report{}, err
	}
	if err := off.plausible(incs); err != nil {
		return Report{}, err
	}
	sinceUS := int64(0)
	if sinceNS > 0 {
		sinceUS = off.toDB(sinceNS)
	}
	log, err := readRenewals(ctx, c, sinceUS)
	if err != nil {
		return Report{}, err
	}
	writes, err := readWrites(ctx, c)
	if err != nil {
		return Report{}, err
	}
	r := run{off: off, ttlUS: ttl.Microseconds(), incs: incs, log: log, writes: writes}
	return r.judge(noted), nil
}

// run is the evidence of one run.
type run struct {
	off    offset
	ttlUS  int64
	incs   []*Incarnation
	log    []renewal
	writes map[string][]int64
}

func (r *run) judge(noted map[int64]*Incarnation) Report {
	rep := Report{
		OffsetUS: r.off.us, UncertaintyUS: r.off.uncertaintyUS, Renewals: len(r.log),
		Takeovers: []Takeover{}, Twins: []Twin{},
	}
	rep.UnknownRenewals = attribute(r.log, r.incs, noted, r.off)
	for _, i := range r.incs {
		r.countTicks(i, &rep)
		rep.Incarnations = append(rep.Incarnations, *i)
	}
	r.findTakeovers(&rep)
	r.findTwins(&rep)
	rep.Overlaps += rep.TwinTicks
	return rep
}

// countTicks sorts the ticks of one incarnation into covered, late and unknown ones.
func (r *run) countTicks(i *Incarnation, rep *Report) {
	rep.Ticks += len(i.ticks)
	if len(i.renewed) == 0 {
		rep.UnknownTicks += len(i.ticks)
		return
	}
	for _, boot := range i.ticks {
		at := r.off.toDB(boot)
		last, _ := lastBefore(i.renewed, at)
		if at-r.off.uncertaintyUS <= last+r.ttlUS {
			continue
		}
		rep.LateTicks++
		if r.succeeded(i, last) {
			rep.Overlaps++
		}
	}
	for _, at := range r.writes[i.Inc] {
		if last, _ := lastBefore(i.renewed, at); at > last+r.ttlUS {
			rep.LateWrites++
		}
	}
}

// lastBefore returns the latest of the ascending times that is not after at, else the first one.
func lastBefore(times []int64, at int64) (int64, bool) {
	k := sort.Search(len(times), func(k int) bool { return times[k] > at })
	if k == 0 {
		return times[0], false
	}
	return times[k-1], true
}

// succeeded says whether another incarnation renewed after this one's renewal at last.
func (r *run) succeeded(i *Incarnation, last int64) bool {
	for k := range r.log {
		if by := r.log[k].by; by != nil && by != i && r.log[k].heartbeatUS > last {
			return true
		}
	}
	return false
}

func (r *run) findTakeovers(rep *Report) {
	var prev *renewal
	twins := map[[2]string]bool{} // two that both renew alternate for ever: one entry is enough
	for k := range r.log {
		cur := &r.log[k]
		if cur.by == nil {
			continue
		}
		if prev != nil && prev.by != cur.by {
			t := r.takeover(prev, cur)
			pair := [2]string{t.FromInc, t.ToInc}
			prev = cur
			if twins[pair] {
				continue
			}
			twins[pair] = t.Kind == "same-id"
			rep.TicksAfterSuccessor += t.TicksAfterSuccessor
			rep.Takeovers = append(rep.Takeovers, t)
			if t.Kind == "expired" && t.LastTickBoot != 0 && (rep.WorstMarginMS == nil || t.MarginMS < *rep.WorstMarginMS) {
				margin := t.MarginMS
				rep.WorstMarginMS = &margin
			}
		}
		prev = cur
	}
}

// takeover judges one move: what the old one did until its own next renewal, if any.
func (r *run) takeover(old, first *renewal) Takeover {
	o := old.by
	t := Takeover{
		FromInc: o.Inc, FromID: o.ID, ToInc: first.by.Inc, ToID: first.by.ID,
		LastRenewalUS: old.heartbeatUS, ExpiryUS: old.heartbeatUS + r.ttlUS, FirstUS: first.heartbeatUS,
	}
	switch {
	case strings.EqualFold(o.ID, first.by.ID):
		t.Kind = "same-id"
	case first.heartbeatUS < t.ExpiryUS:
		t.Kind = "released"
	default:
		t.Kind = "expired"
	}
	until := nextAfter(o.renewed, old.heartbeatUS)
	for _, boot := range o.ticks {
		at := r.off.toDB(boot)
		if at >= until {
			break
		}
		t.LastTickBoot = boot
		if at-r.off.uncertaintyUS > t.ExpiryUS {
			t.OverlapTicks++
		}
		if at-r.off.uncertaintyUS > t.FirstUS {
			t.TicksAfterSuccessor++
		}
	}
	for _, at := range r.writes[o.Inc] {
		if at < until && at > t.ExpiryUS {
			t.LateWrites++
		}
		if at < until && at > t.FirstUS {
			t.WritesAfter++
		}
	}
	if t.LastTickBoot != 0 {
		t.MarginMS = float64(t.ExpiryUS-r.off.toDB(t.LastTickBoot)) / 1000
		t.BeforeSuccessorMS = float64(t.FirstUS-r.off.toDB(t.LastTickBoot)) / 1000
	}
	return t
}

func nextAfter(times []int64, at int64) int64 {
	for _, t := range times {
		if t > at {
			return t
		}
	}
	return maxInt64
}

// findTwins compares incarnations with one id: once the later one has acted, the earlier must not.
func (r *run) findTwins(rep *Report) {
	for a, old := range r.incs {
		for _, next := range r.incs[a+1:] {
			if !strings.EqualFold(old.ID, next.ID) || len(next.ticks) == 0 {
				continue
			}
			first := next.ticks[0]
			k := sort.Search(len(old.ticks), func(k int) bool { return old.ticks[k] > first })
			if after := len(old.ticks) - k; after > 0 {
				rep.Twins = append(rep.Twins, Twin{ID: old.ID, OldInc: old.Inc, NewInc: next.Inc, TicksAfter: after})
				rep.TwinTicks += after
			}
		}
	}
}
