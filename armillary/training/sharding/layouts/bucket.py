"""A bucket: the weights of one collective call, and where each of them lies in a buffer of N equal shards.

Gloo and NCCL gather only shards of equal size, so every technique has such a buffer. In a *flat* bucket each weight lies whole at an
offset, and its shares are ragged. In an *interleaved* bucket each weight is divided evenly among the ranks by itself, so that a gathered
weight lies in N places and has to be copied together. Sizes and offsets are in elements.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from armillary.errors import InputError

from ..ragged.granularity import Weight
from ..ragged.planner import Ints, Plan, cut_blocks

#: The most cuts that are looked at one by one.
MOST_CUTS = 1 << 24


class Piece(NamedTuple):
    """A rank's contiguous share of a flattened weight: where it lies in the shard, and the flat range [start, stop)."""

    at: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Elements."""
        return self.stop - self.start


@dataclass(frozen=True)
class Bucket:
    """The weights of one collective over `n` ranks with `shard` elements each."""

    weights: tuple[Weight, ...]
    n: int
    shard: int

    @property
    def elements(self) -> int:
        """Elements of the weights, without padding."""
        return sum(w.size for w in self.weights)

    @property
    def padded(self) -> int:
        """Elements of the gathered buffer."""
        return self.n * self.shard

    def piece(self, index: int, rank: int) -> Piece:
        """A rank's share of one weight; empty where it has none."""
        raise NotImplementedError

    def cut(self, index: int) -> Ints:
        """The numbers of the blocks of a weight that lie on more than one rank, ascending."""
        raise NotImplementedError

    def cut_count(self, index: int) -> int:
        """The number of blocks of a weight on more than one rank."""
        return len(self.cut(index))

    def cut_blocks(self) -> int:
        """The number of blocks on more than one rank."""
        # Counted once for all modules that are equal but for their names.
        return _cut_blocks(renamed(self, [Weight("", w.shape, w.block) for w in self.weights]))

    def pieces(self, rank: int) -> Iterator[tuple[int, Piece]]:
        """The shares that are not empty, with the number of their weight."""
        for i in range(len(self.weights)):
            found = self.piece(i, rank)
            if found.size:
                yield i, found


@dataclass(frozen=True)
class Flat(Bucket):
    """Each weight lies whole at its offset in the gathered buffer."""

    offsets: tuple[int, ...] = ()

    @staticmethod
    def of(plan: Plan) -> Flat:
        """The bucket of a plan."""
        return Flat(plan.weights, plan.n, plan.shard, plan.offsets)

    def piece(self, index: int, rank: int) -> Piece:
        """See `Bucket.piece`."""
        at, size, first = self.offsets[index], self.weights[index].size, rank * self.shard
        start, stop = max(0, first - at), min(size, first + self.shard - at)
        return Piece(max(0, at - first), start, stop) if stop > start else Piece(0, 0, 0)

    def cut(self, index: int) -> Ints:
        """See `Bucket.cut`."""
        weight = self.weights[index]
        return cut_blocks(weight.size, weight.grain, self.shard, self.offsets[index])


@dataclass(frozen=True)
class Interleaved(Bucket):
    """Each weight is divided evenly among the ranks along `dims[i]`, or by elements where that is None.

    `chunks[i]` is what a rank holds of weight i, in elements with padding; `starts[i]` is its place in the shard.
    """

    dims: tuple[int | None, ...] = ()
    chunks: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()

    @staticmethod
    def of(weights: Sequence[Weight], n: int, dims: Sequence[int | None], align: int) -> Interleaved:
        """The bucket in which every weight is divided along its dimension."""
        chunks = []
        for weight, dim in zip(weights, dims, strict=True):
            if dim is None:
                chunks.append(-(-weight.size // n))
            else:
                chunks.append(-(-weight.shape[dim] // n) * (weight.size // weight.shape[dim]))
        starts = np.concatenate(([0], np.cumsum(chunks))).tolist()
        shard = -(-starts[-1] // align) * align
        return Interleaved(tuple(weights), n, shard, tuple(dims), tuple(chunks), tuple(starts[:-1]))

    def piece(self, index: int, rank: int) -> Piece:
        """See `Bucket.piece`; a weight that is divided along another dimension than the first has no contiguous shares."""
        if self.dims[index] not in (0, None):
            raise InputError(f'"{self.weights[index].name}" is divided along dimension {self.dims[index]}; expected contiguous shares')
        size, chunk = self.weights[index].size, self.chunks[index]
        start, stop = min(size, rank * chunk), min(size, (rank + 1) * chunk)
        return Piece(self.starts[index], start, stop)

    def cut(self, index: int) -> Ints:
        """See `Bucket.cut`; only for weights that are divided along the first dimension or by elements."""
        weight = self.weights[index]
        self.piece(index, 0)
        return cut_blocks(weight.size, weight.grain, self.chunks[index])

    def cut_count(self, index: int) -> int:
        """See `Bucket.cut_count`."""
        weight, dim = self.weights[index], self.dims[index]
        if dim is None or dim == 0 or weight.grain == 1:
            return 0 if weight.grain == 1 else len(self.cut(index))
        high, wide = weight.block_shape
        each = -(-weight.shape[dim] // self.n)
        if dim == len(weight.shape) - 1:
            return -(-weight.size // weight.grain) if each < weight.columns and each % wide else 0
        # The rows of each of the stacked matrices are divided in the same way.
        stacked, inner = math.prod(weight.shape[:dim]), math.prod(weight.shape[dim:-1])
        rows = each * math.prod(weight.shape[dim + 1 : -1])
        one = np.arange(rows, inner, rows, dtype=np.int64)
        if inner % high == 0:
            return stacked * len(np.unique(one[one % high != 0] // high))
        if stacked * len(one) > MOST_CUTS:
            raise InputError(f'"{weight.name}": found {stacked:,} matrices whose rows no block divides; expected fewer')
        cuts = (np.arange(stacked)[:, None] * inner + one).ravel()
        return len(np.unique(cuts[cuts % high != 0] // high))


@dataclass(frozen=True)
class Whole(Bucket):
    """Every rank holds all weights, one after the other; `n` ranks share nothing but the sum of the gradients."""

    offsets: tuple[int, ...] = ()

    @staticmethod
    def of(weights: Sequence[Weight], n: int) -> Whole:
        """The bucket with copies of all weights."""
        offsets = np.concatenate(([0], np.cumsum([w.size for w in weights]))).tolist()
        return Whole(tuple(weights), n, offsets[-1], tuple(offsets[:-1]))

    @property
    def padded(self) -> int:
        """Elements of the buffer that travels."""
        return self.shard

    def piece(self, index: int, rank: int) -> Piece:
        """See `Bucket.piece`."""
        return Piece(self.offsets[index], 0, self.weights[index].size)

    def cut(self, index: int) -> Ints:
        """See `Bucket.cut`."""
        return np.empty(0, np.int64)


@functools.lru_cache(maxsize=256)
def _cut_blocks(bucket: Bucket) -> int:
    return sum(bucket.cut_count(i) for i in range(len(bucket.weights)))


def renamed(bucket: Bucket, weights: Sequence[Weight]) -> Bucket:
    """The same bucket for weights of equal shapes and blocks in another module."""
    return replace(bucket, weights=tuple(weights))
