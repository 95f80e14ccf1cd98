"""Tall QR of a block on one CUDA device: the host queues the passes and checks each small triangle while the rows are worked on.

Nothing but triangles leaves the device, and nothing waits for the host until it is checked that the factors can be trusted. Where they
cannot, the caller drops them and takes the way that serves all arrays.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton

from armillary.arrays.kinds import count_copied

from ..ranks.rows import sampled_rows
from . import cuda_kernels as kernels
from .triangles import Array

#: The most columns whose Gram matrix fits the registers of a program.
MOST_COLUMNS = 64
#: Rows of a tile, warps of a program and programs per multiprocessor, measured on an H200: a pass that divides and multiplies, one that
#: only divides, and one that only multiplies.
BOTH, DIVIDE, GRAM = (64, 4, 2), (64, 4, 6), (32, 4, 2)
#: Warps of the programs that factor small matrices.
LU_WARPS, CHOLESKY_WARPS = 8, 4
_CHUNK, _TOGETHER, _SAMPLED = 32, 64, 16
#: Words of a triangle's record beyond the triangle and the diagonal.
_MORE = 16


def fits(x: Any) -> bool:
    """Says whether `x` is a block that these kernels take."""
    return (
        isinstance(x, torch.Tensor)
        and x.device.type == "cuda"
        and x.device.index == torch.cuda.current_device()
        and x.dtype == torch.float64
        and x.ndim == 2
        and 0 < x.shape[1] <= min(MOST_COLUMNS, x.shape[0])
        and x.is_contiguous()
    )


@dataclass(frozen=True)
class Triangle:
    """A small factor on the host: the matrix, the diagonal of its Gram matrix (nothing for an LU), and the condition of the blocks that are
    inverted.
    """

    matrix: Array
    diagonal: Array
    condition: float

    def usable(self, most: float) -> bool:
        """Says whether rows were divided by this triangle as accurately as substitution does."""
        return bool(self.condition <= most and np.isfinite(self.matrix).all() and (np.diagonal(self.matrix) > 0).all())


class Passes:
    """The work on one block, of which `q` holds the rows; the work begins when this is made."""

    def __init__(self, x: Any, pivoted: bool) -> None:
        """Queues the passes before the last one: `pivoted`, a pass by the U of a sample's LU and one by the S of the first Gram matrix,
        else a pass that gives the Gram matrix and one by its Cholesky factor.
        """
        self._rows, self._n = x.shape
        self._wide = max(kernels.WIDTH, triton.next_power_of_2(self._n))
        self._many = _multiprocessors(x.device) if x.device.type == "cuda" else 2
        size, blocks = self._wide**2, self._wide // kernels.WIDTH
        self._record = size + self._wide + _MORE
        self._count = 3 if pivoted else 2
        sums = self._many * max(BOTH[2], GRAM[2]) * size
        chosen = _sample(self._rows, self._n, x.device) if pivoted else None
        sample = 0 if chosen is None else max(_SAMPLED, triton.next_power_of_2(len(chosen)))
        room = torch.empty(
            self._count * self._record + blocks * kernels.WIDTH**2 + size + max(sums, self._wide * sample), dtype=x.dtype, device=x.device
        )
        self._records, room = room[: self._count * self._record], room[self._count * self._record :]
        self._inverses, room = room[: blocks * kernels.WIDTH**2], room[blocks * kernels.WIDTH**2 :]
        self._gram, self._partial = room[:size], room[size:]
        self.q = torch.empty_like(x)
        if chosen is None:
            count = self._multiply(x)
        else:
            self._pivot(x, chosen, sample)
            count = self._divide(x, 0, True)
        self._factor(self._count - 2, count)
        self._first = _Reading(self._records[: (self._count - 1) * self._record])
        self._last = self._divide(x if chosen is None else self.q, self._count - 2, True)

    def triangles(self) -> list[Triangle]:
        """Returns the triangles but the last one, while the device goes on."""
        return [self._triangle(words) for words in self._first.wait().reshape(-1, self._record)]

    def finish(self) -> Triangle:
        """Queues the last pass and returns its triangle."""
        self._factor(self._count - 1, self._last)
        reading = _Reading(self._records[(self._count - 1) * self._record :])
        self._divide(self.q, self._count - 1, False)
        return self._triangle(reading.wait())

    def _triangle(self, words: Array) -> Triangle:
        n, wide = self._n, self._wide
        conditions = words[wide * (wide + 1) :][: wide // kernels.WIDTH]
        return Triangle(words[: wide * wide].reshape(wide, wide)[:n, :n], words[wide * wide :][:n], float(conditions.max()))

    def _places(self, number: int) -> tuple[Any, Any, Any]:
        """Returns where triangle, diagonal and conditions of a record lie."""
        record = self._records[number * self._record :]
        return record, record[self._wide**2 :], record[self._wide**2 + self._wide :]

    def _dealt(self, rows: int, most: int) -> tuple[int, int]:
        """Returns how many programs there are, and how many tiles each of them takes."""
        tiles = triton.cdiv(self._rows, rows)
        programs = min(tiles, self._many * most)
        return programs, triton.cdiv(tiles, programs)

    def _multiply(self, x: Any) -> int:
        rows, warps, most = GRAM
        programs, each = self._dealt(rows, most)
        kernels.gram_rows[(programs,)](x, self._partial, self._rows, self._n, each, N=self._wide, ROWS=rows, num_warps=warps, num_stages=1)
        return programs

    def _divide(self, x: Any, number: int, gram: bool) -> int:
        rows, warps, most = BOTH if gram else DIVIDE
        programs, each = self._dealt(rows, most)
        kernels.divide_rows[(programs,)](
            x, self.q, self._places(number)[0], self._inverses, self._partial, self._rows, self._n, each,
            GRAM=gram, BLOCKS=self._wide // kernels.WIDTH, ROWS=rows, WIDTH=kernels.WIDTH, num_warps=warps, num_stages=1,
        )  # fmt: skip
        return programs

    def _pivot(self, x: Any, chosen: Any, sample: int) -> None:
        triangle, _, conditions = self._places(0)
        some, n, wide = len(chosen), self._n, self._wide
        lanes = min(64, sample)
        kernels.sampled[(sample // _SAMPLED,)](x, chosen, self._partial, some, n, LANES=lanes, N=wide, ROWS=_SAMPLED)
        kernels.upper_of_sample[(1,)](
            self._partial, triangle, self._inverses, conditions, some, n,
            GROUPS=sample // lanes, LANES=lanes, N=wide, WIDTH=kernels.WIDTH, num_warps=LU_WARPS,
        )  # fmt: skip

    def _factor(self, number: int, count: int) -> None:
        triangle, diagonal, conditions = self._places(number)
        size = self._wide**2
        kernels.added[(size // _CHUNK,)](self._partial, self._gram, count, SIZE=size, CHUNK=_CHUNK, TOGETHER=_TOGETHER)
        kernels.cholesky[(1,)](
            self._gram, triangle, self._inverses, diagonal, conditions, self._n, N=self._wide, WIDTH=kernels.WIDTH, num_warps=CHOLESKY_WARPS
        )


class _Reading:
    """Words on their way to the host."""

    def __init__(self, words: Any) -> None:
        count_copied(words.nbytes)
        if words.device.type == "cpu":
            self._host, self._event = words.clone(), None
            return
        self._host = torch.empty(words.shape, dtype=words.dtype, pin_memory=True)
        self._host.copy_(words, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record()

    def wait(self) -> Array:
        """Returns the words once they are there."""
        if self._event is not None:
            self._event.synchronize()
        found: Array = self._host.numpy()
        return found


@functools.lru_cache(maxsize=16)
def _multiprocessors(device: Any) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@functools.lru_cache(maxsize=16)
def _sample(rows: int, n: int, device: Any) -> Any:
    return torch.from_numpy(sampled_rows(rows, n)).to(device)
