-- SPDX-License-Identifier: Apache-2.0
-- Removing worker rows whose endpoint is proven gone: never under a live leader, so the leader's agent writes
-- a tombstone in term N, and the takeover to term N+1 applies it, before the new leader reads the table.

CREATE TABLE IF NOT EXISTS metafence.tombstone (
    service     text NOT NULL,
    term        bigint NOT NULL,
    worker_id   integer NOT NULL,
    host        text NOT NULL,
    port        integer NOT NULL,
    row_version text NOT NULL,         -- of the row that was judged, as metafence.workers() shows it
    pod_uid     text,                  -- of the pod whose end was proven
    snapshot    pg_snapshot NOT NULL,  -- what the mutation log showed at that time
    log_id      bigint NOT NULL,       -- and its newest entry
    created_at  timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    decided_at  timestamptz,
    outcome     text,                  -- removed, or why not
    PRIMARY KEY (service, term, worker_id)
);

-- Writes or renews one, with the row's version as metafence.workers() showed it beside the evidence. False:
-- this is not the term any more, or 1000 others wait. p_lifetime: 2 x ttl.
CREATE OR REPLACE FUNCTION metafence.bury(
    p_service text, p_term bigint, p_worker_id integer, p_host text, p_port integer, p_row_version text,
    p_pod_uid text, p_lifetime interval) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
BEGIN
    -- Shared: a takeover waits for us, or we see its term.
    PERFORM FROM metafence.term AS t WHERE t.service = p_service AND t.term = p_term FOR SHARE;
    IF NOT FOUND OR (SELECT count(*) FROM metafence.tombstone AS x WHERE x.outcome IS NULL) >= 1000 THEN
        RETURN false;
    END IF;
    INSERT INTO metafence.tombstone AS x
           (service, term, worker_id, host, port, row_version, pod_uid, snapshot, log_id, created_at, expires_at)
    VALUES (p_service, p_term, p_worker_id, p_host, p_port, p_row_version, p_pod_uid, pg_current_snapshot(),
            coalesce((SELECT max(m.id) FROM metafence.mutation AS m), 0), clock_timestamp(),
            clock_timestamp() + least(p_lifetime, interval '10 min'))
    ON CONFLICT (service, term, worker_id) DO UPDATE
       SET host = excluded.host, port = excluded.port, row_version = excluded.row_version,
           pod_uid = excluded.pod_uid, snapshot = excluded.snapshot, log_id = excluded.log_id,
           created_at = excluded.created_at, expires_at = excluded.expires_at,
           decided_at = NULL, outcome = NULL;
    RETURN true;
END
$body$;

-- The endpoint lives after all. Whether there was one.
CREATE OR REPLACE FUNCTION metafence.unbury(p_service text, p_term bigint, p_worker_id integer)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
BEGIN
    DELETE FROM metafence.tombstone AS x
     WHERE x.service = p_service AND x.term = p_term AND x.worker_id = p_worker_id AND x.outcome IS NULL;
    RETURN FOUND;
END
$body$;

-- The rows of worker. row_version: "<xmin> <ctid>" of the row, then of its row in worker_property: a node that
-- registers again may get its id again, and until it is activated only the latter is written. Runs as the
-- owner of worker.
CREATE OR REPLACE FUNCTION metafence.workers()
RETURNS TABLE (worker_id integer, worker_type text, host text, port integer, status text, row_version text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $body$
DECLARE
    v_table regclass;
    v_property regclass;
BEGIN
    v_table := metafence.worker_table();
    IF v_table IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_table', MESSAGE = 'metafence: table worker is not guarded';
    END IF;
    SELECT c.oid INTO v_property FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
     WHERE c.relname = 'worker_property' AND c.relkind = 'r' AND a.attname = 'worker_id'
       AND c.relnamespace = (SELECT w.relnamespace FROM pg_class AS w WHERE w.oid = v_table);
    RETURN QUERY EXECUTE format(
        'SELECT w.worker_id::integer, w.worker_type::text, w.host::text, w.port::integer, w.status::text,'
        ' concat_ws('' '', w.xmin, w.ctid%s) FROM %s AS w%s',
        CASE WHEN v_property IS NOT NULL THEN ', p.xmin, p.ctid' END, v_table,
        CASE WHEN v_property IS NOT NULL
             THEN format(' LEFT JOIN %s AS p ON p.worker_id = w.worker_id', v_property) END);
END
$body$;

DO $body$
DECLARE
    v_owner name;
BEGIN
    -- Given away by an earlier installation.
    SELECT pg_catalog.pg_get_userbyid(p.proowner) INTO v_owner
      FROM pg_catalog.pg_proc AS p WHERE p.oid = 'metafence.workers()'::pg_catalog.regprocedure;
    IF v_owner <> current_user THEN
        EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION metafence.worker_table() TO %I', v_owner);
    END IF;
END
$body$;

-- Deletes exactly that row. Runs as the owner of worker, whose triggers it runs; called by the takeover alone.
CREATE OR REPLACE FUNCTION metafence.remove_worker(
    p_table text, p_worker_id integer, p_host text, p_port integer, p_row_version text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_version text;
BEGIN
    EXECUTE format('SELECT concat_ws('' '', w.xmin, w.ctid) FROM %s AS w WHERE w.worker_id = $1'
                   ' AND w.host = $2 AND w.port = $3 FOR UPDATE SKIP LOCKED', p_table::regclass)
       INTO v_version USING p_worker_id, p_host, p_port;
    IF v_version IS NULL THEN
        RETURN 'gone or locked';
    END IF;
    IF concat_ws(' ', v_version, metafence.property_version(p_table::regclass, p_worker_id)) <> p_row_version THEN
        RETURN 'changed';
    END IF;
    EXECUTE format('DELETE FROM %s AS w WHERE w.worker_id = $1', p_table::regclass) USING p_worker_id;
    RETURN 'removed';
END
$body$;

-- Called once in the takeover to p_term, with the writers' lock. Each tombstone of the term before is decided
-- here, once; a failure costs that row alone and never the term.
CREATE OR REPLACE FUNCTION metafence.apply_tombstones(
    p_service text, p_term bigint, p_may_remove boolean, p_until timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v record;
    v_table text;
    v_oldest bigint;
    v_outcome text;
BEGIN
    IF NOT EXISTS (SELECT FROM metafence.tombstone AS x WHERE x.outcome IS NULL) THEN
        RETURN;
    END IF;
    PERFORM set_config('lock_timeout', '10ms', true);
    SELECT t.tgrelid::regclass INTO v_table FROM pg_trigger AS t
     WHERE t.tgrelid = metafence.worker_table() AND t.tgfoid = 'metafence.log_worker'::regproc
       AND t.tgenabled IN ('O', 'A');
    SELECT min(m.id) INTO v_oldest FROM metafence.mutation AS m;
    FOR v IN SELECT x.* FROM metafence.tombstone AS x
              WHERE x.service = p_service AND x.term < p_term AND x.outcome IS NULL
              ORDER BY x.term DESC, x.worker_id LIMIT 100 FOR UPDATE SKIP LOCKED LOOP
        v_outcome := CASE
            WHEN NOT p_may_remove THEN 'void: the new leader may have read the table already'
            WHEN v.term <> p_term - 1 THEN 'void: of an older term'
            WHEN v.expires_at <= clock_timestamp() THEN 'void: expired'
            WHEN v_table IS NULL THEN 'void: worker is not guarded'
            WHEN v_oldest > v.log_id + 1 THEN 'void: the mutation log does not reach back'
            WHEN EXISTS (SELECT FROM metafence.mutation AS m
                          WHERE m.worker_id = v.worker_id AND NOT pg_visible_in_snapshot(m.xid, v.snapshot))
                THEN 'void: the row was written since'
            WHEN clock_timestamp() >= p_until THEN 'void: no time left' END;
        IF v_outcome IS NULL THEN
            BEGIN
                v_outcome := metafence.remove_worker(v_table, v.worker_id, v.host, v.port, v.row_version);
            EXCEPTION WHEN OTHERS OR query_canceled THEN
                v_outcome := left('failed: ' || SQLERRM, 200);
            END;
        END IF;
        UPDATE metafence.tombstone AS x SET outcome = v_outcome, decided_at = clock_timestamp()
         WHERE x.service = v.service AND x.term = v.term AND x.worker_id = v.worker_id;
    END LOOP;
    -- The record of the last terms stays, not all of history.
    DELETE FROM metafence.tombstone AS x WHERE x.outcome IS NOT NULL AND x.term < p_term - 10;
EXCEPTION WHEN OTHERS OR query_canceled THEN
    RAISE LOG 'metafence: tombstones not applied: % (SQLSTATE %)', SQLERRM, SQLSTATE;
END
$body$;

-- Before DeleteWorkerNode: from now on only that row, as it was judged, can be deleted at its endpoint. Once
-- more while it is open: an earlier call got no answer and may still come, so that it stays for its term. False:
-- not this term, or no version.
CREATE OR REPLACE FUNCTION metafence.intend(
    p_service text, p_term bigint, p_worker_id integer, p_host text, p_port integer, p_row_version text)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
BEGIN
    PERFORM FROM metafence.term AS t WHERE t.service = p_service AND t.term = p_term FOR SHARE;
    IF NOT FOUND OR p_row_version IS NULL THEN
        RETURN false;
    END IF;
    -- Those of the last terms bind the late calls of their leaders.
    DELETE FROM metafence.intent AS i WHERE i.service = p_service AND i.term < p_term - 10;
    INSERT INTO metafence.intent AS i (worker_id, host, port, service, term, created_at, row_version)
    VALUES (p_worker_id, p_host, p_port, p_service, p_term, clock_timestamp(), p_row_version)
    ON CONFLICT (service, term, worker_id) DO UPDATE
       SET host = excluded.host, port = excluded.port, created_at = excluded.created_at,
           row_version = excluded.row_version, is_repeated = true;
    RETURN true;
END
$body$;

-- Of agents that don't know versions: the present one, but never a newer one for a call that may still come.
CREATE OR REPLACE FUNCTION metafence.intend(
    p_service text, p_term bigint, p_worker_id integer, p_host text, p_port integer) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
    SELECT metafence.intend(p_service, p_term, p_worker_id, p_host, p_port, coalesce(
        (SELECT i.row_version FROM metafence.intent AS i
          WHERE i.service = p_service AND i.term = p_term AND i.worker_id = p_worker_id),
        (SELECT w.row_version FROM metafence.workers() AS w WHERE w.worker_id = p_worker_id)))
$body$;

-- After the answer to the one call under it, or when none was sent. False: there is none, or an earlier call
-- may still come; it ends with its term then.
CREATE OR REPLACE FUNCTION metafence.withdraw(p_service text, p_term bigint, p_worker_id integer)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
BEGIN
    DELETE FROM metafence.intent AS i
     WHERE i.service = p_service AND i.term = p_term AND i.worker_id = p_worker_id AND NOT i.is_repeated;
    RETURN FOUND;
END
$body$;

-- Of agents that withdraw also what a call may still need: it ends with its term.
CREATE OR REPLACE FUNCTION metafence.withdraw(p_worker_id integer) RETURNS boolean
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT false
$body$;
