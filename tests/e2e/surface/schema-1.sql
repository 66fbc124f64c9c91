BEGIN;
SET LOCAL lock_timeout = '200ms';
-- SPDX-License-Identifier: Apache-2.0
-- metafence schema, version 1: who owns which term of the election, told apart by session tag.
-- Idempotent: running it again changes nothing. It touches no table of RisingWave; trigger.sql does.
-- The rule of everything here: bookkeeping that fails leaves the election as it would be without us.

CREATE SCHEMA IF NOT EXISTS metafence;
COMMENT ON SCHEMA metafence IS 'metafence: terms of the meta election. Remove with: metafence sql uninstall';

CREATE TABLE IF NOT EXISTS metafence.setting (
    name  text PRIMARY KEY,
    value text NOT NULL
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
    superseded          boolean NOT NULL DEFAULT false
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

-- The session tag that metafence-run gives its child by PGAPPNAME, or NULL for every other session.
CREATE OR REPLACE FUNCTION metafence.session_tag() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT CASE WHEN current_setting('application_name') ~ '^metafence:[^:]{8}:[0-9a-f]{16}$'
                THEN current_setting('application_name') END
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

-- The next term begins. Called with the row of election_leader locked, so calls for a service queue.
CREATE OR REPLACE FUNCTION metafence.move_term(p_service text, p_id text, p_tag text)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_old_tag text;
    v_term bigint;
    v_system_id text;
    v_timeline text;
BEGIN
    SELECT i.system_id, i.timeline INTO v_system_id, v_timeline FROM metafence.identity() AS i;
    SELECT t.owner_tag INTO v_old_tag FROM metafence.term AS t WHERE t.service = p_service FOR UPDATE;
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
    UPDATE metafence.tag AS g SET owned_term = v_term WHERE g.tag = p_tag;
    -- A superseded tag has to stay known while its process could still be around: 90 days.
    DELETE FROM metafence.tag AS g
     WHERE g.superseded AND g.first_seen < now() - interval '90 days'
       AND g.last_seen_heartbeat < now() - interval '90 days';
    DELETE FROM metafence.death AS d WHERE d.confirmed_at < now() - interval '90 days';
    -- A full queue would fail the COMMIT of the campaign, where nothing can catch it any more.
    IF pg_notification_queue_usage() < 0.9 THEN
        PERFORM pg_notify('metafence', left(concat_ws(' ', v_term, coalesce(p_tag, '-'), p_id), 1000));
    END IF;
END
$body$;

-- The term trigger of election_leader. Invariants: it never raises, never returns NULL, never waits
-- longer than lock_timeout below, and acts only when id or last_heartbeat really changed (each follower
-- rewrites the row every second). Only scalar variables: a %ROWTYPE of a dropped table would fail when
-- the function is compiled, outside the block that catches.
CREATE OR REPLACE FUNCTION metafence.on_campaign() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
AS $body$
DECLARE
    v_tag text;
    v_known boolean := false;
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

    v_tag := metafence.session_tag();
    SELECT t.term, t.owner_id, t.owner_tag, g.seq INTO v_term, v_owner_id, v_owner_tag, v_owner_seq
      FROM metafence.term AS t LEFT JOIN metafence.tag AS g ON g.tag = t.owner_tag
     WHERE t.service = NEW.service;

    IF v_tag IS NOT NULL THEN
        SELECT true, g.seq, g.owned_term, g.superseded INTO v_known, v_seq, v_owned, v_superseded
          FROM metafence.tag AS g WHERE g.tag = v_tag;
        IF v_known IS NOT TRUE THEN
            INSERT INTO metafence.tag AS g (tag, id, first_seen, last_seen_heartbeat)
            VALUES (v_tag, NEW.id, clock_timestamp(), NEW.last_heartbeat)
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
        PERFORM metafence.move_term(NEW.service, NEW.id, CASE WHEN NOT v_superseded THEN v_tag END);
    ELSIF v_tag IS NOT NULL AND v_tag IS DISTINCT FROM v_owner_tag
          AND NOT v_superseded AND v_owned IS NULL
          AND v_seq > coalesce(v_owner_seq, 0) THEN
        -- Same id, newer incarnation: a restart inside the lease, or the younger of two twins.
        PERFORM metafence.move_term(NEW.service, NEW.id, v_tag);
    END IF;
    RETURN NEW;
EXCEPTION WHEN OTHERS OR query_canceled THEN
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

REVOKE ALL ON ALL TABLES IN SCHEMA metafence FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA metafence FROM PUBLIC;

INSERT INTO metafence.setting (name, value) VALUES ('guard', 'off') ON CONFLICT (name) DO NOTHING;
INSERT INTO metafence.setting (name, value) VALUES ('schema_version', '1')
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
COMMIT;

BEGIN;
SET LOCAL lock_timeout = '200ms';
-- SPDX-License-Identifier: Apache-2.0
-- drop_phantom deletes from the election's table, and a DELETE runs what the table's owner has hung on it:
-- with the owner's rights then, not with those of a superuser who installed this. Repeatable.
DO $body$
DECLARE
    v_owner name;
BEGIN
    SELECT pg_catalog.pg_get_userbyid(c.relowner) INTO v_owner
      FROM pg_catalog.pg_class AS c WHERE c.oid = '"election_leader"'::pg_catalog.regclass;
    IF v_owner <> current_user
       AND (SELECT r.rolsuper FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user) THEN
        EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA metafence TO %I', v_owner);
        EXECUTE pg_catalog.format(
            'ALTER FUNCTION metafence.drop_phantom(text, text, timestamptz) OWNER TO %I', v_owner);
    END IF;
END
$body$;
COMMIT;

BEGIN;
SET LOCAL lock_timeout = '200ms';
-- SPDX-License-Identifier: Apache-2.0
-- The term trigger on the election's table, always the last step of an installation and alone in its
-- transaction: while CREATE TRIGGER waits for its lock, campaigns queue behind it. The trigger names no
-- column, so that migrations of the table stay possible.
CREATE TRIGGER metafence_term AFTER INSERT OR UPDATE ON "election_leader"
    FOR EACH ROW EXECUTE FUNCTION metafence.on_campaign();
COMMIT;
