"""What a reduction makes of a variable: fewer points (decimation) or fewer bytes per point (compression), and what it costs to compute."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown
from armillary.network.transport.blocks.decomposition import Ints

KINDS = ("none", "decimation", "compression")
COMPRESSORS = ("fixed", "sz", "zfp")
#: Factor on the flops per element, and the dimensions that each interpolation needs.
INTERPOLATIONS = {"none": (1, 0), "linear": (2, 1), "quadratic": (4, 2), "cubic": (8, 3)}


@dataclass(frozen=True)
class Reduction:
    """One reduction of every variable of a stream.

    Decimation keeps every s-th point of each dimension and costs m·c flops per element of the block. Compression divides the bytes by r and
    costs `flops` per element at both sides; r is `ratio` (fixed), or follows the error bound `eps` as SZ's or ZFP's does.
    """

    kind: str = "none"
    side: str = "publisher"
    stride: tuple[int, ...] = ()
    interpolation: str = "none"
    compressor: str = "fixed"
    ratio: float = 10.0
    eps: float = 1e-3
    smoothness: float = 0.5
    variation: float = 0.0
    flops: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for what, found, known in (("reduction", self.kind, KINDS), ("side", self.side, ("publisher", "subscriber")),
                                   ("interpolation", self.interpolation, INTERPOLATIONS),
                                   ("compressor", self.compressor, COMPRESSORS)):  # fmt: skip
            if found not in known:
                raise unknown(what, str(found), known)
        if self.kind == "compression" and self.side == "subscriber":
            raise InputError("found compression at the subscriber; expected it at the publisher, before the data move")
        limits = {"ratio": (1.0, 1e9), "eps": (1e-15, 1.0), "smoothness": (0.0, 1.0), "variation": (0.0, 1.0), "flops": (0.0, 1e9)}
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise InputError(f"{name}: found {value!r}; expected {low:g} to {high:g}")
        if any(isinstance(s, bool) or not isinstance(s, int) or s < 1 for s in self.stride):
            raise InputError(f"stride: found {list(self.stride)}; expected whole numbers of 1 or more")

    def strides(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The stride in each dimension; by default every second point of the last two."""
        if self.kind != "decimation":
            return (1,) * len(shape)
        found = self.stride or (1,) * max(len(shape) - 2, 0) + (2,) * min(len(shape), 2)
        if len(found) != len(shape):
            raise InputError(f"stride: found {len(found)} numbers; expected {len(shape)}, one per dimension")
        needed = INTERPOLATIONS[self.interpolation][1]
        if len(shape) < needed:
            raise InputError(f"interpolation: found {self.interpolation} for {len(shape)} dimensions; expected at least {needed}")
        return found

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape that is left."""
        return tuple(-(-d // s) for d, s in zip(shape, self.strides(shape), strict=True))

    def blocks(self, shape: Sequence[int], start: Ints, count: Ints) -> tuple[Ints, Ints]:
        """What is left of blocks: the kept points inside them."""
        stride = np.array(self.strides(shape), np.int64)
        first = -(-start // stride)
        return first, np.maximum(-(-(start + count) // stride) - first, 0)

    def ratio_at(self, variable: str, transaction: int) -> float:
        """By what compression divides the bytes of one transaction."""
        if self.kind != "compression":
            return 1.0
        if self.compressor == "fixed":
            r = self.ratio
        elif self.compressor == "sz":
            r = max(1.0, 24.4 * self.eps**0.181 * (0.5 + self.smoothness))
        else:
            r = max(1.0, 64.0 / max(1.0, -math.log2(self.eps) + 1.0))
        if self.variation == 0.0:
            return r
        drawn = hashlib.sha256(f"{self.seed}\t{variable}\t{transaction}".encode()).digest()[:8]
        h = int.from_bytes(drawn, "big") / (1 << 64)
        return max(1.0, r * (1.0 + self.variation * (2.0 * h - 1.0)))

    def bytes_of(self, elements: Any, itemsize: int, variable: str, transaction: int) -> Any:
        """Bytes of so many elements, rounded up."""
        ratio = self.ratio_at(variable, transaction)
        whole = np.asarray(elements, np.float64) * itemsize
        return whole if ratio == 1.0 else np.ceil(whole / ratio)

    def flops_at(self, side: str, elements: Any) -> Any:
        """Flops that one side spends on so many elements before reduction."""
        if self.kind == "decimation" and side == self.side:
            return INTERPOLATIONS[self.interpolation][0] * self.flops * np.asarray(elements, np.float64)
        if self.kind == "compression":
            return self.flops * np.asarray(elements, np.float64)
        return 0.0 * np.asarray(elements, np.float64)
