// SPDX-License-Identifier: Apache-2.0

package schema

// catalog is what streaming jobs have in SQL, in the columns that matter here. Object 1 is the database, 2 its schema.
const catalog = `
CREATE TABLE "user" (user_id serial PRIMARY KEY, name varchar UNIQUE NOT NULL, is_super boolean NOT NULL);
INSERT INTO "user" (name, is_super) VALUES ('root', true);
CREATE TABLE object (
    oid serial PRIMARY KEY,
    obj_type varchar NOT NULL,
    owner_id integer NOT NULL,
    schema_id integer,
    database_id integer,
    initialized_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
    created_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
    CONSTRAINT "FK_object_owner_id" FOREIGN KEY (owner_id) REFERENCES "user" (user_id) ON DELETE CASCADE,
    CONSTRAINT "FK_object_database_id" FOREIGN KEY (database_id) REFERENCES object (oid) ON DELETE CASCADE,
    CONSTRAINT "FK_object_schema_id" FOREIGN KEY (schema_id) REFERENCES object (oid) ON DELETE CASCADE
);
INSERT INTO object (obj_type, owner_id) VALUES ('DATABASE', 1);
INSERT INTO object (obj_type, owner_id, database_id) VALUES ('SCHEMA', 1, 1);
CREATE TABLE database (
    database_id integer PRIMARY KEY,
    name varchar UNIQUE NOT NULL,
    CONSTRAINT "FK_database_object_id" FOREIGN KEY (database_id) REFERENCES object (oid) ON DELETE CASCADE
);
INSERT INTO database VALUES (1, 'dev');
CREATE TABLE schema (
    schema_id integer PRIMARY KEY,
    name varchar NOT NULL,
    CONSTRAINT "FK_schema_object_id" FOREIGN KEY (schema_id) REFERENCES object (oid) ON DELETE CASCADE
);
INSERT INTO schema VALUES (2, 'public');
CREATE TABLE streaming_job (
    job_id integer PRIMARY KEY,
    job_status varchar NOT NULL,
    create_type varchar NOT NULL,
    timezone varchar,
    parallelism jsonb NOT NULL,
    CONSTRAINT "FK_streaming_job_object_id" FOREIGN KEY (job_id) REFERENCES object (oid) ON DELETE CASCADE
);
CREATE TABLE fragment (
    fragment_id serial PRIMARY KEY,
    job_id integer NOT NULL,
    fragment_type_mask integer NOT NULL,
    distribution_type varchar NOT NULL,
    stream_node bytea NOT NULL,
    state_table_ids jsonb,
    CONSTRAINT "FK_fragment_table_id" FOREIGN KEY (job_id) REFERENCES object (oid) ON DELETE CASCADE
);
ALTER TABLE actor ADD CONSTRAINT "FK_actor_fragment_id"
    FOREIGN KEY (fragment_id) REFERENCES fragment (fragment_id) ON DELETE CASCADE;
CREATE TABLE "table" (
    table_id integer PRIMARY KEY,
    name varchar NOT NULL,
    table_type varchar NOT NULL,
    belongs_to_job_id integer,
    fragment_id integer,
    definition text NOT NULL,
    CONSTRAINT "FK_table_object_id" FOREIGN KEY (table_id) REFERENCES object (oid) ON DELETE CASCADE,
    CONSTRAINT "FK_table_belongs_to_job_id" FOREIGN KEY (belongs_to_job_id) REFERENCES object (oid) ON DELETE CASCADE,
    CONSTRAINT "FK_table_fragment_id" FOREIGN KEY (fragment_id) REFERENCES fragment (fragment_id) ON DELETE CASCADE
);`
