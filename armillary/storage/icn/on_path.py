"""The strategies that cost-based caching is measured against: where does a copy stay when data walks back?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from .billing import Report
from .replay import CENTRAL, CHANCE, EDGE, EVERYWHERE, HOME, ONE_DOWN, PRICE, PROBCACHE, on_path
from .strategy import Strategy
from .workload import Network


@dataclass(frozen=True)
class OnPath(Strategy):
    """Copies on the way of the data."""

    decides: ClassVar[int] = EVERYWHERE
    rises: ClassVar[bool] = False

    routing: str = field(
        default="path", metadata={"doc": "who serves: the first on the way or the nearest", "choices": ("path", "nearest")}
    )
    pending: bool = field(default=False, metadata={"doc": "whether a request for what is being fetched waits for it"})

    def simulate(self, network: Network) -> Report:
        """Runs the requests."""
        chance = float(getattr(self, "chance", 0.0))
        seed = int(self.rng.integers(2**31))
        return on_path(
            network, self.decides, chance=chance, rises=self.rises, nearest=self.routing == "nearest", pending=self.pending, seed=seed
        )


class Lce(OnPath):
    """Leave a copy everywhere on the way (Jacobson and others: Networking Named Content, 2009)."""


class Lcd(OnPath):
    """Leave a copy down: one hop below where it was found (Laoutaris, Che, Stavrakakis: The LCD interconnection of LRU caches, 2006)."""

    decides = ONE_DOWN


@dataclass(frozen=True)
class Prob(OnPath):
    """A copy at each node with a fixed probability (Laoutaris, Syntila, Stavrakakis: Meta algorithms for hierarchical web caches, 2004)."""

    decides = CHANCE

    chance: float = field(default=0.3, metadata={"doc": "probability of a copy at a node", "range": (0.0, 1.0)})


class ProbCache(OnPath):
    """Likelier where caches further down are large and the data has come far (Psaras, Chai, Pavlou: Probabilistic in-network caching,
    2012)."""

    decides = PROBCACHE


class Cl4m(OnPath):
    """One copy at the node of the way that most shortest paths cross (Chai and others: Cache "less for more" in information-centric
    networks, 2012)."""

    decides = CENTRAL


class Edge(OnPath):
    """A copy at the receiver's own node only (Fayazbakhsh and others: Less pain, most of the gain, 2013)."""

    decides = EDGE


class HashRouting(OnPath):
    """Each content has one home node, which requests visit first (Saino, Psaras, Pavlou: Hash-routing schemes for ICN, 2013)."""

    decides = HOME


class Coa(OnPath):
    """Likelier the dearer the link that the data came over (Araldo, Rossi, Martignon: Cost-aware caching, 2014)."""

    decides = PRICE


class LceTiers(OnPath):
    """A copy everywhere, and what is hit rises to the fastest tier (multi-level LRU as in Wong, Wilkes: My cache or yours?, 2002)."""

    rises = True
