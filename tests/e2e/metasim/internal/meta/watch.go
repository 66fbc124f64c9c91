// SPDX-License-Identifier: Apache-2.0

package meta

import "sync"

// watch holds the latest value and a version: a reader that is late misses what was in between.
type watch struct {
	mu      sync.Mutex
	value   bool
	changed chan struct{}
}

func newWatch() *watch { return &watch{changed: make(chan struct{})} }

func (w *watch) send(v bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.value = v
	close(w.changed)
	w.changed = make(chan struct{})
}

// borrow returns the value and a channel that closes at the next send.
func (w *watch) borrow() (bool, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.value, w.changed
}
