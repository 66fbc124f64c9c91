// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseLine(t *testing.T) {
	t.Parallel()
	l, err := ParseLine(`12 err msg="a \"b\" c=d" pid=7 inc=ab id=h:1 tag=""` + "\n")
	if err != nil || l.Boot != 12 || l.Kind != "err" || l.Fields["msg"] != `a "b" c=d` || l.Fields["tag"] != "" || l.Fields["pid"] != "7" {
		t.Errorf("%+v, %v", l, err)
	}
	for _, bad := range []string{"", "x", "12", "x tick n=1", `12 tick n`, `12 tick n="a`, "12 tick \x00"} {
		if _, err := ParseLine(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// scene makes evidence with boot clock = database clock, ttl 5 s; times in seconds.
type scene struct {
	run
	noted map[int64]*Incarnation
}

func newScene() *scene {
	return &scene{run: run{ttlUS: 5_000_000, writes: map[string][]int64{}}, noted: map[int64]*Incarnation{}}
}

func (s *scene) meta(inc, id string, ticks ...float64) *Incarnation {
	i := &Incarnation{Inc: inc, ID: id}
	for _, t := range ticks {
		i.ticks = append(i.ticks, int64(t*1e9))
	}
	if len(i.ticks) > 0 {
		i.start, i.end = i.ticks[0], i.ticks[len(i.ticks)-1]
	}
	s.incs = append(s.incs, i)
	return i
}

func (s *scene) renew(i *Incarnation, at ...float64) {
	for _, t := range at {
		us := int64(t * 1e6)
		s.log = append(s.log, renewal{id: i.ID, tag: i.Tag, heartbeatUS: us})
		s.noted[us] = i
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	type want struct {
		overlaps, late, after, twins int
		margin                       float64
		kinds                        string
	}
	for name, c := range map[string]struct {
		set  func(s *scene)
		want want
	}{
		"dead in time": {func(s *scene) {
			s.renew(s.meta("a", "A", 1, 2, 5.5), 1, 2)
			s.renew(s.meta("b", "B", 7.2), 7.1)
		}, want{margin: 1500, kinds: "expired"}},
		"one tick at the expiry is not late": {func(s *scene) {
			s.renew(s.meta("a", "A", 7), 2)
			s.renew(s.meta("b", "B", 7.2), 7.1)
		}, want{margin: 0, kinds: "expired"}},
		"one tick after it is": {func(s *scene) {
			s.renew(s.meta("a", "A", 2, 7.001), 2)
			s.renew(s.meta("b", "B", 7.2), 7.1)
		}, want{overlaps: 1, late: 1, margin: -1, kinds: "expired"}},
		"late but nobody took over": {func(s *scene) {
			s.renew(s.meta("a", "A", 2, 8, 10), 2, 9)
		}, want{late: 1}},
		"zombie that wins again": {func(s *scene) {
			a := s.meta("a", "A", 2, 8, 9, 20)
			s.renew(a, 2)
			s.renew(s.meta("b", "B", 7.2), 7.1)
			s.renew(a, 18)
		}, want{overlaps: 2, late: 2, after: 2, margin: -2000, kinds: "expired expired"}},
		"row deleted": {func(s *scene) {
			s.renew(s.meta("a", "A", 2, 3.4), 2)
			s.renew(s.meta("b", "B", 3.3), 3)
		}, want{after: 1, kinds: "released"}},
		"restart with the same id": {func(s *scene) {
			s.renew(s.meta("a", "A", 2, 3), 2)
			s.renew(s.meta("b", "a", 4.1, 5), 4)
		}, want{kinds: "same-id"}},
		"twins": {func(s *scene) {
			a, b := s.meta("a", "A", 2, 3, 4, 5), s.meta("b", "A", 3.5, 4.5)
			s.renew(a, 2)
			s.renew(b, 3.4)
			s.renew(a, 3.6)
			s.renew(b, 4.4)
		}, want{overlaps: 2, twins: 2, after: 0, kinds: "same-id same-id"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene()
			c.set(s)
			rep := s.judge(s.noted)
			var kinds []string
			for _, k := range rep.Takeovers {
				kinds = append(kinds, k.Kind)
			}
			got := want{rep.Overlaps, rep.LateTicks, rep.TicksAfterSuccessor, rep.TwinTicks, 0, strings.Join(kinds, " ")}
			if rep.WorstMarginMS != nil {
				got.margin = *rep.WorstMarginMS
			}
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestAttribute(t *testing.T) {
	t.Parallel()
	s := newScene()
	a := s.meta("a", "A", 1, 9)
	a.Tag = "tag-a"
	b := s.meta("b", "B", 1, 9)
	s.log = []renewal{
		{id: "A", tag: "tag-a", heartbeatUS: 2_000_000}, // by its tag: the line was lost in the kill
		{id: "B", heartbeatUS: 3_000_000},               // by its id and life
		{id: "C", heartbeatUS: 4_000_000},               // nobody's
		{id: "B", heartbeatUS: 99_000_000},              // b was long gone
		{id: "B", tag: "tag-a", heartbeatUS: 5_000_000}, // the tag counts more than the id
	}
	if unknown := attribute(s.log, s.incs, nil, offset{}); unknown != 2 {
		t.Errorf("%d unknown, want 2", unknown)
	}
	if len(a.renewed) != 2 || len(b.renewed) != 1 {
		t.Errorf("a %v, b %v", a.renewed, b.renewed)
	}
}

func TestPlausible(t *testing.T) {
	t.Parallel()
	i := &Incarnation{Inc: "a", minOffset: 1_000_000, maxOffset: 1_000_100}
	silent := &Incarnation{Inc: "b", minOffset: minInt64, maxOffset: maxInt64}
	for us, want := range map[int64]bool{1_000_050: true, 1_040_000: true, 1_060_000: false, 940_000: false} {
		if err := (offset{us: us}).plausible([]*Incarnation{silent, i}); (err == nil) != want {
			t.Errorf("offset %d: %v", us, err)
		}
	}
}

func TestDamagedFileIsNamed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "w")
	if err := os.WriteFile(path, []byte("1 start pid=1 inc=a id=x tag=\"\"\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readFiles([]string{path}, 0); err == nil || !strings.Contains(err.Error(), path+": line 2") {
		t.Errorf("error %v, want file and line", err)
	}
}
