"""The methods of every modelled processor, which estimates time and energy of making the trains of some tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Technique
from armillary.errors import InputError
from armillary.parameters import parameter

from ..decomposition.tensor_train import TT, tt_svd
from ..workload import Tensors
from .edge import EdgeProcessor, Estimate, of_train, total
from .edge import Kind as Processor


@dataclass(frozen=True)
class OnProcessor(Technique):
    """A modelled edge processor that makes trains by the split SVD."""

    takes: ClassVar[frozenset[str]] = frozenset({"edge"})
    kind: ClassVar[Processor] = "gemm-only"

    eps: float = parameter(0.3, "relative error that is allowed", range=(0.0, 0.999))

    def estimate(self, tensors: Tensors, processor: EdgeProcessor | None = None) -> Estimate:
        """Returns time and energy for all layers."""
        return on_processor([tt_svd(a, self.eps, engine="plain") for a in tensors.layers.values()], self.kind, processor)


def on_processor(trains: list[TT], kind: Processor, processor: EdgeProcessor | None = None) -> Estimate:
    """Returns time and energy of making these trains."""
    p = processor or EdgeProcessor()
    if any(len(t.sweeps) != len(t.unfoldings) for t in trains):
        raise InputError("estimate: found a train without its sweeps; expected one made with engine='plain' or 'split'")
    return total([made for t in trains for made in of_train(t, kind, p)], kind, p)
