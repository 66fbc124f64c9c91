// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"metasim/internal/pool"
	"metasim/internal/schema"
)

const createWork = `CREATE TABLE IF NOT EXISTS witness_tick (seq bigint GENERATED ALWAYS AS IDENTITY,
    inc text, id text, tag text, pid int, n bigint, boot_ns bigint, at timestamptz DEFAULT clock_timestamp())`

const createData = `CREATE TABLE IF NOT EXISTS metasim_data (k int PRIMARY KEY, n bigint NOT NULL)`

// leaderPhase is init, then leader services until shutdown. Init looks at nothing but itself.
func (n *node) leaderPhase(stop chan struct{}, stopped <-chan struct{}) {
	log.Printf("INFO risingwave_meta_node::server: starting leader services")
	n.jour.Line("init_begin")
	if err := n.migrate(); err != nil {
		log.Printf("ERROR risingwave_meta_node::server: leader init failed: %v", err)
		close(stop) // resigns, if this round still believes in its leadership
		<-stopped
		n.panic("leader init: %v", err)
	}
	n.startWork()
	if n.cluster != nil {
		n.cluster.start()
	}
	time.Sleep(n.opt.init)

	n.serveHTTP(n.opt.prometheus, n.metricsHandler())
	n.serveHTTP(n.opt.dashboard, http.HandlerFunc(dashboard))
	if n.cluster != nil {
		go n.cluster.checkHeartbeats()
	}
	lis := n.listen(n.opt.listen)
	server := n.leaderServer(time.Now())
	go func() { _ = server.Serve(lis) }()
	n.jour.Line("leader_up")
	log.Printf("INFO risingwave_meta_node::server: leader services started")
	if n.opt.doubleFork {
		n.leaveChild(lis)
	}
	<-n.shutdown.Done()
	server.Stop()
	n.jour.Line("services_down")
}

// migrate creates the leader's own tables, and the catalog if there is a registry: only leaders do.
func (n *node) migrate() error {
	for _, sql := range []string{createWork, createData, createCheckpoint} {
		if _, err := n.pool.Exec(context.Background(), pool.Statement{SQL: sql}); err != nil {
			return err
		}
	}
	if n.opt.release == "" {
		return nil
	}
	if err := n.migrateCatalog(); err != nil {
		return err
	}
	c, err := n.newCluster()
	n.cluster = c
	return err
}

func (n *node) migrateCatalog() error {
	c, err := n.pool.Acquire(context.Background())
	if err != nil {
		return err
	}
	defer n.pool.Release(c)
	return schema.Apply(n.opt.release, func(sql string) ([]string, error) {
		res, err := c.Exec(pool.Statement{SQL: sql})
		var column []string
		for _, row := range res.Rows {
			column = append(column, string(row[0]))
		}
		return column, err
	})
}

func (n *node) serveHTTP(addr string, h http.Handler) {
	if addr == "" {
		return
	}
	lis := n.listen(addr)
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func(l net.Listener) { _ = srv.Serve(l) }(lis)
}

// metricsHandler answers every path, as the original does.
func (n *node) metricsHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = fmt.Fprintf(w, "# TYPE meta_num gauge\nmeta_num{worker_addr=%q,role=\"leader\"} 1\n", n.opt.advertise)
		if n.cluster == nil {
			return
		}
		b := n.cluster.barrier
		_, _ = fmt.Fprintf(w, "# TYPE recovery_failure_cnt counter\n"+
			"recovery_failure_cnt{recovery_type=\"global\"} %d\nrecovery_failure_cnt{recovery_type=\"database 1\"} %d\n"+
			"# TYPE last_committed_barrier_time gauge\nlast_committed_barrier_time{database_id=\"1\"} %d\n",
			b.failures.Load(), b.databaseFailures.Load(), b.committedAt.Load())
	})
}

func dashboard(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/api/version" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"version":"metasim"}`))
}
