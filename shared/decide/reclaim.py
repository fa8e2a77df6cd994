"""Pods of a workload whose quota will not be needed again (core rule 9.2)."""

from __future__ import annotations

from collections.abc import Mapping


def capped(reclaimable: Mapping[str, int], sizes: Mapping[str, int]) -> dict[str, int]:
    """Reclaimable pods by pod set, none more than the pod set has; a pod set of unknown size stays as it is."""
    return {name: min(count, sizes.get(name, count)) for name, count in reclaimable.items()}
