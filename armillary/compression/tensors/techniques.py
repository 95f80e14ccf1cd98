"""Ways to make a tensor small: trains by four decompositions, Tucker, one matrix SVD; and two modelled processors that make trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from armillary.arena import Claim, Gain, Kind, Level, Technique
from armillary.errors import InputError

from .edge import EdgeProcessor, Estimate, of_train, total
from .edge import Kind as Processor
from .modes import fold, modes_of, unfold
from .tensor_train import TT, Engine, tt_svd
from .workload import Tensors

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Compressed:
    """Values that must be kept, and how to make the tensor again."""

    size: int
    full: Callable[[], Array]


@dataclass(frozen=True)
class Decomposition(Technique):
    """One way to compress a tensor to a relative error."""

    takes: ClassVar[frozenset[str]] = frozenset({"real"})

    eps: float = field(default=0.3, metadata={"doc": "relative error ‖A − Â‖/‖A‖ that is allowed", "range": (0.0, 0.999)})

    def compress(self, tensor: Array) -> Compressed:
        """The tensor in small."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Train(Decomposition):
    engine: ClassVar[Engine] = "gesdd"

    def compress(self, tensor: Array) -> Compressed:
        """Matrices are folded into modes first."""
        if tensor.ndim != 2:
            train = tt_svd(tensor, self.eps, engine=self.engine)
            return Compressed(train.size, train.full)
        out, into = modes_of(tensor.shape)
        folded = tt_svd(fold(tensor, out, into), self.eps, engine=self.engine)
        return Compressed(folded.size, lambda: unfold(folded.full(), out, into))


class TtSvd(_Train):
    """Tensor train by LAPACK's SVD (Oseledets: Tensor-train decomposition, 2011)."""


class TtSplit(_Train):
    """Tensor train by the split SVD: bidiagonalisation, then QR iteration (Golub, Kahan: Calculating the singular values, 1965)."""

    engine = "split"
    claims = (
        Claim("ratio", by=Level(at_least=2.0), on=Kind("digits"), says="a high ratio: at least 2 on a network that was trained"),
        Claim("accuracy_drop", by=Level(at_most=1.0), on=Kind("digits"), says="little accuracy lost: at most a point, at that ratio"),
    )


class TtRsvd(_Train):
    """Tensor train by random sketches with one power step (Halko, Martinsson, Tropp: Finding structure with randomness, 2011)."""

    engine = "random"


class TtQr(_Train):
    """Tensor train by column-pivoted QR, cut where the rest is small (Businger, Golub: Linear least squares by Householder, 1965)."""

    engine = "qr"


@dataclass(frozen=True)
class Tucker(Decomposition):
    """A core and one factor for each mode (De Lathauwer, De Moor, Vandewalle: A multilinear singular value decomposition, 2000)."""

    def compress(self, tensor: Array) -> Compressed:
        """HOSVD, truncated mode by mode."""
        d = tensor.ndim
        tail = self.eps / d**0.5 * float(np.linalg.norm(tensor))
        core, factors = tensor, []
        for axis in range(d):
            unfolding = np.moveaxis(core, axis, 0).reshape(core.shape[axis], -1)
            values, vectors = np.linalg.eigh(unfolding @ unfolding.T)
            lost = np.cumsum(np.maximum(values, 0))
            rank = max(1, len(values) - int(np.searchsorted(lost, tail**2, side="right")))
            factor = np.ascontiguousarray(vectors[:, ::-1][:, :rank])
            core = np.moveaxis(np.tensordot(factor, core, (0, axis)), 0, axis)
            factors.append(factor)

        def full() -> Array:
            made = core
            for axis, factor in enumerate(factors):
                made = np.moveaxis(np.tensordot(factor, made, (1, axis)), 0, axis)
            return made

        return Compressed(core.size + sum(factor.size for factor in factors), full)


@dataclass(frozen=True)
class MatrixSvd(Decomposition):
    """One unfolding, outputs by the rest, cut by its singular values (Eckart, Young: The approximation of one matrix by another, 1936)."""

    def compress(self, tensor: Array) -> Compressed:
        """A train of two modes."""
        train = tt_svd(tensor.reshape(tensor.shape[0], -1), self.eps, engine="gesdd")
        return Compressed(train.size, lambda: train.full().reshape(tensor.shape))


@dataclass(frozen=True)
class OnProcessor(Technique):
    """A modelled edge processor that makes trains by the split SVD."""

    takes: ClassVar[frozenset[str]] = frozenset({"edge"})
    kind: ClassVar[Processor] = "gemm-only"

    eps: float = field(default=0.3, metadata={"doc": "relative error that is allowed", "range": (0.0, 0.999)})

    def estimate(self, tensors: Tensors, processor: EdgeProcessor | None = None) -> Estimate:
        """Time and energy for all layers."""
        return on_processor([tt_svd(a, self.eps, engine="split") for a in tensors.layers.values()], self.kind, processor)


def on_processor(trains: list[TT], kind: Processor, processor: EdgeProcessor | None = None) -> Estimate:
    """Time and energy of making these trains."""
    p = processor or EdgeProcessor()
    if any(len(t.sweeps) != len(t.unfoldings) for t in trains):
        raise InputError("estimate: found a train without its sweeps; expected one made with engine='split'")
    return total([made for t in trains for made in of_train(t, kind, p)], kind, p)


class GemmOnly(OnProcessor):
    """The matrix accelerator alone: the core makes every reflection and drives every call (the baseline of TT-Edge, 2025)."""


class TtEdge(OnProcessor):
    """TT-Edge: an engine on the accelerator's scratchpad makes and applies the reflections, sorts and truncates.

    TT-Edge: A Hardware-Software Co-Design for Energy-Efficient Tensor-Train Decomposition on Edge AI. arXiv 2511.13738, 2025. From the
    paper: the split, what the engine does, its share of the power. Ours: every other constant of the model.
    """

    kind = "tt-edge"
    claims = (
        Claim(
            "edge_ms", over="gemm-only", by=Gain(ratio=(1.7, None)), on=Kind("edge", "resnet32"), honest=(1.4, 2.1), part=1.15,
            says="1.7 times faster on ResNet-32's weights", why="a model of another chip; above 2.1 it would flatter the engine",
        ),
        Claim(
            "edge_mJ", over="gemm-only", by=Gain(percent=(40.2, None)), on=Kind("edge", "resnet32"), honest=(30.0, 50.0), part=15.0,
            says="40.2 % less energy on ResNet-32's weights (derived: the engine's power is an input)",
            why="follows from the time and the powers that go in",
        ),
        Claim(
            "edge_mW", over="gemm-only", by=Gain(percent=(-4.0, None)), on=Kind("edge", "resnet32"),
            says="4 % more power", circular="the engine adds 4 % by assumption",
        ),
    )  # fmt: skip
