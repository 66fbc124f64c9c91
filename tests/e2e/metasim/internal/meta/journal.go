// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"metasim/internal/clock"
)

// journal appends one line an event to the witness file: `boot_ns kind key=value…`. Each line is one
// write, so that several processes may share a file and a kill never leaves half a line of another.
type journal struct {
	mu     sync.Mutex
	file   *os.File
	suffix string
}

type field struct {
	key   string
	value any
}

func kv(key string, value any) field { return field{key, value} }

// openJournal opens path for appending; an empty path discards. inc names the incarnation and is
// shared by all processes of it.
func openJournal(path, id, tag, inc string) (*journal, error) {
	j := &journal{suffix: fmt.Sprintf(" pid=%d inc=%s id=%s tag=%s\n", os.Getpid(), inc, quote(id), quote(tag))}
	if path == "" {
		return j, nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--witness: %w", err)
	}
	j.file = f
	return j, nil
}

func (j *journal) line(kind string, fields ...field) {
	j.lineAt(clock.BootNS(), kind, fields...)
}

func (j *journal) lineAt(bootNS int64, kind string, fields ...field) {
	if j.file == nil {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", bootNS, kind)
	for _, f := range fields {
		fmt.Fprintf(&b, " %s=%s", f.key, quote(fmt.Sprint(f.value)))
	}
	b.WriteString(j.suffix)
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _ = j.file.WriteString(b.String()) // a full disk must not stop the fault under test
}

// quote keeps a value in one word: spaces, quotes and controls only inside a Go-quoted string.
func quote(s string) string {
	if s == "" || strings.ContainsAny(s, " \t\n\r\"=\\") {
		return fmt.Sprintf("%q", s)
	}
	return s
}
