// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// binary is metasim as built for this run; shared is the server of all tests that leave it alone.
var (
	binary string
	shared *postgres
)

// Tests mostly wait for leases to run out, so many clusters run side by side.
const parallelTests = "20"

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = flag.Set("test.parallel", parallelTests)
	}
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "metasim tests:", err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "metasim-bin")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "metasim")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build: %w\n%s", err, out)
	}
	if shared, err = startPostgres(); err != nil {
		return 1, err
	}
	defer shared.remove()
	go cleanUpOnSignal(dir)
	return m.Run(), nil
}

// started is what must not outlive an interrupted run.
var started struct {
	sync.Mutex
	servers   []*postgres
	processes []*os.Process
}

func cleanUpOnSignal(dir string) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	<-ch
	started.Lock() // for good: nothing more may start
	for _, p := range started.processes {
		_ = p.Kill()
	}
	for _, pg := range started.servers {
		pg.remove()
	}
	_ = os.RemoveAll(dir)
	os.Exit(1)
}

var longFlag = flag.Bool("long", os.Getenv("METASIM_LONG") != "", "larger samples, and ttl 30 (environment METASIM_LONG=1)")

func long() bool { return *longFlag }

var ports = struct {
	sync.Mutex
	next  int
	taken map[int]bool
}{taken: map[int]bool{}}

// nextPort returns a free loopback port from METASIM_PORTS (first-last, default 21000-21999) that is the
// test's to its end, also while nobody listens on it: a node that restarts needs it again. Ephemeral ports
// won't do for the same reason.
func nextPort(t *testing.T) int {
	t.Helper()
	port := takePort()
	t.Cleanup(func() { releasePort(port) })
	return port
}

func releasePort(port int) {
	ports.Lock()
	defer ports.Unlock()
	delete(ports.taken, port)
}

func takePort() int {
	first, last := 21000, 21999
	if r := os.Getenv("METASIM_PORTS"); r != "" {
		if _, err := fmt.Sscanf(r, "%d-%d", &first, &last); err != nil {
			panic("METASIM_PORTS " + strconv.Quote(r) + ": give first-last")
		}
	}
	ports.Lock()
	defer ports.Unlock()
	for range last - first {
		ports.next++
		port := first + ports.next%(last-first+1)
		if ports.taken[port] {
			continue
		}
		if isFree(port) {
			ports.taken[port] = true
			return port
		}
	}
	panic("no free port")
}

// isFree looks while nothing forks: a child has the socket until its exec, and the port with it after Close.
func isFree(port int) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	lis, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return lis.Close() == nil
}
