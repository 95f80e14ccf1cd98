"""BF16x9: the float32 product that GPU libraries make of nine bfloat16 products, to show what it is worth for float64.

Each float32 number is the sum of three bfloat16 ones, and the sums of their products are float32.

Henry, Tang, Heinecke: Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations. 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary import arrays

from .products.float32_parts import float32_parts, torch_of
from .products.method import Info, Method


@dataclass(frozen=True)
class Bf16x9(Method):
    """Three bfloat16 parts of each float32 number, hence nine products on tensor cores.

    Henry, Tang, Heinecke: Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations. 2019.
    """

    takes: ClassVar[frozenset[str]] = frozenset({"gpu"})

    def multiply(self, a: arrays.Array, b: arrays.Array) -> tuple[arrays.Array, Info]:
        torch = torch_of(a)
        left, right = float32_parts(a.float(), torch.bfloat16, 3), float32_parts(b.float(), torch.bfloat16, 3)
        total = torch.zeros((a.shape[0], b.shape[1]), dtype=torch.float32, device=a.device)
        for d in range(4, -1, -1):
            for p in range(max(0, d - 2), min(d, 2) + 1):
                total += torch.mm(left[p], right[d - p], out_dtype=torch.float32)
        return total.double(), Info("bf16x9", gemms=9)
