// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"metasim/internal/wire"
)

// storage is the version of Hummock that the meta pushed last. A read never says that a table is not in it.
type storage struct {
	mu      sync.Mutex
	version wire.HummockVersion
	changed chan struct{} // closed with the next version
}

func newStorage() *storage { return &storage{changed: make(chan struct{})} }

// take applies a message of the subscription and returns the tables that are gone since.
func (s *storage) take(message []byte) (version uint64, removed []uint32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	removed, err = s.version.Take(message)
	close(s.changed)
	s.changed = make(chan struct{})
	return s.version.ID, removed, err
}

// await waits for a version with the table: one that is not in it counts as not yet created. It says false if stop
// comes first.
func (s *storage) await(table uint32, stop <-chan struct{}) bool {
	for {
		found, changed := s.look(table)
		if found {
			return true
		}
		select {
		case <-changed:
		case <-stop:
			return false
		}
	}
}

func (s *storage) look(table uint32) (found bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found = s.version.Tables[table]
	return found, s.changed
}

// has says whether the version that a read sees now has the table.
func (s *storage) has(table uint32) (version uint64, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found = s.version.Tables[table]
	return s.version.ID, found
}

func (s *storage) describe() (version uint64, tables []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version.ID, slices.Sorted(maps.Keys(s.version.Tables))
}

// removedError is what --read-removed=error makes of a read of a table that is gone.
type removedError struct {
	worker, table uint32
	partition     int
	version       uint64
}

func (e removedError) Error() string {
	return fmt.Sprintf("worker %d: read of partition %d of table %d: version %d does not have the table",
		e.worker, e.partition, e.table, e.version)
}
