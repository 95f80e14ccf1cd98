"""What every decomposition offers: a tensor made small to a relative error, and made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.arena import Technique
from armillary.parameters import parameter

from .modes import fold, modes_of, unfold
from .tensor_train import Engine, tt_svd

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

    eps: float = parameter(0.3, "relative error ‖A − Â‖/‖A‖ that is allowed", range=(0.0, 0.999))

    def compress(self, tensor: Array) -> Compressed:
        """The tensor in small."""
        raise NotImplementedError


@dataclass(frozen=True)
class Train(Decomposition):
    """A tensor train made by one kind of SVD, which subclasses name."""

    engine: ClassVar[Engine] = "gesdd"

    def compress(self, tensor: Array) -> Compressed:
        """Matrices are folded into modes first."""
        if tensor.ndim != 2:
            train = tt_svd(tensor, self.eps, engine=self.engine)
            return Compressed(train.size, train.full)
        out, into = modes_of(tensor.shape)
        folded = tt_svd(fold(tensor, out, into), self.eps, engine=self.engine)
        return Compressed(folded.size, lambda: unfold(folded.full(), out, into))
