// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"metasim/internal/wire"
)

// Of GetClusterRecoveryStatus.
const (
	statusStarting   = 1
	statusRecovering = 2
	statusRunning    = 3
)

// barrier is the barrier worker: one task that owns the control streams, the map of active workers and the state
// of the one database. While a global recovery runs it does nothing else.
type barrier struct {
	c        *cluster
	status   atomic.Uint64
	requests chan chan struct{} // Recover; each is closed at the end of its recovery
	streams  *streams
	active   map[uint32]wire.Worker // by id; from a snapshot of a global recovery and local notifications
	changes  chan notification
	db       database
	schedule *schedule
	commits  chan error

	actorsMu sync.Mutex
	actors   []wire.Actor

	failures, databaseFailures atomic.Int64
	committedAt                atomic.Int64 // Unix seconds of the last committed barrier, 0 = none
}

func newBarrier(c *cluster) *barrier {
	b := &barrier{
		c: c, requests: make(chan chan struct{}, 1<<10), active: map[uint32]wire.Worker{},
		streams: newStreams(c, c.node.opt.reconnectLimit), commits: make(chan error, 1), schedule: newSchedule(),
	}
	b.status.Store(statusStarting)
	return b
}

func (b *barrier) run() {
	b.recovery("bootstrap", statusStarting)
	tick := time.NewTicker(time.Second)
	for {
		select {
		case done := <-b.requests:
			b.recovery("adhoc recovery", statusRecovering)
			close(done)
		case n := <-b.changes:
			b.changed(n)
		case ev := <-b.streams.events:
			b.handle(ev)
		case err := <-b.commits:
			b.committed(err)
		case <-b.db.retry:
			b.db.retry = nil
			b.initialize()
		case <-tick.C:
			b.injectNext(true)
		case <-b.schedule.signal:
			b.injectNext(false)
		}
	}
}

// changed applies a local notification. The key is the id: an endpoint may be here twice.
func (b *barrier) changed(n notification) {
	w := n.worker
	if n.deleted {
		if _, known := b.active[w.ID]; known {
			delete(b.active, w.ID)
			b.noteActive()
			b.streams.remove(w.ID)
		}
		return
	}
	old, known := b.active[w.ID]
	isTarget := w.Type == wire.TypeCompute && w.Property != nil && w.Property.IsStreaming
	if !isTarget && !known {
		return
	}
	if known && old.Host != w.Host {
		b.c.abort("assertion `left == right` failed: worker %d moved from %s to %s", w.ID, old.Host, w.Host)
	}
	b.active[w.ID] = w
	b.noteActive()
	b.streams.add(w)
}

func (b *barrier) noteActive() {
	var all []string
	for _, id := range sortedIDs(b.active) {
		all = append(all, fmt.Sprintf("%d@%s", id, b.active[id].Host))
	}
	b.c.jour.Line("active", kv("workers", all))
}

// handle takes news of a stream; what is of a dropped one is dropped.
func (b *barrier) handle(ev streamEvent) {
	if !b.streams.isCurrent(ev) {
		ev.forget()
		return
	}
	id := ev.stream.worker.ID
	switch {
	case ev.connected != nil:
		log.Printf("INFO risingwave_meta::barrier::rpc: reconnected to worker id=%d host=%s", id, ev.stream.worker.Host)
		b.streams.adopt(ev.stream, ev.connected)
	case ev.err != nil:
		b.streams.failed(ev.stream, ev.err, false)
		b.workerFailed(id, ev.err)
	case ev.response.Kind == wire.ResponseShutdown:
		err := fmt.Errorf("worker node %d is shutting down", id)
		b.streams.failed(ev.stream, err, true)
		b.workerFailed(id, err)
	case ev.response.Kind == wire.ResponseFailure:
		b.workerFailed(id, errors.New(ev.response.Error))
	default:
		b.answered(id, ev.response)
	}
}

// failureRecovery is the answer to whatever per-database isolation does not cover.
func (b *barrier) failureRecovery(err error) {
	b.recovery("failed over: "+err.Error(), statusRecovering)
}

// recovery is a global one: it ends when an attempt succeeds. Whoever asks for one meanwhile is answered at its
// end and gets no other.
func (b *barrier) recovery(reason string, status uint64) {
	b.streams.clear()
	b.setActors(nil)
	b.status.Store(status)
	b.schedule.block("The cluster is recovering: " + reason)
	_ = b.drainCommit()
	b.failCommand(errors.New("the cluster is recovering: " + reason))
	b.db.interrupt()
	log.Printf("INFO risingwave_meta::barrier: recovery start! reason=%s", reason)
	b.c.jour.Line("recovery_start", kv("reason", reason))
	backoff := newBackoff()
	for {
		err := b.attempt()
		if err == nil {
			break
		}
		log.Printf("ERROR risingwave_meta::barrier: recovery failed error=%v", err)
		b.c.jour.Line("recovery_failed", kv("msg", err.Error()))
		b.failures.Add(1)
		b.streams.clear()
		time.Sleep(backoff.next())
	}
	for waiting := true; waiting; {
		select {
		case done := <-b.requests:
			close(done)
		default:
			waiting = false
		}
	}
	log.Printf("INFO risingwave_meta::barrier: recovery success")
	b.c.jour.Line("recovery_done", kv("database", b.db.state))
	b.status.Store(statusRunning)
	if b.db.state == dbRunning || b.db.state == dbEmpty {
		b.schedule.ready()
	}
}

// attempt is one try of a global recovery. All of the catalog and of Hummock comes first; only then do the streams
// make the compute nodes end what they run.
func (b *barrier) attempt() error {
	opt := b.c.node.opt
	jobs, err := b.reload()
	if err != nil {
		return err
	}
	b.c.pauseAt("recovery-snapshot")
	b.streams.recover(b.active)
	b.db = newDatabase(jobs)
	if b.isIdle() {
		return nil
	}
	if err := b.collectFirst(); err != nil {
		b.databaseFailures.Add(1)
		if !opt.isolation {
			return fmt.Errorf("global recovery failed due to failure of databases [1]: %w", err)
		}
		b.reset(err)
	}
	return nil
}

// isIdle: without jobs there are no actors and no barriers.
func (b *barrier) isIdle() bool { return b.c.node.opt.jobs == 0 && len(b.db.jobs) == 0 }

// reload cleans the catalog, takes the workers' snapshot, and removes from Hummock what no job has any more.
func (b *barrier) reload() ([]*job, error) {
	if _, err := b.c.cleanDirty(true); err != nil {
		return nil, err
	}
	if err := b.applyDrops(); err != nil {
		return nil, err
	}
	time.Sleep(b.c.node.opt.recovery)
	workers, changes, err := b.c.activeStreaming()
	if err != nil {
		return nil, err
	}
	snapshot := map[uint32]wire.Worker{}
	for _, w := range workers {
		snapshot[w.ID] = w
	}
	old := b.changes
	b.active, b.changes = snapshot, changes
	b.c.unsubscribe(old)
	b.c.jour.Line("recovery_snapshot", kv("workers", sortedIDs(snapshot)))
	b.noteActive()
	// A drop that comes now has changed the catalog already.
	if err := b.applyDrops(); err != nil {
		return nil, err
	}
	jobs, err := b.c.loadJobs()
	if err != nil {
		return nil, err
	}
	kept := b.implicitTables()
	for _, j := range jobs {
		kept = append(kept, j.tables()...)
	}
	b.c.pauseAt("recovery-purge")
	return jobs, b.c.hummock.purge(kept)
}

// applyDrops takes over drops that came during the recovery. They are gone from the queue even if this fails; the next
// purge has their tables. Before v2.8.3 only memory is changed here.
func (b *barrier) applyDrops() error {
	var tables []uint32
	for _, cmd := range b.schedule.takeDrops() {
		b.c.jour.Line("drop_preapplied", kv("job", cmd.job.id))
		tables = append(tables, cmd.job.tables()...)
	}
	if !b.c.isDropOwnTask() {
		return nil
	}
	return b.c.hummock.unregister(tables, "pre-applied")
}

// failCommand ends the command whose barrier a recovery overtook, unless its commit was done.
func (b *barrier) failCommand(cause error) {
	cmd, isDone := b.db.command, b.db.drained
	b.db.command, b.db.drained = nil, false
	switch {
	case cmd == nil:
	case isDone:
		if cmd.kind == commandCreate {
			cmd.job.finished <- cause // what goes on is the job as the catalog has it
		}
		cmd.done <- nil
	default:
		cmd.done <- cause
	}
}

// drainCommit waits for a commit under way.
func (b *barrier) drainCommit() error {
	if !b.db.committing {
		return nil
	}
	b.db.committing = false
	err := <-b.commits
	b.db.drained = err == nil
	return err
}

// collectFirst places the actors, sends the first barrier and waits for all answers.
func (b *barrier) collectFirst() error {
	if err := b.inject(); err != nil {
		return err
	}
	for len(b.db.waiting) > 0 {
		ev := <-b.streams.events
		if !b.streams.isCurrent(ev) {
			ev.forget()
			continue
		}
		id := ev.stream.worker.ID
		switch {
		case ev.connected != nil:
			b.streams.adopt(ev.stream, ev.connected)
		case ev.err != nil || ev.response.Kind == wire.ResponseShutdown:
			err := ev.err
			if err == nil {
				err = fmt.Errorf("worker node %d is shutting down", id)
			}
			b.streams.failed(ev.stream, err, ev.err == nil)
			if b.db.waiting[id] {
				return fmt.Errorf("worker %d: %w", id, err)
			}
		case ev.response.Kind == wire.ResponseFailure:
			return fmt.Errorf("worker %d: %s", id, ev.response.Error)
		case ev.response.Kind == wire.ResponseComplete && ev.response.Epoch == b.db.epoch:
			delete(b.db.waiting, id)
		}
	}
	b.started()
	return nil
}

// backoff is that of recoveries: 20 ms, 400 ms, then 5 s, each times a random part of it.
type backoff struct{ delay time.Duration }

func newBackoff() *backoff { return &backoff{} }

func (b *backoff) next() time.Duration {
	const base, limit = 20, 5 * time.Second
	if b.delay == 0 {
		b.delay = base * time.Millisecond
	} else {
		b.delay = min(b.delay*base, limit)
	}
	return time.Duration(rand.Float64() * float64(b.delay))
}
