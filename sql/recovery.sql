-- SPDX-License-Identifier: Apache-2.0
-- The record of RisingWave's recoveries and of the state tables that are to be removed, by triggers on its
-- catalog. Nothing in here refuses anything: gate.sql does. Whatever fails in these triggers is counted, and the
-- statement goes on.

-- A recovery: every attempt of it joins the open one of its term. At most one is open for each term and scope.
CREATE TABLE IF NOT EXISTS metafence.recovery (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    service   text NOT NULL,
    term      bigint NOT NULL,
    tag       text,                     -- of the leader; NULL: untagged
    scope     text NOT NULL CHECK (scope IN ('global', 'database')),
    opened_at timestamptz NOT NULL,
    joined    integer NOT NULL,         -- attempts; 0: opened by the takeover, none seen yet
    attempt   bigint,                   -- number of the newest
    refused   integer NOT NULL DEFAULT 0, -- attempts before the newest that the gate has ended
    snapshot  pg_snapshot NOT NULL,     -- of the newest attempt: drops that it shows are in its catalog
    held_from timestamptz NOT NULL,     -- maxHold counts from here
    consumed  xid8,                     -- acknowledgements asked for before it don't count any more
    round     integer NOT NULL DEFAULT 0, -- how often that was set
    closed_at timestamptz,
    ended     text CHECK (ended IN ('committed', 'running', 'superseded', 'off'))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
ALTER TABLE metafence.recovery ADD COLUMN IF NOT EXISTS round integer NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX IF NOT EXISTS recovery_open ON metafence.recovery (service, term, scope)
    WHERE closed_at IS NULL;

-- State tables of fragments that are gone from the catalog and, as far as we know, not yet from Hummock.
-- Bounded: the newest 10000 or so.
CREATE TABLE IF NOT EXISTS metafence.dropped (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    fragment_id bigint NOT NULL,
    job_id      bigint NOT NULL,
    table_ids   bigint[] NOT NULL,      -- those that no delta has removed yet
    name        text,                   -- of the job, where it still had one
    xid         xid8 NOT NULL,
    dropped_at  timestamptz NOT NULL,
    term        bigint,
    was_created boolean                 -- its job was then; NULL: not known any more
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
ALTER TABLE metafence.dropped ADD COLUMN IF NOT EXISTS was_created boolean;

-- Versions of RisingWave whose catalog, marker and delta were compared with what is assumed here: the newest
-- row of seaql_migrations is in one of these periods. The one list of them: doctor reads it, too. Operators may add
-- their own.
CREATE TABLE IF NOT EXISTS metafence.verified (
    first text PRIMARY KEY,
    last  text NOT NULL,
    note  text NOT NULL
);
INSERT INTO metafence.verified VALUES ('m20250701', 'm20260804_zzz', 'RisingWave v2.6 to 3.2.0-alpha of 2026-08-21')
ON CONFLICT (first) DO UPDATE SET last = excluded.last, note = excluded.note;

CREATE SEQUENCE IF NOT EXISTS metafence.count_recovery_refused;  -- removals that the gate refused
CREATE SEQUENCE IF NOT EXISTS metafence.count_recovery_observed; -- that enforce would have refused
CREATE SEQUENCE IF NOT EXISTS metafence.count_recovery_bound;    -- that passed unproven, after maxHold
CREATE SEQUENCE IF NOT EXISTS metafence.count_recovery_open;     -- that passed unproven: nobody could answer for them
CREATE SEQUENCE IF NOT EXISTS metafence.count_recovery_failed;   -- triggers of the recovery that failed
CREATE SEQUENCE IF NOT EXISTS metafence.count_recovery_unknown;  -- statements and deltas not understood
CREATE SEQUENCE IF NOT EXISTS metafence.attempt;
-- Recoveries opened and drops noted, counted as they are made: whoever saw nothing when all that were counted had
-- ended need not look again until there is another (is_recovering). Begun as metafence.moves.
DO $body$
BEGIN
    IF pg_catalog.to_regclass('metafence.recovery_change') IS NULL THEN
        EXECUTE pg_catalog.format('CREATE SEQUENCE metafence.recovery_change START %s',
                                  (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint);
        PERFORM pg_catalog.nextval('metafence.recovery_change');
    END IF;
END
$body$;
-- What a refused transaction can't leave in a table: the attempt that was refused, and when (ms).
CREATE SEQUENCE IF NOT EXISTS metafence.refused_attempt MINVALUE 0 START 0;
CREATE SEQUENCE IF NOT EXISTS metafence.refused_at MINVALUE 0 START 0;

DO $body$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_constraint AS c
                    WHERE c.conrelid = 'metafence.setting'::pg_catalog.regclass
                      AND c.conname = 'setting_recovery_mode') THEN
        ALTER TABLE metafence.setting ADD CONSTRAINT setting_recovery_mode
            CHECK (name <> 'recovery' OR value IN ('off', 'observe', 'enforce'));
    END IF;
END
$body$;

-- While it is off nothing is recorded: what was open or pending then is not known any more.
CREATE OR REPLACE FUNCTION metafence.on_recovery_mode() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    IF NEW.name = 'recovery' AND NEW.value = 'off' THEN
        UPDATE metafence.recovery AS r SET closed_at = clock_timestamp(), ended = 'off'
         WHERE r.closed_at IS NULL;
        DELETE FROM metafence.dropped;
    END IF;
    RETURN NULL;
END
$body$;
DO $body$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS t
                    WHERE t.tgrelid = 'metafence.setting'::pg_catalog.regclass
                      AND t.tgname = 'metafence_recovery_mode') THEN
        CREATE TRIGGER metafence_recovery_mode AFTER INSERT OR UPDATE ON metafence.setting
            FOR EACH ROW EXECUTE FUNCTION metafence.on_recovery_mode();
    END IF;
END
$body$;

-- Counts in a sequence of ours; says why once a minute and session. Never raises.
CREATE OR REPLACE FUNCTION metafence.count_recovery(p_name text, p_message text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_minute text;
BEGIN
    v_minute := to_char(clock_timestamp(), 'YYYYMMDDHH24MI');
    IF p_message <> '' AND current_setting('metafence.recovery_logged', true) IS DISTINCT FROM v_minute THEN
        PERFORM set_config('metafence.recovery_logged', v_minute, false);
        RAISE LOG 'metafence: recovery: %', left(p_message, 500);
    END IF;
    PERFORM nextval(('metafence.count_recovery_' || p_name)::regclass);
EXCEPTION WHEN OTHERS OR query_canceled THEN
    NULL;
END
$body$;

-- A full queue would fail the COMMIT, where nothing can catch it any more.
CREATE OR REPLACE FUNCTION metafence.notify_recovery(p_text text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    IF pg_notification_queue_usage() < 0.9 THEN
        PERFORM pg_notify('metafence_recovery', left(p_text, 1000));
    END IF;
END
$body$;

-- --- what is read from RisingWave's catalog, by functions that run as its owner ---

-- The newest migration, or NULL.
CREATE OR REPLACE FUNCTION metafence.newest_migration(p_schema text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
DECLARE
    v_version text;
BEGIN
    EXECUTE format('SELECT max(m.version::text COLLATE "C") FROM %I.seaql_migrations AS m'
                   ' WHERE m.version::text ~ ''^m[0-9]{8}_''', p_schema) INTO v_version;
    RETURN v_version;
EXCEPTION WHEN undefined_table OR undefined_column THEN
    RETURN NULL;
END
$body$;

-- The name of a streaming job, or NULL.
CREATE OR REPLACE FUNCTION metafence.job_name(p_schema text, p_job bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
DECLARE
    v_kind text;
    v_name text;
BEGIN
    FOREACH v_kind IN ARRAY ARRAY['table', 'sink', 'source', 'index'] LOOP
        IF to_regclass(format('%I.%I', p_schema, v_kind)) IS NOT NULL THEN
            EXECUTE format('SELECT t.name::text FROM %I.%I AS t WHERE t.%I = $1', p_schema, v_kind,
                           v_kind || '_id') INTO v_name USING p_job::integer;
        END IF;
        EXIT WHEN v_name IS NOT NULL;
    END LOOP;
    RETURN left(v_name, 200);
EXCEPTION WHEN undefined_table OR undefined_column THEN
    RETURN NULL;
END
$body$;

-- Whether that job is made to the end; NULL: it is not there any more.
CREATE OR REPLACE FUNCTION metafence.is_created(p_schema text, p_job bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
DECLARE
    v_is_created boolean;
BEGIN
    EXECUTE format('SELECT j.job_status::text = ''CREATED'' FROM %I.streaming_job AS j WHERE j.job_id = $1', p_schema)
       INTO v_is_created USING p_job::integer;
    RETURN v_is_created;
EXCEPTION WHEN undefined_table OR undefined_column THEN
    RETURN NULL;
END
$body$;

-- As the others here it runs with the rights of whom the catalog belongs to.
DO $body$
DECLARE
    v_owner name;
BEGIN
    SELECT pg_catalog.pg_get_userbyid(p.proowner) INTO v_owner FROM pg_catalog.pg_proc AS p
     WHERE p.oid = 'metafence.job_name(text, bigint)'::pg_catalog.regprocedure;
    IF v_owner <> current_user THEN
        EXECUTE pg_catalog.format('ALTER FUNCTION metafence.is_created(text, bigint) OWNER TO %I', v_owner);
    END IF;
END
$body$;

-- Jobs that are still being made: the next global recovery may clean them away and purge their tables.
CREATE OR REPLACE FUNCTION metafence.creating_jobs(p_schema text)
RETURNS TABLE (job_id bigint, name text, status text, age_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
BEGIN
    -- created_at has no time zone; metas keep it in UTC.
    RETURN QUERY EXECUTE format(
        'SELECT j.job_id::bigint, metafence.job_name(%L, j.job_id::bigint), j.job_status::text,'
        ' greatest(0, (extract(epoch FROM clock_timestamp() AT TIME ZONE ''UTC'' - o.created_at) * 1000)::bigint)'
        ' FROM %I.streaming_job AS j LEFT JOIN %I.object AS o ON o.oid = j.job_id'
        ' WHERE j.job_status::text <> ''CREATED'' ORDER BY j.job_id LIMIT 1000', p_schema, p_schema, p_schema);
END
$body$;

-- --- the triggers ---

-- Counts what this transaction has made. By the lock, taken first and never exclusively, it is known to be under way.
CREATE OR REPLACE FUNCTION metafence.count_change() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1296453187, 3);
    PERFORM nextval('metafence.recovery_change');
END
$body$;

-- "global", "database", NULL for an ordinary delete, "?" for one that nobody knows. The first statement of
-- each attempt deletes the subscriptions that were not finished, of all databases or of one.
CREATE OR REPLACE FUNCTION metafence.marker_of(p_query text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_text text := replace(lower(left(p_query, 4000)), '"', '');
BEGIN
    IF v_text ~ '\mobj_type\M' AND v_text ~ '\msubscription' THEN
        RETURN CASE WHEN v_text ~ '\mdatabase_id\M' THEN 'database' ELSE 'global' END;
    END IF;
    IF v_text ~ '\moid\s*(=|in\s*\()' AND v_text !~ '\mobj_type\M' THEN
        RETURN NULL;
    END IF;
    RETURN '?';
END
$body$;

-- Opens a recovery of that term, or joins the open one. p_is_attempt: not by a takeover, which comes first.
-- An attempt that follows one which the gate has not ended may find actors that were built since: what was
-- acknowledged before does not count any more. maxHold counts anew then, but not as long as refusals were
-- met within its time: whatever fails in between, a recovery is held for maxHold at most.
CREATE OR REPLACE FUNCTION metafence.open_recovery(
    p_service text, p_term bigint, p_tag text, p_scope text, p_is_attempt boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_attempt bigint;
    v_refused bigint;
    v_hold interval;
    v_is_over boolean;
    v_id bigint;
BEGIN
    IF p_is_attempt THEN
        v_attempt := nextval('metafence.attempt');
    END IF;
    SELECT a.last_value, t.last_value < extract(epoch FROM clock_timestamp()) * 1000 - coalesce(
               (SELECT g.max_hold_ms FROM metafence.gate AS g
                 WHERE g.service = p_service AND g.agent_tag = p_tag), 60000)
      INTO v_refused, v_is_over FROM metafence.refused_attempt AS a, metafence.refused_at AS t;
    UPDATE metafence.recovery AS r
       SET joined = r.joined + 1, attempt = v_attempt, snapshot = pg_current_snapshot(),
           refused = r.refused + coalesce(r.attempt = v_refused, false)::integer,
           consumed = CASE WHEN coalesce(r.attempt = v_refused, true) THEN r.consumed
                           ELSE pg_current_xact_id() END,
           round = r.round + CASE WHEN coalesce(r.attempt = v_refused, true) THEN 0 ELSE 1 END,
           held_from = CASE WHEN r.attempt IS NULL OR (r.attempt <> v_refused AND v_is_over)
                            THEN clock_timestamp() ELSE r.held_from END
     WHERE r.service = p_service AND r.term = p_term AND r.scope = p_scope AND r.closed_at IS NULL
       AND p_is_attempt
    RETURNING r.id INTO v_id;
    IF v_id IS NULL THEN
        INSERT INTO metafence.recovery AS r
               (service, term, tag, scope, opened_at, joined, attempt, snapshot, held_from)
        VALUES (p_service, p_term, p_tag, p_scope, clock_timestamp(), p_is_attempt::integer, v_attempt,
                pg_current_snapshot(), clock_timestamp())
        RETURNING r.id INTO v_id;
        UPDATE metafence.recovery AS r SET closed_at = clock_timestamp(), ended = 'superseded'
         WHERE r.id IN (SELECT x.id FROM metafence.recovery AS x
                         WHERE x.service = p_service AND x.term < p_term AND x.closed_at IS NULL
                           FOR UPDATE SKIP LOCKED);
        DELETE FROM metafence.acknowledgement AS a WHERE a.recovery_id <= v_id - 20;
        DELETE FROM metafence.recovery AS r WHERE r.id <= v_id - 200 AND r.closed_at IS NOT NULL;
    END IF;
    PERFORM metafence.count_change();
    PERFORM metafence.notify_recovery(concat_ws(' ', 'recovery', v_id, p_term, p_scope, coalesce(v_attempt, 0)));
END
$body$;

-- Called in each takeover. Never raises.
CREATE OR REPLACE FUNCTION metafence.note_recovery(p_service text, p_term bigint, p_tag text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    IF EXISTS (SELECT FROM metafence.setting AS s
                WHERE s.name = 'recovery' AND s.value IN ('observe', 'enforce')) THEN
        PERFORM metafence.open_recovery(p_service, p_term, p_tag, 'global', false);
    END IF;
EXCEPTION WHEN OTHERS OR query_canceled THEN
    PERFORM metafence.count_recovery('failed', format('takeover: %s (SQLSTATE %s)', SQLERRM, SQLSTATE));
END
$body$;

-- AFTER each statement that deletes from object: does an attempt begin? Only the leader's own count.
CREATE OR REPLACE FUNCTION metafence.on_attempt() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
DECLARE
    v_scope text;
    v_tag text;
    v_term record;
BEGIN
    IF pg_trigger_depth() > 1 OR NOT EXISTS (
           SELECT FROM metafence.setting AS s
            WHERE s.name = 'recovery' AND s.value IN ('observe', 'enforce')) THEN
        RETURN NULL;
    END IF;
    v_scope := metafence.marker_of(current_query());
    IF v_scope = '?' THEN
        PERFORM metafence.count_recovery('unknown', 'a delete from object that is neither a drop nor the mark of'
                                                    ' a recovery: ' || left(current_query(), 300));
    ELSIF v_scope IS NOT NULL THEN
        v_tag := metafence.session_tag();
        SELECT t.service, t.term INTO v_term FROM metafence.term AS t
         WHERE t.owner_tag IS NOT DISTINCT FROM v_tag ORDER BY t.since DESC LIMIT 1;
        IF FOUND THEN
            PERFORM metafence.open_recovery(v_term.service, v_term.term, v_tag, v_scope, true);
        END IF;
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS OR query_canceled THEN
    BEGIN
        PERFORM metafence.count_recovery('failed', format('attempt: %s (SQLSTATE %s)', SQLERRM, SQLSTATE));
    EXCEPTION WHEN OTHERS OR query_canceled THEN
        NULL;
    END;
    RETURN NULL;
END
$body$;

-- Of jobs whose row this transaction has deleted: which of them were made to the end, as " 11 12 ".
CREATE OR REPLACE FUNCTION metafence.job_was_created(p_job bigint) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT CASE WHEN position(format(' %s ', p_job) IN current_setting('metafence.created_jobs', true)) > 0 THEN true END
$body$;

-- BEFORE each row of streaming_job goes: an object's DELETE comes to it before it comes to the job's fragments, and
-- they must know. Beyond 64 kB of them it is not known.
CREATE OR REPLACE FUNCTION metafence.on_job() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
DECLARE
    v_jobs text;
BEGIN
    BEGIN
        IF EXISTS (SELECT FROM metafence.setting AS s
                    WHERE s.name = 'recovery' AND s.value IN ('observe', 'enforce')) THEN
            -- By nothing that could cast, as in on_campaign.
            IF pg_typeof(OLD.job_id) NOT IN ('int4'::regtype, 'int8'::regtype)
               OR pg_typeof(OLD.job_status) NOT IN ('varchar'::regtype, 'text'::regtype) THEN
                RAISE EXCEPTION USING ERRCODE = 'datatype_mismatch',
                    MESSAGE = 'streaming_job: job_id must be integer, job_status text';
            END IF;
            v_jobs := coalesce(nullif(current_setting('metafence.created_jobs', true), ''), ' ');
            IF OLD.job_status = 'CREATED' AND length(v_jobs) < 65536 THEN
                PERFORM set_config('metafence.created_jobs', concat(v_jobs, OLD.job_id, ' '), true);
            END IF;
        END IF;
    EXCEPTION WHEN OTHERS OR query_canceled THEN
        BEGIN
            PERFORM metafence.count_recovery('failed', format('job: %s (SQLSTATE %s)', SQLERRM, SQLSTATE));
        EXCEPTION WHEN OTHERS OR query_canceled THEN
            NULL;
        END;
    END;
    RETURN OLD;
END
$body$;

CREATE OR REPLACE FUNCTION metafence.note_dropped(
    p_schema text, p_fragment bigint, p_job bigint, p_old jsonb, p_new jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_ids bigint[];
    v_name text;
    v_was_created boolean;
    v_id bigint;
BEGIN
    SELECT array_agg(DISTINCT o.id::bigint) INTO v_ids FROM jsonb_array_elements_text(p_old) AS o(id)
     WHERE NOT EXISTS (SELECT FROM jsonb_array_elements_text(coalesce(p_new, '[]')) AS n(id) WHERE n.id = o.id);
    IF v_ids IS NULL THEN
        RETURN;
    END IF;
    -- Once for all fragments of a job.
    SELECT d.name, d.was_created INTO v_name, v_was_created FROM metafence.dropped AS d
     WHERE d.job_id = p_job AND d.xid = pg_current_xact_id();
    IF NOT FOUND THEN
        BEGIN
            v_name := metafence.job_name(p_schema, p_job);
            v_was_created := coalesce(metafence.is_created(p_schema, p_job), metafence.job_was_created(p_job));
        EXCEPTION WHEN OTHERS THEN
            NULL; -- it only helps people
        END;
    END IF;
    INSERT INTO metafence.dropped AS d (fragment_id, job_id, table_ids, name, xid, dropped_at, term, was_created)
    VALUES (p_fragment, p_job, v_ids, v_name, pg_current_xact_id(), clock_timestamp(),
            (SELECT t.term FROM metafence.term AS t ORDER BY t.since DESC LIMIT 1), v_was_created)
    RETURNING d.id INTO v_id;
    PERFORM metafence.count_change();
    IF v_id % 100 = 0 AND current_setting('transaction_isolation') LIKE 'read %' THEN
        DELETE FROM metafence.dropped AS d
         WHERE d.id IN (SELECT x.id FROM metafence.dropped AS x WHERE x.id <= v_id - 10000
                         ORDER BY x.id LIMIT 1000 FOR UPDATE SKIP LOCKED);
    END IF;
END
$body$;

-- BEFORE each row of fragment goes or loses state tables: then its job still has a name.
CREATE OR REPLACE FUNCTION metafence.on_fragment() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
BEGIN
    BEGIN
        IF EXISTS (SELECT FROM metafence.setting AS s
                    WHERE s.name = 'recovery' AND s.value IN ('observe', 'enforce')) THEN
            -- By nothing that could cast, as in on_campaign.
            IF pg_typeof(OLD.fragment_id) NOT IN ('int4'::regtype, 'int8'::regtype)
               OR pg_typeof(OLD.job_id) NOT IN ('int4'::regtype, 'int8'::regtype)
               OR pg_typeof(OLD.state_table_ids) <> 'jsonb'::regtype THEN
                RAISE EXCEPTION USING ERRCODE = 'datatype_mismatch',
                    MESSAGE = 'fragment: fragment_id and job_id must be integer, state_table_ids jsonb';
            END IF;
            IF TG_OP = 'DELETE' THEN
                PERFORM metafence.note_dropped(TG_TABLE_SCHEMA, OLD.fragment_id, OLD.job_id, OLD.state_table_ids,
                                               NULL);
            ELSIF NEW.state_table_ids IS DISTINCT FROM OLD.state_table_ids THEN
                PERFORM metafence.note_dropped(TG_TABLE_SCHEMA, OLD.fragment_id, OLD.job_id, OLD.state_table_ids,
                                               NEW.state_table_ids);
            END IF;
        END IF;
    EXCEPTION WHEN OTHERS OR query_canceled THEN
        BEGIN
            PERFORM metafence.count_recovery('failed', format('fragment: %s (SQLSTATE %s)', SQLERRM, SQLSTATE));
        EXCEPTION WHEN OTHERS OR query_canceled THEN
            NULL;
        END;
    END;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RETURN NEW;
END
$body$;

-- --- installation ---

-- The tables that carry triggers of the recovery, as guarded_tables() for the guard.
CREATE OR REPLACE FUNCTION metafence.recovery_tables()
RETURNS TABLE (relation regclass, name name, is_covered boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT c.oid::regclass, c.relname,
           EXISTS (SELECT FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
                    WHERE t.tgrelid = c.oid AND t.tgenabled IN ('O', 'A') AND t.tgname = 'metafence_recovery'
                      AND p.pronamespace = 'metafence'::regnamespace AND p.proname = w.function)
      FROM (VALUES ('object', 'on_attempt'), ('streaming_job', 'on_job'), ('fragment', 'on_fragment'),
                   ('hummock_version_delta', 'on_delta')) AS w(name, function)
      JOIN pg_class AS c ON c.relname = w.name
      JOIN pg_class AS l ON l.relnamespace = c.relnamespace
     WHERE l.oid = to_regclass((SELECT s.value FROM metafence.setting AS s WHERE s.name = 'leader_table'))
       AND c.relkind = 'r' AND c.relpersistence = 'p'
$body$;

-- Tables without all of their triggers: the guard's, or that of the recovery.
CREATE OR REPLACE FUNCTION metafence.uncovered_tables() RETURNS TABLE (name name, is_guard boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT g.name, true FROM metafence.guarded_tables() AS g WHERE NOT g.is_covered
    UNION ALL SELECT r.name, false FROM metafence.recovery_tables() AS r WHERE NOT r.is_covered
$body$;

-- Puts the trigger on one table; rules as for cover. They name no column, so that migrations stay possible.
CREATE OR REPLACE FUNCTION metafence.cover_recovery(p_name text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_table regclass;
BEGIN
    SELECT r.relation INTO v_table FROM metafence.recovery_tables() AS r
     WHERE r.name = p_name AND NOT r.is_covered;
    IF v_table IS NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TRIGGER IF EXISTS metafence_recovery ON %s', v_table);
    EXECUTE format('CREATE TRIGGER metafence_recovery %s EXECUTE FUNCTION metafence.%s()',
                   format(CASE p_name WHEN 'object' THEN 'AFTER DELETE ON %s FOR EACH STATEMENT'
                                      WHEN 'streaming_job' THEN 'BEFORE DELETE ON %s FOR EACH ROW'
                                      WHEN 'fragment' THEN 'BEFORE UPDATE OR DELETE ON %s FOR EACH ROW'
                                      ELSE 'BEFORE INSERT ON %s FOR EACH ROW' END, v_table),
                   CASE p_name WHEN 'object' THEN 'on_attempt' WHEN 'streaming_job' THEN 'on_job'
                               WHEN 'fragment' THEN 'on_fragment' ELSE 'on_delta' END);
    PERFORM metafence.give_to_owner(
        v_table, ARRAY['newest_migration(text)', 'job_name(text, bigint)', 'is_created(text, bigint)',
                       'creating_jobs(text)']);
    RETURN true;
END
$body$;
