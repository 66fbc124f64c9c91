# SPDX-License-Identifier: Apache-2.0
"""The three methods, and the numbers they run with."""

from dataclasses import dataclass

from metas.deployment import Values, config, merged


@dataclass(frozen=True)
class Method:
    """kubelet_alone: metafence-run is stopped together with the cause, so that nobody but the kubelet, by
    meta's probe, can end meta."""

    name: str
    ttl: int
    values: Values
    init_s: int  # how long a slow promotion takes here
    kubelet_alone: bool = False


# A probe by exec costs a tenth of a second of processor, and a policy in force is no part of P1.
LIGHT = {
    "metafence": {
        "admissionPolicy": {"enabled": False},
        "probes": {"meta": {"startup": {"periodSeconds": 2}, "readiness": {"periodSeconds": 10}}},
    }
}
SHORT = config(
    postgres={"connectTimeout": "200ms", "queryTimeout": "200ms"},
    election={"ttl": "5s"},
    timing={"poll": "100ms", "renewGap": "1500ms", "margin": "300ms", "killBudget": "300ms"},
)
# The kubelet has seen two failed probes 3 to 6 s after the deadline and ends the container in 1 to 2 s: that
# is in the budget.
LONG = merged(
    config(election={"ttl": "30s"}, timing={"killBudget": "12s"}),
    {"metafence": {"probes": {"meta": {"liveness": {"periodSeconds": 3, "failureThreshold": 2}}}}},
)
METHODS = {
    m.name: m
    for m in (
        Method("permit", 5, merged(LIGHT, SHORT), 15),
        Method("pidfd", 5, merged(merged(LIGHT, SHORT), config(fence={"method": "pidfd"})), 15),
        Method("kubelet", 30, merged(LIGHT, LONG), 25, kubelet_alone=True),
    )
}
