"""Packed halos: each side is copied into a contiguous buffer, sent, and copied out on the other side.

This is what most codes do by hand. The five calls are messages, persistent messages, one collective call among neighbours, its persistent
form, and partitioned messages, in which each side leaves as soon as it is packed. Persistent and partitioned calls are the strongest rivals
of datatypes (arXiv 2508.13370, 2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import parameter

from .exchanging import CALLS, Exchanging
from .measuring.measured import Strategy


@dataclass(frozen=True)
class Packed(Exchanging):
    """Packed halos through one of MPI's calls."""

    call: str = parameter("p2p", "the call of MPI", choices=CALLS)
    packer: str = parameter("numpy", "what copies: NumPy or a compiled loop", choices=("numpy", "numba"))
    corners: str = parameter("auto", "corners as messages of their own, or axis by axis", choices=("auto", "phases"))

    takes: ClassVar[frozenset[str]] = frozenset({"exchange"})

    def strategy(self) -> Strategy:
        """What the ranks are asked to do."""
        return Strategy("packed", self.call, packer=self.packer, corners=self.corners)
