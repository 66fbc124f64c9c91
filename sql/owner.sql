-- SPDX-License-Identifier: Apache-2.0
-- Where the metadata is: the guarded tables are those beside the leader table.
INSERT INTO metafence.setting (name, value)
SELECT 'leader_table', pg_catalog.format('%I.%I', n.nspname, c.relname)
  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE c.oid = '@LEADER_TABLE@'::pg_catalog.regclass
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- drop_phantom deletes from the election's table, and a DELETE runs what the table's owner has hung on it:
-- with the owner's rights then, not with those of a superuser who installed this. Repeatable.
DO $body$
DECLARE
    v_owner name;
BEGIN
    SELECT pg_catalog.pg_get_userbyid(c.relowner) INTO v_owner
      FROM pg_catalog.pg_class AS c WHERE c.oid = '@LEADER_TABLE@'::pg_catalog.regclass;
    IF v_owner <> current_user
       AND (SELECT r.rolsuper FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user) THEN
        EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA metafence TO %I', v_owner);
        EXECUTE pg_catalog.format(
            'ALTER FUNCTION metafence.drop_phantom(text, text, timestamptz) OWNER TO %I', v_owner);
    END IF;
END
$body$;
