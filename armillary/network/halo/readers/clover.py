"""CloverLeaf's input decks, `clover.in`.

    *clover
     state 1 density=0.2 energy=1.0
     state 2 density=1.0 energy=2.5 geometry=rectangle xmin=0.0 xmax=5.0 ymin=0.0 ymax=2.0
     x_cells=960
     y_cells=960
     xmin=0.0 ymin=0.0 xmax=10.0 ymax=10.0
     initial_timestep=0.04
     max_timestep=0.04
     end_step=87
     test_problem 2
    *endclover

Words are separated by blanks, commas or equals signs, in upper or lower case; what follows ! or ; is a comment. Keys that only concern
CloverLeaf's own output and kernels are read over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from armillary.errors import InputError, unknown
from armillary.files import read_text
from armillary.network.halo.clover.deck import GEOMETRIES, Deck, State

_LONGEST = 1 << 16
#: Every rung of the ladder has fields of its own, of 168 bytes per cell.
MOST_CELLS, MOST_STATES = 1 << 20, 100
_WHOLE = {"x_cells": 2, "y_cells": 2, "end_step": 1, "test_problem": 0}
_REAL = ("xmin", "xmax", "ymin", "ymax", "initial_timestep", "max_timestep", "timestep_rise", "end_time")
#: Keys that change nothing here, with the number of values that follow them.
_PASSED = {
    "visit_frequency": 1, "summary_frequency": 1, "tiles_per_chunk": 1, "tiles_per_problem": 1, "use_fortran_kernels": 0,
    "use_c_kernels": 0, "use_oa_kernels": 0, "profiler_on": 0,
}  # fmt: skip
_STATE = tuple(one.name for one in fields(State) if one.name != "geometry")
_BEGIN, _END = "*clover", "*endclover"


def is_deck(text: str) -> bool:
    """Return whether a file begins as a deck does, after blank lines and comments."""
    return next((words[0] for _, words in _lines(text)), "") == _BEGIN


def parse_deck(text: str, where: str) -> Deck:
    """Return the deck of a text; whatever is wrong with it is an `InputError` with its line."""
    values: dict[str, Any] = {}
    states: dict[int, State] = {}
    state_lines: dict[int, int] = {}
    inside = ended = False
    for number, words in _lines(text):
        at = f"{where}:{number}"
        if words[0] == _BEGIN and not inside and not ended:
            inside = True
        elif words[0] == _END and inside:
            inside, ended = False, True
        elif words[0].startswith("*"):
            raise InputError(f"found {words[0]}; expected one block from {_BEGIN} to {_END}", where=at)
        elif inside:
            if words[0] == "state":
                index = _whole(words[1:2], "state", 1, MOST_STATES, at)
                if index in states:
                    raise InputError(f"state {index}: found it twice, first in line {state_lines[index]}", where=at)
                states[index], state_lines[index] = _state(words[2:], index, at), number
            else:
                _settings(words, values, at)
    if not ended:
        raise InputError(f"found no {_END if inside else _BEGIN}; expected a block from {_BEGIN} to {_END}", where=where)
    if set(states) != set(range(1, len(states) + 1)) or not states:
        raise InputError(f"found states {sorted(states)}; expected 1 and so on, of which state 1 is the background", where=where)
    deck = Deck(tuple(states[i] for i in sorted(states)), **values)
    _check(deck, where)
    return deck


def read_deck(path: str | Path) -> Deck:
    """Return the deck in a file."""
    return parse_deck(read_text(path, limit=_LONGEST), str(path))


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """The words of each line that has any."""
    for number, line in enumerate(text.split("\n"), start=1):
        kept = line.split("!")[0].split(";")[0].lower().replace("=", " ").replace(",", " ")
        if words := kept.split():
            yield number, words


def _settings(words: list[str], values: dict[str, Any], at: str) -> None:
    """Read the keys of one line and their values."""
    place = 0
    while place < len(words):
        key, rest = words[place], words[place + 1 : place + 2]
        if key in values:
            raise InputError(f"{key}: found it twice; expected it once", where=at)
        if key in _WHOLE:
            values[key] = _whole(rest, key, _WHOLE[key], 1 << 30, at)
        elif key in _REAL:
            values[key] = _real(rest, key, at)
        elif key in _PASSED:
            place += _PASSED[key] - 1
        else:
            raise unknown("key", key, (*_WHOLE, *_REAL, *_PASSED, "state"), where=at)
        place += 2


def _state(words: list[str], index: int, at: str) -> State:
    found: dict[str, Any] = {}
    for key, value in zip(words[::2], [*words[1::2], ""]):
        if key in found:
            raise InputError(f"state {index}: found {key} twice; expected it once", where=at)
        if key == "geometry":
            if value not in GEOMETRIES:
                raise unknown("geometry", value, GEOMETRIES, where=at)
            found[key] = value
        elif key in _STATE:
            found[key] = _real([value] if value else [], key, at)
        else:
            raise unknown("key", key, (*_STATE, "geometry"), where=at)
    for key, least in (("density", "more than 0"), ("energy", "0 or more")):
        value = found.get(key, math.nan)
        if not (value > 0 if key == "density" else value >= 0):
            shown = found.get(key, "none")
            raise InputError(f"state {index}: found {key} {shown}; expected {least}", where=at)
    if not found.get("radius", 0.0) >= 0:
        raise InputError(f"state {index}: found radius {found['radius']}; expected 0 or more", where=at)
    return State(**found)


def _whole(words: list[str], key: str, least: int, most: int, at: str) -> int:
    try:
        value = int(words[0]) if words and len(words[0]) < 20 else None
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise InputError(f"{key}: found {words[0] if words else 'nothing'}; expected a whole number from {least} to {most}", where=at)
    return value


def _real(words: list[str], key: str, at: str) -> float:
    try:
        # Fortran writes the exponent of a double with d.
        value = float(words[0].replace("d", "e")) if words and "_" not in words[0] else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or abs(value) > 1e100:
        raise InputError(f"{key}: found {words[0] if words else 'nothing'}; expected a number", where=at)
    return value


def _check(deck: Deck, where: str) -> None:
    for low, high, key in ((deck.xmin, deck.xmax, "xmax"), (deck.ymin, deck.ymax, "ymax")):
        if not high - low > 1e-100:
            raise InputError(f"{key}: found {high}; expected more than {low}", where=where)
    if deck.x_cells * deck.y_cells > MOST_CELLS:
        raise InputError(f"x_cells: found {deck.x_cells} × {deck.y_cells} cells; expected at most {MOST_CELLS} together", where=where)
    for key in ("initial_timestep", "max_timestep", "timestep_rise", "end_time"):
        if not getattr(deck, key) > 0:
            raise InputError(f"{key}: found {getattr(deck, key)}; expected more than 0", where=where)
