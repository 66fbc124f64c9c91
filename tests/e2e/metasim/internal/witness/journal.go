// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"bufio"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
)

// Incarnation is one meta process, or one with the daemons that it left.
type Incarnation struct {
	Inc   string `json:"inc"`
	ID    string `json:"id"`
	Tag   string `json:"tag"`
	PID   int    `json:"pid"`
	start int64
	end   int64   // last line
	ticks []int64 // boot ns, ascending
	// bounds of the offset of the database's clock, from its own stamps
	minOffset, maxOffset int64
	tickOf               map[string]int64 // n -> boot ns
	renewed              []int64          // heartbeats in us, as the log knows them
}

// Line is one parsed line of a witness file.
type Line struct {
	Boot   int64
	Kind   string
	Fields map[string]string
}

// ParseLine parses one line; the error quotes it.
func ParseLine(s string) (Line, error) {
	words, err := splitWords(s)
	if err != nil || len(words) < 2 {
		return Line{}, fmt.Errorf("not `boot_ns kind key=value…`: %q", s)
	}
	boot, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		return Line{}, fmt.Errorf("boot_ns %q: %w", words[0], err)
	}
	l := Line{Boot: boot, Kind: words[1], Fields: map[string]string{}}
	for _, w := range words[2:] {
		k, v, ok := strings.Cut(w, "=")
		if !ok {
			return Line{}, fmt.Errorf("field %q has no value", w)
		}
		if strings.HasPrefix(v, `"`) {
			if v, err = strconv.Unquote(v); err != nil {
				return Line{}, fmt.Errorf("field %q: %w", w, err)
			}
		}
		l.Fields[k] = v
	}
	return l, nil
}

// splitWords splits at spaces outside double quotes.
func splitWords(s string) ([]string, error) {
	var words []string
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimLeft(s, " ") {
		end := 0
		for end < len(s) && s[end] != ' ' {
			if s[end] != '"' {
				end++
				continue
			}
			q, err := strconv.QuotedPrefix(s[end:])
			if err != nil {
				return nil, err
			}
			end += len(q)
		}
		words = append(words, s[:end])
		s = s[end:]
	}
	return words, nil
}

// readFiles groups the lines of all files by incarnation; by tells who renewed with which heartbeat.
func readFiles(paths []string, since int64) (incs []*Incarnation, by map[int64]*Incarnation, err error) {
	all := map[string]*Incarnation{}
	by = map[int64]*Incarnation{}
	for _, path := range paths {
		if err := readFile(path, since, all, by); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, i := range all {
		sort.Slice(i.ticks, func(a, b int) bool { return i.ticks[a] < i.ticks[b] })
		incs = append(incs, i)
	}
	sort.Slice(incs, func(a, b int) bool { return incs[a].start < incs[b].start })
	return incs, by, nil
}

func readFile(path string, since int64, all map[string]*Incarnation, by map[int64]*Incarnation) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for n := 1; sc.Scan(); n++ {
		l, err := ParseLine(sc.Text())
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if l.Boot < since {
			continue
		}
		i := all[l.Fields["inc"]]
		if i == nil {
			pid, _ := strconv.Atoi(l.Fields["pid"])
			i = &Incarnation{
				Inc: l.Fields["inc"], ID: l.Fields["id"], Tag: l.Fields["tag"], PID: pid, start: l.Boot,
				minOffset: minInt64, maxOffset: maxInt64, tickOf: map[string]int64{},
			}
			all[i.Inc] = i
		}
		i.add(l, by)
	}
	return sc.Err()
}

func (i *Incarnation) add(l Line, by map[int64]*Incarnation) {
	i.end = max(i.end, l.Boot)
	switch l.Kind {
	case "tick":
		i.ticks = append(i.ticks, l.Boot)
		i.tickOf[l.Fields["pid"]+"/"+l.Fields["n"]] = l.Boot
	case "renew":
		if hb, err := strconv.ParseInt(l.Fields["hb_us"], 10, 64); err == nil && hb != 0 {
			by[hb] = i
		}
	case "write":
		at, err := strconv.ParseInt(l.Fields["at_us"], 10, 64)
		sent, known := i.tickOf[l.Fields["pid"]+"/"+l.Fields["n"]]
		if err != nil || !known {
			return
		}
		i.minOffset = max(i.minOffset, at-l.Boot/1000-1)
		i.maxOffset = min(i.maxOffset, at-sent/1000+1)
	}
}
