# SPDX-License-Identifier: Apache-2.0
"""./dev chaos: random trouble, from a seed, on a Kubernetes of three nodes of its own.

Exit: 0 clean, 1 a violation or something that did not come back, 2 wrong usage, 130 interrupted."""

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.paths import Missing
from kubelab import LabError, Settings
from kubelab.cleanup import after_crashes
from kubelab.fixtures import PREFIXES, private_cluster

from .history import History, judge
from .plan import BY_NAME, render, rounds, that_fit
from .run import DISK_MB, describe, folder_of, run


def kinds(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise argparse.ArgumentTypeError(f"no kind {', '.join(unknown)}: there are {', '.join(BY_NAME)}")
    return names


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5, help="a round that has begun is finished (5)")
    parser.add_argument("--seed", type=int, help="the same faults in the same order; else a new one, printed")
    parser.add_argument("--only", type=kinds, default=(), metavar="KIND[,KIND]", help="faults of these kinds")
    parser.add_argument("--dry-run", action="store_true", help="print about what fits, and do nothing")
    parser.add_argument("--judge", type=Path, metavar="FILE", help="judge a history.json again")
    options = parser.parse_args()
    if options.minutes <= 0:
        parser.error("--minutes must be above 0")
    return options


@contextmanager
def interruptible() -> Iterator[None]:
    """INT and TERM end the block once; what comes while all is cleared away is ignored."""

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    yield


def say(text: str) -> None:
    print(text, flush=True)


def wreak(seed: int, minutes: float, only: tuple[str, ...]) -> bool:
    """Whether all was well."""
    after_crashes(PREFIXES)
    with private_cluster(Settings(postgres_mb=DISK_MB)) as cluster:
        say(f"seed {seed}; starting a Kubernetes of three nodes")
        cluster.up()
        report = run(cluster, seed, minutes, rounds(seed, only), say)
    left = cluster.leftovers()
    for line in [
        *describe(report),
        f"evidence: {folder_of(seed)}",
        *(f"left behind: {what}" for what in left),
    ]:
        say(line)
    return report.verdict is not None and report.verdict.is_clean and not left


def main() -> int:
    options = parse()
    seed = options.seed if options.seed is not None else time.time_ns() % 10**6
    if options.judge:
        verdict = judge(History.load(json.loads(options.judge.read_text())))
        say(str(verdict))
        return 0 if verdict.is_clean else 1
    if options.dry_run:
        say(f"seed {seed}\n{render(that_fit(options.minutes, seed, options.only))}")
        return 0
    try:
        with interruptible():
            return 0 if wreak(seed, options.minutes, options.only) else 1
    except (LabError, Missing, AssertionError) as error:
        print(f"dev chaos: seed {seed}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; everything that was started is ended", file=sys.stderr)
        return 130


sys.exit(main())
