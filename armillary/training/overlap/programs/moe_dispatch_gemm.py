"""Dispatch, then expert products: tokens are stored into their experts' rows, and a block of rows is multiplied when it is complete.

The rows of an expert lie in the order of the devices that send them, and are cut into blocks of a tile's rows. A communicator's task is
a few tokens of its device for one block; the block's counter says how many of these parts have arrived. Each device takes the owners in
turns and begins with another one, so that no link gets everything at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from .primitives import compute, load, signal, store_async, wait
from .template import Actions, Layout, TileProgram

#: Tokens that a communicator stores in one task.
ROWS = 16


class Part(NamedTuple):
    """Rows of one device for one block: the owner, the block's number there, the first and last row in the owner's buffer, and which of
    the device's rows for that expert they are.
    """

    owner: int
    block: int
    first: int
    last: int
    expert: int
    skip: int


class Block(NamedTuple):
    """Rows of an expert in its owner's buffer, and the number of parts that they come in."""

    expert: int
    first: int
    last: int
    parts: int


@dataclass(frozen=True)
class MoeDispatchGemm(TileProgram):
    """Y[d] = rows for the experts of device d, each times its expert's matrix."""

    op: ClassVar[str] = "moe_dispatch_gemm"

    @cached_property
    def routes(self) -> tuple[list[list[Part]], list[list[Block]]]:
        """The parts that each device sends, in the order in which it does, and the blocks of each owner."""
        counts = np.asarray(self.operator.counts, np.int64)
        n, each = self.devices, self.operator.experts // self.devices
        parts: list[list[tuple[tuple[int, ...], Part]]] = [[] for _ in range(n)]
        blocks: list[list[Block]] = [[] for _ in range(n)]
        for owner in range(n):
            base = 0
            for local in range(each):
                expert = owner * each + local
                total, starts = int(counts[:, expert].sum()), np.concatenate([[0], np.cumsum(counts[:, expert])])
                for first in range(0, total, self.tile.m):
                    last = min(first + self.tile.m, total)
                    number = len(blocks[owner])
                    arriving = [d for d in range(n) if starts[d] < last and starts[d + 1] > first]
                    before = sum(len(mine) for mine in parts)
                    for d in arriving:
                        start, end = max(first, int(starts[d])), min(last, int(starts[d + 1]))
                        for piece, low in enumerate(range(start, end, ROWS)):
                            part = Part(owner, number, base + low, base + min(low + ROWS, end), expert, low - int(starts[d]))
                            parts[d].append(((local, first // self.tile.m, piece, (owner - d) % n), part))
                    blocks[owner].append(Block(expert, base + first, base + last, sum(len(mine) for mine in parts) - before))
                base += total
        return [[part for _, part in sorted(mine)] for mine in parts], blocks

    @property
    def columns(self) -> int:
        """Tiles in a row of an expert's product."""
        return -(-self.operator.ffn // self.tile.n)

    def communicator(self, dev: int, task: int) -> Actions:
        part = self.routes[0][dev][task]
        region = (part.first, part.last), (0, self.operator.hidden)
        yield load("rows", "x", region, lambda local: picked(local["chosen"], part))
        yield store_async("buffer", part.owner, "rows", region)
        yield signal("complete", part.block, part.owner)

    def loader(self, dev: int, task: int) -> Actions:
        block = task // self.columns
        yield wait("complete", block, self.routes[1][dev][block].parts)

    def consumer(self, dev: int, task: int) -> Actions:
        number, column = divmod(task, self.columns)
        block, o = self.routes[1][dev][number], self.operator
        c0, c1, expert = column * self.tile.n, min((column + 1) * self.tile.n, o.ffn), block.expert - dev * (o.experts // self.devices)
        rows, s = block.last - block.first, o.bytes_per_element
        yield compute(
            "tile", lambda local: local["buffer"][block.first : block.last] @ local["w"][expert][:, c0:c1],
            2.0 * self.tile.m * (c1 - c0) * o.hidden, float(s * o.hidden) * (rows + c1 - c0), float(s * rows) * (c1 - c0),
        )  # fmt: skip

    def storer(self, dev: int, task: int) -> Actions:
        number, column = divmod(task, self.columns)
        block = self.routes[1][dev][number]
        columns = column * self.tile.n, min((column + 1) * self.tile.n, self.operator.ffn)
        yield store_async("y", dev, "tile", ((block.first, block.last), columns))

    def layouts(self) -> dict[str, Layout]:
        o, most = self.operator, int(self.operator.received.max())
        return {
            "x": Layout((o.tokens, o.hidden), "input"), "w": Layout((o.experts // self.devices, o.hidden, o.ffn), "input"),
            "chosen": Layout((o.tokens, o.top_k), "input"), "buffer": Layout((most, o.hidden), "nothing"), "y": Layout((most, o.ffn)),
        }  # fmt: skip

    def bars(self) -> dict[str, int]:
        return {"complete": max(len(blocks) for blocks in self.routes[1])}

    def tasks(self, dev: int) -> int:
        return len(self.routes[1][dev]) * self.columns

    def comm_tasks(self, dev: int) -> int:
        return len(self.routes[0][dev])

    def outputs(self) -> str:
        return "y"

    def inputs(self, rng: np.random.Generator) -> list[dict[str, Any]]:
        o = self.operator
        each = o.experts // self.devices
        given = []
        for dev in range(self.devices):
            chosen = spread(np.asarray(o.counts[dev]), o.tokens, o.top_k)
            x = rng.standard_normal((o.tokens, o.hidden)).astype(np.float32)
            given.append(
                {"x": x, "chosen": chosen.astype(np.float32), "w": rng.standard_normal((each, o.hidden, o.ffn)).astype(np.float32)}
            )
        return given

    def expected(self, inputs: list[dict[str, Any]]) -> list[Any]:
        o, each = self.operator, self.operator.experts // self.devices
        found = []
        for dev in range(self.devices):
            rows = [
                x["x"][(x["chosen"] == dev * each + e).any(1)].astype(float) @ inputs[dev]["w"][e].astype(float)
                for e in range(each) for x in inputs
            ]  # fmt: skip
            y = np.zeros((int(o.received.max()), o.ffn))
            whole = np.concatenate(rows) if rows else y[:0]
            y[: len(whole)] = whole
            found.append(y)
        return found


def picked(chosen: npt.NDArray[Any], part: Part) -> npt.NDArray[np.int64]:
    """The device's tokens that a part holds."""
    return np.flatnonzero((chosen == part.expert).any(1))[part.skip : part.skip + part.last - part.first]


def spread(counts: npt.NDArray[np.int64], tokens: int, top_k: int) -> npt.NDArray[np.int64]:
    """A choice of distinct experts per token with these counts: the experts with most left go first."""
    left, chosen = counts.copy(), np.empty((tokens, top_k), np.int64)
    for t in range(tokens):
        picked = np.argsort(-left, kind="stable")[:top_k]
        left[picked] -= 1
        chosen[t] = np.sort(picked)
    return chosen
