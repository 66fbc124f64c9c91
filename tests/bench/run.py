# SPDX-License-Identifier: Apache-2.0
"""./dev bench NAME [OPTION...]: one measurement; without a name all of them, and the table of targets.

Each prints Markdown and writes it, its JSON and a plot to build/bench/NAME.md, .json and .svg. What is
compared runs side by side in one run: ratios are what counts. Nothing is judged, since machines differ.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from harness.paths import Missing  # noqa: E402
from harness.waiting import TimedOut  # noqa: E402

BENCHES = {
    "peer": ("peer", "row change to death, memory, CPU, requests, start, size: beside a Go sidecar"),
    "cut": ("cut", "who is dead in time when the link to Postgres is cut"),
    "watch": ("watch", "memory to know 100 to 10,000 pods: beside client-go's informers"),
    "idle": ("idle", "three metas and their Postgres at rest, with metafence and without"),
    "guard": ("guardcost", "what the guard costs the meta's writes"),
    "reconcile": ("reconcile", "a pass of the reconciler over 1,000 to 100,000 rows"),
    "targets": ("targets", "what the results say of the targets; --write: into docs/benchmarks.md"),
}


def usage() -> str:
    lines = [f"  {name:10} {what}" for name, (_, what) in BENCHES.items()]
    return "\n".join([__doc__.strip(), "", *lines, "", "./dev bench NAME --help has the options of one."])


def main(words: list[str]) -> int:
    if words[:1] in (["-h"], ["--help"]):
        print(usage())
        return 0
    if words and words[0] not in BENCHES:
        print(usage(), file=sys.stderr)
        return 2
    chosen = words[:1] or list(BENCHES)
    failed = [name for name in chosen if run(name, words[1:]) != 0]
    if failed:
        print(f"bench: not done: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run(name: str, words: list[str]) -> int:
    entry: Callable[[list[str]], int] = import_module(BENCHES[name][0]).main
    try:
        return entry(words)
    except (Missing, TimedOut) as error:
        print(f"bench {name}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
