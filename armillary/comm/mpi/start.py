"""Start an MPI job, watch it, and bring back what its ranks returned.

A rank whose process has gone without an answer has failed, whatever the launcher reports. The launcher and its processes are then ended.
The run and its ranks talk through the files of `jobs.folder`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from armillary.comm.failures import CommError
from armillary.comm.jobs.folder import alive, collect, encoded, how, lost, process
from armillary.comm.jobs.output import Output
from armillary.comm.mpi.libraries import inside_job
from armillary.comm.mpi.libraries import library as find_library
from armillary.comm.result import Ran
from armillary.comm.task import Task
from armillary.errors import one_line

#: Seconds between two looks at the job.
_LOOK_S = 0.02
#: Seconds after which a job is ended when one of its processes has gone.
_GRACE_S = 2.0


def run_mpi(task: Task, library: str | None = None, timeout: float | None = None) -> Ran:
    """Run the program on the ranks of an MPI job: the job that this process belongs to, or a new one.

    `library` names the MPI library of a new job, and `timeout` is in seconds.
    """
    if inside_job():
        from armillary.comm.mpi.process import run_inside

        return run_inside(task)
    data = encoded(task)
    mpi = find_library(library)
    with tempfile.TemporaryDirectory(prefix="armillary-mpi-") as folder:
        Path(folder, "task").write_bytes(data)
        environment = {**os.environ, **dict(mpi.environment), "ARMILLARY_JOB": folder}
        # UCX, which some libraries contain, warns about memory that a program did not free before it ended.
        environment.setdefault("UCX_LOG_LEVEL", "error")
        if task.ranks > (os.cpu_count() or 1):
            # The ranks of MPICH wait busily; when they share cores they must yield to each other.
            environment.setdefault("MPIR_CVAR_POLLS_BEFORE_YIELD", "1")
        environment.setdefault("OMP_NUM_THREADS", "1")
        command = [*mpi.command(task.ranks), sys.executable, "-m", "armillary.comm.mpi.guard"]
        job = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        output = Output(job.stdout)
        try:
            _watch(job, Path(folder), task.ranks, timeout)
        finally:
            _end(job, Path(folder), task.ranks)
            output.join(_GRACE_S)

        def how_ended(missing: list[int]) -> tuple[int, str]:
            rank, ended = _first_to_end(Path(folder), missing)
            tail = one_line(" ".join(line.strip() for line in output.tail if line.strip(" =-\n")), 1000)
            return rank, f"{ended} (launcher: exit status {job.returncode})" + (f": {tail}" if tail else "")

        return collect(Path(folder), task.ranks, how_ended)


def _watch(job: subprocess.Popen[bytes], folder: Path, ranks: int, timeout: float | None) -> None:
    """Wait until the job ends or has lost a process for some time, because launchers do not end every job that lost one."""
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
    """Return which of the ranks without an answer ended first, and how; its guard wrote that down before the launcher could know."""
    ranks = {process(folder, rank): rank for rank in missing}
    records = sorted((json.loads(file.read_text()) for file in folder.glob("ended.*")), key=lambda record: record["at"])
    for record in records:
        if record["pid"] in ranks:
            return ranks[record["pid"]], how(record["code"])
    return missing[0], "its process ended without an answer"
