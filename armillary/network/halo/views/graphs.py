"""A whole time step in few launches: on the host one compiled call between two exchanges, as a captured graph is one launch on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.network.halo.clover.step import EXCHANGES, extent

from .streams import Call

if TYPE_CHECKING:
    from .ladder import Rung


def segments(rung: Rung, parity: int) -> list[tuple[bool, Call]]:
    """Return the calls of a step on the host: eight segments, six exchanges, and the reduction."""
    from armillary.network.halo.clover import segments as compiled

    block, deck = rung.block, rung.block.deck
    along = 1 - parity % 2
    sweeps = [extent(block, over, axis) for axis in (along, 1 - along) for over in ("faces", "lines", "between")]
    rects = np.array([extent(block, "cells", 1), extent(block, "nodes", 1), *sweeps], np.int64)
    fields = tuple(rung.whole[name] for name in compiled.ARRAYS)
    common = (fields, rects, rung.clock, np.array([deck.dx, deck.dy]), deck.timestep_rise, deck.max_timestep, along)

    def given(number: int) -> tuple[Any, ...]:
        """What `pack` takes for an exchange."""
        return _moves(rung, number, 0)

    def got(number: int) -> tuple[Any, ...]:
        """What mirrors take after an exchange, and `unpack`."""
        names = EXCHANGES[number][0]
        return rung._mirrors[number], tuple(rung.whole[name] for name in names), *_moves(rung, number, 1)

    def messages(number: int) -> list[tuple[bool, Call]]:
        """The calls of an exchange between packing and unpacking."""
        halo = rung.halos[number]
        start, finish = halo.calls
        return [(call[0] in halo.away, call) for call in (*start[1:], *finish[:-1])]

    between = (compiled.shocks, None, compiled.correct, compiled.sweep, compiled.second_sweep)
    calls: list[tuple[bool, Call]] = [(True, (compiled.first_gas, (*common, *given(0))))]
    for number, segment in enumerate(between):
        calls += messages(number)
        if segment is not None:
            calls.append((True, (segment, (*common, *got(number), *given(number + 1)))))
        else:
            calls.append((True, (compiled.limit, (*common, *got(number)))))
            calls += rung.reduce()[:-1]
            calls.append((True, (compiled.predict, (*common, *given(number + 1)))))
    calls += messages(5)
    calls.append((True, (compiled.end, (*common, *got(5)))))
    return calls


def _moves(rung: Rung, number: int, end: int) -> tuple[Any, ...]:
    """The table, buffer and fields of packing (0) or unpacking (1); an empty table where the rank has no neighbours."""
    halo: Any = rung.halos[number]
    if halo.around:
        call: Call = halo.calls[0][0] if end == 0 else halo.calls[1][-1]
        return call[1]
    solid = tuple(rung.whole[name][None] for name in EXCHANGES[number][0])
    return np.empty((0, 8), np.int64), np.empty(0), solid
