"""hash: every chunk is an object of its own, on the node that its fingerprint selects.

There is no container and no locality, and nothing to relocate, so every chunk costs one request.

Design of global data deduplication for a scale-out distributed storage system, IEEE ICDCS 2018 (Ceph's chunk pool).
"""

from __future__ import annotations

from dataclasses import dataclass

from .layouts.layout import Layout
from .layouts.placement import Placement
from .workload import Workload


@dataclass(frozen=True)
class Hashed(Placement):
    """One object per chunk, placed by its fingerprint (ICDCS 2018)."""

    def lay(self, work: Workload) -> Layout:
        """Chunk c is the only slot of container c; the container's number stands for the fingerprint."""
        now = work.final()
        return Layout(now, now, 1)
