"""How many micro-batches' activations a stage holds at the worst moment, by the kind of schedule."""

from __future__ import annotations

import functools

import numpy as np

from armillary.errors import unknown

from ..orders.interleaved import interleaved
from ..orders.one_way import gpipe_order, one_f_one_b_order, zb_h1_order
from ..simulation.schedule import Schedule
from ..simulation.simulator import RELEASED, Costs, FloatArray, simulate

ORDERS = ("1f1b", "interleaved", "zb-h1")


@functools.lru_cache(maxsize=64)
def order(name: str, ranks: int, micros: int, chunks: int = 1) -> Schedule:
    """A schedule by the name of its kind."""
    if name == "1f1b":
        return one_f_one_b_order(ranks, micros)
    if name == "gpipe":
        return gpipe_order(ranks, micros)
    if name == "zb-h1":
        return zb_h1_order(ranks, micros)
    if name == "interleaved":
        return interleaved(ranks, micros, chunks)
    raise unknown("order", name, ("gpipe", *ORDERS))


def in_flight(name: str, ranks: int, micros: int, chunks: int = 1) -> FloatArray:
    """Micro-batches in flight per stage, in pipeline order (chunk 0 of all ranks first).

    1F1B holds min(m, p − s). Interleaved 1F1B holds (v − 1)p + 2(p − s − 1) + 1 chunks on rank s: p + max(0, p − 2s − 1) of the first
    chunk, p + min(0, p − 2s − 1) of the last, p of each between them, and never more than m. ZB-H1 is read off its simulation, because I
    releases a part.
    """
    rank = np.arange(ranks)
    if name == "1f1b":
        return np.minimum(micros, ranks - rank).astype(float)
    if name == "interleaved" and chunks > 1:
        turn = ranks - 2 * rank - 1
        rows = [ranks + np.maximum(0, turn), *[np.full(ranks, ranks)] * (chunks - 2), ranks + np.minimum(0, turn)]
        return np.minimum(micros, np.concatenate(rows)).astype(float)
    schedule = order(name, ranks, micros, chunks)
    ones = np.ones(schedule.stages)
    return simulate(schedule, Costs(ones, ones, ones, kept=ones, released=RELEASED)).peak


@functools.lru_cache(maxsize=64)
def live(name: str, ranks: int, micros: int, chunks: int) -> tuple[FloatArray, ...]:
    """For every rank, the numbers of micro-batches in flight by chunk (one row per moment) of which none is below another throughout.

    With chunks of different sizes the worst moment of a rank need not be the one with the most chunks in flight, so a plan must fit all of
    them.
    """
    schedule = order(name, ranks, micros, chunks)
    change = np.array([1.0, -RELEASED, RELEASED - 1.0, -1.0])[schedule.kind]
    found: list[FloatArray] = []
    for r in range(ranks):
        at = slice(int(schedule.offsets[r]), int(schedule.offsets[r + 1]))
        table = np.zeros((at.stop - at.start, chunks))
        table[np.arange(len(table)), schedule.stage[at] // ranks] = change[at]
        moments = np.unique(np.round(np.cumsum(table, 0), 9), axis=0)
        above = [(moments >= row - 1e-9).all(1) & (moments > row + 1e-9).any(1) for row in moments]
        found.append(moments[[not each.any() for each in above]].astype(np.float64))
    return tuple(found)
