"""Start one process for each rank of a torch.distributed group, watch them, and bring back what they returned.

The processes meet through a file in the job's folder, and talk over the loopback interface. A process that is gone without an answer has
failed; the others are then ended.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from armillary.comm.failures import CommError
from armillary.comm.job_folder import answered, collect, how, task
from armillary.comm.mpi_start import Said
from armillary.comm.result import Ran
from armillary.errors import InputError

#: Seconds between two looks at the processes, and that a rank has to say why it fails before the run ends.
_LOOK_S = 0.02
_GRACE_S = 1.0


def run_gloo(
    program: Callable[..., Any] | str,
    args: Sequence[Any],
    named: dict[str, Any],
    ranks: int,
    seed: int,
    choice: dict[str, Any],
    timeout: float | None = None,
) -> Ran:
    """Run the program on processes that talk through Gloo."""
    return _run("gloo", task(program, args, named, seed, choice, backend="gloo"), ranks, timeout)


def run_nccl(
    program: Callable[..., Any] | str,
    args: Sequence[Any],
    named: dict[str, Any],
    ranks: int,
    seed: int,
    choice: dict[str, Any],
    timeout: float | None = None,
) -> Ran:
    """Run the program on processes with one GPU each, which talk through NCCL."""
    if choice:
        raise InputError("collectives: found a choice; expected none on nccl, where every collective call is NCCL's own")
    data = task(program, args, named, seed, choice, backend="nccl")
    gpus = _gpus()
    if ranks > gpus:
        raise InputError(
            f"ranks: found {ranks} for {gpus} GPUs; expected at most one rank a GPU on nccl, which refuses two ranks on one"
            if gpus
            else "backend nccl: found no NVIDIA GPU that torch can use; expected one for each rank"
        )
    return _run("nccl", data, ranks, timeout)


def _gpus() -> int:
    import torch

    return int(torch.cuda.device_count())


def _run(backend: str, data: bytes, ranks: int, timeout: float | None) -> Ran:
    with tempfile.TemporaryDirectory(prefix=f"armillary-{backend}-") as name:
        folder = Path(name)
        (folder / "task").write_bytes(data)
        environment = {**os.environ, "ARMILLARY_JOB": name}
        for variable, value in (("GLOO_SOCKET_IFNAME", "lo"), ("NCCL_SOCKET_IFNAME", "lo"), ("OMP_NUM_THREADS", "1")):
            environment.setdefault(variable, value)
        reading, writing = os.pipe()
        said = Said(os.fdopen(reading, "rb"))
        waits, ends = os.pipe()
        jobs: list[subprocess.Popen[bytes]] = []
        first = None
        try:
            try:
                for rank in range(ranks):
                    command = [sys.executable, "-m", "armillary.comm.torch_rank", *map(str, (rank, ranks, os.getpid(), waits))]
                    nothing = subprocess.DEVNULL
                    jobs.append(subprocess.Popen(command, stdin=nothing, stdout=writing, stderr=writing, env=environment, pass_fds=[waits]))
            finally:
                os.close(writing)
                os.close(waits)
            first = _watch(jobs, folder, timeout)
        finally:
            os.close(ends)
            _end(jobs, at_once=first is not None)
            said.join(_GRACE_S)
        return collect(folder, ranks, lambda missing: _how_ended(jobs, first, missing))


def _watch(jobs: list[subprocess.Popen[bytes]], folder: Path, timeout: float | None) -> int | None:
    """Wait for all answers; the first rank whose process ended without one, or None."""
    deadline = None if timeout is None else time.monotonic() + timeout
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
    """Let the processes go that have nothing left to do, and end the others."""
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
