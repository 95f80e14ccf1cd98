"""The collectives of sharded training over one communicator, in place and counted.

On `gloo` they are calls of the library itself on the tensors' own memory, and run in the background; `wait` ends them. On other backends
they are calls of the communicator and are done when they return. Gloo's reduce-scatter sums the whole buffer on every rank (measured, four
times slower), so that here ranks exchange blocks and each adds up its own, in the order of the ranks: every backend gives the same bits.
The buffer into which the blocks arrive belongs to the transport and is not counted as state.

`bytes` follows `armillary.comm.Counters`: the payload for other ranks, once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from armillary.comm import MAX, Communicator
from armillary.comm.failures import Aborted


class Transfer:
    """A collective that is under way."""

    def __init__(self, work: Any = None, after: Callable[[], None] | None = None) -> None:
        self._work, self._after = work, after

    def wait(self) -> None:
        """Return when it is done."""
        if self._work is not None:
            try:
                self._work.wait()
            except RuntimeError as error:
                raise Aborted(f"a rank was lost in a collective ({str(error).splitlines()[0][:120]})") from error
        if self._after is not None:
            self._after()
        self._work = self._after = None


class Wires:
    """Collectives on flat tensors over the ranks of a communicator."""

    def __init__(self, ranks: Communicator) -> None:
        self.ranks = ranks
        self.rank, self.size = ranks.rank, ranks.size
        #: Payload for other ranks so far.
        self.bytes = 0
        #: The library's group, where it works on the memory of tensors and in the background.
        self._group: Any = ranks.native if self.size > 1 and hasattr(ranks.native, "_allgather_base") else None

    def gather(self, whole: Tensor, mine: Tensor) -> Transfer:
        """Gather the shards of all ranks into `whole`, one after the other."""
        self.bytes += mine.nbytes if self.size > 1 else 0
        if self.size == 1:
            whole.copy_(mine)
            return Transfer()
        if self._group is not None:
            return Transfer(self._group._allgather_base(_plain(whole), _plain(mine)))
        self.ranks.allgather(_array(mine), _array(whole))
        return Transfer()

    def scatter(self, mine: Tensor, whole: Tensor) -> Transfer:
        """Put the mean over the ranks of this rank's block of `whole` into `mine`."""
        self.bytes += whole.nbytes - whole.nbytes // self.size
        if self.size == 1:
            mine.copy_(whole)
            return Transfer()
        blocks = torch.empty_like(whole)

        def add() -> None:
            torch.sum(blocks.view(self.size, -1), 0, dtype=mine.dtype, out=mine)
            mine.div_(self.size)

        if self._group is not None:
            return Transfer(self._group.alltoall_base(_plain(blocks), _plain(whole), [], []), add)
        self.ranks.alltoall(_array(whole), _array(blocks))
        add()
        return Transfer()

    def mean(self, whole: Tensor) -> Transfer:
        """Replace `whole` by its mean over the ranks."""
        self.bytes += whole.nbytes if self.size > 1 else 0
        if self.size == 1:
            return Transfer()
        if self._group is not None:

            def divide() -> None:
                whole.div_(self.size)

            return Transfer(self._group.allreduce([whole]), divide)
        self.ranks.allreduce(_array(whole).copy(), _array(whole))
        whole.div_(self.size)
        return Transfer()

    def largest(self, values: Tensor) -> None:
        """Replace values by their maxima over the ranks."""
        self.bytes += values.nbytes if self.size > 1 else 0
        if self.size > 1 and values.numel():
            values.copy_(torch.from_numpy(self.ranks.allreduce(_array(values).copy(), op=MAX)).view_as(values))

    def total(self, value: float) -> float:
        """The sum of a number over the ranks."""
        self.bytes += 8 if self.size > 1 else 0
        return float(self.ranks.allreduce(np.array([value]))[0]) if self.size > 1 else value


def _plain(tensor: Tensor) -> Tensor:
    """The same memory in a type that every transport moves."""
    return tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor


_NUMPY = {torch.float32: "f4", torch.float64: "f8", torch.bfloat16: "i2", torch.float16: "f2"}


def _array(tensor: Tensor) -> npt.NDArray[Any]:
    """The tensor's memory as an array. `Tensor.numpy` would do, but forbids that the memory is ever freed by resizing."""
    memory = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
    return np.frombuffer(memory, np.dtype(_NUMPY[tensor.dtype]))  # type: ignore[call-overload]
