"""Product, then reduce-scatter: every tile is added to its owner's rows as soon as it is finished.

Inside compute SMs nothing waits: the storer adds the tile to the owner while the consumer computes the next one, so communication hides
if a tile takes at least as long to compute as to send, K ≥ s·R / (2·B). Device d begins with the rows of device d + 1 and ends with
its own, which need no link. With SMs of their own, communicators send tiles that storers have left in local memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from .primitives import Compute, Region, compute, load, signal, store_add_async, store_async, wait
from .template import Actions, Grid, Layout, TileProgram, shifted


@dataclass(frozen=True)
class GemmRs(TileProgram):
    """C[d] = rows d of Σ A[i]·B[i]."""

    op: ClassVar[str] = "gemm_rs"

    @cached_property
    def grid(self) -> Grid:
        """Tiles of one owner's rows."""
        return Grid(self.operator.m // self.devices, self.operator.n, self.tile.m, self.tile.n)

    def place(self, dev: int, task: int) -> tuple[int, Region, Region]:
        """The owner of a tile, where it lies in the owner's rows, and where in the whole product."""
        turn, number = divmod(task, self.grid.count)
        owner = (dev + 1 + turn) % self.devices
        region = self.grid.region(number)
        return owner, region, shifted(region, 0, owner * self.grid.m)

    def consumer(self, dev: int, task: int) -> Actions:
        _, _, whole = self.place(dev, task)
        yield product(self, "a", "b", whole)

    def storer(self, dev: int, task: int) -> Actions:
        owner, region, whole = self.place(dev, task)
        if not self.inter or owner == dev:
            yield store_add_async("c", owner, "tile", region)
        else:
            yield store_async("partial", dev, "tile", whole)
            yield signal("ready", task, dev)

    def communicator(self, dev: int, task: int) -> Actions:
        owner, region, whole = self.place(dev, task)
        yield wait("ready", task, 1)
        yield load("tile", "partial", whole)
        yield store_add_async("c", owner, "tile", region)

    def layouts(self) -> dict[str, Layout]:
        o = self.operator
        local = {"partial": Layout((o.m, o.n), "nothing")} if self.inter else {}
        return {"a": Layout((o.m, o.k), "input"), "b": Layout((o.k, o.n), "input"), "c": Layout((self.grid.m, o.n)), **local}

    def bars(self) -> dict[str, int]:
        return {"ready": self.tasks(0)} if self.inter else {}

    def tasks(self, dev: int) -> int:
        return self.devices * self.grid.count

    def comm_tasks(self, dev: int) -> int:
        return (self.devices - 1) * self.grid.count if self.inter else 0

    def outputs(self) -> str:
        return "c"

    def inputs(self, rng: np.random.Generator) -> list[dict[str, Any]]:
        return matrices(rng, self.devices, self.operator.m, self.operator.n, self.operator.k)

    def expected(self, inputs: list[dict[str, Any]]) -> list[Any]:
        whole = sum(x["a"].astype(float) @ x["b"].astype(float) for x in inputs)
        return list(np.split(np.asarray(whole), self.devices))


def product(program: TileProgram, a: str, b: str, region: Region) -> Compute:
    """The action that multiplies rows of `a` by columns of `b`; a tile at the edge takes as long as a whole one."""
    (r0, r1), (c0, c1) = region
    k, width, tile = program.operator.k, program.operator.bytes_per_element, program.tile
    m, n = r1 - r0, c1 - c0
    return compute(
        "tile", lambda local: local[a][r0:r1] @ local[b][:, c0:c1], 2.0 * tile.m * tile.n * k, float(width) * k * (m + n),
        float(width) * m * n,
    )  # fmt: skip


def matrices(rng: np.random.Generator, devices: int, m: int, n: int, k: int) -> list[dict[str, Any]]:
    """Random factors of every device."""
    return [
        {"a": rng.standard_normal((m, k)).astype(np.float32), "b": rng.standard_normal((k, n)).astype(np.float32)} for _ in range(devices)
    ]
