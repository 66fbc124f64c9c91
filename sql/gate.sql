-- SPDX-License-Identifier: Apache-2.0
-- The gate before the purge: while a global recovery of the present term is open, a version delta that removes
-- state tables waits, at most 1 s, until all compute nodes are acknowledged to have reset, and is refused
-- then. RisingWave tries again by itself. Everything else passes, and so does whatever is in doubt, counted.
--
-- Lock order. The leader's insert holds the writers' lock (guard.sql) shared and then takes rows of recovery and
-- dropped, never one of term: a takeover holds that one while it waits for the writers' lock. Calls of the agent
-- take term first, shared.

-- What the agent beside an incarnation wants of the gate, and that it is there: refreshed by all of them, as a winner
-- purges before anybody knows that it leads. Without the leader's row, or once that has expired, the gate is open.
DO $body$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
                WHERE c.relname = 'gate' AND c.relnamespace = 'metafence'::pg_catalog.regnamespace
                  AND a.attname = 'term') THEN
        DROP TABLE metafence.gate; -- one row for all
    END IF;
END
$body$;
DROP FUNCTION IF EXISTS metafence.refresh_gate(text, bigint, text, text, bigint, bigint);
CREATE TABLE IF NOT EXISTS metafence.gate (
    service      text NOT NULL,
    agent_tag    text NOT NULL,         -- of the incarnation
    refreshed_at timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    policy       text NOT NULL CHECK (policy IN ('open', 'hold')),
    max_hold_ms  bigint NOT NULL,
    dead_after_ms bigint,               -- so long after its last renewal it is dead; NULL: that is not ensured
    PRIMARY KEY (service, agent_tag)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- That a compute node runs no actor any more which could read what is to be removed, and how that is known.
CREATE TABLE IF NOT EXISTS metafence.acknowledgement (
    recovery_id bigint NOT NULL,
    worker_id   integer NOT NULL,
    host        text NOT NULL,
    port        integer NOT NULL,
    how         text NOT NULL,          -- reset, none, gone; asked: it is being killed, and proves nothing yet
    evidence    jsonb,
    snapshot    pg_snapshot,            -- of the database before the node was asked
    at          timestamptz NOT NULL,
    PRIMARY KEY (recovery_id, worker_id, how),
    CONSTRAINT acknowledgement_how CHECK (how IN ('reset', 'none', 'gone', 'asked'))
);
DO $body$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_constraint AS c
                WHERE c.conrelid = 'metafence.acknowledgement'::pg_catalog.regclass
                  AND c.conname = 'acknowledgement_how_check') THEN
        ALTER TABLE metafence.acknowledgement DROP CONSTRAINT acknowledgement_how_check,
            ADD CONSTRAINT acknowledgement_how CHECK (how IN ('reset', 'none', 'gone', 'asked'));
    END IF;
END
$body$;

-- Removals that met an open recovery and passed, and why. Bounded: the newest 500 or so.
CREATE TABLE IF NOT EXISTS metafence.purge (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL,
    recovery_id bigint NOT NULL,
    term        bigint NOT NULL,
    tag         text,
    outcome     text NOT NULL,          -- acknowledged, observed, bound, or what kept the gate open
    table_count integer NOT NULL,
    table_ids   bigint[] NOT NULL,      -- the first 100
    missing     text,                   -- compute nodes without an acknowledgement: "3 host:port, ..."
    held_ms     bigint NOT NULL         -- since the first attempt that counts
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Field 9 of the top level of a HummockVersionDelta, and whether it commits an epoch (field 11). Fields that
-- RisingWave has not, at types that it does not give them, or another id: not one of its own, is_valid is
-- false, as for one that ends in the middle. Its fields ascend: unless p_is_to_end it stops behind field 9.
CREATE OR REPLACE FUNCTION metafence.removed_tables(
    p_delta bytea, p_id bigint, p_is_to_end boolean, OUT ids bigint[], OUT is_commit boolean,
    OUT is_valid boolean)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_at integer := 0;
    v_end integer := coalesce(octet_length(p_delta), 0);
    v_want text := 'tag';
    v_stop integer;                     -- end of packed ids
    v_field bigint;
    v_type bigint;
    v_byte integer;
    v_shift integer;
    v_value bigint;
BEGIN
    ids := '{}';
    is_commit := false;
    is_valid := false;
    WHILE v_at < v_end LOOP
        -- Groups and watermarks (fields 3 and 8) come in numbers, with lengths of one byte or two: two
        -- expressions each, for it is their count that costs.
        WHILE v_want = 'tag' AND v_at + 2 < v_end AND get_byte(p_delta, v_at) IN (26, 66)
              AND (get_byte(p_delta, v_at + 1) < 128 OR get_byte(p_delta, v_at + 2) < 128) LOOP
            v_at := v_at + CASE WHEN get_byte(p_delta, v_at + 1) < 128 THEN 2 + get_byte(p_delta, v_at + 1)
                                ELSE 3 + (get_byte(p_delta, v_at + 1) & 127)
                                     + (get_byte(p_delta, v_at + 2) << 7) END;
        END LOOP;
        EXIT WHEN v_at >= v_end;
        v_value := 0;
        v_shift := 0;
        LOOP
            IF v_at >= v_end OR v_shift > 63 THEN
                RETURN;
            END IF;
            v_byte := get_byte(p_delta, v_at);
            v_at := v_at + 1;
            v_value := v_value | ((v_byte & 127)::bigint << v_shift);
            EXIT WHEN v_byte < 128;
            v_shift := v_shift + 7;
        END LOOP;
        IF v_want = 'ids' THEN
            IF v_value NOT BETWEEN 0 AND 4294967295 OR v_at > v_stop THEN
                RETURN;
            END IF;
            ids := ids || v_value;
            IF v_at = v_stop THEN
                v_want := 'tag';
            END IF;
        ELSIF v_want = 'tag' THEN
            v_field := v_value >> 3;
            v_type := v_value & 7;
            EXIT WHEN v_field > 9 AND NOT p_is_to_end;
            IF v_field < 1 OR v_type NOT IN (0, 1, 2, 5) OR v_field IN (1, 2, 4, 5, 6) AND v_type <> 0
               OR v_field IN (3, 8, 10, 11, 12) AND v_type <> 2 OR v_field = 9 AND v_type NOT IN (0, 2) THEN
                RETURN;
            END IF;
            is_commit := is_commit OR v_field = 11;
            v_want := CASE v_type WHEN 0 THEN 'value' WHEN 2 THEN 'length' ELSE 'tag' END;
            v_at := v_at + CASE v_type WHEN 1 THEN 8 WHEN 5 THEN 4 ELSE 0 END;
        ELSIF v_want = 'length' THEN
            IF v_value NOT BETWEEN 0 AND v_end - v_at THEN
                RETURN;
            END IF;
            v_want := 'tag';
            IF v_field <> 9 THEN
                v_at := v_at + v_value::integer;
            ELSIF v_value > 0 THEN
                v_want := 'ids';
                v_stop := v_at + v_value::integer;
            END IF;
        ELSE
            IF v_field = 1 AND v_value <> p_id OR v_field = 9 AND v_value NOT BETWEEN 0 AND 4294967295 THEN
                RETURN;
            END IF;
            IF v_field = 9 THEN
                ids := ids || v_value;
            END IF;
            v_want := 'tag';
        END IF;
    END LOOP;
    is_valid := v_want = 'tag' AND v_at <= v_end;
END
$body$;

-- Where the metadata is.
CREATE OR REPLACE FUNCTION metafence.meta_schema() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT n.nspname::text FROM metafence.setting AS s JOIN pg_class AS c ON c.oid = to_regclass(s.value)
      JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE s.name = 'leader_table'
$body$;

-- Which RisingWave this is, and whether what is assumed here was compared with it.
CREATE OR REPLACE FUNCTION metafence.catalog_version(OUT version text, OUT is_verified boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    version := metafence.newest_migration(metafence.meta_schema());
    is_verified := EXISTS (SELECT FROM metafence.verified AS v
                            WHERE version COLLATE "C" >= v.first AND version COLLATE "C" <= v.last);
EXCEPTION WHEN OTHERS THEN
    is_verified := false;
END
$body$;

-- A session that two incarnations have used comes from a pooler: no tag says who writes.
CREATE OR REPLACE FUNCTION metafence.is_pooled() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT EXISTS (SELECT FROM metafence.tag AS a JOIN metafence.tag AS b
                      ON b.backend = a.backend AND b.tag <> a.tag WHERE NOT a.superseded)
$body$;

-- Live compute nodes without an acknowledgement that counts. One that only says that no actor of the dropped
-- fragments runs counts where all that is removed is known, and was when the node was asked (p_xids: the
-- transactions that dropped it; NULL: not all known). One that is being killed is waited for also without its row:
-- it takes that away at SIGTERM, and has its actors and its subscription still.
CREATE OR REPLACE FUNCTION metafence.missing_workers(p_recovery bigint, p_xids xid8[])
RETURNS TABLE (worker_id integer, host text, port integer)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT w.worker_id, w.host, w.port
      FROM (SELECT n.worker_id, n.host, n.port, false AS is_asked FROM metafence.workers() AS n
             WHERE n.worker_type = 'COMPUTE_NODE' AND n.status = 'RUNNING'
            UNION ALL
            SELECT k.worker_id, k.host, k.port, true FROM metafence.acknowledgement AS k
              JOIN metafence.recovery AS r ON r.id = k.recovery_id
             WHERE r.id = p_recovery AND k.how = 'asked'
               AND (r.consumed IS NULL OR pg_visible_in_snapshot(r.consumed, k.snapshot))
               AND NOT EXISTS (SELECT FROM metafence.workers() AS n WHERE n.worker_id = k.worker_id
                                  AND n.host = k.host AND n.port = k.port AND n.status = 'RUNNING')) AS w
     WHERE NOT EXISTS (
           SELECT FROM metafence.acknowledgement AS a JOIN metafence.recovery AS r ON r.id = a.recovery_id
            WHERE r.id = p_recovery AND a.how <> 'asked' AND (w.is_asked OR a.worker_id = w.worker_id)
              AND a.host = w.host AND a.port = w.port
              AND (r.consumed IS NULL OR pg_visible_in_snapshot(r.consumed, a.snapshot))
              AND (a.how <> 'none' OR p_xids IS NOT NULL AND a.snapshot IS NOT NULL
                   AND NOT EXISTS (SELECT FROM unnest(p_xids) AS x(id)
                                    WHERE NOT pg_visible_in_snapshot(x.id, a.snapshot))))
     ORDER BY w.worker_id
$body$;

-- What keeps the gate open whatever is acknowledged, or NULL.
DROP FUNCTION IF EXISTS metafence.why_open(text, bigint, text);
CREATE OR REPLACE FUNCTION metafence.why_open(p_service text, p_tag text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN CASE
        WHEN NOT EXISTS (SELECT FROM metafence.setting AS s WHERE s.name = 'recovery' AND s.value = 'enforce')
             OR NOT (SELECT c.is_verified FROM metafence.catalog_version() AS c) THEN 'observed'
        WHEN current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
            THEN 'open: isolation ' || current_setting('transaction_isolation')
        WHEN p_tag IS NULL THEN 'open: no session tag'
        WHEN metafence.is_pooled() THEN 'open: a pooler hands sessions around'
        WHEN NOT EXISTS (SELECT FROM metafence.gate AS g WHERE g.service = p_service AND g.agent_tag = p_tag
                            AND g.expires_at > clock_timestamp()) THEN 'open: no agent' END;
END
$body$;

-- Waits for the acknowledgements, by reading them again: each statement sees what was committed before it. Why
-- the removal passes, or NULL: it does not.
CREATE OR REPLACE FUNCTION metafence.await_acknowledgements(
    p_recovery bigint, p_ids bigint[], OUT outcome text, OUT missing text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v record;
    v_until timestamptz := clock_timestamp() + interval '900 ms';
    v_xids xid8[];
BEGIN
    SELECT r.service, r.tag, r.held_from INTO v FROM metafence.recovery AS r WHERE r.id = p_recovery;
    SELECT CASE WHEN bool_and(d.id IS NOT NULL) THEN array_agg(DISTINCT d.xid) END INTO v_xids
      FROM unnest(p_ids) AS i(id)
      LEFT JOIN (SELECT x.id, x.xid, t.id AS table_id FROM metafence.dropped AS x
                  CROSS JOIN LATERAL unnest(x.table_ids) AS t(id)) AS d ON d.table_id = i.id;
    LOOP
        SELECT left(string_agg(concat(m.worker_id, ' ', m.host, ':', m.port), ', '), 500) INTO missing
          FROM metafence.missing_workers(p_recovery, v_xids) AS m;
        IF missing IS NULL THEN
            outcome := 'acknowledged';
        ELSE
            outcome := metafence.why_open(v.service, v.tag);
        END IF;
        IF outcome IS NULL THEN
            SELECT 'bound' INTO outcome FROM metafence.gate AS g
             WHERE g.service = v.service AND g.agent_tag = v.tag AND g.policy = 'open'
               AND clock_timestamp() >= v.held_from + g.max_hold_ms * interval '1 ms';
        END IF;
        EXIT WHEN outcome IS NOT NULL OR clock_timestamp() >= v_until;
        -- For recovery_state(): that a removal waits is seen before anything is committed.
        PERFORM pg_try_advisory_xact_lock_shared(1296453187, 2);
        PERFORM pg_sleep(0.02);
    END LOOP;
EXCEPTION WHEN OTHERS OR query_canceled THEN
    outcome := left(format('failed: %s (SQLSTATE %s)', SQLERRM, SQLSTATE), 200);
    PERFORM metafence.count_recovery('failed', 'the gate let a removal pass: ' || outcome);
END
$body$;

-- A removal that meets the open recovery. NULL: it passes, and what was acknowledged is used up, because the
-- attempt goes on to build actors. Else the text of its refusal.
CREATE OR REPLACE FUNCTION metafence.hold_removal(p_recovery bigint, p_ids bigint[]) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v record;
    v_wait record;
    v_id bigint;
BEGIN
    SELECT * INTO v_wait FROM metafence.await_acknowledgements(p_recovery, p_ids);
    SELECT r.* INTO v FROM metafence.recovery AS r WHERE r.id = p_recovery;
    IF v_wait.outcome IS NULL THEN
        PERFORM setval('metafence.refused_attempt', coalesce(v.attempt, 0)),
                setval('metafence.refused_at', (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
        PERFORM metafence.count_recovery('refused', '');
        RETURN format('metafence: removal of %s state tables (%s%s) refused in recovery %s of term %s: compute'
                      ' nodes without acknowledgement: %s', cardinality(p_ids), array_to_string(p_ids[:10], ', '),
                      CASE WHEN cardinality(p_ids) > 10 THEN ', ...' ELSE '' END, p_recovery, v.term,
                      v_wait.missing);
    END IF;
    INSERT INTO metafence.purge AS p
           (at, recovery_id, term, tag, outcome, table_count, table_ids, missing, held_ms)
    VALUES (clock_timestamp(), p_recovery, v.term, v.tag, v_wait.outcome, cardinality(p_ids), p_ids[:100],
            v_wait.missing, (extract(epoch FROM clock_timestamp() - v.held_from) * 1000)::bigint)
    RETURNING p.id INTO v_id;
    DELETE FROM metafence.purge AS p WHERE p.id <= v_id - 500;
    UPDATE metafence.recovery AS r SET consumed = pg_current_xact_id(), round = r.round + 1 WHERE r.id = p_recovery;
    IF v_wait.outcome IN ('bound', 'observed') THEN
        PERFORM metafence.count_recovery(v_wait.outcome, '');
    ELSIF v_wait.outcome LIKE 'open%' THEN
        PERFORM metafence.count_recovery('open', v_wait.outcome);
    END IF;
    PERFORM metafence.notify_recovery(concat_ws(' ', 'passed', p_recovery, v.term, v_wait.outcome));
    RETURN NULL;
END
$body$;

-- What is removed is pending no longer.
CREATE OR REPLACE FUNCTION metafence.forget_dropped(p_ids bigint[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
    WITH rest AS MATERIALIZED (
        SELECT d.id, array_agg(t.id ORDER BY t.id) FILTER (WHERE r.id IS NULL) AS ids
          FROM metafence.dropped AS d CROSS JOIN LATERAL unnest(d.table_ids) AS t(id)
          LEFT JOIN (SELECT DISTINCT i.id FROM unnest(p_ids) AS i(id)) AS r ON r.id = t.id
         GROUP BY d.id HAVING bool_or(r.id IS NOT NULL)),
    gone AS (DELETE FROM metafence.dropped AS d USING rest AS e WHERE e.id = d.id AND e.ids IS NULL)
    UPDATE metafence.dropped AS d SET table_ids = e.ids FROM rest AS e WHERE e.id = d.id AND e.ids IS NOT NULL
$body$;

-- Ends the open recovery of that scope. What was dropped before its last attempt was in its purge, or was
-- never in Hummock.
CREATE OR REPLACE FUNCTION metafence.close_recovery(p_recovery bigint, p_ended text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v record;
BEGIN
    UPDATE metafence.recovery AS r SET closed_at = clock_timestamp(), ended = p_ended
     WHERE r.id = p_recovery AND r.closed_at IS NULL RETURNING r.scope, r.joined, r.snapshot INTO v;
    IF v.scope = 'global' AND v.joined > 0 THEN
        DELETE FROM metafence.dropped AS d WHERE pg_visible_in_snapshot(d.xid, v.snapshot);
    END IF;
    RETURN v.scope IS NOT NULL;
END
$body$;

-- A delta, while a recovery is open or something is pending. The text of its refusal, or NULL.
CREATE OR REPLACE FUNCTION metafence.judge_delta(p_id bigint, p_delta bytea, p_is_open boolean) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
DECLARE
    v record;
    v_open record;
    v_refusal text;
BEGIN
    v := metafence.removed_tables(p_delta, p_id, p_is_open);
    IF NOT v.is_valid THEN
        PERFORM metafence.count_recovery('unknown', format('delta %s is not understood: %s bytes', p_id,
                                                           octet_length(p_delta)));
        RETURN NULL;
    END IF;
    IF p_is_open AND (v.is_commit OR cardinality(v.ids) > 0) THEN
        FOR v_open IN SELECT r.id, r.scope FROM metafence.recovery AS r
                        JOIN metafence.term AS t ON t.service = r.service AND t.term = r.term
                       WHERE r.closed_at IS NULL
                         AND r.tag IS NOT DISTINCT FROM metafence.session_tag() ORDER BY r.id LOOP
            IF v_open.scope = 'global' AND cardinality(v.ids) > 0 THEN
                v_refusal := metafence.hold_removal(v_open.id, v.ids);
                IF v_refusal IS NOT NULL THEN
                    RETURN v_refusal;
                END IF;
            END IF;
            IF v.is_commit THEN
                PERFORM metafence.close_recovery(v_open.id, 'committed');
            END IF;
        END LOOP;
    END IF;
    IF cardinality(v.ids) > 0 THEN
        PERFORM metafence.forget_dropped(v.ids);
    END IF;
    RETURN NULL;
END
$body$;

-- Whether a recovery is open; NULL: none is, and nothing is pending. With the mode off neither is.
CREATE OR REPLACE FUNCTION metafence.is_recovering() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '200ms'
AS $body$
DECLARE
    v_is_open boolean;
    v_is_pending boolean;
BEGIN
    SELECT EXISTS (SELECT FROM metafence.recovery AS r WHERE r.closed_at IS NULL),
           EXISTS (SELECT FROM metafence.dropped AS d) INTO v_is_open, v_is_pending;
    IF v_is_open OR v_is_pending THEN -- by itself: a condition with a query in it is run as one
        IF EXISTS (SELECT FROM metafence.setting AS s
                    WHERE s.name OPERATOR(pg_catalog.=) 'recovery' AND s.value OPERATOR(pg_catalog.<>) 'off') THEN
            RETURN v_is_open;
        END IF;
    END IF;
    RETURN NULL;
END
$body$;

-- Nothing was found. The session keeps that until there is a change, if nothing is found when all that had
-- counted theirs have ended: the count first, then nobody under way, and then, by a snapshot of its own, the tables.
CREATE OR REPLACE FUNCTION metafence.keep_calm() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
DECLARE
    v_change bigint := pg_sequence_last_value('metafence.recovery_change'::regclass);
BEGIN
    IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted')
       AND NOT EXISTS (SELECT FROM pg_locks AS k JOIN pg_database AS d ON d.oid = k.database
                        WHERE k.locktype = 'advisory' AND k.classid = 1296453187 AND k.objid = 3
                          AND d.datname = current_database()) THEN
        -- Whatever the mode: that may change, and is not counted.
        IF NOT EXISTS (SELECT FROM metafence.recovery AS r WHERE r.closed_at IS NULL)
           AND NOT EXISTS (SELECT FROM metafence.dropped AS d) THEN
            PERFORM set_config('metafence.calm', v_change::text, false);
        END IF;
    END IF;
END
$body$;

-- BEFORE each inserted delta. Where no recovery is open and nothing pending, one look at a sequence is all that it costs.
-- Names and operators are qualified, as in on_write and for its reason.
CREATE OR REPLACE FUNCTION metafence.on_delta() RETURNS trigger
LANGUAGE plpgsql STABLE SECURITY DEFINER
AS $body$
DECLARE
    v_is_open boolean;
    v_refusal pg_catalog.text;
BEGIN
    BEGIN
        IF pg_catalog.current_setting('metafence.calm', true) OPERATOR(pg_catalog.=)
           pg_catalog.pg_sequence_last_value('metafence.recovery_change'::pg_catalog.regclass)::pg_catalog.text THEN
            RETURN NEW;
        END IF;
        v_is_open := metafence.is_recovering();
        IF v_is_open IS NULL THEN
            PERFORM metafence.keep_calm();
        ELSE
            -- By nothing that could cast, as in on_campaign.
            IF pg_catalog.pg_typeof(NEW.id) OPERATOR(pg_catalog.<>) 'pg_catalog.int8'::pg_catalog.regtype
               OR pg_catalog.pg_typeof(NEW.full_version_delta)
                  OPERATOR(pg_catalog.<>) 'pg_catalog.bytea'::pg_catalog.regtype THEN
                RAISE EXCEPTION USING ERRCODE = 'datatype_mismatch',
                    MESSAGE = 'hummock_version_delta: id must be bigint, full_version_delta bytea';
            END IF;
            -- Field 9 begins with this byte.
            IF v_is_open OR position('\x4a'::pg_catalog.bytea IN NEW.full_version_delta)
                            OPERATOR(pg_catalog.>) 0 THEN
                v_refusal := metafence.judge_delta(NEW.id, NEW.full_version_delta, v_is_open);
            END IF;
        END IF;
    EXCEPTION WHEN OTHERS OR query_canceled THEN
        v_refusal := NULL;
        BEGIN
            PERFORM metafence.count_recovery('failed',
                pg_catalog.format('delta: %s (SQLSTATE %s)', SQLERRM, SQLSTATE));
        EXCEPTION WHEN OTHERS OR query_canceled THEN
            NULL;
        END;
    END;
    IF v_refusal IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'MF003', MESSAGE = v_refusal, SCHEMA = TG_TABLE_SCHEMA,
            TABLE = TG_TABLE_NAME,
            DETAIL = 'RisingWave tries again. Actors on these nodes may still read these tables: rw#27111.';
    END IF;
    RETURN NEW;
END
$body$;
