"""Logs for the tests: synthetic ones, and those that the package darshan brings where it is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from armillary.observability.io import Log, read_log
from armillary.observability.io.synthesis.faults import FAULTS
from armillary.observability.io.synthesis.logs import log_of
from armillary.observability.io.synthesis.planting import TooCheap, Truth, planted
from armillary.observability.io.synthesis.program import Program
from armillary.observability.io.workload import shipped

EXAMPLES, INPUT = "examples/example_logs", "tests/input"
MACSIO = f"{EXAMPLES}/shane_macsio_id29959_5-22-32552-7035573431850780836_1590156158.darshan"


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(seed))


def synthetic(name: str = "small-write", severity: float = 0.3, ranks: int = 16, seed: int = 3) -> tuple[Log, Truth]:
    for draw in range(seed, seed + 100):
        try:
            program, truth = planted([name], [severity], ranks, rng(draw))
        except TooCheap:
            continue
        return log_of(program, name, rng(draw + 1)), truth
    raise AssertionError(f"{name} cannot be planted on {ranks} ranks")


def alone(name: str, ranks: int, seed: int = 3) -> Log:
    """A log of one fault's phases and nothing else."""
    program = Program(ranks, 4)
    program.phases = list(FAULTS[name](program, rng(seed), 1.0).flawed)
    return log_of(program, name, rng(seed + 1))


def shipped_file(name: str) -> Path:
    folder = shipped()
    if folder is None:
        pytest.skip("the package darshan is not installed")
    return folder / name


def shipped_log(name: str) -> Log:
    return read_log(shipped_file(name))


def header(processes: int = 4, extra: Sequence[str] = ()) -> str:
    lines = ["# darshan log version: 3.41", "# exe: ./app", "# jobid: 7", f"# nprocs: {processes}", "# run time: 12.5"]
    return "\n".join([*lines, "# mount entry:\t/scratch\tlustre", *extra, "#<module>\t<rank>\t..."]) + "\n"


def row(counter: str, value: object, rank: int = 0, module: str = "POSIX", number: int = 42) -> str:
    return f"{module}\t{rank}\t{number}\t{counter}\t{value}\t/scratch/a\t/scratch\tlustre\n"
