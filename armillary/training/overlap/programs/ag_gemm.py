"""All-gather, then product: communicators multicast the local rows block by block, and consumers start with the rows that are here.

Rows come once over the link and are read locally by all SMs that need them; if loaders read them remotely, they would cross it once per
tile column, because remote lines are not cached. Consumers take the blocks of all other devices in turns, as they arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from .gemm_rs import product
from .primitives import ALL, Region, load, signal_all, store_async, wait
from .template import Actions, Layout, TileProgram

#: Columns of one piece of a row block, so that several communicators share a block.
PIECE = 1024


@dataclass(frozen=True)
class AgGemm(TileProgram):
    """C[d] = A·B[d], where device d has its rows of A."""

    op: ClassVar[str] = "ag_gemm"

    @cached_property
    def blocks(self) -> int:
        """Row blocks of one device."""
        return -(-(self.operator.m // self.devices) // self.tile.m)

    @cached_property
    def columns(self) -> int:
        """Tiles in a row of the product."""
        return -(-self.operator.n // self.tile.n)

    @cached_property
    def pieces(self) -> int:
        """Pieces of one row block."""
        return -(-self.operator.k // PIECE)

    def rows(self, source: int, block: int) -> tuple[int, int]:
        """The rows of a block of one device in the whole matrix."""
        own = self.operator.m // self.devices
        first = source * own + block * self.tile.m
        return first, min(first + self.tile.m, (source + 1) * own)

    def place(self, dev: int, task: int) -> tuple[int, int, Region]:
        """Where the rows of a tile come from, their block, and the tile."""
        number, column = divmod(task, self.columns)
        block, turn = (number, -1) if number < self.blocks else divmod(number - self.blocks, self.devices - 1)
        source = (dev + turn + 1) % self.devices
        columns = column * self.tile.n, min((column + 1) * self.tile.n, self.operator.n)
        return source, block, (self.rows(source, block), columns)

    def communicator(self, dev: int, task: int) -> Actions:
        block, piece = divmod(task, self.pieces)
        region = self.rows(dev, block), (piece * PIECE, min((piece + 1) * PIECE, self.operator.k))
        yield load("rows", "a", region)
        yield store_async("a", ALL, "rows", region)
        yield signal_all("arrived", dev * self.blocks + block)

    def loader(self, dev: int, task: int) -> Actions:
        source, block, _ = self.place(dev, task)
        if source != dev:
            yield wait("arrived", source * self.blocks + block, self.pieces)

    def consumer(self, dev: int, task: int) -> Actions:
        yield product(self, "a", "b", self.place(dev, task)[2])

    def storer(self, dev: int, task: int) -> Actions:
        yield store_async("c", dev, "tile", self.place(dev, task)[2])

    def layouts(self) -> dict[str, Layout]:
        o = self.operator
        return {"a": Layout((o.m, o.k), "input"), "b": Layout((o.k, o.n), "input"), "c": Layout((o.m, o.n), "nothing")}

    def bars(self) -> dict[str, int]:
        return {"arrived": self.devices * self.blocks}

    def tasks(self, dev: int) -> int:
        return self.devices * self.blocks * self.columns

    def comm_tasks(self, dev: int) -> int:
        return self.blocks * self.pieces if self.devices > 1 else 0

    def outputs(self) -> str:
        return "c"

    def inputs(self, rng: np.random.Generator) -> list[dict[str, Any]]:
        o, own = self.operator, self.operator.m // self.devices
        given = []
        for dev in range(self.devices):
            a = np.full((o.m, o.k), np.nan, np.float32)
            a[dev * own : (dev + 1) * own] = rng.standard_normal((own, o.k))
            given.append({"a": a, "b": rng.standard_normal((o.k, o.n)).astype(np.float32)})
        return given

    def expected(self, inputs: list[dict[str, Any]]) -> list[Any]:
        own = self.operator.m // self.devices
        whole = np.concatenate([x["a"][d * own : (d + 1) * own] for d, x in enumerate(inputs)]).astype(float)
        return [whole @ x["b"].astype(float) for x in inputs]
