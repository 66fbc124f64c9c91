# SPDX-License-Identifier: Apache-2.0
"""What is planted for doctor to find, beside processes and on a cluster."""

from collections.abc import Callable
from typing import Any

GOOD_TOML = "[meta]\nmeta_leader_lease_secs = 30\n\n[meta.meta_store_config]\nacquire_timeout_sec = 300 # s\n"
MIGRATIONS = "CREATE TABLE seaql_migrations (version varchar PRIMARY KEY, applied_at bigint NOT NULL)"


def sql_faults(role: str, database: str) -> list[tuple[str, str, str]]:
    """(check, statement that plants it, statement that takes it back)."""
    ledger = "UPDATE seaql_migrations SET version = "
    table = "ALTER TABLE election_leader {} TRIGGER metafence_term"
    alter = f"ALTER ROLE {role}"
    return [
        (
            "postgres.statement-timeout",
            f"{alter} SET statement_timeout = '2s'",
            f"{alter} RESET statement_timeout",
        ),
        (
            "postgres.lock-timeout",
            f"ALTER DATABASE {database} SET lock_timeout = 700",
            f"ALTER DATABASE {database} RESET lock_timeout",
        ),
        (
            "postgres.temp-file-limit",
            f"{alter} SET temp_file_limit = '64MB'",
            f"{alter} RESET temp_file_limit",
        ),
        (
            "postgres.partitions",
            "CREATE TABLE whole (LIKE election_leader); ALTER TABLE election_leader INHERIT whole",
            "ALTER TABLE election_leader NO INHERIT whole; DROP TABLE whole",
        ),
        ("postgres.trigger", table.format("DISABLE"), table.format("ENABLE")),
        ("risingwave.version", f"{ledger} 'm20991231_1'", f"{ledger} 'm20251223_120000_log'"),
        (
            "postgres.guard",
            "UPDATE metafence.setting SET value = 'observe' WHERE name = 'guard'",
            "UPDATE metafence.setting SET value = 'enforce' WHERE name = 'guard'",
        ),
        (
            "recovery.modes",
            "UPDATE metafence.setting SET value = 'enforce' WHERE name = 'recovery'",
            "UPDATE metafence.setting SET value = 'observe' WHERE name = 'recovery'",
        ),
    ]


# In the metas' TOML: (check, what stands there, what is wrong in its place).
TOML_FAULTS = [("meta.lease", "secs = 30", "secs = 20"), ("meta.acquire-timeout", "= 300", "= 30")]
# In the agent's file: (check, section, key, value).
CONFIG_FAULTS = [
    ("config", "timing", "margin", "40s"),
    ("shim.timing", "timing", "margin", "1s"),
    ("shim.options", "meta", "servicePort", 5999),
]


def meta_of(spec: dict[str, Any]) -> dict[str, Any]:
    return spec["containers"][0]


def sidecar_of(spec: dict[str, Any]) -> dict[str, Any]:
    return spec["initContainers"][0]


def as_ordinary_container(spec: dict[str, Any]) -> None:
    spec["containers"].append(spec["initContainers"].pop(0))


def with_another_ttl(spec: dict[str, Any]) -> None:
    words = [w for w in meta_of(spec)["command"] if not w.startswith("--ttl")]
    words.insert(words.index("--"), "--ttl=20s")
    meta_of(spec)["command"] = words


def with_another_id(spec: dict[str, Any]) -> None:
    [entry] = [e for e in meta_of(spec)["env"] if e["name"] == "RW_ADVERTISE_ADDR"]
    entry["value"] = "meta-0.other:5690"


TCP = {"tcpSocket": {"port": 5690}}
# (check, what bends the pod's spec).
SPEC_FAULTS: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("probe.liveness", lambda s: meta_of(s).update(livenessProbe=TCP)),
    ("probe.startup", lambda s: meta_of(s).pop("startupProbe")),
    ("probe.readiness", lambda s: meta_of(s).update(readinessProbe=TCP)),
    ("probe.sidecar", lambda s: sidecar_of(s)["readinessProbe"].update(failureThreshold=3)),
    ("pod.users", lambda s: meta_of(s).update(securityContext={"runAsUser": 0})),
    ("pod.sidecar", as_ordinary_container),
    ("pod.process-namespace", lambda s: s.update(shareProcessNamespace=True)),
    ("pod.volume", lambda s: meta_of(s).pop("volumeMounts")),
    ("pod.meta", lambda s: meta_of(s).update(command=["/risingwave/bin/risingwave"])),
    ("pod.id", with_another_id),
    ("shim.timing", with_another_ttl),
]
