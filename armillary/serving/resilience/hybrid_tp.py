"""Hybrid attention runs as many heads as divide evenly in tensor parallel, and the others in data parallel, on one GPU per request.

If requests are spread well, no GPU has a head more than the others in any layer. Here requests go to ranks in turn, and prompts run one
after another. This is the third step towards FailSafe (arXiv 2511.14116, 2025), with the recovery of nonuniform-tp.
"""

from __future__ import annotations

from dataclasses import dataclass

from .simulation.elastic import Elastic
from .simulation.service import Resilient, Service
from .workload import ResilienceWork


@dataclass(frozen=True)
class HybridTp(Resilient):
    """Left-over heads are data parallel, and requests go to ranks in turn. After arXiv 2511.14116, 2025."""

    def service(self, work: ResilienceWork) -> Service:
        """Returns the elastic group with this part and those before it."""
        return Elastic(work, placement="hybrid", load_aware=False, backup_share=0.0, lazy=True)
