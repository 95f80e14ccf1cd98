"""Product, then all-reduce: tile t belongs to device t mod n, whose communicators add it up when all devices have signalled it.

`style` says how. `in-fabric`: storers leave tiles in local memory, and the switch adds them and copies the sum to all devices; each byte
goes up and down about once, but registers drive it, so communicators need SMs of their own. `two-shot`: storers add tiles to the owner
through TMA, and the owner multicasts the sum. `one-shot`: storers add every tile to every device, which needs no owner and moves n − 1
times the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from .gemm_rs import matrices, product
from .primitives import ALL, all_reduce, load, signal, store_add_async, store_async, wait
from .template import Actions, Grid, Layout, TileProgram


@dataclass(frozen=True)
class GemmAr(TileProgram):
    """C = Σ A[i]·B[i] on every device."""

    style: Literal["in-fabric", "two-shot", "one-shot"] = "in-fabric"

    op: ClassVar[str] = "gemm_ar"

    @cached_property
    def grid(self) -> Grid:
        """Tiles of the product."""
        return Grid(self.operator.m, self.operator.n, self.tile.m, self.tile.n)

    def consumer(self, dev: int, task: int) -> Actions:
        yield product(self, "a", "b", self.grid.region(task))

    def storer(self, dev: int, task: int) -> Actions:
        region, owner = self.grid.region(task), task % self.devices
        if self.style == "one-shot":
            for other in range(self.devices):
                yield store_add_async("c", (dev + other) % self.devices, "tile", region)
        elif self.style == "two-shot":
            yield store_add_async("c", owner, "tile", region)
            yield signal("ready", task, owner)
        else:
            yield store_async("c", dev, "tile", region)
            yield signal("ready", task, owner)

    def communicator(self, dev: int, task: int) -> Actions:
        number = task * self.devices + dev
        yield wait("ready", number, self.devices)
        if self.style == "in-fabric":
            yield all_reduce("c", self.grid.region(number))
        else:
            yield load("sum", "c", self.grid.region(number))
            yield store_async("c", ALL, "sum", self.grid.region(number))

    def layouts(self) -> dict[str, Layout]:
        o = self.operator
        return {"a": Layout((o.m, o.k), "input"), "b": Layout((o.k, o.n), "input"), "c": Layout((o.m, o.n))}

    def bars(self) -> dict[str, int]:
        return {} if self.style == "one-shot" else {"ready": self.grid.count}

    def tasks(self, dev: int) -> int:
        return self.grid.count

    def comm_tasks(self, dev: int) -> int:
        return 0 if self.style == "one-shot" else -(-(self.grid.count - dev) // self.devices)

    def outputs(self) -> str:
        return "c"

    def inputs(self, rng: np.random.Generator) -> list[dict[str, Any]]:
        return matrices(rng, self.devices, self.operator.m, self.operator.n, self.operator.k)

    def expected(self, inputs: list[dict[str, Any]]) -> list[Any]:
        return [sum(x["a"].astype(float) @ x["b"].astype(float) for x in inputs)] * self.devices
