// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"metasim/internal/pool"
	"metasim/internal/process"
	"metasim/internal/schema"
	"metasim/internal/wire"
)

// maxTransactionIDs is how many compute nodes and frontends may be registered at once.
const maxTransactionIDs = 1024

// cluster is the leader's registry of workers. The rows are in SQL, but which ids exist, when they expire and
// which transaction ids are free is known only from one look at the rows at init and from what this process
// did since: nothing tells it what another process does to the rows.
type cluster struct {
	node     *node
	pool     *pool.Pool
	jour     *journal
	release  schema.Release
	id       string
	started  uint64
	versions *versions
	hummock  *hummock
	barrier  *barrier

	mu    sync.RWMutex // held over the SQL statements too, as in the original: a slow one holds up heartbeats
	extra map[uint32]*extraInfo
	free  []int64 // transaction ids

	subscribers struct {
		sync.Mutex
		all []chan<- notification
	}
}

// extraInfo is what is known of a worker in memory only. Times are Unix seconds by the local clock, 0 = not set.
type extraInfo struct {
	expireAt  int64
	startedAt uint64
	resource  *wire.Resource
}

// notification goes to subscribers in this process only.
type notification struct {
	deleted bool
	worker  wire.Worker
}

// newCluster loads the snapshot. It is the only moment at which memory and rows are surely the same.
func (n *node) newCluster() (*cluster, error) {
	c := &cluster{
		node: n, pool: n.pool, jour: n.jour, release: n.opt.release, extra: map[uint32]*extraInfo{},
		started: uint64(time.Now().Unix()),
	}
	res, err := c.query("SELECT cluster_id FROM cluster")
	if err != nil {
		return nil, err
	}
	if len(res.Rows) != 1 {
		return nil, fmt.Errorf("table cluster has %d rows, want 1", len(res.Rows))
	}
	c.id = string(res.Rows[0][0])
	if c.versions, err = c.loadVersions(); err != nil {
		return nil, err
	}
	if err := c.load(); err != nil {
		return nil, err
	}
	if c.hummock, err = c.loadHummock(); err != nil {
		return nil, err
	}
	c.barrier = newBarrier(c)
	return c, c.resetRefreshJobs()
}

func (c *cluster) load() error {
	res, err := c.query("SELECT worker_id, transaction_id FROM worker")
	if err != nil {
		return err
	}
	used := map[int64]bool{}
	var ids []uint32
	for _, row := range res.Rows {
		id := number(row[0])
		c.extra[uint32(id)] = &extraInfo{}
		ids = append(ids, uint32(id))
		if row[1] != nil {
			used[number(row[1])] = true
		}
	}
	for id := range int64(maxTransactionIDs) {
		if !used[id] {
			c.free = append(c.free, id)
		}
	}
	c.jour.Line("registry_loaded", kv("ids", ids))
	c.pauseAt("registry-loaded")
	return nil
}

func (c *cluster) start() {
	go c.barrier.run()
}

func (c *cluster) query(sql string, args ...string) (pool.Result, error) {
	return c.pool.Exec(context.Background(), pool.Statement{SQL: sql, Args: args})
}

// notify reaches whoever subscribed in this process.
func (c *cluster) notify(n notification) {
	c.subscribers.Lock()
	defer c.subscribers.Unlock()
	for _, ch := range c.subscribers.all {
		ch <- n
	}
}

// subscribe must be called under the registry's lock, so that nothing is lost between a list and the first
// notification. The capacity stands for the original's unbounded channel.
func (c *cluster) subscribe() chan notification {
	ch := make(chan notification, 1<<16)
	c.subscribers.Lock()
	defer c.subscribers.Unlock()
	c.subscribers.all = append(c.subscribers.all, ch)
	return ch
}

func (c *cluster) unsubscribe(ch chan notification) {
	c.subscribers.Lock()
	defer c.subscribers.Unlock()
	for i, s := range c.subscribers.all {
		if s == ch {
			c.subscribers.all = append(c.subscribers.all[:i:i], c.subscribers.all[i+1:]...)
			return
		}
	}
}

// abort is a panic of the original: its hook aborts the process, so nothing else happens after it.
func (c *cluster) abort(format string, args ...any) {
	c.jour.Line("abort", kv("why", fmt.Sprintf(format, args...)))
	c.node.panic(format, args...)
}

// pauseAt stops the calling task while the file --pause-dir/point exists.
func (c *cluster) pauseAt(point string, fields ...field) {
	process.PauseAt(c.jour, c.node.opt.pauseDir, point, fields...)
}

// number reads a column that Postgres wrote as text.
func number(column []byte) int64 {
	v, err := strconv.ParseInt(string(column), 10, 64)
	if err != nil {
		panic("not an integer of Postgres: " + strconv.Quote(string(column)))
	}
	return v
}

func text(v any) string { return fmt.Sprint(v) }
