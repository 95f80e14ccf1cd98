"""Local SGD: each worker trains alone for H steps, and then all go on from the mean of their weights.

It is DiLoCo without an outer optimizer (η = 1, μ = 0), and shows what the outer momentum brings.

Local SGD Converges Fast and Communicates Little, arXiv 1805.09767 (ICLR 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from armillary.arena import parameter

from .diloco import DiLoCo
from .workers.scheme import ONE_STAGE, LocalSteps, Scheme, Synchronised

if TYPE_CHECKING:
    from armillary.comm import Communicator

    from .workers.inner import Inner


@dataclass(frozen=True)
class LocalSgd(Synchronised):
    """The mean of the weights after every H steps; inner optimizers keep their state."""

    takes: ClassVar[frozenset[str]] = ONE_STAGE

    bits: Literal[32, 16, 4] = parameter(32, "bits per element on the wire: weights in float32, or differences in bfloat16 or four bits")

    def scheme(self, stage: str, inner: Inner, every: int, ranks: Communicator) -> Scheme:
        """Rounds of `every` inner steps that end with an average."""
        return LocalSteps(inner, DiLoCo(inner.model, inner, "average", every, ranks, bits=self.bits))
