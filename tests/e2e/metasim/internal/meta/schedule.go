// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"errors"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type commandKind int

const (
	commandCreate commandKind = iota
	commandDrop               // also CANCEL
	commandReplace
)

// command rides on a barrier.
type command struct {
	kind commandKind
	job  *job
	next *job // of Replace: what the job becomes
	// done gets nil once the barrier was collected and committed, or a recovery has taken a drop over.
	done chan error
}

func newCommand(kind commandKind, j *job) *command {
	return &command{kind: kind, job: j, done: make(chan error, 1)}
}

// schedule is the queue of commands. While the database recovers it takes nothing but drops.
type schedule struct {
	mu      sync.Mutex
	blocked string // why; empty = ready
	queue   []*command
	signal  chan struct{}
}

func newSchedule() *schedule {
	return &schedule{blocked: "The cluster is starting", signal: make(chan struct{}, 1)}
}

func (s *schedule) unavailable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blocked != "" {
		return status.Error(codes.Unavailable, s.blocked)
	}
	return nil
}

// push queues a command; its end is told by done.
func (s *schedule) push(cmd *command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blocked != "" && cmd.kind != commandDrop {
		return status.Error(codes.Unavailable, s.blocked)
	}
	s.queue = append(s.queue, cmd)
	select {
	case s.signal <- struct{}{}:
	default:
	}
	return nil
}

func (s *schedule) pop() *command {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	cmd := s.queue[0]
	s.queue = s.queue[1:]
	return cmd
}

// block fails all that is queued.
func (s *schedule) block(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked = reason
	for _, cmd := range s.queue {
		cmd.done <- errors.New(reason)
	}
	s.queue = nil
}

// takeDrops empties the queue: the drops count as done, and nobody will see them again.
func (s *schedule) takeDrops() (drops []*command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	drops, s.queue = s.queue, nil
	for _, cmd := range drops {
		cmd.done <- nil
	}
	return drops
}

func (s *schedule) ready() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked = ""
}
