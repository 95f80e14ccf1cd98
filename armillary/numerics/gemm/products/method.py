"""The methods of every way of multiplying."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from armillary import arrays
from armillary.arena import Technique
from armillary.errors import InputError

#: Half the distance from 1 to the next float64, which is the unit of errors.
UNIT = 2.0**-53
#: Why a product of numbers that digits cannot hold is native.
NOT_FINITE = "infinities or NaNs"


@dataclass(frozen=True)
class Info:
    """Facts about a product: `gemms` low-precision products (0 for native), `slices` of each number, `span` in bits where it was found.

    `fallback` says why native float64 was taken instead, "" where it was not. `bound` is a proven bound of |Ĉ − C| in units of
    u·(|A||B|), for every entry; infinite where none is known. `overhead_s` are the seconds spent looking and deciding.
    """

    method: str
    gemms: int = 0
    slices: int = 0
    span: int | None = None
    fallback: str = ""
    bound: float = math.inf
    overhead_s: float = 0.0


class Method(Technique):
    """One way to multiply two float64 matrices. Subclasses are frozen dataclasses whose fields are the parameters."""

    def multiply(self, a: arrays.Array, b: arrays.Array) -> tuple[arrays.Array, Info]:
        """Returns a·b, of the kind and on the device of `a` and `b` (m×k and k×n, float64), and what it took."""
        raise NotImplementedError

    def __call__(self, a: Any, b: Any) -> Any:
        """Returns a·b, as `numpy.matmul` gives it for two matrices."""
        check_pair(a, b)
        return self.multiply(a, b)[0]


def check_pair(a: arrays.Array, b: arrays.Array) -> None:
    """Refuses what is not a pair of float64 matrices that can be multiplied."""
    arrays.device_of(a, b)
    for name, x in (("a", a), ("b", b)):
        if x.ndim != 2:
            raise InputError(f"{name}: found {x.ndim} dimensions; expected 2")
        dtype = str(x.dtype).removeprefix("torch.")
        if dtype != "float64":
            raise InputError(f"{name}: found {dtype}; expected float64 (convert it first where that is meant)")
    if a.shape[1] != b.shape[0]:
        raise InputError(f"found {a.shape[1]} columns of a and {b.shape[0]} rows of b; expected as many")


def empty_product(a: arrays.Array, b: arrays.Array) -> arrays.Array | None:
    """Returns the product where some size is zero, else None."""
    if 0 not in (*a.shape, *b.shape):
        return None
    xp = arrays.namespace(a, b)
    return xp.zeros((a.shape[0], b.shape[1]), dtype=xp.float64, device=arrays.device_of(a))


def finite(a: arrays.Array, b: arrays.Array) -> bool:
    """Says whether neither holds an infinity or NaN; on a device one byte is read back."""
    xp = arrays.namespace(a, b)
    return bool(xp.all(xp.isfinite(a)) & xp.all(xp.isfinite(b)))


def cuda_kernels(name: str, *matrices: arrays.Array) -> Any:
    """Returns a module of Triton kernels where the matrices are PyTorch tensors on a CUDA device and Triton is there, else None."""
    if arrays.kind_of(*matrices) != "torch" or matrices[0].device.type != "cuda" or find_spec("triton") is None:
        return None
    return import_module(f"armillary.numerics.gemm.digits.{name}")
