# SPDX-License-Identifier: Apache-2.0
"""Parts of objects that all pods of the tests have in common: what pod security "restricted" asks for."""

from typing import Any

from .images import UID, Image

POD_SECURITY: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": UID,
    "runAsGroup": UID,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def container(name: str, image: Image, *args: str, **more: Any) -> dict[str, Any]:
    """`args` follow the image's entrypoint; `more` are fields as in YAML."""
    return {
        "name": name,
        "image": image.reference,
        "imagePullPolicy": "Never",
        "args": list(args),
        "securityContext": CONTAINER_SECURITY,
        **more,
    }


def pod(
    namespace: str, name: str, *containers: dict[str, Any], labels: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """It ends a second after it is told to."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {
            "securityContext": POD_SECURITY,
            "terminationGracePeriodSeconds": 1,
            "containers": list(containers),
            **spec,
        },
    }


def service(
    namespace: str, name: str, selector: dict[str, str], port: int, headless: bool = False
) -> dict[str, Any]:
    spec: dict[str, Any] = {"selector": selector, "ports": [{"port": port}]}
    if headless:
        spec["clusterIP"] = "None"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
