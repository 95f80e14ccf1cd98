"""TF32x3: the float32 product that GPU libraries make of three TF32 products, to show what it is worth for float64.

Each float32 number is the sum of two TF32 ones, and the product of the two small parts is left out.

Ootomo, Yokota: Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance. 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary import arrays

from .products.float32_parts import float32_parts, torch_of
from .products.method import Info, Method


@dataclass(frozen=True)
class Tf32x3(Method):
    """Two TF32 parts of each float32 number, hence three products on tensor cores, because the smallest one is left out.

    Ootomo, Yokota: Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance. 2022.
    """

    takes: ClassVar[frozenset[str]] = frozenset({"gpu"})

    def multiply(self, a: arrays.Array, b: arrays.Array) -> tuple[arrays.Array, Info]:
        torch = torch_of(a)
        left, right = float32_parts(a.float(), None, 2), float32_parts(b.float(), None, 2)
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            total = left[1] @ right[0] + left[0] @ right[1] + left[0] @ right[0]
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
        return total.double(), Info("tf32x3", gemms=3)
