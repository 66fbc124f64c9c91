// SPDX-License-Identifier: Apache-2.0
#pragma once
// tables: RisingWave's metadata, as far as it matters here. Ours, modeled on its migrations.

// Tables of RisingWave as its migrations left them at that version.
#define TABLES_COMMON                                                                          \
    "CREATE TABLE worker (worker_id serial PRIMARY KEY, worker_type varchar NOT NULL,"         \
    " host varchar NOT NULL, port integer NOT NULL, status varchar NOT NULL,"                  \
    " transaction_id integer);"                                                                \
    "CREATE UNIQUE INDEX idx_worker_host_port ON worker (host, port);"                         \
    "CREATE TABLE worker_property (worker_id integer PRIMARY KEY REFERENCES worker ON DELETE"  \
    " CASCADE, parallelism integer, is_streaming bool NOT NULL, is_serving bool NOT NULL,"     \
    " is_unschedulable bool NOT NULL, internal_rpc_host_addr varchar, resource_group "         \
    "varchar);"                                                                                \
    "CREATE TABLE catalog_version (name varchar PRIMARY KEY, version bigint NOT NULL);"        \
    "CREATE TABLE cluster (cluster_id uuid PRIMARY KEY, created_at timestamp NOT NULL DEFAULT" \
    " CURRENT_TIMESTAMP);"                                                                     \
    "CREATE TABLE hummock_version_delta (id bigint PRIMARY KEY, prev_id bigint NOT NULL,"      \
    " max_committed_epoch bigint NOT NULL, safe_epoch bigint NOT NULL,"                        \
    " trivial_move bool NOT NULL, full_version_delta bytea);"                                  \
    "CREATE TABLE hummock_version_stats (id bigint PRIMARY KEY, stats jsonb NOT NULL);"        \
    "CREATE TABLE hummock_sequence (name varchar PRIMARY KEY, seq bigint NOT NULL);"           \
    "CREATE TABLE hummock_pinned_version (context_id integer PRIMARY KEY,"                     \
    " min_pinned_id bigint NOT NULL);"                                                         \
    "CREATE TABLE hummock_pinned_snapshot (context_id integer PRIMARY KEY,"                    \
    " min_pinned_snapshot bigint NOT NULL);"
#define TABLES_MORE                                                                            \
    "CREATE TABLE compaction_task (id bigint PRIMARY KEY, task bytea NOT NULL,"                \
    " context_id integer NOT NULL);"                                                           \
    "CREATE TABLE compaction_status (compaction_group_id bigint PRIMARY KEY, status bytea);"   \
    "CREATE TABLE compaction_config (compaction_group_id bigint PRIMARY KEY, config bytea);"   \
    "CREATE TABLE hummock_epoch_to_version (epoch bigint, table_id bigint,"                    \
    " version_id bigint NOT NULL, PRIMARY KEY (epoch, table_id));"                             \
    "CREATE TABLE hummock_time_travel_version (version_id bigint PRIMARY KEY, version bytea);" \
    "CREATE TABLE hummock_time_travel_delta (version_id bigint PRIMARY KEY, version_delta"     \
    " bytea);"                                                                                 \
    "CREATE TABLE hummock_sstable_info (sst_id bigint PRIMARY KEY, object_id bigint NOT NULL," \
    " sstable_info bytea);"                                                                    \
    "CREATE TABLE hummock_gc_history (object_id bigint PRIMARY KEY, mark_delete_at timestamp"  \
    " NOT NULL);"
#define TABLES_V2 TABLES_COMMON TABLES_MORE
#define UP_TO_V3                                                                               \
    "ALTER TABLE worker_property ADD COLUMN is_iceberg_compactor bool NOT NULL DEFAULT false;" \
    "CREATE TABLE hummock_table_change_log (table_id integer, checkpoint_epoch bigint,"        \
    " non_checkpoint_epochs jsonb NOT NULL, new_value_sst bytea NOT NULL,"                     \
    " old_value_sst bytea NOT NULL, PRIMARY KEY (table_id, checkpoint_epoch));"
#define UP_TO_HEAD                                                                             \
    "ALTER TABLE worker_property ADD COLUMN resource bytea, ADD COLUMN started_at bigint;"     \
    "DELETE FROM worker;"
// What no version does yet: types of the guarded columns change, a column goes.
#define BEYOND_HEAD                                                                            \
    "ALTER TABLE worker ALTER COLUMN status TYPE text, ALTER COLUMN port TYPE bigint,"         \
    " ADD COLUMN extra jsonb, DROP COLUMN transaction_id;"                                     \
    "ALTER TABLE hummock_version_delta ALTER COLUMN full_version_delta TYPE text USING '',"    \
    " DROP COLUMN safe_epoch;"                                                                 \
    "ALTER TABLE catalog_version RENAME COLUMN version TO v;"                                  \
    "ALTER TABLE catalog_version RENAME COLUMN v TO version;"
