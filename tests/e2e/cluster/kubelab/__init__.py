# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes of several nodes in namespaces of one machine: no registry, no route out."""

from .api import CommandError
from .audit import AuditLog, Request
from .cluster import Cluster
from .faults import Block
from .images import METAFENCE, METASIM, POD, POSTGRES, UID, Image
from .layout import API_PORT, CONTROL_PLANE, POSTGRES_PORT, LabError
from .node import Node
from .postgres import Database, Postgres
from .settings import Settings
from .store import Store

__all__ = [
    "API_PORT",
    "CONTROL_PLANE",
    "METAFENCE",
    "METASIM",
    "POD",
    "POSTGRES",
    "POSTGRES_PORT",
    "UID",
    "AuditLog",
    "Block",
    "Cluster",
    "CommandError",
    "Database",
    "Image",
    "LabError",
    "Node",
    "Postgres",
    "Request",
    "Settings",
    "Store",
]
