"""Sorts lines within windows of 65 536, so that lines with equal redundant fields are neighbours; 16 bits per line undo it.

This is for logs whose line order need not be visible within a window. Lines that do not fit, headers and comments stay where they are.
It goes beyond the paper and is our design.
"""

from __future__ import annotations

import numpy as np

from armillary.errors import InputError

from ..records.formats import Format
from ..records.split import parse

#: Lines of a window; its index holds places of 16 bits.
WINDOW = 1 << 16
_PLACE = np.dtype("<u2")


def sort_rows(data: bytes, form: Format, fields: int) -> tuple[bytes, bytes]:
    """Sorts the lines within windows by their first `fields` fields.

    Returns the sorted lines, and for each of them its original place in the window as 16 bits.
    """
    _check_window()
    if not 1 <= fields <= form.fields:
        raise InputError(f"rows: found {fields} fields to sort by; expected 1 to {form.fields}")
    begins, starts, ends, fits = parse(np.frombuffer(data, np.uint8), form.fields, *form.code)
    fits = fits.copy()
    if len(fits):
        # A header row fits but must stay; a last line without its newline cannot move.
        fits[0] = fits[0] and not (form.names and form.name in ("csv", "tsv", "netflow"))
        fits[-1] = fits[-1] and data.endswith(b"\n")
    order = np.arange(len(fits))
    bounds, first, last = begins.tolist(), starts[:, 0].tolist(), ends[:, fields - 1].tolist()
    for window in range(0, len(fits), WINDOW):
        movable = np.flatnonzero(fits[window : window + WINDOW]) + window
        order[movable] = sorted(movable.tolist(), key=lambda i: data[first[i] : last[i]])
    lines = [data[bounds[i] : bounds[i + 1]] for i in order.tolist()]
    return b"".join(lines), (order % WINDOW).astype(_PLACE).tobytes()


def restore_rows(data: bytes, index: bytes) -> bytes:
    """Puts the lines back into their original order."""
    _check_window()
    pieces = data.split(b"\n")
    lines = [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
    if len(index) != 2 * len(lines):
        raise InputError(f"rows: found an index of {len(index)} bytes; expected two for each of {len(lines)} lines")
    local = np.frombuffer(index, _PLACE).astype(np.int64)
    place = local + np.arange(len(lines)) // WINDOW * WINDOW
    restored: list[bytes] = [b""] * len(lines)
    if len(np.unique(place)) != len(lines) or (len(place) and int(place.max()) >= len(lines)):
        raise InputError("rows: found an index with repeats or places behind the end; expected each line once")
    for line, where in zip(lines, place.tolist(), strict=True):
        restored[where] = line
    return b"".join(restored)


def _check_window() -> None:
    if np.iinfo(_PLACE).max < WINDOW - 1:
        raise ValueError(f"a window of {WINDOW} lines does not fit {8 * _PLACE.itemsize} bits per line")
