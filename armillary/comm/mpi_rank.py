"""One rank of an MPI job: what `python -m armillary.comm.mpi_rank` does under mpiexec."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from armillary.comm.counters import Counters, Tally
from armillary.comm.mpi import MpiRanks
from armillary.comm.program import found
from armillary.comm.result import Ran
from armillary.comm.values import dump, load
from armillary.errors import InputError, one_line


def world(seed: int = 0) -> MpiRanks:
    """The ranks of this job, with messages of their own."""
    native = MPI.COMM_WORLD.Dup()
    hosts = np.zeros((native.Get_size(), 64), np.uint8)
    name = np.frombuffer(MPI.Get_processor_name().encode()[:64].ljust(64), np.uint8)
    native.Allgather(name.copy(), hosts)
    order: dict[bytes, int] = {}
    nodes = [order.setdefault(host.tobytes(), len(order)) for host in hosts]
    return MpiRanks(native, nodes, Tally(), seed)


def run_inside(
    program: Callable[..., Any] | str, args: Sequence[Any], named: dict[str, Any], ranks: int, seed: int, choice: dict[str, Any]
) -> Ran:
    """Run the program on the ranks of the job that this process belongs to; every rank gets the answers of all."""
    comm = world(seed)
    if ranks not in (1, comm.size):
        raise InputError(f"ranks: found {ranks}; expected the {comm.size} of this job")
    comm.choose(**choice)
    body = found(program) if isinstance(program, str) else program
    mine = dump({"value": body(comm, *args, **named), "counters": _numbers(comm)}, "result")
    shadow = comm._shadow
    whole = shadow.allgatherv(np.frombuffer(mine, np.uint8))
    lengths = shadow.allgather(np.array([len(mine)], np.int64)).reshape(-1)
    answers = [load(part.tobytes()) for part in np.split(whole, np.cumsum(lengths)[:-1])]
    counters = [{name: Counters(*numbers) for name, numbers in answer["counters"].items()} for answer in answers]
    return Ran([answer["value"] for answer in answers], counters, [])


def _numbers(comm: MpiRanks) -> dict[str, list[Any]]:
    return {name: list(astuple(counters)) for name, counters in comm.counters.items()}


def main() -> None:
    """Read the task, run it, leave the answer; a failure ends the job."""
    folder = Path(os.environ["ARMILLARY_JOB"])
    rank = MPI.COMM_WORLD.Get_rank()
    _leave(folder, f"pid.{rank}", json.dumps([socket.gethostname(), os.getpid()]).encode())
    try:
        task = load((folder / "task").read_bytes())
        sys.path[:] = [*task["path"], *(p for p in sys.path if p not in task["path"])]
        comm = world(task["seed"])
        comm.choose(**{name: found(what["program"]) if isinstance(what, dict) else what for name, what in task["choice"].items()})
        value = found(task["program"])(comm, *task["args"], **task["named"])
        answer = dump({"value": value, "counters": _numbers(comm)}, "result")
    except BaseException as error:
        said = {"error": f"{type(error).__name__}: {one_line(str(error), 2000)}", "trace": traceback.format_exc(), "at": time.time()}
        _leave(folder, f"failed.{rank}", json.dumps(said).encode())
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
        raise
    MPI.COMM_WORLD.Barrier()
    _leave(folder, f"value.{rank}", answer)


def _leave(folder: Path, name: str, data: bytes) -> None:
    """Write a file that appears whole or not at all."""
    part = folder / f".{name}"
    part.write_bytes(data)
    part.replace(folder / name)


if __name__ == "__main__":
    main()
