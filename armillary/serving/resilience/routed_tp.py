"""Hybrid attention with load-aware routing sends a request's left-over heads to the rank with the least work.

Prompts of several ranks run side by side in an iteration, so that their left-over heads do, too. This is FailSafe without its mirror
(arXiv 2511.14116, 2025), with the recovery of nonuniform-tp.
"""

from __future__ import annotations

from dataclasses import dataclass

from .simulation.elastic import Elastic
from .simulation.service import Resilient, Service
from .workload import ResilienceWork


@dataclass(frozen=True)
class RoutedTp(Resilient):
    """Left-over heads are data parallel on the least loaded rank; there is no mirror. After arXiv 2511.14116, 2025."""

    def service(self, work: ResilienceWork) -> Service:
        """Returns the elastic group with this part and those before it."""
        return Elastic(work, placement="hybrid", load_aware=True, backup_share=0.0, lazy=True)
