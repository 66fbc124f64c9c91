// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"metasim/internal/clock"
	"metasim/internal/wire"
)

// diverged brings a cluster to where the row of the old leader's time is gone and the new leader's memory does not
// know: the old one's checker waits with what it loaded while another process becomes the leader.
func diverged(t *testing.T, release string, flags ...string) (c *cluster, old, next, compute *node) {
	t.Helper()
	c = newCluster(t, setup{nodes: 2, flags: append([]string{"--workers", release, "--reconnect-limit", "1s"}, flags...)})
	old, next = c.nodes[0], c.nodes[1]
	release1 := old.pauseFile("checker-loaded")
	old.start("--max-heartbeat-interval", "3s", "--pause-dir", old.pauseDir())
	old.awaitEvent("leader_up", 0)
	next.start()
	next.awaitEvent("row", 0)
	compute = c.newCompute()
	compute.startCompute()
	id := compute.worker(0)
	old.awaitEvent("database_running", 0)

	compute.signal(syscall.SIGKILL)
	compute.mustExit(137, patience)
	if got := old.awaitEvent("paused", 0).Fields["workers"]; got != fmt.Sprintf("[%s@%s]", id, compute.id) {
		t.Fatalf("the checker loaded %s", got)
	}
	cut(old, "stall", 8*time.Second)
	c.awaitOther(old, patience)
	old.mustBeZombie()
	if got := next.awaitEvent("registry_loaded", 0).Fields["ids"]; got != "["+id+"]" {
		t.Fatalf("the new leader loaded %s", got)
	}
	next.awaitEvent("recovery_snapshot", 0)
	c.mustHaveWorkers(id + " " + compute.id + " COMPUTE_NODE RUNNING")
	release1()
	old.awaitEvent("worker_deleted", 0)
	c.mustHaveWorkers()
	return c, old, next, compute
}

// One endpoint, two ids: control streams replace each other for ever and the database never runs again. Nothing
// but a global recovery helps, which looks at the rows.
func TestDivergence(t *testing.T) {
	for _, release := range []string{"v2.6", "v3.0", "head"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			c, old, next, compute := diverged(t, release)
			at := clock.BootNS()
			compute.startCompute()
			ghost, id := "1", compute.worker(at)
			if id == ghost {
				t.Fatal("the endpoint has its old id again")
			}
			c.mustHaveWorkers(id + " " + compute.id + " COMPUTE_NODE RUNNING")
			want := fmt.Sprintf("workers:[%s@%s %s@%s]", ghost, compute.id, id, compute.id)
			c.await(patience, "both ids in the map of active workers", func() bool { return strings.Contains(next.last("active"), want) })
			const resets = 8
			c.await(6*patience, "resets", func() bool { return len(compute.since("stream_reset", at)) >= resets })
			for _, worker := range []string{ghost, id} {
				n := 0
				for _, l := range next.since("stream_connected", at) {
					if l.Fields["worker"] == worker {
						n++
					}
				}
				if n < 2 {
					t.Errorf("%d streams for worker %s, want one after the other", n, worker)
				}
			}
			if next.has("database_running", 0) {
				t.Error("the database must not recover")
			}
			c.await(patience, "actors on a worker without a row", func() bool {
				actors, err := wire.DecodeActors(next.mustAsk(wire.MethodActors, nil))
				return err == nil && strings.Contains(fmt.Sprint(actors), " 1 "+ghost+"}")
			})
			metrics := get(t, next.metrics)
			if !strings.Contains(metrics, `last_committed_barrier_time{database_id="1"} 0`) ||
				strings.Contains(metrics, `recovery_failure_cnt{recovery_type="database 1"} 0`) {
				t.Errorf("metrics %s", metrics)
			}
			if s := next.recoveryStatus(); s != 3 {
				t.Errorf("status %d, want 3: the recovery of one database does not show", s)
			}
			if !compute.alive() || compute.has("unknown_worker", 0) {
				t.Error("the compute node heartbeats with its new id")
			}
			// The old leader's memory lacks the row: a listing aborts it up to v3.0.3.
			_, err := old.ask(patience, wire.MethodList, wire.Varint(nil, 1, wire.TypeCompute))
			if release == "head" {
				if err != nil || !old.alive() {
					t.Errorf("list at HEAD: %v", err)
				}
				old.signal(syscall.SIGKILL)
			} else {
				old.mustExit(134, patience)
			}

			healed := clock.BootNS()
			if _, err := next.ask(3*patience, wire.MethodRecover, nil); err != nil {
				c.dump()
				t.Fatalf("Recover: %v", err)
			}
			if len(next.since("recovery_done", healed)) == 0 {
				t.Error("Recover was answered before the end of the recovery")
			}
			next.awaitEvent("database_running", healed)
			running := clock.BootNS()
			lasts(3 * time.Second)
			if n := len(compute.since("stream_reset", running)); n != 0 {
				t.Errorf("%d resets after the cure", n)
			}
			if next.has("database_failed", running) {
				t.Error("the database failed after the cure")
			}
		})
	}
}

// foreign brings a cluster to where the new leader does not know a row that the old one inserted: the worker's
// address leads to a zombie that answers.
func foreign(t *testing.T, release string) (c *cluster, old, next, compute *node) {
	t.Helper()
	c = newCluster(t, setup{nodes: 2, flags: []string{"--workers", release, "--reconnect-limit", "1s"}})
	old = c.start()
	next = c.nodes[1]
	cut(old, "stall", 8*time.Second)
	c.awaitOther(old, patience)
	old.mustBeZombie()
	compute = c.newCompute()
	return c, old, next, compute
}

func TestForeignRow(t *testing.T) {
	t.Run("head", func(t *testing.T) {
		t.Parallel()
		c, old, next, compute := foreign(t, "head")
		registered(t, old, addCompute(compute.host()))
		nodes, err := wire.DecodeNodes(next.mustAsk(wire.MethodList, wire.Varint(wire.Varint(nil, 1, wire.TypeCompute), 2, 1)))
		if err != nil || len(nodes) != 1 || nodes[0].Resource != nil {
			t.Errorf("list %v %v, want the row without what memory has", nodes, err)
		}
		// It registers with the true leader: no, and again no.
		for range 2 {
			at := clock.BootNS()
			compute.startCompute()
			compute.mustExit(1, patience)
			if msg := compute.awaitEvent("register_failed", at).Fields["msg"]; !strings.Contains(msg, "worker not found") {
				t.Errorf("refused with %q", msg)
			}
		}
		c.mustHaveWorkers("1 " + compute.id + " COMPUTE_NODE STARTING")
		// A restart inside the lease is the cure: the same id leads again, and it reads the rows.
		next.signal(syscall.SIGKILL)
		next.mustExit(137, patience)
		next.start()
		if got := next.awaitEvent("registry_loaded", next.startedNS).Fields["ids"]; got != "[1]" {
			t.Errorf("loaded %s", got)
		}
		next.awaitEvent("leader_up", next.startedNS)
		at := clock.BootNS()
		compute.startCompute()
		if id := compute.worker(at); id != "1" {
			t.Errorf("worker %s", id)
		}
		next.awaitEvent("database_running", at)
	})
	for _, release := range []string{"v2.6", "v3.0"} {
		t.Run(release+"/list", func(t *testing.T) {
			t.Parallel()
			_, old, next, compute := foreign(t, release)
			registered(t, old, addCompute(compute.host()))
			if _, err := next.ask(patience, wire.MethodList, wire.Varint(nil, 2, 1)); err == nil {
				t.Error("want no answer")
			}
			next.mustExit(134, patience)
		})
		// Not only an operator's list: the next global recovery lists too, once the worker runs.
		t.Run(release+"/recovery", func(t *testing.T) {
			t.Parallel()
			_, old, next, compute := foreign(t, release)
			id := registered(t, old, addCompute(compute.host()))
			old.mustAsk(wire.MethodActivate, wire.HostRequest{Host: compute.host(), NodeID: id}.Encode())
			_, _ = next.ask(patience, wire.MethodRecover, nil)
			next.mustExit(134, patience)
		})
	}
	for _, release := range []string{"v2.6", "v3.0", "head"} {
		t.Run(release+"/delete", func(t *testing.T) {
			t.Parallel()
			c, old, next, compute := foreign(t, release)
			registered(t, old, addCompute(compute.host()))
			if _, err := next.ask(patience, wire.MethodDelete, deleteHost(compute.host())); err == nil {
				t.Error("want no answer")
			}
			next.mustExit(134, patience)
			c.mustHaveWorkers() // the row went before the leader did
		})
	}
}

func get(t *testing.T, port int) string {
	t.Helper()
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", port))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A row vanishes below a running leader: memory goes on as if nothing were. Up to v3.0.3 the next checkpoint asks
// SQL for the worker and fails.
func TestRowDisappears(t *testing.T) {
	for _, release := range []string{"v2.6", "v3.0", "head"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, setup{nodes: 1, flags: []string{"--workers", release}})
			l := c.start()
			compute := c.newCompute()
			compute.startCompute()
			id := compute.worker(0)
			l.awaitEvent("database_running", 0)
			at := clock.BootNS()
			c.exec(`DELETE FROM worker`)
			mustRefuse(t, l, wire.MethodDelete, deleteHost(compute.host()), codes.InvalidArgument, "worker not found!")
			if release != "head" {
				if msg := l.awaitEvent("commit_failed", at).Fields["msg"]; !strings.Contains(msg, "is invalid") {
					t.Errorf("commit failed with %q", msg)
				}
				c.await(patience, "a snapshot without it", func() bool {
					return l.has("recovery_snapshot", at) && strings.Contains(l.last("recovery_snapshot"), "workers:[]")
				})
			} else {
				n := c.count(`SELECT coalesce(max(id), 0) FROM hummock_version_delta`)
				c.await(patience, "more checkpoints", func() bool {
					return c.count(`SELECT coalesce(max(id), 0) FROM hummock_version_delta`) >= n+2
				})
				if l.has("commit_failed", at) || l.has("recovery_start", at) {
					t.Error("HEAD asks its memory")
				}
			}
			c.await(patience, "heartbeats", func() bool { return len(compute.since("heartbeat", at)) >= 3 })
			if compute.has("unknown_worker", 0) || !compute.alive() {
				t.Error("heartbeats look at memory only")
			}
			compute.signal(syscall.SIGKILL)
			compute.mustExit(137, patience)
			compute.startCompute()
			if again := compute.worker(at); again == id {
				t.Errorf("worker %s again", again)
			}
		})
	}
}

// With a load-balanced address a worker stays with a meta that answers, whoever leads.
func TestGluedToAZombie(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 2, flags: []string{"--workers", "head", "--reconnect-limit", "1s"}})
	old := c.start()
	compute := c.newCompute()
	compute.startCompute("--meta-address", "load-balance+http://"+old.id)
	compute.worker(0)
	_, heal := cut(old, "stall", 8*time.Second)
	next := c.awaitOther(old, patience)
	old.mustBeZombie()
	c.await(2*patience, "heartbeats to the zombie", func() bool {
		n := 0
		for _, l := range compute.since("heartbeat", heal) {
			if l.Fields["ok"] == "true" && l.Fields["leader"] == old.id {
				n++
			}
		}
		return n >= 5
	})
	for _, l := range compute.since("heartbeat", 0) {
		if l.Fields["leader"] == next.id {
			t.Fatal("it went over without an error")
		}
	}
}
