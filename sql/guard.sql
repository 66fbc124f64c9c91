-- SPDX-License-Identifier: Apache-2.0
-- The guard on RisingWave's metadata: a deny-list. A write is refused (enforce) or recorded (observe) only if
-- its session's tag led an earlier term and is superseded. Whatever is in doubt passes and is counted: a
-- refused rightful leader would abort.
--
-- Each table has a trigger after each statement that writes it, which takes the writers' lock and judges the
-- session. What was found for the owner of the term is kept in the session with the count of the terms' moves, and
-- holds while that stands still: with the lock had, a move is counted or has not begun. The statement's rows, which
-- Postgres keeps for it, tell the key. TRUNCATE, and every statement on worker, is judged before: there
-- metafence_guard opens the gate (a setting of this transaction) when the tag is superseded, and metafence_key, once
-- a row behind it, refuses or records, so that the row that is named is worker's and not that of worker_property
-- that goes with it.
-- No error, time-out or cancel inside of our triggers reaches a writer that is not superseded, with two exceptions:
-- 40001 above READ COMMITTED, and a cancel while it waits for a takeover. Nothing of it waits longer than its
-- lock_timeout.
--
-- What the owner's writes call costs them µs: a WHEN 7 to 18, a SET search_path 5, a SELECT 7, a whole call of a
-- plain function 4, a look at a sequence less than 1. So on_write and judge have no search_path of their own, and each
-- name and operator in them is qualified: IN, LIKE, BETWEEN, NULLIF, CASE x WHEN and IS DISTINCT FROM look an operator
-- up, and a bare type is looked for in pg_temp first, where anybody may have a domain of that name (boolean and
-- bigint are words of the grammar, text and jsonb are not).

-- The moves of the term, counted as they are made: what a session knows of its tag holds until the next. Begun at
-- the time of the installation, in µs: of an earlier one nothing is known.
DO $body$
BEGIN
    IF pg_catalog.to_regclass('metafence.moves') IS NULL THEN
        EXECUTE pg_catalog.format('CREATE SEQUENCE metafence.moves START %s',
                                  (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint);
        PERFORM pg_catalog.nextval('metafence.moves'); -- before the first it would show nothing
    END IF;
END
$body$;

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
EXCEPTION
    WHEN lock_not_available OR deadlock_detected THEN
        PERFORM nextval('metafence.count_unlocked');
    WHEN query_canceled THEN
        -- By this detail it is known: who passed here would write after the takeover, unseen.
        RAISE EXCEPTION USING ERRCODE = 'query_canceled', MESSAGE = SQLERRM,
            DETAIL = 'metafence: it waited for a takeover';
END
$body$;

-- Above READ COMMITTED the snapshot may be from before the takeover, which updates this row: 40001 then.
CREATE OR REPLACE FUNCTION metafence.pin_term() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
       AND EXISTS (SELECT FROM metafence.setting AS s
                    WHERE s.name = 'guard' AND s.value IN ('observe', 'enforce')) THEN
        PERFORM FROM metafence.term AS t FOR SHARE;
    END IF;
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

-- The mode, if the session's tag is superseded in it; NULL: it may write. Found to be the owner's, a session keeps
-- that, and at which move: on_write asks no more until the next. Not while anybody is about to supersede the tag,
-- which its row shows in xmax: a takeover without the lock counts its move before it is seen, but writes that first.
CREATE OR REPLACE FUNCTION metafence.judge() RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1s'
AS $body$
DECLARE
    v_tag pg_catalog.text;
    v_mode pg_catalog.text;
    v_owned bigint;
    v_superseded boolean;
    v_is_tagged boolean;
    v_is_locked boolean;
    v_is_settled boolean;
    v_moves pg_catalog.text;
BEGIN
    v_tag := pg_catalog.current_setting('application_name');
    v_is_tagged := v_tag OPERATOR(pg_catalog.~~) 'metafence:%';
    -- Without a tag it can't be told from the next such session: neither lock nor list could hold it.
    IF v_is_tagged THEN
        -- First the lock: whoever has it reads below what the last takeover wrote.
        v_is_locked := pg_catalog.pg_try_advisory_xact_lock_shared(1296453187, 1);
        IF NOT v_is_locked THEN
            PERFORM metafence.wait_shared();
        END IF;
        IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed' THEN
            PERFORM metafence.pin_term();
        END IF;
        -- Before the row: what moves after this is not what was read.
        v_moves := pg_catalog.pg_sequence_last_value('metafence.moves'::pg_catalog.regclass)::pg_catalog.text;
        SELECT g.owned_term, g.superseded, g.xmax OPERATOR(pg_catalog.=) '0'::pg_catalog.xid
          INTO v_owned, v_superseded, v_is_settled
          FROM metafence.tag AS g WHERE g.tag OPERATOR(pg_catalog.=) v_tag;
        IF v_owned IS NOT NULL AND NOT v_superseded THEN
            IF v_is_locked AND v_is_settled THEN
                v_moves := pg_catalog.set_config('metafence.owner_since', v_moves, false);
                v_tag := pg_catalog.set_config('metafence.owner', v_tag, false);
            END IF;
            RETURN NULL;
        END IF;
    END IF;
    SELECT s.value INTO v_mode FROM metafence.setting AS s
     WHERE s.name OPERATOR(pg_catalog.=) 'guard' AND s.value OPERATOR(pg_catalog.<>) 'off';
    IF v_superseded THEN
        RETURN v_mode;
    ELSIF v_mode IS NULL THEN
        NULL;
    ELSIF v_is_tagged THEN
        PERFORM pg_catalog.nextval('metafence.count_not_owner');
    ELSE
        PERFORM pg_catalog.nextval('metafence.count_untagged');
    END IF;
    RETURN NULL;
END
$body$;

-- What judge() would have said, had it not failed; p_mode: what it did say. A cancel is spent by having struck, so
-- it judges once more: a superseded writer does not get by for it, and the owner gets the lock that went with it.
-- Whatever else failed is let by.
CREATE OR REPLACE FUNCTION metafence.judge_again(p_mode text, p_message text, p_sqlstate text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_detail text;
BEGIN
    FOR i IN 1 .. CASE WHEN p_mode IS NULL AND p_sqlstate = '57014' THEN 3 ELSE 0 END LOOP
        BEGIN
            RETURN metafence.judge();
        EXCEPTION
            WHEN serialization_failure THEN
                RAISE;
            WHEN query_canceled THEN
                GET STACKED DIAGNOSTICS v_detail = PG_EXCEPTION_DETAIL;
                IF v_detail LIKE 'metafence:%' THEN
                    RAISE;
                END IF;
            WHEN OTHERS THEN
                EXIT;
        END;
    END LOOP;
    PERFORM metafence.count_unreadable(p_message, p_sqlstate);
    RETURN p_mode;
END
$body$;

-- The refusal of a statement, or its record: at most 20 rows of it. p_rows: of a table of plain types, else NULLs.
-- What only makes the message better may fail.
CREATE OR REPLACE FUNCTION metafence.refuse_rows(
    p_mode text, p_relation oid, p_schema text, p_table text, p_operation text, p_rows jsonb[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $body$
DECLARE
    v_tag text := current_setting('application_name');
    v_key text;
    v_row jsonb;
    v_refusal record;
BEGIN
    BEGIN
        FOREACH v_row IN ARRAY p_rows LOOP
            IF v_row IS NOT NULL THEN
                v_key := metafence.key_of(p_relation, v_row);
            END IF;
            EXIT WHEN p_mode = 'enforce';
            PERFORM metafence.record_observed(p_table, p_operation, v_key, v_tag);
        END LOOP;
        IF p_mode = 'enforce' THEN
            PERFORM nextval('metafence.count_refused');
        END IF;
    EXCEPTION WHEN OTHERS OR query_canceled THEN
        PERFORM metafence.count_unreadable(SQLERRM, SQLSTATE);
    END;
    IF p_mode = 'enforce' THEN
        SELECT * INTO v_refusal FROM metafence.refusal(p_operation, p_table, v_key, v_tag) AS r;
        RAISE EXCEPTION USING ERRCODE = 'MF001', MESSAGE = v_refusal.message, DETAIL = v_refusal.detail,
            SCHEMA = p_schema, TABLE = p_table;
    END IF;
END
$body$;

-- AFTER each statement that writes a guarded table, but worker; metafence_rows are its rows. STABLE saves a snapshot:
-- what it calls is not, and sees what is committed. A session has a copy of it for each trigger, so it is short.
CREATE OR REPLACE FUNCTION metafence.on_write() RETURNS trigger
LANGUAGE plpgsql STABLE SECURITY DEFINER
AS $body$
DECLARE
    v_mode pg_catalog.text;
    v_detail pg_catalog.text;
    v_is_plain boolean;
    v_rows pg_catalog.jsonb[];
BEGIN
    BEGIN
        -- Known as the owner, and nothing has moved since, seen with the lock. One expression, as each is set up anew
        -- in each transaction; CASE, so that nobody else takes the lock. The setting may be '', as a name: counted.
        IF (CASE WHEN pg_catalog.current_setting('metafence.owner', true)
                     OPERATOR(pg_catalog.=) pg_catalog.current_setting('application_name')
                THEN CASE WHEN pg_catalog.current_setting('application_name') OPERATOR(pg_catalog.<>) ''
                          THEN CASE WHEN pg_catalog.pg_try_advisory_xact_lock_shared(1296453187, 1)
                THEN pg_catalog.pg_sequence_last_value('metafence.moves'::pg_catalog.regclass)::pg_catalog.text
                     OPERATOR(pg_catalog.=) pg_catalog.current_setting('metafence.owner_since', true)
                END END END) THEN
            RETURN NULL;
        END IF;
        v_mode := metafence.judge();
        IF v_mode IS NULL THEN
            RETURN NULL;
        END IF;
        v_is_plain := metafence.is_plain(TG_RELID);
    EXCEPTION
        WHEN serialization_failure THEN
            RAISE;
        WHEN OTHERS OR query_canceled THEN
            GET STACKED DIAGNOSTICS v_detail = PG_EXCEPTION_DETAIL;
            IF v_detail OPERATOR(pg_catalog.~~) 'metafence:%' THEN
                RAISE;
            END IF;
            v_mode := metafence.judge_again(v_mode, SQLERRM, SQLSTATE);
    END;
    IF v_mode IS NOT NULL THEN
        SELECT pg_catalog.array_agg(CASE WHEN v_is_plain THEN pg_catalog.to_jsonb(x.r) END) INTO v_rows
          FROM (SELECT r FROM metafence_rows AS r LIMIT 20) AS x;
        IF v_rows IS NOT NULL THEN
            PERFORM metafence.refuse_rows(v_mode, TG_RELID, TG_TABLE_SCHEMA, TG_TABLE_NAME, TG_OP, v_rows);
        END IF;
    END IF;
    RETURN NULL;
END
$body$;

-- BEFORE each statement on worker, and each TRUNCATE. Installations of before have it on every table.
CREATE OR REPLACE FUNCTION metafence.guard() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $body$
DECLARE
    v_mode text;
    v_detail text;
    v_refusal record;
BEGIN
    BEGIN
        v_mode := metafence.judge();
        IF v_mode IS NULL AND current_setting('metafence.gate', true) <> '' THEN
            PERFORM set_config('metafence.gate', '', true);
        END IF;
    EXCEPTION
        WHEN serialization_failure THEN
            RAISE;
        WHEN OTHERS OR query_canceled THEN
            GET STACKED DIAGNOSTICS v_detail = PG_EXCEPTION_DETAIL;
            IF v_detail LIKE 'metafence:%' THEN
                RAISE;
            END IF;
            v_mode := metafence.judge_again(v_mode, SQLERRM, SQLSTATE);
    END;
    IF TG_OP = 'TRUNCATE' THEN
        BEGIN -- What only counts.
            IF TG_TABLE_NAME = 'worker' AND v_mode IS DISTINCT FROM 'enforce' THEN
                PERFORM nextval('metafence.count_unlogged'); -- no row of the mutation log tells of it
            END IF;
            IF v_mode = 'enforce' THEN
                PERFORM nextval('metafence.count_refused');
            ELSIF v_mode IS NOT NULL THEN
                PERFORM metafence.record_observed(TG_TABLE_NAME, TG_OP, 'all', current_setting('application_name'));
            END IF;
        EXCEPTION WHEN OTHERS OR query_canceled THEN
            PERFORM metafence.count_unreadable(SQLERRM, SQLSTATE);
        END;
    END IF;
    IF v_mode IS NULL THEN
        RETURN NULL;
    END IF;
    -- By no block that a failure undoes: behind a gate that is shut again it would get by.
    PERFORM set_config('metafence.gate', v_mode, true), set_config('metafence.left', '20', true);
    IF v_mode = 'enforce' AND TG_OP = 'TRUNCATE' THEN
        SELECT * INTO v_refusal FROM metafence.refusal(TG_OP, TG_TABLE_NAME, 'all', current_setting('application_name'));
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

CREATE OR REPLACE FUNCTION metafence.counters() RETURNS TABLE (name text, value bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT substr(s.sequencename, 7), coalesce(s.last_value, 0)
      FROM pg_sequences AS s WHERE s.schemaname = 'metafence' AND s.sequencename LIKE 'count\_%'
$body$;
