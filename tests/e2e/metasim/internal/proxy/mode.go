// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

type mode string

const (
	modePass    mode = "pass"     // all works; what was held is delivered
	modeStall   mode = "stall"    // bytes are held, new connects hang
	modeReset   mode = "reset"    // all connections are reset, new ones at once
	modeOldDead mode = "old-dead" // what exists now is dead for ever, new connects work
	modeDropNew mode = "drop-new" // what exists goes on, new connects hang
	modeRefuse  mode = "refuse"   // as if Postgres were down: all end, new connects are refused
)

func parseMode(s string) (mode, error) {
	switch m := mode(s); m {
	case modePass, modeStall, modeReset, modeOldDead, modeDropNew, modeRefuse:
		return m, nil
	}
	return "", fmt.Errorf("mode %q: use pass, stall, reset, old-dead, drop-new or refuse", s)
}

// reachable says whether new connects get through to the target.
func (m mode) reachable() bool { return m == modePass || m == modeOldDead }

// link is the state of the whole link; each change closes changed, so that waiters look again.
type link struct {
	mu      sync.Mutex
	mode    mode
	epoch   int64 // connections opened before the last old-dead are dead
	latency time.Duration
	loss    float64
	trap    *trap
	changed chan struct{}
}

// trap changes the mode when certain bytes come by.
type trap struct {
	then  mode
	bytes int64  // > 0: after so many more bytes, both directions together
	query []byte // a query with this text comes by
	after bool   // let the query pass, hold its answer
}

func newLink() *link { return &link{mode: modePass, changed: make(chan struct{})} }

func (l *link) update(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn()
	l.wakeLocked()
}

func (l *link) wakeLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) snapshot() (m mode, epoch int64, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mode, l.epoch, l.changed
}

func (l *link) delay() (latency time.Duration, loss float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latency, l.loss
}

// spring checks a chunk against the trap. It returns how many bytes still pass; the mode has changed
// if that is less than all, or if the trap lets the chunk itself pass.
func (l *link) spring(chunk []byte, toServer bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.trap
	if t == nil {
		return len(chunk)
	}
	pass := len(chunk)
	switch {
	case t.query == nil && t.bytes > int64(len(chunk)):
		t.bytes -= int64(len(chunk))
		return pass
	case t.query == nil:
		pass = int(t.bytes)
	case !toServer || !bytes.Contains(chunk, t.query):
		return pass
	case !t.after:
		pass = 0
	}
	l.trap = nil
	l.mode = t.then
	l.wakeLocked()
	return pass
}

// setTrap parses `cut-after N [mode]`, `cut-before-query TEXT`, `cut-before-answer TEXT`.
func (p *Proxy) setTrap(verb, rest string) error {
	t := &trap{then: modeStall}
	if verb != "cut-after" {
		if rest == "" {
			return fmt.Errorf("%s: give the text that the query contains", verb)
		}
		t.query, t.after = []byte(rest), verb == "cut-before-answer"
		p.link.update(func() { p.link.trap = t })
		return nil
	}
	number, then, hasMode := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("cut-after %q: give a number of bytes, 1 or more", number)
	}
	t.bytes = n
	if hasMode {
		if t.then, err = parseMode(then); err != nil {
			return err
		}
	}
	p.link.update(func() { p.link.trap = t })
	return nil
}
