-- SPDX-License-Identifier: Apache-2.0
-- Puts the triggers of guard.sql and recovery.sql on RisingWave's tables, and says where they are missing.

-- The tables that the guard covers: those of RisingWave beside the leader table. relation has them by name,
-- is_covered says that all our triggers are there and fire. With the guard off that is none, so that it costs
-- nothing; but worker, which is rarely written, keeps them: by them it is found.
CREATE OR REPLACE FUNCTION metafence.guarded_tables()
RETURNS TABLE (relation regclass, name name, is_covered boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $body$
    SELECT c.oid::regclass, c.relname,
           CASE WHEN c.relname <> 'worker' AND EXISTS (
                     SELECT FROM metafence.setting AS s WHERE s.name = 'guard' AND s.value = 'off')
                THEN k.all_of_them = 0 ELSE k.as_meant = 4 END
      FROM pg_class AS c JOIN pg_class AS l ON l.relnamespace = c.relnamespace
     CROSS JOIN LATERAL (
           SELECT count(*) AS all_of_them,
                  count(*) FILTER (
                      WHERE t.tgenabled IN ('O', 'A')
                        AND CASE WHEN c.relname = 'worker'
                                 THEN (t.tgname, p.proname) IN (('metafence_guard', 'guard'),
                                                                ('metafence_key', 'refuse'),
                                                                ('metafence_log', 'log_worker'),
                                                                ('metafence_intent', 'keep_intended'))
                                 ELSE (t.tgname, p.proname) IN (('metafence_insert', 'on_write'),
                                                                ('metafence_update', 'on_write'),
                                                                ('metafence_delete', 'on_write'),
                                                                ('metafence_truncate', 'guard')) END) AS as_meant
             FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
            WHERE t.tgrelid = c.oid AND p.pronamespace = 'metafence'::regnamespace
              AND t.tgname <> 'metafence_recovery') AS k
     WHERE l.oid = to_regclass((SELECT s.value FROM metafence.setting AS s WHERE s.name = 'leader_table'))
       AND c.relkind = 'r' AND c.relpersistence = 'p'
       AND (c.relname IN ('worker', 'worker_property', 'catalog_version')
            OR c.relname LIKE 'hummock\_%' OR c.relname LIKE 'compaction\_%')
$body$;

-- What reads or changes a table of RisingWave runs with the rights of its owner, not with those of a superuser who
-- installed this: what that owner has hung on it must not run with them. Repeatable.
CREATE OR REPLACE FUNCTION metafence.give_to_owner(p_table regclass, p_functions text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_owner name;
    v_function text;
BEGIN
    SELECT pg_get_userbyid(c.relowner) INTO v_owner FROM pg_class AS c WHERE c.oid = p_table;
    IF v_owner <> current_user
       AND (SELECT r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user) THEN
        EXECUTE format('GRANT USAGE ON SCHEMA metafence TO %I', v_owner);
        FOREACH v_function IN ARRAY p_functions LOOP
            EXECUTE format('ALTER FUNCTION metafence.%s OWNER TO %I', v_function, v_owner);
        END LOOP;
        EXECUTE format('GRANT EXECUTE ON FUNCTION metafence.worker_table() TO %I', v_owner);
    END IF;
END
$body$;

-- worker's own: see guard.sql.
CREATE OR REPLACE FUNCTION metafence.cover_worker(p_table regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    EXECUTE format('CREATE TRIGGER metafence_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s
                    FOR EACH STATEMENT EXECUTE FUNCTION metafence.guard()', p_table);
    EXECUTE format('CREATE TRIGGER metafence_key BEFORE INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW
                    WHEN (pg_catalog.current_setting(''metafence.gate'', true) <> '''')
                    EXECUTE FUNCTION metafence.refuse()', p_table);
    EXECUTE format('CREATE TRIGGER metafence_log AFTER INSERT OR UPDATE OR DELETE ON %s
                    FOR EACH ROW EXECUTE FUNCTION metafence.log_worker()', p_table);
    EXECUTE format('CREATE TRIGGER metafence_intent BEFORE DELETE ON %s
                    FOR EACH ROW EXECUTE FUNCTION metafence.keep_intended()', p_table);
    PERFORM metafence.give_to_owner(
        p_table, ARRAY['remove_worker(text, integer, text, integer, text)', 'workers()',
                       'property_version(oid, integer)']);
END
$body$;

-- Puts the triggers on one table, as far as they are missing or off, in place of those of earlier installations;
-- takes them away where the guard is off. Whether it did anything. The caller bounds the wait for the lock and
-- covers one table a transaction.
CREATE OR REPLACE FUNCTION metafence.cover(p_name text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
    v_table regclass;
    v_trigger text;
    v_operation text;
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
    IF p_name = 'worker' THEN
        PERFORM metafence.cover_worker(v_table);
    ELSIF NOT EXISTS (SELECT FROM metafence.setting AS s WHERE s.name = 'guard' AND s.value = 'off') THEN
        FOREACH v_operation IN ARRAY ARRAY['insert', 'update', 'delete'] LOOP
            EXECUTE format('CREATE TRIGGER metafence_%s AFTER %s ON %s REFERENCING %s TABLE AS metafence_rows
                            FOR EACH STATEMENT EXECUTE FUNCTION metafence.on_write()', v_operation,
                           v_operation, v_table, CASE v_operation WHEN 'delete' THEN 'OLD' ELSE 'NEW' END);
        END LOOP;
        EXECUTE format('CREATE TRIGGER metafence_truncate BEFORE TRUNCATE ON %s
                        FOR EACH STATEMENT EXECUTE FUNCTION metafence.guard()', v_table);
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
