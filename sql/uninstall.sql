-- SPDX-License-Identifier: Apache-2.0
-- The end of an uninstallation: the rights that were granted outside of the schema, triggers that an agent
-- put back meanwhile, and the schema. The election's own tables and rows stay.
-- First the triggers, so that no campaign ever meets a trigger whose tables are gone.
DO $body$
DECLARE
    v record;
BEGIN
    FOR v IN SELECT t.tgname, t.tgrelid::regclass AS relation
               FROM pg_catalog.pg_trigger AS t
               JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid
               JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
              WHERE n.nspname = 'metafence' AND NOT t.tgisinternal LOOP
        EXECUTE pg_catalog.format('DROP TRIGGER IF EXISTS %I ON %s', v.tgname, v.relation);
    END LOOP;
    IF pg_catalog.to_regclass('metafence.setting') IS NOT NULL THEN
        FOR v IN EXECUTE 'SELECT s.value AS relation, substr(s.name, 9) AS role FROM metafence.setting AS s'
                         ' WHERE s.name LIKE ''granted %''' LOOP
            BEGIN
                EXECUTE pg_catalog.format('REVOKE SELECT ON %s FROM %s', v.relation, v.role);
            EXCEPTION WHEN undefined_object OR undefined_table THEN
                NULL; -- gone already
            END;
        END LOOP;
    END IF;
END
$body$;
DROP SCHEMA IF EXISTS metafence CASCADE;
