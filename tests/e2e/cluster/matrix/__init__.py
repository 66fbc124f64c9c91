# SPDX-License-Identifier: Apache-2.0
"""The fault matrix: each cause of lost leadership against each method of the fence, many pods at once."""

from .causes import CAUSES, GROUPS, Cause
from .methods import METHODS, Method
from .run import Run
from .wave import Wave, cells

__all__ = ["CAUSES", "GROUPS", "METHODS", "Cause", "Method", "Run", "Wave", "cells"]
