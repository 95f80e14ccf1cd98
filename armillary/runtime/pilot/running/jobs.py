"""Batch jobs of a Slurm of virtual nodes on this machine, one per task or as one array."""

from __future__ import annotations

import shlex
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from armillary.arena import NotForThisCase
from armillary.cluster.local_slurm import lacking
from armillary.runtime.pilot.backends.slurm import Slurm

from .real import Ran, RealWork

#: Clients that submit side by side, and seconds between two looks at the log of ended jobs.
CLIENTS, LOOK_S, MOST_S = 4, 0.02, 600.0


def run_jobs(work: RealWork, *, array: bool) -> Ran:
    """Submits everything and waits until the log of ended jobs has all of it."""
    if missing := lacking():
        raise NotForThisCase(f"found no {missing}: Slurm is not installed (Debian: slurm-wlm)")
    with Slurm.local(work.nodes, work.slots) as slurm:
        assert slurm.folder is not None
        log = slurm.folder / "jobcomp.txt"
        words = ["sbatch", "--parsable", "--ntasks=1", "--output=/dev/null", "--chdir=/", f"--wrap={shlex.join(work.command)}"]
        began = time.monotonic()
        if array:
            slurm.command(*words, f"--array=0-{work.executables - 1}")
        else:
            with ThreadPoolExecutor(CLIENTS) as clients:
                list(clients.map(lambda _: slurm.command(*words), range(work.executables)))
        while (ended := _ended(log)) < work.executables:
            if time.monotonic() - began > MOST_S:
                raise subprocess.TimeoutExpired("sbatch", MOST_S)
            time.sleep(LOOK_S)
        makespan = time.monotonic() - began
        return Ran(0.0, makespan, min(ended, log.read_text(errors="replace").count("JobState=COMPLETED")))


def _ended(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0
