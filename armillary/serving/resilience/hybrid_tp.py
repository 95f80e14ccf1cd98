"""Hybrid attention: as many heads as divide evenly are tensor parallel; the others are data parallel, each request's on one GPU.

No layer has a GPU with a head more than the others, if requests are spread well: here they go round in turn, and prompts run one after
another. The third rung of FailSafe's ladder (arXiv 2511.14116, 2025); recovery as in nonuniform-tp.
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
        """The elastic group with this part and those before it."""
        return Elastic(work, placement="hybrid", load_aware=False, backup_share=0.0, lazy=True)
