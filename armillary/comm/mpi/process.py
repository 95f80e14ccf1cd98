"""One rank of an MPI job, which a guard starts under mpiexec."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from armillary.comm.jobs.folder import answer, begin, leave, leave_failure, perform, ran
from armillary.comm.jobs.program import found
from armillary.comm.mpi.ranks import MpiRanks, ranks_of
from armillary.comm.result import Ran
from armillary.comm.task import Task
from armillary.errors import InputError


def world(seed: int = 0) -> MpiRanks:
    """Return the ranks of this job, with messages of their own."""
    return ranks_of(MPI.COMM_WORLD.Dup(), seed)


def run_inside(task: Task) -> Ran:
    """Run the program on the ranks of the job that this process belongs to. Every rank gets the answers of all ranks."""
    comm = world(task.seed)
    if task.ranks not in (1, comm.size):
        raise InputError(f"ranks: found {task.ranks}; expected the {comm.size} of this job")
    comm.choose(**task.choice)
    body = found(task.program) if isinstance(task.program, str) else task.program
    mine = answer(comm, body(comm, *task.args, **task.named))
    shadow = comm._shadow
    whole = shadow.allgatherv(np.frombuffer(mine, np.uint8))
    lengths = shadow.allgather(np.array([len(mine)], np.int64)).reshape(-1)
    return ran([part.tobytes() for part in np.split(whole, np.cumsum(lengths)[:-1])])


def main() -> None:
    """Read the task, run it, and leave the answer. A failure ends the whole job."""
    folder = Path(os.environ["ARMILLARY_JOB"])
    rank = MPI.COMM_WORLD.Get_rank()
    try:
        given = begin(folder, rank)
        mine = perform(given, world(given["seed"]))
    except BaseException as error:
        leave_failure(folder, rank, error)
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
        raise
    MPI.COMM_WORLD.Barrier()
    leave(folder, f"value.{rank}", mine)
