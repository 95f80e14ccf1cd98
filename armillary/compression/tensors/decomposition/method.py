"""The methods of every decomposition: it compresses a tensor to a relative error, and restores it."""

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
    """The values that must be kept, from which the tensor can be restored."""

    size: int
    full: Callable[[], Array]


@dataclass(frozen=True)
class Decomposition(Technique):
    """One way to compress a tensor to a relative error."""

    takes: ClassVar[frozenset[str]] = frozenset({"real"})

    eps: float = parameter(0.3, "relative error ‖A − Â‖/‖A‖ that is allowed", range=(0.0, 0.999))

    def compress(self, tensor: Array) -> Compressed:
        """Compresses a tensor."""
        raise NotImplementedError


@dataclass(frozen=True)
class Train(Decomposition):
    """A tensor train made by one kind of SVD, which subclasses name."""

    engine: ClassVar[Engine] = "gesdd"

    def compress(self, tensor: Array) -> Compressed:
        """Compresses a tensor to a train; matrices are folded into modes first."""
        if tensor.ndim != 2:
            train = tt_svd(tensor, self.eps, engine=self.engine)
            return Compressed(train.size, train.full)
        out, into = modes_of(tensor.shape)
        folded = tt_svd(fold(tensor, out, into), self.eps, engine=self.engine)
        return Compressed(folded.size, lambda: unfold(folded.full(), out, into))
