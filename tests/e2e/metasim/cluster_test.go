// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"metasim/internal/clock"
	"metasim/internal/proxy"
	"metasim/internal/witness"
)

const (
	ttl = 5 * time.Second
	// patience is for things that take milliseconds on an idle machine.
	patience = 10 * time.Second
	grain    = 20 * time.Millisecond
)

// setup of a cluster; the zero value is three nodes at ttl 5 s with an acquire time-out of 5 s: their
// relation is that of the defaults.
type setup struct {
	nodes   int
	lease   time.Duration
	acquire time.Duration
	flags   []string
	env     []string
	phases  []int // of each node's campaigns, ms of the second
	pg      *postgres
}

// cluster is some nodes, each behind a proxy of its own, in a database of their own.
type cluster struct {
	t     *testing.T
	setup setup
	db    string
	conn  *pgx.Conn
	nodes []*node
	dir   string
	// computes are nodes too; their index goes on after that of the metas
	computes []*node
}

func newCluster(t *testing.T, s setup) *cluster {
	t.Helper()
	if s.nodes == 0 {
		s.nodes = 3
	}
	if s.lease == 0 {
		s.lease = ttl
	}
	if s.acquire == 0 {
		s.acquire = s.lease
	}
	if s.pg == nil {
		s.pg = shared
	}
	c := &cluster{t: t, setup: s, dir: t.TempDir(), db: s.pg.database(t, t.Name())}
	c.conn = c.connect()
	if err := witness.Install(t.Context(), c.conn); err != nil {
		t.Fatal(err)
	}
	for i := range s.nodes {
		c.nodes = append(c.nodes, c.newNode(i))
	}
	return c
}

// connect opens a session of the test itself, past all proxies.
func (c *cluster) connect() *pgx.Conn {
	c.t.Helper()
	conn, err := pgx.Connect(c.t.Context(), c.setup.pg.dsn(c.db))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (c *cluster) newNode(i int) *node {
	c.t.Helper()
	n := &node{
		c: c, index: i, service: nextPort(c.t), metrics: nextPort(c.t), dashboard: nextPort(c.t), proxyPort: nextPort(c.t),
		file: filepath.Join(c.dir, fmt.Sprintf("witness.%d", i)),
	}
	n.id = fmt.Sprintf("127.0.0.1:%d", n.service)
	ctx, cancel := context.WithCancel(context.Background())
	c.t.Cleanup(cancel)
	n.proxy = proxy.New(fmt.Sprintf("127.0.0.1:%d", n.proxyPort), fmt.Sprintf("127.0.0.1:%d", c.setup.pg.port))
	if err := n.proxy.Start(ctx); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// start brings the nodes up in order, so that the first one leads.
func (c *cluster) start() (leader *node) {
	c.t.Helper()
	leader = c.nodes[0]
	leader.start()
	leader.awaitEvent("leader_up", 0)
	for _, n := range c.nodes[1:] {
		n.start()
		n.awaitEvent("row", 0)
	}
	return leader
}

func (c *cluster) exec(sql string, args ...any) {
	c.t.Helper()
	if _, err := c.conn.Exec(c.t.Context(), sql, args...); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
}

// row returns the id and the age of the heartbeat; an absent row has the id "".
func (c *cluster) row() (id string, age time.Duration) {
	c.t.Helper()
	var seconds *float64
	err := c.conn.QueryRow(c.t.Context(), `SELECT id, extract(epoch FROM clock_timestamp() - last_heartbeat)::float8
		FROM election_leader`).Scan(&id, &seconds)
	if err != nil && err != pgx.ErrNoRows {
		c.t.Fatal(err)
	}
	if seconds == nil {
		return id, 0
	}
	return id, time.Duration(*seconds * float64(time.Second))
}

func (c *cluster) count(sql string, args ...any) (n int) {
	c.t.Helper()
	if err := c.conn.QueryRow(c.t.Context(), sql, args...).Scan(&n); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// holder is the node in the row, nil if it is none of ours.
func (c *cluster) holder() *node {
	id, _ := c.row()
	for _, n := range c.nodes {
		if equal := n.id == id; equal {
			return n
		}
	}
	return nil
}

// awaitOther waits until another node than old holds the row and its leader services are up.
func (c *cluster) awaitOther(old *node, within time.Duration) *node {
	c.t.Helper()
	var h *node
	c.await(within, "another leader with its services up", func() bool {
		h = c.holder()
		return h != nil && h != old && h.has("leader_up", 0)
	})
	return h
}

// await polls a condition; the text says what did not come.
func (c *cluster) await(within time.Duration, what string, cond func() bool) {
	c.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(grain) {
		if cond() {
			return
		}
		if time.Now().After(end) {
			c.dump()
			c.t.Fatalf("within %v did not come: %s", within, what)
		}
	}
}

// dump shows what the nodes noted; ticks are left out and a run of errors is one line.
func (c *cluster) dump() {
	c.t.Helper()
	for _, n := range append(c.nodes[:len(c.nodes):len(c.nodes)], c.computes...) {
		var text strings.Builder
		errs := 0
		for _, l := range n.events() {
			switch l.Kind {
			case "tick", "write", "renew", "trim", "heartbeat":
				continue
			case "err":
				if errs++; errs > 1 {
					continue
				}
			default:
				errs = 0
			}
			fmt.Fprintf(&text, "  %.3f %s %v\n", float64(l.Boot)/1e9, l.Kind, l.Fields)
		}
		c.t.Logf("node %d %s alive=%t now=%.3f, %d Err\n%s", n.index, n.id, n.alive(),
			float64(clock.BootNS())/1e9, len(n.since("err", 0)), text.String())
	}
}

func (c *cluster) check() witness.Report {
	c.t.Helper()
	var files []string
	for _, n := range c.nodes {
		files = append(files, n.file)
	}
	rep, err := witness.Check(c.t.Context(), c.conn, c.setup.lease, 0, files)
	if err != nil {
		c.t.Fatal(err)
	}
	return rep
}

// atPhase waits for the moment in the second, in ms of CLOCK_BOOTTIME.
func atPhase(ms int) {
	wait := int64(ms)*1e6 - clock.BootNS()%1e9
	if wait < 0 {
		wait += 1e9
	}
	time.Sleep(time.Duration(wait))
}

// lasts lets a fault last: the length of a fault is a quantity of the experiment, not a guess.
func lasts(d time.Duration) { time.Sleep(d) }

// hot is held by tests whose nodes loop without a pause: one at a time, so that they leave the machine to
// those that depend on a phase.
var hot sync.Mutex

// forced runs an experiment whose outcome depends on phases. It returns what kept the phases from being
// those of the plan ("" if nothing did); such a run proves nothing and is made again, a few times.
func forced(t *testing.T, run func(t *testing.T) (missed string)) {
	t.Helper()
	const tries = 4
	for k := range tries {
		missed := ""
		if ok := t.Run("", func(t *testing.T) { missed = run(t) }); !ok || missed == "" {
			return
		}
		t.Logf("try %d: machine too slow for the plan: %s", k+1, missed)
	}
	t.Errorf("no try of %d was in phase", tries)
}

// late says how far a node's last campaign was behind its phase, if that is more than the plan allows.
func late(n *node, phase int) string {
	n.c.t.Helper()
	renewals := n.since("renew", 0)
	if len(renewals) == 0 {
		return ""
	}
	behind := (renewals[len(renewals)-1].Boot/1e6 - int64(phase) + 1000) % 1000
	if behind > slack.Milliseconds() {
		return fmt.Sprintf("node %d renewed %d ms behind its phase; ", n.index, behind)
	}
	return ""
}

// slack is what the plans of phases allow: they keep what must not change places further apart.
const slack = 120 * time.Millisecond

// onTime acts at a phase and says by how much it was late, if by too much.
func onTime(phase int, act func()) string {
	atPhase(phase)
	act()
	behind := (clock.BootNS()/1e6 - int64(phase) + 1000) % 1000
	if behind > slack.Milliseconds() {
		return fmt.Sprintf("acted %d ms behind the phase; ", behind)
	}
	return ""
}
