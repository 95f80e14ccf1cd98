"""Cases of the user as TOML files.

    shape = [512, 1024]          # all ranks together
    decomposition = [1, 2]
    halo = 1
    dtype = "float64"
    order = "C"
    periodic = [false, true]
    stencil = "faces"            # or "faces+corners"
    iterations = 100
    fields = 1

`shape` and `decomposition` are needed; the other keys have defaults.
"""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown
from armillary.files import read_text
from armillary.network.halo.exchange.geometry import check_local, share

_LONGEST = 1 << 16
_DEFAULTS: dict[str, Any] = {
    "shape": None, "decomposition": None, "halo": 1, "dtype": "float64", "order": "C", "periodic": None, "stencil": "faces",
    "iterations": 100, "fields": 1,
}  # fmt: skip
MOST_RANKS, MOST_BYTES = 64, 1 << 31


def read_case_or_deck(path: str | Path, ranks: int = 1) -> Any:
    """Return what a file holds: a deck of CloverLeaf if it begins like one, checked for this many ranks, or a case."""
    from .clover import is_deck, parse_deck

    text = read_text(path, limit=_LONGEST)
    if not is_deck(text):
        return read_case(path)
    from armillary.network.halo.clover.block import block
    from armillary.network.halo.exchange.geometry import balanced

    deck, (rows, columns) = parse_deck(text, str(path)), balanced(ranks, 2)
    try:
        block(deck, (rows, columns))
    except InputError as error:
        raise InputError(error.message, where=str(path)) from None
    return deck


def read_case(path: str | Path) -> dict[str, Any]:
    """Return a case as the ranks take it, checked."""
    where = str(path)
    try:
        found = tomllib.loads(read_text(path, limit=_LONGEST))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"found no TOML: {error}", where=where) from None
    for key in found:
        if key not in _DEFAULTS:
            raise unknown("key", key, _DEFAULTS, where=where)
    case = {**_DEFAULTS, **found}
    shape = _numbers(case["shape"], "shape", 1, 1 << 24, where)
    axes = len(shape)
    if axes > 3:
        raise InputError(f"shape: found {axes} dimensions; expected 1 to 3", where=where)
    dims = _numbers(case["decomposition"], "decomposition", 1, MOST_RANKS, where)
    if len(dims) != axes or math.prod(dims) > MOST_RANKS:
        raise InputError(f"decomposition: found {dims}; expected {axes} numbers with a product of at most {MOST_RANKS} ranks", where=where)
    (width,) = _numbers([case["halo"]], "halo", 1, 64, where)
    (steps,) = _numbers([case["iterations"]], "iterations", 1, 1_000_000, where)
    (fields,) = _numbers([case["fields"]], "fields", 1, 16, where)
    wraps = [False] * axes if case["periodic"] is None else case["periodic"]
    if not isinstance(wraps, list) or len(wraps) != axes or not all(isinstance(x, bool) for x in wraps):
        raise InputError(f"periodic: found {wraps}; expected {axes} times true or false", where=where)
    if case["stencil"] not in ("faces", "faces+corners"):
        raise unknown("stencil", str(case["stencil"]), ("faces", "faces+corners"), where=where)
    if case["order"] not in ("C", "F"):
        raise unknown("order", str(case["order"]), ("C", "F"), where=where)
    dtype = _dtype(case["dtype"], where)
    _check_blocks(shape, dims, width, where)
    if math.prod(n + 2 * width * p for n, p in zip(shape, dims)) * dtype.itemsize * fields * 3 > MOST_BYTES:
        raise InputError(f"shape: found {shape} with {fields} fields; expected arrays of at most 700 MB together", where=where)
    return {
        "shape": shape, "decomposition": dims, "halo": width, "dtype": dtype.str, "order": case["order"], "periodic": wraps,
        "stencil": case["stencil"], "steps": min(steps, 1000), "exchanges": min(steps, 100), "fields": fields,
    }  # fmt: skip


def _numbers(found: Any, name: str, least: int, most: int, where: str) -> list[int]:
    if not isinstance(found, list) or not found:
        raise InputError(f"{name}: found {found!r}; expected a list of whole numbers, such as [512, 512]", where=where)
    for one in found:
        if isinstance(one, bool) or not isinstance(one, int) or not least <= one <= most:
            raise InputError(f"{name}: found {one!r}; expected whole numbers from {least} to {most}", where=where)
    return [int(one) for one in found]


def _dtype(name: Any, where: str) -> np.dtype[Any]:
    try:
        found = np.dtype(str(name))
    except (TypeError, ValueError, SyntaxError):
        raise InputError(f"dtype: found {name!r}; expected a type of NumPy, such as float64", where=where) from None
    if found.kind not in "biufc" or not found.isnative:
        raise InputError(f"dtype: found {name!r}; expected numbers, such as float64, because objects have no bytes to send", where=where)
    return found


def _check_blocks(shape: list[int], dims: list[int], width: int, where: str) -> None:
    for rank, at in enumerate(np.ndindex(*dims)):
        spans = [share(n, parts, i) for n, parts, i in zip(shape, dims, at)]
        try:
            check_local([high - low + 2 * width for low, high in spans], width, rank)
        except InputError as error:
            raise InputError(error.message, where=where) from None
