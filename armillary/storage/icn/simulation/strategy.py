"""What every caching strategy has in common."""

from __future__ import annotations

from armillary.arena import Technique

from ..pricing.billing import Report
from ..workload import Network


class Strategy(Technique):
    """One way to decide which copies a network of caches keeps."""

    def simulate(self, network: Network) -> Report:
        """Runs the requests, and counts what they used."""
        raise NotImplementedError
