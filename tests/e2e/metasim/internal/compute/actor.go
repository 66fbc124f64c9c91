// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"errors"
	"log"
	"time"

	"metasim/internal/journal"
	"metasim/internal/process"
	"metasim/internal/wire"
)

// The two partitions of each chunk: the first takes long, the second loses a row.
const (
	heavyPartition = 0
	lightPartition = 1

	// partitionRows is how many rows a partition has whose table is there.
	partitionRows = 100
)

// message is what an actor is sent: a barrier, or a chunk if its row is not 0.
type message struct {
	epoch  uint64
	isStop bool
	row    uint64 // of the light partition: the one to delete
}

// actor runs until its Stop barrier or until it is aborted. An abort lands only where the actor gives up its
// thread: when it waits for a message, and when a read finds something.
type actor struct {
	wire.NewActor
	w       *worker
	inbox   chan message
	aborted chan struct{}
	ended   chan struct{}
	cache   map[int]int // rows by partition, as loaded
	isOpen  bool        // its tables
	epoch   uint64      // under the worker's lock
}

const inboxSize = 1 << 12

func (w *worker) newActor(a wire.NewActor) *actor {
	return &actor{
		NewActor: a, w: w, inbox: make(chan message, inboxSize), aborted: make(chan struct{}), ended: make(chan struct{}),
		cache: map[int]int{},
	}
}

var errAborted = errors.New("aborted")

func (a *actor) isAborted() bool { return isClosed(a.aborted) }
func (a *actor) hasEnded() bool  { return isClosed(a.ended) }

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func (a *actor) note(kind string, fields ...journal.Field) {
	a.w.jour.Line(kind, append([]journal.Field{journal.KV("actor", a.ID), journal.KV("fragment", a.Fragment)}, fields...)...)
}

func (a *actor) pauseAt(point string) {
	process.PauseAt(a.w.jour, a.w.opt.pauseDir, point, journal.KV("actor", a.ID), journal.KV("fragment", a.Fragment))
}

func (a *actor) run() {
	defer close(a.ended)
	a.note("actor_began", journal.KV("tables", a.Tables))
	a.pauseAt("actor-build") // nobody counts it before it runs
	a.w.enter(a)
	defer a.w.leave(a)
	for !a.isAborted() {
		select {
		case <-a.aborted:
		case m := <-a.inbox:
			if !a.take(m) {
				return
			}
		}
	}
	time.Sleep(a.w.opt.reset)
	a.note("actor_ended")
}

// take handles one message and says whether the actor goes on.
func (a *actor) take(m message) bool {
	if m.row == 0 {
		if m.isStop {
			a.note("actor_ended") // it reads no more: whoever is told so may remove its tables
		}
		a.w.collected(a, m)
		if m.isStop {
			return false
		}
		a.open()
		return true
	}
	switch err := a.process(m.row); {
	case errors.Is(err, errAborted):
		return true // the loop sees it
	case err != nil:
		log.Printf("ERROR risingwave_stream::executor::actor: actor exit with error actor_id=%d error=%v", a.ID, err)
		a.note("actor_failed", journal.KV("msg", err.Error()))
		a.note("actor_ended")
		a.w.failed(err)
		return false
	}
	a.note("chunk_done", journal.KV("row", m.row))
	return true
}

// open waits, behind the first barrier, until the version has the tables. Without it a node that has not found a new
// leader yet would read nothing of a table which that leader has created.
func (a *actor) open() {
	if a.isOpen {
		return
	}
	for _, table := range a.Tables {
		if found, _ := a.w.store.look(table); !found {
			a.note("table_awaited", journal.KV("table", table))
		}
		if !a.w.store.await(table, a.aborted) {
			return // the loop sees it
		}
	}
	a.isOpen = true
}

// process takes a chunk partition by partition, as OverWindow does: nothing in between looks for an abort.
func (a *actor) process(row uint64) error {
	if err := a.load(heavyPartition); err != nil {
		return err
	}
	a.note("actor_busy", journal.KV("row", row))
	time.Sleep(a.w.opt.busy) // stands for a loop that never yields
	a.pauseAt("actor-busy")
	if err := a.load(lightPartition); err != nil {
		return err
	}
	if a.cache[lightPartition] == 0 {
		a.w.panic("called `Option::unwrap()` on a `None` value: delta_btree_map: delete of row %d in partition %d of table %d, which has no rows",
			row, lightPartition, a.state())
	}
	return nil
}

// state is the table of the partitions.
func (a *actor) state() uint32 { return a.Tables[len(a.Tables)-1] }

// load reads a partition that is not in the cache. A read that finds rows waits for them, and there an abort lands;
// one of a table that is not in the version is over at once, with no rows and without an error.
func (a *actor) load(partition int) error {
	if _, isCached := a.cache[partition]; isCached {
		return nil
	}
	version, found := a.w.store.has(a.state())
	rows := 0
	if found {
		if a.isAborted() {
			return errAborted
		}
		rows = partitionRows
	}
	a.note("read", journal.KV("worker", a.w.id), journal.KV("table", a.state()), journal.KV("partition", partition),
		journal.KV("rows", rows), journal.KV("version", version))
	log.Printf("INFO risingwave_stream::executor::over_window: actor_id=%d loaded partition %d of table %d at version %d: %d rows",
		a.ID, partition, a.state(), version, rows)
	if !found && a.w.opt.isErrorOnRemoved {
		return removedError{a.w.id, a.state(), partition, version}
	}
	a.cache[partition] = rows
	return nil
}
