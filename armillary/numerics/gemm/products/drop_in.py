"""Products for a program that has `a @ b`: one call, a drop-in for `numpy.matmul`, and a switch for PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from armillary import arrays
from armillary.errors import InputError, unknown

from ..adp import Adp
from ..native import Native
from ..ozaki2 import Ozaki2
from .method import Method, check_pair

METHODS: dict[str, type[Method]] = {"adp": Adp, "ozaki2": Ozaki2, "native": Native}


def dgemm(
    a: Any,
    b: Any,
    method: str = "auto",
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Any = None,
    return_info: bool = False,
    **parameters: Any,
) -> Any:
    """Returns alpha·a·b + beta·c for float64 matrices of m×k, k×n and m×n; the kind and device of `a`.

    `method` is "adp", "ozaki2", "native", or "auto": whichever is fastest on this device at the bits that these matrices need, by
    rates that were measured there once. `parameters` are the method's own (`max_slices=12`). With `return_info` the answer comes with an
    `Info`.
    """
    check_pair(a, b)
    if (c is None) != (beta == 0.0):
        raise InputError("found beta without c, or c without beta; expected both or neither")
    if method == "auto":
        from .rates import fastest

        chosen: Method = fastest(a, b)
    elif method in METHODS:
        from armillary.parameters import with_parameters

        chosen = with_parameters(METHODS[method], parameters, where=method)
    else:
        raise unknown("method", method, ["auto", *METHODS])
    product, info = chosen.multiply(a, b)
    if alpha != 1.0:
        product = alpha * product
    if c is not None:
        if tuple(c.shape) != tuple(product.shape):
            raise InputError(f"c: found the shape {tuple(c.shape)}; expected {tuple(product.shape)}")
        arrays.device_of(product, c)
        product = product + beta * c
    return (product, info) if return_info else product


@dataclass(frozen=True)
class Emulated:
    """A drop-in for `numpy.matmul` on float64 matrices: `Emulated(max_slices=10)(a, b)`."""

    max_slices: int = 10
    method: str = "adp"

    def __call__(self, a: Any, b: Any) -> Any:
        """Returns a·b."""
        if self.method == "adp":
            return dgemm(a, b, "adp", max_slices=self.max_slices)
        return dgemm(a, b, self.method)


@contextmanager
def emulated_matmul(torch: Any = None, method: str = "adp", **parameters: Any) -> Iterator[None]:
    """Makes PyTorch take products of two float64 matrices (`@`, `torch.mm`, `torch.matmul`) by `method` inside the block."""
    torch = torch or import_module("torch")
    if method != "auto" and method not in METHODS:
        raise unknown("method", method, ["auto", *METHODS])

    class Mode(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            products = (torch.matmul, torch.mm, torch.Tensor.matmul, torch.Tensor.mm, torch.Tensor.__matmul__)
            if function in products and len(args) == 2 and not kwargs and all(_float64_matrix(torch, x) for x in args):
                with torch._C.DisableTorchFunction():
                    return dgemm(args[0], args[1], method, **parameters)
            return function(*args, **(kwargs or {}))

    with Mode():
        yield


def _float64_matrix(torch: Any, x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dtype == torch.float64 and x.ndim == 2 and not x.requires_grad
