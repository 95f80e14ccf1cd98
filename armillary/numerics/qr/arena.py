"""Which QR for my tall-and-skinny matrix on p ranks: fast, and still orthogonal when it is ill-conditioned?"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Constant, Metric, Result, parameter
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from armillary.comm import Communicator

    from .factors.method import Method

_MEASURED, _SIMULATED = frozenset({"measured"}), frozenset({"simulated"})
_RATES = "rate of the kernel over that of a matrix product, measured for 64 columns on one core with OpenBLAS 0.3.31"

qr = Arena(
    "numerics/qr",
    question="Which QR for my tall-and-skinny matrix on p ranks: fast, and still orthogonal when it is ill-conditioned?",
    telling=["kappa-1e8", "kappa-1e15", "virtual-64"],
    metrics=[
        Metric("seconds", unit="s", kind="measured", on=_MEASURED, unbounded=True,
               doc="time of the slowest rank, including the checks of the input"),
        Metric("orthogonality", kind="measured", steady=True, on=_MEASURED, unbounded=True,
               doc="‖I − QᴴQ‖ (Frobenius); infinite after a breakdown"),
        Metric("residual", kind="measured", steady=True, on=_MEASURED, unbounded=True,
               doc="‖A − QR‖/‖A‖ (Frobenius); infinite after a breakdown"),
        Metric("stable", better="higher", kind="measured", steady=True, scale="difference", on=_MEASURED,
               doc="1 where orthogonality and residual are both at most 1e-14·√n"),
        Metric("failed", kind="measured", steady=True, scale="difference", on=_MEASURED,
               doc="1 where the method broke down and reported it"),
        Metric("collectives", kind="by case",
               doc="calls in which all ranks take part; a tree counts twice, the check of the input does not count"),
        Metric("bytes_per_rank", unit="B", kind="by case", scale="difference",
               doc="bytes sent by the rank that sends most; an allreduce counts its payload once, a tree all its messages"),
        Metric("simulated_seconds", unit="s", kind="simulated", on=_SIMULATED, doc="time on perlmutter-cpu with 128 ranks per node"),
    ],
    techniques={
        "lu-cholqr2": ".lu_cholqr2:LuCholQr2",
        "lu-cholqr": ".lu_cholqr:LuCholQr",
        "cholqr": ".cholqr:CholQr",
        "cholqr2": ".cholqr2:CholQr2",
        "scholqr3": ".scholqr3:ScholQr3",
        "tsqr": ".tsqr:Tsqr",
        "householder": ".householder:Householder",
        "mgs": ".mgs:Mgs",
        "randomized-cholqr": ".randomized_cholqr:RandomizedCholQr",
    },
    papers={"lu-cholqr2": "lu-cholesky-qr"},
    baseline="tsqr",
    tradeoff=("orthogonality", "seconds"),
    constants=[
        Constant("Gram efficiency", 0.65, "", _RATES),
        Constant("LU efficiency", 0.4, "", _RATES + " (leaves of 512 rows)"),
        Constant("QR efficiency", 0.2, "", _RATES + " (leaves of 1024 rows, Q formed)"),
    ],
)  # fmt: skip

#: Rows and columns of the accuracy cases (4 ranks), of the speed cases (2 ranks), and of the matrix that virtual ranks stand for.
ACCURACY = {"tiny": (1 << 10, 8), "small": (1 << 16, 32), "large": (1 << 18, 64)}
SPEED = {"tiny": (1 << 12, 16), "small": (1 << 17, 64), "large": (4_000_000, 64)}
SIMULATED = {"tiny": (1 << 16, 8), "small": (1 << 22, 64), "large": (1 << 24, 64)}
#: What the speed cases make of these rows and columns.
SHAPES = {"": (1, 1), "-narrow": (2, 0.5), "-short": (0.5, 1), "-wide": (0.5, 1.5)}
#: Virtual ranks and the part of the columns that they factor.
VIRTUAL = {
    "virtual-16": (16, 1), "virtual-64": (64, 1), "virtual-256": (256, 1),
    "virtual-1024": (1024, 1), "virtual-1024-half": (1024, 2), "virtual-1024-quarter": (1024, 4),
    "virtual-1024-eighth": (1024, 8),
}  # fmt: skip
#: A thousand ranks take this process a minute, so the tiny scale stops at 64.
MOST_RANKS = {"tiny": 64, "small": 1024, "large": 1024}
CLUSTER = "perlmutter-cpu"


@qr.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields every family on four ranks, larger matrices of four shapes against the clock, and virtual ranks."""
    from .workload import FAMILIES

    m, n = ACCURACY[scale]
    for family in FAMILIES:
        kinds = {"measured", "accuracy", family, family.partition("-")[0]}
        yield Case(family, _make, {"family": family, "m": m, "n": n, "p": 4}, frozenset(kinds))
    m, n = SPEED[scale]
    for name, family in (("well", "kappa-1e2"), ("ill", "kappa-1e12")):
        kinds = {"measured", "speed", f"{name}-conditioned"}
        for shape, (rows, columns) in SHAPES.items():
            if scale != "tiny" or not shape:
                parameters = {"family": family, "m": int(m * rows), "n": int(n * columns), "p": 2}
                yield Case(f"speed-{name}{shape}", _make, parameters, frozenset(kinds))
    m, n = SIMULATED[scale]
    for name, (p, part) in VIRTUAL.items():
        if p <= MOST_RANKS[scale]:
            yield Case(name, _nothing, {"m": m, "n": n // part, "p": p}, frozenset({"simulated", f"p{p}"}))


@dataclass(frozen=True)
class Reading:
    """Options: on how many ranks the matrix is factored, and which columns of a table it has."""

    ranks: int = parameter(2, "the number of ranks, which are threads of this machine", range=(1, 256))
    columns: str = parameter("", "the columns of a table that make the matrix, as in x,y; all numeric ones if empty")


@qr.read(Reading)
def read(path: Path, how: Reading) -> np.ndarray:
    """Reads a tall matrix from a file: .npy, .mtx, .mtx.gz, or the numeric columns of a .parquet or .csv table."""
    import numpy as np

    from .workload import read_rows

    found = read_rows(path, None, how.columns)
    if found.shape[0] < found.shape[1] or not found.shape[1]:
        raise InputError(f"found {found.shape[0]} rows of {found.shape[1]} columns; expected at least as many rows", where=str(path))
    bad = np.argwhere(~np.isfinite(found))
    if len(bad):
        raise InputError(f"row {bad[0][0]}, column {bad[0][1]}: found {found[tuple(bad[0])]}; expected finite numbers", where=str(path))
    return found


@qr.own_cases
def own_cases(matrix: np.ndarray, name: str, how: Reading) -> Iterator[Case]:
    """Yields one case, the matrix on the ranks that were asked for."""
    yield Case(name, parameters={"p": how.ranks, "columns": how.columns}, kinds=frozenset({"measured", "file"}))


@qr.example
def example(folder: Path) -> Path:
    """Writes six rows of two columns as CSV."""
    file = folder / "tall.csv"
    file.write_text("x,y\n" + "".join(f"{k},{k * k}\n" for k in range(6)))
    return file


@qr.run
def run(method: Method, case: Case) -> dict[str, float]:
    """Factors on threads against the clock and checks Q and R, or factors on virtual ranks in simulated time."""
    if "simulated" in case.kinds:
        return dict(simulated(method, case.parameters["m"], case.parameters["n"], case.parameters["p"]))
    import os

    import numpy as np
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    from armillary import comm

    a, p = case.workload, case.parameters["p"]
    with threadpool_limits(max(1, (os.cpu_count() or 1) // p)):
        ran = comm.run(_measured, method, a, ranks=p)
    failed, n = ran[0][1] is None, a.shape[1]
    seconds = orthogonality = residual = math.inf
    if not failed:
        seconds = max(value[0] for value in ran.values)
        q, r = np.concatenate([value[1] for value in ran.values]), ran[0][2]
        orthogonality = float(np.linalg.norm(np.eye(n) - q.conj().T @ q))
        residual = float(np.linalg.norm(a - q @ r) / np.linalg.norm(a))
    stable = max(orthogonality, residual) <= 1e-14 * math.sqrt(n)
    collectives, most = _sent(ran)
    return {
        "seconds": seconds, "orthogonality": orthogonality, "residual": residual, "stable": float(stable), "failed": float(failed),
        "collectives": collectives, "bytes_per_rank": most,
    }  # fmt: skip


def _measured(comm: Communicator, method: Method, a: np.ndarray) -> tuple[float, Any, Any]:
    """Returns the seconds and this rank's Q and R, which are None where the method broke down."""
    from .factors.method import Breakdown

    mine = comm.local_range(a.shape[0])
    block = a[mine.start : mine.stop]
    comm.barrier()
    start = comm.now()
    try:
        q, r, _ = method.factorise(block, comm)
    except Breakdown:
        q = r = None
    return comm.now() - start, q, r


@functools.lru_cache(maxsize=256)
def simulated(method: Method, m: int, n: int, p: int) -> tuple[tuple[str, float], ...]:
    """Returns the metrics of an m×n matrix on p virtual ranks, 128 per node.

    Every rank factors a real block of 2n rows and sends real messages; its work is charged as if the blocks had m rows together. The
    result does not depend on the study's seed, so later repeats take it from the first.
    """
    from armillary import comm

    ran = comm.run(_virtual, method, m, n, ranks=p, backend="virtual", cluster=CLUSTER)
    collectives, most = _sent(ran)
    return ("simulated_seconds", max(ran.values)), ("collectives", collectives), ("bytes_per_rank", most)


def _virtual(comm: Communicator, method: Method, m: int, n: int) -> float:
    import numpy as np

    rng = np.random.Generator(np.random.PCG64DXSM(comm.rank))
    block = rng.normal(size=(2 * n, n))
    start = comm.now()
    method.factorise(block, comm, weight=m / comm.size / (2 * n))
    return comm.now() - start


def _sent(ran: Any) -> tuple[float, float]:
    counters = [by_phase["factor"] for by_phase in ran.counters]
    return float(max(c.collectives for c in counters)), float(max(c.bytes for c in counters))


@qr.plots
def plots(result: Result) -> Sequence[Any]:
    """Draws orthogonality over the condition number, and simulated seconds over ranks."""

    def by_condition(case: str, facts: Mapping[str, Any]) -> tuple[str, str] | None:
        return ("", case.removeprefix("kappa-")) if case.startswith("kappa-") and "accuracy" in facts["kinds"] else None

    def by_ranks(case: str, facts: Mapping[str, Any]) -> tuple[str, str] | None:
        ranks = case.removeprefix("virtual-")
        return ("", ranks) if ranks.isdigit() else None

    title = "‖I − QᴴQ‖ by condition number; a line ends where the method breaks down"
    return [
        *result.panels(title, "orthogonality", by_condition, x="κ", log_y=True, least_points=2),
        *result.panels("Simulated seconds by ranks", "simulated_seconds", by_ranks, x="ranks", y="s", log_y=True, least_points=2),
    ]


def _make(case: Case, rng: np.random.Generator) -> np.ndarray:
    from threadpoolctl import threadpool_limits

    from .workload import matrix

    with threadpool_limits(1):
        return matrix(case.parameters["family"], case.parameters["m"], case.parameters["n"], rng)


def _nothing(case: Case, rng: np.random.Generator) -> None:
    return None
