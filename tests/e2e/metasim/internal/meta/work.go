// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"context"
	"encoding/binary"
	"log"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"metasim/internal/clock"
	"metasim/internal/pool"
)

const insertTick = `INSERT INTO witness_tick (inc, id, tag, pid, n, boot_ns) VALUES ($1, $2, $3, $4, $5, $6)
RETURNING at`

// worker is what acts as leader. Once started nothing but the end of the process stops it.
type worker struct {
	pool         *pool.Pool
	jour         *journal
	inc, id, tag string
	state        atomic.Value // outcome of the latest INSERT: pending, ok, err
}

// write is one tick on its way into the database.
type write struct {
	n, bootNS int64
}

func (n *node) startWork() {
	w := &worker{pool: n.pool, jour: n.jour, inc: n.inc, id: n.opt.advertise, tag: os.Getenv("PGAPPNAME")}
	if n.opt.tick > 0 {
		w.start(n.opt.tick)
	}
	for i := range n.opt.blockPool {
		go w.updateData(i)
	}
}

func (w *worker) start(period time.Duration) {
	w.state.Store("pending")
	writes := make(chan write, 1)
	go w.insertTicks(writes)
	go w.act(period, writes)
}

// act notes each tick in the file: that the process acts does not depend on the database. A tick
// that finds the last INSERT still under way is not written.
func (w *worker) act(period time.Duration, writes chan<- write) {
	tick := time.NewTicker(period)
	for n := int64(1); ; n++ {
		now := clock.BootNS()
		select {
		case writes <- write{n, now}:
		default:
			w.state.Store("pending")
		}
		w.jour.LineAt(now, "tick", kv("n", n), kv("db", w.state.Load()))
		<-tick.C
	}
}

func (w *worker) insertTicks(writes <-chan write) {
	for t := range writes {
		res, err := w.pool.Exec(context.Background(), pool.Statement{
			SQL: insertTick, Format: []int16{1},
			Args: []string{w.inc, w.id, w.tag, strconv.Itoa(os.Getpid()),
				strconv.FormatInt(t.n, 10), strconv.FormatInt(t.bootNS, 10)},
		})
		if err != nil {
			w.state.Store("err")
			w.jour.Line("write", kv("n", t.n), kv("db", "err"), kv("msg", err.Error()))
			continue
		}
		w.state.Store("ok")
		at := int64(binary.BigEndian.Uint64(res.Rows[0][0])) + pgEpochUS
		w.jour.Line("write", kv("n", t.n), kv("db", "ok"), kv("at_us", at))
	}
}

// updateData is a data statement a second; it hangs while somebody holds a lock on the table.
func (w *worker) updateData(k int) {
	for {
		_, err := w.pool.Exec(context.Background(), pool.Statement{
			SQL:  `INSERT INTO metasim_data (k, n) VALUES ($1, 1) ON CONFLICT (k) DO UPDATE SET n = metasim_data.n + 1`,
			Args: []string{strconv.Itoa(k)},
		})
		if err != nil {
			log.Printf("WARN metasim::data: %v", err)
		}
		time.Sleep(time.Second)
	}
}
