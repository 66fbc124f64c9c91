// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"metasim/internal/clock"
	"metasim/internal/wire"
)

func deleteHost(h wire.Host) []byte { return wire.HostRequest{Host: h}.Encode() }

func registered(t *testing.T, n *node, request []byte) uint32 {
	t.Helper()
	id, err := wire.Number(n.mustAsk(wire.MethodAdd, request), 2)
	if err != nil || id == 0 {
		t.Fatalf("id %d %v", id, err)
	}
	return uint32(id)
}

func mustRefuse(t *testing.T, n *node, method string, in []byte, code codes.Code, text string) {
	t.Helper()
	_, err := n.ask(patience, method, in)
	if status.Code(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v, want %v with %q", method, err, code, text)
	}
}

// What each RPC of the registry does to rows and memory.
func TestWorkerRPCs(t *testing.T) {
	for _, release := range []string{"v2.6", "v3.0", "head"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, setup{nodes: 2, flags: []string{"--workers", release, "--jobs", "0"}})
			l := c.start()
			// Nobody listens there: the barrier worker waits and tries again, and with it whatever it is asked.
			a := wire.Host{Host: "127.0.0.1", Port: int32(nextPort(t))}
			b := wire.Host{Host: "127.0.0.1", Port: int32(nextPort(t))}
			version := `SELECT version FROM catalog_version WHERE name = 'NOTIFICATION'`

			id := registered(t, l, addCompute(a))
			c.mustHaveWorkers(fmt.Sprintf("%d %s COMPUTE_NODE STARTING", id, a))
			if n := c.count(`SELECT count(*) FROM worker JOIN worker_property USING (worker_id)
				WHERE transaction_id = 0 AND parallelism = 3 AND is_streaming`); n != 1 {
				t.Error("want the first transaction id and a property row")
			}
			before := c.count(version)
			l.mustAsk(wire.MethodActivate, wire.HostRequest{Host: a, NodeID: id}.Encode())
			if c.count(version) != before+1 {
				t.Error("frontends are told of an activation")
			}
			if again := registered(t, l, addCompute(a)); again != id {
				t.Errorf("id %d of a known endpoint, want %d", again, id)
			}
			second := registered(t, l, addCompute(b))
			ctl := registered(t, l, wire.AddRequest{Type: wire.TypeRiseCtl, Host: wire.Host{Host: "risectl-1"}, Property: &wire.Property{}}.Encode())
			if c.count(`SELECT count(*) FROM worker WHERE transaction_id IS NULL`) != 1 ||
				c.count(`SELECT count(*) FROM worker_property`) != 2 {
				t.Error("only compute nodes and frontends have a transaction id and a property")
			}

			list := func(in []byte) (found []uint32) {
				nodes, err := wire.DecodeNodes(l.mustAsk(wire.MethodList, in))
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range nodes {
					found = append(found, n.ID)
				}
				return found
			}
			if got := list(nil); fmt.Sprint(got) != fmt.Sprint([]uint32{0, id}) {
				t.Errorf("list %v, want the meta itself and what runs", got)
			}
			if got := list(wire.Varint(wire.Varint(nil, 1, wire.TypeCompute), 2, 1)); fmt.Sprint(got) != fmt.Sprint([]uint32{id, second}) {
				t.Errorf("compute nodes %v, also those that start", got)
			}

			if code, _, _ := wire.Status(l.mustAsk(wire.MethodHeartbeat, wire.Varint(nil, 1, uint64(ctl)))); code != 0 {
				t.Errorf("heartbeat of a known id: %d", code)
			}
			code, message, _ := wire.Status(l.mustAsk(wire.MethodHeartbeat, wire.Varint(nil, 1, 999)))
			if code != wire.StatusUnknownWorker || !strings.Contains(message, "worker not found") {
				t.Errorf("heartbeat of an unknown id: %d %q", code, message)
			}

			before = c.count(version)
			l.mustAsk(wire.MethodDelete, deleteHost(a))
			c.await(patience, "frontends hear of it", func() bool { return c.count(version) == before+1 })
			mustRefuse(t, l, wire.MethodDelete, deleteHost(a), codes.InvalidArgument, "worker not found!")
			mustRefuse(t, l, wire.MethodActivate, wire.HostRequest{Host: a, NodeID: id}.Encode(), codes.Internal, "RecordNotUpdated")
			mustRefuse(t, l, wire.MethodAdd, wire.AddRequest{Type: wire.TypeCompute, Host: a}.Encode(), codes.InvalidArgument, "property")
			other := wire.AddRequest{Type: wire.TypeCompute, Host: a, Property: &wire.Property{}, Resource: wire.Resource{Version: "2.0"}}
			mustRefuse(t, l, wire.MethodAdd, other.Encode(), codes.InvalidArgument, "version")
			if next := registered(t, l, addCompute(a)); next <= ctl {
				t.Errorf("id %d after a delete, want a new one", next)
			}
			if f := c.nodes[1]; true {
				mustRefuse(t, f, wire.MethodAdd, addCompute(a), codes.Unimplemented, "")
				mustRefuse(t, f, wire.MethodRecover, nil, codes.Unimplemented, "")
			}
			if _, err := l.ask(4*patience, wire.MethodRecover, nil); err != nil {
				t.Errorf("Recover: %v", err)
			}
			if !l.has("recovery_start", l.since("recovery_done", 0)[0].Boot) {
				t.Error("Recover is a global recovery")
			}

			// The same endpoint as another type is an assertion of the original.
			_, err := l.ask(patience, wire.MethodAdd, wire.AddRequest{Type: wire.TypeCompactor, Host: b, Property: &wire.Property{}}.Encode())
			if err == nil {
				t.Error("want no answer")
			}
			l.mustExit(134, patience)
		})
	}
}

// A row without its property aborts whoever registers that endpoint again.
func TestMissingPropertyAborts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1, flags: []string{"--workers", "head", "--jobs", "0"}})
	l := c.start()
	h := wire.Host{Host: "a.compute", Port: 5688}
	registered(t, l, addCompute(h))
	c.exec(`DELETE FROM worker_property`)
	if _, err := l.ask(patience, wire.MethodAdd, addCompute(h)); err == nil {
		t.Error("want no answer")
	}
	l.mustExit(134, patience)
}

func TestTransactionIDsRunOut(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1, flags: []string{"--workers", "v3.0", "--jobs", "0"}})
	l := c.start()
	h := wire.Host{Host: "a.compute", Port: 5688}
	registered(t, l, addCompute(h))
	l.signal(9)
	l.mustExit(137, patience)
	c.exec(`INSERT INTO worker (worker_type, host, port, status, transaction_id)
		SELECT 'FRONTEND', 'f' || i, 4567, 'RUNNING', i FROM generate_series(1, 1023) AS i`)
	l.start()
	l.awaitEvent("leader_up", l.startedNS)
	ctl := wire.AddRequest{Type: wire.TypeRiseCtl, Host: wire.Host{Host: "risectl-1"}, Property: &wire.Property{}}.Encode()
	mustRefuse(t, l, wire.MethodAdd, ctl, codes.Unavailable, "no available reusable machine id")
	l.mustAsk(wire.MethodDelete, deleteHost(h))
	registered(t, l, ctl)
}

// A worker that is silent expires; one that comes back to life then is told so and ends.
func TestExpiry(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1, flags: []string{"--workers", "head", "--max-heartbeat-interval", "3s"}})
	l := c.start()
	n := c.newCompute()
	n.startCompute()
	id := n.worker(0)
	n.awaitEvent("heartbeat", 0)
	n.signal(19) // SIGSTOP
	l.awaitEvent("worker_deleted", 0)
	c.mustHaveWorkers()
	if c.count(`SELECT count(*) FROM hummock_pinned_version`) != 0 {
		c.await(patience, "its pinned version is released", func() bool {
			return c.count(`SELECT count(*) FROM hummock_pinned_version`) == 0
		})
	}
	n.signal(18) // SIGCONT
	n.mustExit(1, patience)
	if got := n.awaitEvent("unknown_worker", 0).Fields["worker"]; got != id {
		t.Errorf("unknown worker %s, want %s", got, id)
	}
}

// The checker chooses by id and deletes by endpoint, without the lock in between: who came back meanwhile loses
// its row, be it the same id or another.
func TestExpiryDeletesWhoCameBack(t *testing.T) {
	for _, unregister := range []bool{false, true} {
		t.Run(fmt.Sprintf("unregister=%t", unregister), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, setup{nodes: 1, flags: []string{"--workers", "head", "--max-heartbeat-interval", "3s"}})
			l := c.nodes[0]
			release := l.pauseFile("checker-loaded")
			l.start("--pause-dir", l.pauseDir())
			l.awaitEvent("leader_up", 0)
			n := c.newCompute()
			n.startCompute()
			id := n.worker(0)
			n.signal(9)
			n.mustExit(137, patience)
			l.awaitEvent("paused", 0)
			if unregister {
				l.mustAsk(wire.MethodDelete, deleteHost(n.host()))
			}
			back := clock.BootNS()
			n.startCompute()
			if again := n.worker(back); (again != id) != unregister {
				t.Errorf("worker %s, before %s", again, id)
			}
			n.awaitEvent("heartbeat", back)
			release()
			n.mustExit(1, patience)
			n.awaitEvent("unknown_worker", back)
			c.mustHaveWorkers()
		})
	}
}

// The last stream wins, whoever opened it; its Init ends all actors, and the meta takes it back.
func TestControlStreamIsStolen(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1, flags: []string{"--workers", "head"}})
	l := c.start()
	n := c.newCompute()
	n.startCompute("--reset-delay", "200ms")
	l.awaitEvent("database_running", 0)
	at := clock.BootNS()
	stolen := n.openControl()
	n.awaitEvent("stream_reset", at)
	if n.since("actors_aborted", at) == nil {
		t.Error("the answer to Init came before the actors had ended")
	}
	l.awaitEvent("stream_error", at)
	l.awaitEvent("database_running", at)
	var b []byte
	if err := stolen.RecvMsg(&b); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "reset to a new one") {
		t.Errorf("our stream ended with %v", err)
	}
	// A stream that only ends aborts nothing.
	l.signal(9)
	l.mustExit(137, patience)
	ended := n.awaitEvent("stream_end", at).Boot
	lasts(time.Second)
	if n.has("actors_aborted", ended) {
		t.Error("actors end only with a new Init")
	}
	if out := n.mustAsk(wire.MethodStats, nil); len(out) == 0 {
		t.Error("the actors still count")
	}
}
