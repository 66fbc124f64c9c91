// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"metasim/internal/clock"
	"metasim/internal/proxy"
	"metasim/internal/witness"
)

// node is one meta process and its successors in the same place.
type node struct {
	c         *cluster
	index     int
	id        string
	file      string
	proxy     *proxy.Proxy
	cmd       *exec.Cmd
	exited    chan struct{}
	startedNS int64
	lines     []witness.Line // of the file up to offset
	offset    int64

	service, metrics, dashboard, proxyPort int
}

// start runs the node with the cluster's flags and more.
func (n *node) start(flags ...string) {
	n.c.t.Helper()
	s := n.c.setup
	args := []string{"meta-node", "--witness", n.file, "--lease", s.lease.String(), "--acquire-timeout", s.acquire.String()}
	if len(s.phases) > n.index {
		args = append(args, "--phase-ms", fmt.Sprint(s.phases[n.index]))
	}
	n.launch(append(append(args, s.flags...), flags...), append([]string{
		fmt.Sprintf("RW_SQL_ENDPOINT=127.0.0.1:%d", n.proxyPort), "RW_SQL_DATABASE=" + n.c.db, "RW_SQL_USERNAME=postgres",
		"RW_ADVERTISE_ADDR=" + n.id, fmt.Sprintf("RW_LISTEN_ADDR=127.0.0.1:%d", n.service),
		fmt.Sprintf("RW_PROMETHEUS_HOST=127.0.0.1:%d", n.metrics), fmt.Sprintf("RW_DASHBOARD_HOST=127.0.0.1:%d", n.dashboard),
		n.tag(),
	}, s.env...))
}

// launch starts metasim with more in its environment.
func (n *node) launch(args, env []string) {
	n.c.t.Helper()
	n.cmd = exec.Command(binary, args...)
	n.cmd.Env = append(os.Environ(), env...)
	logFile, err := os.OpenFile(n.logPath(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		n.c.t.Fatal(err)
	}
	n.cmd.Stderr = logFile
	n.startedNS = clock.BootNS()
	if err := n.cmd.Start(); err != nil {
		n.c.t.Fatal(err)
	}
	started.Lock()
	started.processes = append(started.processes, n.cmd.Process)
	started.Unlock()
	exited := make(chan struct{})
	n.exited = exited
	cmd := n.cmd
	go func() {
		_ = cmd.Wait()
		_ = logFile.Close()
		close(exited)
	}()
	n.c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
}

func (n *node) logPath() string { return filepath.Join(n.c.dir, fmt.Sprintf("log.%d", n.index)) }

func (n *node) log() string {
	n.c.t.Helper()
	b, err := os.ReadFile(n.logPath())
	if err != nil {
		n.c.t.Fatal(err)
	}
	return string(b)
}

func (n *node) signal(s syscall.Signal) {
	n.c.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.c.t.Fatalf("signal %v to node %d: %v", s, n.index, err)
	}
}

func (n *node) alive() bool {
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

// awaitExit returns the exit status, 128 + n for a signal.
func (n *node) awaitExit(within time.Duration) int {
	n.c.t.Helper()
	select {
	case <-n.exited:
	case <-time.After(within):
		n.c.dump()
		n.c.t.Fatalf("node %d is still there after %v", n.index, within)
	}
	ws := n.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

func (n *node) mustExit(code int, within time.Duration) {
	n.c.t.Helper()
	if got := n.awaitExit(within); got != code {
		n.c.dump()
		n.c.t.Fatalf("node %d: exit status %d, want %d", n.index, got, code)
	}
}

// link gives the node's proxy a command.
func (n *node) link(command string) {
	n.c.t.Helper()
	if _, err := n.proxy.Command(command); err != nil {
		n.c.t.Fatal(err)
	}
}

// events are all lines that the node and its predecessors in this place noted. Only what is new is read.
func (n *node) events() []witness.Line {
	n.c.t.Helper()
	f, err := os.Open(n.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		n.c.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(n.offset, io.SeekStart); err != nil {
		n.c.t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		n.c.t.Fatal(err)
	}
	whole := b[:bytes.LastIndexByte(b, '\n')+1] // the last line may still be being written
	n.offset += int64(len(whole))
	for s := range strings.Lines(string(whole)) {
		l, err := witness.ParseLine(s)
		if err != nil {
			n.c.t.Fatal(err)
		}
		n.lines = append(n.lines, l)
	}
	return n.lines
}

// since returns the lines of a kind after a moment.
func (n *node) since(kind string, bootNS int64) []witness.Line {
	n.c.t.Helper()
	var found []witness.Line
	for _, l := range n.events() {
		if l.Kind == kind && l.Boot > bootNS {
			found = append(found, l)
		}
	}
	return found
}

func (n *node) has(kind string, bootNS int64) bool { return len(n.since(kind, bootNS)) > 0 }

// awaitEvent returns the first line of a kind after a moment.
func (n *node) awaitEvent(kind string, bootNS int64) witness.Line {
	n.c.t.Helper()
	n.c.await(patience, fmt.Sprintf("node %d: %s", n.index, kind), func() bool { return n.has(kind, bootNS) })
	return n.since(kind, bootNS)[0]
}

// writesOK counts ticks that reached the database after a moment.
func (n *node) writesOK(bootNS int64) int {
	n.c.t.Helper()
	k := 0
	for _, l := range n.since("write", bootNS) {
		if l.Fields["db"] == "ok" {
			k++
		}
	}
	return k
}

func listens(port int) bool {
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// mustBeZombie: it lives, all its leader ports are open, its writes arrive, and the row is another's.
func (n *node) mustBeZombie() {
	n.c.t.Helper()
	now := clock.BootNS()
	n.c.await(patience, fmt.Sprintf("writes of the zombie node %d", n.index), func() bool { return n.writesOK(now) >= 3 })
	if id, _ := n.c.row(); id == n.id || id == "" {
		n.c.dump()
		n.c.t.Fatalf("the row is %q: node %d is no zombie", id, n.index)
	}
	if !n.alive() || !listens(n.service) || !listens(n.metrics) || !listens(n.dashboard) {
		n.c.t.Fatalf("node %d: alive=%t, or a leader port is closed", n.index, n.alive())
	}
}

// tag names the node's sessions, for triggers that hit one node only.
func (n *node) tag() string { return fmt.Sprintf("PGAPPNAME=n%d", n.index) }
