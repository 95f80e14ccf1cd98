"""Start an MPI job, watch it, and bring back what its ranks returned.

A rank whose process is gone without an answer has failed, whatever the launcher thinks of it: the launcher and its processes are then
ended. What the run and its ranks tell each other is in `job_folder`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from armillary.comm.failures import CommError
from armillary.comm.job_folder import alive, collect, how, lost, process, task
from armillary.comm.libraries import library as find_library
from armillary.comm.result import Ran
from armillary.errors import one_line

#: What launchers set in the processes that they start.
_INSIDE = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
#: Seconds between two looks at the job, and after which a job is ended when one of its processes is gone.
_LOOK_S = 0.02
_GRACE_S = 2.0
#: How the lines begin that launchers print when a process died; that goes into the error and not to the terminal.
_EDGES = ("=====", "-----")
_FIRST_WORDS = ("=   BAD TERM", "prterun ", "mpirun ", "mpiexec ", "MPI_ABORT ", "Primary job")
_BANNER = ("YOUR APPLICATION TERMINATED", "This typically refers to a problem with your", "Please see the FAQ page for debugging")


def run_mpi(
    program: Callable[..., Any] | str,
    args: Sequence[Any],
    named: dict[str, Any],
    ranks: int,
    seed: int,
    choice: dict[str, Any],
    library: str | None = None,
    timeout: float | None = None,
) -> Ran:
    """Run the program on the ranks of a job: of this one when this process belongs to one, of a new one otherwise."""
    if any(name in os.environ for name in _INSIDE):
        from armillary.comm.mpi_rank import run_inside

        return run_inside(program, args, named, ranks, seed, choice)
    data = task(program, args, named, seed, choice)
    mpi = find_library(library)
    with tempfile.TemporaryDirectory(prefix="armillary-mpi-") as folder:
        Path(folder, "task").write_bytes(data)
        environment = {**os.environ, **dict(mpi.environment), "ARMILLARY_JOB": folder}
        # UCX, inside some libraries, warns about memory that a program did not give back before it ended.
        environment.setdefault("UCX_LOG_LEVEL", "error")
        if ranks > (os.cpu_count() or 1):
            # MPICH's ranks wait busily; here they must let each other run.
            environment.setdefault("MPIR_CVAR_POLLS_BEFORE_YIELD", "1")
        environment.setdefault("OMP_NUM_THREADS", "1")
        command = [*mpi.command(ranks), sys.executable, "-m", "armillary.comm.mpi_guard"]
        job = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        said = Said(job.stdout)
        try:
            _watch(job, Path(folder), ranks, timeout)
        finally:
            _end(job, Path(folder), ranks)
            said.join(_GRACE_S)

        def how_ended(missing: list[int]) -> tuple[int, str]:
            rank, ended = _first_to_end(Path(folder), missing)
            tail = one_line(" ".join(line.strip() for line in said.tail if line.strip(" =-\n")), 1000)
            return rank, f"{ended} (launcher: exit status {job.returncode})" + (f": {tail}" if tail else "")

        return collect(Path(folder), ranks, how_ended)


class Said(threading.Thread):
    """Passes on what the job prints, and keeps the end of it."""

    def __init__(self, stream: Any) -> None:
        super().__init__(name="mpiexec output", daemon=True)
        self._stream = stream
        self.tail: deque[str] = deque(maxlen=40)
        self.start()

    def run(self) -> None:
        inside, edge = False, ""
        for line in io.TextIOWrapper(self._stream, errors="replace"):
            self.tail.append(line)
            if inside:
                inside = not line.startswith(_EDGES)
            elif edge and line.startswith(_FIRST_WORDS):
                inside, edge = True, ""
            else:
                # A line of dashes is the program's own unless a launcher's first words follow.
                sys.stdout.write(edge)
                edge = line if line.startswith(_EDGES) else ""
                if not edge and not line.startswith(_BANNER):
                    sys.stdout.write(line)
        sys.stdout.write(edge)


def _watch(job: subprocess.Popen[bytes], folder: Path, ranks: int, timeout: float | None) -> None:
    """Wait for the job to end, or to have lost a process for some time: launchers do not end every job that lost one."""
    deadline = None if timeout is None else time.monotonic() + timeout
    gone_since: float | None = None
    while job.poll() is None:
        now = time.monotonic()
        if deadline is not None and now > deadline:
            raise CommError(f"the job did not end within {timeout} seconds and was ended")
        if lost(folder, ranks):
            gone_since = now if gone_since is None else gone_since
            if now - gone_since > _GRACE_S:
                return
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(_LOOK_S)


def _end(job: subprocess.Popen[bytes], folder: Path, ranks: int) -> None:
    """End the launcher and every process of the job that is left on this host."""
    if job.poll() is None:
        job.terminate()
        try:
            job.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    if job.returncode == 0:
        return
    for rank in range(ranks):
        pid = process(folder, rank)
        if pid is not None and alive(pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _first_to_end(folder: Path, missing: list[int]) -> tuple[int, str]:
    """Which of the ranks without an answer ended first, and how: its guard wrote that down before the launcher could know."""
    ranks = {process(folder, rank): rank for rank in missing}
    records = sorted((json.loads(file.read_text()) for file in folder.glob("ended.*")), key=lambda record: record["at"])
    for record in records:
        if record["pid"] in ranks:
            return ranks[record["pid"]], how(record["code"])
    return missing[0], "its process ended without an answer"
