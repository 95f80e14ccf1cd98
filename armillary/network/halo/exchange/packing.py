"""Copies between blocks of an array and contiguous buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown

Array = np.ndarray[Any, Any]
Copy = Callable[[Array, Array], Any]
PACKERS = ("numpy", "numba")


def packer(name: str) -> Copy:
    """Return the function that copies one array into another of the same shape: NumPy's own or a compiled loop."""
    if name == "numpy":
        return np.copyto
    if name == "numba":
        return _compiled
    raise unknown("packer", name, PACKERS)


def _compiled(to: Array, of: Array) -> None:
    from .loops import copy

    if of.ndim > 3:
        raise InputError(f"packer numba: found {of.ndim} dimensions; expected at most 3")
    place = (None,) * (3 - of.ndim)
    copy(to[place], of[place])
