"""The published program nsys2prv, run as it is on one SQLite export.

The program asks Nsight Systems for a table of API calls, which is made here from the export's own rows; a script in the place of `nsys`
then has nothing left to do. The program is found beside this Python, on the PATH, or at ARMILLARY_NSYS2PRV.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

from .readers.nsys import read_nsys
from .run.model import CALL

_HEAD = ("Start (ns)", "Duration (ns)", "Name", "Result", "CorrID", "Pid", "Tid", "T-Pri", "Thread Name")


def found_program() -> str | None:
    """Where nsys2prv is, or None."""
    beside = Path(sys.executable).parent / "nsys2prv"
    named = os.environ.get("ARMILLARY_NSYS2PRV")
    return named or (str(beside) if beside.exists() else shutil.which("nsys2prv"))


def prepare(export: Path, room: Path) -> None:
    """Puts into an empty folder what the program expects: the export, an empty report, the table of calls, and a script called nsys."""
    shutil.copyfile(export, room / "trace.sqlite")
    (room / "trace.nsys-rep").touch()
    run = read_nsys(export)
    calls = run.of(CALL)
    with (room / "trace_cuda_api_trace.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(_HEAD)
        for start, end, thread, name, correlation in zip(
            *(column.tolist() for column in (calls.start, calls.end, calls.thread, calls.name, calls.correlation))
        ):
            where = run.threads[thread]
            out.writerow((start, end - start, run.names[name], 0, correlation, run.processes[where.process].pid, where.number, "", "main"))
    (room / "bin").mkdir()
    (stub := room / "bin" / "nsys").write_text("#!/bin/sh\nexit 0\n")
    stub.chmod(0o755)


def convert(program: str, room: Path) -> Path:
    """Runs the program in a prepared folder; returns the `.prv` that it wrote."""
    command = [program, "-t", "cuda_api_trace,nvtx_pushpop_trace", "trace.nsys-rep", "theirs"]
    surroundings = {**os.environ, "PATH": f"{room / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}", "NSYS_HOME": str(room)}
    done = subprocess.run(command, cwd=room, env=surroundings, capture_output=True, text=True, check=False, timeout=3600)
    written = room / "theirs.prv"
    if done.returncode or not written.exists():
        raise RuntimeError(f"nsys2prv ended with status {done.returncode}: {done.stderr.strip()[-300:]}")
    return written
