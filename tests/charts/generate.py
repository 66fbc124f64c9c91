#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What of charts/metafence is made from something else: the part `config` of values.schema.json and
templates/_options.tpl from the agent's own table of options, the README's table from values.yaml's comments.

    generate.py           says which file is not as it would be made
    generate.py --write   makes them
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import helm
import yaml

SCHEMA = helm.METAFENCE / "values.schema.json"
OPTIONS = helm.METAFENCE / "templates" / "_options.tpl"
README = helm.METAFENCE / "README.md"
VALUES = helm.METAFENCE / "values.yaml"
DURATION = r"^[0-9]+(ns|us|ms|s|m|h)$"
BEGIN, END = "<!-- values: from values.yaml by tests/charts/generate.py -->\n", "<!-- end of values -->\n"
LONG = 60  # of a default
# What the chart says by environment, so that a file of options can't say otherwise.
FROM_THE_POD = ("METAFENCE_ID", "POD_UID", "POD_NAME", "POD_NAMESPACE", "METAFENCE_RUN")

Option = dict[str, Any]


def options() -> dict[str, Option]:
    """The agent's table, without what the pod's environment says."""
    program = helm.program("metafence", "agent")
    done = subprocess.run([program, "config", "options"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^(\S+) \((.*)\)\n    (.*)$", done.stdout, re.MULTILINE)
    assert len(found) * 2 == len(done.stdout.splitlines()), "a line of `config options` is not understood"
    every = {key: _option(parts.split("; "), doc) for key, parts, doc in found}
    ours = {key: option for key, option in every.items() if option["env"] not in FROM_THE_POD}
    for option in ours.values():
        if "annotation" not in option:
            del option["env"]
    return ours


def _option(parts: list[str], doc: str) -> Option:
    more = dict(part.partition(" ")[::2] for part in parts[1:])
    option: Option = {"doc": doc, "env": more.get("environment")}
    if "annotation" in more:
        option["annotation"] = more["annotation"]
    if "default" in more:
        option["default"] = more["default"]
    low, _, high = parts[0].partition(" to ")
    if parts[0] in ("text", "absolute path"):
        option["type"] = "path" if "path" in parts[0] else "text"
    elif parts[0] == "true|false":
        option["type"] = "switch"
    elif high:
        is_number = low.isdigit()
        option["type"] = "number" if is_number else "duration"
        option["min"], option["max"] = (int(low), int(high)) if is_number else (low, high)
    else:
        assert "|" in parts[0], f"a type that is not known: {parts[0]}"
        option["type"], option["choices"] = "choice", parts[0].split("|")
    return option


def _schema_of(option: Option) -> dict[str, Any]:
    text = option["doc"]
    if "default" in option:
        text += f" (default {option['default']})"
    if "min" in option:
        text += f"; {option['min']} to {option['max']}"
    if "annotation" in option:
        text += f"; a pod's annotation {option['annotation']} wins"
    kinds: dict[str, dict[str, Any]] = {
        "text": {"type": "string"},
        "path": {"type": "string", "pattern": "^(/.*)?$"},
        "switch": {"type": "boolean"},
        "duration": {"type": "string", "pattern": DURATION},
        "number": {"type": "integer", "minimum": option.get("min"), "maximum": option.get("max")},
        # YAML takes a bare on or off for a boolean.
        "choice": {
            "enum": option.get("choices", [])
            + [value for word, value in (("on", True), ("off", False)) if word in option.get("choices", [])]
        },
    }
    return {"description": text, **kinds[option["type"]]}


def schema(table: dict[str, Option]) -> str:
    tree = json.loads(SCHEMA.read_text())
    config: dict[str, Any] = {}
    for key, option in table.items():
        section, _, name = key.rpartition(".")
        empty = {"type": "object", "additionalProperties": False, "properties": {}}
        into = config.setdefault(section, empty)["properties"] if section else config
        into[name] = _schema_of(option)
    tree["properties"]["config"]["properties"] = config
    return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"


def template(table: dict[str, Option]) -> str:
    lines = [
        f"  {json.dumps(k)}: {json.dumps({n: v for n, v in o.items() if n != 'doc'})}"
        for k, o in table.items()
    ]
    head = "{{/* SPDX-License-Identifier: Apache-2.0\nBy tests/charts/generate.py. */}}\n"
    return head + '{{- define "metafence.options" -}}\n{\n' + ",\n".join(lines) + "\n}\n{{- end }}\n"


def documented() -> dict[str, str]:
    """Path of each value that has a comment, and the comment."""
    found: dict[str, str] = {}
    path: list[str] = []
    said: list[str] = []
    for line in VALUES.read_text().splitlines():
        comment = re.match(r" *# (-- )?(.*)", line)
        key = re.match(r"( *)(\w+):", line)
        if comment and (comment[1] or said):
            said.append(comment[2])
        elif key:
            path[len(key[1]) // 2 :] = [key[2]]
            if said:
                found[".".join(path)] = " ".join(said)
            said = []
    return found


def value_at(path: str) -> Any:
    tree = yaml.safe_load(VALUES.read_text())
    for name in path.split("."):
        tree = tree[name]
    return tree


def _default(path: str) -> str:
    value = value_at(path)
    if value in ("", None):
        return ""
    text = value if isinstance(value, str) else yaml.safe_dump(value, default_flow_style=True, width=1000)
    text = text.removesuffix("\n").removesuffix("\n...")
    return f"`{text}`" if len(text) <= LONG else "in values.yaml"


def readme() -> str:
    before, _, rest = README.read_text().partition(BEGIN)
    assert rest, f"{README} lacks {BEGIN}"
    rows = "".join(f"| `{path}` | {_default(path)} | {text} |\n" for path, text in documented().items())
    return before + BEGIN + "| value | default | |\n|---|---|---|\n" + rows + END + rest.partition(END)[2]


def made() -> dict[Path, str]:
    table = options()
    return {SCHEMA: schema(table), OPTIONS: template(table), README: readme()}


def main() -> int:
    stale = [path for path, text in made().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if "--write" in sys.argv:
            path.write_text(made()[path])
        else:
            print(f"{path.relative_to(helm.REPO)} is not what {Path(__file__).name} --write makes")
    return 0 if "--write" in sys.argv or not stale else 1


if __name__ == "__main__":
    sys.exit(main())
