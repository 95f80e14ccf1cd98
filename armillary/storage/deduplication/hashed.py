"""hash: every chunk is an object of its own, on the node that its fingerprint says.

No container, no locality and nothing to relocate: each chunk is a request. Design of global data deduplication for a scale-out
distributed storage system, IEEE ICDCS 2018 (Ceph's chunk pool).
"""

from __future__ import annotations

from dataclasses import dataclass

from .layout import Layout
from .technique import Placement
from .workload import Workload


@dataclass(frozen=True)
class Hashed(Placement):
    """One object a chunk, placed by fingerprint (ICDCS 2018)."""

    def lay(self, work: Workload) -> Layout:
        """Chunk c is the only slot of container c; the container's number stands for the fingerprint."""
        now = work.final()
        return Layout(now, now, 1)
