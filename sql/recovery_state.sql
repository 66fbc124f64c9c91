-- SPDX-License-Identifier: Apache-2.0
-- What the leader's agent asks about a recovery and tells the gate. Nobody else calls these.

-- Of the deaths of all who owned a term before that one, the weakest knowledge. Implied: an agent had ensured that
-- the incarnation is dead so long after its last renewal, which was not later than the loss of its term. Who lost it
-- more than ten minutes ago is as good as dead where a later leader has recovered: all compute nodes have left it.
CREATE OR REPLACE FUNCTION metafence.predecessor(p_service text, p_term bigint) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
    WITH owner AS (
        SELECT g.tag, g.owned_term AS term, g.last_seen_heartbeat AS lost_at FROM metafence.tag AS g
         WHERE g.owned_term < p_term
        UNION ALL
        SELECT NULL, r.term, (SELECT min(x.opened_at) FROM metafence.recovery AS x
                               WHERE x.service = p_service AND x.term > r.term)
          FROM metafence.recovery AS r
         WHERE r.service = p_service AND r.term < p_term AND r.tag IS NULL),
    known AS (
        SELECT CASE
            WHEN EXISTS (SELECT FROM metafence.death AS d WHERE d.incarnation_tag = o.tag) THEN 2
            WHEN EXISTS (SELECT FROM metafence.gate AS g
                          WHERE g.service = p_service AND g.agent_tag = o.tag
                            AND clock_timestamp() > o.lost_at + g.dead_after_ms * interval '1 ms') THEN 1
            WHEN o.lost_at < clock_timestamp() - interval '10 minutes' AND EXISTS (
                     SELECT FROM metafence.recovery AS r
                      WHERE r.service = p_service AND r.term > o.term AND r.ended = 'committed') THEN 1
            ELSE 0 END AS rank
          FROM owner AS o)
    SELECT CASE min(k.rank) WHEN 0 THEN NULL WHEN 1 THEN 'implied' ELSE 'confirmed' END FROM known AS k
$body$;

-- One row: where we are. snapshot: what the database showed; with an acknowledgement it says when its node was
-- asked. attempt: the number of the newest. is_waiting: a removal is in the gate at this moment; is_refused: the
-- newest attempt ended there. hold_left_ms: until maxHold opens the gate; NULL where nothing refreshes it.
-- live, missing: compute nodes, and those of them without an acknowledgement that counts (0 where no global
-- recovery is open); creating, live and missing are NULL where the catalog can't be read. round: how often what was
-- acknowledged has been used up. may_build: actors may be under construction that no statistics show. predecessor:
-- what is known of the deaths of all who owned a term before, by the weakest: "confirmed", "implied", or NULL,
-- nothing. Cheap, for every second, and more often while a recovery is open.
DO $body$
BEGIN
    -- With other columns it is another function; the same one is left to those who are calling it.
    IF EXISTS (SELECT FROM pg_catalog.pg_proc AS p
                WHERE p.oid = pg_catalog.to_regprocedure('metafence.recovery_state(text)')
                  AND p.proargnames[pg_catalog.array_length(p.proargnames, 1)] <> 'predecessor') THEN
        DROP FUNCTION metafence.recovery_state(text);
    END IF;
END
$body$;
CREATE OR REPLACE FUNCTION metafence.recovery_state(
    p_service text, OUT term bigint, OUT owner_tag text, OUT mode text, OUT version text,
    OUT is_verified boolean, OUT snapshot text, OUT recovery_id bigint, OUT joined integer, OUT attempt bigint,
    OUT refused bigint, OUT age_ms bigint, OUT hold_left_ms bigint, OUT policy text, OUT is_gate_fresh boolean,
    OUT is_waiting boolean, OUT is_refused boolean, OUT refused_ago_ms bigint, OUT dropped bigint,
    OUT dropped_age_ms bigint, OUT creating bigint, OUT live bigint, OUT missing bigint,
    OUT has_database_recovery boolean, OUT is_pooled boolean, OUT round integer, OUT may_build boolean,
    OUT predecessor text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $body$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_held_from timestamptz;
    v_refused_attempt bigint;
    v_refused_at bigint;
BEGIN
    snapshot := pg_current_snapshot()::text;
    SELECT t.term, t.owner_tag INTO term, owner_tag FROM metafence.term AS t WHERE t.service = p_service;
    SELECT s.value INTO mode FROM metafence.setting AS s WHERE s.name = 'recovery';
    SELECT c.version, c.is_verified INTO version, is_verified FROM metafence.catalog_version() AS c;
    is_pooled := metafence.is_pooled();
    SELECT r.id, r.joined, r.attempt, r.refused, (extract(epoch FROM v_now - r.opened_at) * 1000)::bigint,
           r.held_from, r.round
      INTO recovery_id, joined, attempt, refused, age_ms, v_held_from, round
      FROM metafence.recovery AS r
     WHERE r.service = p_service AND r.term = recovery_state.term AND r.scope = 'global' AND r.closed_at IS NULL;
    has_database_recovery := EXISTS (
        SELECT FROM metafence.recovery AS r WHERE r.service = p_service AND r.term = recovery_state.term
           AND r.scope = 'database' AND r.closed_at IS NULL);
    SELECT g.policy, g.expires_at > v_now,
           greatest(0, g.max_hold_ms - (extract(epoch FROM v_now - v_held_from) * 1000)::bigint)
      INTO policy, is_gate_fresh, hold_left_ms
      FROM metafence.gate AS g WHERE g.service = p_service AND g.agent_tag = recovery_state.owner_tag;
    is_gate_fresh := coalesce(is_gate_fresh, false);
    is_waiting := false;
    is_refused := false;
    missing := 0;
    IF recovery_id IS NOT NULL THEN
        is_waiting := EXISTS (
            SELECT FROM pg_locks AS k
             WHERE k.locktype = 'advisory' AND k.classid = 1296453187 AND k.objid = 2 AND k.objsubid = 2 AND k.granted
               AND k.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()));
        SELECT a.last_value, t.last_value INTO v_refused_attempt, v_refused_at
          FROM metafence.refused_attempt AS a, metafence.refused_at AS t;
        is_refused := coalesce(v_refused_attempt = attempt, false);
        IF is_refused THEN
            refused := refused + 1;
        END IF;
        IF refused > 0 THEN
            refused_ago_ms := greatest(0, (extract(epoch FROM v_now) * 1000)::bigint - v_refused_at);
        END IF;
    END IF;
    SELECT count(*), (extract(epoch FROM v_now - min(d.dropped_at)) * 1000)::bigint INTO dropped, dropped_age_ms
      FROM metafence.dropped AS d;
    predecessor := metafence.predecessor(p_service, term);
    may_build := EXISTS (SELECT FROM metafence.dropped AS d WHERE d.was_created IS NOT TRUE)
        OR (SELECT r.ended FROM metafence.recovery AS r WHERE r.service = p_service AND r.scope = 'global'
               AND r.closed_at IS NOT NULL ORDER BY r.id DESC LIMIT 1) IS DISTINCT FROM 'committed';
    BEGIN
        SELECT count(*) INTO creating FROM metafence.creating_jobs(metafence.meta_schema());
    EXCEPTION WHEN undefined_table OR undefined_column OR undefined_function THEN
        NULL;
    END;
    BEGIN
        SELECT count(*) INTO live FROM metafence.workers() AS w
         WHERE w.worker_type = 'COMPUTE_NODE' AND w.status = 'RUNNING';
        IF recovery_id IS NOT NULL THEN
            -- Whether one that says "none" counts depends on what is removed: here it does.
            SELECT count(*) INTO missing FROM metafence.missing_workers(recovery_id, '{}');
        END IF;
    EXCEPTION WHEN undefined_table OR undefined_column OR undefined_function THEN
        live := NULL;
        missing := NULL;
    END;
END
$body$;

-- The lists behind it. worker: id, host, port, status; how: the acknowledgements that count in the open
-- recovery, "none reset". dropped: id is the fragment, of a job with that name, and its state tables "1 2".
-- creating: id is the job. Ask after recovery_state: all that its snapshot shows is in here.
CREATE OR REPLACE FUNCTION metafence.recovery_rows(p_service text)
RETURNS TABLE (kind text, id bigint, job_id bigint, name text, host text, port integer, status text, how text,
               tables text, age_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
AS $body$
DECLARE
    v_recovery bigint;
    v_consumed xid8;
BEGIN
    SELECT r.id, r.consumed INTO v_recovery, v_consumed
      FROM metafence.recovery AS r JOIN metafence.term AS t ON t.service = r.service AND t.term = r.term
     WHERE r.service = p_service AND r.scope = 'global' AND r.closed_at IS NULL;
    BEGIN
        RETURN QUERY
        SELECT 'worker', w.worker_id::bigint, NULL::bigint, NULL::text, w.host, w.port, w.status,
               (SELECT string_agg(a.how, ' ' ORDER BY a.how) FROM metafence.acknowledgement AS a
                 WHERE a.recovery_id = v_recovery AND a.how <> 'asked' AND a.worker_id = w.worker_id AND a.host = w.host
                   AND a.port = w.port
                   AND (v_consumed IS NULL OR pg_visible_in_snapshot(v_consumed, a.snapshot))),
               NULL::text, NULL::bigint
          FROM metafence.workers() AS w WHERE w.worker_type = 'COMPUTE_NODE' ORDER BY w.worker_id;
    EXCEPTION WHEN undefined_table OR undefined_column OR undefined_function THEN
        NULL; -- a fresh cluster; recovery_state says so
    END;
    RETURN QUERY
    SELECT 'dropped', d.fragment_id, d.job_id, d.name, NULL::text, NULL::integer, NULL::text, NULL::text,
           array_to_string(d.table_ids[:100], ' '),
           (extract(epoch FROM clock_timestamp() - d.dropped_at) * 1000)::bigint
      FROM metafence.dropped AS d ORDER BY d.id;
    BEGIN
        RETURN QUERY
        SELECT 'creating', j.job_id, j.job_id, j.name, NULL::text, NULL::integer, j.status, NULL::text, NULL::text,
               j.age_ms
          FROM metafence.creating_jobs(metafence.meta_schema()) AS j;
    EXCEPTION WHEN undefined_table OR undefined_column OR undefined_function THEN
        NULL;
    END;
END
$body$;

-- The agent beside that incarnation is there, and this is how it wants the gate. p_dead_after_ms: so long after its
-- last renewal the incarnation is dead, whatever happens; NULL: nobody ensures that. False: it has lost its term.
CREATE OR REPLACE FUNCTION metafence.refresh_gate(
    p_service text, p_agent_tag text, p_policy text, p_max_hold_ms bigint, p_lifetime_ms bigint,
    p_dead_after_ms bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
BEGIN
    IF EXISTS (SELECT FROM metafence.tag AS g WHERE g.tag = p_agent_tag AND g.superseded) THEN
        RETURN false;
    END IF;
    INSERT INTO metafence.gate AS g
           (service, agent_tag, refreshed_at, expires_at, policy, max_hold_ms, dead_after_ms)
    VALUES (p_service, p_agent_tag, clock_timestamp(),
            clock_timestamp() + least(p_lifetime_ms, 60000) * interval '1 ms', p_policy,
            greatest(0, least(p_max_hold_ms, 3600000)), p_dead_after_ms)
    ON CONFLICT (service, agent_tag) DO UPDATE
       SET refreshed_at = excluded.refreshed_at, expires_at = excluded.expires_at, policy = excluded.policy,
           max_hold_ms = excluded.max_hold_ms, dead_after_ms = excluded.dead_after_ms;
    -- What is left of incarnations that owned nothing, and of those that nobody remembers.
    DELETE FROM metafence.gate AS g
     WHERE g.refreshed_at < clock_timestamp() - interval '10 minutes'
       AND NOT EXISTS (SELECT FROM metafence.tag AS t WHERE t.tag = g.agent_tag AND t.owned_term IS NOT NULL);
    RETURN true;
END
$body$;

-- A compute node runs no actor any more. p_snapshot: recovery_state's, from before the node was asked; without
-- it the evidence is of no known time, and counts only until the recovery goes on. False: that recovery is not
-- open any more, or of an older term.
CREATE OR REPLACE FUNCTION metafence.acknowledge(
    p_recovery bigint, p_worker_id integer, p_host text, p_port integer, p_how text, p_evidence jsonb,
    p_snapshot pg_snapshot) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
BEGIN
    -- Term first: gate.sql.
    PERFORM FROM metafence.recovery AS r JOIN metafence.term AS t ON t.service = r.service AND t.term = r.term
      WHERE r.id = p_recovery AND r.scope = 'global' AND r.closed_at IS NULL FOR SHARE OF t;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO metafence.acknowledgement AS a
           (recovery_id, worker_id, host, port, how, evidence, snapshot, at)
    VALUES (p_recovery, p_worker_id, p_host, p_port, p_how, p_evidence, p_snapshot, clock_timestamp())
    ON CONFLICT (recovery_id, worker_id, how) DO UPDATE
       SET host = excluded.host, port = excluded.port, evidence = excluded.evidence,
           snapshot = excluded.snapshot, at = excluded.at;
    RETURN true;
END
$body$;

-- The recovery is over without a commit that would show it: the leader says that it runs. p_attempt: the newest
-- one that was known before the leader was asked. False: it is closed, or another attempt has begun.
CREATE OR REPLACE FUNCTION metafence.end_recovery(p_recovery bigint, p_attempt bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $body$
BEGIN
    PERFORM FROM metafence.recovery AS r
      WHERE r.id = p_recovery AND r.closed_at IS NULL AND r.attempt IS NOT DISTINCT FROM p_attempt
        FOR UPDATE;
    RETURN FOUND AND metafence.close_recovery(p_recovery, 'running');
END
$body$;

-- The newest removals that met an open recovery and passed, newest first.
CREATE OR REPLACE FUNCTION metafence.purged(p_limit integer)
RETURNS TABLE (id bigint, age_ms bigint, recovery_id bigint, term bigint, outcome text, table_count integer,
               tables text, missing text, held_ms bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT p.id, (extract(epoch FROM clock_timestamp() - p.at) * 1000)::bigint, p.recovery_id, p.term, p.outcome,
           p.table_count, array_to_string(p.table_ids, ' '), p.missing, p.held_ms
      FROM metafence.purge AS p ORDER BY p.id DESC LIMIT p_limit
$body$;
