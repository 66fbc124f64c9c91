// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"metasim/internal/clock"
	"metasim/internal/wire"
)

// field9 is the removed_table_ids of each delta that has some, "" for one without.
func (c *cluster) removals() (all []string) {
	c.t.Helper()
	rows, err := c.conn.Query(c.t.Context(), `SELECT full_version_delta FROM hummock_version_delta ORDER BY id`)
	if err != nil {
		c.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var b []byte
		if err := rows.Scan(&b); err != nil {
			c.t.Fatal(err)
		}
		d, err := wire.DecodeVersionDelta(b)
		if err != nil {
			c.t.Fatal(err)
		}
		if len(d.Removed) > 0 || len(d.Committed) == 0 {
			all = append(all, strings.Trim(fmt.Sprint(d.Removed), "[]"))
		}
	}
	return all
}

// withJobs is a leader and compute nodes that all stop at pause points; nothing runs yet.
func withJobs(t *testing.T, release string, computes int, flags ...string) (c *cluster, l *node) {
	t.Helper()
	// A lease that a busy machine does not outlast.
	c = newCluster(t, setup{nodes: 1, lease: 30 * time.Second, flags: append([]string{"--workers", release, "--jobs", "0", "--reconnect-limit", "1s"}, flags...)})
	l = c.nodes[0]
	l.start("--pause-dir", l.pauseDir())
	l.awaitEvent("leader_up", 0)
	l.awaitEvent("recovery_done", 0)
	for i := range computes {
		n := c.newCompute()
		n.startCompute("--pause-dir", n.pauseDir())
		n.worker(0)
		c.await(patience, "its stream", func() bool { return len(l.since("stream_connected", 0)) > i })
	}
	return c, l
}

func (l *node) create(name string, actors uint32) wire.CreateResponse {
	l.c.t.Helper()
	made, err := wire.DecodeCreateResponse(l.mustAsk(wire.MethodCreate, wire.CreateRequest{Name: name, Actors: actors}.Encode()))
	if err != nil || made.Job == 0 || len(made.Fragments) != 2 || len(made.Tables) != 2 {
		l.c.t.Fatalf("create: %+v %v", made, err)
	}
	return made
}

// later makes an RPC whose answer is awaited by the function that it returns.
func (n *node) later(method string, in []byte) (answer func() error) {
	ch := make(chan error, 1)
	go func() {
		_, err := n.ask(6*patience, method, in)
		ch <- err
	}()
	return func() error { return <-ch }
}

// drop begins one and waits until its command is queued.
func (l *node) drop(job uint32) (answer func() error) {
	l.c.t.Helper()
	at := clock.BootNS()
	answer = l.later(wire.MethodDrop, number(job))
	l.awaitEvent("command_queued", at)
	return answer
}

func number(id uint32) []byte { return wire.Varint(nil, 1, uint64(id)) }

// busy sends a job's first fragment a chunk and waits until its actor takes no notice of anything.
func (n *node) busy(made wire.CreateResponse) (finish func()) {
	n.c.t.Helper()
	finish = n.pauseFile("actor-busy")
	at := clock.BootNS()
	n.mustAsk(wire.MethodUpdate, number(made.Fragments[0]))
	n.awaitEvent("paused", at)
	return finish
}

func (n *node) running() map[uint32]uint64 {
	n.c.t.Helper()
	actors, err := wire.DecodeStats(n.mustAsk(wire.MethodStats, nil))
	if err != nil {
		n.c.t.Fatal(err)
	}
	return actors
}

// A DROP is in the catalog at once; the tables go when its barrier has passed the actors. The same update that kills
// a compute node below passes here.
func TestDrop(t *testing.T) {
	for release, by := range map[string]string{"v2.6": "post-collect", "v2.8": "drop", "head": "drop"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			c, l := withJobs(t, release, 1)
			n := c.computes[0]
			kept, made := l.create("kept", 1), l.create("mv", 2)
			if got := c.count(`SELECT count(*) FROM streaming_job WHERE job_status = 'CREATED' AND create_type = 'FOREGROUND'`); got != 2 {
				t.Errorf("%d jobs are CREATED", got)
			}
			if got := c.count(`SELECT count(*) FROM fragment JOIN "table" USING (fragment_id) WHERE job_id = $1 AND state_table_ids = jsonb_build_array(table_id)`,
				made.Job); got != 2 {
				t.Errorf("%d fragments with their tables", got)
			}
			want := map[uint32]uint64{kept.Fragments[0]: 1, kept.Fragments[1]: 1, made.Fragments[0]: 2, made.Fragments[1]: 2}
			c.await(patience, "actors", func() bool { return fmt.Sprint(n.running()) == fmt.Sprint(want) })
			if release == "v2.6" && c.count(`SELECT count(*) FROM actor`) != 6 {
				t.Error("v2.6 keeps actors in SQL")
			}
			finish := n.busy(made)
			dropped := l.drop(made.Job)
			if got := c.count(`SELECT count(*) FROM object WHERE oid = ANY($1)`, made.Tables) +
				c.count(`SELECT count(*) FROM fragment WHERE job_id = $1`, made.Job); got != 0 {
				t.Errorf("%d rows of the job are left", got)
			}
			lasts(1500 * time.Millisecond)
			if l.has("unregistered", 0) || l.has("drop_done", 0) {
				t.Fatal("the tables go behind the barrier")
			}
			finish()
			if err := dropped(); err != nil {
				t.Errorf("drop: %v", err)
			}
			u := l.awaitEvent("unregistered", 0).Fields
			if u["by"] != by || u["tables"] != fmt.Sprint(made.Tables) {
				t.Errorf("unregistered %v, want %v by %s", u, made.Tables, by)
			}
			n.awaitEvent("chunk_done", 0)
			n.awaitEvent("version_removed", 0)
			if got, want := strings.Join(c.removals(), "; "), strings.Trim(fmt.Sprint(made.Tables), "[]"); got != want {
				t.Errorf("removals %q, want %q", got, want)
			}
			c.await(patience, "the end of the actors", func() bool { return len(n.running()) == 2 })
			l.mustAsk(wire.MethodDrop, number(kept.Job))
			c.await(patience, "no actors", func() bool { return len(n.running()) == 0 })
			if !n.alive() || n.has("stream_reset", 0) || l.has("recovery_start", l.since("recovery_done", 0)[0].Boot) {
				t.Error("nothing recovers because of a DROP")
			}
			mustRefuse(t, l, wire.MethodDrop, number(kept.Job), codes.NotFound, "catalog id not found")
		})
	}
}

// A node that has not heard of a version with a new table waits for it: it does not read nothing. An Init ends the wait.
func TestActorAwaitsItsTables(t *testing.T) {
	t.Parallel()
	c, l := withJobs(t, "head", 1)
	n := c.computes[0]
	heard := n.pauseFile("version-pushed")
	made := l.create("mv", 1)
	n.mustAsk(wire.MethodUpdate, number(made.Fragments[0]))
	n.awaitEvent("table_awaited", 0)
	if n.has("read", 0) {
		t.Error("a read before the table is there")
	}
	if got := n.running()[made.Fragments[0]]; got != 1 {
		t.Errorf("%d actors: one that waits counts", got)
	}
	at := clock.BootNS()
	if code, _, said := called(t, n.id, "init"); code != 0 {
		t.Errorf("init: exit %d %s", code, said)
	}
	l.awaitEvent("database_running", at)
	n.mustAsk(wire.MethodUpdate, number(made.Fragments[0]))
	n.awaitEvent("table_awaited", at)
	heard()
	n.awaitEvent("chunk_done", at)
	for _, read := range n.since("read", 0) {
		if read.Fields["rows"] == "0" {
			t.Errorf("read %v", read.Fields)
		}
	}
	if !n.alive() || n.has("panic", 0) {
		t.Error("the node panics")
	}
}

// CREATE by its steps, CANCEL, ALTER, and what a recovery makes of jobs that are not CREATED.
func TestCreatingJobs(t *testing.T) {
	for _, release := range []string{"v3.0", "head"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			c, l := withJobs(t, release, 1)
			n := c.computes[0]
			made := l.create("mv", 1)
			l.mustAsk(wire.MethodReplace, number(made.Job))
			replaced := l.awaitEvent("unregistered", 0).Fields
			if replaced["by"] != "replace" || replaced["tables"] != fmt.Sprint(made.Tables[1:]) {
				t.Errorf("replaced %v, want the internal table of %v", replaced, made.Tables)
			}
			if got := c.count(`SELECT count(*) FROM fragment JOIN "table" USING (fragment_id) WHERE job_id = $1 AND fragment_id > $2`,
				made.Job, made.Fragments[1]); got != 2 || c.count(`SELECT count(*) FROM streaming_job`) != 1 {
				t.Errorf("%d fragments of the replacement", got)
			}
			c.await(patience, "only the new actors", func() bool {
				r := n.running()
				return len(r) == 2 && r[made.Fragments[0]] == 0 && r[made.Fragments[1]] == 0
			})

			backfill := l.pauseFile("create-backfill")
			l.mustAsk(wire.MethodCreate, wire.CreateRequest{Name: "slow", Actors: 1, IsBackground: true}.Encode())
			status := `SELECT count(*) FROM streaming_job JOIN "table" ON table_id = job_id WHERE name = $1 AND job_status = $2`
			c.await(patience, "CREATING", func() bool { return c.count(status, "slow", "CREATING") == 1 })
			_ = l.later(wire.MethodCreate, wire.CreateRequest{Name: "front", Actors: 1}.Encode())
			c.await(patience, "CREATING", func() bool { return c.count(status, "front", "CREATING") == 1 })
			initial := l.pauseFile("create-committed")
			failed := l.later(wire.MethodCreate, wire.CreateRequest{Name: "first", Actors: 1}.Encode())
			c.await(patience, "INITIAL", func() bool { return c.count(status, "first", "INITIAL") == 1 })

			// Nobody dropped anything, and yet tables go.
			at := clock.BootNS()
			l.mustAsk(wire.MethodRecover, nil)
			l.awaitEvent("dirty_cleaned", at)
			if got := c.count(status, "first", "INITIAL"); got != 0 {
				t.Error("an INITIAL job is dirty")
			}
			survives := c.count(status, "front", "CREATING") == 1
			if survives != (release == "head") || l.has("unregistered", at) != (release != "head") {
				t.Errorf("the foreground job survives: %v", survives)
			}
			initial()
			if failed() == nil {
				t.Error("the CREATE of a cleaned job succeeded")
			}
			if c.count(status, "slow", "CREATING") != 1 {
				t.Error("a background job goes on")
			}
			slow := uint32(c.count(`SELECT table_id FROM "table" WHERE name = 'slow'`))
			canceled, err := wire.DecodeCanceled(l.mustAsk(wire.MethodCancel, wire.EncodeCancelRequest(slow, made.Job)))
			if err != nil || fmt.Sprint(canceled) != fmt.Sprint([]uint32{slow}) {
				t.Errorf("canceled %v %v: only a job that is not CREATED", canceled, err)
			}
			backfill()
			if survives {
				c.await(patience, "CREATED", func() bool { return c.count(status, "front", "CREATED") == 1 })
			}
		})
	}
}
