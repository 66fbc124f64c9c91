# SPDX-License-Identifier: Apache-2.0
"""What agents use of schema metafence: pinned for each version of the schema in surface/VERSION.json, so that
an agent of the version before goes on working when the schema is newer.

A file has the tables with their columns and the functions with their results that grant.sql gives to an agent
of that version, and statements as an agent of that version was seen to send them, with the columns of their
answers. `--write` adds to the file of this tree's version and takes nothing away; it touches no other."""

import json
import re
from pathlib import Path
from typing import Any

import psycopg
from harness.paths import REPO

FOLDER = Path(__file__).resolve().parent / "surface"
Surface = dict[str, Any]


def schema_version() -> int:
    """The one that this tree installs."""
    found = re.search(r"#define SQL_VERSION\s+(\d+)", (REPO / "sql" / "sql.h").read_text())
    assert found
    return int(found[1])


def path(version: int) -> Path:
    return FOLDER / f"{version}.json"


def pinned(version: int) -> Surface:
    return json.loads(path(version).read_text())


def versions() -> list[int]:
    return sorted(int(file.stem) for file in FOLDER.glob("*.json"))


def granted(grant: str) -> tuple[list[str], list[str]]:
    """Tables and functions, by their names without the schema, that grant.sql's text gives to an agent."""
    select = "".join(re.findall(r"GRANT SELECT ON (metafence\..*?)TO @ROLE@", grant, re.DOTALL))
    execute = "".join(re.findall(r"GRANT EXECUTE ON FUNCTION(.*?)TO @ROLE@", grant, re.DOTALL))
    return re.findall(r"metafence\.(\w+)", select), re.findall(r"metafence\.(\w+\([^)]*\))", execute)


def columns(session: "psycopg.Connection[Any]", table: str) -> dict[str, str]:
    """Name -> type; empty when there is no such table."""
    rows = session.execute(
        "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = to_regclass(%s)"
        " AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [f"metafence.{table}"],
    )
    return dict(rows.fetchall())


def result(session: "psycopg.Connection[Any]", signature: str) -> str | None:
    """What a function of these types of arguments gives; None when there is none."""
    row = session.execute(
        "SELECT pg_get_function_result(to_regprocedure(%s))", [f"metafence.{signature}"]
    ).fetchone()
    return row[0] if row else None


def answer(session: "psycopg.Connection[Any]", statement: str) -> list[list[str]]:
    """[name, type] of each column that the statement would give; it is not run."""
    session.pgconn.prepare(b"", statement.encode())
    described = session.pgconn.describe_prepared(b"")
    assert not described.error_message, described.error_message.decode()
    assert described.status != psycopg.pq.ExecStatus.FATAL_ERROR
    found = []
    for n in range(described.nfields):
        kind = session.execute("SELECT format_type(%s::oid, NULL)", [described.ftype(n)]).fetchone()
        name = described.fname(n)
        assert kind and name is not None
        found.append([name.decode(), kind[0]])
    return found


def sent(log: str, application: str) -> list[str]:
    """The statements of that application in a log of Postgres that has them all: each once, sorted."""
    line = re.compile(
        rf"^\S+ \S+ \S+ \[\d+\] {re.escape(application)} LOG:  (?:statement|execute [^:]*): (.*)$",
        re.MULTILINE,
    )
    return sorted(set(line.findall(log)))


def describe(session: "psycopg.Connection[Any]", grant: str, statements: list[str]) -> Surface:
    tables, functions = granted(grant)
    return {
        "tables": {table: columns(session, table) for table in sorted(tables)},
        "functions": {signature: result(session, signature) for signature in sorted(functions)},
        "statements": [{"sql": sql, "answer": answer(session, sql)} for sql in statements],
    }


def differences(was: Surface, session: "psycopg.Connection[Any]") -> list[str]:
    """What of `was` an agent would no longer find. What was added since is nothing."""
    found = []
    for table, wanted in was["tables"].items():
        there = columns(session, table)
        found += [
            f"column {table}.{name} was {kind} and is {there.get(name)}"
            for name, kind in wanted.items()
            if there.get(name) != kind
        ]
    for signature, wanted in was["functions"].items():
        there = result(session, signature)
        if there != wanted:
            found.append(f"function {signature} gave {wanted} and gives {there}")
    for statement in was["statements"]:
        try:
            there = answer(session, statement["sql"])
        except AssertionError as error:
            found.append(f"{statement['sql']}: {error}")
            continue
        if there != statement["answer"]:
            found.append(f"{statement['sql']} answered {statement['answer']} and answers {there}")
    return found


def missing(now: Surface, was: Surface) -> list[str]:
    """What is used and was not pinned."""
    found = [f"table {name}" for name in now["tables"].keys() - was["tables"].keys()]
    found += [f"function {name}" for name in now["functions"].keys() - was["functions"].keys()]
    known = {statement["sql"] for statement in was["statements"]}
    return sorted(found + [s["sql"] for s in now["statements"] if s["sql"] not in known])


def merged(now: Surface, was: Surface | None) -> Surface:
    """`was` with what `now` has more."""
    if was is None:
        return now
    known = {statement["sql"] for statement in was["statements"]}
    new = [s for s in now["statements"] if s["sql"] not in known]
    return {
        "tables": {**now["tables"], **was["tables"]},
        "functions": {**now["functions"], **was["functions"]},
        "statements": sorted([*was["statements"], *new], key=lambda s: s["sql"]),
    }


def write(version: int, surface: Surface) -> None:
    FOLDER.mkdir(exist_ok=True)
    path(version).write_text(json.dumps(surface, indent=1, sort_keys=True) + "\n")
