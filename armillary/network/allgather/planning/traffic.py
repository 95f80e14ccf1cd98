"""Messages of blocks: what a technique decides, before anything has a place in memory.

A message goes from one rank to another in a step and carries blocks in an order. A message without blocks only says that its sender has
come so far. A rank begins a step when all its messages of earlier steps have arrived and left; ranks without messages pass it at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..graphs.neighbours import Ints, Ranks
from .problem import Problem

NONE = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Messages:
    """Messages in the order of their steps; within a step, in the order in which each rank sends them."""

    step: Ints
    source: Ranks
    destination: Ranks
    #: Where the blocks of each message begin in `blocks`, with the end of the last one.
    start: Ints
    blocks: Ranks
    steps: int


class Traffic:
    """Collects messages, several at a time."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, Ints, Ints, Ints, Ints]] = []

    def add(self, step: int, source: Any, destination: Any, counts: Any, blocks: Any) -> None:
        """Adds messages of one step; `counts` says how many of `blocks` belong to each."""
        parts = (np.asarray(part, np.int64).reshape(-1) for part in (source, destination, counts, blocks))
        a, b, c, d = parts
        if len(a):
            self._parts.append((step, a, b, c, d))

    def barrier(self, step: int, problem: Problem) -> int:
        """Adds a barrier of the ranks of each node by dissemination, and returns the step after it."""
        rounds = barrier_rounds(problem.most_local)
        for turn in range(rounds):
            for local in problem.local:
                if len(local) > 1 << turn:
                    self.add(step + turn, local, np.roll(local, -(1 << turn)), np.zeros(len(local)), NONE)
        return step + rounds

    def messages(self) -> Messages:
        """All messages so far."""
        parts = sorted(self._parts, key=lambda part: part[0])
        if not parts:
            return Messages(NONE, NONE.astype(np.int32), NONE.astype(np.int32), np.zeros(1, np.int64), NONE.astype(np.int32), 0)
        step = np.repeat([part[0] for part in parts], [len(part[1]) for part in parts]).astype(np.int64)
        counts = np.concatenate([part[3] for part in parts])
        return Messages(
            step,
            np.concatenate([part[1] for part in parts]).astype(np.int32),
            np.concatenate([part[2] for part in parts]).astype(np.int32),
            np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            np.concatenate([part[4] for part in parts]).astype(np.int32),
            int(step[-1]) + 1,
        )


def barrier_rounds(ranks: int) -> int:
    """The rounds of a dissemination barrier."""
    return max(0, int(ranks - 1).bit_length())


def groups(keys: npt.NDArray[np.int64]) -> tuple[Ints, Ints]:
    """The order that sorts `keys` (stable), and where each run of equal keys begins in it, with the end."""
    order = np.argsort(keys, kind="stable")
    if not len(keys):
        return order, np.zeros(1, np.int64)
    ordered = keys[order]
    begins = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return order, np.concatenate((begins, [len(keys)])).astype(np.int64)
