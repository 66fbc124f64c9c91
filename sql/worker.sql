-- SPDX-License-Identifier: Apache-2.0
-- What worker has beyond the guard: how it is found, the mutation log, and the refusal of deletes that an intent does not
-- mean.

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

-- "<xmin> <ctid>" of the row of worker_property; NULL: there is none, or it is being written. Runs as the owner of
-- worker: a SELECT runs what he has hung on his table, be it the predicate of an index.
CREATE OR REPLACE FUNCTION metafence.property_version(p_worker oid, p_worker_id integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_property regclass;
    v_version text;
BEGIN
    SELECT c.oid INTO v_property FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
     WHERE c.relname = 'worker_property' AND c.relkind = 'r' AND a.attname = 'worker_id'
       AND c.relnamespace = (SELECT w.relnamespace FROM pg_class AS w WHERE w.oid = p_worker);
    IF v_property IS NOT NULL THEN
        EXECUTE format('SELECT concat_ws('' '', p.xmin, p.ctid) FROM %s AS p WHERE p.worker_id = $1'
                       ' FOR UPDATE SKIP LOCKED', v_property) INTO v_version USING p_worker_id;
    END IF;
    RETURN v_version;
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
    v_version text;
    v_intended integer;
    v_is_meant boolean;
BEGIN
    BEGIN
        IF EXISTS (SELECT FROM metafence.intent AS i) AND metafence.is_plain(TG_RELID)
           AND TG_RELID = metafence.worker_table() THEN
            v_tag := metafence.session_tag();
            v_version := concat_ws(' ', OLD.xmin, OLD.ctid,
                                   metafence.property_version(TG_RELID, OLD.worker_id));
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
