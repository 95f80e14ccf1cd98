"""The offset of two clocks from exchanges of time stamps in both directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError


def two_way_offset(
    t1: npt.ArrayLike, t2: npt.ArrayLike, t3: npt.ArrayLike, t4: npt.ArrayLike, *, where: str | None = None
) -> tuple[Any, Any, Any]:
    """(offset, delay, error) of the remote clock against the local one, in the unit of the stamps; numbers or arrays.

    The local clock stamps a request t1 and the answer's arrival t4, the remote one the request's arrival t2 and its answer t3:

        offset = ((t2 − t1) + (t3 − t4))/2        delay = ((t4 − t1) − (t3 − t2))/2

    The offset is wrong by half of what the two passages differ, which is at most the delay: that is the error.
    """
    a, b, c, d = (np.asarray(t, np.float64) for t in (t1, t2, t3, t4))
    for early, late, said in ((a, d, "an answer that arrived at {late:g}, before its request left at {early:g}"),
                              (b, c, "an answer that left at {late:g}, before its request arrived at {early:g}")):  # fmt: skip
        wrong = np.atleast_1d(~(late >= early))
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            facts = {"early": float(np.atleast_1d(early)[row]), "late": float(np.atleast_1d(late)[row])}
            raise InputError(f"found {said.format(**facts)}; expected it later", where=_place(where, row))
    delay = ((d - a) - (c - b)) / 2
    negative = np.atleast_1d(delay < 0)
    if negative.any():
        row = int(np.flatnonzero(negative)[0])
        raise InputError(
            "found an answer that took longer at the remote clock than between request and arrival; expected a delay of at least 0",
            where=_place(where, row),
        )
    offset = ((b - a) + (c - d)) / 2
    found = offset, delay, delay.copy()
    return found if offset.ndim else (float(found[0]), float(found[1]), float(found[2]))


def _place(where: str | None, row: int) -> str:
    return f"{where}:{row + 1}" if where else f"exchange {row + 1}"
