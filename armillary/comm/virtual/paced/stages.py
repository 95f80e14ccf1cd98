"""Staged calls: collectives that go on in the background, stage by stage, as events let them.

A staged call is a generator that starts transfers and yields those that its next stage needs. It runs up to its first `yield` in the call
that starts it. Every later stage runs where the rank handles the event that completes the one before: in a call, in a handler, on a helper.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.comm.collectives.operations import Op
from armillary.comm.virtual.paced.requests import PacedRequest

if TYPE_CHECKING:
    from armillary.comm.virtual.paced.ranks import PacedRanks

#: Yields the transfers that the next stage needs.
Stages = Generator[Sequence[Any], None, None]


class Staged(PacedRequest):
    """A staged call under way; it is complete when its generator has returned."""

    __slots__ = ("_missing", "_open", "_stages", "_words")

    def __init__(self, rank: Any, stages: Stages, words: str) -> None:
        super().__init__(rank, 0, 0, 0, None, None, rank)
        self._stages = stages
        self._words = words
        self._open: list[Any] = []
        self._missing = 0

    @property
    def what(self) -> str:
        return self._words

    def part_known(self) -> Callable[[], None] | None:
        """Note that one transfer is complete; return what to do if it was the last that the stage needs."""
        self._missing -= 1
        return None if self._missing else self._resume

    def _resume(self) -> None:
        try:
            self._take()
            self.go()
        except Exception as error:
            self.rank.world.fail(self.rank, error, traceback.format_exc())

    def _take(self) -> None:
        """Pay for what has been completed, in the order in which it was."""
        for request in sorted(self._open, key=lambda request: request.arrival):
            self.rank.core.spend(request.cost - request.copied, request.copied)
            request.done = True
            request._end()

    def go(self) -> None:
        """Run stages until one has to wait."""
        while True:
            try:
                needed = next(self._stages)
            except StopIteration:
                self._finished()
                return
            self._open = [request for request in needed if not request.done]
            unknown = [request for request in self._open if request.arrival is None]
            self._missing = len(unknown)
            for request in unknown:
                request.stage = self
            if unknown:
                return
            self._take()

    def _finished(self) -> None:
        sim, clock = self.rank.world.sim, self.rank.clock
        if clock > sim.now:
            sim._insert(clock, (lambda _: self.known(clock, 0.0), None))
        else:
            self.known(sim.now, 0.0)

    def cancel(self) -> bool:
        return False


def recursive_doubling(comm: PacedRanks, send: Any, recv: Any, op: Op, tag: int) -> Stages:
    """Allreduce in log2 P exchanges of the whole buffer. Ranks beyond a power of two join a neighbour before and hear from it after."""
    recv[...] = send
    other = np.empty_like(recv)
    rank, size = comm.rank, comm.size
    power = 1 << (size.bit_length() - 1)
    rest = size - power
    place = rank - rest
    if rank < 2 * rest:
        if rank % 2 == 0:
            yield [comm.isend(recv, rank + 1, tag)]
            yield [comm.irecv(recv, rank + 1, tag)]
            return
        yield [comm.irecv(other, rank - 1, tag)]
        recv[...] = op(other, recv)
        place = rank // 2
    distance = 1
    while distance < power:
        partner = place ^ distance
        partner = 2 * partner + 1 if partner < rest else partner + rest
        yield [comm.irecv(other, partner, tag), comm.isend(recv, partner, tag)]
        recv[...] = op(recv, other) if partner > rank else op(other, recv)
        distance *= 2
    if rank < 2 * rest:
        yield [comm.isend(recv, rank - 1, tag)]


def binomial(comm: PacedRanks, buffer: Any, root: int, tag: int) -> Stages:
    """Broadcast along a binomial tree."""
    size = comm.size
    place = (comm.rank - root) % size
    distance = 1
    while distance < size and not place & distance:
        distance *= 2
    if place:
        yield [comm.irecv(buffer, (place - distance + root) % size, tag)]
    sends = []
    while distance := distance >> 1:
        if place + distance < size:
            sends.append(comm.isend(buffer, (place + distance + root) % size, tag))
    yield sends
