// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"metasim/internal/pool"
	"metasim/internal/schema"
	"metasim/internal/wire"
)

// Of streaming_job.
const (
	statusInitial  = "INITIAL"
	statusCreating = "CREATING"
	statusCreated  = "CREATED"

	foreground = "FOREGROUND"
	background = "BACKGROUND"
)

// job is a materialized view: a fragment that keeps partitions in an internal table, and one that keeps the result in
// the job's own table, whose id is the job's.
type job struct {
	id         uint32
	name       string
	definition string
	status     string
	createType string
	actors     int // of each fragment
	fragments  []fragment
	finished   chan error // of a CREATE: nil once it is CREATED
}

type fragment struct {
	id     uint32
	tables []uint32
}

func (j *job) tables() (all []uint32) {
	for _, f := range j.fragments {
		all = append(all, f.tables...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (j *job) fragmentIDs() (all []uint32) {
	for _, f := range j.fragments {
		all = append(all, f.id)
	}
	return all
}

// firstFragment leaves room for the job of --jobs, which is in no catalog.
const firstFragment = 101

// transaction runs statements after one another; it ends at the first error.
func (c *cluster) transaction(run func(exec func(sql string, args ...string) [][][]byte)) (err error) {
	tx, err := c.pool.Begin(context.Background())
	if err != nil {
		return err
	}
	run(func(sql string, args ...string) [][][]byte {
		if err != nil {
			return nil
		}
		var res pool.Result
		res, err = tx.Exec(pool.Statement{SQL: sql, Args: args})
		return res.Rows
	})
	if err != nil {
		tx.Rollback()
		return err
	}
	return tx.Commit()
}

func firstNumber(rows [][][]byte) uint32 {
	if len(rows) == 0 {
		return 0
	}
	return uint32(number(rows[0][0]))
}

const (
	insertObject = `INSERT INTO "object" ("obj_type", "owner_id", "schema_id", "database_id") VALUES ('TABLE', 1, 2, 1) RETURNING "oid"`
	nextFragment = `SELECT greatest(max("fragment_id") + 1, $1) FROM "fragment"`
	insertTable  = `INSERT INTO "table" ("table_id", "name", "table_type", "belongs_to_job_id", "definition") VALUES ($1, $2, $3, $4, '')`
)

// insertJob writes a job as INITIAL with its fragments and tables. A replacement keeps the result in the table of the
// job that it replaces.
func (c *cluster) insertJob(j *job, result uint32) error {
	return c.transaction(func(exec func(string, ...string) [][][]byte) {
		j.id = firstNumber(exec(insertObject))
		exec(`INSERT INTO "streaming_job" ("job_id", "job_status", "create_type", "parallelism") VALUES ($1, $2, $3, $4)`,
			text(j.id), j.status, j.createType, fmt.Sprintf(`{"Fixed": %d}`, j.actors))
		internal := firstNumber(exec(insertObject))
		if result == 0 {
			result = j.id
			exec(`INSERT INTO "table" ("table_id", "name", "table_type", "definition") VALUES ($1, $2, 'MATERIALIZED_VIEW', $3)`,
				text(j.id), j.name, j.definition)
		}
		exec(insertTable, text(internal), fmt.Sprintf("__internal_%s_%d_overwindow_%d", j.name, j.id, internal), "INTERNAL", text(j.id))
		id := firstNumber(exec(nextFragment, text(firstFragment)))
		j.fragments = []fragment{{id, []uint32{internal}}, {id + 1, []uint32{result}}}
		for i, f := range j.fragments {
			exec(`INSERT INTO "fragment" ("fragment_id", "job_id", "fragment_type_mask", "distribution_type", "stream_node", "state_table_ids")
VALUES ($1, $2, 0, 'HASH', '', $3)`, text(f.id), text(j.id), fmt.Sprintf("[%s]", idList(f.tables)))
			if i == 0 || result == j.id {
				exec(`UPDATE "table" SET "fragment_id" = $1 WHERE "table_id" = $2`, text(f.id), text(f.tables[0]))
			}
		}
	})
}

// deleteJob is the catalog's half of a drop: committed long before the actors hear of it.
func (c *cluster) deleteJob(id uint32) (*job, error) {
	jobs, err := c.loadJobs()
	if err != nil {
		return nil, sqlError(err)
	}
	i := slices.IndexFunc(jobs, func(j *job) bool { return j.id == id })
	if i < 0 {
		return nil, status.Errorf(codes.NotFound, "catalog id not found: streaming job %d", id)
	}
	if err := c.deleteObjects(append([]uint32{id}, jobs[i].tables()...)); err != nil {
		return nil, sqlError(err)
	}
	return jobs[i], nil
}

func (c *cluster) deleteObjects(ids []uint32) error {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	return c.transaction(func(exec func(string, ...string) [][][]byte) { execDeleteObjects(exec, ids) })
}

func execDeleteObjects(exec func(string, ...string) [][][]byte, ids []uint32) {
	sql := `DELETE FROM "object" WHERE "object"."oid" IN (`
	var args []string
	for i, id := range ids {
		if i > 0 {
			sql += ", "
		}
		sql += fmt.Sprintf("$%d", i+1)
		args = append(args, text(id))
	}
	exec(sql+")", args...)
}

// finishReplace is a replacement's change of the catalog: the new fragments go over to the job.
func (c *cluster) finishReplace(old, tmp *job) error {
	return c.transaction(func(exec func(string, ...string) [][][]byte) {
		exec(`UPDATE "table" SET "fragment_id" = $1 WHERE "table_id" = $2`, text(tmp.fragments[1].id), text(old.id))
		exec(`UPDATE "table" SET "belongs_to_job_id" = $1 WHERE "belongs_to_job_id" = $2`, text(old.id), text(tmp.id))
		exec(`DELETE FROM "fragment" WHERE "fragment"."job_id" = $1`, text(old.id))
		exec(`UPDATE "fragment" SET "job_id" = $1 WHERE "fragment"."job_id" = $2`, text(old.id), text(tmp.id))
		execDeleteObjects(exec, append([]uint32{tmp.id}, old.fragments[0].tables...))
	})
}

func (c *cluster) setStatus(id uint32, to string) error {
	res, err := c.query(`UPDATE "streaming_job" SET "job_status" = $1 WHERE "job_id" = $2`, to, text(id))
	if err == nil && res.Tag == "UPDATE 0" {
		err = fmt.Errorf("RecordNotUpdated: job %d is gone", id)
	}
	return err
}

// loadJobs reads all jobs with their fragments, in the order of their ids.
func (c *cluster) loadJobs() (jobs []*job, err error) {
	res, err := c.query(`SELECT s.job_id, s.job_status, s.create_type, s.parallelism, t.name, t.definition, f.fragment_id, f.state_table_ids
 FROM streaming_job AS s LEFT JOIN "table" AS t ON t.table_id = s.job_id LEFT JOIN fragment AS f ON f.job_id = s.job_id
 ORDER BY s.job_id, f.fragment_id`)
	if err != nil {
		return nil, err
	}
	for _, row := range res.Rows {
		id := uint32(number(row[0]))
		if len(jobs) == 0 || jobs[len(jobs)-1].id != id {
			j := &job{id: id, status: string(row[1]), createType: string(row[2]), name: string(row[4]), definition: string(row[5]), finished: make(chan error, 1)}
			var parallelism struct{ Fixed int }
			if err := json.Unmarshal(row[3], &parallelism); err != nil {
				return nil, fmt.Errorf("parallelism of job %d: %w", id, err)
			}
			j.actors = parallelism.Fixed
			jobs = append(jobs, j)
		}
		if row[6] == nil {
			continue
		}
		f := fragment{id: uint32(number(row[6]))}
		if err := json.Unmarshal(row[7], &f.tables); err != nil {
			return nil, fmt.Errorf("state_table_ids of fragment %d: %w", f.id, err)
		}
		j := jobs[len(jobs)-1]
		j.fragments = append(j.fragments, f)
	}
	return jobs, nil
}

// database1 is the only database.
const database1 = 1

// The text is the original's: the first statement of each attempt of a recovery, with or without rows to delete.
const (
	deleteDirtySubscriptions = `DELETE FROM "object" WHERE "object"."obj_type" = $1 AND "object"."oid" NOT IN ` +
		`(SELECT "subscription_id" FROM "subscription" WHERE "subscription"."subscription_state" = $2)`
	ofDatabase = ` AND "object"."database_id" = $3`

	subscriptionCreated = "2"
)

// cleanDirty begins each attempt of a recovery: dirty subscriptions in a transaction of their own, then the jobs that
// nobody will finish. It returns the tables of these.
func (c *cluster) cleanDirty(isGlobal bool) (tables []uint32, err error) {
	sql, args := deleteDirtySubscriptions, []string{"SUBSCRIPTION", subscriptionCreated}
	if !isGlobal {
		sql, args = sql+ofDatabase, append(args, text(database1))
	}
	err = c.transaction(func(exec func(string, ...string) [][][]byte) { exec(sql, args...) })
	if err != nil {
		return nil, err
	}
	c.jour.Line("recovery_marked", kv("global", isGlobal))
	c.pauseAt("recovery-marked", kv("global", isGlobal))
	jobs, err := c.loadJobs()
	if err != nil {
		return nil, err
	}
	var ids, objects []uint32
	for _, j := range jobs {
		isDirty := j.status == statusInitial
		if !c.release.AtLeast(schema.Head) {
			isDirty = isDirty || j.status == statusCreating && j.createType == foreground
		}
		if isDirty {
			ids = append(ids, j.id)
			tables = append(tables, j.tables()...)
		}
	}
	if len(ids) > 0 {
		// A replacement's fragments keep the result in the table of the job that goes on.
		objects, tables = append(objects, ids...), withoutLive(tables, jobs, ids)
		if err := c.deleteObjects(append(objects, tables...)); err != nil {
			return nil, err
		}
		c.jour.Line("dirty_cleaned", kv("jobs", ids), kv("tables", tables))
	}
	return tables, c.resetRefreshJobs()
}

// withoutLive leaves out the tables of jobs that stay.
func withoutLive(tables []uint32, jobs []*job, dirty []uint32) []uint32 {
	for _, j := range jobs {
		if !slices.Contains(dirty, j.id) {
			live := j.tables()
			tables = slices.DeleteFunc(tables, func(t uint32) bool { return slices.Contains(live, t) })
		}
	}
	return tables
}

// resetRefreshJobs is what both recoveries and the leader's init do to all rows, since v2.7.
func (c *cluster) resetRefreshJobs() error {
	if !c.release.AtLeast(schema.V28) {
		return nil
	}
	_, err := c.query(`UPDATE "refresh_job" SET "current_status" = $1`, "IDLE")
	return err
}

// saveActors keeps the table that releases before v2.7 have of the actors of fragments in the catalog.
func (c *cluster) saveActors(actors []wire.Actor) error {
	actors = slices.DeleteFunc(slices.Clone(actors), func(a wire.Actor) bool { return a.Fragment < firstFragment })
	if c.release.AtLeast(schema.V28) || len(actors) == 0 {
		return nil
	}
	return c.transaction(func(exec func(string, ...string) [][][]byte) {
		exec(`DELETE FROM "actor"`)
		for _, a := range actors {
			exec(`INSERT INTO "actor" ("actor_id", "fragment_id", "worker_id") SELECT $1::int, $2::int, $3::int
WHERE EXISTS (SELECT 1 FROM "fragment" WHERE "fragment_id" = $2::int)`, text(a.ID), text(a.Fragment), text(a.Worker))
		}
	})
}
