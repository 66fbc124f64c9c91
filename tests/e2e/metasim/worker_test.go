// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"metasim/internal/clock"
	"metasim/internal/wire"
)

// newCompute makes a compute node that knows all metas of the cluster.
func (c *cluster) newCompute() *node {
	c.t.Helper()
	n := &node{c: c, index: len(c.nodes) + len(c.computes), service: nextPort(c.t)}
	n.file = filepath.Join(c.dir, fmt.Sprintf("witness.%d", n.index))
	n.id = fmt.Sprintf("127.0.0.1:%d", n.service)
	c.computes = append(c.computes, n)
	return n
}

func (n *node) startCompute(flags ...string) {
	n.c.t.Helper()
	var metas []string
	for _, m := range n.c.nodes {
		metas = append(metas, "http://"+m.id)
	}
	args := []string{"compute-node", "--witness", n.file, "--meta-address", strings.Join(metas, ",")}
	n.launch(append(args, flags...), []string{"RW_LISTEN_ADDR=" + n.id, "RW_ADVERTISE_ADDR=" + n.id})
}

// worker is the id with which the node was last activated after a moment.
func (n *node) worker(since int64) string {
	n.c.t.Helper()
	return n.awaitEvent("activated", since).Fields["worker"]
}

func (n *node) host() wire.Host {
	n.c.t.Helper()
	h, err := wire.ParseHost(n.id)
	if err != nil {
		n.c.t.Fatal(err)
	}
	return h
}

// pauseFile makes a pause point of a node started with --pause-dir; the returned function lets its task go.
func (n *node) pauseFile(point string) (release func()) {
	n.c.t.Helper()
	path := filepath.Join(n.pauseDir(), point)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		n.c.t.Fatal(err)
	}
	return func() {
		n.c.t.Helper()
		if err := os.Remove(path); err != nil {
			n.c.t.Fatal(err)
		}
	}
}

func (n *node) pauseDir() string {
	n.c.t.Helper()
	dir := filepath.Join(n.c.dir, fmt.Sprintf("pause.%d", n.index))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		n.c.t.Fatal(err)
	}
	return dir
}

// ask makes one RPC within a limit.
func (n *node) ask(within time.Duration, method string, in []byte) ([]byte, error) {
	n.c.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+fmt.Sprintf("127.0.0.1:%d", n.service),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.c.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(n.c.t.Context(), within)
	defer cancel()
	var out []byte
	err = conn.Invoke(ctx, method, &in, &out, grpc.ForceCodecV2(wire.Codec{}))
	return out, err
}

func (n *node) mustAsk(method string, in []byte) []byte {
	n.c.t.Helper()
	out, err := n.ask(patience, method, in)
	if err != nil {
		n.c.dump()
		n.c.t.Fatalf("%s: %v", method, err)
	}
	return out
}

// workers is the table as "id host:port type status".
func (c *cluster) workers() (rows []string) {
	c.t.Helper()
	found, err := c.conn.Query(c.t.Context(),
		`SELECT worker_id || ' ' || host || ':' || port || ' ' || worker_type || ' ' || status FROM worker ORDER BY worker_id`)
	if err != nil {
		c.t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var row string
		if err := found.Scan(&row); err != nil {
			c.t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

func (c *cluster) mustHaveWorkers(want ...string) {
	c.t.Helper()
	if got := c.workers(); strings.Join(got, "; ") != strings.Join(want, "; ") {
		c.dump()
		c.t.Fatalf("worker rows %q, want %q", got, want)
	}
}

// last is the newest line of a kind.
func (n *node) last(kind string) string {
	n.c.t.Helper()
	if found := n.since(kind, 0); len(found) > 0 {
		return fmt.Sprint(found[len(found)-1].Fields)
	}
	return ""
}

func (n *node) recoveryStatus() uint64 {
	n.c.t.Helper()
	out, err := n.ask(patience, wire.MethodStatus, nil)
	if err != nil {
		return 0
	}
	v, err := wire.Number(out, 1)
	if err != nil {
		n.c.t.Fatal(err)
	}
	return v
}

func addCompute(h wire.Host) []byte {
	return wire.AddRequest{
		Type: wire.TypeCompute, Host: h, Property: &wire.Property{IsStreaming: true, IsServing: true, Parallelism: 3},
		Resource: wire.Resource{Version: wire.Version, Memory: 7},
	}.Encode()
}

// What a worker of a compute node sees from registration to restart.
func TestComputeLife(t *testing.T) {
	for _, release := range []string{"v2.6", "v3.0", "head"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, setup{nodes: 2, flags: []string{"--workers", release}})
			l := c.start()
			n := c.newCompute()
			n.startCompute()
			id := n.worker(0)
			c.mustHaveWorkers(id + " " + n.id + " COMPUTE_NODE RUNNING")
			l.awaitEvent("database_running", 0)
			n.awaitEvent("actors_built", 0)
			out := n.mustAsk(wire.MethodStats, nil)
			if string(out) != "" && !strings.HasPrefix(string(out[2:]), "\x08\x01\x12") {
				t.Errorf("stats %x", out)
			}
			actors, err := wire.DecodeActors(l.mustAsk(wire.MethodActors, nil))
			if err != nil || len(actors) != 2 || fmt.Sprint(actors[0].Worker) != id {
				t.Errorf("actors %v %v, want 2 on worker %s", actors, err, id)
			}
			c.await(patience, "checkpoints", func() bool { return c.count(`SELECT count(*) FROM hummock_version_delta`) >= 2 })

			// Killed and started again: the row of the endpoint is used again.
			n.signal(syscall.SIGKILL)
			n.mustExit(137, patience)
			l.awaitEvent("database_failed", 0)
			restart := clock.BootNS()
			n.startCompute()
			if again := n.worker(restart); again != id {
				t.Errorf("worker %s after a restart, want %s", again, id)
			}
			l.awaitEvent("database_running", restart)

			// Ended in order: the row is deleted, and the next start gets a new id.
			n.signal(syscall.SIGTERM)
			n.mustExit(0, patience)
			c.mustHaveWorkers()
			restart = clock.BootNS()
			n.startCompute()
			if again := n.worker(restart); again == id {
				t.Errorf("worker %s again, though its row was deleted", again)
			}
			l.awaitEvent("database_running", restart)
			if l.has("recovery_start", l.since("recovery_done", 0)[0].Boot) {
				t.Error("a database recovers alone, but there was a global recovery")
			}
		})
	}
}

// openControl opens a control stream as the agent may: with an empty Init.
func (n *node) openControl() grpc.ClientStream {
	n.c.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+n.id, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{})))
	if err != nil {
		n.c.t.Fatal(err)
	}
	n.c.t.Cleanup(func() { _ = conn.Close() })
	stream, err := conn.NewStream(n.c.t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, wire.MethodControl)
	if err != nil {
		n.c.t.Fatal(err)
	}
	init := []byte{0x0a, 0x00}
	if err := stream.SendMsg(&init); err != nil {
		n.c.t.Fatal(err)
	}
	var answer []byte
	if err := stream.RecvMsg(&answer); err != nil || string(answer) != string(init) {
		n.c.t.Fatalf("answer to Init %x %v", answer, err)
	}
	return stream
}

func TestBadWorkerArguments(t *testing.T) {
	t.Parallel()
	meta := []string{"meta-node", "--advertise-addr", "127.0.0.1:1", "--sql-endpoint", "127.0.0.1:2"}
	for _, bad := range []struct {
		args []string
		want string
	}{
		{append(meta[:len(meta):len(meta)], "--workers", "v1"), "use v2.6, v2.8, v3.0 or head"},
		{append(meta[:len(meta):len(meta)], "--workers", "next"), "use v2.6, v2.8, v3.0 or head"},
		{append(meta[:len(meta):len(meta)], "--max-heartbeat-interval", "1500ms"), "give whole seconds"},
		{append(meta[:len(meta):len(meta)], "--jobs", "2"), "0 or 1"},
		{[]string{"compute-node", "--listen-addr", "5688"}, "give host:port"},
		{[]string{"compute-node", "--meta-address", "http://meta"}, "load-balance+http://host:port"},
		{[]string{"compute-node", "--meta-address", "load-balance+http://a:1,http://b:1"}, "one address"},
		{[]string{"compute-node", "--parallelism", "0"}, "must be positive"},
		{[]string{"compute-node", "more"}, "unexpected argument"},
	} {
		out, err := exec.Command(binary, bad.args...).CombinedOutput()
		exit, ok := err.(*exec.ExitError)
		if !ok || exit.ExitCode() != 2 || !strings.Contains(string(out), bad.want) {
			t.Errorf("%v: %v %q, want exit 2 and %q", bad.args, err, out, bad.want)
		}
	}
}
