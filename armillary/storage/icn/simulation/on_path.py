"""The strategies that decide, while data walks back from where it was found to its receiver, which nodes of the path keep a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.parameters import parameter

from ..pricing.billing import Report
from ..workload import Network
from .replay import EVERYWHERE, on_path
from .strategy import Strategy


@dataclass(frozen=True)
class OnPath(Strategy):
    """Leaves copies on the delivery path."""

    #: Which of the rules of `replay` decides.
    decides: ClassVar[int] = EVERYWHERE
    #: Whether a copy that is hit rises to the node's first tier.
    rises: ClassVar[bool] = False

    routing: str = parameter("path", "which copy serves: the first one on the path or the nearest one", choices=("path", "nearest"))
    pending: bool = parameter(False, "whether a request for a content that is being fetched waits for it")

    def simulate(self, network: Network) -> Report:
        """Runs the requests, and counts what they used."""
        chance = float(getattr(self, "chance", 0.0))
        seed = int(self.rng.integers(2**31))
        return on_path(
            network, self.decides, chance=chance, rises=self.rises, nearest=self.routing == "nearest", pending=self.pending, seed=seed
        )
