"""Makes the arrays inside a value read-only, so that techniques that share their input cannot change it for each other."""

from __future__ import annotations

import sys
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

T = TypeVar("T")

#: Of a long sequence whose first elements hold no array, the rest is taken to hold none.
LOOKED_AT = 64
PLAIN = (int, float, complex, str, bytes, bool, type(None))


def frozen(value: T) -> T:
    """`value` itself, after every NumPy array that is reachable from it was made read-only.

    It looks into tuples, lists, dictionaries, dataclasses, SciPy's sparse matrices and other objects of this package. Tables of Polars
    and Arrow cannot be changed anyway; tensors of PyTorch have no such flag.
    """
    _freeze(value, set())
    return value


def _freeze(value: Any, seen: set[int]) -> bool:
    """Whether there was any array in it."""
    if isinstance(value, PLAIN) or id(value) in seen:
        return False
    seen.add(id(value))
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        value.setflags(write=False)
        return True
    held = False
    for part in _parts(value, seen):
        held |= _freeze(part, seen)
    return held


def _parts(value: Any, seen: set[int]) -> list[Any]:
    if isinstance(value, dict):
        return _some(list(value.values()), seen)
    if isinstance(value, list | tuple):
        return _some(value, seen)
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, one.name, None) for one in fields(value)]
    module = type(value).__module__
    if module.startswith(("armillary", "scipy.sparse")) and not isinstance(value, type):
        return list(getattr(value, "__dict__", {}).values())
    return []


def _some(values: Any, seen: set[int]) -> list[Any]:
    """All of them, or the first ones of a long sequence in which those hold no array."""
    if len(values) > LOOKED_AT:
        held = [_freeze(part, seen) for part in values[:LOOKED_AT]]
        return list(values[LOOKED_AT:]) if any(held) else []
    return list(values)
