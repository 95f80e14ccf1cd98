"""Float32 products from lower precision: what GPU libraries offer for *float32*, here to show what it is worth for float64.

Each float32 number is the sum of three bfloat16 ones (nine products) or of two TF32 ones (three products); the sums are float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

from armillary import arrays
from armillary.arena import NotForThisCase

from .method import Info, Method


def _parts(x: Any, dtype: Any, count: int) -> list[Any]:
    """x as a sum of `count` float32 tensors, each exact in `dtype`."""
    torch = import_module("torch")
    parts, rest = [], x
    for _ in range(count):
        part = rest.to(dtype) if dtype is not None else ((rest.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
        parts.append(part)
        rest = rest - part.to(torch.float32)
    return parts


@dataclass(frozen=True)
class Bf16x9(Method):
    """Three bfloat16 parts of each float32: nine products on tensor cores.

    Henry, Tang, Heinecke: Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations. 2019.
    """

    takes: ClassVar[frozenset[str]] = frozenset({"gpu"})

    def multiply(self, a: arrays.Array, b: arrays.Array) -> tuple[arrays.Array, Info]:
        torch = _torch(a)
        left, right = _parts(a.float(), torch.bfloat16, 3), _parts(b.float(), torch.bfloat16, 3)
        total = torch.zeros((a.shape[0], b.shape[1]), dtype=torch.float32, device=a.device)
        for d in range(4, -1, -1):
            for p in range(max(0, d - 2), min(d, 2) + 1):
                total += torch.mm(left[p], right[d - p], out_dtype=torch.float32)
        return total.double(), Info("bf16x9", gemms=9)


@dataclass(frozen=True)
class Tf32x3(Method):
    """Two TF32 parts of each float32: three products on tensor cores, the smallest one left out.

    Ootomo, Yokota: Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance. 2022.
    """

    takes: ClassVar[frozenset[str]] = frozenset({"gpu"})

    def multiply(self, a: arrays.Array, b: arrays.Array) -> tuple[arrays.Array, Info]:
        torch = _torch(a)
        left, right = _parts(a.float(), None, 2), _parts(b.float(), None, 2)
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            total = left[1] @ right[0] + left[0] @ right[1] + left[0] @ right[0]
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
        return total.double(), Info("tf32x3", gemms=3)


def _torch(a: arrays.Array) -> Any:
    if arrays.kind_of(a) != "torch" or a.device.type != "cuda":
        raise NotForThisCase("takes PyTorch tensors on a CUDA device")
    return import_module("torch")
