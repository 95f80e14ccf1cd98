"""Ping-pong through `armillary.comm` and in plain mpi4py, in one run, turn by turn.

On threads it is compared with two threads that only wake each other and copy, and with a copy within one thread. On Gloo it is compared
with plain torch.distributed.

python benchmarks/comm_speed.py [library]
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np


def through_comm(comm: Any, buffer: np.ndarray[Any, Any], rounds: int) -> float:
    """Return the microseconds of one way."""
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
    """Do the same with mpi4py alone. It asks for a status, because `recv` gives one."""
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
    """Return the microseconds (comm, plain) of each turn. The order of the two changes each turn."""
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


def handed(nbytes: int, rounds: int) -> float:
    """Return the microseconds of one way between two threads that only wake each other with locks and copy, which is what Python takes."""
    buffers = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    locks = threading.Lock(), threading.Lock()
    for lock in locks:
        lock.acquire()
    taken = 0.0

    def first() -> None:
        nonlocal taken
        start = time.perf_counter()
        for _ in range(rounds):
            buffers[1][:] = buffers[0]
            locks[1].release()
            locks[0].acquire()
        taken = (time.perf_counter() - start) / rounds / 2 * 1e6

    def second() -> None:
        for _ in range(rounds):
            locks[1].acquire()
            buffers[0][:] = buffers[1]
            locks[0].release()

    both = [threading.Thread(target=body) for body in (first, second)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    return taken


def copied(nbytes: int, rounds: int) -> float:
    """Return the microseconds of one copy within a thread."""
    a, b = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    start = time.perf_counter()
    for _ in range(rounds):
        b[:] = a
    return (time.perf_counter() - start) / rounds * 1e6


def with_torch(comm: Any, nbytes: int, rounds: int, turns: int) -> list[tuple[float, float]]:
    """Return the microseconds (comm, plain torch.distributed) of one way in each turn, over Gloo."""
    import torch

    buffer = np.zeros(nbytes, np.uint8)
    tensor, other = torch.from_numpy(np.zeros(nbytes, np.uint8)), 1 - comm.rank
    send, recv = comm.native.send, comm.native.recv

    def raw() -> float:
        comm.barrier()
        start = time.perf_counter()
        for _ in range(rounds):
            if comm.rank == 0:
                send([tensor], other, 1).wait()
                recv([tensor], other, 1).wait()
            else:
                recv([tensor], other, 1).wait()
                send([tensor], other, 1).wait()
        return (time.perf_counter() - start) / rounds / 2 * 1e6

    return [(through_comm(comm, buffer, rounds), raw()) for _ in range(turns)]


def main(library: str | None) -> None:
    """Print the figures."""
    sys.path.insert(0, str(Path(__file__).parent))
    from armillary import comm

    for nbytes, rounds in ((8, 500), (4096, 500), (1 << 20, 50)):
        pairs = comm.run("comm_speed:alternate", nbytes, rounds, 101, ranks=2, backend="mpi", library=library)[0]
        own, other = (statistics.median(p[i] for p in pairs) for i in (0, 1))
        best = [min(p[i] for p in pairs) for i in (0, 1)]
        ratio = statistics.median(a / b for a, b in pairs)
        added = (best[0] - best[1]) / 2
        print(f"mpi {nbytes:>8} B: comm {own:8.2f} us, mpi4py {other:8.2f} us one way; ratio {ratio:.3f}")
        print(f"    the best turns: comm {best[0]:8.2f} us, mpi4py {best[1]:8.2f} us; {added:+.2f} us per call")
    for nbytes, rounds in ((8, 1000), (1 << 20, 100)):
        turns = [(comm.run(through_comm, np.zeros(nbytes, np.uint8), rounds, ranks=2)[0], handed(nbytes, rounds)) for _ in range(21)]
        copy = statistics.median(copied(nbytes, rounds) for _ in range(5))
        own, floor = (statistics.median(t[i] for t in turns) for i in (0, 1))
        ratio = statistics.median(a / b for a, b in turns)
        print(f"threads {nbytes:>8} B: {own:8.2f} us one way; locks alone {floor:8.2f}, ratio {ratio:.3f}; a copy {copy:8.2f}")
    if not comm.backends()["gloo"]:
        for nbytes, rounds in ((8, 200), (1 << 20, 50)):
            pairs = comm.run("comm_speed:with_torch", nbytes, rounds, 11, ranks=2, backend="gloo")[0]
            own, other = (statistics.median(p[i] for p in pairs) for i in (0, 1))
            print(f"gloo {nbytes:>8} B: comm {own:8.2f} us, torch.distributed {other:8.2f} us one way")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
