"""The operations that combine two buffers in a reduction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.comm.virtual.ghost import Ghost

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Op:
    """An associative operation: `function(lower, higher)` combines the buffers of lower and of higher ranks into one of the same shape.

    `commutative` says that the two may be exchanged. `elementwise` says that element i of the answer depends on the elements i alone, so
    that an algorithm may cut the buffer.
    """

    function: Callable[[Array, Array], Any]
    name: str = "user"
    commutative: bool = False
    elementwise: bool = False
    #: The kinds of NumPy types for which every MPI library has this operation with the same answer; empty for a user's own operation.
    native: str = ""

    def __call__(self, lower: Array, higher: Array) -> Array:
        """Return the combination in the type of `lower`. Two ghosts combine to a ghost without a call of the function."""
        if isinstance(lower, Ghost) or isinstance(higher, Ghost):
            return lower if isinstance(lower, Ghost) else higher
        return np.asarray(self.function(lower, higher)).astype(lower.dtype, copy=False).reshape(lower.shape)


SUM = Op(np.add, "sum", True, True, "iufc")
PROD = Op(np.multiply, "prod", True, True, "iuf")
MIN = Op(np.minimum, "min", True, True, "iu")
MAX = Op(np.maximum, "max", True, True, "iu")
LAND = Op(np.logical_and, "land", True, True, "iu")
LOR = Op(np.logical_or, "lor", True, True, "iu")
LXOR = Op(np.logical_xor, "lxor", True, True, "iu")
BAND = Op(np.bitwise_and, "band", True, True, "iu")
BOR = Op(np.bitwise_or, "bor", True, True, "iu")
BXOR = Op(np.bitwise_xor, "bxor", True, True, "iu")
