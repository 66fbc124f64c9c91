# SPDX-License-Identifier: Apache-2.0
"""Probes as the kubelets send them, only more often: what they answered and how long that took, but for the
time in which the machine had no CPU for the agent."""

import threading
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from harness.waiting import Starvation, boot_ns

from .meta import Answer, Meta

PERIOD = 0.2
PATHS = ("/livez", "/readyz", "/startupz")


def waited_ms(pid: int | None) -> float:
    """For a CPU, in all of its life."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e6
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


class Prober:
    """For the length of a with block."""

    def __init__(self, metas: list[Meta]) -> None:
        self.answers: list[tuple[int, Meta, str, Answer]] = []  # (boot_ns, of, path, answer)
        self.starvation = Starvation()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(m,), daemon=True) for m in metas]

    def _run(self, meta: Meta) -> None:
        agent = meta.program("metafence")
        while not self._stop.is_set():
            for path in PATHS:
                at, before = boot_ns(), waited_ms(agent)
                answer = meta.probe(path)
                starved = max(0.0, waited_ms(agent) - before)
                self.answers.append((at, meta, path, replace(answer, took_ms=answer.took_ms - starved)))
            self._stop.wait(PERIOD)

    def __enter__(self) -> "Prober":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def slowest(self) -> tuple[str, str, Answer]:
        _, meta, path, answer = max(self.answers, key=lambda a: a[3].took_ms)
        return meta.name, path, answer

    def slowest_ms(self) -> float:
        return self.slowest()[2].took_ms

    def bad(self) -> list[tuple[str, str, Answer]]:
        """All that were not 200."""
        return [(m.name, path, a) for _, m, path, a in list(self.answers) if a.status != 200]
