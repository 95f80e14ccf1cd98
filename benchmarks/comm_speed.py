"""Ping-pong through `armillary.comm` against the same in plain mpi4py, in one run, turn by turn; and on threads against a copy of memory.

python benchmarks/comm_speed.py [library]
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def through_comm(comm: Any, buffer: np.ndarray[Any, Any], rounds: int) -> float:
    """Microseconds one way."""
    comm.barrier()
    start = time.perf_counter()
    if comm.rank == 0:
        for _ in range(rounds):
            comm.send(buffer, 1, 1)
            comm.recv(buffer, 1, 1)
    elif comm.rank == 1:
        for _ in range(rounds):
            comm.recv(buffer, 0, 1)
            comm.send(buffer, 0, 1)
    return (time.perf_counter() - start) / rounds / 2 * 1e6


def plain(native: Any, buffer: np.ndarray[Any, Any], rounds: int) -> float:
    """The same with mpi4py alone; a status is asked for, as `recv` gives one."""
    from mpi4py import MPI

    native.Barrier()
    start = time.perf_counter()
    if native.rank == 0:
        for _ in range(rounds):
            native.Send(buffer, 1, 1)
            native.Recv(buffer, 1, 1, MPI.Status())
    elif native.rank == 1:
        for _ in range(rounds):
            native.Recv(buffer, 0, 1, MPI.Status())
            native.Send(buffer, 0, 1)
    return (time.perf_counter() - start) / rounds / 2 * 1e6


def alternate(comm: Any, nbytes: int, rounds: int, turns: int) -> list[tuple[float, float]]:
    """(comm, plain) microseconds of each turn; which goes first changes each turn."""
    buffer = np.zeros(nbytes, np.uint8)
    plain(comm.native, buffer, rounds)
    pairs = []
    for turn in range(turns):
        if turn % 2:
            other = plain(comm.native, buffer, rounds)
            pairs.append((through_comm(comm, buffer, rounds), other))
        else:
            own = through_comm(comm, buffer, rounds)
            pairs.append((own, plain(comm.native, buffer, rounds)))
    return pairs


def threads(comm: Any, nbytes: int, rounds: int) -> float:
    """Microseconds one way on threads: the best of five turns."""
    buffer = np.zeros(nbytes, np.uint8)
    return min(through_comm(comm, buffer, rounds) for _ in range(5))


def memory(nbytes: int, rounds: int) -> float:
    """Microseconds of one copy within a thread: the best of five turns."""
    a, b = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(rounds):
            b[:] = a
        best = min(best, (time.perf_counter() - start) / rounds * 1e6)
    return best


def main(library: str | None) -> None:
    """Print the figures."""
    sys.path.insert(0, str(Path(__file__).parent))
    from armillary import comm

    for nbytes, rounds in ((8, 2000), (4096, 2000), (1 << 20, 100)):
        pairs = comm.run("comm_speed:alternate", nbytes, rounds, 21, ranks=2, backend="mpi", library=library)[0]
        own, other = (statistics.median(p[i] for p in pairs) for i in (0, 1))
        best = [min(p[i] for p in pairs) for i in (0, 1)]
        ratio = statistics.median(a / b for a, b in pairs)
        added = (best[0] - best[1]) / 2
        print(f"mpi {nbytes:>8} B: comm {own:8.2f} us, mpi4py {other:8.2f} us one way; ratio {ratio:.3f}")
        print(f"    the best turns: comm {best[0]:8.2f} us, mpi4py {best[1]:8.2f} us; {added:+.2f} us a call")
    for nbytes, rounds in ((8, 3000), (1 << 20, 200)):
        own = comm.run(threads, nbytes, rounds, ranks=2)[0]
        print(f"threads {nbytes:>8} B: {own:8.2f} us one way; a copy {memory(nbytes, rounds):8.2f} us")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
