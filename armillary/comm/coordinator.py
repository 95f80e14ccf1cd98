"""One name for transfers that a host or a device starts: post and acknowledge, in batches, around kernels.

The uniform layer of Uniconn. A sender *posts* a buffer and raises a signal; the receiver *acknowledges* it: the data is there when the
signal has the value. Two-sided ranks (MPI, NCCL) match posts with acknowledgements in program order; memory that threads share is written
directly, and the signal says when. A program gives both kinds of argument always, and so runs on all of them.

    coord = Coordinator(comm)
    halo, signal = coord.alloc(n), coord.alloc(1, np.int64)
    with coord.batch():
        coord.post(row, halo, n, signal, turn, up)
        coord.acknowledge(halo, n, signal, turn, down)

What a backend does for a call is looked up once, when the coordinator is made: `post` and the others are attributes of the coordinator, and
calling one is calling the backend's own function. Buffers are checked at their first use and remembered by identity until they die.

Uniconn: A Uniform High-Level Communication Library for Portable Multi-GPU Programming (network/backends holds it against its peers).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from armillary.comm.communicator import Communicator
from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.comm.transfers import Transfers

#: Where a kernel moves the data: the host posts; the kernel moves and the host signals; the kernel does both and waits.
MODES = ("host", "partial-device", "full-device")

#: What does the transfers of each kind of ranks; messages of the communicator for any other.
_TRANSFERS = {
    "MpiRanks": "armillary.comm.transfers_mpi:MpiTransfers",
    "ThreadRanks": "armillary.comm.transfers_threads:ThreadTransfers",
    "GlooRanks": "armillary.comm.transfers_torch:TorchTransfers",
    "DeviceRanks": "armillary.comm.transfers_torch:TorchTransfers",
    "VirtualRanks": "armillary.comm.transfers_virtual:VirtualTransfers",
    "Communicator": "armillary.comm.transfers:Transfers",
}

#: What the coordinator takes from them.
_CALLS = (
    "post", "acknowledge", "wait", "alloc", "free", "allreduce", "reduce", "broadcast", "allgather", "allgatherv", "gather", "gatherv",
    "scatter", "scatterv", "alltoall", "alltoallv",
)  # fmt: skip


class Coordinator:
    """Posts, acknowledgements and collective calls of one rank, in the order of the program. All ranks make theirs together.

    `post(src, dst, count, signal, value, dest)`: make the first `count` elements of `src` visible in `dst` of rank `dest` and raise its
    `signal` to `value`. `dst` and `signal` are this rank's names for the other's memory: the same place in memory that all ranks
    allocated together (`alloc`), or any array, and then the one that the other acknowledges with is meant. Outside a batch `src` may be
    used again afterwards.

    `acknowledge(dst, count, signal, value, source)`: wait (in a batch: at its end) until the signal is at least `value`; `dst` then holds
    what `source` posted.

    Signals are 64-bit integers; the values between a pair at one location only grow (with `debug=True` one that does not is an
    `InputError`). A batch with both directions cannot deadlock: nothing waits before it ends. What is posted into shared memory may arrive
    while its owner still reads what came before: use two buffers in turn, or acknowledge back.

    `alloc(shape, dtype)` gives zeros at the same place on every rank, `free(array)` gives them back; both are called by all ranks.
    The collective calls take and give what the communicator's do, with `IN_PLACE` for each of them, after all that was posted before.

    `mode` says which of the bound kernels `launch` runs; `stream` is the stream on which ranks with devices order their work.
    """

    post: Callable[..., None]
    acknowledge: Callable[..., None]
    wait: Callable[[], None]
    alloc: Callable[..., Any]
    free: Callable[[Any], None]
    allreduce: Callable[..., Any]
    reduce: Callable[..., Any]
    broadcast: Callable[..., Any]
    allgather: Callable[..., Any]
    allgatherv: Callable[..., Any]
    gather: Callable[..., Any]
    gatherv: Callable[..., Any]
    scatter: Callable[..., Any]
    scatterv: Callable[..., Any]
    alltoall: Callable[..., Any]
    alltoallv: Callable[..., Any]

    def __init__(self, comm: Communicator, stream: Any = None, mode: str = "host", debug: bool = False) -> None:
        self.comm = comm
        self._transfers = _transfers(comm, stream)
        self.modes: tuple[str, ...] = self._transfers.modes
        self.mode = self._checked(mode)
        self._transfers.set_mode(mode)
        self._batch = Batch(self._transfers)
        self._kernels: dict[str, Callable[[], Any]] = {}
        self.__dict__.update({name: getattr(self._transfers, name) for name in _CALLS})
        if debug:
            from armillary.comm.signals import growing

            self.post, self.acknowledge = growing(self.post, "dest"), growing(self.acknowledge, "source")

    def batch(self) -> Batch:
        """`with coord.batch():` everything posted and acknowledged inside is done at the end."""
        return self._batch

    def bind(self, kernel: Callable[..., Any], grid: Any = None, block: Any = None, args: Sequence[Any] = (), mode: str = "host") -> None:
        """The kernel that `launch` runs when the coordinator is in this mode.

        A function is called with `args`; where ranks have devices and the kernel takes `kernel[grid, block](*args)`, it is launched so.
        """
        self._kernels[self._checked(mode)] = self._transfers.bound(kernel, grid, block, tuple(args), mode)

    def launch(self) -> Any:
        """Run the kernel bound for the coordinator's mode."""
        kernel = self._kernels.get(self.mode)
        if kernel is None:
            raise InputError(f"launch: found no kernel bound in mode {self.mode}; expected bind(...) before")
        return kernel()

    def _checked(self, mode: str) -> str:
        if mode not in self.modes:
            known = "these ranks do not offer" if mode in MODES else "is unknown"
            raise InputError(f'mode: found "{mode}", which {known}; expected {" or ".join(self.modes)}')
        return mode


class Batch:
    """A bracket around transfers that are done together at its end."""

    __slots__ = ("_begin", "_drop", "_end", "_open")

    def __init__(self, transfers: Transfers) -> None:
        self._begin, self._end, self._drop = transfers.begin, transfers.end, transfers.drop
        self._open = False

    def __enter__(self) -> None:
        if self._open:
            raise InputError("batch: found one inside another; expected one at a time")
        self._open = True
        self._begin()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._open = False
        if kind is None:
            self._end()
        else:
            self._drop()


def _transfers(comm: Communicator, stream: Any) -> Transfers:
    for kind in type(comm).__mro__:
        if kind.__name__ in _TRANSFERS:
            module, _, name = _TRANSFERS[kind.__name__].partition(":")
            made: Transfers = getattr(importlib.import_module(module), name)(comm, stream)
            return made
    raise InputError(f"comm: found {type(comm).__name__}; expected a Communicator")
