// SPDX-License-Identifier: Apache-2.0
#pragma once
// catalog: RisingWave's catalog as far as recoveries touch it. Ours, modeled on its migrations.

#define LEDGER(version) "INSERT INTO seaql_migrations VALUES ('" version "', 0);"

#define CATALOG_V2_6                                                                           \
    "CREATE TABLE seaql_migrations (version varchar PRIMARY KEY, applied_at bigint NOT NULL);" \
    "CREATE TABLE object (oid serial PRIMARY KEY, obj_type varchar NOT NULL,"                  \
    " owner_id integer NOT NULL DEFAULT 1, schema_id integer REFERENCES object ON DELETE"      \
    " CASCADE, database_id integer REFERENCES object ON DELETE CASCADE,"                       \
    " initialized_at timestamp NOT NULL DEFAULT (now() AT TIME ZONE 'UTC'),"                   \
    " created_at timestamp NOT NULL DEFAULT (now() AT TIME ZONE 'UTC'));"                      \
    "CREATE TABLE streaming_job (job_id integer PRIMARY KEY REFERENCES object ON DELETE"       \
    " CASCADE, job_status varchar NOT NULL, create_type varchar NOT NULL, timezone varchar);"  \
    "CREATE TABLE fragment (fragment_id serial PRIMARY KEY, job_id integer NOT NULL "          \
    "REFERENCES"                                                                               \
    " object ON DELETE CASCADE, fragment_type_mask integer NOT NULL DEFAULT 0,"                \
    " distribution_type varchar NOT NULL DEFAULT 'HASH', stream_node bytea NOT NULL DEFAULT"   \
    " '', state_table_ids jsonb, upstream_fragment_id jsonb, vnode_count integer);"            \
    "CREATE TABLE \"table\" (table_id integer PRIMARY KEY REFERENCES object ON DELETE "        \
    "CASCADE,"                                                                                 \
    " name varchar NOT NULL);"                                                                 \
    "CREATE TABLE sink (sink_id integer PRIMARY KEY REFERENCES object ON DELETE CASCADE,"      \
    " name varchar NOT NULL);"                                                                 \
    "CREATE TABLE subscription (subscription_id integer PRIMARY KEY REFERENCES object ON"      \
    " DELETE CASCADE, name varchar NOT NULL, subscription_state bigint NOT NULL);" LEDGER(     \
        "m20230908_072257_init") LEDGER("m20250820_120000_add_cdc_table_type")
#define CATALOG_TO_V2_8                                                                        \
    "ALTER TABLE fragment ADD COLUMN parallelism jsonb;"                                       \
    "CREATE TABLE refresh_job (table_id integer PRIMARY KEY, current_status varchar NOT"       \
    " NULL);" LEDGER("m20251126_093529_add_is_iceberg_compactor")
#define CATALOG_TO_V3                                                                          \
    "ALTER TABLE streaming_job ADD COLUMN backfill_parallelism jsonb;" LEDGER(                 \
        "m20251223_064450_table_change_log")
#define CATALOG_TO_HEAD                                                                        \
    "ALTER TABLE streaming_job ADD COLUMN is_serverless_backfill bool NOT NULL DEFAULT"        \
    " false;" LEDGER("m20260804_000000_worker")
