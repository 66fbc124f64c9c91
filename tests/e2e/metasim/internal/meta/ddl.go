// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"metasim/internal/schema"
	"metasim/internal/wire"
)

// isDropOwnTask: since v2.8.3 the task of the DDL takes the tables of a dropped job out of Hummock; before, that was
// part of completing its barrier.
func (c *cluster) isDropOwnTask() bool { return c.release.AtLeast(schema.V28) }

// answerCreate is CREATE MATERIALIZED VIEW; a foreground one is answered at the end of its backfill.
func (c *cluster) answerCreate(_ context.Context, in []byte) ([]byte, error) {
	r, err := wire.DecodeCreateRequest(in)
	switch {
	case err != nil:
		return nil, badRequest(err)
	case r.Name == "" || r.Actors == 0:
		return nil, status.Error(codes.InvalidArgument, "Invalid parameter: a job needs a name and actors")
	}
	if err := c.barrier.schedule.unavailable(); err != nil {
		return nil, err
	}
	j := &job{
		name: r.Name, definition: "CREATE MATERIALIZED VIEW " + r.Name + " AS SELECT …", status: statusInitial,
		createType: foreground, actors: int(r.Actors), finished: make(chan error, 1),
	}
	if r.IsBackground {
		j.createType = background
	}
	if err := c.insertJob(j, 0); err != nil {
		return nil, sqlError(err)
	}
	c.jour.Line("create_committed", kv("job", j.id), kv("fragments", j.fragmentIDs()), kv("tables", j.tables()))
	c.pauseAt("create-committed", kv("job", j.id))
	if err := c.run(newCommand(commandCreate, j)); err != nil {
		return nil, status.Errorf(codes.Internal, "create job %d: %v", j.id, err)
	}
	if !r.IsBackground {
		if err := <-j.finished; err != nil {
			return nil, status.Errorf(codes.Internal, "create job %d: %v", j.id, err)
		}
	}
	return wire.CreateResponse{Job: j.id, Fragments: j.fragmentIDs(), Tables: j.tables()}.Encode(), nil
}

// backfill ends a CREATE, unless a recovery came in between: that begins it anew.
func (c *cluster) backfill(j *job, interrupted <-chan struct{}) {
	c.pauseAt("create-backfill", kv("job", j.id))
	select {
	case <-interrupted:
		j.finished <- errors.New("interrupted by a recovery")
		return
	default:
	}
	err := c.setStatus(j.id, statusCreated)
	if err != nil {
		log.Printf("ERROR risingwave_meta::stream: stream job interrupted, will retry after recovery id=%d error=%v", j.id, err)
	} else {
		c.jour.Line("job_created", kv("job", j.id))
	}
	j.finished <- err
}

// run queues a command and waits for its end.
func (c *cluster) run(cmd *command) error {
	if err := c.barrier.schedule.push(cmd); err != nil {
		return err
	}
	c.jour.Line("command_queued", kv("job", cmd.job.id))
	return <-cmd.done
}

func jobID(in []byte) (uint32, error) {
	id, err := wire.Number(in, 1)
	if err != nil {
		return 0, badRequest(err)
	}
	return uint32(id), nil
}

// answerDrop tells its caller nothing of what fails once the catalog is changed.
func (c *cluster) answerDrop(_ context.Context, in []byte) ([]byte, error) {
	id, err := jobID(in)
	if err != nil {
		return nil, err
	}
	j, err := c.deleteJob(id)
	if err != nil {
		return nil, err
	}
	_ = c.drop(j)
	return nil, nil
}

// drop is what follows the catalog's change: it waits behind a barrier, then the tables go.
func (c *cluster) drop(j *job) error {
	c.jour.Line("drop_committed", kv("job", j.id), kv("fragments", j.fragmentIDs()), kv("tables", j.tables()))
	c.notifyFrontends()
	c.pauseAt("drop-committed", kv("job", j.id))
	err := c.run(newCommand(commandDrop, j))
	if err == nil && c.isDropOwnTask() {
		c.pauseAt("drop-collected", kv("job", j.id))
		err = c.hummock.unregister(j.tables(), "drop")
	}
	if err != nil {
		log.Printf("ERROR risingwave_meta::stream::stream_manager: failed to run drop command error=%v", err)
		c.jour.Line("drop_failed", kv("job", j.id), kv("msg", err.Error()))
		return err
	}
	c.jour.Line("drop_done", kv("job", j.id))
	return nil
}

// answerCancel takes jobs that are not CREATED by their ids, and tells of an error that came after the catalog's change.
func (c *cluster) answerCancel(_ context.Context, in []byte) ([]byte, error) {
	ids, err := wire.DecodeCancelRequest(in)
	if err != nil {
		return nil, badRequest(err)
	}
	jobs, err := c.loadJobs()
	if err != nil {
		return nil, sqlError(err)
	}
	var out []byte
	for _, j := range jobs {
		if j.status == statusCreated || !slices.Contains(ids, j.id) {
			continue
		}
		if _, err := c.deleteJob(j.id); err != nil {
			return nil, err
		}
		if err := c.drop(j); err != nil {
			return nil, status.Errorf(codes.Internal, "cancel job %d: %v", j.id, err)
		}
		out = protowire.AppendVarint(out, uint64(j.id))
	}
	if len(out) == 0 {
		return nil, nil
	}
	return wire.Bytes(nil, 2, out), nil
}

// answerReplace is ALTER: new fragments with a new internal table take the place of the job's.
func (c *cluster) answerReplace(_ context.Context, in []byte) ([]byte, error) {
	id, err := jobID(in)
	if err != nil {
		return nil, err
	}
	if err := c.barrier.schedule.unavailable(); err != nil {
		return nil, err
	}
	jobs, err := c.loadJobs()
	if err != nil {
		return nil, sqlError(err)
	}
	for _, j := range jobs {
		if j.id != id || j.status != statusCreated {
			continue
		}
		next := &job{name: j.name, definition: j.definition, status: statusInitial, createType: foreground, actors: j.actors}
		if err := c.insertJob(next, j.id); err != nil {
			return nil, sqlError(err)
		}
		c.jour.Line("replace_committed", kv("job", j.id), kv("by", next.id), kv("tables", next.tables()))
		cmd := newCommand(commandReplace, j)
		cmd.next = next
		if err := c.run(cmd); err != nil {
			return nil, status.Errorf(codes.Internal, "replace job %d: %v", id, err)
		}
		return nil, nil
	}
	return nil, status.Errorf(codes.NotFound, "catalog id not found: streaming job %d", id)
}

// postCollect is what completing a command's barrier does after the commit. An error is one of the barrier.
func (c *cluster) postCollect(cmd *command) error {
	switch {
	case cmd == nil:
	case cmd.kind == commandCreate:
		return c.setStatus(cmd.job.id, statusCreating)
	case cmd.kind == commandDrop && !c.isDropOwnTask():
		return c.hummock.unregister(cmd.job.tables(), "post-collect")
	case cmd.kind == commandReplace:
		if err := c.finishReplace(cmd.job, cmd.next); err != nil {
			return fmt.Errorf("replace job %d: %w", cmd.job.id, err)
		}
		return c.hummock.unregister(cmd.job.fragments[0].tables, "replace")
	}
	return nil
}
