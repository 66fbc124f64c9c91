# SPDX-License-Identifier: Apache-2.0
"""Postgres' own log of renewals, terms and writes of metadata, by triggers of ours: metafence's own books are
what is judged. Each line has the instant by CLOCK_BOOTTIME, which no step of Postgres' clock moves, its
transaction, and the snapshot of the statement. The lines are numbered in the order of the triggers: a
writer's comes after the guard's, a takeover's when it has its lock."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from harness.logs import WitnessFile

from .history import Entry, Incarnation


class Database(Protocol):
    """Where the metas' tables are, as a superuser."""

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]: ...


# Never an error of its own inside a campaign or a write: what it could not note is counted, and then the
# judge can't tell. A disk that is full fails the statement, as it does elsewhere.
INSTALL = """
CREATE SCHEMA chaos;
CREATE SEQUENCE chaos.lost;
CREATE TABLE chaos.log (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL, boot_us bigint NOT NULL, tag text, id text, term bigint,
    relation text, operation text,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    snapshot pg_snapshot NOT NULL DEFAULT pg_current_snapshot());

CREATE FUNCTION chaos.boot_us() RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT (split_part(pg_read_file('/proc/uptime'), ' ', 1)::numeric * 1000000)::bigint $$;

-- Its argument says which kind of line it writes. What can't be written is counted, and fails nobody.
CREATE FUNCTION chaos.on_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_ARGV[0] = 'write' THEN
        INSERT INTO chaos.log (kind, boot_us, tag, relation, operation)
        VALUES ('write', chaos.boot_us(), current_setting('application_name'), TG_TABLE_NAME, TG_OP);
    ELSIF TG_ARGV[0] = 'renewal' THEN
        IF TG_OP = 'INSERT' OR NEW.id IS DISTINCT FROM OLD.id
           OR NEW.last_heartbeat IS DISTINCT FROM OLD.last_heartbeat THEN
            INSERT INTO chaos.log (kind, boot_us, tag, id)
            VALUES ('renewal', chaos.boot_us()
                    - (extract(epoch FROM clock_timestamp() - NEW.last_heartbeat) * 1000000)::bigint,
                    current_setting('application_name'), NEW.id);
        END IF;
    ELSIF TG_OP = 'INSERT' OR NEW.term <> OLD.term OR NEW.owner_tag IS DISTINCT FROM OLD.owner_tag THEN
        INSERT INTO chaos.log (kind, boot_us, tag, id, term)
        VALUES ('term', chaos.boot_us(), NEW.owner_tag, NEW.owner_id, NEW.term);
    END IF;
    RETURN NULL;
EXCEPTION WHEN disk_full THEN
    RAISE;
WHEN OTHERS THEN
    PERFORM nextval('chaos.lost');
    RETURN NULL;
END $$;

CREATE TRIGGER zz_chaos AFTER INSERT OR UPDATE ON election_leader
    FOR EACH ROW EXECUTE FUNCTION chaos.on_change('renewal');
CREATE TRIGGER zz_chaos AFTER INSERT OR UPDATE ON metafence.term
    FOR EACH ROW EXECUTE FUNCTION chaos.on_change('term');
"""
READ = """SELECT seq, kind, boot_us * 1000, coalesce(tag, ''), coalesce(id, ''), coalesce(term, 0),
    coalesce(relation, ''), coalesce(operation, ''), xid::text::bigint, snapshot::text
    FROM chaos.log ORDER BY seq"""


def install(database: Database) -> None:
    """Behind metafence's own triggers: its schema and the election's tables are there."""
    database.sql(INSTALL)


def watch_writes(database: Database, tables: Iterable[str]) -> None:
    for table in tables:
        database.sql(
            f"CREATE TRIGGER zz_chaos AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION chaos.on_change('write')"
        )


def guarded_tables(database: Database) -> list[str]:
    return [name for (name,) in database.sql("SELECT relation::text FROM metafence.guarded_tables()")]


def read(database: Database) -> tuple[Entry, ...]:
    return tuple(Entry(*row) for row in database.sql(READ))


def lost(database: Database) -> int:
    """Lines that could not be written; after a crash of Postgres up to 32 more."""
    [(count,)] = database.sql("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM chaos.lost")
    return int(count)


def incarnations(witness: WitnessFile, pod: str) -> Iterator[Incarnation]:
    """Of one pod, with what each of them says that it did."""
    acts: dict[str, list[int]] = {}
    for tick in witness.events("tick"):
        acts.setdefault(tick.fields["inc"], []).append(tick.boot_ns)
    for start in witness.events("start"):
        inc = start.fields["inc"]
        ticks = tuple(sorted(acts.get(inc, [])))
        yield Incarnation(inc, start.fields["id"], start.fields["tag"], pod, ticks)
