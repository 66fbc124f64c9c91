// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"
)

func (c *cluster) schema(release string) {
	c.t.Helper()
	cmd := exec.Command(binary, "schema", "--version", release, "--dsn", c.setup.pg.dsn(c.db))
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("schema %s: %v\n%s", release, err, out)
	}
}

const allColumns = `SELECT string_agg(table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable, E'\n'
	ORDER BY table_name, column_name) FROM information_schema.columns
	WHERE table_schema = 'public' AND table_name <> 'seaql_migrations'`

func (c *cluster) columns() (all string) {
	c.t.Helper()
	if err := c.conn.QueryRow(c.t.Context(), allColumns).Scan(&all); err != nil {
		c.t.Fatal(err)
	}
	return all
}

// The printed text and the upgrade step by step come to the same.
func TestSchema(t *testing.T) {
	t.Parallel()
	c, printed := newCluster(t, setup{nodes: 1}), newCluster(t, setup{nodes: 1})
	out, err := exec.Command(binary, "schema", "--version", "next").Output()
	if err != nil {
		t.Fatal(err)
	}
	printed.exec(string(out))
	has := func(column string) bool { return strings.Contains("\n"+c.columns()+"\n", "\n"+column+"\n") }
	for _, step := range []struct{ release, with, without string }{
		{"v2.0", "fragment.state_table_ids jsonb YES", "worker_property.parallelism integer YES"},
		{"v2.6", "worker_property.resource_group character varying YES", "worker_property.parallel_unit_ids jsonb NO"},
		{"v2.8", "worker_property.is_iceberg_compactor boolean NO", "actor.worker_id integer NO"},
		{"v3.0", "hummock_table_change_log.table_id integer NO", "actor.worker_id integer NO"},
		{"head", "worker_property.started_at bigint YES", "hummock_table_change_log.nothing text NO"},
		{"next", "worker.port bigint NO", "worker_property.is_unschedulable boolean NO"},
	} {
		if step.release == "head" {
			c.exec(`INSERT INTO worker (worker_type, host, port, status) VALUES ('FRONTEND', 'f', 1, 'RUNNING')`)
		}
		c.schema(step.release)
		c.schema(step.release) // again: nothing to do
		if !has(step.with) || has(step.without) {
			t.Errorf("%s: want %q, not %q\n%s", step.release, step.with, step.without, c.columns())
		}
	}
	if n := c.count(`SELECT count(*) FROM worker`); n != 0 {
		t.Errorf("%d workers after the upgrade to HEAD, which deletes all", n)
	}
	if c.columns() != printed.columns() {
		t.Errorf("step by step:\n%s\nprinted:\n%s", c.columns(), printed.columns())
	}
	c.schema("v2.6") // older than the database: left alone
	if !has("worker.port bigint NO") {
		t.Error("an old release changed a newer database")
	}
	for _, bad := range [][]string{{"--version", "v9"}, {}, {"--version", "head", "more"}} {
		err := exec.Command(binary, append([]string{"schema"}, bad...)...).Run()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 2 {
			t.Errorf("schema %v: %v, want exit 2", bad, err)
		}
	}
}

// A meta of the next release upgrades when it starts to lead; workers that have lost their rows register again.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1})
	l := c.nodes[0]
	l.start("--workers", "v3.0")
	l.awaitEvent("leader_up", 0)
	compute := c.newCompute()
	compute.startCompute()
	id := compute.worker(0)
	l.signal(15)
	l.mustExit(0, patience)
	l.start("--workers", "head")
	l.awaitEvent("leader_up", l.startedNS)
	compute.mustExit(1, 3*patience)
	compute.startCompute()
	if again := compute.worker(l.startedNS); again == id {
		t.Errorf("worker %s again", again)
	}
	l.awaitEvent("database_running", l.startedNS)
}
