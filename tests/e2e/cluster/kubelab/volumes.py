# SPDX-License-Identifier: Apache-2.0
"""Volumes without a provisioner: a folder of the machine, claimed beforehand by one name."""

from pathlib import Path
from typing import Any

NAMESPACE_LABEL = "lab/namespace"  # a volume is in none; by this it is found when the namespace goes


def shared(namespace: str, name: str, folder: Path) -> list[dict[str, Any]]:
    """The volume and its claim. Pods may not mount paths of the machine under pod security, but claims."""
    volume = f"{namespace}-{name}"
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    size = {"storage": "1Gi"}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume, "labels": {NAMESPACE_LABEL: namespace}},
            "spec": {
                **common,
                "capacity": size,
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": namespace, "name": name},
                "hostPath": {"path": str(folder), "type": "Directory"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {**common, "volumeName": volume, "resources": {"requests": size}},
        },
    ]
