// SPDX-License-Identifier: Apache-2.0

// Package journal writes witness files: what a process of the tests did, by the one clock that all share.
package journal

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"

	"metasim/internal/clock"
)

// Journal appends one line an event to the witness file: `boot_ns kind key=value…`. Each line is one
// write, so that several processes may share a file and a kill never leaves half a line of another.
type Journal struct {
	mu     sync.Mutex
	file   *os.File
	suffix string
}

// Field is one key=value of a line.
type Field struct {
	key   string
	value any
}

// KV makes a field; any value that fmt can print.
func KV(key string, value any) Field { return Field{key, value} }

// NewIncarnation names one that begins.
func NewIncarnation() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Open opens path for appending; an empty path discards. inc names the incarnation and is
// shared by all processes of it.
func Open(path, id, tag, inc string) (*Journal, error) {
	j := &Journal{suffix: fmt.Sprintf(" pid=%d inc=%s id=%s tag=%s\n", os.Getpid(), inc, quote(id), quote(tag))}
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

// Line notes an event of now.
func (j *Journal) Line(kind string, fields ...Field) {
	j.LineAt(clock.BootNS(), kind, fields...)
}

// LineAt notes an event of an earlier moment (CLOCK_BOOTTIME, ns).
func (j *Journal) LineAt(bootNS int64, kind string, fields ...Field) {
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
