# SPDX-License-Identifier: Apache-2.0
"""Metas on a real Kubernetes, as an operator installs and sees them."""

from .brokenapi import BrokenApi
from .deployment import Deployment
from .labeler import OperatorLabeler
from .meta import CallFailed, Meta
from .pod import SimPod
from .prober import Prober
from .recorder import Change, LabelRecorder, is_handed_over
from .registry import Compute, Registry

__all__ = [
    "BrokenApi",
    "CallFailed",
    "Change",
    "Compute",
    "Deployment",
    "LabelRecorder",
    "Meta",
    "OperatorLabeler",
    "Prober",
    "Registry",
    "SimPod",
    "is_handed_over",
]
