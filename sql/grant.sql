-- SPDX-License-Identifier: Apache-2.0
-- What an agent's role needs when it does not own the schema. Repeatable.
GRANT USAGE ON SCHEMA metafence TO @ROLE@;
GRANT SELECT ON metafence.term, metafence.tag, metafence.renewal, metafence.death, metafence.setting,
    metafence.mutation, metafence.observed, metafence.tombstone, metafence.intent, metafence.takeover,
    metafence.reconcile, metafence.recovery, metafence.dropped, metafence.acknowledgement, metafence.gate,
    metafence.purge, metafence.verified TO @ROLE@;
GRANT EXECUTE ON FUNCTION
    metafence.end_sessions(text),
    metafence.record_death(text, text, text, text),
    metafence.drop_phantom(text, text, timestamptz),
    metafence.guarded_tables(),
    metafence.complete(),
    metafence.counters(),
    metafence.workers(),
    metafence.bury(text, bigint, integer, text, integer, text, text, interval),
    metafence.unbury(text, bigint, integer),
    metafence.intend(text, bigint, integer, text, integer),
    metafence.intend(text, bigint, integer, text, integer, text),
    metafence.withdraw(integer),
    metafence.withdraw(text, bigint, integer),
    metafence.reconcile_state(text, bigint[], boolean),
    metafence.reconcile_log(text),
    metafence.intents(text),
    metafence.note_reconcile(text, bigint, text, bigint, text, text, text, text),
    metafence.recovery_tables(),
    metafence.recovery_state(text),
    metafence.recovery_rows(text),
    metafence.refresh_gate(text, text, text, bigint, bigint, bigint),
    metafence.acknowledge(bigint, integer, text, integer, text, jsonb, pg_snapshot),
    metafence.end_recovery(bigint, bigint),
    metafence.catalog_version(),
    metafence.purged(integer)
    TO @ROLE@;
-- The one right outside of our schema; what was granted here is taken back by the uninstallation.
DO $body$
BEGIN
    IF NOT pg_catalog.has_table_privilege($role$@ROLE@$role$::pg_catalog.regrole::oid, '@LEADER_TABLE@',
                                          'SELECT') THEN
        GRANT SELECT ON @LEADER_TABLE@ TO @ROLE@;
        INSERT INTO metafence.setting (name, value) VALUES ('granted ' || $role$@ROLE@$role$, '@LEADER_TABLE@')
        ON CONFLICT (name) DO NOTHING;
    END IF;
END
$body$;
