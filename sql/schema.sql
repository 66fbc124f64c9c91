-- SPDX-License-Identifier: Apache-2.0
-- metafence schema, version 2: who owns which term of the election, told apart by session tag.
-- Idempotent: running it again changes nothing. It touches no table of RisingWave; trigger.sql and
-- metafence.cover (cover.sql) do.
-- The rule of everything here: bookkeeping that fails leaves the election as it would be without us.

CREATE SCHEMA IF NOT EXISTS metafence;
COMMENT ON SCHEMA metafence IS 'metafence: terms of the meta election. Remove with: metafence sql uninstall';

CREATE TABLE IF NOT EXISTS metafence.setting (
    name  text PRIMARY KEY,
    value text NOT NULL,
    -- A mode that nobody knows would be no guard, silently.
    CONSTRAINT setting_guard_mode CHECK (name <> 'guard' OR value IN ('off', 'observe', 'enforce'))
);

-- One row a service: the present term. It moves, it never goes away.
CREATE TABLE IF NOT EXISTS metafence.term (
    service   text PRIMARY KEY,
    term      bigint NOT NULL,
    owner_id  text,
    owner_tag text,                    -- NULL: an untagged session, or a tag that must not own again
    system_id text,                    -- of the database that granted the term
    timeline  text,                    -- first 8 hex digits of its WAL file name
    since     timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Every incarnation of a meta that ever renewed or won the row. seq orders them without a clock.
CREATE TABLE IF NOT EXISTS metafence.tag (
    tag                 text PRIMARY KEY,
    seq                 bigint GENERATED ALWAYS AS IDENTITY,
    id                  text,
    first_seen          timestamptz NOT NULL,
    last_seen_heartbeat timestamptz,
    owned_term          bigint,
    superseded          boolean NOT NULL DEFAULT false,
    backend             text           -- the session that registered it: pid and start
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
-- Who wrote the heartbeat that is in the row now. Updated once a second: no index on what changes and
-- room on the page, so that each update is HOT and the next one reuses the space without a vacuum.
CREATE TABLE IF NOT EXISTS metafence.renewal (
    service   text PRIMARY KEY,
    tag       text,
    heartbeat timestamptz
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Incarnations whose death was proven, so that peers can build on it.
CREATE TABLE IF NOT EXISTS metafence.death (
    incarnation_tag text PRIMARY KEY,
    id              text,
    term            bigint,
    method          text NOT NULL,
    reason          text NOT NULL,
    confirmed_at    timestamptz NOT NULL
);

-- What version 2 added to tables of version 1. Writers hold a lock on both until they commit: ALTER only
-- when there is something to alter.
DO $body$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_constraint AS c
                    WHERE c.conrelid = 'metafence.setting'::pg_catalog.regclass
                      AND c.conname = 'setting_guard_mode') THEN
        ALTER TABLE metafence.setting ADD CONSTRAINT setting_guard_mode
            CHECK (name <> 'guard' OR value IN ('off', 'observe', 'enforce'));
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS a
                    WHERE a.attrelid = 'metafence.tag'::pg_catalog.regclass AND a.attname = 'backend') THEN
        ALTER TABLE metafence.tag ADD COLUMN backend text;
    END IF;
END
$body$;

-- The session tag that metafence-run gives its child by PGAPPNAME, or NULL for every other session.
-- plpgsql, because a function in SQL that can't be inlined is planned at each call.
CREATE OR REPLACE FUNCTION metafence.session_tag() RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    IF current_setting('application_name') ~ '^metafence:[^:]{8}:[0-9a-f]{16}$' THEN
        RETURN current_setting('application_name');
    END IF;
    RETURN NULL;
END
$body$;

-- Which database this is. NULL where the provider hides it: no identity is better than no term.
CREATE OR REPLACE FUNCTION metafence.identity(OUT system_id text, OUT timeline text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    SELECT c.system_identifier::text, left(pg_walfile_name(pg_current_wal_lsn()), 8)
      INTO system_id, timeline FROM pg_control_system() AS c;
EXCEPTION WHEN OTHERS THEN
    system_id := NULL;
    timeline := NULL;
END
$body$;

-- Counters are sequences: what they count is not undone by the refusal that follows, and nobody ever waits
-- for a counter. After a crash of Postgres one may be up to 32 ahead.
CREATE SEQUENCE IF NOT EXISTS metafence.count_refused;      -- writes that enforce refused
CREATE SEQUENCE IF NOT EXISTS metafence.count_observed;     -- rows that observe would have refused
CREATE SEQUENCE IF NOT EXISTS metafence.count_held;         -- campaigns of superseded tags that got OLD back
CREATE SEQUENCE IF NOT EXISTS metafence.count_untagged;     -- guarded statements of sessions without a tag
CREATE SEQUENCE IF NOT EXISTS metafence.count_not_owner;    -- of tags that own no term and lost none
CREATE SEQUENCE IF NOT EXISTS metafence.count_unreadable;   -- let pass because our own tables failed
CREATE SEQUENCE IF NOT EXISTS metafence.count_unlocked;     -- let pass because the writers' lock was not to be had
CREATE SEQUENCE IF NOT EXISTS metafence.count_unrecorded;   -- campaigns whose bookkeeping failed
CREATE SEQUENCE IF NOT EXISTS metafence.count_unlogged;     -- worker rows that the mutation log missed; TRUNCATEs
CREATE SEQUENCE IF NOT EXISTS metafence.count_takeover;     -- terms that superseded a tag under the guard
CREATE SEQUENCE IF NOT EXISTS metafence.count_takeover_without_lock;
CREATE SEQUENCE IF NOT EXISTS metafence.count_ended;        -- takeovers that ended sessions
CREATE SEQUENCE IF NOT EXISTS metafence.count_intended;     -- deletes refused for an intent

-- The BEFORE trigger of election_leader: in enforce a superseded tag can't hold the lease, or it would renew
-- for ever and be refused everything. An update gives OLD back. A proposed row becomes the owner's, long
-- expired: inserted, it shows the loser the other id, and the next candidate wins at once; met by a row
-- that is there, it comes back here as an update. That one is known by its heartbeat alone, so that no
-- failure in between can expire a live lease. Invariants as for on_campaign.
CREATE OR REPLACE FUNCTION metafence.on_hold() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
AS $body$
DECLARE
    v_tag text;
    v_owner_id text;
BEGIN
    IF pg_typeof(NEW.service) NOT IN ('varchar'::regtype, 'text'::regtype)
       OR pg_typeof(NEW.id) NOT IN ('varchar'::regtype, 'text'::regtype)
       OR pg_typeof(NEW.last_heartbeat) <> 'timestamptz'::regtype THEN
        RETURN NEW; -- on_campaign says so
    END IF;
    IF TG_OP = 'UPDATE' THEN
        IF NEW.last_heartbeat = '1970-01-01 00:00:00.000042+00' THEN
            RETURN OLD;
        END IF;
        IF NEW.id IS NOT DISTINCT FROM OLD.id
           AND NEW.last_heartbeat IS NOT DISTINCT FROM OLD.last_heartbeat THEN
            RETURN NEW;
        END IF;
    END IF;
    v_tag := metafence.session_tag();
    IF v_tag IS NULL OR NOT EXISTS (
           SELECT FROM metafence.setting AS s JOIN metafence.tag AS g ON g.tag = v_tag AND g.superseded
            WHERE s.name = 'guard' AND s.value = 'enforce') THEN
        RETURN NEW;
    END IF;
    PERFORM nextval('metafence.count_held');
    IF TG_OP = 'UPDATE' THEN
        RETURN OLD;
    END IF;
    SELECT t.owner_id INTO v_owner_id FROM metafence.term AS t WHERE t.service = NEW.service;
    NEW.last_heartbeat := '1970-01-01 00:00:00.000042+00';
    IF v_owner_id IS NOT NULL THEN
        NEW.id := v_owner_id;
    END IF;
    RETURN NEW;
EXCEPTION WHEN OTHERS OR query_canceled THEN
    RETURN NEW;
END
$body$;

-- The term trigger of election_leader. Invariants: it never raises, never returns NULL, never waits
-- longer than lock_timeout below (500 ms in all where the term moves), and acts only when id or
-- last_heartbeat really changed (each follower rewrites the row every second). Only scalar variables: a
-- %ROWTYPE of a dropped table would fail when the function is compiled, outside the block that catches.
CREATE OR REPLACE FUNCTION metafence.on_campaign() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
AS $body$
DECLARE
    v_until timestamptz;
    v_tag text;
    v_known boolean := false;
    v_is_first boolean := false;
    v_seq bigint;
    v_owned bigint;
    v_superseded boolean := false;
    v_term bigint;
    v_owner_id text;
    v_owner_tag text;
    v_owner_seq bigint;
    v_minute text;
BEGIN
    -- First, and by nothing that could cast: a cast between other types is a function of the table's owner,
    -- which would run with the rights of ours.
    IF pg_typeof(NEW.service) NOT IN ('varchar'::regtype, 'text'::regtype)
       OR pg_typeof(NEW.id) NOT IN ('varchar'::regtype, 'text'::regtype)
       OR pg_typeof(NEW.last_heartbeat) <> 'timestamptz'::regtype THEN
        RAISE EXCEPTION USING ERRCODE = 'datatype_mismatch',
            MESSAGE = 'service and id must be varchar or text, last_heartbeat timestamptz';
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.id IS NOT DISTINCT FROM OLD.id
       AND NEW.last_heartbeat IS NOT DISTINCT FROM OLD.last_heartbeat THEN
        RETURN NEW;
    END IF;
    IF NEW.last_heartbeat = '1970-01-01 00:00:00.000042+00' THEN
        RETURN NEW; -- the row that on_hold made: nobody won anything
    END IF;
    v_until := clock_timestamp() + interval '450 ms';

    v_tag := metafence.session_tag();
    SELECT t.term, t.owner_id, t.owner_tag, g.seq INTO v_term, v_owner_id, v_owner_tag, v_owner_seq
      FROM metafence.term AS t LEFT JOIN metafence.tag AS g ON g.tag = t.owner_tag
     WHERE t.service = NEW.service;

    IF v_tag IS NOT NULL THEN
        SELECT true, g.seq, g.owned_term, g.superseded INTO v_known, v_seq, v_owned, v_superseded
          FROM metafence.tag AS g WHERE g.tag = v_tag;
        IF v_known IS NOT TRUE THEN
            -- Is this the statement by which it won? With the id unchanged it is, if the heartbeat before
            -- this one was noted as somebody else's.
            IF TG_OP = 'INSERT' OR NEW.id IS DISTINCT FROM OLD.id THEN
                v_is_first := true;
            ELSE
                v_is_first := EXISTS (
                    SELECT FROM metafence.renewal AS r
                     WHERE r.service = NEW.service AND r.heartbeat = OLD.last_heartbeat AND r.tag <> v_tag);
            END IF;
            INSERT INTO metafence.tag AS g (tag, id, first_seen, last_seen_heartbeat, backend)
            VALUES (v_tag, NEW.id, clock_timestamp(), NEW.last_heartbeat,
                    (SELECT concat_ws(' ', a.pid, a.backend_start)
                       FROM pg_stat_get_activity(pg_backend_pid()) AS a))
            RETURNING g.seq, g.owned_term, g.superseded INTO v_seq, v_owned, v_superseded;
        ELSIF v_tag IS DISTINCT FROM v_owner_tag THEN
            -- The owner's own heartbeats are in metafence.renewal; the others' are remembered here.
            UPDATE metafence.tag AS g SET last_seen_heartbeat = NEW.last_heartbeat WHERE g.tag = v_tag;
        END IF;
        UPDATE metafence.renewal AS r SET tag = v_tag, heartbeat = NEW.last_heartbeat
         WHERE r.service = NEW.service;
        IF NOT FOUND THEN
            INSERT INTO metafence.renewal (service, tag, heartbeat)
            VALUES (NEW.service, v_tag, NEW.last_heartbeat) ON CONFLICT DO NOTHING;
        END IF;
    END IF;

    -- Ids are compared as the metas do it: ASCII, without case. A row that differs from the term also
    -- heals a move whose bookkeeping failed.
    IF v_term IS NULL
       OR lower(v_owner_id COLLATE "C") IS DISTINCT FROM lower(NEW.id COLLATE "C") THEN
        PERFORM metafence.move_term(NEW.service, NEW.id, CASE WHEN NOT v_superseded THEN v_tag END,
                                    v_until, v_is_first);
    ELSIF v_tag IS NOT NULL AND v_tag IS DISTINCT FROM v_owner_tag
          AND NOT v_superseded AND v_owned IS NULL
          AND v_seq > coalesce(v_owner_seq, 0) THEN
        -- Same id, newer incarnation: a restart inside the lease, or the younger of two twins.
        PERFORM metafence.move_term(NEW.service, NEW.id, v_tag, v_until, v_is_first);
    END IF;
    RETURN NEW;
EXCEPTION WHEN OTHERS OR query_canceled THEN
    BEGIN
        PERFORM nextval('metafence.count_unrecorded');
    EXCEPTION WHEN OTHERS OR query_canceled THEN
        NULL;
    END;
    -- Say it once a minute and session: the row is written every second.
    v_minute := to_char(clock_timestamp(), 'YYYYMMDDHH24MI');
    IF current_setting('metafence.logged', true) IS DISTINCT FROM v_minute THEN
        PERFORM set_config('metafence.logged', v_minute, false);
        RAISE LOG 'metafence: term not recorded for this campaign: % (SQLSTATE %)', SQLERRM, SQLSTATE;
    END IF;
    RETURN NEW;
END
$body$;

-- Ends the sessions of one incarnation in this database and says how many it still saw: 0 means gone, a
-- call later, and then no statement of it can commit any more. application_name is shown to everybody, so
-- nothing is hidden; a session that must not be ended by the owner of this function raises 42501.
CREATE OR REPLACE FUNCTION metafence.end_sessions(p_tag text) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_count integer;
BEGIN
    IF p_tag IS NULL OR p_tag !~ '^metafence:[^:]{8}:[0-9a-f]{16}$' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'metafence.end_sessions: not a session tag (expected metafence:<8>:<16 hex>)';
    END IF;
    SELECT count(pg_terminate_backend(a.pid)) INTO v_count
      FROM pg_stat_activity AS a
     WHERE a.datname = current_database() AND a.application_name = p_tag
       AND a.pid <> pg_backend_pid();
    RETURN v_count;
END
$body$;

-- Writes down a proven death; a second report of the same one changes nothing. Returns whether it was new.
CREATE OR REPLACE FUNCTION metafence.record_death(p_tag text, p_id text, p_method text, p_reason text)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    INSERT INTO metafence.death (incarnation_tag, id, term, method, reason, confirmed_at)
    VALUES (p_tag, p_id, (SELECT g.owned_term FROM metafence.tag AS g WHERE g.tag = p_tag),
            p_method, p_reason, clock_timestamp())
    ON CONFLICT (incarnation_tag) DO NOTHING;
    RETURN FOUND;
END
$body$;

-- Takes the row of a dead phantom away, if it is still exactly the row that was judged. Returns 0 or 1.
-- Runs as the owner of the election's table: owner.sql.
CREATE OR REPLACE FUNCTION metafence.drop_phantom(p_service text, p_id text, p_heartbeat timestamptz)
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_table regclass;
    v_count integer;
    v_total integer := 0;
BEGIN
    FOR v_table IN SELECT t.tgrelid FROM pg_trigger AS t
                    WHERE t.tgfoid = 'metafence.on_campaign'::regproc LOOP
        EXECUTE format('DELETE FROM %s WHERE service = $1 AND id = $2 AND last_heartbeat = $3', v_table)
          USING p_service, p_id, p_heartbeat;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_total := v_total + v_count;
    END LOOP;
    RETURN v_total;
END
$body$;
