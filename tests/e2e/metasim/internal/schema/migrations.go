// SPDX-License-Identifier: Apache-2.0

// Package schema is RisingWave's catalog as far as a leader of the stand-in writes it: the tables of workers,
// Hummock and compaction, release by release. The text is ours, modelled on the real migrations.
package schema

// Release names a state of the schema. Later releases contain the migrations of the earlier ones.
type Release string

// The releases that differ.
const (
	V20  Release = "v2.0" // before resource groups: where an upgrade of a test starts
	V26  Release = "v2.6"
	V28  Release = "v2.8" // v2.8.3 and later
	V30  Release = "v3.0"
	Head Release = "head"
	Next Release = "next" // no release: what a later one may do to columns
)

// migration is one file of the ledger seaql_migrations.
type migration struct {
	name  string
	since Release
	sql   string
}

var order = []Release{V20, V26, V28, V30, Head, Next}

var migrations = []migration{
	{"m20230908_072257_init", V20, `
CREATE TABLE cluster (
    cluster_id uuid PRIMARY KEY,
    created_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP
);
INSERT INTO cluster (cluster_id) VALUES (gen_random_uuid());
CREATE TABLE worker (
    worker_id serial PRIMARY KEY,
    worker_type varchar NOT NULL,
    host varchar NOT NULL,
    port integer NOT NULL,
    status varchar NOT NULL,
    transaction_id integer
);
CREATE UNIQUE INDEX idx_worker_host_port ON worker (host, port);
CREATE TABLE worker_property (
    worker_id integer PRIMARY KEY,
    parallel_unit_ids jsonb NOT NULL,
    is_streaming boolean NOT NULL,
    is_serving boolean NOT NULL,
    is_unschedulable boolean NOT NULL,
    CONSTRAINT "FK_worker_property_worker_id" FOREIGN KEY (worker_id) REFERENCES worker (worker_id) ON DELETE CASCADE
);
CREATE TABLE actor (actor_id serial PRIMARY KEY, fragment_id integer NOT NULL, worker_id integer NOT NULL);
CREATE TABLE catalog_version (name varchar PRIMARY KEY, version bigint NOT NULL);`},
	{"m20231008_020431_hummock", V20, `
CREATE TABLE hummock_version_delta (
    id bigint PRIMARY KEY,
    prev_id bigint NOT NULL,
    max_committed_epoch bigint NOT NULL,
    safe_epoch bigint NOT NULL,
    trivial_move boolean NOT NULL,
    full_version_delta bytea
);
CREATE TABLE hummock_version_stats (id bigint PRIMARY KEY, stats jsonb NOT NULL);
CREATE TABLE hummock_sequence (name varchar PRIMARY KEY, seq bigint NOT NULL);
CREATE TABLE hummock_pinned_version (context_id integer PRIMARY KEY, min_pinned_id bigint NOT NULL);
CREATE TABLE hummock_pinned_snapshot (context_id integer PRIMARY KEY, min_pinned_snapshot bigint NOT NULL);
CREATE TABLE compaction_task (id bigint PRIMARY KEY, task bytea NOT NULL, context_id integer NOT NULL);
CREATE TABLE compaction_status (compaction_group_id bigint PRIMARY KEY, status bytea);
CREATE TABLE compaction_config (compaction_group_id bigint PRIMARY KEY, config bytea);`},
	{"m20231008_020432_catalog", V20, catalog},
	{"m20240304_074901_subscription", V20, `
CREATE TABLE subscription (
    subscription_id integer PRIMARY KEY,
    name varchar NOT NULL,
    definition varchar NOT NULL,
    subscription_state integer NOT NULL,
    dependent_table_id integer NOT NULL,
    CONSTRAINT "FK_subscription_object_id" FOREIGN KEY (subscription_id) REFERENCES object (oid) ON DELETE CASCADE
);`},
	{"m20240630_131430_remove_parallel_unit", V26, `
ALTER TABLE worker_property DROP COLUMN parallel_unit_ids;
ALTER TABLE worker_property ADD COLUMN parallelism integer;`},
	{"m20240701_hummock_time_travel", V26, `
CREATE TABLE hummock_epoch_to_version (
    epoch bigint, table_id bigint, version_id bigint NOT NULL, PRIMARY KEY (epoch, table_id)
);
CREATE TABLE hummock_time_travel_version (version_id bigint PRIMARY KEY, version bytea);
CREATE TABLE hummock_time_travel_delta (version_id bigint PRIMARY KEY, version_delta bytea);
CREATE TABLE hummock_sstable_info (sst_id bigint PRIMARY KEY, object_id bigint NOT NULL, sstable_info bytea);
CREATE TABLE hummock_gc_history (object_id bigint PRIMARY KEY, mark_delete_at timestamp NOT NULL);
CREATE INDEX idx_hummock_gc_history_mark_delete_at ON hummock_gc_history (mark_delete_at);`},
	{"m20240726_063833_internal_rpc_host_addr", V26, `
ALTER TABLE worker_property ADD COLUMN internal_rpc_host_addr varchar;`},
	{"m20241022_072553_node_label", V26, `
ALTER TABLE worker_property ADD COLUMN label varchar;`},
	{"m20241202_071413_resource_group", V26, `
ALTER TABLE worker_property DROP COLUMN label;
ALTER TABLE worker_property ADD COLUMN resource_group varchar;`},
	{"m20251015_drop_actor", V28, `
DROP TABLE actor;`},
	{"m20251030_120000_refresh_jobs", V28, `
CREATE TABLE refresh_job (
    table_id integer PRIMARY KEY,
    last_trigger_time bigint,
    trigger_interval_secs bigint,
    current_status varchar NOT NULL,
    last_success_time bigint,
    CONSTRAINT "FK_refresh_job_table_id" FOREIGN KEY (table_id) REFERENCES "table" (table_id) ON DELETE CASCADE
);`},
	{"m20251126_is_iceberg_compactor", V28, `
ALTER TABLE worker_property ADD COLUMN is_iceberg_compactor boolean NOT NULL DEFAULT false;`},
	{"m20251223_hummock_table_change_log", V30, `
CREATE TABLE hummock_table_change_log (
    table_id integer,
    checkpoint_epoch bigint,
    non_checkpoint_epochs jsonb NOT NULL,
    new_value_sst bytea NOT NULL,
    old_value_sst bytea NOT NULL,
    PRIMARY KEY (table_id, checkpoint_epoch)
);`},
	{"m20260804_worker_resource", Head, `
ALTER TABLE worker_property ADD COLUMN resource bytea;
ALTER TABLE worker_property ADD COLUMN started_at bigint;
DELETE FROM worker;`},
	{"m29990101_columns_retyped", Next, `
ALTER TABLE worker ALTER COLUMN worker_id TYPE bigint;
ALTER TABLE worker ALTER COLUMN port TYPE bigint;
ALTER TABLE worker_property ALTER COLUMN worker_id TYPE bigint;
ALTER TABLE worker_property DROP COLUMN is_unschedulable;
ALTER TABLE worker_property RENAME COLUMN resource_group TO pool;
ALTER TABLE hummock_sequence ALTER COLUMN seq TYPE numeric;
ALTER TABLE hummock_pinned_version ALTER COLUMN context_id TYPE bigint;`},
}
