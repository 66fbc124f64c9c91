// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"errors"
	"slices"
	"time"

	"metasim/internal/wire"
)

// injectNext is the periodic barrier, or one that a command does not wait a second for.
func (b *barrier) injectNext(isPeriodic bool) {
	if b.db.inFlight || b.db.state != dbRunning && b.db.state != dbEmpty {
		return
	}
	cmd := b.schedule.pop()
	if cmd == nil && (!isPeriodic || b.db.state == dbEmpty) {
		return
	}
	build, stop, err := b.apply(cmd)
	if err != nil || len(b.db.placement) == 0 {
		if cmd != nil { // nobody runs what it is about
			cmd.done <- err
		}
		return
	}
	b.db.state, b.db.inFlight, b.db.command = dbRunning, true, cmd
	if err := b.send(build, stop); err != nil {
		if !b.c.node.opt.isolation {
			b.failureRecovery(err)
			return
		}
		b.databaseFailures.Add(1)
		b.reset(err)
	}
}

// apply says what a command builds and stops; what is built counts as placed from now on.
func (b *barrier) apply(cmd *command) (build placement, stop []uint32, err error) {
	build = placement{}
	if cmd == nil {
		return build, nil, nil
	}
	if cmd.kind != commandDrop {
		if len(b.active) == 0 {
			return nil, nil, errors.New("no active streaming workers")
		}
		built := cmd.job
		if cmd.kind == commandReplace {
			built = cmd.next
		}
		b.place(build, built)
	}
	if cmd.kind != commandCreate {
		stop = b.actorsOf(cmd.job)
	}
	for id, actors := range build {
		b.db.placement = ensured(b.db.placement)
		b.db.placement[id] = append(slices.Clone(b.db.placement[id]), actors...)
	}
	b.showActors()
	return build, stop, nil
}

func ensured(p placement) placement {
	if p == nil {
		return placement{}
	}
	return p
}

// actorsOf are the actors of a job's fragments.
func (b *barrier) actorsOf(j *job) (ids []uint32) {
	fragments := j.fragmentIDs()
	for _, actors := range b.db.placement {
		for _, a := range actors {
			if slices.Contains(fragments, a.Fragment) {
				ids = append(ids, a.ID)
			}
		}
	}
	return ids
}

func (b *barrier) commit() {
	b.db.committing = true
	cmd, epoch, workers, tables, actors := b.db.command, b.db.epoch, sortedIDs(b.db.placement), b.committedTables(), b.listActors()
	go func() {
		err := b.c.hummock.commit(epoch, workers, tables)
		if err == nil {
			err = b.c.postCollect(cmd)
		}
		if err == nil && cmd != nil && cmd.kind != commandDrop {
			err = b.c.saveActors(actors)
		}
		b.commits <- err
	}()
}

// committedTables are those of all jobs that run, also of one that is on its way.
func (b *barrier) committedTables() []uint32 {
	tables := b.implicitTables()
	for _, j := range b.db.jobs {
		tables = append(tables, j.tables()...)
	}
	if cmd := b.db.command; cmd != nil && cmd.kind == commandCreate {
		tables = append(tables, cmd.job.tables()...)
	} else if cmd != nil && cmd.kind == commandReplace {
		tables = append(tables, cmd.next.tables()...)
	}
	return tables
}

// committed: an error here is always a global recovery.
func (b *barrier) committed(err error) {
	if !b.db.committing {
		return // of a task that a recovery waited for
	}
	b.db.committing, b.db.inFlight = false, false
	if err != nil {
		b.c.jour.Line("commit_failed", kv("msg", err.Error()))
		b.failureRecovery(err)
		return
	}
	b.committedAt.Store(time.Now().Unix())
	if cmd := b.db.command; cmd != nil {
		b.db.command = nil
		b.finish(cmd)
		cmd.done <- nil
	}
	b.injectNext(false)
}

// finish makes a command's barrier, which is committed, the state of the database.
func (b *barrier) finish(cmd *command) {
	if cmd.kind == commandCreate {
		cmd.job.status = statusCreating
		b.db.jobs[cmd.job.id] = cmd.job
		go b.c.backfill(cmd.job, b.db.interrupted)
		return
	}
	stopped := b.actorsOf(cmd.job)
	for id, actors := range b.db.placement {
		rest := slices.DeleteFunc(slices.Clone(actors), func(a wire.NewActor) bool { return slices.Contains(stopped, a.ID) })
		if b.db.placement[id] = rest; len(rest) == 0 {
			delete(b.db.placement, id)
		}
	}
	b.showActors()
	delete(b.db.jobs, cmd.job.id)
	if cmd.kind == commandReplace {
		now := *cmd.job
		now.fragments = cmd.next.fragments
		b.db.jobs[now.id] = &now
	}
	if len(b.db.placement) == 0 {
		b.db.state = dbEmpty
	}
}
