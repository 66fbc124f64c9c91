-- SPDX-License-Identifier: Apache-2.0
-- What the reconciler wants to know, and what it did. Only the agent beside the verified leader calls these.

CREATE OR REPLACE FUNCTION metafence.count_of(p_counter text) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT coalesce(max(s.last_value), 0) FROM pg_sequences AS s
     WHERE s.schemaname = 'metafence' AND s.sequencename = p_counter
$body$;

-- Since when the present leader can have read the table of workers: what the snapshot of its takeover shows
-- was there before. is_known: the log of changes was on, and nothing says that it had read it before.
CREATE TABLE IF NOT EXISTS metafence.takeover (
    service  text PRIMARY KEY,
    term     bigint NOT NULL,
    snapshot pg_snapshot NOT NULL,
    is_known boolean NOT NULL,
    unlogged bigint NOT NULL,           -- count_unlogged at that time
    untagged bigint                     -- count_untagged
);
DO $body$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS a
                    WHERE a.attrelid = 'metafence.takeover'::pg_catalog.regclass AND a.attname = 'untagged') THEN
        ALTER TABLE metafence.takeover ADD COLUMN untagged bigint;
        UPDATE metafence.takeover AS o SET untagged = metafence.count_of('count_untagged');
    END IF;
END
$body$;

-- What was done to a worker row or to the leader, by which evidence. Bounded: the newest 1000 or so.
CREATE TABLE IF NOT EXISTS metafence.reconcile (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL,
    term      bigint NOT NULL,
    action    text NOT NULL,           -- bury, unbury, delete, recover, restart
    worker_id bigint,
    endpoint  text,
    reason    text NOT NULL,
    evidence  text,
    outcome   text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Called once in each takeover, before anything is removed. Never raises: without its note the leader's memory
-- counts as not known.
CREATE OR REPLACE FUNCTION metafence.note_takeover(p_service text, p_term bigint, p_is_first boolean)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_is_logged boolean;
BEGIN
    v_is_logged := EXISTS (SELECT FROM metafence.setting AS s
                            WHERE s.name = 'guard' AND s.value IN ('observe', 'enforce'))
               AND EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgfoid = 'metafence.log_worker'::regproc
                                                         AND t.tgenabled IN ('O', 'A'));
    INSERT INTO metafence.takeover AS o (service, term, snapshot, is_known, unlogged, untagged)
    VALUES (p_service, p_term, pg_current_snapshot(), p_is_first AND v_is_logged,
            metafence.count_of('count_unlogged'), metafence.count_of('count_untagged'))
    ON CONFLICT (service) DO UPDATE
       SET term = excluded.term, snapshot = excluded.snapshot, is_known = excluded.is_known,
           unlogged = excluded.unlogged, untagged = excluded.untagged;
EXCEPTION WHEN OTHERS OR query_canceled THEN
    RAISE LOG 'metafence: takeover not noted: % (SQLSTATE %)', SQLERRM, SQLSTATE;
END
$body$;

-- While the guard is off nothing is logged: what the leader's memory holds is not known any more.
CREATE OR REPLACE FUNCTION metafence.on_mode() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    IF NEW.name = 'guard' AND NEW.value NOT IN ('observe', 'enforce') THEN
        UPDATE metafence.takeover AS o SET is_known = false WHERE o.is_known;
    END IF;
    RETURN NULL;
END
$body$;
DO $body$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS t
                    WHERE t.tgrelid = 'metafence.setting'::pg_catalog.regclass AND t.tgname = 'metafence_mode') THEN
        CREATE TRIGGER metafence_mode AFTER INSERT OR UPDATE ON metafence.setting
            FOR EACH ROW EXECUTE FUNCTION metafence.on_mode();
    END IF;
END
$body$;

-- One row: where we are. is_known: every change of a worker row since the takeover is in the log. Then, of
-- what others than the leader did since: rows that are there and that they have inserted, ids that they have
-- deleted and that are not back, and how many of those endpoints have a row with another id now; newest: the
-- last of these changes, by its id in the log, 0: none. ghosts: which of p_actors' ids have no row, but for
-- what the leader has deleted itself, which its actors show until they run elsewhere; NULL where none was asked
-- about. untagged_rows: how many of the unknown were written without a tag. untagged_writers: somebody without
-- a tag writes more than these rows (their own statements are two at most). Then, and where p_is_pooled says that
-- tags may get lost, the leader's own writes may be among them, and none without a tag is evidence. Cheap, for
-- every second: the rows are looked at only when there is something to look for.
DROP FUNCTION IF EXISTS metafence.reconcile_state(text, bigint[]); -- other columns
CREATE OR REPLACE FUNCTION metafence.reconcile_state(
    p_service text, p_actors bigint[], p_is_pooled boolean DEFAULT false,
    OUT term bigint, OUT owner_tag text, OUT mode text, OUT is_known boolean,
    OUT tombstones bigint, OUT intents bigint, OUT unknown_rows bigint, OUT lost_rows bigint,
    OUT reborn_rows bigint, OUT ghosts bigint, OUT newest bigint, OUT untagged_rows bigint,
    OUT untagged_writers boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $body$
DECLARE
    v_snapshot pg_snapshot;
    v_unlogged bigint;
    v_untagged bigint;
    v_is_doubtful boolean;
BEGIN
    SELECT t.term, t.owner_tag, o.snapshot, coalesce(o.is_known, false), o.unlogged, o.untagged
      INTO term, owner_tag, v_snapshot, is_known, v_unlogged, v_untagged
      FROM metafence.term AS t
      LEFT JOIN metafence.takeover AS o ON o.service = t.service AND o.term = t.term
     WHERE t.service = p_service;
    SELECT s.value INTO mode FROM metafence.setting AS s WHERE s.name = 'guard';
    SELECT count(*) INTO tombstones FROM metafence.tombstone AS x
     WHERE x.service = p_service AND x.term = reconcile_state.term AND x.outcome IS NULL;
    SELECT count(*) INTO intents FROM metafence.intent AS i
     WHERE i.service = p_service AND i.term = reconcile_state.term;
    -- The log is bounded: it has to reach back to what the takeover saw.
    SELECT is_known AND (count(*) = 0 OR min(m.id) = 1 OR bool_or(pg_visible_in_snapshot(m.xid, v_snapshot)))
      INTO is_known FROM metafence.mutation AS m;
    IF is_known THEN
        is_known := metafence.count_of('count_unlogged') = v_unlogged;
    END IF;
    v_untagged := metafence.count_of('count_untagged') - v_untagged;
    untagged_writers := coalesce(v_untagged > 0 AND v_untagged >
        (SELECT 2 * count(*) FROM metafence.mutation AS m
          WHERE m.tag IS NULL AND NOT pg_visible_in_snapshot(m.xid, v_snapshot)), false);
    v_is_doubtful := p_is_pooled OR untagged_writers;
    unknown_rows := 0;
    untagged_rows := 0;
    lost_rows := 0;
    reborn_rows := 0;
    newest := 0;
    IF v_snapshot IS NOT NULL AND owner_tag IS NOT NULL
       AND EXISTS (SELECT FROM metafence.mutation AS m
                    WHERE m.operation IN ('INSERT', 'DELETE')
                      AND m.tag IS DISTINCT FROM reconcile_state.owner_tag
                      AND (m.tag IS NOT NULL OR NOT v_is_doubtful)
                      AND NOT pg_visible_in_snapshot(m.xid, v_snapshot)) THEN
        -- The log as of the statement, the rows as of a moment later: what others wrote is never missed.
        WITH log AS MATERIALIZED (
            SELECT DISTINCT ON (m.worker_id, m.operation) m.id, m.operation, m.worker_id, m.old, m.tag
              FROM metafence.mutation AS m
             WHERE m.operation IN ('INSERT', 'DELETE') AND m.tag IS DISTINCT FROM reconcile_state.owner_tag
               AND (m.tag IS NOT NULL OR NOT v_is_doubtful)
               AND NOT pg_visible_in_snapshot(m.xid, v_snapshot)
             ORDER BY m.worker_id, m.operation, m.id DESC),
        present AS MATERIALIZED (SELECT w.worker_id, w.host, w.port FROM metafence.workers() AS w)
        SELECT (SELECT count(*) FROM log AS l WHERE l.operation = 'INSERT'
                   AND EXISTS (SELECT FROM present AS n WHERE n.worker_id = l.worker_id)),
               (SELECT count(*) FROM log AS l WHERE l.operation = 'INSERT' AND l.tag IS NULL
                   AND EXISTS (SELECT FROM present AS n WHERE n.worker_id = l.worker_id)),
               (SELECT count(*) FROM log AS l WHERE l.operation = 'DELETE'
                   AND NOT EXISTS (SELECT FROM present AS n WHERE n.worker_id = l.worker_id)),
               (SELECT count(*) FROM log AS l WHERE l.operation = 'DELETE'
                   AND NOT EXISTS (SELECT FROM present AS n WHERE n.worker_id = l.worker_id)
                   AND EXISTS (SELECT FROM present AS n WHERE n.host = l.old->>'host'
                                                      AND n.port::text = l.old->>'port')),
               (SELECT coalesce(max(l.id), 0) FROM log AS l)
          INTO unknown_rows, untagged_rows, lost_rows, reborn_rows, newest;
    END IF;
    IF p_actors IS NOT NULL THEN
        BEGIN
            SELECT count(DISTINCT a.id) INTO ghosts
              FROM unnest(p_actors) AS a(id) LEFT JOIN metafence.workers() AS w ON w.worker_id = a.id
             WHERE w.worker_id IS NULL
               AND NOT EXISTS (SELECT FROM metafence.mutation AS m
                                WHERE m.worker_id = a.id AND m.operation = 'DELETE'
                                  AND (m.tag = reconcile_state.owner_tag
                                       OR m.tag IS NULL AND v_is_doubtful));
        EXCEPTION WHEN undefined_table THEN
            NULL; -- a fresh cluster: no table yet, or no guard on it
        END;
    END IF;
END
$body$;

-- Changes of worker rows that bear on what the leader's memory holds: rows that it inserted itself, and all
-- that others did after its takeover, or that were not committed then. Read them after the rows: what is not
-- in here then was there before.
CREATE OR REPLACE FUNCTION metafence.reconcile_log(p_service text)
RETURNS TABLE (id bigint, operation text, worker_id bigint, is_own boolean, tag text, host text, port text,
               age_us bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT m.id, m.operation, m.worker_id, m.tag IS NOT DISTINCT FROM t.owner_tag, m.tag,
           coalesce(m.new, m.old)->>'host', coalesce(m.new, m.old)->>'port',
           (extract(epoch FROM clock_timestamp() - m.logged_at) * 1000000)::bigint
      FROM metafence.term AS t JOIN metafence.takeover AS o ON o.service = t.service AND o.term = t.term
      JOIN metafence.mutation AS m
        ON CASE WHEN m.tag IS NOT DISTINCT FROM t.owner_tag THEN m.operation = 'INSERT'
                ELSE NOT pg_visible_in_snapshot(m.xid, o.snapshot) END
     WHERE t.service = p_service AND t.owner_tag IS NOT NULL
     ORDER BY m.id
$body$;

-- Removals by the leader that are announced and may still be under way.
CREATE OR REPLACE FUNCTION metafence.intents(p_service text)
RETURNS TABLE (worker_id integer, host text, port integer)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT i.worker_id, i.host, i.port
      FROM metafence.intent AS i JOIN metafence.term AS t ON t.service = i.service AND t.term = i.term
     WHERE i.service = p_service
     ORDER BY i.worker_id
$body$;

-- Writes down what was done. False: this is not the term any more.
CREATE OR REPLACE FUNCTION metafence.note_reconcile(
    p_service text, p_term bigint, p_action text, p_worker_id bigint, p_endpoint text, p_reason text,
    p_evidence text, p_outcome text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
DECLARE
    v_id bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM metafence.term AS t WHERE t.service = p_service AND t.term = p_term) THEN
        RETURN false;
    END IF;
    INSERT INTO metafence.reconcile AS r (at, term, action, worker_id, endpoint, reason, evidence, outcome)
    VALUES (clock_timestamp(), p_term, left(p_action, 40), p_worker_id, left(p_endpoint, 300),
            left(p_reason, 200), left(p_evidence, 1000), left(p_outcome, 300))
    RETURNING r.id INTO v_id;
    IF v_id % 100 = 0 THEN
        DELETE FROM metafence.reconcile AS r
         WHERE r.id IN (SELECT x.id FROM metafence.reconcile AS x WHERE x.id <= v_id - 1000
                         ORDER BY x.id LIMIT 1000 FOR UPDATE SKIP LOCKED);
    END IF;
    RETURN true;
END
$body$;
