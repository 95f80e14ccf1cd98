"""Orders for two copies of the model, one of which runs from the first rank to the last and the other the opposite way.

Half of the micro-batches takes each direction, so while one copy waits for its pipeline to fill, the other one works. Each rank holds
two copies of a stage's worth of weights, and the gradients of both copies are added at the end. The down stages are 0 to D − 1, the up
stages D to 2D − 1, where D = p·r for `reuse` r.

Chimera merges the two directions without conflicts if forward and backward passes fit each other. Here a list scheduler merges them, by
several rules of which the simulator picks the best, because stages may cost anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.errors import InputError

from ..simulation.schedule import IntArray, Schedule
from ..simulation.simulator import FloatArray
from .listed import Course, list_schedule, urgency


def two_way_ranks(ranks: int, reuse: int, snake: bool = False) -> IntArray:
    """The rank of each of the 2·p·r stages: down stages from the first rank on, up stages from the last rank on."""
    place = np.arange(ranks * reuse) % ranks
    if snake:
        place = np.where((np.arange(ranks * reuse) // ranks) % 2 == 0, place, ranks - 1 - place)
    return np.concatenate([place, ranks - 1 - place])


def two_way(
    ranks: int, micros: int, seconds_f: FloatArray, seconds_b: FloatArray, *, reuse: int = 1, snake: bool = False, transfer_s: float = 0.0
) -> Iterator[Schedule]:
    """Schedules for stages that take `seconds_f` and `seconds_b` (one entry per stage of one copy), one per rule and limit."""
    if micros % 2:
        raise InputError(f"found {micros} micro-batches; two directions expect an even number of them")
    depth = ranks * reuse
    rank = two_way_ranks(ranks, reuse, snake)
    following = np.concatenate([np.append(np.arange(1, depth), -1), np.append(np.arange(depth + 1, 2 * depth), -1)])
    halves = [np.arange(micros // 2), np.arange(micros // 2, micros)]
    orders = tuple(halves[s >= depth] for s in range(2 * depth))
    forward = np.broadcast_to(np.tile(seconds_f, 2)[:, None], (2 * depth, micros)).copy()
    backward = np.broadcast_to(np.tile(seconds_b, 2)[:, None], (2 * depth, micros)).copy()
    position = (np.arange(2 * depth) % depth)[:, None]
    number = (np.arange(micros) % (micros // 2))[None, :]
    up = (np.arange(2 * depth) >= depth)[:, None].astype(np.int64)
    replica = np.concatenate([np.arange(depth, 2 * depth), np.arange(depth)])
    for limit, keys_f, keys_b in _rules(position, number, up, ranks, depth, micros):
        try:
            yield list_schedule(
                Course(rank, following, orders, orders, forward, backward, keys_f, keys_b, limit, transfer_s, replica=replica)
            )  # fmt: skip
        except InputError:  # A limit may be too tight for a rule.
            continue


def _rules(
    position: IntArray, number: IntArray, up: IntArray, ranks: int, depth: int, micros: int
) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:
    """(in-flight limit per stage, urgency of forward passes, urgency of backward passes) of every rule.

    The eight rules are those of 48 that were the fastest on some of 40 pipelines (4 and 8 ranks, 4 to 32 micro-batches, up to 6 chunks,
    equal and unequal stages, with and without transfers).
    """
    shape = np.broadcast_shapes(position.shape, number.shape)
    number, position, up = (np.broadcast_to(each, shape) for each in (number, position, up))
    place = np.arange(depth)
    usual, one_more, half, none = (
        np.tile(limit, 2) for limit in (depth - place, depth - place + 1, np.maximum(1, -(-(depth - place) // 2)), np.full(depth, micros))
    )
    oldest = urgency(number, -position, up)
    by_group = urgency(number // max(1, ranks // 2), position, number, up)
    behind = float(max(oldest.max(), by_group.max())) + 1
    # Backward passes go before all forward passes.
    for limit in (usual, one_more, none):
        yield limit, oldest + behind, oldest
    for limit in (usual, none):
        yield limit, by_group + behind, oldest
    # Forward and backward passes compete: the deepest, or the shallowest, forward pass against the oldest backward pass.
    for limit, deepest in ((none, True), (half, True), (none, False)):
        yield limit, urgency(-position if deepest else position, number, up), oldest + 0.25
