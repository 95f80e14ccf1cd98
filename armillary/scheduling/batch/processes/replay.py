"""A few jobs as real processes: they spin while they compute, and write real bytes through one server of limited rate for their I/O.

The server is the file system: a thread that takes bytes off one socket per job, at most `capacity` per second in all, and shares that rate
among the jobs that have bytes waiting, by their nodes and up to their own bandwidth. A job writes until the server has taken its bytes, so
it really waits when others write too. The measured I/O slowdown stands beside that of the simulated machine.
"""

from __future__ import annotations

import multiprocessing
import select
import socket
import threading
import time
from dataclasses import dataclass

import numpy as np

from armillary.engine.compiled import share
from armillary.errors import InputError
from armillary.scheduling.batch.easy import Easy
from armillary.scheduling.batch.simulation.policy import Policy
from armillary.scheduling.batch.workload import BatchWork

#: Jobs that run as processes, and seconds that their runs may take together.
MOST_JOBS, MOST_SECONDS = 16, 300.0
#: Seconds of one turn of the server, and bytes that a socket holds, so that little can be written ahead of the server.
TURN_S, BUFFER = 0.005, 4096
_END = 5.0


@dataclass(frozen=True)
class Replayed:
    """I/O slowdown as this machine measured it and as the simulation has it, and the seconds that each job spent in I/O in both."""

    measured: float
    simulated: float
    measured_io_s: tuple[float, ...]
    simulated_io_s: tuple[float, ...]


def replay(work: BatchWork, mode: str = "processes", policy: Policy | None = None) -> Replayed:
    """Runs at most 16 jobs as real processes, started when the simulated policy (EASY by default) starts them.

    mode: only `processes`. Run times are real seconds, the capacity is real bytes per second: a few seconds and a few MB per second.
    """
    if mode != "processes":
        raise InputError(f'found "{mode}"; expected "processes"', where="mode")
    if not 1 <= len(work) <= MOST_JOBS:
        raise InputError(f"found {len(work)} jobs; expected 1 to {MOST_JOBS}, because each is a process")
    played = (policy or Easy()).play(work)
    length = float(played.end_s.max() - played.start_s.min())
    if length > MOST_SECONDS or work.capacity > 1e9:
        raise InputError(f"found {length:.0f} s at {work.capacity:g} B/s; expected at most {MOST_SECONDS:.0f} s and 1e9 B/s")
    context = multiprocessing.get_context("spawn")
    pairs = [socket.socketpair() for _ in range(len(work))]
    for ours, theirs in pairs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    answers = [context.Pipe(duplex=False) for _ in range(len(work))]
    processes = [context.Process(target=_job, args=(pairs[i][1], answers[i][1]), daemon=True) for i in range(len(work))]
    stop = threading.Event()
    server = threading.Thread(target=_serve, args=([ours for ours, _ in pairs], work, stop), daemon=True)
    try:
        for process in processes:
            process.start()
        for i in range(len(work)):
            if not answers[i][0].poll(60.0) or answers[i][0].recv() != "ready":
                raise RuntimeError(f"process {i} did not start")
        server.start()
        begin = time.monotonic() + 0.2 - float(played.start_s.min())
        for i in range(len(work)):
            count = int(work.phases[i]) if work.volume[i] > 0 else 0
            size = round(float(work.volume[i]) / count) if count else 0
            segment = float((1 - work.duty[i]) * work.jobs.run_s[i]) / (count + 1)
            pairs[i][0].sendall(f"{begin + float(played.start_s[i])!r} {count} {size} {segment!r}\n".encode())
        spent = []
        for i in range(len(work)):
            end = time.monotonic() + 10 * length + 30.0
            while not answers[i][0].poll(1.0):
                if time.monotonic() > end or not server.is_alive():
                    raise RuntimeError(f"process {i} did not end")
            spent.append(float(answers[i][0].recv()))
    finally:
        stop.set()
        if server.is_alive():
            server.join()
        for process in processes:
            process.join(_END)
            if process.is_alive():
                process.kill()
                process.join()
        for ours, theirs in pairs:
            ours.close()
            theirs.close()
    alone = float(work.io_s.sum())
    measured = sum(spent) / alone - 1.0 if alone > 0 else 0.0
    return Replayed(measured, played.io_slowdown, tuple(spent), tuple(played.io_s.tolist()))


def _job(server: socket.socket, answer) -> None:  # type: ignore[no-untyped-def]
    """One job: waits for its line, then computes and writes in turn; answers with the seconds that it spent in writing."""
    answer.send("ready")
    line = b""
    while not line.endswith(b"\n"):
        line += server.recv(1)
    start, count, size, segment = float(line.split()[0]), int(line.split()[1]), int(line.split()[2]), float(line.split()[3])
    time.sleep(max(0.0, start - time.monotonic()))
    chunk, spent, now = b"\0" * BUFFER, 0.0, start
    for phase in range(count + 1):
        while time.monotonic() < now + segment:
            pass
        now = time.monotonic()
        if phase == count:
            break
        left = size
        while left > 0:
            left -= server.send(chunk[: min(left, BUFFER)])
        server.recv(1)  # The server says when it has taken the last byte.
        spent += time.monotonic() - now
        now = time.monotonic()
    answer.send(spent)


def _serve(sockets: list[socket.socket], work: BatchWork, stop: threading.Event) -> None:
    """Takes bytes at the shared rates; a job's turn earns it tokens only while it has bytes waiting."""
    count = np.maximum(work.phases, 1)
    size = np.round(work.volume / count).astype(np.int64)
    weights, caps = work.jobs.nodes.astype(float), work.bandwidth.astype(float)
    left, tokens = size.copy(), np.zeros(len(sockets))
    number = {each: i for i, each in enumerate(sockets)}
    last = time.monotonic()
    while not stop.is_set():
        time.sleep(TURN_S)
        now = time.monotonic()
        passed, last = now - last, now
        waiting = np.array([number[each] for each in select.select(sockets, [], [], 0)[0] if size[number[each]] > 0], np.int64)
        if not len(waiting):
            tokens[:] = 0.0
            continue
        rates = share(work.capacity, weights[waiting], caps[waiting])
        idle = np.ones(len(sockets), bool)
        idle[waiting] = False
        tokens[idle] = 0.0
        tokens[waiting] += rates * passed
        for i in waiting.tolist():
            while tokens[i] >= 1.0:
                try:
                    taken = len(sockets[i].recv(int(min(tokens[i], left[i])), socket.MSG_DONTWAIT))
                except BlockingIOError:
                    break
                if not taken:
                    break
                tokens[i] -= taken
                left[i] -= taken
                if left[i] == 0:
                    left[i] = size[i]
                    tokens[i] = 0.0
                    sockets[i].send(b".")
                    break
