"""Requests that really run: two backends on this machine, products of matrices or attention of the size that a request asks for.

The platform is the simulator's. Whenever it needs a time that is not known yet, the request is run on its backend at that moment and its
seconds are taken, or a pod of the backend is started anew (buffers allocated, first kernel launched). One real second counts as
`stretch` seconds of the platform, so that a controller with an interval of 30 s can be watched in a fraction of a minute: with a stretch
of 100, a product of 10 ms counts as a request of one second.
"""

from __future__ import annotations

import contextlib
import glob
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from armillary.extras import need
from armillary.outcome import NotForThisCase
from armillary.scheduling.offloading.simulation.play import Played, play_known
from armillary.scheduling.offloading.simulation.policy import Floats, Policy
from armillary.scheduling.offloading.workload import STARTS, OffloadingWork

#: Times that one run may ask for.
MOST_TIMES = 100_000


class Backend(Protocol):
    """Something that really runs requests."""

    def start(self) -> float:
        """Seconds until a fresh pod is ready."""
        ...

    def serve(self, size: int) -> float:
        """Seconds of a request of this size."""
        ...


@dataclass(frozen=True)
class RealWork:
    """Sizes that are asked for one after another, on the backends of `kind`: `threads` (NumPy, one thread against two), `cuda-matmul` or
    `cuda-attention` (PyTorch, the CPU against CUDA)."""

    sizes: Floats
    kind: str
    stretch: float
    mode: int
    phase: float
    slo_s: float = 1.0

    def platform(self) -> OffloadingWork:
        """The work with all times unknown."""
        n = len(self.sizes)
        return OffloadingWork(
            np.array([0, n]), np.zeros(n), np.full((2, n), math.nan), np.full((1, 2, STARTS), math.nan), np.array([self.mode]),
            np.array([self.phase]), self.sizes, closed=True, slo_s=self.slo_s,
        )  # fmt: skip


class _NumpyBackend:
    """Products of NumPy with a number of threads."""

    def __init__(self, threads: int) -> None:
        self._threads, self._largest = threads, 0
        self._a: Any = None

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        with threadpool_limits(self._threads):
            yield

    def start(self) -> float:
        begin = time.perf_counter()
        with self._limited():
            self._a = np.ones((64, 64), np.float32)
            _ = self._a @ self._a
        return time.perf_counter() - begin

    def serve(self, size: int) -> float:
        a = np.full((size, size), 0.5, np.float32)
        with self._limited():
            begin = time.perf_counter()
            b = a @ a
            seconds = time.perf_counter() - begin
        _check(size, float(b[-1, -1]) if size else 0.0)
        return seconds


def _check(size: int, found: float) -> None:
    """The product of two matrices of halves has size/4 everywhere."""
    if abs(found - size / 4) > 1e-3 * max(1.0, size):
        raise AssertionError(f"a product of size {size} gave {found}; expected {size / 4}")


class _TorchBackend:
    """Products or attention of PyTorch on a device; inputs are made on the host and moved, as a request's are."""

    def __init__(self, device: str, attention: bool) -> None:
        self._torch = need("torch")
        self._device, self._attention = device, attention

    def _wait(self) -> None:
        if self._device == "cuda":
            self._torch.cuda.synchronize()

    def start(self) -> float:
        begin = time.perf_counter()
        self._run(64)
        self._wait()
        return time.perf_counter() - begin

    def serve(self, size: int) -> float:
        self._wait()
        begin = time.perf_counter()
        found = self._run(size)
        seconds = time.perf_counter() - begin
        if not self._attention:
            _check(size, found)
        return seconds

    def _run(self, size: int) -> float:
        torch = self._torch
        with torch.inference_mode():
            if self._attention:
                shape = (1, 8, max(1, size), 64)
                x = torch.full(shape, 0.5).to(self._device)
                return float(torch.nn.functional.scaled_dot_product_attention(x, x, x)[0, 0, -1, -1])
            if size == 0:
                return 0.0
            a = torch.full((size, size), 0.5, device=self._device)
            return float((a @ a)[-1, -1])


def has_cuda() -> bool:
    """Whether PyTorch is installed and sees a CUDA device."""
    from importlib.util import find_spec

    # Loading PyTorch takes seconds, and without one of these it cannot see a device.
    if sys.platform == "linux" and not any(glob.glob(pattern) for pattern in ("/dev/nvidia*", "/dev/dxg", "/dev/kfd")):
        return False
    return find_spec("torch") is not None and bool(need("torch").cuda.is_available())


def backends(kind: str) -> tuple[Backend, Backend]:
    """The slower and the faster backend of this kind; declines where the second one is not here."""
    if kind == "threads":
        return _NumpyBackend(1), _NumpyBackend(2)
    if not has_cuda():
        raise NotForThisCase("this machine has no CUDA device that PyTorch can use")
    attention = kind.endswith("attention")
    return _TorchBackend("cpu", attention), _TorchBackend("cuda", attention)


def play_really(work: RealWork, policy: Policy, pair: tuple[Backend, Backend] | None = None) -> tuple[Played, OffloadingWork]:
    """Plays a policy on real backends; returns what came of it, in platform seconds, and all times that were measured."""
    chosen = backends(work.kind) if pair is None else pair
    for backend in chosen:
        # What a process does once (loading libraries, making a context) is no start of a pod.
        backend.start()
    known = work.platform()
    service, starts = known.service_s.copy(), known.start_s.copy()
    for _ in range(MOST_TIMES):
        known = replace(known, service_s=service, start_s=starts)
        played, missing = play_known(known, policy)
        if missing is None:
            return played, known
        backend = chosen[missing.backend]
        if missing.what == "start":
            starts[0, missing.backend, missing.number % STARTS] = work.stretch * backend.start()
        else:
            service[missing.backend, missing.number] = work.stretch * backend.serve(int(work.sizes[missing.number]))
    raise AssertionError(f"a run asked for more than {MOST_TIMES:,} times")
