// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"metasim/internal/clock"
	"metasim/internal/wire"
)

// refuse makes Postgres refuse an operation on a table to the sessions of one node, as a guard does.
func (c *cluster) refuse(n *node, operation, table string) (allow func()) {
	c.t.Helper()
	tag := strings.TrimPrefix(n.tag(), "PGAPPNAME=")
	c.exec(`CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF current_setting('application_name') = TG_ARGV[0] THEN
				RAISE EXCEPTION 'refused: % of %', TG_OP, TG_TABLE_NAME USING ERRCODE = 'MF001';
			END IF;
			RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
		END $$`)
	c.exec(fmt.Sprintf(`CREATE TRIGGER refuse BEFORE %s ON %s FOR EACH ROW EXECUTE FUNCTION refuse('%s')`, operation, table, tag))
	return func() {
		c.t.Helper()
		c.exec("DROP TRIGGER refuse ON " + table)
	}
}

func withCompute(t *testing.T, flags ...string) (c *cluster, l, compute *node) {
	t.Helper()
	c = newCluster(t, setup{nodes: 1, flags: append([]string{"--workers", "head"}, flags...)})
	l = c.start()
	compute = c.newCompute()
	compute.startCompute("--max-heartbeat-interval", "3s")
	l.awaitEvent("database_running", 0)
	return c, l, compute
}

// Where the original gets an error of SQL: what it logs, what it tries again and what ends it.
func TestRefusals(t *testing.T) {
	t.Run("expiry", func(t *testing.T) {
		t.Parallel()
		c, l, compute := withCompute(t, "--max-heartbeat-interval", "2s")
		allow := c.refuse(l, "DELETE", "worker")
		compute.signal(syscall.SIGKILL)
		c.await(2*patience, "the delete is tried again", func() bool { return len(l.since("expiry_failed", 0)) >= 3 })
		if msg := l.since("expiry_failed", 0)[0].Fields["msg"]; !strings.Contains(msg, "refused: DELETE of worker") {
			t.Errorf("error %q", msg)
		}
		mustRefuse(t, l, wire.MethodDelete, deleteHost(compute.host()), codes.Internal, "MF001")
		c.mustHaveWorkers("1 " + compute.id + " COMPUTE_NODE RUNNING")
		if !l.alive() {
			t.Fatal("a refused delete ends nothing: it is the first statement that fails")
		}
		allow()
		l.awaitEvent("worker_deleted", 0)
		c.mustHaveWorkers()
	})
	t.Run("register", func(t *testing.T) {
		t.Parallel()
		c, l, _ := withCompute(t)
		c.refuse(l, "INSERT", "worker_property")
		second := c.newCompute()
		second.startCompute()
		second.mustExit(1, patience)
		if msg := second.awaitEvent("register_failed", 0).Fields["msg"]; !strings.Contains(msg, "MF001") {
			t.Errorf("error %q", msg)
		}
		if n := len(c.workers()); n != 1 {
			t.Errorf("%d rows: the transaction must leave none", n)
		}
	})
	t.Run("activate", func(t *testing.T) {
		t.Parallel()
		c, l, _ := withCompute(t)
		c.refuse(l, "UPDATE", "worker")
		second := c.newCompute()
		second.startCompute("--max-heartbeat-interval", "2s")
		second.mustExit(134, 2*patience)
		if n := len(second.since("activate_failed", 0)); n < 2 {
			t.Errorf("%d tries, want several", n)
		}
	})
	t.Run("notification version", func(t *testing.T) {
		t.Parallel()
		c, l, compute := withCompute(t)
		c.refuse(l, "UPDATE", "catalog_version")
		compute.signal(syscall.SIGTERM)
		l.mustExit(134, patience)
		c.mustHaveWorkers() // it was committed before
	})
	t.Run("release of a context", func(t *testing.T) {
		t.Parallel()
		c, l, compute := withCompute(t)
		c.refuse(l, "DELETE", "hummock_pinned_version")
		compute.signal(syscall.SIGTERM)
		l.mustExit(134, patience)
		if why := l.awaitEvent("abort", 0).Fields["why"]; !strings.Contains(why, "Failed to release hummock context") {
			t.Errorf("abort %q", why)
		}
	})
	t.Run("commit", func(t *testing.T) {
		t.Parallel()
		c, l, _ := withCompute(t)
		at := clock.BootNS()
		allow := c.refuse(l, "INSERT", "hummock_version_delta")
		c.await(2*patience, "a global recovery after each", func() bool { return len(l.since("recovery_done", at)) >= 2 })
		if reason := l.awaitEvent("recovery_start", at).Fields["reason"]; !strings.Contains(reason, "MF001") {
			t.Errorf("reason %q", reason)
		}
		if !l.alive() {
			t.Error("a refused commit ends nothing")
		}
		allow()
		allowed := clock.BootNS()
		n := c.count(`SELECT count(*) FROM hummock_version_delta`)
		c.await(patience, "commits", func() bool { return c.count(`SELECT count(*) FROM hummock_version_delta`) > n })
		lasts(2 * time.Second)
		if starts := l.since("recovery_start", allowed+int64(time.Second)); len(starts) > 0 {
			t.Errorf("recoveries %v after the refusals", starts)
		}
	})
	t.Run("leader's init", func(t *testing.T) {
		t.Parallel()
		c, l, _ := withCompute(t)
		l.signal(syscall.SIGKILL)
		l.mustExit(137, patience)
		c.exec(`DELETE FROM worker`)
		c.refuse(l, "DELETE", "hummock_pinned_version")
		l.start()
		l.mustExit(134, patience)
	})
}

// The same process comes back inside the lease: it renews, reads the rows, and the workers notice a pause.
func TestRestartInsideTheLease(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 2, flags: []string{"--workers", "v3.0"}})
	l := c.start()
	compute := c.newCompute()
	compute.startCompute()
	id := compute.worker(0)
	l.awaitEvent("database_running", 0)
	l.signal(syscall.SIGKILL)
	l.mustExit(137, patience)
	l.start()
	at := l.startedNS
	if got := l.awaitEvent("registry_loaded", at).Fields["ids"]; got != "["+id+"]" {
		t.Errorf("loaded %s", got)
	}
	l.awaitEvent("database_running", at)
	up := l.awaitEvent("leader_up", at).Boot
	c.await(patience, "heartbeats go on", func() bool {
		found := compute.since("heartbeat", up)
		return len(found) > 0 && found[len(found)-1].Fields["ok"] == "true"
	})
	if c.holder() != l || !compute.alive() || compute.has("unknown_worker", 0) {
		t.Error("leadership and worker stay")
	}
	c.mustHaveWorkers(id + " " + compute.id + " COMPUTE_NODE RUNNING")
}

// After a clean handoff the workers go over by themselves and keep their ids.
func TestHandoffKeepsWorkers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 2, flags: []string{"--workers", "head"}})
	l := c.start()
	compute := c.newCompute()
	compute.startCompute()
	id := compute.worker(0)
	l.awaitEvent("database_running", 0)
	l.signal(syscall.SIGTERM)
	l.mustExit(0, patience)
	next := c.awaitOther(l, patience)
	at := next.awaitEvent("leader_up", 0).Boot
	next.awaitEvent("database_running", 0)
	c.await(patience, "heartbeats to the new leader", func() bool {
		found := compute.since("heartbeat", at)
		return len(found) > 0 && found[len(found)-1].Fields["ok"] == "true" && found[len(found)-1].Fields["leader"] == next.id
	})
	c.mustHaveWorkers(id + " " + compute.id + " COMPUTE_NODE RUNNING")
}

// A zombie and the true leader take the control stream from each other for as long as both live.
func TestZombieStealsStreams(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 2, flags: []string{"--workers", "head", "--reconnect-limit", "1s"}})
	old := c.start()
	compute := c.newCompute()
	compute.startCompute()
	old.awaitEvent("database_running", 0)
	_, heal := cut(old, "stall", 8*time.Second)
	c.awaitOther(old, patience)
	old.mustBeZombie()
	c.await(3*patience, "streams change hands", func() bool { return len(compute.since("stream_reset", heal)) >= 6 })
	old.signal(syscall.SIGKILL)
	old.mustExit(137, patience)
	dead := clock.BootNS()
	c.nodes[1].awaitEvent("database_running", dead-int64(time.Second))
	lasts(3 * time.Second)
	if n := len(compute.since("stream_reset", dead+int64(2*time.Second))); n > 0 {
		t.Errorf("%d resets after its death", n)
	}
}
