-- SPDX-License-Identifier: Apache-2.0
-- Where the metadata is: the guarded tables are those beside the leader table.
INSERT INTO metafence.setting (name, value)
SELECT 'leader_table', pg_catalog.format('%I.%I', n.nspname, c.relname)
  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE c.oid = '@LEADER_TABLE@'::pg_catalog.regclass
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- drop_phantom deletes from the election's table. Where worker has its triggers already, cover_worker won't come.
-- What reads tables that may not be there yet has an owner before it is granted to anybody; cover_recovery finds
-- the right one.
DO $body$
BEGIN
    PERFORM metafence.give_to_owner('@LEADER_TABLE@', ARRAY['drop_phantom(text, text, timestamptz)']);
    PERFORM metafence.give_to_owner(g.relation, ARRAY['property_version(oid, integer)'])
       FROM metafence.guarded_tables() AS g WHERE g.name = 'worker';
    PERFORM metafence.give_to_owner('@LEADER_TABLE@', ARRAY[f.name])
       FROM (VALUES ('newest_migration(text)'), ('job_name(text, bigint)'), ('is_created(text, bigint)'),
                    ('creating_jobs(text)')) AS f(name)
       JOIN pg_catalog.pg_proc AS p ON p.oid = ('metafence.' || f.name)::pg_catalog.regprocedure
      WHERE pg_catalog.pg_get_userbyid(p.proowner) = current_user;
END
$body$;
