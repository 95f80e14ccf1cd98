"""Data parallelism in pretraining and DiLoCo afterwards: does DiLoCo cost less where the model is already good?

One of the two crossed arms of the study; on pretraining alone it would be data parallelism, so it takes only cases with all stages.

What happens when nanochat meets DiLoCo?, arXiv 2511.13761, 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .ddp import Ddp
from .diloco import Diloco
from .workers.scheme import Scheme, Synchronised

if TYPE_CHECKING:
    from armillary.comm import Communicator

    from .workers.inner import Inner


@dataclass(frozen=True)
class DdpThenDiloco(Synchronised):
    """Data parallelism until the end of pretraining, then DiLoCo."""

    takes: ClassVar[frozenset[str]] = frozenset({"sft"})

    def scheme(self, stage: str, inner: Inner, every: int, ranks: Communicator) -> Scheme:
        """Data parallelism's scheme in pretraining, and DiLoCo's in the other stages."""
        return (Ddp() if stage == "pretrain" else Diloco()).scheme(stage, inner, every, ranks)

    def pretrains_as(self) -> Synchronised:
        """Data parallelism's pretraining."""
        return Ddp()
