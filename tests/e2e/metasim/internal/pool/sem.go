// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"container/list"
	"context"
	"sync"
)

// sem is a fair counting semaphore: waiters are served in the order in which they came.
type sem struct {
	mu      sync.Mutex
	free    int
	waiters list.List
}

func newSem(n int) *sem { return &sem{free: n} }

func (s *sem) acquire(ctx context.Context) error {
	s.mu.Lock()
	if s.free > 0 && s.waiters.Len() == 0 {
		s.free--
		s.mu.Unlock()
		return nil
	}
	ready := make(chan struct{})
	el := s.waiters.PushBack(ready)
	s.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-ready: // granted in the same instant: hand it on
		s.releaseLocked()
	default:
		s.waiters.Remove(el)
	}
	return ctx.Err()
}

func (s *sem) tryAcquire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 || s.waiters.Len() > 0 {
		return false
	}
	s.free--
	return true
}

func (s *sem) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked()
}

func (s *sem) releaseLocked() {
	if el := s.waiters.Front(); el != nil {
		s.waiters.Remove(el)
		close(el.Value.(chan struct{}))
		return
	}
	s.free++
}
