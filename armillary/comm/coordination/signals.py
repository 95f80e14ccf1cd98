"""Signals: 64-bit counters that say how far a sender has got."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.errors import InputError


def check_signal(signal: Any) -> None:
    """Raise `InputError` unless the signal is None or a writable array of one or more 64-bit integers."""
    if signal is None:
        return
    kind = getattr(signal, "dtype", None)
    if str(kind).removeprefix("torch.") not in ("int64", "uint64"):
        found = type(signal).__name__ if kind is None else f"an array of {kind}"
        raise InputError(f"signal: found {found}; expected an array of int64 or uint64, or None")
    if not len(signal.shape) or 0 in signal.shape:
        raise InputError(f"signal: found an array of shape {tuple(signal.shape)}; expected at least one element in one dimension")
    if isinstance(signal, np.ndarray) and not signal.flags.writeable:
        raise InputError("signal: found a read-only array; expected one to write into")


def growing(call: Callable[..., None], peer: str) -> Callable[..., None]:
    """Return the call with a check that refuses a value which is not more than the one before, for the same pair and location."""
    last: dict[tuple[int, int], int] = {}
    #: The arrays, kept alive so that an address means one location.
    held: dict[tuple[int, int], Any] = {}

    def checked(*args: Any) -> None:
        signal, value, rank = args[-3:]
        check_signal(signal)
        if not 0 < value < 2**63:
            raise InputError(f"value: found {value}; expected 1 to 2**63 - 1")
        key = (0 if signal is None else _address(signal), rank)
        before = last.get(key, 0)
        if value <= before:
            raise InputError(f"value: found {value} for {peer} {rank}, which is stale; expected more than the {before} before")
        call(*args)
        last[key], held[key] = value, signal

    return checked


def _address(signal: Any) -> int:
    found: int = signal.ctypes.data if isinstance(signal, np.ndarray) else signal.data_ptr()
    return found
