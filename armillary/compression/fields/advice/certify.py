"""Checks independently whether a compressed field keeps its bound, and what became of its spectrum and gradients.

It shares no arithmetic with the compressor beyond decoding: the bound is computed anew from the array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError


@dataclass(frozen=True)
class Certificate:
    """Whether every value is within the bound, the largest error with its bound and place, and errors of derived quantities.

    `max_error` and `bound` belong to the value at `place`, which is the worst against its own bound. `spectrum_error` is the largest
    relative error of the radial power spectrum below a quarter of the shortest axis, `gradient_error` the root mean square error of
    differences along all axes over that of the field; both are NaN where the field is not finite.
    """

    holds: bool
    max_error: float
    bound: float
    place: tuple[int, ...]
    ratio: float
    psnr_dB: float
    spectrum_error: float
    gradient_error: float


def certify(x: Any, data: bytes) -> Certificate:
    """Says whether `data` gives `x` back within the bound that it states, and how well."""
    from ..pipeline.container import read_head
    from ..pipeline.fz import checked_array, decompress
    from .metrics import errors, radial_spectrum, spectrum_error

    array, head = checked_array(x), read_head(memoryview(data))[0]
    if array.shape != head.shape or array.dtype != head.dtype:
        raise InputError(f"found {head.dtype} of shape {head.shape} in the file; the array is {array.dtype} of shape {array.shape}")
    back = decompress(data)
    finite = np.isfinite(array)
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.where(finite, np.abs(wide - back.astype(np.float64)), 0.0)
        inside = wide[finite]
        width = float(inside.max() - inside.min()) if inside.size else 0.0
        allowed = {
            "abs": np.full(array.shape, head.bound),
            "rel": np.full(array.shape, head.bound * width),
            "pw_rel": head.bound * np.abs(wide),
        }[head.mode]
    odd = not np.array_equal(array[~finite].view(f"u{array.itemsize}"), back[~finite].view(f"u{array.itemsize}"))
    holds = not odd and bool(np.all(error[finite] <= allowed[finite]))
    with np.errstate(all="ignore"):
        worst = np.where(error == 0, 0.0, error / allowed)
    at = int(np.argmax(worst)) if worst.size else 0
    place = tuple(int(i) for i in np.unravel_index(at, array.shape)) if array.size else ()
    whole = array.size > 1 and bool(finite.all()) and bool(np.isfinite(back).all())
    return Certificate(
        holds=holds, max_error=float(error.reshape(-1)[at]) if array.size else 0.0, bound=float(allowed.reshape(-1)[at]) if
        array.size else head.bound,
        place=place, ratio=array.nbytes / len(data), psnr_dB=errors(array, back)[1],
        spectrum_error=spectrum_error(radial_spectrum(array), radial_spectrum(back)) if whole else float("nan"),
        gradient_error=_gradient_error(wide, back.astype(np.float64)) if whole else float("nan"),
    )  # fmt: skip


def _gradient_error(x: np.ndarray, y: np.ndarray) -> float:
    wrong = size = 0.0
    for axis in range(x.ndim):
        slope = np.diff(x, axis=axis)
        wrong += float(np.sum((np.diff(y, axis=axis) - slope) ** 2))
        size += float(np.sum(slope**2))
    return float(np.sqrt(wrong / size)) if size else 0.0
