"""RaggedShard: a placement in which every rank holds a contiguous share of the flattened tensor, of any size.

`dims` is a prefix (0, …, k) of the tensor's dimensions: a share consists of whole slices over the remaining ones, the product of whose
sizes is the granularity. `local_units` gives each rank's share in units of numel/Σ units; zeros are allowed, so that a tensor may live on
one rank. (1, 2, 1, 1) over four ranks means 20, 40, 20 and 20 %.

If tensor or expert parallelism has already divided dimension 0 into `split_factor` parts, each part is ragged by itself. The logical order
is rebuilt by gathering within each part first (`intervals`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.comm import Communicator


@dataclass(frozen=True)
class RaggedShard:
    """Which contiguous share of the flattened tensor each rank holds."""

    dims: tuple[int, ...]
    local_units: tuple[int, ...]
    split_factor: int = 1

    def __post_init__(self) -> None:
        if self.dims != tuple(range(len(self.dims))) or not self.dims:
            raise InputError(f"found {self.dims}; expected a prefix (0, 1, …) of the dimensions", where="RaggedShard: dims")
        if not self.local_units or any(u < 0 for u in self.local_units) or not any(self.local_units):
            raise InputError(f"found {self.local_units}; expected whole numbers from 0, not all 0", where="RaggedShard: local_units")
        if self.split_factor < 1:
            raise InputError(f"found {self.split_factor}; expected at least 1", where="RaggedShard: split_factor")

    @staticmethod
    def of_sizes(shape: Sequence[int], sizes: Sequence[int]) -> RaggedShard:
        """The placement with these local sizes in elements, with as few `dims` as they allow."""
        unit = math.gcd(*sizes)
        for k in range(1, len(shape) + 1):
            if unit % math.prod(shape[k:]) == 0:
                break
        return RaggedShard(tuple(range(k)), tuple(size // unit for size in sizes))

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.local_units)

    def granularity(self, shape: Sequence[int]) -> int:
        """Elements of which every local size is a multiple."""
        return math.prod(shape[len(self.dims) :])

    def sizes(self, shape: Sequence[int]) -> list[int]:
        """Local elements of each rank; raises `InputError` where the units do not divide the tensor."""
        if len(self.dims) > len(shape):
            raise InputError(f"found {len(self.dims)} for a tensor of shape {tuple(shape)}", where="RaggedShard: dims")
        size, total = math.prod(shape), sum(self.local_units)
        if self.split_factor > 1 and shape[0] % self.split_factor:
            raise InputError(f"found {self.split_factor} for {shape[0]} rows; expected a divisor", where="RaggedShard: split_factor")
        part = size // self.split_factor
        if part % total:
            raise InputError(f"found {total} units for {part} elements; expected a divisor", where="RaggedShard: local_units")
        found, grain = [unit * (part // total) for unit in self.local_units], self.granularity(shape)
        for rank, local in enumerate(found):
            if local % grain:
                said = f"rank {rank} would hold {local} elements; expected a multiple of {grain}"
                raise InputError(said, where="RaggedShard: local_units")
        return found

    def intervals(self, shape: Sequence[int], rank: int) -> list[tuple[int, int]]:
        """The flat intervals [start, stop) of the logical tensor that a rank holds: one for each of the `split_factor` parts."""
        sizes = self.sizes(shape)
        start, part = sum(sizes[:rank]), math.prod(shape) // self.split_factor
        return [(j * part + start, j * part + start + sizes[rank]) for j in range(self.split_factor)]

    def split(self, tensor: Any, rank: int, part: int = 0) -> Any:
        """A rank's share of the whole tensor, flat and without a copy; `part` is its place along the other parallelism."""
        if not _contiguous(tensor):
            raise InputError("found a tensor whose elements are not contiguous; expected row-major order", where="RaggedShard")
        start, stop = self.intervals(tuple(tensor.shape), rank)[part]
        return tensor.reshape(-1)[start:stop]

    def gather(self, ranks: Communicator, local: Any, shape: Sequence[int]) -> Any:
        """All shares joined on every rank: an all-gather from ragged to replicated. `shape` is that of one part."""
        sizes = self._checked(ranks, local, shape)
        whole = _like(local, sum(sizes))
        ranks.allgatherv(_array(local), _array(whole), sizes)
        return whole.reshape(tuple(shape))

    def reduce_scatter(self, ranks: Communicator, partial: Any) -> Any:
        """The sum of all ranks' tensors, of which every rank gets its share: from partial to ragged."""
        shape = tuple(partial.shape)
        sizes = self._one_part(shape)
        local = _like(partial, sizes[ranks.rank])
        ranks.reduce_scatter(_array(partial.reshape(-1)), _array(local), counts=sizes)
        return local

    def redistribute(self, ranks: Communicator, local: Any, shape: Sequence[int], to: RaggedShard) -> Any:
        """The shares of another ragged placement; ranks exchange only what they do not hold."""
        return self._moved(ranks, local, shape, to._one_part(shape))

    def to_shard(self, ranks: Communicator, local: Any, shape: Sequence[int]) -> Any:
        """The rows of `Shard(0)`: ceil(rows/N) on each rank, fewer at the end."""
        rows, each = shape[0], -(-shape[0] // ranks.size)
        width = math.prod(shape[1:])
        sizes = [max(0, min(rows, (r + 1) * each) - r * each) * width for r in range(ranks.size)]
        return self._moved(ranks, local, shape, sizes).reshape(-1, *shape[1:])

    def norm(self, ranks: Communicator, local: Any) -> float:
        """The Euclidean norm of the whole tensor, from one all-reduce."""
        square = np.asarray(_array(local), np.float64)
        return float(np.sqrt(ranks.allreduce(np.array([np.sum(square * square)]))[0]))

    def _moved(self, ranks: Communicator, local: Any, shape: Sequence[int], sizes: Sequence[int]) -> Any:
        held = self._checked(ranks, local, shape)
        out = _like(local, sizes[ranks.rank])
        moved = _overlaps(held, sizes)
        ranks.alltoallv(_array(local), moved[ranks.rank], _array(out), [row[ranks.rank] for row in moved])
        return out

    def _one_part(self, shape: Sequence[int]) -> list[int]:
        if self.split_factor > 1:
            raise InputError("found a strided placement; expected the placement of one part", where="RaggedShard")
        return self.sizes(shape)

    def _checked(self, ranks: Communicator, local: Any, shape: Sequence[int]) -> list[int]:
        sizes = self._one_part(shape)
        if len(sizes) != ranks.size:
            raise InputError(f"found {len(sizes)} for {ranks.size} ranks", where="RaggedShard: local_units")
        if not _contiguous(local) or math.prod(local.shape) != sizes[ranks.rank]:
            said = f"found a share of shape {tuple(local.shape)} on rank {ranks.rank}; expected {sizes[ranks.rank]} contiguous elements"
            raise InputError(said, where="RaggedShard")
        return sizes


def composed(shape: Sequence[int], grain: int, dim: int) -> int:
    """The granularity with which a ragged cut never crosses dimension `dim` > 0, along which the tensor is sharded too."""
    if not 0 < dim < len(shape):
        raise InputError(f"found {dim} for {len(shape)} dimensions; expected a dimension after the first", where="dim")
    return math.lcm(grain, math.prod(shape[dim + 1 :]) * shape[dim])


def _overlaps(held: Sequence[int], wanted: Sequence[int]) -> list[list[int]]:
    """Elements that rank i holds of what rank j wants."""
    a, b = np.cumsum([0, *held]), np.cumsum([0, *wanted])
    both = np.minimum(a[1:, None], b[None, 1:]) - np.maximum(a[:-1, None], b[None, :-1])
    found: list[list[int]] = np.maximum(both, 0).tolist()
    return found


def _contiguous(tensor: Any) -> bool:
    if hasattr(tensor, "is_contiguous"):
        return bool(tensor.is_contiguous())
    return bool(tensor.flags.c_contiguous)


def _like(tensor: Any, size: int) -> Any:
    return tensor.new_empty(size) if hasattr(tensor, "new_empty") else np.empty(size, tensor.dtype)


def _array(tensor: Any) -> Any:
    flat = tensor.detach().reshape(-1) if hasattr(tensor, "detach") else tensor.reshape(-1)
    return flat.numpy() if hasattr(flat, "numpy") else flat
