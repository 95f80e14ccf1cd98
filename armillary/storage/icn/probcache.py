"""probcache: a copy is likelier where the caches further down are large and the data has come far.

The probability weighs the room on the rest of the path against the traffic that competes for it, so copies spread out over the path.

Psaras, Chai, Pavlou: Probabilistic in-network caching for information-centric networks. ACM ICN workshop, 2012.
"""

from __future__ import annotations

from typing import ClassVar

from .simulation.on_path import OnPath
from .simulation.replay import PROBCACHE


class ProbCache(OnPath):
    """A copy with a probability that depends on the room ahead and the distance (ICN 2012)."""

    decides: ClassVar[int] = PROBCACHE
