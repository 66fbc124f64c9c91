// SPDX-License-Identifier: Apache-2.0

// Package meta is the stand-in for a RisingWave meta node: its election, its pool, its ports, its
// exits, faults included.
package meta

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"metasim/internal/clock"
	base "metasim/internal/journal"
	"metasim/internal/pool"
	"metasim/internal/process"
)

// node is one meta process.
type node struct {
	opt      *options
	inc      string
	jour     *journal
	pool     *pool.Pool
	election *election
	cluster  *cluster // only of a leader with --workers
	// shutdown is the process-wide token: TERM, or leadership lost.
	shutdown context.Context
	cancel   context.CancelFunc
}

// Main runs `metasim meta-node` and returns the exit status, if it returns.
func Main(args []string) int {
	o, err := parseOptions(args, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "metasim meta-node:", err)
		return 2
	}
	inc := os.Getenv(envChild)
	isChild := taken(envChild)
	if !isChild {
		if code, done := wrap(o); done {
			return code
		}
		inc = base.NewIncarnation()
	}
	j, err := base.Open(o.witness, o.advertise, os.Getenv("PGAPPNAME"), inc)
	if err != nil {
		fmt.Fprintln(os.Stderr, "metasim meta-node:", err)
		return 2
	}
	if isChild {
		return childMain(o, j, inc)
	}
	n := &node{opt: o, inc: inc, jour: j}
	n.shutdown, n.cancel = context.WithCancel(context.Background())
	n.run()
	process.Exit(j, 0)
	return 0
}

// run returns when the process is to exit with 0.
func (n *node) run() {
	n.jour.Line("start", kv("listen", n.opt.listen))
	n.handleSignals()
	time.Sleep(n.opt.slowStart)
	n.connect()
	stop, stopped := make(chan struct{}), make(chan struct{})
	n.waitPhase()
	go n.election.run(stop, n.cancel, stopped)
	if !n.followerPhase() {
		return
	}
	n.leaderPhase(stop, stopped)
	close(stop)
	<-stopped
}

// connectPool opens the pool. A failure is a panic of the original.
func (n *node) connectPool() {
	cfg, err := n.opt.pgConfig()
	if err != nil {
		n.panic("connect to meta store: %v", err)
	}
	p, err := pool.Open(context.Background(), pool.Options{
		Max: n.opt.poolMax, Min: n.opt.poolMin, Acquire: n.opt.acquire, Idle: n.opt.idle, Config: cfg,
	})
	if err != nil {
		n.panic("connect to meta store: %v", err)
	}
	n.pool = p
}

// connect also creates the election's tables.
func (n *node) connect() {
	n.connectPool()
	n.election = &election{
		id: n.opt.advertise, ttl: n.opt.lease, tie: n.opt.tie, driver: driver{n.pool}, watch: newWatch(), jour: n.jour,
	}
	log.Printf("INFO risingwave_meta::rpc::election::sql: initializing database for Sql backend election client")
	if err := n.election.driver.initDatabase(context.Background()); err != nil {
		n.panic("init election database: %v", err)
	}
}

func (n *node) panic(format string, args ...any) {
	log.Printf("panic: "+format, args...)
	process.Abort(n.jour)
}

// handleSignals: the first TERM or INT cancels the token, a second INT ends at once with 1.
func (n *node) handleSignals() {
	if n.opt.ignoreTerm {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		return
	}
	ch := make(chan os.Signal, 4)
	signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		first := <-ch
		log.Printf("INFO risingwave_rt: received %s, shutting down...", signalName(first))
		n.jour.Line("signal", kv("name", signalName(first)))
		n.cancel()
		for s := range ch {
			if s == syscall.SIGINT {
				process.Exit(n.jour, 1)
			}
		}
	}()
}

func signalName(s os.Signal) string {
	if s == syscall.SIGINT {
		return "ctrl-c"
	}
	return "SIGTERM"
}

// waitPhase delays the first campaign to the wanted phase of the second.
func (n *node) waitPhase() {
	if n.opt.phaseMS < 0 {
		return
	}
	now := clock.BootNS() % int64(time.Second)
	wait := int64(n.opt.phaseMS)*int64(time.Millisecond) - now
	if wait < 0 {
		wait += int64(time.Second)
	}
	time.Sleep(time.Duration(wait))
}

func (o *options) pgConfig() (*pgconn.Config, error) {
	if os.Getenv("PGSSLMODE") == "" { // pgconn's "prefer" connects twice, the original's only once
		if err := os.Setenv("PGSSLMODE", "disable"); err != nil {
			return nil, err
		}
	}
	cfg, err := pgconn.ParseConfig("")
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(o.sqlEndpoint)
	if err != nil {
		return nil, err
	}
	portNumber, err := net.LookupPort("tcp", port)
	if err != nil {
		return nil, err
	}
	cfg.Host, cfg.Port = host, uint16(portNumber)
	if o.sqlUser != "" {
		cfg.User = o.sqlUser
	}
	if o.sqlPassword != "" {
		cfg.Password = o.sqlPassword
	}
	if o.sqlDatabase != "" {
		cfg.Database = o.sqlDatabase
	}
	for name, value := range map[string]string{
		"DateStyle": "ISO, MDY", "client_encoding": "UTF8", "TimeZone": "UTC", "extra_float_digits": "2",
	} {
		cfg.RuntimeParams[name] = value
	}
	return cfg, nil
}
