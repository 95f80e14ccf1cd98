"""Measures this machine in a few seconds: memory bandwidth, matrix products, and a round trip over loopback.

The triad (STREAM) is a ← b + s·c over arrays far larger than the caches, with 24 bytes per element as STREAM counts them. GEMM is C ← A·B
through NumPy's BLAS, with 2n³ operations. For both, the best pass counts, because disturbances can only slow a pass down. Ping sends one
byte there and back over TCP on 127.0.0.1; its median counts, because the best round trip has no meaning.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

TRIAD_S = 3.0
GEMM_S = 1.0
PINGS = 2_000
#: The size of each of the three arrays, which is well above any last-level cache and well below any memory worth measuring.
LEAST_ARRAY, MOST_ARRAY = 16 << 20, 2 << 30


@dataclass(frozen=True)
class Measured:
    """Bytes/s of the triad, flop/s of a matrix product in fp64 and fp32, and seconds of a loopback round trip."""

    triad: float
    gemm_fp64: float
    gemm_fp32: float
    round_trip: float
    threads: int


def measure(cache_bytes: int = 0, memory_bytes: int | None = None, threads: int = 1) -> Measured:
    """Measures for about six seconds.

    `cache_bytes` is the size of all last-level caches together (the arrays are four times as large), `memory_bytes` is the usable memory
    (the arrays together stay below a quarter of it), and `threads` is the number of hardware threads to use.
    """
    size = min(max(4 * cache_bytes, LEAST_ARRAY), MOST_ARRAY, (memory_bytes or 1 << 40) // 12)
    order = 1024 if threads < 8 else 4096
    return Measured(
        triad(max(size // 8, 1024), threads),
        gemm(np.float64, order),
        gemm(np.float32, order),
        ping(),
        threads,
    )


def triad(elements: int, threads: int, seconds: float = TRIAD_S) -> float:
    """Bytes/s of a ← b + s·c over `elements` doubles, from the best pass within `seconds`."""
    import numba

    kernel = _triad_kernel()
    before = numba.get_num_threads()
    numba.set_num_threads(max(1, min(threads, before)))
    try:
        a, b, c = np.empty(elements), np.empty(elements), np.empty(elements)
        # The threads that will work on each part touch it first, so that its pages lie in their NUMA domain.
        kernel(b, a, a, 0.0, 1.0)
        kernel(c, a, a, 0.0, 2.0)
        kernel(a, b, c, 3.0, 0.0)
        best = float("inf")
        end = time.perf_counter() + seconds
        while True:
            start = time.perf_counter()
            kernel(a, b, c, 3.0, 0.0)
            stop = time.perf_counter()
            best = min(best, stop - start)
            if stop >= end:
                break
    finally:
        numba.set_num_threads(before)
    return 24.0 * elements / best


def _triad_kernel() -> Any:
    import numba

    from armillary.kernels import parallel_loop

    @parallel_loop(nogil=False)
    def kernel(a, b, c, scale, offset):  # type: ignore[no-untyped-def]
        for i in numba.prange(a.size):
            a[i] = offset + b[i] + scale * c[i] if offset == 0.0 else offset

    return kernel


def gemm(dtype: type[np.floating[Any]], n: int = 1024, seconds: float = GEMM_S) -> float:
    """Flop/s of an n×n matrix product through NumPy's BLAS, from the best pass within `seconds`."""
    left = np.random.default_rng(1).random((n, n)).astype(dtype)
    right = left.T.copy()
    out = np.empty_like(left)
    np.matmul(left, right, out=out)
    best = float("inf")
    end = time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        np.matmul(left, right, out=out)
        stop = time.perf_counter()
        best = min(best, stop - start)
        if stop >= end:
            return 2.0 * n**3 / best


def ping(count: int = PINGS) -> float:
    """Seconds of a round trip of one byte over TCP on the loopback interface, as the median of `count`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        echo = threading.Thread(target=_echo, args=(server, count), daemon=True)
        echo.start()
        with socket.create_connection(server.getsockname(), timeout=5.0) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            trips = []
            for _ in range(count):
                start = time.perf_counter()
                line.sendall(b"x")
                if not line.recv(1):
                    break
                trips.append(time.perf_counter() - start)
        echo.join(timeout=5.0)
    return statistics.median(trips)


def _echo(server: socket.socket, count: int) -> None:
    with contextlib.suppress(OSError):
        line, _ = server.accept()
        with line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(count):
                byte = line.recv(1)
                if not byte:
                    return
                line.sendall(byte)
