"""lce-tiers: every node on the delivery path keeps a copy, and a copy that is hit rises to the fastest tier.

This is lce over caches of several tiers that are run as one multi-level LRU.

Wong, Wilkes: My cache or yours? Making storage more exclusive. USENIX ATC, 2002.
"""

from __future__ import annotations

from typing import ClassVar

from .simulation.on_path import OnPath


class LceTiers(OnPath):
    """A copy everywhere, which rises to the fastest tier when it is hit (ATC 2002)."""

    rises: ClassVar[bool] = True
