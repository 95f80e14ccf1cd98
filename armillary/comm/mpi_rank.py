"""One rank of an MPI job: what `python -m armillary.comm.mpi_rank` does under mpiexec."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from armillary.comm.job_folder import answer, begin, leave, leave_failure, perform, ran
from armillary.comm.mpi import MpiRanks, ranks_of
from armillary.comm.program import found
from armillary.comm.result import Ran
from armillary.errors import InputError


def world(seed: int = 0) -> MpiRanks:
    """The ranks of this job, with messages of their own."""
    return ranks_of(MPI.COMM_WORLD.Dup(), seed)


def run_inside(
    program: Callable[..., Any] | str, args: Sequence[Any], named: dict[str, Any], ranks: int, seed: int, choice: dict[str, Any]
) -> Ran:
    """Run the program on the ranks of the job that this process belongs to; every rank gets the answers of all."""
    comm = world(seed)
    if ranks not in (1, comm.size):
        raise InputError(f"ranks: found {ranks}; expected the {comm.size} of this job")
    comm.choose(**choice)
    body = found(program) if isinstance(program, str) else program
    mine = answer(comm, body(comm, *args, **named))
    shadow = comm._shadow
    whole = shadow.allgatherv(np.frombuffer(mine, np.uint8))
    lengths = shadow.allgather(np.array([len(mine)], np.int64)).reshape(-1)
    return ran([part.tobytes() for part in np.split(whole, np.cumsum(lengths)[:-1])])


def main() -> None:
    """Read the task, run it, leave the answer; a failure ends the job."""
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


if __name__ == "__main__":
    main()
