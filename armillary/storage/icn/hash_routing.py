"""hash-routing: each content has one home node, chosen by a hash, which requests visit first.

No content is stored twice, so the caches together hold the most contents; the price is a detour over the home node.

Saino, Psaras, Pavlou: Hash-routing schemes for information centric networking. ACM ICN workshop, 2013.
"""

from __future__ import annotations

from typing import ClassVar

from .simulation.on_path import OnPath
from .simulation.replay import HOME


class HashRouting(OnPath):
    """One home node per content (ICN 2013)."""

    decides: ClassVar[int] = HOME
