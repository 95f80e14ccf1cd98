"""Ring attention: K and V go round, stored into the next device's other buffer while the current ones are used.

Each device keeps its queries. In stage s it attends to the chunk that began s devices before it; meanwhile communicators pass that chunk
on. A buffer may be overwritten when its device has used it and passed it on, which storers and communicators signal back. An SM keeps
its blocks of queries in all stages and merges each chunk into their running maximum, sum and output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from .primitives import compute, load, signal, store_async, wait
from .template import Actions, Layout, TileProgram

#: The most blocks of queries of one device and stage, and the least and most pieces of a chunk; longer work has larger blocks.
MOST_BLOCKS, LEAST_PIECES, MOST_PIECES = 1056, 64, 256


@dataclass(frozen=True)
class RingAttention(TileProgram):
    """O = softmax(Q·Kᵀ/√D)·V over all devices' K and V, for each device's queries."""

    op: ClassVar[str] = "ring_attention"

    @cached_property
    def chunk(self) -> int:
        """Tokens of one device."""
        return self.operator.sequence // self.devices

    @cached_property
    def pairs(self) -> int:
        """Sequences times heads."""
        return self.operator.batch * self.operator.heads

    @cached_property
    def rows(self) -> int:
        """Queries of one block: a tile's rows, or more where there would be too many blocks."""
        rows = self.tile.m
        while self.pairs * -(-self.chunk // rows) > MOST_BLOCKS and rows < self.chunk:
            rows *= 2
        return rows

    @cached_property
    def blocks(self) -> int:
        """Blocks of queries of one device."""
        return self.pairs * -(-self.chunk // self.rows)

    @cached_property
    def parts(self) -> int:
        """Pieces along the tokens, where there are few sequences and heads."""
        return min(self.chunk, -(-LEAST_PIECES // self.pairs))

    @cached_property
    def pieces(self) -> int:
        """Pieces of a chunk of K and V, along sequences and heads and along tokens."""
        return min(self.pairs, MOST_PIECES) * self.parts

    def place(self, task: int) -> tuple[int, int, int, int]:
        """Stage, sequence and head, and the queries of a task."""
        stage, block = divmod(task, self.blocks)
        pair, number = divmod(block, -(-self.chunk // self.rows))
        return stage, pair, number * self.rows, min((number + 1) * self.rows, self.chunk)

    def loader(self, dev: int, task: int) -> Actions:
        if task >= self.blocks:
            yield wait("arrived", task // self.blocks, self.pieces)

    def consumer(self, dev: int, task: int) -> Actions:
        stage, pair, first, last = self.place(task)
        source, o = (dev - stage) % self.devices, self.operator
        share = 1.0 if not o.causal or source < dev else 0.5 * (source == dev)
        pairs = share * (last - first) * self.chunk
        yield compute(
            "o", lambda local: attend(local, stage % 2, pair, first, last, (dev - source) * self.chunk if o.causal else None),
            4.0 * pairs * o.width, share * 2.0 * self.chunk * o.width * o.bytes_per_element, 0.0, True,
        )  # fmt: skip

    def storer(self, dev: int, task: int) -> Actions:
        if task < (self.devices - 2) * self.blocks:
            yield signal("used", task // self.blocks, (dev - 1) % self.devices)

    def communicator(self, dev: int, task: int) -> Actions:
        stage, piece = divmod(task, self.pieces)
        group, part = divmod(piece, self.parts)
        first, last = (self.pairs * (group + i) * self.parts // self.pieces for i in (0, 1))
        low, high = (self.chunk * (part + i) // self.parts for i in (0, 1))
        here, there = (((stage + i) % 2, (stage + i) % 2 + 1) for i in (0, 1))
        rest = (first, last), (0, 2), (low, high), (0, self.operator.width)
        if stage:
            yield wait("arrived", stage, self.pieces)
            yield wait("used", stage - 1, self.blocks + self.pieces)
        yield load("kv", "kv", (here, *rest))
        yield store_async("kv", (dev + 1) % self.devices, "kv", (there, *rest))
        yield signal("arrived", stage + 1, (dev + 1) % self.devices)
        yield signal("used", stage, (dev - 1) % self.devices)

    def lane(self, task: int, workers: int) -> int:
        return (task % self.blocks) % workers

    def layouts(self) -> dict[str, Layout]:
        rows = (self.pairs, self.chunk)
        return {
            "q": Layout((*rows, self.operator.width), "input"), "kv": Layout((2, self.pairs, 2, self.chunk, self.operator.width), "input"),
            "o": Layout((*rows, self.operator.width)), "high": Layout(rows, "input"), "sum": Layout(rows),
        }  # fmt: skip

    def bars(self) -> dict[str, int]:
        return {"arrived": self.devices, "used": self.devices}

    def tasks(self, dev: int) -> int:
        return self.devices * self.blocks

    def comm_tasks(self, dev: int) -> int:
        return (self.devices - 1) * self.pieces

    def outputs(self) -> str:
        return "o"

    def inputs(self, rng: np.random.Generator) -> list[dict[str, Any]]:
        given = []
        for _ in range(self.devices):
            kv = np.full((2, self.pairs, 2, self.chunk, self.operator.width), np.nan, np.float32)
            kv[0] = rng.standard_normal(kv.shape[1:])
            q = rng.standard_normal((self.pairs, self.chunk, self.operator.width)).astype(np.float32)
            given.append({"q": q, "kv": kv, "high": np.full((self.pairs, self.chunk), -np.inf, np.float32)})
        return given

    def expected(self, inputs: list[dict[str, Any]]) -> list[Any]:
        q = np.concatenate([x["q"] for x in inputs], axis=1)
        k, v = (np.concatenate([x["kv"][0][:, i] for x in inputs], axis=1) for i in (0, 1))
        return list(np.split(softmax_attention(q, k, v, self.operator.causal), self.devices, axis=1))


def attend(local: Any, buffer: int, pair: int, first: int, last: int, ahead: int | None) -> Any:
    """Merges one chunk of K and V into a block's output; `ahead` is how far the queries are ahead of the chunk, where a mask matters."""
    q, (k, v) = local["q"][pair, first:last], local["kv"][buffer, pair]
    scores = q @ k.T / np.float32(math.sqrt(q.shape[1]))
    if ahead is not None:
        if ahead < 0:
            return local["o"][pair, first:last]
        scores = np.where(np.arange(first, last)[:, None] + ahead >= np.arange(len(k))[None, :], scores, -np.inf).astype(np.float32)
    high, total, out = local["high"][pair, first:last], local["sum"][pair, first:last], local["o"][pair, first:last]
    now = np.maximum(high, scores.max(1))
    old, weights = np.exp(high - now), np.exp(scores - now[:, None])
    new = old * total + weights.sum(1)
    out[:] = (out * (old * total)[:, None] + weights @ v) / new[:, None]
    high[:], total[:] = now, new
    return out


def softmax_attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Attention in float64, the plain way; the first axis is sequences and heads."""
    scores = q.astype(float) @ k.astype(float).transpose(0, 2, 1) / math.sqrt(q.shape[2])
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    return weights / weights.sum(2, keepdims=True) @ v.astype(float)
