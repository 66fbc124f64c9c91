# SPDX-License-Identifier: Apache-2.0
"""Metas with session tags but without metafence-run and agent: what the triggers in Postgres do alone."""

import secrets
from typing import Any

from harness import Cluster, Lab, Pod, wait_for
from harness.logs import Event

# The rows that metas write each tenth of a second become part of the guarded metadata.
GUARD_TICKS = "".join(
    f"CREATE TRIGGER metafence_{operation} AFTER {operation} ON witness_tick"
    f" REFERENCING {rows} TABLE AS metafence_rows FOR EACH STATEMENT EXECUTE FUNCTION metafence.on_write();"
    for operation, rows in (("insert", "NEW"), ("update", "NEW"), ("delete", "OLD"))
)

# What the test itself writes down of each move of a term: how long it took, and where the ticks stood.
RECORD_MOVES = """
CREATE TABLE public.moved (term bigint, tag text, delay interval, at timestamptz);
CREATE FUNCTION public.moved() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO public.moved VALUES (NEW.term, NEW.owner_tag, clock_timestamp() - transaction_timestamp(),
                                     clock_timestamp());
    RETURN NULL;
END $$;
CREATE TRIGGER moved AFTER INSERT OR UPDATE ON metafence.term FOR EACH ROW EXECUTE FUNCTION public.moved();
"""


class TaggedPod(Pod):
    """Each start is an incarnation with a tag of its own, as metafence-run would give it."""

    tag = ""

    def _meta_env(self) -> dict[str, str]:
        self.tag = f"metafence:{self.uid[:8]}:{secrets.token_hex(8)}"
        return super()._meta_env() | {"PGAPPNAME": self.tag}


class BareCluster(Cluster):
    pods: list[TaggedPod]  # type: ignore[assignment]

    def __init__(self, lab: Lab, guard: str = "enforce", **options: Any) -> None:
        super().__init__(lab, guarded=False, **options)
        self.install_sql()
        self.postgres.sql("UPDATE metafence.setting SET value = %s WHERE name = 'guard'", guard)
        with self.postgres.connect() as session:
            session.execute(RECORD_MOVES)

    def new_pod(self, name: str, advertise: str | None = None) -> TaggedPod:
        pod = TaggedPod(
            self.lab, self.postgres, name, self.profile, False, self.meta_flags, self.run_flags, advertise
        )
        self._witnesses.append(pod.witness.path)
        return pod

    def start(self, sql: bool = True) -> TaggedPod:
        """All run, the first leads, and its ticks are guarded."""
        self.pods[0].start().wait_leading(15)
        with self.postgres.connect() as session:
            session.execute(GUARD_TICKS)
        for pod in self.pods[1:]:
            pod.start()
            wait_for(f"{pod.name} follows", lambda pod=pod: pod.is_follower, 15)  # type: ignore[misc]
        return self.pods[0]

    def term(self) -> tuple[int, str | None, str]:
        """Number, tag and id of the present one's owner."""
        return self.postgres.sql("SELECT term, owner_tag, owner_id FROM metafence.term")[0]  # type: ignore[return-value]

    def counters(self) -> dict[str, int]:
        return dict(self.postgres.sql("SELECT name, value FROM metafence.counters()"))  # type: ignore[arg-type]

    def wait_owner(self, timeout: float, among: "list[TaggedPod] | None" = None) -> TaggedPod:
        """A living pod leads, and row and term are its incarnation's."""

        def owner() -> TaggedPod | None:
            _, tag, name = self.term()
            row = self.postgres.owner()
            for pod in among or self.pods:
                if pod.acts_as_leader and (pod.tag, pod.id, pod.id) == (tag, name, row):
                    return pod
            return None

        try:
            return wait_for("row and term are a living leader's", owner, timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}\nterm {self.term()}\n{self.describe()}") from None

    def errors(self) -> list[Event]:
        """Of the election loops of all incarnations."""
        return [e for pod in self.pods for e in pod.witness.events("err")]

    def ticks_of(self, tag: str) -> int:
        return self.postgres.sql("SELECT count(*) FROM witness_tick WHERE tag = %s", tag)[0][0]

    def slowest_move_ms(self) -> float:
        return float(
            self.postgres.sql("SELECT extract(epoch FROM max(delay)) * 1000 FROM public.moved")[0][0]
        )
