"""The inspection of two matrices before they are multiplied: whether all entries are finite, and how far exponents spread."""

from __future__ import annotations

from armillary import arrays

from ..products.method import cuda_kernels, finite
from .exponents import default_block, exponents, span


def look(a: arrays.Array, b: arrays.Array, block: int = 0) -> int | None:
    """Returns the Exponent Span Capacity of a·b, from blocks of `block` inner indices (0 chooses); None where something is not finite.

    On a CUDA device with Triton each matrix is read once and 12 bytes come back; blocks are powers of two there.
    """
    kernels = cuda_kernels("cuda_kernels", a, b)
    if kernels is not None:
        clean, wide, hidden = kernels.look(a, b, 1 << (block or default_block(a.shape[1])).bit_length() - 1)
        if not hidden:
            return wide if clean else None
    return span(exponents(a), exponents(b), block or None) if finite(a, b) else None
