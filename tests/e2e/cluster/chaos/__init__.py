# SPDX-License-Identifier: Apache-2.0
"""Random trouble on the cluster, from a seed, and a judge of what the metas did meanwhile."""
