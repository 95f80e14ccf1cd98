"""What every caching strategy has in common."""

from __future__ import annotations

from armillary.arena import Technique

from .billing import Report
from .workload import Network


class Strategy(Technique):
    """One way to decide which copies a network of caches keeps; frozen dataclasses whose fields are its parameters."""

    def simulate(self, network: Network) -> Report:
        """Runs the requests, and counts."""
        raise NotImplementedError
