# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus that scrapes the agents of a cluster, each second."""

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import Lab, Pod
from harness.paths import REPO, prometheus

RULES = REPO / "charts" / "metafence" / "files" / "rules.yaml"
DASHBOARD = REPO / "charts" / "metafence" / "files" / "dashboard.json"
NAMESPACE = "meta"
RATE = "15s"  # Grafana takes four scrapes at least


def panels() -> Iterator[tuple[dict[str, Any], str]]:
    """Each panel's target of the dashboard, and its query without Grafana's variables."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        [target] = panel["targets"]
        query = target["expr"].replace("$namespace", NAMESPACE).replace("$__rate_interval", RATE)
        assert "$" not in query, f"a variable of Grafana's that is not known here: {query}"
        yield panel, query


class Prometheus:
    def __init__(self, lab: Lab, pods: list[Pod]) -> None:
        self.port = lab.port()
        home = lab.dir / "prometheus"
        home.mkdir()
        targets = [
            {
                "targets": [f"127.0.0.1:{pod.http_port}"],
                "labels": {
                    "namespace": NAMESPACE,
                    "pod": pod.config.get("podName", pod.name),
                    "container": "metafence",
                },
            }
            for pod in pods
        ]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "metafence", "static_configs": targets}],
        }
        (home / "prometheus.yml").write_text(json.dumps(config))
        argv: list[str | Path] = [
            prometheus("prometheus"),
            f"--config.file={home / 'prometheus.yml'}",
            f"--storage.tsdb.path={home / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        self.process = lab.spawn("prometheus", argv, home / "prometheus.log")

    def ask(self, path: str, **query: str) -> Any:
        """The data of its answer; None while it does not answer."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def holds(self, expression: str) -> bool:
        """Is there a series that fulfills it at this moment?"""
        answer = self.ask("query", query=expression)
        return bool(answer and answer["result"])
