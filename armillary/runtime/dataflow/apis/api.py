"""What the runtime needs to know of an API: streams in order, events that can be asked, and how wide its thread pool is.

An API is *synchronous* if its calls compute on the calling thread and return when they are done (BLAS, compiled loops, PyTorch on the
CPU), and *asynchronous* if they go to a stream and return at once. A stream executes its kernels in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from armillary.errors import InputError


class DeviceError(RuntimeError):
    """A kernel failed on its device."""


@dataclass(frozen=True)
class Kernel:
    """One operation with an implementation for each API that offers it.

    `variants` maps an API's name to what its adapter takes: a callable on arrays for BLAS, Numba, PyTorch, CuPy and Triton, a `ClSource`
    for OpenCL, seconds or a callable for the simulated device. All variants take the same arguments.
    """

    name: str
    variants: Mapping[str, Any] = field(default_factory=dict)

    def variant(self, api: str) -> Any:
        """The implementation for an API; an `InputError` names those that exist."""
        if api not in self.variants:
            raise InputError(f"kernel {self.name} has no {api} variant; it has {', '.join(self.variants) or 'none'}")
        return self.variants[api]


class Event(Protocol):
    """The end of one kernel in its stream."""

    def done(self) -> bool:
        """Whether it has ended, without waiting; raises `DeviceError` if it failed."""

    def wait(self) -> None:
        """Waits for the end; raises `DeviceError` if it failed."""


class Stream(Protocol):
    """Kernels in order."""

    def enqueue(self, kernel: Kernel, args: tuple[Any, ...]) -> Event:
        """Puts a kernel behind the last one and returns at once."""


class Api:
    """One API in this process. Synchronous ones override `call`, asynchronous ones `stream`."""

    #: How users name it.
    name: str = ""
    #: Whether its kernels end after the call has returned.
    asynchronous: bool = False
    #: Whether its kernels compute on this machine's cores, so that they take tokens.
    on_cores: bool = True
    #: Seconds that host threads spent inside waits for this API's devices.
    waited: float = 0.0

    def call(self, kernel: Kernel, args: tuple[Any, ...]) -> Any:
        """Runs a kernel on the calling thread."""
        raise NotImplementedError(self.name)

    def stream(self) -> Stream:
        """A new stream."""
        raise NotImplementedError(self.name)

    def limit(self, threads: int | None) -> None:
        """Tells the library how many threads a call may use from now on; None gives it back its full pool."""

    def notify(self, event: Any, call: Callable[[], object]) -> bool:
        """Arranges that `call` runs when the event has happened; False if the API cannot do that."""
        return False

    def close(self) -> None:
        """Gives up threads and devices."""
