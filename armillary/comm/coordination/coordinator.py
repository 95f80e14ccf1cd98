"""The coordinator: one set of calls for transfers that a host or a device starts, in batches, around kernels.

This is the uniform layer of Uniconn. A sender *posts* a buffer and raises a signal. The receiver *acknowledges* it, and the data has
arrived when the signal has the value. Two-sided ranks (MPI, NCCL) match posts with acknowledgements in program order. Memory that threads
share is written directly, and the signal says when. A program always gives the arguments that both kinds need, so it runs on all of them.

    coord = Coordinator(comm)
    halo, signal = coord.alloc(n), coord.alloc(1, np.int64)
    with coord.batch():
        coord.post(row, halo, n, signal, turn, up)
        coord.acknowledge(halo, n, signal, turn, down)

The function of the backend behind each call is looked up once, when the coordinator is made: `post` and the others are attributes of the
coordinator, and calling one is calling the backend's own function. Buffers are checked at their first use and remembered by identity until
they die.

Uniconn: A Uniform High-Level Communication Library for Portable Multi-GPU Programming (network/backends compares it with its peers).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from armillary.comm.communicator import Communicator
from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.comm.coordination.transfers import Transfers

#: The modes: the host posts; or the kernel moves data and the host signals; or the kernel moves data, signals and waits.
MODES = ("host", "partial-device", "full-device")

#: The calls that the coordinator takes from the backend's transfers.
_CALLS = (
    "post", "acknowledge", "wait", "alloc", "free", "allreduce", "reduce", "broadcast", "allgather", "allgatherv", "gather", "gatherv",
    "scatter", "scatterv", "alltoall", "alltoallv",
)  # fmt: skip


class Coordinator:
    """Posts, acknowledgements and collective calls of one rank, in the order of the program. All ranks make their coordinators together.

    `post(src, dst, count, signal, value, dest)` makes the first `count` elements of `src` visible in `dst` of rank `dest` and raises the
    `signal` of that rank to `value`. `dst` and `signal` are this rank's names for the other rank's memory: they are the same place in
    memory that all ranks allocated together (`alloc`), or any array, and then the array with which the other rank acknowledges is meant.
    Outside a batch `src` may be used again when the call returns.

    `acknowledge(dst, count, signal, value, source)` waits until the signal is at least `value`, at the end of the batch if there is one.
    `dst` then holds what `source` posted.

    Signals are 64-bit integers. The values between a pair at one location only grow; with `debug=True` one that does not is an
    `InputError`. A batch with both directions cannot deadlock, because nothing waits before it ends. What is posted into shared memory may
    arrive while its owner still reads what came before, so use two buffers in turn, or acknowledge back.

    `alloc(shape, dtype)` allocates zeros at the same place on every rank, and `free(array)` frees them; all ranks make both calls. The
    collective calls take and return what the communicator's calls do. Each of them takes `IN_PLACE`, and follows all that was posted
    before it.

    `mode` says which of the bound kernels `launch` runs. `stream` is the stream on which ranks with devices order their work.
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
            from armillary.comm.coordination.signals import growing

            self.post, self.acknowledge = growing(self.post, "dest"), growing(self.acknowledge, "source")

    def batch(self) -> Batch:
        """Return a context manager; everything posted and acknowledged inside `with coord.batch():` is done at its end."""
        return self._batch

    def bind(self, kernel: Callable[..., Any], grid: Any = None, block: Any = None, args: Sequence[Any] = (), mode: str = "host") -> None:
        """Set the kernel that `launch` runs when the coordinator is in this mode.

        A function is called with `args`. If the ranks have devices and the kernel can be indexed, it is launched as
        `kernel[grid, block](*args)`.
        """
        self._kernels[self._checked(mode)] = self._transfers.bound(kernel, grid, block, tuple(args), mode)

    def launch(self) -> Any:
        """Run the kernel bound for the coordinator's mode."""
        kernel = self._kernels.get(self.mode)
        if kernel is None:
            raise InputError(f"launch: found no kernel bound in mode {self.mode}; expected bind(...) before launch()")
        return kernel()

    def _checked(self, mode: str) -> str:
        if mode not in self.modes:
            known = "these ranks do not offer" if mode in MODES else "is unknown"
            raise InputError(f'mode: found "{mode}", which {known}; expected {" or ".join(self.modes)}')
        return mode


class Batch:
    """A bracket around transfers that are all done at its end."""

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
    if not isinstance(comm, Communicator):
        raise InputError(f"comm: found {type(comm).__name__}; expected a Communicator")
    module, _, name = comm._transfers.partition(":")
    made: Transfers = getattr(importlib.import_module(module), name)(comm, stream)
    return made
