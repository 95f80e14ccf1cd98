"""DiLoCo in pretraining and data parallelism afterwards: can ordinary mid-training and fine-tuning recover what DiLoCo lost?

One of the two crossed arms of the study; on pretraining alone it would be DiLoCo, so it takes only cases with all stages.

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
class DilocoThenDdp(Synchronised):
    """DiLoCo until the end of pretraining, then data parallelism."""

    takes: ClassVar[frozenset[str]] = frozenset({"sft"})

    def scheme(self, stage: str, inner: Inner, every: int, ranks: Communicator) -> Scheme:
        """DiLoCo's scheme in pretraining, and data parallelism's in the other stages."""
        return (Diloco() if stage == "pretrain" else Ddp()).scheme(stage, inner, every, ranks)

    def pretrains_as(self) -> Synchronised:
        """DiLoCo's pretraining."""
        return Diloco()
