"""Cyclic placement: the odd heads go round with the layers, so that every GPU holds as many (head, layer) pairs, give or take one.

Memory is even and the cache larger; every layer still waits for the GPU that has one head more. The second rung of FailSafe's ladder
(arXiv 2511.14116, 2025); recovery as in nonuniform-tp.
"""

from __future__ import annotations

from dataclasses import dataclass

from .elastic import Elastic
from .service import Resilient, Service
from .workload import ResilienceWork


@dataclass(frozen=True)
class CyclicTp(Resilient):
    """Odd heads rotated over the layers: even memory, uneven layers. After arXiv 2511.14116, 2025."""

    def service(self, work: ResilienceWork) -> Service:
        """The elastic group with this part and those before it."""
        return Elastic(work, placement="cyclic", load_aware=False, backup_share=0.0, lazy=True)
