"""The plain collectives of an M × N matrix, as programs with communicators alone, which begin with a barrier.

All-gather multicasts, reduce-scatter and all-reduce let the fabric add (`reduce`, `all_reduce`) where it can and add through TMA or
multicast sums elsewhere, all-to-all stores each block where it belongs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from .primitives import ALL, Region, all_reduce, barrier, load, reduce, signal, store_add_async, store_async, wait
from .template import Actions, Grid, Layout, TileProgram, shifted


@dataclass(frozen=True)
class Collective(TileProgram):
    """A collective over the rows of one matrix per device; `fabric` lets the switch add."""

    fabric: bool = True

    @cached_property
    def grid(self) -> Grid:
        """Tiles of one device's share of the rows."""
        return Grid(self.operator.m // self.devices, self.operator.n, self.tile.m, self.tile.n)

    def tasks(self, dev: int) -> int:
        return 0

    def comm_tasks(self, dev: int) -> int:
        return self.grid.count

    def bars(self) -> dict[str, int]:
        return {"met": 1, "open": 1}

    def enter(self, dev: int, task: int) -> Actions:
        """Waits until all devices are in the kernel; the first task asks, and lets the others of its device go."""
        if task == 0:
            yield barrier("met")
            yield signal("open", 0, dev)
        else:
            yield wait("open", 0, 1)

    def layouts(self) -> dict[str, Layout]:
        whole = (self.operator.m, self.operator.n)
        return {"x": Layout(whole, "input"), "y": Layout((self.grid.m, self.operator.n))}

    def outputs(self) -> str:
        return "y"

    def inputs(self, rng: np.random.Generator) -> list[dict[str, Any]]:
        return [{"x": rng.standard_normal((self.operator.m, self.operator.n)).astype(np.float32)} for _ in range(self.devices)]


@dataclass(frozen=True)
class AllGather(Collective):
    """Every device's rows on every device; row block d of device d is its own at first."""

    op: ClassVar[str] = "all_gather"

    def communicator(self, dev: int, task: int) -> Actions:
        yield from self.enter(dev, task)
        region = shifted(self.grid.region(task), 0, dev * self.grid.m)
        yield load("tile", "x", region)
        yield store_async("x", ALL, "tile", region)

    def outputs(self) -> str:
        return "x"

    def expected(self, inputs: list[dict[str, Any]]) -> list[Any]:
        own = self.grid.m
        return [np.concatenate([x["x"][d * own : (d + 1) * own] for d, x in enumerate(inputs)]).astype(float)] * self.devices


@dataclass(frozen=True)
class ReduceScatter(Collective):
    """The sum of all devices' row block d on device d."""

    op: ClassVar[str] = "reduce_scatter"

    def place(self, dev: int, task: int) -> tuple[int, Region]:
        """The owner of a tile, and where it lies in the owner's rows."""
        turn, number = divmod(task, self.grid.count)
        return (dev + turn) % self.devices, self.grid.region(number)

    def communicator(self, dev: int, task: int) -> Actions:
        yield from self.enter(dev, task)
        owner, region = self.place(dev, task)
        if self.fabric:
            yield reduce("y", "x", shifted(region, 0, dev * self.grid.m), region)
        else:
            yield load("tile", "x", shifted(region, 0, owner * self.grid.m))
            yield store_add_async("y", owner, "tile", region)

    def comm_tasks(self, dev: int) -> int:
        return self.grid.count * (1 if self.fabric else self.devices)

    def expected(self, inputs: list[dict[str, Any]]) -> list[Any]:
        return list(np.split(sum(x["x"].astype(float) for x in inputs), self.devices))


@dataclass(frozen=True)
class AllReduce(Collective):
    """The sum of all devices' matrices on all of them; tile t belongs to device t mod n."""

    op: ClassVar[str] = "all_reduce"

    @cached_property
    def grid(self) -> Grid:
        """Tiles of the whole matrix."""
        return Grid(self.operator.m, self.operator.n, self.tile.m, self.tile.n)

    def communicator(self, dev: int, task: int) -> Actions:
        yield from self.enter(dev, task)
        if self.fabric:
            if task * self.devices + dev < self.grid.count:
                yield all_reduce("x", self.grid.region(task * self.devices + dev))
            return
        owner, region = task % self.devices, self.grid.region(task)
        yield load("tile", "x", region)
        yield store_add_async("y", owner, "tile", region)
        yield signal("ready", task, owner)
        if owner == dev:
            yield wait("ready", task, self.devices)
            yield load("sum", "y", region)
            yield store_async("x", ALL, "sum", region)

    def comm_tasks(self, dev: int) -> int:
        return -(-self.grid.count // self.devices) if self.fabric else self.grid.count

    def bars(self) -> dict[str, int]:
        return {**super().bars(), "ready": self.grid.count}

    def layouts(self) -> dict[str, Layout]:
        whole = (self.operator.m, self.operator.n)
        return {"x": Layout(whole, "input"), "y": Layout(whole)}

    def outputs(self) -> str:
        return "x"

    def expected(self, inputs: list[dict[str, Any]]) -> list[Any]:
        return [sum(x["x"].astype(float) for x in inputs)] * self.devices


@dataclass(frozen=True)
class AllToAll(Collective):
    """Row block e of device d becomes row block d of device e."""

    op: ClassVar[str] = "all_to_all"

    def communicator(self, dev: int, task: int) -> Actions:
        yield from self.enter(dev, task)
        number, turn = divmod(task, self.devices)
        target, region = (dev + turn) % self.devices, self.grid.region(number)
        yield load("tile", "x", shifted(region, 0, target * self.grid.m))
        yield store_async("y", target, "tile", shifted(region, 0, dev * self.grid.m))

    def comm_tasks(self, dev: int) -> int:
        return self.grid.count * self.devices

    def layouts(self) -> dict[str, Layout]:
        whole = (self.operator.m, self.operator.n)
        return {"x": Layout(whole, "input"), "y": Layout(whole, "nothing")}

    def expected(self, inputs: list[dict[str, Any]]) -> list[Any]:
        own = self.grid.m
        return [np.concatenate([x["x"][d * own : (d + 1) * own] for x in inputs]).astype(float) for d in range(self.devices)]
