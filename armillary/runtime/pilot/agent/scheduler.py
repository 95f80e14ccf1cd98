"""Where tasks are placed: a state machine without I/O, by the same rules as in simulated time.

Tasks that need the same wait in one line. The oldest head of all lines is placed first, by first fit in the runtime instance with most free
cores; younger lines may pass one whose head has no room. The oldest task of several cores, GPUs or nodes that found no room reserves the
nodes that lack least for it, and nobody else is placed there, so it cannot starve. A node of a dead instance leaves.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.runtime.pilot.simulation.nodes import GONE, OPEN, RESERVED, find, find_several, nearest, nodes_of, take, turn

from .task import Live

#: (kind, nodes, cores and GPUs on each node); kind 0 is an executable and 1 a function.
Shape = tuple[int, int, int, int]


@dataclass(eq=False)
class Instance:
    """One instance of a backend with its nodes, `low` up to and without `high`."""

    backend: Any
    low: int
    high: int
    kinds: frozenset[int]
    up: bool = False
    dead: bool = False
    free: int = 0


@dataclass
class Scheduler:
    """Nodes with their free cores and GPUs, the waiting tasks, and the instances that may take them."""

    nodes: int
    cores: int
    gpus: int
    #: Which backends may take executables and functions, the preferred one first.
    route: tuple[list[str], list[str]]
    instances: list[Instance] = field(default_factory=list)
    backfill: bool = True

    def __post_init__(self) -> None:
        self._pool = nodes_of(self.nodes, self.cores, self.gpus)
        self._lines: dict[Shape, deque[Live]] = {}
        self._slots = [list(range(self.cores - 1, -1, -1)) for _ in range(self.nodes)]
        self._devices = [list(range(self.gpus - 1, -1, -1)) for _ in range(self.nodes)]
        self._spot = np.empty(self.nodes, np.int64)
        self._kept = np.empty(self.nodes, np.int64)
        self._reserver: Live | None = None
        self._reserved = 0
        self._order = 0
        self.waiting = 0

    def join(self, instance: Instance) -> None:
        """Adds an instance, which is not up yet."""
        instance.free = sum(int(self._pool.cores[node]) for node in range(instance.low, instance.high))
        self.instances.append(instance)

    def able(self, shape: Shape) -> bool:
        """Whether some instance that is not dead could ever hold a task of this shape."""
        return any(self._may(one, shape) for one in self.instances)

    def _may(self, one: Instance, shape: Shape) -> bool:
        fits = shape[2] <= self.cores and shape[3] <= self.gpus
        return (
            fits and not one.dead and shape[0] in one.kinds and one.backend.name in self.route[shape[0]] and one.high - one.low >= shape[1]
        )

    def refuse(self, shape: Shape) -> InputError:
        """Why no instance can hold such a task."""
        kind, nodes, cores, gpus = shape
        what = "functions" if kind else "executables"
        able = [one for one in self.instances if not one.dead and kind in one.kinds and one.backend.name in self.route[kind]]
        if not able:
            return InputError(f"no backend of this pilot starts {what}")
        if cores > self.cores or gpus > self.gpus:
            return InputError(f"task: found {cores} cores and {gpus} GPUs on a node; expected at most {self.cores} and {self.gpus}")
        largest = max(one.high - one.low for one in able)
        where = "the allocation" if largest == self.nodes else "the largest partition"
        return InputError(f"task: found {nodes} nodes; expected at most {largest}, those of {where}")

    def add(self, live: Live, *, first: bool = False) -> None:
        """A task that waits for no other one; `first` puts one back that was placed already."""
        line = self._lines.setdefault(live.shape, deque())
        self.waiting += 1
        if first:
            line.appendleft(live)
            return
        self._order += 1
        live.order = self._order
        line.append(live)

    def more(self, shape: Shape, most: int) -> list[Live]:
        """Takes up to so many further tasks out of a line, which run one after another on what the first of them holds."""
        line = self._lines.get(shape)
        taken = [] if not line else [line.popleft() for _ in range(min(most, len(line)))]
        self.waiting -= len(taken)
        return taken

    def drop(self, shape: Shape) -> list[Live]:
        """Takes all tasks out of a line."""
        if self._reserver is not None and self._reserver.shape == shape:
            self._unreserve()
        return self.more(shape, 1 << 62)

    def shapes(self) -> list[Shape]:
        """The needs of all waiting tasks."""
        return [shape for shape, line in self._lines.items() if line]

    def place(self) -> Live | None:
        """The next task that has room, with `place` and `backend` set and its room taken; None if there is none."""
        blocked: set[Shape] = set()
        oldest = True
        while True:
            heads = [(line[0].order, shape) for shape, line in self._lines.items() if line and shape not in blocked]
            if not heads:
                return None
            shape = min(heads)[1]
            live = self._lines[shape][0]
            if live is self._reserver:
                self._turn(OPEN)
            found = self._room(shape)
            if found is not None:
                if live is self._reserver:
                    self._reserver = None
                self._lines[shape].popleft()
                self.waiting -= 1
                self._take(live, found)
                return live
            if live is self._reserver:
                self._turn(RESERVED)
            elif oldest and self._reserver is None and self.backfill and (shape[1] > 1 or shape[2] > 1 or shape[3]):
                self._reserve(live)
            oldest = False
            blocked.add(shape)
            if not self.backfill:
                return None

    def _room(self, shape: Shape) -> Instance | None:
        _, nodes, cores, gpus = shape
        for name in self.route[shape[0]]:
            up = [one for one in self.instances if one.up and one.backend.name == name and self._may(one, shape)]
            for one in sorted(up, key=lambda one: -one.free) if len(up) > 1 else up:
                if one.free < nodes * cores:
                    continue
                if nodes == 1:
                    node = find(self._pool, one.low, one.high, cores, gpus)
                    if node >= 0:
                        self._spot[0] = node
                        return one
                elif find_several(self._pool, one.low, one.high, nodes, cores, gpus, self._spot):
                    return one
        return None

    def _take(self, live: Live, one: Instance) -> None:
        _, nodes, cores, gpus = live.shape
        live.backend = one
        live.place = []
        for i in range(nodes):
            node = int(self._spot[i])
            take(self._pool, node, cores, gpus)
            slots, devices = self._slots[node], self._devices[node]
            live.place.append((node, [slots.pop() for _ in range(cores)], [devices.pop() for _ in range(gpus)]))
            self._count(node, -cores)

    def _count(self, node: int, change: int) -> None:
        for one in self.instances:
            if one.low <= node < one.high:
                one.free += change

    def release(self, place: list[tuple[int, list[int], list[int]]]) -> None:
        """Gives back what a task held."""
        for node, slots, devices in place:
            take(self._pool, node, -len(slots), -len(devices))
            self._slots[node].extend(slots)
            self._devices[node].extend(devices)
            self._count(node, len(slots))

    def leave(self, instance: Instance) -> None:
        """An instance died: its nodes leave, unless another living one shares them."""
        instance.dead = True
        self._unreserve()
        for node in range(instance.low, instance.high):
            shared = any(one.low <= node < one.high and not one.dead for one in self.instances)
            if not shared and self._pool.state[node] != GONE:
                turn(self._pool, node, GONE)

    def _reserve(self, live: Live) -> None:
        _, nodes, cores, gpus = live.shape
        able = [one for one in self.instances if one.up and self._may(one, live.shape)]
        if able:
            one = max(able, key=lambda one: one.free)
            if nearest(self._pool, one.low, one.high, nodes, cores, gpus, self._kept):
                self._reserver, self._reserved = live, nodes
                self._turn(RESERVED)

    def _unreserve(self) -> None:
        if self._reserver is not None:
            self._turn(OPEN)
            self._reserver = None

    def _turn(self, state: int) -> None:
        for i in range(self._reserved):
            if self._pool.state[self._kept[i]] != GONE:
                turn(self._pool, int(self._kept[i]), state)
