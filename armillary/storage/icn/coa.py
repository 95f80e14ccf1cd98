"""coa: the more expensive the link over which the data came, the likelier a copy is kept.

Caches then hold what is expensive to fetch again, rather than only what is asked for most.

Araldo, Rossi, Martignon: Cost-aware caching: optimizing cache provisioning and object placement in ICN. IEEE GLOBECOM, 2014.
"""

from __future__ import annotations

from typing import ClassVar

from .simulation.on_path import OnPath
from .simulation.replay import PRICE


class Coa(OnPath):
    """A copy with a probability in proportion to the link's price (GLOBECOM 2014)."""

    decides: ClassVar[int] = PRICE
