-- SPDX-License-Identifier: Apache-2.0
-- Takes away everything that an installation made. The election's own tables and rows stay.
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
END
$body$;
DROP SCHEMA IF EXISTS metafence CASCADE;
