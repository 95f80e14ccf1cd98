"""Transfers, file operations and computing that begin at one instant, merged where they are equal.

Requests of an instant with the same ends and size become one flow that stands for all of them, which changes no time: equal flows over
the same pools get equal rates and end together. Without this, a redistribution among tens of thousands would be as many flows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from armillary.engine import Activity, Event, Pool, Simulation, Uses
from armillary.network.transport.blocks.decomposition import Ints

from .platform import Platform

Floats: TypeAlias = npt.NDArray[np.float64]
Finished: TypeAlias = Callable[[Ints], None]
#: What it is for, its ends, the amount of each owner, the owners, and the pools that it uses with the most that it may take of them.
_Start: TypeAlias = tuple[Any, int, int, float, Ints, Uses | Pool, float | None]
#: After everything else of an instant, but before rates are solved.
LAST = 900


class Transfers:
    """What is under way; `aggregate=False` makes each request a flow of its own, for tests."""

    def __init__(self, sim: Simulation, platform: Platform, *, aggregate: bool = True, free: bool = False) -> None:
        self.sim = sim
        self.platform = platform
        self.aggregate = aggregate
        #: Whether bytes move in no time (the bound).
        self.free = free
        #: Bytes over networks and loopbacks, and to and from disks.
        self.moved = 0.0
        self.flows = 0
        self._asked: dict[Any, list[tuple[Ints, Ints, Floats, Ints]]] = {}
        self._due = False

    def send(self, source: Ints, target: Ints, nbytes: Floats, owner: Ints, finished: Finished) -> None:
        """Moves bytes from node to node; `finished` gets the owners of what has arrived."""
        self.moved += float(nbytes.sum())
        self._ask(("net", finished), source, target, nbytes, owner)

    def write(self, node: Ints, nbytes: Floats, owner: Ints, finished: Finished, *, shared: bool) -> None:
        """Writes to the disk of each node, or over the network to the shared file system."""
        self.moved += float(nbytes.sum())
        if self.free:
            self._ask(("net", finished), node, node, nbytes, owner)
        elif shared:
            onward = ("disk", "write", True, finished)
            self._ask(("store", onward, None), node, node, nbytes, owner)
        else:
            self._ask(("disk", "write", False, finished), node, node, nbytes, owner)

    def read(self, source: Ints, target: Ints, nbytes: Floats, owner: Ints, finished: Finished, *, shared: bool) -> None:
        """Reads files that nodes `source` wrote: from the disk first, and then over the network where the reader is elsewhere."""
        self.moved += float(nbytes.sum())
        if self.free:
            self._ask(("net", finished), source, target, nbytes, owner)
        else:
            self._ask(("disk", "read", shared, finished), target if shared else source, target, nbytes, owner)

    def compute(self, node: Ints, flops: Floats, owner: Ints, finished: Finished) -> None:
        """Computes on one core per owner."""
        self._ask(("cores", finished), node, node, flops, owner)

    def _ask(self, key: Any, source: Ints, target: Ints, amount: Floats, owner: Ints) -> None:
        self._asked.setdefault(key, []).append((source, target, amount, owner))
        if not self._due:
            self._due = True
            self.sim.at(self.sim.now, self._begin, priority=LAST)

    def _begin(self) -> None:
        self._due = False
        asked, self._asked = self._asked, {}
        together: dict[float, list[_Start]] = {}
        for key, parts in asked.items():
            sources, targets, amounts, owners = zip(*parts, strict=True)
            source, target, owner = np.concatenate(sources), np.concatenate(targets), np.concatenate(owners)
            amount = np.concatenate(amounts)
            if self.free and key[0] != "cores":
                key[-1](owner)
                continue
            for a, b, each, members in self._groups(source, target, amount, owner):
                uses, late, cap = self._needs(key, a, b, each * len(members))
                together.setdefault(late, []).append((key, a, b, each, members, uses, cap))
        # One event for all that start after the same latency.
        for late, started in together.items():
            if late > 0.0:
                self.sim.after(late, self._start, started)
            else:
                self._start(started)

    def _groups(self, source: Ints, target: Ints, amount: Floats, owner: Ints) -> list[tuple[int, int, float, Ints]]:
        if not self.aggregate or len(source) == 1:
            rows = zip(source.tolist(), target.tolist(), amount.tolist(), strict=True)
            return [(a, b, x, owner[i : i + 1]) for i, (a, b, x) in enumerate(rows)]
        order = np.lexsort((amount, target, source))
        s, t, x = source[order], target[order], amount[order]
        new = np.flatnonzero((np.diff(s) != 0) | (np.diff(t) != 0) | (np.diff(x) != 0)) + 1
        first = np.concatenate([[0], new])
        members = np.split(owner[order], new)
        return list(zip(s[first].tolist(), t[first].tolist(), x[first].tolist(), members, strict=True))

    def _needs(self, key: Any, source: int, target: int, amount: float) -> tuple[Uses | Pool, float, float | None]:
        """The pools of a request, the seconds before it uses them, and the most that it may take of them."""
        platform, what = self.platform, key[0]
        if what == "net":
            return *platform.way(source, target), None
        if what == "store":
            return *platform.store_way(source), None
        if what == "disk":
            _, operation, shared, _ = key
            if operation == "write":
                platform.fill(source, shared, amount)
            late = platform.extras.file_latency if operation == "write" else platform.extras.read_latency
            return platform.store(source, shared, operation), late, None
        pool, cap = platform.cores(source)
        return pool, 0.0, cap

    def _start(self, started: list[_Start]) -> None:
        self.flows += len(started)
        for key, source, target, each, members, uses, cap in started:
            activity = Activity(self.sim, each, uses, cap=cap, count=len(members))
            if activity.callbacks is None:
                self._ended(key, source, target, each, members)
            else:
                activity.callbacks.append(partial(self._over, key, source, target, each, members))

    def _over(self, key: Any, source: int, target: int, each: float, members: Ints, _: Event) -> None:
        self._ended(key, source, target, each, members)

    def _ended(self, key: Any, source: int, target: int, each: float, members: Ints) -> None:
        def onward(to: Any) -> None:
            many = len(members)
            self._ask(to, np.full(many, source), np.full(many, target), np.full(many, each), members)

        if key[0] == "store" and key[1] is not None:
            onward(key[1])
        elif key[0] == "disk" and key[1] == "read" and (key[2] or source != target):
            onward(("store", None, key[3]) if key[2] else ("net", key[3]))
        else:
            key[-1](members)
