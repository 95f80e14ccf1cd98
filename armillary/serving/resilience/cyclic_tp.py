"""Cyclic placement rotates the odd heads over the layers, so that every GPU holds the same number of (head, layer) pairs, within one.

Memory is even and the cache larger, but every layer still waits for the GPU that has one head more. This is the second step towards
FailSafe (arXiv 2511.14116, 2025), with the recovery of nonuniform-tp.
"""

from __future__ import annotations

from dataclasses import dataclass

from .simulation.elastic import Elastic
from .simulation.service import Resilient, Service
from .workload import ResilienceWork


@dataclass(frozen=True)
class CyclicTp(Resilient):
    """Odd heads rotate over the layers, so memory is even and layers are not. After arXiv 2511.14116, 2025."""

    def service(self, work: ResilienceWork) -> Service:
        """Returns the elastic group with this part and those before it."""
        return Elastic(work, placement="cyclic", load_aware=False, backup_share=0.0, lazy=True)
