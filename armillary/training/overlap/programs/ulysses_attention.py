"""Ulysses attention: tokens are exchanged for heads by direct tile stores, without a kernel that reshapes before or after.

Communicators store each head's Q, K and V rows straight into the buffers of the device that owns the head and count them there; the
consumer of a head starts when all devices have delivered. A finished block of outputs goes straight to the device that owns its tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from .primitives import Region, compute, load, signal, store_async, wait
from .ring_attention import LEAST_PIECES, MOST_BLOCKS, softmax_attention
from .template import Actions, Layout, TileProgram


@dataclass(frozen=True)
class UlyssesAttention(TileProgram):
    """O = softmax(Q·Kᵀ/√D)·V, with tokens over the devices outside and heads over the devices inside."""

    op: ClassVar[str] = "ulysses_attention"

    @cached_property
    def chunk(self) -> int:
        """Tokens of one device."""
        return self.operator.sequence // self.devices

    @cached_property
    def pairs(self) -> int:
        """Sequences times heads of one device."""
        return self.operator.batch * self.operator.heads // self.devices

    @cached_property
    def rows(self) -> int:
        """Queries of one block, none of which crosses the tokens of two devices."""
        rows = self.tile.m
        while self.pairs * self.devices * -(-self.chunk // rows) > MOST_BLOCKS and rows < self.chunk:
            rows *= 2
        return rows

    @cached_property
    def blocks(self) -> int:
        """Blocks of queries of one head and device."""
        return -(-self.chunk // self.rows)

    @cached_property
    def parts(self) -> int:
        """Pieces of a head's tokens, where there are few heads."""
        return min(self.chunk, -(-LEAST_PIECES // (self.pairs * self.devices)))

    def place(self, task: int) -> tuple[int, int, Region]:
        """The pair of a block, the device that owns its tokens, and where they lie there."""
        pair, rest = divmod(task, self.devices * self.blocks)
        owner, block = divmod(rest, self.blocks)
        return pair, owner, ((block * self.rows, min((block + 1) * self.rows, self.chunk)), (0, self.operator.width))

    def communicator(self, dev: int, task: int) -> Actions:
        rest, turn = divmod(task, self.devices)
        pair, part = divmod(rest, self.parts)
        low, high = (self.chunk * (part + i) // self.parts for i in (0, 1))
        owner = (dev + turn) % self.devices
        mine, width = owner * self.pairs + pair, (0, self.operator.width)
        yield load("qkv", "tokens", ((0, 3), (mine, mine + 1), (low, high), width))
        yield store_async("heads", owner, "qkv", ((0, 3), (pair, pair + 1), (dev * self.chunk + low, dev * self.chunk + high), width))
        yield signal("delivered", pair, owner)

    def loader(self, dev: int, task: int) -> Actions:
        yield wait("delivered", self.place(task)[0], self.devices * self.parts)

    def consumer(self, dev: int, task: int) -> Actions:
        pair, owner, (rows, _) = self.place(task)
        first, last, o = owner * self.chunk + rows[0], owner * self.chunk + rows[1], self.operator
        share = (first + last + 1) / (2 * o.sequence) if o.causal else 1.0
        yield compute(
            "o", lambda local: attended(local["heads"][:, pair], first, last, o.causal),
            share * 4.0 * (last - first) * o.sequence * o.width, share * 2.0 * o.sequence * o.width * o.bytes_per_element, 0.0, True,
        )  # fmt: skip

    def storer(self, dev: int, task: int) -> Actions:
        pair, owner, region = self.place(task)
        yield store_async("o", owner, "o", ((dev * self.pairs + pair, dev * self.pairs + pair + 1), *region))

    def layouts(self) -> dict[str, Layout]:
        o = self.operator
        every = self.pairs * self.devices
        return {
            "tokens": Layout((3, every, self.chunk, o.width), "input"), "heads": Layout((3, self.pairs, o.sequence, o.width), "nothing"),
            "o": Layout((every, self.chunk, o.width), "nothing"),
        }  # fmt: skip

    def bars(self) -> dict[str, int]:
        return {"delivered": self.pairs}

    def tasks(self, dev: int) -> int:
        return self.pairs * self.devices * self.blocks

    def comm_tasks(self, dev: int) -> int:
        return self.pairs * self.devices * self.parts

    def outputs(self) -> str:
        return "o"

    def inputs(self, rng: np.random.Generator) -> list[dict[str, Any]]:
        shape = (3, self.pairs * self.devices, self.chunk, self.operator.width)
        return [{"tokens": rng.standard_normal(shape).astype(np.float32)} for _ in range(self.devices)]

    def expected(self, inputs: list[dict[str, Any]]) -> list[Any]:
        q, k, v = np.concatenate([x["tokens"] for x in inputs], axis=2)
        return list(np.split(softmax_attention(q, k, v, self.operator.causal), self.devices, axis=1))


def attended(qkv: Any, first: int, last: int, causal: bool) -> Any:
    """Attention of some queries to all keys of one head."""
    q, k, v = qkv[0, first:last], qkv[1], qkv[2]
    scores = q @ k.T / np.float32(math.sqrt(q.shape[1]))
    if causal:
        scores = np.where(np.arange(first, last)[:, None] >= np.arange(len(k))[None, :], scores, -np.inf).astype(np.float32)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return (weights @ v / weights.sum(1, keepdims=True))[None]
