"""prob: each node on the delivery path keeps a copy with a fixed probability.

A content that is asked for once rarely leaves copies behind, whereas a popular one soon does.

Laoutaris, Syntila, Stavrakakis: Meta algorithms for hierarchical web caches. IEEE IPCCC, 2004.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.parameters import parameter

from .simulation.on_path import OnPath
from .simulation.replay import CHANCE


@dataclass(frozen=True)
class Prob(OnPath):
    """A copy at each node with a fixed probability (IPCCC 2004)."""

    decides: ClassVar[int] = CHANCE

    chance: float = parameter(0.3, "probability of a copy at a node", range=(0.0, 1.0))
