"""Orders for stages that turn around at the ends of the pipeline: even rounds run from the first rank to the last, odd ones back.

Consecutive rounds meet on one rank, which saves a transfer per turn. No closed form is known for the best order, so a list scheduler
makes several, and whoever asks simulates them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.errors import InputError

from ..simulation.schedule import IntArray, Schedule
from ..simulation.simulator import FloatArray
from .listed import Course, list_schedule, urgency


def snake_ranks(ranks: int, rounds: int) -> IntArray:
    """The rank of each stage: j mod p in even rounds, p − 1 − (j mod p) in odd ones."""
    place, turn = np.arange(ranks * rounds) % ranks, np.arange(ranks * rounds) // ranks
    return np.where(turn % 2 == 0, place, ranks - 1 - place)


def snake(
    ranks: int, micros: int, rounds: int, seconds_f: FloatArray, seconds_b: FloatArray, transfer_s: float = 0.0
) -> Iterator[Schedule]:
    """Schedules by several rules (deepest first, shallowest first, groups of p), with and without a limit of chunks in flight."""
    if ranks < 1 or micros < 1 or rounds < 1:
        raise InputError(f"found {ranks} ranks, {micros} micro-batches and {rounds} rounds; expected at least one of each")
    depth = ranks * rounds
    shape = (depth, micros)
    position, number = np.broadcast_to(np.arange(depth)[:, None], shape), np.broadcast_to(np.arange(micros)[None, :], shape)
    following = np.append(np.arange(1, depth), -1)
    order = (np.arange(micros),) * depth
    forward, backward = (np.ascontiguousarray(np.broadcast_to(np.asarray(each, float)[:, None], shape)) for each in (seconds_f, seconds_b))
    oldest = urgency(number, -position)
    rules = (urgency(-position, number), urgency(position, number), urgency(number // ranks, position, number), oldest)
    for limit in (depth - np.arange(depth), np.full(depth, micros)):
        for rule in rules:
            for keys_f, keys_b in ((rule + rule.max() + oldest.max() + 1, oldest), (rule, oldest + 0.25)):
                try:
                    yield list_schedule(
                        Course(snake_ranks(ranks, rounds), following, order, order, forward, backward, keys_f, keys_b, limit, transfer_s)
                    )
                except InputError:
                    continue
