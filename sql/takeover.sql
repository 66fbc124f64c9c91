-- SPDX-License-Identifier: Apache-2.0
-- The takeover: the old owner's writers are waited for or ended, and the next term begins. Called by the trigger of
-- the election (schema.sql) within the statement that won.

-- Ends the sessions of the old owner, and those of other superseded tags that hold the writers' lock. One that
-- must not be ended keeps nobody else alive.
CREATE OR REPLACE FUNCTION metafence.end_writers(p_old_tag text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_pid integer;
BEGIN
    PERFORM pg_stat_clear_snapshot(); -- the meta's pool connects again at once: look anew each time
    FOR v_pid IN
        SELECT a.pid FROM pg_stat_activity AS a
         WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
           AND (a.application_name = p_old_tag
                OR EXISTS (SELECT FROM metafence.tag AS g JOIN pg_locks AS k ON k.pid = a.pid
                            WHERE g.tag = a.application_name AND g.superseded
                              AND k.locktype = 'advisory' AND k.granted
                              AND k.database = a.datid AND k.classid = 1296453187 AND k.objid = 1)) LOOP
        BEGIN
            PERFORM pg_terminate_backend(v_pid);
        EXCEPTION WHEN OTHERS OR query_canceled THEN
            RAISE LOG 'metafence: could not end session % of %: % (SQLSTATE %)', v_pid, p_old_tag, SQLERRM,
                SQLSTATE;
        END;
    END LOOP;
EXCEPTION WHEN OTHERS OR query_canceled THEN
    RAISE LOG 'metafence: could not look for the sessions of %: % (SQLSTATE %)', p_old_tag, SQLERRM, SQLSTATE;
END
$body$;

-- Behind the writers: a superseded session may still have rows locked, by a statement that is judged at its end, or by
-- SELECT FOR UPDATE. It can write nothing any more, but the new leader would wait for it, and whatever it waits for.
-- What comes to its end meanwhile waits for us, if we have the lock, and is refused; what does not is ended. One that
-- must not be ended keeps nobody else's rows locked. p_is_counted: this takeover has ended sessions before.
CREATE OR REPLACE FUNCTION metafence.end_lockers(
    p_old_tag text, p_until timestamptz, p_is_locked boolean, p_is_counted boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_until timestamptz := least(clock_timestamp() + interval '250 ms', p_until);
    v_pause double precision := 0.001;
    v_pids integer[];
    v_pid integer;
BEGIN
    LOOP
        BEGIN -- a cancel is spent by having struck: a last look then
            PERFORM pg_stat_clear_snapshot();
            WITH k AS MATERIALIZED (
                SELECT l.* FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
                 WHERE d.datname = current_database())
            SELECT array_agg(a.pid) INTO v_pids
              FROM pg_stat_activity AS a
             WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
               AND (a.application_name = p_old_tag
                    OR EXISTS (SELECT FROM metafence.tag AS g WHERE g.tag = a.application_name AND g.superseded))
               AND EXISTS (SELECT FROM k JOIN pg_trigger AS t ON t.tgrelid = k.relation
                            WHERE k.pid = a.pid AND k.locktype = 'relation' AND k.granted
                              AND k.mode NOT IN ('AccessShareLock', 'SIReadLock') -- of who only reads
                              AND t.tgfoid IN ('metafence.on_write'::regproc, 'metafence.guard'::regproc))
               AND NOT (p_is_locked AND EXISTS (
                            SELECT FROM k WHERE k.pid = a.pid AND k.locktype = 'advisory' AND NOT k.granted
                               AND k.classid = 1296453187 AND k.objid = 1));
            EXIT WHEN v_pids IS NULL OR clock_timestamp() >= v_until;
            PERFORM pg_sleep(v_pause);
            v_pause := least(2 * v_pause, 0.03);
        EXCEPTION WHEN query_canceled THEN
            v_until := clock_timestamp();
        END;
    END LOOP;
    FOREACH v_pid IN ARRAY coalesce(v_pids, '{}') LOOP
        BEGIN
            PERFORM pg_terminate_backend(v_pid);
            IF NOT p_is_counted THEN
                PERFORM nextval('metafence.count_ended');
                p_is_counted := true;
            END IF;
        EXCEPTION WHEN OTHERS OR query_canceled THEN
            RAISE LOG 'metafence: could not end session % of %: % (SQLSTATE %)', v_pid, p_old_tag, SQLERRM,
                SQLSTATE;
        END;
    END LOOP;
EXCEPTION WHEN OTHERS OR query_canceled THEN
    RAISE LOG 'metafence: could not end what % has under way: % (SQLSTATE %)', p_old_tag, SQLERRM, SQLSTATE;
END
$body$;

-- Waits until no guarded writer is under way, so that whatever the old owner wrote is committed, undone or
-- refused. Writers take this lock shared; a request that waits here lets none of them by. After 300 ms it
-- ends the sessions that are in the way and waits again; once more for those that slipped in between.
CREATE OR REPLACE FUNCTION metafence.close_term(p_old_tag text, p_mode text, p_until timestamptz)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_wait_ms integer;
    v_is_locked boolean;
    v_is_counted boolean := false;
BEGIN
    PERFORM nextval('metafence.count_takeover');
    v_is_locked := pg_try_advisory_xact_lock(1296453187, 1);
    FOREACH v_wait_ms IN ARRAY ARRAY[300, 100, 50] LOOP
        EXIT WHEN v_is_locked;
        IF v_wait_ms < 300 THEN
            EXIT WHEN p_mode <> 'enforce';
            PERFORM metafence.end_writers(p_old_tag);
        END IF;
        BEGIN
            PERFORM set_config('lock_timeout', greatest(1, least(v_wait_ms,
                extract(epoch FROM p_until - clock_timestamp()) * 1000))::int::text, true);
            PERFORM pg_advisory_xact_lock(1296453187, 1);
            IF v_wait_ms < 300 THEN
                PERFORM nextval('metafence.count_ended');
                v_is_counted := true;
            END IF;
            v_is_locked := true; -- last: what fails before takes the lock with it
        EXCEPTION WHEN lock_not_available OR deadlock_detected OR query_canceled THEN
            NULL;
        END;
    END LOOP;
    IF NOT v_is_locked THEN
        PERFORM nextval('metafence.count_takeover_without_lock');
        RAISE LOG 'metafence: the term moves although a writer is still under way';
    END IF;
    IF p_mode = 'enforce' THEN
        PERFORM metafence.end_lockers(p_old_tag, p_until, v_is_locked, v_is_counted);
    END IF;
END
$body$;
DROP FUNCTION IF EXISTS metafence.end_lockers(text, timestamptz); -- of before

-- The next term begins. Called with the row of election_leader locked, so calls for a service queue.
-- p_until: when waiting has to end. p_is_first: the very statement by which a fresh incarnation won, before
-- it can have read any metadata.
CREATE OR REPLACE FUNCTION metafence.move_term(
    p_service text, p_id text, p_tag text, p_until timestamptz, p_is_first boolean)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_mode text;
    v_old_tag text;
    v_term bigint;
    v_system_id text;
    v_timeline text;
BEGIN
    SELECT i.system_id, i.timeline INTO v_system_id, v_timeline FROM metafence.identity() AS i;
    SELECT s.value INTO v_mode FROM metafence.setting AS s WHERE s.name = 'guard';
    SELECT t.owner_tag INTO v_old_tag FROM metafence.term AS t WHERE t.service = p_service;
    IF v_mode IN ('observe', 'enforce') AND v_old_tag IS DISTINCT FROM p_tag AND v_old_tag IS NOT NULL THEN
        PERFORM metafence.close_term(v_old_tag, v_mode, p_until);
        -- What is left may only wait for DDL, and all waits together have to stay below 500 ms.
        PERFORM set_config('lock_timeout', '10ms', true);
    END IF;
    INSERT INTO metafence.term AS t (service, term, owner_id, owner_tag, system_id, timeline, since)
    VALUES (p_service, 1, p_id, p_tag, v_system_id, v_timeline, clock_timestamp())
    ON CONFLICT (service) DO UPDATE
       SET term = t.term + 1, owner_id = excluded.owner_id, owner_tag = excluded.owner_tag,
           system_id = excluded.system_id, timeline = excluded.timeline, since = excluded.since
    RETURNING t.term INTO v_term;
    -- The owner's heartbeats were not noted one by one: it was alive until about now, and the 90 days
    -- below count from here.
    UPDATE metafence.tag AS g SET superseded = true, last_seen_heartbeat = now()
     WHERE g.tag = v_old_tag AND v_old_tag IS DISTINCT FROM p_tag;
    -- Behind that update: whoever sees the move also sees that row being written.
    PERFORM nextval('metafence.moves');
    UPDATE metafence.tag AS g SET owned_term = v_term WHERE g.tag = p_tag;
    -- A superseded tag has to stay known while its process could still be around: 90 days, and as long as
    -- a session has it.
    DELETE FROM metafence.tag AS g
     WHERE g.superseded AND g.first_seen < now() - interval '90 days'
       AND g.last_seen_heartbeat < now() - interval '90 days'
       AND NOT EXISTS (SELECT FROM pg_stat_activity AS a
                        WHERE a.datname = current_database() AND a.application_name = g.tag);
    DELETE FROM metafence.death AS d WHERE d.confirmed_at < now() - interval '90 days';
    PERFORM metafence.note_takeover(p_service, v_term, p_is_first AND p_tag IS NOT NULL);
    PERFORM metafence.note_recovery(p_service, v_term, p_tag);
    IF v_mode IN ('observe', 'enforce') THEN
        PERFORM metafence.apply_tombstones(p_service, v_term, p_is_first AND p_tag IS NOT NULL, p_until);
    END IF;
    -- A full queue would fail the COMMIT of the campaign, where nothing can catch it any more.
    IF pg_notification_queue_usage() < 0.9 THEN
        PERFORM pg_notify('metafence', left(concat_ws(' ', v_term, coalesce(p_tag, '-'), p_id), 1000));
    END IF;
END
$body$;
DROP FUNCTION IF EXISTS metafence.move_term(text, text, text); -- of version 1
