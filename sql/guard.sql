-- SPDX-License-Identifier: Apache-2.0
-- The guard on RisingWave's metadata: a deny-list. A write is refused (enforce) or recorded (observe) only if
-- its session's tag led an earlier term and is superseded. Whatever is in doubt passes and is counted: a
-- refused rightful leader would abort.
--
-- Two triggers a table. metafence_guard, before a statement, takes the writers' lock, judges, and opens the gate
-- (a setting of this transaction) when the tag is superseded; the owner of the term is let pass for as long as
-- its transaction holds the lock. metafence_key, once a row behind that gate, knows
-- the row: it refuses or records. No error, time-out or cancel inside of our triggers reaches a writer that is
-- not superseded, with two exceptions: 40001 above READ COMMITTED, and a cancel while it waits for a takeover.
-- Nothing of it waits longer than its lock_timeout.

-- What observe saw. Bounded: the newest 1000 or so.
CREATE TABLE IF NOT EXISTS metafence.observed (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    seen_at    timestamptz NOT NULL,
    relation   text NOT NULL,
    operation  text NOT NULL,
    key        text,
    tag        text NOT NULL,
    owned_term bigint,          -- the term that the writer led
    term       bigint           -- the term at the write
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Every change of a row of worker, by whom and in which term. Bounded: the newest 2000 or so. xid tells what
-- a snapshot could not see yet, whatever the order of the ids.
CREATE TABLE IF NOT EXISTS metafence.mutation (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    logged_at  timestamptz NOT NULL,
    xid        xid8 NOT NULL,
    operation  text NOT NULL,
    worker_id  bigint,
    tag        text,            -- NULL: an untagged session
    owned_term bigint,          -- the newest term that this tag led; NULL: none
    term       bigint,          -- the term at the write
    old        jsonb,
    new        jsonb
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE INDEX IF NOT EXISTS mutation_worker ON metafence.mutation (worker_id);

-- "This row is being removed by the leader": a delete of its endpoint that meets any other row is refused,
-- because meta deletes by host and port, and a node that registers again may get its id again.
CREATE TABLE IF NOT EXISTS metafence.intent (
    worker_id   integer NOT NULL,
    host        text NOT NULL,
    port        integer NOT NULL,
    service     text NOT NULL,
    term        bigint NOT NULL,
    created_at  timestamptz NOT NULL,
    row_version text,                           -- of the row that was judged, as metafence.workers() shows it
    is_repeated boolean NOT NULL DEFAULT false, -- announced once more while it was open
    PRIMARY KEY (service, term, worker_id)
);
DO $body$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS a
                    WHERE a.attrelid = 'metafence.intent'::pg_catalog.regclass AND a.attname = 'row_version') THEN
        -- Without a version an intent lets nothing pass at its endpoint: the next one brings it.
        ALTER TABLE metafence.intent ADD COLUMN row_version text,
            ADD COLUMN is_repeated boolean NOT NULL DEFAULT false,
            DROP CONSTRAINT intent_pkey, ADD PRIMARY KEY (service, term, worker_id);
    END IF;
END
$body$;

-- A value of the table's row as text has to run nothing that the table's owner made: a column of a type of his
-- may have a cast to json.
CREATE OR REPLACE FUNCTION metafence.is_plain(p_relation oid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    -- Types below 16384 are Postgres's own.
    RETURN NOT EXISTS (SELECT FROM pg_attribute AS a
                        WHERE a.attrelid = p_relation AND a.attnum > 0 AND NOT a.attisdropped
                          AND a.atttypid >= 16384);
END
$body$;

-- The guarded table of workers; NULL: none. Of several, as two clusters in one database have them, the one
-- beside the table of the election whose terms are kept here. 42P09: that does not tell which.
CREATE OR REPLACE FUNCTION metafence.worker_table() RETURNS regclass
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_tables regclass[];
    v_beside regclass[];
BEGIN
    SELECT array_agg(c.oid::regclass ORDER BY c.oid), array_agg(c.oid::regclass) FILTER (WHERE EXISTS (
               SELECT FROM pg_trigger AS e JOIN pg_class AS l ON l.oid = e.tgrelid
                WHERE e.tgfoid = 'metafence.on_campaign'::regproc AND l.relnamespace = c.relnamespace))
      INTO v_tables, v_beside
      FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
     WHERE t.tgfoid = 'metafence.log_worker'::regproc;
    IF cardinality(v_tables) > 1 AND cardinality(v_beside) IS DISTINCT FROM 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'ambiguous_alias', MESSAGE = format(
            'metafence: %s and %s are both guarded, and the election''s table is beside %s of them',
            v_tables[1], v_tables[2], CASE WHEN v_beside IS NULL THEN 'none' ELSE 'both' END);
    END IF;
    RETURN CASE cardinality(v_tables) WHEN 1 THEN v_tables[1] ELSE v_beside[1] END;
END
$body$;

-- "worker_id=7": the primary key of a row.
CREATE OR REPLACE FUNCTION metafence.key_of(p_relation oid, p_row jsonb) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT left(string_agg(concat(a.attname, '=', coalesce(p_row->>a.attname, 'NULL')), ','
                           ORDER BY a.attnum), 200)
      FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
     WHERE i.indrelid = p_relation AND i.indisprimary
$body$;

-- The slow way to the writers' lock: a takeover is under way. It takes at most half a second; whoever waits
-- much longer is let by and counted.
CREATE OR REPLACE FUNCTION metafence.wait_shared() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $body$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1296453187, 1);
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    PERFORM nextval('metafence.count_unlocked');
END
$body$;

CREATE OR REPLACE FUNCTION metafence.refusal(
    p_operation text, p_relation text, p_key text, p_tag text, OUT message text, OUT detail text)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT format('metafence: %s of %s refused: key %s, session %s led term %s, the term is %s',
                  p_operation, p_relation, coalesce(p_key, '?'), p_tag, coalesce(g.owned_term::text, '?'),
                  coalesce(t.term::text, '?')),
           format('The leader is %s. This process lost its leadership and has to be restarted.',
                  coalesce(t.owner_id, '?'))
      FROM (SELECT) AS one LEFT JOIN metafence.tag AS g ON g.tag = p_tag
      LEFT JOIN LATERAL (SELECT x.term, x.owner_id FROM metafence.term AS x ORDER BY x.since DESC LIMIT 1)
                AS t ON true
$body$;

-- BEFORE each guarded statement, for the owner of the term once a transaction. Every line in here costs µs of
-- every write: for the owner it is one look-up, the same in all modes.
CREATE OR REPLACE FUNCTION metafence.guard() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $body$
DECLARE
    v_tag text;
    v_mode text;
    v_owned bigint;
    v_superseded boolean := false;
    v_is_waiting boolean := false;
    v_is_locked boolean := false;
    v_refusal record;
BEGIN
    BEGIN
        v_tag := current_setting('application_name');
        -- Without a tag it can't be told from the next such session: neither lock nor list could hold it.
        IF v_tag LIKE 'metafence:%' THEN
            -- First the lock: whoever has it reads below what the last takeover wrote.
            v_is_locked := pg_try_advisory_xact_lock_shared(1296453187, 1);
            IF NOT v_is_locked THEN
                v_is_waiting := true;
                PERFORM metafence.wait_shared();
                v_is_waiting := false;
            END IF;
            IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
               AND EXISTS (SELECT FROM metafence.setting AS s
                            WHERE s.name = 'guard' AND s.value IN ('observe', 'enforce')) THEN
                -- The snapshot may be from before the takeover, which updates this row: 40001 then.
                PERFORM FROM metafence.term AS t FOR SHARE;
            END IF;
            SELECT g.owned_term, g.superseded INTO v_owned, v_superseded
              FROM metafence.tag AS g WHERE g.tag = v_tag;
        END IF;
        IF v_superseded OR v_owned IS NULL THEN
            SELECT s.value INTO v_mode FROM metafence.setting AS s
             WHERE s.name = 'guard' AND s.value IN ('observe', 'enforce');
            v_superseded := v_superseded AND v_mode IS NOT NULL;
            IF v_mode IS NULL OR v_superseded THEN
                NULL;
            ELSIF v_tag LIKE 'metafence:%' THEN
                PERFORM nextval('metafence.count_not_owner');
            ELSE
                PERFORM nextval('metafence.count_untagged');
            END IF;
        ELSIF v_is_locked THEN
            -- For the rest of this transaction: no takeover gets by the lock that it holds, and a savepoint
            -- that goes back gives up both. The trigger looks at it before it calls us.
            PERFORM set_config('metafence.pass', v_tag, true);
        END IF;
        IF v_superseded THEN
            PERFORM set_config('metafence.gate', v_mode, true), set_config('metafence.left', '20', true);
            IF TG_OP = 'TRUNCATE' AND v_mode = 'enforce' THEN
                PERFORM nextval('metafence.count_refused');
            ELSIF TG_OP = 'TRUNCATE' THEN
                PERFORM metafence.record_observed(TG_TABLE_NAME, TG_OP, 'all', v_tag);
            END IF;
        ELSIF current_setting('metafence.gate', true) <> '' THEN
            PERFORM set_config('metafence.gate', '', true);
        END IF;
    EXCEPTION
        WHEN serialization_failure THEN
            RAISE;
        WHEN OTHERS OR query_canceled THEN
            IF v_is_waiting AND SQLSTATE = '57014' THEN
                RAISE; -- who passed here would write after the takeover, unseen
            END IF;
            -- What was read in the list stays true whatever failed after it.
            PERFORM metafence.count_unreadable(SQLERRM, SQLSTATE);
    END;
    IF v_superseded AND TG_OP = 'TRUNCATE' AND v_mode = 'enforce' THEN
        SELECT * INTO v_refusal FROM metafence.refusal(TG_OP, TG_TABLE_NAME, 'all', v_tag) AS r;
        RAISE EXCEPTION USING ERRCODE = 'MF001', MESSAGE = v_refusal.message, DETAIL = v_refusal.detail,
            SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END
$body$;

-- Never raises. Says it once a minute and session.
CREATE OR REPLACE FUNCTION metafence.count_unreadable(p_message text, p_sqlstate text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_minute text;
BEGIN
    v_minute := to_char(clock_timestamp(), 'YYYYMMDDHH24MI');
    IF current_setting('metafence.guard_logged', true) IS DISTINCT FROM v_minute THEN
        PERFORM set_config('metafence.guard_logged', v_minute, false);
        RAISE LOG 'metafence: the guard let a write pass: % (SQLSTATE %)', p_message, p_sqlstate;
    END IF;
    PERFORM nextval('metafence.count_unreadable');
EXCEPTION WHEN OTHERS THEN
    NULL;
END
$body$;

CREATE OR REPLACE FUNCTION metafence.record_observed(
    p_relation text, p_operation text, p_key text, p_tag text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_id bigint;
BEGIN
    PERFORM nextval('metafence.count_observed');
    INSERT INTO metafence.observed AS o (seen_at, relation, operation, key, tag, owned_term, term)
    VALUES (clock_timestamp(), p_relation, p_operation, p_key, p_tag,
            (SELECT g.owned_term FROM metafence.tag AS g WHERE g.tag = p_tag),
            (SELECT t.term FROM metafence.term AS t ORDER BY t.since DESC LIMIT 1))
    RETURNING o.id INTO v_id;
    -- Without waiting for anybody; and not where a concurrent delete would be an error.
    IF v_id % 100 = 0 AND current_setting('transaction_isolation') LIKE 'read %' THEN
        DELETE FROM metafence.observed AS o
         WHERE o.id IN (SELECT x.id FROM metafence.observed AS x WHERE x.id <= v_id - 1000
                         ORDER BY x.id LIMIT 1000 FOR UPDATE SKIP LOCKED);
    END IF;
END
$body$;

-- For each row behind the gate. It judges again: the gate only keeps the cost away from everybody else.
CREATE OR REPLACE FUNCTION metafence.refuse() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $body$
DECLARE
    v_tag text;
    v_mode text;
    v_key text;
    v_left integer;
    v_refusal record;
    v_is_refused boolean := false;
BEGIN
    BEGIN
        v_tag := current_setting('application_name');
        v_mode := current_setting('metafence.gate', true);
        IF EXISTS (SELECT FROM metafence.tag AS g WHERE g.tag = v_tag AND g.superseded) THEN
            v_is_refused := v_mode = 'enforce';
        ELSE
            v_mode := '';
        END IF;
    EXCEPTION WHEN OTHERS OR query_canceled THEN
        v_is_refused := v_mode = 'enforce'; -- the gate was opened for this very statement
        PERFORM metafence.count_unreadable(SQLERRM, SQLSTATE);
    END;
    BEGIN -- What only makes the message better.
        IF v_mode <> '' AND metafence.is_plain(TG_RELID) THEN
            v_key := metafence.key_of(TG_RELID,
                                      CASE TG_OP WHEN 'DELETE' THEN to_jsonb(OLD) ELSE to_jsonb(NEW) END);
        END IF;
        IF v_is_refused THEN
            PERFORM nextval('metafence.count_refused');
        ELSIF v_mode = 'observe' THEN
            PERFORM metafence.record_observed(TG_TABLE_NAME, TG_OP, v_key, v_tag);
            -- A statement with a million rows leaves as many lines as one with twenty.
            v_left := coalesce(nullif(current_setting('metafence.left', true), ''), '20')::integer - 1;
            PERFORM set_config('metafence.left', v_left::text, true);
            IF v_left <= 0 THEN
                PERFORM set_config('metafence.gate', '', true);
            END IF;
        END IF;
    EXCEPTION WHEN OTHERS OR query_canceled THEN
        PERFORM metafence.count_unreadable(SQLERRM, SQLSTATE);
    END;
    IF v_is_refused THEN
        SELECT * INTO v_refusal FROM metafence.refusal(TG_OP, TG_TABLE_NAME, v_key, v_tag) AS r;
        RAISE EXCEPTION USING ERRCODE = 'MF001', MESSAGE = v_refusal.message, DETAIL = v_refusal.detail,
            SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RETURN NEW;
END
$body$;

-- AFTER each row of worker.
CREATE OR REPLACE FUNCTION metafence.log_worker() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $body$
DECLARE
    v_tag text;
    v_old jsonb;
    v_new jsonb;
    v_id bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM metafence.setting AS s
                    WHERE s.name = 'guard' AND s.value IN ('observe', 'enforce'))
       OR TG_RELID <> metafence.worker_table() THEN
        RETURN NULL;
    END IF;
    v_tag := metafence.session_tag();
    IF metafence.is_plain(TG_RELID) THEN
        v_old := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
        v_new := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
    END IF;
    INSERT INTO metafence.mutation AS m
           (logged_at, xid, operation, worker_id, tag, owned_term, term, old, new)
    VALUES (clock_timestamp(), pg_current_xact_id(), TG_OP, (coalesce(v_new, v_old)->>'worker_id')::bigint,
            v_tag, (SELECT g.owned_term FROM metafence.tag AS g WHERE g.tag = v_tag),
            (SELECT t.term FROM metafence.term AS t ORDER BY t.since DESC LIMIT 1), v_old, v_new)
    RETURNING m.id INTO v_id;
    IF v_id % 100 = 0 AND current_setting('transaction_isolation') LIKE 'read %' THEN
        DELETE FROM metafence.mutation AS m
         WHERE m.id IN (SELECT x.id FROM metafence.mutation AS x WHERE x.id <= v_id - 2000
                         ORDER BY x.id LIMIT 1000 FOR UPDATE SKIP LOCKED);
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS OR query_canceled THEN
    BEGIN
        PERFORM nextval('metafence.count_unlogged');
    EXCEPTION WHEN OTHERS THEN
        NULL;
    END;
    RETURN NULL;
END
$body$;

-- BEFORE each deleted row of worker, in observe and enforce. Where removals of its endpoint are announced, it
-- has to be one of the rows that were judged: by id and version. The intents of the present term count, and in
-- observe, where a superseded leader's late call is not refused, those of the term that it led.
CREATE OR REPLACE FUNCTION metafence.keep_intended() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $body$
DECLARE
    v_tag text;
    v_property regclass;
    v_version text;
    v_written text;
    v_intended integer;
    v_is_meant boolean;
BEGIN
    BEGIN
        IF EXISTS (SELECT FROM metafence.intent AS i) AND metafence.is_plain(TG_RELID)
           AND TG_RELID = metafence.worker_table() THEN
            v_tag := metafence.session_tag();
            SELECT c.oid INTO v_property FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
             WHERE c.relname = 'worker_property' AND c.relkind = 'r' AND a.attname = 'worker_id'
               AND c.relnamespace = (SELECT w.relnamespace FROM pg_class AS w WHERE w.oid = TG_RELID);
            IF v_property IS NOT NULL AND metafence.is_plain(v_property) THEN
                -- One that is locked is being written: it is left out, and the version differs.
                EXECUTE format('SELECT concat_ws('' '', p.xmin, p.ctid) FROM %s AS p WHERE p.worker_id = $1'
                               ' FOR UPDATE SKIP LOCKED', v_property) INTO v_written USING OLD.worker_id;
            END IF;
            v_version := concat_ws(' ', OLD.xmin, OLD.ctid, v_written);
            SELECT i.worker_id, i.worker_id = OLD.worker_id AND i.row_version IS NOT DISTINCT FROM v_version
              INTO v_intended, v_is_meant
              FROM metafence.intent AS i
              JOIN metafence.setting AS s ON s.name = 'guard' AND s.value IN ('observe', 'enforce')
             WHERE i.host = OLD.host AND i.port = OLD.port
               AND (EXISTS (SELECT FROM metafence.term AS t WHERE t.service = i.service AND t.term = i.term)
                    OR s.value = 'observe' AND EXISTS (SELECT FROM metafence.tag AS g
                                                        WHERE g.tag = v_tag AND g.owned_term = i.term))
             ORDER BY 2 DESC, i.worker_id = OLD.worker_id DESC, i.term DESC, i.worker_id LIMIT 1;
            IF v_is_meant THEN
                v_intended := NULL;
            ELSIF v_intended IS NOT NULL THEN
                PERFORM nextval('metafence.count_intended');
            END IF;
        END IF;
    EXCEPTION WHEN OTHERS OR query_canceled THEN
        v_intended := NULL;
        PERFORM metafence.count_unreadable(SQLERRM, SQLSTATE);
    END;
    IF v_intended IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'MF002', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
            MESSAGE = format('metafence: DELETE of %s refused: key worker_id=%s, but the removal under way is'
                             ' of worker_id=%s at %s:%s%s', TG_TABLE_NAME, OLD.worker_id, v_intended, OLD.host,
                             OLD.port, CASE v_intended WHEN OLD.worker_id THEN ', before it was written again'
                                       ELSE '' END);
    END IF;
    RETURN OLD;
END
$body$;

-- The tables that the guard covers: those of RisingWave beside the leader table. relation has them by name,
-- is_covered says that all our triggers are there and fire.
CREATE OR REPLACE FUNCTION metafence.guarded_tables()
RETURNS TABLE (relation regclass, name name, is_covered boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT c.oid::regclass, c.relname,
           (SELECT count(*)
              FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
             WHERE t.tgrelid = c.oid AND t.tgenabled IN ('O', 'A')
               AND p.pronamespace = 'metafence'::regnamespace
               AND (t.tgname, p.proname) IN (('metafence_guard', 'guard'), ('metafence_key', 'refuse'),
                                             ('metafence_log', 'log_worker'),
                                             ('metafence_intent', 'keep_intended')))
           >= CASE c.relname WHEN 'worker' THEN 4 ELSE 2 END
      FROM pg_class AS c JOIN pg_class AS l ON l.relnamespace = c.relnamespace
     WHERE l.oid = to_regclass((SELECT s.value FROM metafence.setting AS s WHERE s.name = 'leader_table'))
       AND c.relkind = 'r' AND c.relpersistence = 'p'
       AND (c.relname IN ('worker', 'worker_property', 'catalog_version')
            OR c.relname LIKE 'hummock\_%' OR c.relname LIKE 'compaction\_%')
$body$;

-- Puts the triggers on one table, as far as they are missing or off. Whether it did anything. The caller
-- bounds the wait for the lock and covers one table a transaction.
CREATE OR REPLACE FUNCTION metafence.cover(p_name text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_table regclass;
    v_trigger text;
    v_owner name;
BEGIN
    SELECT g.relation INTO v_table FROM metafence.guarded_tables() AS g
     WHERE g.name = p_name AND NOT g.is_covered;
    IF v_table IS NULL THEN
        RETURN false;
    END IF;
    FOR v_trigger IN SELECT t.tgname FROM pg_trigger AS t
                      WHERE t.tgrelid = v_table AND t.tgname LIKE 'metafence\_%'
                        AND t.tgname <> 'metafence_recovery' LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', v_trigger, v_table);
    END LOOP;
    EXECUTE format('CREATE TRIGGER metafence_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s
                    FOR EACH STATEMENT
                    WHEN (nullif(pg_catalog.current_setting(''metafence.pass'', true), '''')
                          IS DISTINCT FROM pg_catalog.current_setting(''application_name''))
                    EXECUTE FUNCTION metafence.guard()', v_table);
    -- A BEFORE trigger locks each row once more. Only worker needs one: the refusal has to name its row, not
    -- the row of worker_property that goes with it.
    EXECUTE format('CREATE TRIGGER metafence_key %s INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW
                    WHEN (pg_catalog.current_setting(''metafence.gate'', true) <> '''')
                    EXECUTE FUNCTION metafence.refuse()',
                   CASE p_name WHEN 'worker' THEN 'BEFORE' ELSE 'AFTER' END, v_table);
    IF p_name = 'worker' THEN
        EXECUTE format('CREATE TRIGGER metafence_log AFTER INSERT OR UPDATE OR DELETE ON %s
                        FOR EACH ROW EXECUTE FUNCTION metafence.log_worker()', v_table);
        EXECUTE format('CREATE TRIGGER metafence_intent BEFORE DELETE ON %s
                        FOR EACH ROW EXECUTE FUNCTION metafence.keep_intended()', v_table);
        -- They read it and delete from it, and what its owner hung on it must run with his rights.
        SELECT pg_get_userbyid(c.relowner) INTO v_owner FROM pg_class AS c WHERE c.oid = v_table;
        IF v_owner <> current_user
           AND (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user) THEN
            EXECUTE format('GRANT USAGE ON SCHEMA metafence TO %I', v_owner);
            EXECUTE format('ALTER FUNCTION metafence.remove_worker(text, integer, text, integer, text)'
                           ' OWNER TO %I', v_owner);
            EXECUTE format('ALTER FUNCTION metafence.workers() OWNER TO %I', v_owner);
            EXECUTE format('GRANT EXECUTE ON FUNCTION metafence.worker_table() TO %I', v_owner);
        END IF;
    END IF;
    RETURN true;
END
$body$;

-- For the leader's agent: a fresh cluster has no tables at the installation, and later versions bring new
-- ones. Covers at most one table a call, with the guard's triggers or the recovery's, and waits at most 200 ms
-- for it. Returns how many are still without; call it again until 0. 42501: the owner of this schema may not create triggers on it.
CREATE OR REPLACE FUNCTION metafence.complete() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
DECLARE
    v_name name;
    v_is_guard boolean;
BEGIN
    -- An installation or an uninstallation is under way otherwise.
    IF pg_try_advisory_xact_lock(7741035926118263) THEN
        SELECT g.name, g.is_guard INTO v_name, v_is_guard FROM metafence.uncovered_tables() AS g
         ORDER BY random() LIMIT 1;
        IF v_name IS NOT NULL THEN
            BEGIN
                IF v_is_guard THEN
                    PERFORM metafence.cover(v_name);
                ELSE
                    PERFORM metafence.cover_recovery(v_name);
                END IF;
            EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
                NULL;
            END;
        END IF;
    END IF;
    RETURN (SELECT count(*) FROM metafence.uncovered_tables() AS g);
END
$body$;

CREATE OR REPLACE FUNCTION metafence.counters() RETURNS TABLE (name text, value bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT substr(s.sequencename, 7), coalesce(s.last_value, 0)
      FROM pg_sequences AS s WHERE s.schemaname = 'metafence' AND s.sequencename LIKE 'count\_%'
$body$;
