"""Ping-pong through `armillary.comm` and in plain mpi4py, in one run, turn by turn, with ordinary and with prepared calls.

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


def prepared(comm: Any, buffer: np.ndarray[Any, Any], rounds: int) -> float:
    """Do the same with plans, which are prepared before the clock starts."""
    other = 1 - comm.rank
    out, into = comm.send_init(buffer, other, 1), comm.recv_init(buffer, other, 1)
    comm.barrier()
    start = time.perf_counter()
    for _ in range(rounds):
        if comm.rank == 0:
            out.start().wait()
            into.start().wait()
        else:
            into.start().wait()
            out.start().wait()
    return (time.perf_counter() - start) / rounds / 2 * 1e6


def persistent(native: Any, buffer: np.ndarray[Any, Any], rounds: int) -> float:
    """Do the same with persistent requests of mpi4py alone, and a status for each receive."""
    from mpi4py import MPI

    other = 1 - native.rank
    out, into = native.Send_init(buffer, other, 1), native.Recv_init(buffer, other, 1)
    native.Barrier()
    start = time.perf_counter()
    for _ in range(rounds):
        if native.rank == 0:
            out.Start()
            out.Wait()
            into.Start()
            into.Wait(MPI.Status())
        else:
            into.Start()
            into.Wait(MPI.Status())
            out.Start()
            out.Wait()
    taken = (time.perf_counter() - start) / rounds / 2 * 1e6
    out.Free()
    into.Free()
    return taken


def alternate(comm: Any, nbytes: int, rounds: int, turns: int) -> list[tuple[float, ...]]:
    """Return the microseconds (comm, mpi4py, prepared by comm, persistent in mpi4py) of each turn. The order changes each turn."""
    buffer = np.zeros(nbytes, np.uint8)
    ways = [(through_comm, comm), (plain, comm.native), (prepared, comm), (persistent, comm.native)]
    for way, ranks in ways:
        way(ranks, buffer, rounds)
    taken = np.zeros((turns, len(ways)))
    for turn in range(turns):
        for i in range(len(ways)) if turn % 2 else reversed(range(len(ways))):
            way, ranks = ways[i]
            taken[turn, i] = way(ranks, buffer, rounds)
    return [tuple(row) for row in taken.tolist()]


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

    for nbytes, rounds in ((8, 200), (4096, 200), (1 << 20, 20)):
        turns = comm.run("comm_speed:alternate", nbytes, rounds, 151, ranks=2, backend="mpi", library=library)[0]
        for name, peer, i in (("send, recv", "mpi4py", 0), ("plans", "mpi4py's persistent requests", 2)):
            own, other = (statistics.median(t[j] for t in turns) for j in (i, i + 1))
            best = [min(t[j] for t in turns) for j in (i, i + 1)]
            ratio = statistics.median(t[i] / t[i + 1] for t in turns)
            print(f"mpi {nbytes:>8} B, {name}: {own:8.2f} us, {peer} {other:8.2f} us one way; ratio {ratio:.3f}")
            print(f"    the best turns: {best[0]:8.2f} us and {best[1]:8.2f} us, ratio {best[0] / best[1]:.3f}")
        print(f"    plans against mpi4py's plain calls: ratio {statistics.median(t[2] / t[1] for t in turns):.3f}")
    for nbytes, rounds in ((8, 1000), (1 << 20, 100)):
        pairs = [(comm.run(through_comm, np.zeros(nbytes, np.uint8), rounds, ranks=2)[0], handed(nbytes, rounds)) for _ in range(21)]
        copy = statistics.median(copied(nbytes, rounds) for _ in range(5))
        own, floor = (statistics.median(p[i] for p in pairs) for i in (0, 1))
        ratio = statistics.median(a / b for a, b in pairs)
        print(f"threads {nbytes:>8} B: {own:8.2f} us one way; locks alone {floor:8.2f}, ratio {ratio:.3f}; a copy {copy:8.2f}")
    if not comm.backends()["gloo"]:
        for nbytes, rounds in ((8, 100), (1 << 20, 20)):
            pairs = comm.run("comm_speed:with_torch", nbytes, rounds, 41, ranks=2, backend="gloo")[0]
            own, other = (statistics.median(p[i] for p in pairs) for i in (0, 1))
            best = [min(p[i] for p in pairs) for i in (0, 1)]
            ratio = statistics.median(a / b for a, b in pairs)
            print(f"gloo {nbytes:>8} B: comm {own:8.2f} us, torch.distributed {other:8.2f} us one way; ratio {ratio:.3f}")
            print(f"    the best turns: {best[0]:8.2f} us and {best[1]:8.2f} us, ratio {best[0] / best[1]:.3f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
