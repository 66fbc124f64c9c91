// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"metasim/internal/pool"
	"metasim/internal/schema"
	"metasim/internal/wire"
)

var typeNames = map[uint32]string{
	wire.TypeFrontend: "FRONTEND", wire.TypeCompute: "COMPUTE_NODE", wire.TypeRiseCtl: "RISE_CTL",
	wire.TypeCompactor: "COMPACTOR", wire.TypeMeta: "META",
}

func typeNumber(name string) uint32 {
	for n, s := range typeNames {
		if s == name {
			return n
		}
	}
	return 0
}

func isNotified(workerType uint32) bool {
	return workerType == wire.TypeCompute || workerType == wire.TypeFrontend
}

func invalidWorker(id uint32) error {
	return status.Errorf(codes.Internal, "Invalid worker: %d, worker not found", id)
}

func sqlError(err error) error { return status.Errorf(codes.Internal, "SQL: %v", err) }

// add registers a worker; an endpoint that has a row keeps its id.
func (c *cluster) add(r wire.AddRequest) (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tx, err := c.pool.Begin(context.Background())
	if err != nil {
		return 0, sqlError(err)
	}
	// HEAD and v3.0 read the whole rows; names are given, since columns differ by release.
	res, err := tx.Exec(pool.Statement{
		SQL: `SELECT w.worker_id, w.worker_type, p.worker_id, p.parallelism FROM worker AS w
LEFT JOIN worker_property AS p ON p.worker_id = w.worker_id WHERE w.host = $1 AND w.port = $2 LIMIT 1`,
		Args: []string{r.Host.Host, text(r.Host.Port)},
	})
	if err != nil {
		tx.Rollback()
		return 0, sqlError(err)
	}
	if len(res.Rows) > 0 {
		return c.addAgain(tx, r, res.Rows[0])
	}
	return c.addNew(tx, r)
}

// addAgain: the row is changed and committed before anybody asks whether memory knows the id.
func (c *cluster) addAgain(tx *pool.Tx, r wire.AddRequest, row [][]byte) (uint32, error) {
	id := uint32(number(row[0]))
	if string(row[1]) != typeNames[r.Type] {
		c.abort("assertion `left == right` failed: worker %d is %s, registered as %s", id, row[1], typeNames[r.Type])
	}
	switch {
	case r.Type == wire.TypeCompute:
		if row[2] == nil {
			c.abort("called `Option::unwrap()` on a `None` value: worker %d has no property", id)
		}
		if err := c.updateProperty(tx, id, r); err != nil {
			tx.Rollback()
			return 0, sqlError(err)
		}
	case r.Type == wire.TypeFrontend && row[2] == nil:
		if err := c.insertProperty(tx, id, r); err != nil {
			tx.Rollback()
			return 0, sqlError(err)
		}
	default:
		tx.Rollback()
		return id, c.reset(id, r)
	}
	if err := tx.Commit(); err != nil {
		return 0, sqlError(err)
	}
	return id, c.reset(id, r)
}

// reset renews what memory holds of a worker that registered again.
func (c *cluster) reset(id uint32, r wire.AddRequest) error {
	info := c.extra[id]
	if info == nil {
		c.jour.Line("worker_unknown", kv("worker", id), kv("host", r.Host), kv("in", "register"))
		return invalidWorker(id)
	}
	c.renew(info)
	info.resource, info.startedAt = &r.Resource, uint64(time.Now().Unix())
	c.jour.Line("worker_added", kv("worker", id), kv("host", r.Host), kv("reused", true))
	return nil
}

func (c *cluster) renew(info *extraInfo) {
	info.expireAt = max(info.expireAt, time.Now().Add(c.node.opt.maxHeartbeat).Unix())
}

func (c *cluster) updateProperty(tx *pool.Tx, id uint32, r wire.AddRequest) error {
	set := "is_streaming = $2, is_serving = $3, parallelism = $4, resource_group = $5"
	p := r.Property
	args := []string{text(id), text(p.IsStreaming), text(p.IsServing), text(p.Parallelism), group(p)}
	if c.release.AtLeast(schema.V28) {
		set += ", is_iceberg_compactor = $6"
		args = append(args, text(p.IsIcebergCompactor))
	}
	if c.release.AtLeast(schema.Head) {
		set += ", resource = $7, started_at = $8"
		args = append(args, bytea(r.Resource), text(time.Now().Unix()))
	}
	res, err := tx.Exec(pool.Statement{SQL: "UPDATE worker_property SET " + set + " WHERE worker_id = $1", Args: args})
	if err == nil && res.Tag == "UPDATE 0" {
		err = fmt.Errorf("RecordNotUpdated: None of the records are updated")
	}
	return err
}

func group(p *wire.Property) string {
	if p.ResourceGroup == "" {
		return "default"
	}
	return p.ResourceGroup
}

func bytea(r wire.Resource) string { return `\x` + hex.EncodeToString(r.Encode()) }

func (c *cluster) insertProperty(tx *pool.Tx, id uint32, r wire.AddRequest) error {
	columns := "worker_id, parallelism, is_streaming, is_serving, is_unschedulable, internal_rpc_host_addr, resource_group"
	values := "$1, $2, $3, $4, $5, $6, $7"
	p := r.Property
	args := []string{text(id), text(p.Parallelism), text(p.IsStreaming), text(p.IsServing), text(p.IsUnschedulable),
		p.InternalHost, group(p)}
	if c.release.AtLeast(schema.V28) {
		columns, values = columns+", is_iceberg_compactor", values+", $8"
		args = append(args, text(p.IsIcebergCompactor))
	}
	if c.release.AtLeast(schema.Head) {
		columns, values = columns+", resource, started_at", values+", $9, $10"
		args = append(args, bytea(r.Resource), text(time.Now().Unix()))
	}
	_, err := tx.Exec(pool.Statement{
		SQL: "INSERT INTO worker_property (" + columns + ") VALUES (" + values + ")", Args: args,
	})
	return err
}

func (c *cluster) addNew(tx *pool.Tx, r wire.AddRequest) (uint32, error) {
	if len(c.free) == 0 { // for any type, though only two get one
		tx.Rollback()
		return 0, status.Error(codes.Unavailable, "no available reusable machine id")
	}
	columns, values := "worker_type, host, port, status", "$1, $2, $3, 'STARTING'"
	args := []string{typeNames[r.Type], r.Host.Host, text(r.Host.Port)}
	transaction := int64(-1)
	if isNotified(r.Type) {
		transaction = c.free[0]
		columns, values, args = columns+", transaction_id", values+", $4", append(args, text(transaction))
	}
	res, err := tx.Exec(pool.Statement{
		SQL: "INSERT INTO worker (" + columns + ") VALUES (" + values + ") RETURNING worker_id", Args: args,
	})
	if err != nil {
		tx.Rollback()
		return 0, sqlError(err)
	}
	id := uint32(number(res.Rows[0][0]))
	if isNotified(r.Type) {
		if err := c.insertProperty(tx, id, r); err != nil {
			tx.Rollback()
			return 0, sqlError(err)
		}
	}
	c.pauseAt("register-inserted", kv("worker", id))
	if err := tx.Commit(); err != nil {
		return 0, sqlError(err)
	}
	c.free = slices.DeleteFunc(c.free, func(t int64) bool { return t == transaction })
	c.extra[id] = &extraInfo{startedAt: uint64(time.Now().Unix()), resource: &r.Resource}
	c.jour.Line("worker_added", kv("worker", id), kv("host", r.Host), kv("reused", false))
	return id, nil
}

const selectWorker = `SELECT w.worker_id, w.worker_type, w.host, w.port, w.status, w.transaction_id, p.worker_id,
 p.parallelism, p.is_streaming, p.is_serving, p.is_unschedulable, p.internal_rpc_host_addr, p.resource_group
 FROM worker AS w LEFT JOIN worker_property AS p ON p.worker_id = w.worker_id`

// scan makes a worker of a row of selectWorker; info is nil if memory does not know it.
func scan(row [][]byte, info *extraInfo) wire.Worker {
	w := wire.Worker{
		ID: uint32(number(row[0])), Type: typeNumber(string(row[1])), State: wire.StateStarting, TransactionID: -1,
		Host: wire.Host{Host: string(row[2]), Port: int32(number(row[3]))},
	}
	if string(row[4]) == "RUNNING" {
		w.State = wire.StateRunning
	}
	if row[5] != nil {
		w.TransactionID = number(row[5])
	}
	if row[6] != nil {
		is := func(i int) bool { return string(row[i]) == "t" }
		w.Property = &wire.Property{
			IsStreaming: is(8), IsServing: is(9), IsUnschedulable: is(10),
			InternalHost: string(row[11]), ResourceGroup: string(row[12]),
		}
		if row[7] != nil {
			w.Property.Parallelism = uint32(number(row[7]))
		}
	}
	if info != nil {
		w.Resource, w.StartedAt = info.resource, info.startedAt
	}
	return w
}

// activate tells everybody that the worker runs.
func (c *cluster) activate(id uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	res, err := c.query("UPDATE worker SET status = 'RUNNING' WHERE worker_id = $1", text(id))
	if err != nil {
		return sqlError(err)
	}
	if res.Tag == "UPDATE 0" {
		return status.Error(codes.Internal, "SQL: RecordNotUpdated: None of the records are updated")
	}
	if res, err = c.query(selectWorker+" WHERE w.worker_id = $1", text(id)); err != nil {
		return sqlError(err)
	}
	info := c.extra[id]
	if info == nil || len(res.Rows) == 0 {
		c.jour.Line("worker_unknown", kv("worker", id), kv("in", "activate"))
		return invalidWorker(id)
	}
	w := scan(res.Rows[0], info)
	c.jour.Line("worker_activated", kv("worker", id), kv("host", w.Host))
	if isNotified(w.Type) {
		c.notifyFrontends()
	}
	c.notify(notification{worker: w})
	return nil
}

// remove deletes the row of an endpoint, whatever its id is by now.
func (c *cluster) remove(host wire.Host, by string) (wire.Worker, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	notFound := status.Error(codes.InvalidArgument, "Invalid parameter: worker not found!")
	res, err := c.query(selectWorker+" WHERE w.host = $1 AND w.port = $2 LIMIT 1", host.Host, text(host.Port))
	if err != nil {
		return wire.Worker{}, sqlError(err)
	}
	if len(res.Rows) == 0 {
		return wire.Worker{}, notFound
	}
	w := scan(res.Rows[0], nil)
	c.pauseAt("delete-selected", kv("worker", w.ID))
	if res, err = c.query("DELETE FROM worker WHERE worker_id = $1", text(w.ID)); err != nil {
		return w, sqlError(err)
	}
	if res.Tag == "DELETE 0" {
		return w, notFound
	}
	c.jour.Line("worker_deleted", kv("worker", w.ID), kv("host", host), kv("by", by))
	c.pauseAt("delete-done", kv("worker", w.ID))
	if c.extra[w.ID] == nil {
		c.abort("called `Option::unwrap()` on a `None` value: worker %d was deleted, but memory does not know it", w.ID)
	}
	delete(c.extra, w.ID)
	if w.TransactionID >= 0 {
		c.free = append(c.free, w.TransactionID)
	}
	if isNotified(w.Type) {
		c.notifyFrontends()
	}
	c.notify(notification{deleted: true, worker: w})
	go c.hummock.release(w.ID)
	return w, nil
}

// heartbeat never touches SQL; it waits for whoever does under the lock.
func (c *cluster) heartbeat(id uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	info := c.extra[id]
	if info == nil {
		c.jour.Line("worker_unknown", kv("worker", id), kv("in", "heartbeat"))
		return false
	}
	c.renew(info)
	return true
}

// list reads SQL. Up to v3.0.3 a row that memory does not know aborts the process.
func (c *cluster) list(condition string) ([]wire.Worker, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.listLocked(condition)
}

func (c *cluster) listLocked(condition string) ([]wire.Worker, error) {
	res, err := c.query(selectWorker + " WHERE " + condition)
	if err != nil {
		return nil, err
	}
	var all []wire.Worker
	for _, row := range res.Rows {
		id := uint32(number(row[0]))
		info := c.extra[id]
		if info == nil && !c.release.AtLeast(schema.Head) {
			c.abort("called `Result::unwrap()` on an `Err` value: Invalid worker: %d, worker not found", id)
		}
		all = append(all, scan(row, info))
	}
	return all, nil
}

// activeStreaming is the snapshot for a global recovery, and the subscription to what changes after it.
func (c *cluster) activeStreaming() ([]wire.Worker, chan notification, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all, err := c.listLocked("w.worker_type = 'COMPUTE_NODE' AND w.status = 'RUNNING' AND p.is_streaming")
	if err != nil {
		return nil, nil, err
	}
	return all, c.subscribe(), nil
}
