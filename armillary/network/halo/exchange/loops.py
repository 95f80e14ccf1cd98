"""The compiled loop that packs and unpacks blocks."""

from __future__ import annotations

from armillary.kernels import kernel


@kernel
def copy(to, of):  # type: ignore[no-untyped-def]
    """Copies a three-dimensional block, whatever the strides of both."""
    for i in range(of.shape[0]):
        for j in range(of.shape[1]):
            for k in range(of.shape[2]):
                to[i, j, k] = of[i, j, k]
