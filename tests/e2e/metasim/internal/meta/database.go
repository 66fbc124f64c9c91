// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"errors"
	"fmt"
	"log"
	"maps"
	"slices"
	"time"

	"metasim/internal/schema"
	"metasim/internal/wire"
)

type databaseState string

const (
	dbEmpty        databaseState = "empty" // no streaming jobs
	dbResetting    databaseState = "resetting"
	dbInitializing databaseState = "initializing"
	dbRunning      databaseState = "running"
)

// database is the one database with its streaming jobs: those of the catalog, and the one of --jobs, which is in no
// catalog. Its recovery places the actors on the map of active workers as it is then: that map comes from the last
// global recovery and from notifications.
type database struct {
	state       databaseState
	jobs        map[uint32]*job
	interrupted chan struct{} // closed when a recovery takes the jobs from whoever waits for them
	placement   placement
	waiting     map[uint32]bool // for a barrier or for a reset
	command     *command        // of the barrier under way
	epoch       uint64
	request     uint64 // number of the last reset
	retry       <-chan time.Time
	backoff     *backoff
	isRetrying  bool
	inFlight    bool
	committing  bool
	drained     bool // a recovery waited for the commit, and it was done
}

// placement is the actors of each worker.
type placement map[uint32][]wire.NewActor

const (
	implicitFragment = 1
	implicitTable    = 1
)

var nextActor, nextEpoch uint64 // of the barrier worker's task only

func sortedIDs[V any](m map[uint32]V) []uint32 { return slices.Sorted(maps.Keys(m)) }

func newDatabase(jobs []*job) database {
	db := database{state: dbEmpty, backoff: newBackoff()}
	db.adopt(jobs)
	return db
}

// adopt takes the jobs as the catalog has them.
func (db *database) adopt(jobs []*job) {
	db.jobs, db.interrupted = map[uint32]*job{}, make(chan struct{})
	for _, j := range jobs {
		db.jobs[j.id] = j
	}
}

func (db *database) interrupt() {
	if db.interrupted != nil {
		close(db.interrupted)
		db.interrupted = nil
	}
}

func (b *barrier) implicitTables() []uint32 {
	if b.c.node.opt.jobs == 0 {
		return nil
	}
	return []uint32{implicitTable}
}

func newActor(fragment uint32) wire.NewActor {
	nextActor++
	return wire.NewActor{ID: uint32(nextActor), Fragment: fragment}
}

// place spreads the actors of a job's fragments over the active workers, beginning with the first.
func (b *barrier) place(onto placement, j *job) {
	workers := sortedIDs(b.active)
	for _, f := range j.fragments {
		for k := range j.actors {
			a := newActor(f.id)
			a.Tables, a.Definition = f.tables, j.definition
			worker := workers[k%len(workers)]
			onto[worker] = append(onto[worker], a)
		}
	}
}

// placeImplicit gives each worker as many actors as it wants.
func (b *barrier) placeImplicit(onto placement) {
	for _, id := range sortedIDs(b.active) {
		parallelism := uint32(1)
		if p := b.active[id].Property; p != nil && p.Parallelism > 1 {
			parallelism = p.Parallelism
		}
		for range parallelism {
			onto[id] = append(onto[id], newActor(implicitFragment))
		}
	}
}

// inject places actors on all active workers and sends them the first barrier.
func (b *barrier) inject() error {
	if len(b.active) == 0 {
		return errors.New("no active streaming workers")
	}
	b.db.placement = placement{}
	if b.c.node.opt.jobs > 0 {
		b.placeImplicit(b.db.placement)
	}
	for _, id := range sortedIDs(b.db.jobs) {
		b.place(b.db.placement, b.db.jobs[id])
	}
	if err := b.c.saveActors(b.showActors()); err != nil {
		return err
	}
	return b.send(b.db.placement, nil)
}

// showActors makes the placement what ListActorStates shows.
func (b *barrier) showActors() (actors []wire.Actor) {
	for _, id := range sortedIDs(b.db.placement) {
		for _, a := range b.db.placement[id] {
			actors = append(actors, wire.Actor{ID: a.ID, Fragment: a.Fragment, Worker: id})
		}
	}
	b.setActors(actors)
	return actors
}

// setActors is what ListActorStates shows. A database that failed still shows its last placement.
func (b *barrier) setActors(actors []wire.Actor) {
	b.actorsMu.Lock()
	defer b.actorsMu.Unlock()
	b.actors = actors
}

func (b *barrier) listActors() []wire.Actor {
	b.actorsMu.Lock()
	defer b.actorsMu.Unlock()
	return b.actors
}

// send gives the next barrier to each worker with actors, and with it which to build and which to stop.
func (b *barrier) send(build placement, stop []uint32) error {
	nextEpoch = max(nextEpoch+1, uint64(time.Now().UnixMilli())<<16)
	b.db.epoch, b.db.waiting = nextEpoch, map[uint32]bool{}
	for _, id := range sortedIDs(b.db.placement) {
		if !b.streams.isConnected(id) {
			return fmt.Errorf("unconnected worker node %d", id)
		}
		request := wire.Control{Kind: wire.RequestInject, Epoch: b.db.epoch, Build: build[id], Stop: stop}
		if err := b.streams.byID[id].handle.send(request); err != nil {
			return fmt.Errorf("unconnected worker node %d: %w", id, err)
		}
		b.db.waiting[id] = true
	}
	return nil
}

// reset starts a recovery of the database alone. Only connected workers are asked to reset.
func (b *barrier) reset(cause error) {
	log.Printf("WARN risingwave_meta::barrier: database entering recovery error=%v", cause)
	b.c.jour.Line("database_failed", kv("msg", cause.Error()))
	b.schedule.block("database 1 is recovering: " + cause.Error())
	b.failCommand(fmt.Errorf("database 1 is recovering: %w", cause))
	b.db.interrupt()
	b.db.state, b.db.inFlight, b.db.waiting, b.db.retry = dbResetting, false, map[uint32]bool{}, nil
	b.db.request++
	for _, id := range sortedIDs(b.streams.byID) {
		if !b.streams.isConnected(id) {
			continue
		}
		request := wire.Control{Kind: wire.RequestReset, Number: b.db.request}
		if b.streams.byID[id].handle.send(request) == nil {
			b.db.waiting[id] = true
		}
	}
	b.afterReset()
}

// afterReset waits out the back-off when nobody is asked any more; the first time there is none.
func (b *barrier) afterReset() {
	if len(b.db.waiting) > 0 || b.db.retry != nil {
		return
	}
	delay := time.Duration(0)
	if b.db.isRetrying {
		delay = b.db.backoff.next()
	}
	b.db.isRetrying = true
	b.db.retry = time.After(delay)
}

// initialize loads again what the database runs, and starts it on the workers known now. Unlike in a global recovery
// all that could be asked has been reset by now.
func (b *barrier) initialize() {
	err := b.reloadDatabase()
	if err == nil && b.isIdle() {
		b.db.state, b.db.placement = dbEmpty, nil
		b.schedule.ready()
		return
	}
	if err == nil {
		err = b.inject()
	}
	if err != nil {
		b.databaseFailures.Add(1)
		b.reset(err)
		return
	}
	b.db.state = dbInitializing
}

func (b *barrier) reloadDatabase() error {
	dirty, err := b.c.cleanDirty(false)
	if err != nil {
		return err
	}
	if b.c.release.AtLeast(schema.Head) { // before, these tables stay until the next global recovery
		if err := b.c.hummock.unregister(dirty, "dirty"); err != nil {
			return err
		}
	}
	if err := b.applyDrops(); err != nil {
		return err
	}
	if _, err := b.c.query("SELECT id FROM hummock_version_stats"); err != nil {
		return err
	}
	jobs, err := b.c.loadJobs()
	if err == nil {
		b.db.adopt(jobs)
	}
	return err
}

// started says that all answered the first barrier.
func (b *barrier) started() {
	b.db.state, b.db.isRetrying, b.db.backoff = dbRunning, false, newBackoff()
	b.db.inFlight = false
	b.c.jour.Line("database_running", kv("workers", sortedIDs(b.db.placement)))
	b.schedule.ready()
	for _, id := range sortedIDs(b.db.jobs) {
		if j := b.db.jobs[id]; j.status == statusCreating {
			go b.c.backfill(j, b.db.interrupted)
		}
	}
}

// workerFailed: the database fails with a worker from which it waits for something, or on which it runs.
func (b *barrier) workerFailed(id uint32, err error) {
	switch b.db.state {
	case dbResetting:
		if b.db.waiting[id] {
			delete(b.db.waiting, id)
			b.afterReset()
		}
		return
	case dbInitializing:
		if !b.db.waiting[id] {
			return
		}
	case dbRunning:
		if b.db.placement[id] == nil {
			log.Printf("WARN risingwave_meta::barrier: no barrier to collect from worker, ignore err worker_id=%d", id)
			return
		}
	case dbEmpty:
		return
	}
	err = fmt.Errorf("worker %d: %w", id, err)
	if !b.c.node.opt.isolation {
		b.failureRecovery(err)
		return
	}
	b.databaseFailures.Add(1)
	if commitErr := b.drainCommit(); commitErr != nil {
		b.failureRecovery(commitErr)
		return
	}
	b.reset(err)
}

// answered takes a response of a worker.
func (b *barrier) answered(id uint32, r wire.Control) {
	switch {
	case r.Kind == wire.ResponseReset && b.db.state == dbResetting && r.Number == b.db.request:
		delete(b.db.waiting, id)
		b.afterReset()
	case r.Kind == wire.ResponseComplete && r.Epoch == b.db.epoch && b.db.waiting[id]:
		delete(b.db.waiting, id)
		if len(b.db.waiting) > 0 {
			return
		}
		switch b.db.state {
		case dbInitializing:
			b.started()
		case dbRunning:
			b.commit()
		case dbResetting, dbEmpty:
		}
	}
}
