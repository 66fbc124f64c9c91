// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"metasim/internal/clock"
	"metasim/internal/wire"
)

// pending brings a cluster to where a DROP waits for an actor that sees no abort. The job runs on the first node.
func pending(t *testing.T, release string, flags ...string) (c *cluster, l, n *node, made wire.CreateResponse, finish func()) {
	t.Helper()
	c, l = withJobs(t, release, 2, flags...)
	made = l.create("mv", 1)
	n = c.computes[0]
	finish = n.busy(made)
	_ = l.drop(made.Job)
	return c, l, n, made, finish
}

// RECOVER takes the tables away while an actor still runs: its next read finds nothing, and the process is gone.
func TestRecoverKillsTheNode(t *testing.T) {
	for _, release := range []string{"v2.6", "head"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			c, l, n, made, finish := pending(t, release)
			at := clock.BootNS()
			recovered := l.later(wire.MethodRecover, nil)
			u := l.awaitEvent("unregistered", at).Fields
			if u["by"] != "purge" || u["tables"] != fmt.Sprint(made.Tables) {
				t.Errorf("unregistered %v", u)
			}
			removed := n.awaitEvent("version_removed", at)
			begun := n.awaitEvent("reset_begin", at)
			if begun.Boot < l.since("unregistered", at)[0].Boot {
				t.Error("the streams open after the purge")
			}
			if got := n.running()[made.Fragments[0]]; got != 1 || l.recoveryStatus() != 2 {
				t.Errorf("%d actors, status %d", got, l.recoveryStatus())
			}
			l.awaitEvent("drop_failed", at) // the recovery takes over
			finish()
			n.mustExit(134, patience)
			read := n.since("read", removed.Boot)
			if len(read) != 1 || read[0].Fields["rows"] != "0" || read[0].Fields["table"] != fmt.Sprint(made.Tables[1]) {
				t.Errorf("reads %v, want an empty one", read)
			}
			if why := n.awaitEvent("panic", 0).Fields["why"]; !strings.Contains(why, "delta_btree_map") || !strings.Contains(n.log(), "0 rows") {
				t.Errorf("panic %q", why)
			}
			if err := recovered(); err != nil || l.recoveryStatus() != 3 {
				t.Errorf("Recover: %v, status %d", err, l.recoveryStatus())
			}
			if other := c.computes[1]; !other.alive() {
				t.Error("the other node keeps its process")
			}
		})
	}
}

// The same at the start of a leader; its memory is the checkpoint and the deltas after it.
func TestBootstrapKillsTheNode(t *testing.T) {
	t.Parallel()
	_, l, n, made, finish := pending(t, "v3.0")
	l.signal(syscall.SIGKILL)
	l.mustExit(137, patience)
	l.start("--pause-dir", l.pauseDir())
	l.awaitEvent("recovery_marked", l.startedNS)
	if u := l.awaitEvent("unregistered", l.startedNS).Fields; u["by"] != "purge" || u["tables"] != fmt.Sprint(made.Tables) {
		t.Errorf("unregistered %v", u)
	}
	n.awaitEvent("reset_begin", l.startedNS)
	l.awaitEvent("leader_up", l.startedNS)
	if s := l.recoveryStatus(); s != 1 {
		t.Errorf("status %d, want 1 in a bootstrap", s)
	}
	// The node sees the version when it finds the new leader.
	if tables := n.awaitEvent("subscribed", l.startedNS).Fields["tables"]; tables != "[]" {
		t.Errorf("subscribed to a version with tables %s", tables)
	}
	finish()
	n.mustExit(134, patience)
	l.awaitEvent("recovery_done", l.startedNS)
}

// As long as the purge is refused nothing happens to the tables; and an Init from outside is what ends the actor.
func TestRefusedPurge(t *testing.T) {
	t.Parallel()
	c, l, n, made, finish := pending(t, "head")
	at := clock.BootNS()
	allow := c.refuse(l, "INSERT", "hummock_version_delta")
	recovered := l.later(wire.MethodRecover, nil)
	c.await(patience, "attempts", func() bool { return len(l.since("recovery_failed", at)) >= 3 })
	if len(l.since("recovery_marked", at)) < 3 || l.has("stream_connected", at) {
		t.Error("each attempt begins with its marker, and none opens a stream")
	}
	if failed := l.since("unregister_failed", at)[0].Fields; failed["by"] != "purge" || !strings.Contains(failed["msg"], "MF001") {
		t.Errorf("refused %v", failed)
	}

	// Its caller is gone before the reset is done; the reset goes on.
	n.initAndLeave()
	if got := n.running()[made.Fragments[0]]; got != 1 {
		t.Errorf("%d actors: one that was told to end still counts", got)
	}
	if _, err := n.ask(500*time.Millisecond, wire.MethodTrace, nil); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("trace: %v, want it to hang in a reset", err)
	}
	finish()
	if opened := n.awaitEvent("stream_open", at).Boot; opened < n.since("actors_aborted", at)[0].Boot {
		t.Error("the answer to Init came before the actors had ended")
	}
	if code, out, said := called(t, n.id, "init"); code != 0 || out != "{}" {
		t.Errorf("init: exit %d %s %s", code, out, said)
	}
	if code, out, _ := called(t, n.id, "stats"); code != 0 || out != "{}" {
		t.Errorf("stats after the reset: %d %s", code, out)
	}
	if _, out, _ := called(t, n.id, "trace"); !strings.Contains(out, "has_control_stream_connected: false") {
		t.Errorf("trace %s", out)
	}
	if s := l.recoveryStatus(); s != 2 {
		t.Errorf("status %d", s)
	}
	allow()
	if err := recovered(); err != nil {
		t.Errorf("Recover: %v", err)
	}
	if by := l.awaitEvent("unregistered", at).Fields["by"]; by != "purge" || !n.alive() || n.has("panic", 0) {
		t.Errorf("unregistered by %s, node alive %v", by, n.alive())
	}
}

// Drops that come in a recovery are taken over by it, once: if that fails the purge has their tables.
func TestDropInARecovery(t *testing.T) {
	for _, release := range []string{"v2.6", "head"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			c, l := withJobs(t, release, 1)
			made, second := l.create("mv", 1), l.create("mv2", 1)
			at := clock.BootNS()
			proceed := l.pauseFile("recovery-marked")
			recovered := l.later(wire.MethodRecover, nil)
			l.awaitEvent("recovery_marked", at)
			mustRefuse(t, l, wire.MethodCreate, wire.CreateRequest{Name: "no", Actors: 1}.Encode(), codes.Unavailable, "recovering")
			dropped := l.drop(made.Job)
			proceed()
			if err := dropped(); err != nil {
				t.Errorf("drop: %v", err)
			}
			if err := recovered(); err != nil {
				t.Errorf("Recover: %v", err)
			}
			l.awaitEvent("drop_done", at)
			var by []string
			for _, u := range l.since("unregistered", at) {
				by = append(by, u.Fields["by"]+u.Fields["tables"])
			}
			want := []string{fmt.Sprintf("purge%v", made.Tables)}
			if release == "head" { // the recovery and the task of the DROP: who comes second finds nothing any more
				want = []string{fmt.Sprintf("pre-applied%v drop[]", made.Tables), fmt.Sprintf("drop%v pre-applied[]", made.Tables)}
			}
			if got := strings.Join(by, " "); !slices.Contains(want, got) {
				t.Errorf("unregistered %s, want %s", got, want)
			}

			at = clock.BootNS()
			allow := c.refuse(l, "INSERT", "hummock_version_delta")
			proceed = l.pauseFile("recovery-marked")
			recovered = l.later(wire.MethodRecover, nil)
			l.awaitEvent("recovery_marked", at)
			_ = l.drop(second.Job)
			proceed()
			c.await(patience, "attempts", func() bool { return len(l.since("recovery_failed", at)) >= 3 })
			allow()
			if err := recovered(); err != nil {
				t.Errorf("Recover: %v", err)
			}
			if n := len(l.since("drop_preapplied", at)); n != 1 {
				t.Errorf("pre-applied %d times", n)
			}
			if u := l.since("unregistered", at); u[0].Fields["by"] != "purge" {
				t.Errorf("unregistered %v, want the purge after the popped drop", u[0].Fields)
			}
		})
	}
}

// While a removal waits in Postgres nobody subscribes, so no node starts; heartbeats go on.
func TestStartBehindAWaitingPurge(t *testing.T) {
	t.Parallel()
	c, l, n, _, finish := pending(t, "head")
	at := clock.BootNS()
	proceed := l.pauseFile("versioning-locked")
	recovered := l.later(wire.MethodRecover, nil)
	l.awaitEvent("paused", at)
	third := c.newCompute()
	third.startCompute()
	third.awaitEvent("registered", 0)
	c.await(patience, "heartbeats", func() bool { return len(third.since("heartbeat", at)) >= 2 })
	if third.has("subscribed", 0) || l.recoveryStatus() != 2 {
		t.Errorf("a node started under the lock, status %d", l.recoveryStatus())
	}
	// TERM unregisters, then hangs behind the reset.
	n.initAndLeave()
	n.signal(syscall.SIGTERM)
	n.awaitEvent("unregister", at)
	lasts(500 * time.Millisecond)
	if !n.alive() {
		t.Fatal("TERM must wait for the reset")
	}
	if got := strings.Join(c.workers(), "; "); strings.Contains(got, n.id) {
		t.Errorf("worker rows %s", got)
	}
	finish()
	n.mustExit(0, patience)
	proceed()
	third.worker(0)
	if err := recovered(); err != nil {
		t.Errorf("Recover: %v", err)
	}
}

// initAndLeave sends an Init and is gone before the answer.
func (n *node) initAndLeave() {
	n.c.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+n.id, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{})))
	if err != nil {
		n.c.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	at := clock.BootNS()
	stream, err := conn.NewStream(n.c.t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, wire.MethodControl)
	if err != nil {
		n.c.t.Fatal(err)
	}
	init := wire.Control{Kind: wire.RequestInit}.Encode()
	if err := stream.SendMsg(&init); err != nil {
		n.c.t.Fatal(err)
	}
	n.awaitEvent("reset_begin", at)
	if n.has("stream_open", at) {
		n.c.t.Fatal("the Init was answered at once")
	}
}

// With --read-removed=error a read of what is gone says so, and nobody dies.
func TestReadOfRemovedIsAnError(t *testing.T) {
	t.Parallel()
	c, l := withJobs(t, "head", 0)
	n := c.newCompute()
	n.startCompute("--pause-dir", n.pauseDir(), "--read-removed", "error", "--busy", "10ms")
	n.worker(0)
	l.awaitEvent("stream_connected", 0)
	made := l.create("mv", 1)
	finish := n.busy(made)
	_ = l.drop(made.Job)
	recovered := l.later(wire.MethodRecover, nil)
	n.awaitEvent("version_removed", 0)
	finish()
	if err := recovered(); err != nil {
		t.Errorf("Recover: %v", err)
	}
	msg := n.awaitEvent("actor_failed", 0).Fields["msg"]
	if !strings.Contains(msg, fmt.Sprintf("partition 1 of table %d", made.Tables[1])) || !n.alive() {
		t.Errorf("actor failed with %q, alive %v", msg, n.alive())
	}
}

// A database alone resets first and removes afterwards.
func TestDatabaseRecoveryOrder(t *testing.T) {
	t.Parallel()
	c, l := withJobs(t, "head", 2)
	n, other := c.computes[0], c.computes[1]
	made := l.create("mv", 2)
	finish := n.busy(made)
	at := clock.BootNS()
	other.signal(syscall.SIGKILL)
	l.awaitEvent("database_failed", at)
	dropped := l.drop(made.Job)
	lasts(time.Second)
	if l.has("recovery_marked", at) || l.has("unregistered", at) || l.recoveryStatus() != 3 {
		t.Errorf("before all have reset nothing is removed; status %d", l.recoveryStatus())
	}
	if _, err := n.ask(patience, wire.MethodTrace, nil); err != nil {
		t.Errorf("trace: %v: this reset holds nobody up", err)
	}
	finish()
	if err := dropped(); err != nil {
		t.Errorf("drop: %v", err)
	}
	u := l.awaitEvent("unregistered", at)
	if m := l.awaitEvent("recovery_marked", at); m.Fields["global"] != "false" || u.Fields["by"] == "purge" || u.Boot < m.Boot {
		t.Errorf("marked %v, unregistered %v", m.Fields, u.Fields)
	}
	if aborted := n.awaitEvent("actors_aborted", at).Boot; aborted > u.Boot || n.has("panic", 0) || l.has("recovery_start", at) {
		t.Error("the tables went before the actors, or the recovery was global")
	}
}

// A refused removal: of a DROP it is a line in the log, of its barrier up to v2.8.2 and of ALTER a global recovery.
func TestRefusedRemovals(t *testing.T) {
	for _, tc := range []struct {
		release, method string
		global          bool
	}{{"v2.6", wire.MethodDrop, true}, {"head", wire.MethodDrop, false}, {"head", wire.MethodReplace, true}} {
		t.Run(tc.release+tc.method[len(tc.method)-8:], func(t *testing.T) {
			t.Parallel()
			c, l := withJobs(t, tc.release, 1)
			made := l.create("mv", 1)
			c.exec(`CREATE FUNCTION refuse_removal() RETURNS trigger LANGUAGE plpgsql AS $$
				BEGIN
					IF position('\x4a'::bytea IN NEW.full_version_delta) > 0 AND position('\x4a020709'::bytea IN NEW.full_version_delta) = 0 THEN
						RAISE EXCEPTION 'a removal' USING ERRCODE = 'MF002';
					END IF;
					RETURN NEW;
				END $$`)
			c.exec(`CREATE TRIGGER refuse BEFORE INSERT ON hummock_version_delta FOR EACH ROW EXECUTE FUNCTION refuse_removal()`)
			at := clock.BootNS()
			_, err := l.ask(patience, tc.method, number(made.Job))
			if (err != nil) != (tc.method == wire.MethodReplace) {
				t.Errorf("%s: %v", tc.method, err)
			}
			if msg := l.awaitEvent("unregister_failed", at).Fields["msg"]; !strings.Contains(msg, "MF002") {
				t.Errorf("refused with %q", msg)
			}
			if tc.global {
				l.awaitEvent("recovery_failed", at)
			} else {
				l.awaitEvent("drop_failed", at)
				lasts(time.Second)
			}
			if l.has("recovery_start", at) != tc.global {
				t.Errorf("global recovery: %v", !tc.global)
			}
			c.exec(`DROP TRIGGER refuse ON hummock_version_delta`)
			if !tc.global { // leaked until the next recovery
				l.mustAsk(wire.MethodRecover, nil)
			}
			if by := l.awaitEvent("unregistered", at).Fields["by"]; by != "purge" {
				t.Errorf("unregistered by %s", by)
			}
		})
	}
}

// What metasim call makes of the new verbs.
func TestCallOfJobs(t *testing.T) {
	t.Parallel()
	c, l := withJobs(t, "head", 1)
	n := c.computes[0]
	for _, step := range []struct{ words, want string }{
		{l.id + " create mv 2", `{"job":3,"fragments":[101,102],"tables":[3,4]}`},
		{l.id + " create bg 1 background", `{"job":5,"fragments":[103,104],"tables":[5,6]}`},
		{l.id + " tables", `[3,4,5,6]`},
		{l.id + " status", `{"status":3}`},
		{n.id + " stats", `{"101":2,"102":2,"103":1,"104":1}`},
		{n.id + " update 101", `{"actors":2}`},
		{l.id + " drop 3", `{}`},
		{l.id + " alter 5", `{}`},
		{l.id + " cancel 5", `[]`},
		{l.id + " drop 5", `{}`},
		{l.id + " tables", `[]`},
	} {
		if code, out, said := called(t, strings.Fields(step.words)...); code != 0 || out != step.want {
			c.dump()
			t.Fatalf("%s: exit %d %q %s, want %s", step.words, code, out, said, step.want)
		}
	}
	for _, bad := range []struct {
		words, want string
		code        int
	}{
		{n.id + " update 101", "NotFound", 1},
		{l.id + " drop 77", "NotFound", 1},
		{l.id + " drop mv", "give a number", 2},
		{l.id + " create mv none", "give a number of actors", 2},
	} {
		if code, _, said := called(t, strings.Fields(bad.words)...); code != bad.code || !strings.Contains(said, bad.want) {
			t.Errorf("%s: exit %d %q, want %d and %q", bad.words, code, said, bad.code, bad.want)
		}
	}
	if _, err := n.ask(patience, wire.MethodUpdate, nil); status.Code(err) != codes.NotFound {
		t.Errorf("update of fragment 0: %v", err)
	}
}
