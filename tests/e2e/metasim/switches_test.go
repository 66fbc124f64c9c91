// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"metasim/internal/clock"
)

func pidOf(t *testing.T, field string) int {
	t.Helper()
	pid, err := strconv.Atoi(field)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestPhantom(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1, flags: []string{"--phantom"}})
	n := c.nodes[0]
	n.start()
	n.awaitEvent("phantom", 0)
	c.await(patience, "five renewals", func() bool { return len(n.since("renew", 0)) >= 5 })
	if n.has("init_begin", 0) || listens(n.metrics) || !listens(n.service) {
		t.Error("a phantom renews and stays a follower")
	}
	n.signal(syscall.SIGTERM)
	n.mustExit(0, ttl/2)
	if id, _ := c.row(); id != n.id {
		t.Error("a phantom's TERM is a follower's: no resign")
	}
}

func TestIgnoreTerm(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1, flags: []string{"--ignore-term"}})
	n := c.start()
	n.signal(syscall.SIGTERM)
	n.signal(syscall.SIGINT)
	n.awaitEvent("renew", clock.BootNS())
	if !n.alive() {
		t.Error("ended")
	}
}

func TestWrapperShell(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1, flags: []string{"--wrapper-shell"}})
	n := c.start()
	inner := pidOf(t, n.awaitEvent("start", 0).Fields["pid"])
	if inner == n.cmd.Process.Pid {
		t.Fatal("no shell in between")
	}
	t.Cleanup(func() { _ = syscall.Kill(inner, syscall.SIGKILL) })
	n.signal(syscall.SIGTERM)
	n.mustExit(128+int(syscall.SIGTERM), patience)
	n.awaitEvent("renew", clock.BootNS())
	if err := syscall.Kill(inner, syscall.SIGKILL); err != nil {
		t.Errorf("the child of the shell must live on: %v", err)
	}
}

func TestSetsid(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1, flags: []string{"--setsid"}})
	n := c.start()
	inner := pidOf(t, n.awaitEvent("start", 0).Fields["pid"])
	sid, _, errno := syscall.RawSyscall(syscall.SYS_GETSID, uintptr(inner), 0, 0)
	if errno != 0 || int(sid) != inner {
		t.Errorf("session %d of process %d (%v), want its own", sid, inner, errno)
	}
	if err := syscall.Kill(inner, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	n.mustExit(0, patience)
}

func TestDoubleFork(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1, flags: []string{"--double-fork", "--setsid", "--child-life", "30s"}})
	n := c.start()
	child := n.awaitEvent("child", 0)
	pid := pidOf(t, child.Fields["pid"])
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	if child.Fields["sid"] != child.Fields["pid"] || child.Fields["inc"] != n.awaitEvent("start", 0).Fields["inc"] {
		t.Errorf("child %v: want its own session and the incarnation's name", child.Fields)
	}
	main := pidOf(t, n.awaitEvent("start", 0).Fields["pid"])
	if err := syscall.Kill(main, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.awaitExit(patience)
	dead := clock.BootNS()
	c.await(patience, "ticks of the child after its parent's death", func() bool { return n.writesOK(dead) >= 5 })
	if !listens(n.service) {
		t.Error("the child must keep the service port")
	}
	n.setupWithoutFork()
	n.start()
	n.mustExit(134, patience) // the port is taken
}

// setupWithoutFork makes later starts plain ones.
func (n *node) setupWithoutFork() { n.c.setup.flags = nil }

func TestSlowStart(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1, flags: []string{"--slow-start", "2s"}})
	n := c.nodes[0]
	n.start()
	n.awaitEvent("start", 0)
	if listens(n.service) {
		t.Error("no port is open during a slow start")
	}
	if up := n.awaitEvent("leader_up", 0); up.Boot-n.startedNS < int64(2*time.Second) {
		t.Error("started too soon")
	}
}

func TestNoDatabaseAborts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1, acquire: time.Second})
	n := c.nodes[0]
	n.link("mode stall")
	n.start()
	n.mustExit(134, patience)
}

func TestPortTakenAborts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1})
	n := c.nodes[0]
	lis, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", n.service))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	n.start()
	n.mustExit(134, patience)
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1})
	for _, flags := range [][]string{
		{"--lease", "2s"}, {"--lease", "5500ms"}, {"--phase-ms", "1000"}, {"--tie", "both"}, {"--pool-max", "0"},
		{"--pool-min", "11"}, {"--acquire-timeout", "-1s"}, {"--listen-addr", "nowhere"}, {"surplus"},
	} {
		n := c.nodes[0]
		n.start(flags...)
		n.mustExit(2, patience)
	}
	if log := c.nodes[0].log(); len(log) == 0 {
		t.Error("no word about the mistake")
	}
}
