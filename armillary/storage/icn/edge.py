"""edge: only the node at which a request arrives keeps a copy.

Caches inside the network add little once the edge caches, so nothing else needs to cache.

Fayazbakhsh and others: Less pain, most of the gain: incrementally deployable ICN. ACM SIGCOMM, 2013.
"""

from __future__ import annotations

from typing import ClassVar

from .simulation.on_path import OnPath
from .simulation.replay import EDGE


class Edge(OnPath):
    """A copy at the receiver's own node only (SIGCOMM 2013)."""

    decides: ClassVar[int] = EDGE
