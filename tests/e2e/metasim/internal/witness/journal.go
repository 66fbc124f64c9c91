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

// line is one parsed line of a witness file.
type line struct {
	boot   int64
	kind   string
	fields map[string]string
}

func parseLine(s string) (line, error) {
	words, err := splitWords(s)
	if err != nil || len(words) < 2 {
		return line{}, fmt.Errorf("not `boot_ns kind key=value…`: %q", s)
	}
	boot, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		return line{}, fmt.Errorf("boot_ns %q: %w", words[0], err)
	}
	l := line{boot: boot, kind: words[1], fields: map[string]string{}}
	for _, w := range words[2:] {
		k, v, ok := strings.Cut(w, "=")
		if !ok {
			return line{}, fmt.Errorf("field %q has no value", w)
		}
		if strings.HasPrefix(v, `"`) {
			if v, err = strconv.Unquote(v); err != nil {
				return line{}, fmt.Errorf("field %q: %w", w, err)
			}
		}
		l.fields[k] = v
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
		l, err := parseLine(sc.Text())
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if l.boot < since {
			continue
		}
		i := all[l.fields["inc"]]
		if i == nil {
			pid, _ := strconv.Atoi(l.fields["pid"])
			i = &Incarnation{
				Inc: l.fields["inc"], ID: l.fields["id"], Tag: l.fields["tag"], PID: pid, start: l.boot,
				minOffset: minInt64, maxOffset: maxInt64, tickOf: map[string]int64{},
			}
			all[i.Inc] = i
		}
		i.add(l, by)
	}
	return sc.Err()
}

func (i *Incarnation) add(l line, by map[int64]*Incarnation) {
	i.end = max(i.end, l.boot)
	switch l.kind {
	case "tick":
		i.ticks = append(i.ticks, l.boot)
		i.tickOf[l.fields["pid"]+"/"+l.fields["n"]] = l.boot
	case "renew":
		if hb, err := strconv.ParseInt(l.fields["hb_us"], 10, 64); err == nil && hb != 0 {
			by[hb] = i
		}
	case "write":
		at, err := strconv.ParseInt(l.fields["at_us"], 10, 64)
		sent, known := i.tickOf[l.fields["pid"]+"/"+l.fields["n"]]
		if err != nil || !known {
			return
		}
		i.minOffset = max(i.minOffset, at-l.boot/1000-1)
		i.maxOffset = min(i.maxOffset, at-sent/1000+1)
	}
}
