"""cl4m: one copy per delivery, at the node of the path that most shortest paths cross.

Such a node sees the requests of many receivers, so a copy there serves more of them than a copy at the edge.

Chai, He, Psaras, Pavlou: Cache “less for more” in information-centric networks. IFIP Networking, 2012.
"""

from __future__ import annotations

from typing import ClassVar

from .simulation.on_path import OnPath
from .simulation.replay import CENTRAL


class Cl4m(OnPath):
    """One copy at the most central node of the path (Networking 2012)."""

    decides: ClassVar[int] = CENTRAL
