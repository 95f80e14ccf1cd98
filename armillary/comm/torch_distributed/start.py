"""Start one process for each rank of a torch.distributed group, watch them, and bring back what they returned.

The processes meet through a file in the job's folder and talk over the loopback interface. A process that has gone without an answer has
failed, and the others are then ended, or another process takes its place if the run has `restarts` left. The file `generation` tells the
others of it, and they meet again when they ask for their ranks anew (`renewal`).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from armillary.comm.failures import CommError
from armillary.comm.jobs.folder import answered, collect, encoded, failed, how, leave
from armillary.comm.jobs.output import Output
from armillary.comm.result import Ran
from armillary.comm.task import Task
from armillary.errors import InputError

#: The most processes that a run may replace.
_MOST_RESTARTS = 1000
#: Seconds between two looks at the processes.
_LOOK_S = 0.02
#: Seconds that the processes have to leave when all have answered.
_GRACE_S = 1.0


def run_gloo(task: Task, timeout: float | None = None, restarts: int = 0) -> Ran:
    """Run the program on processes that talk through Gloo; `timeout` is in seconds, `restarts` the processes that may be replaced."""
    if not isinstance(restarts, int) or not 0 <= restarts <= _MOST_RESTARTS:
        raise InputError(f"restarts: found {restarts!r}; expected 0 to {_MOST_RESTARTS}")
    if restarts and not Path("/proc/self/fd").exists():
        raise InputError("restarts: found a system without /proc, where ranks cannot hang up; expected Linux")
    return _run("gloo", encoded(task, backend="gloo"), task.ranks, timeout, restarts)


def run_nccl(task: Task, timeout: float | None = None) -> Ran:
    """Run the program on processes with one GPU each, which talk through NCCL; `timeout` is in seconds."""
    data = encoded(task, backend="nccl")
    gpus = _gpus()
    if task.ranks > gpus:
        raise InputError(f"ranks: found {task.ranks} for {gpus} GPUs; expected at most one rank per GPU, because NCCL refuses two on one")
    return _run("nccl", data, task.ranks, timeout)


def _gpus() -> int:
    import torch

    return int(torch.cuda.device_count())


def _run(backend: str, data: bytes, ranks: int, timeout: float | None, restarts: int = 0) -> Ran:
    with tempfile.TemporaryDirectory(prefix=f"armillary-{backend}-") as name:
        folder = Path(name)
        (folder / "task").write_bytes(data)
        environment = {**os.environ, "ARMILLARY_JOB": name}
        for variable, value in (("GLOO_SOCKET_IFNAME", "lo"), ("NCCL_SOCKET_IFNAME", "lo"), ("OMP_NUM_THREADS", "1")):
            environment.setdefault(variable, value)
        reading, writing = os.pipe()
        output = Output(os.fdopen(reading, "rb"))
        waits, ends = os.pipe()
        jobs: list[subprocess.Popen[bytes]] = []
        first, began = None, time.monotonic()

        def started(rank: int, generation: int) -> subprocess.Popen[bytes]:
            numbers = map(str, (rank, ranks, os.getpid(), waits, generation))
            command = [sys.executable, "-m", "armillary.comm.torch_distributed.process", *numbers]
            nothing = subprocess.DEVNULL
            return subprocess.Popen(command, stdin=nothing, stdout=writing, stderr=writing, env=environment, pass_fds=[waits])

        try:
            try:
                jobs.extend(started(rank, 0) for rank in range(ranks))
                for generation in range(restarts + 1):
                    first = _watch(jobs, folder, timeout, began)
                    if first is None or generation == restarts or failed(folder):
                        break
                    leave(folder, "generation", str(generation + 1).encode())
                    jobs[first] = started(first, generation + 1)
            finally:
                os.close(writing)
                os.close(waits)
        finally:
            os.close(ends)
            _end(jobs, at_once=first is not None)
            output.join(_GRACE_S)
        return collect(folder, ranks, lambda missing: _how_ended(jobs, first, missing))


def _watch(jobs: list[subprocess.Popen[bytes]], folder: Path, timeout: float | None, began: float) -> int | None:
    """Wait for all answers. Returns the first rank whose process ended without an answer, or None."""
    deadline = None if timeout is None else began + timeout
    missing = set(range(len(jobs)))
    while missing:
        for rank in sorted(missing):
            ended = jobs[rank].poll() is not None
            if answered(folder, rank):
                missing.discard(rank)
            elif ended:
                return rank
        if deadline is not None and time.monotonic() > deadline:
            raise CommError(f"the job did not end within {timeout} seconds and was ended")
        if missing:
            with contextlib.suppress(subprocess.TimeoutExpired):
                jobs[min(missing)].wait(_LOOK_S)
    return None


def _end(jobs: list[subprocess.Popen[bytes]], at_once: bool) -> None:
    """Let the processes leave that have nothing left to do, and end the others."""
    deadline = time.monotonic() + (0.0 if at_once else _GRACE_S)
    for job in jobs:
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(max(0.0, deadline - time.monotonic()))
        if job.poll() is None:
            job.kill()
    for job in jobs:
        job.wait()


def _how_ended(jobs: list[subprocess.Popen[bytes]], first: int | None, missing: list[int]) -> tuple[int, str]:
    rank = first if first is not None else missing[0]
    return rank, how(jobs[rank].returncode)
