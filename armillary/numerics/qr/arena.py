"""Which QR for my tall-and-skinny matrix on p ranks: fast, and still orthogonal when it is ill-conditioned?"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Constant, Metric

if TYPE_CHECKING:
    import numpy as np

    from armillary.comm import Communicator
    from armillary.study import Result

    from .method import Method

_MEASURED, _SIMULATED = frozenset({"measured"}), frozenset({"simulated"})
_RATES = "flops a second over a product's, 64 columns on one core with OpenBLAS 0.3.31, measured"

qr = Arena(
    "numerics/qr",
    question="Which QR for my tall-and-skinny matrix on p ranks: fast, and still orthogonal when it is ill-conditioned?",
    metrics=[
        Metric("seconds", unit="s", kind="measured", on=_MEASURED, unbounded=True, doc="of the slowest rank, with the checks of the input"),
        Metric("orthogonality", kind="measured", steady=True, on=_MEASURED, unbounded=True,
               doc="‖I − QᴴQ‖ (Frobenius); infinite after a breakdown"),
        Metric("residual", kind="measured", steady=True, on=_MEASURED, unbounded=True,
               doc="‖A − QR‖/‖A‖ (Frobenius); infinite after a breakdown"),
        Metric("stable", better="higher", kind="measured", steady=True, scale="difference", on=_MEASURED,
               doc="1 where both are at most 1e-14·√n"),
        Metric("failed", kind="measured", steady=True, scale="difference", on=_MEASURED, doc="1 where the method broke down and said so"),
        Metric("collectives", kind="by case", doc="calls in which all ranks take part, a tree twice; without the check of the input"),
        Metric("bytes_per_rank", unit="B", kind="by case", scale="difference",
               doc="sent by the rank that sends most: a tree's messages, an allreduce's payload once"),
        Metric("simulated_seconds", unit="s", kind="simulated", on=_SIMULATED, doc="on perlmutter-cpu, 128 ranks a node"),
    ],
    techniques={
        "lu-cholqr2": ".lu_cholqr2:LuCholQr2",
        "lu-cholqr": ".lu_cholqr2:LuCholQr",
        "cholqr": ".cholqr:CholQr",
        "cholqr2": ".cholqr:CholQr2",
        "scholqr3": ".cholqr:ScholQr3",
        "tsqr": ".tsqr:Tsqr",
        "householder": ".householder:Householder",
        "mgs": ".mgs:Mgs",
        "randomized-cholqr": ".randomized_cholqr:RandomizedCholQr",
    },
    papers={"lu-cholqr2": "lu-cholesky-qr"},
    baseline="tsqr",
    tradeoff=("orthogonality", "seconds"),
    uses=("armillary.arrays", "armillary.comm"),
    constants=[
        Constant("Gram efficiency", 0.65, "", _RATES),
        Constant("LU efficiency", 0.4, "", _RATES + " (leaves of 512 rows)"),
        Constant("QR efficiency", 0.2, "", _RATES + " (leaves of 1024 rows, Q formed)"),
    ],
)  # fmt: skip

#: Rows and columns: accuracy on 4 ranks, speed on 2, and what the blocks of virtual ranks stand for.
ACCURACY = {"tiny": (1 << 10, 8), "small": (1 << 16, 32), "large": (1 << 18, 64)}
SPEED = {"tiny": (1 << 12, 16), "small": (1 << 17, 64), "large": (4_000_000, 64)}
SIMULATED = {"tiny": (1 << 16, 8), "small": (1 << 22, 64), "large": (1 << 24, 64)}
CLUSTER = "perlmutter-cpu"


@qr.cases
def cases(scale: str) -> Iterator[Case]:
    """Every family on four ranks, two larger matrices against the clock, and virtual ranks."""
    from .workload import FAMILIES

    m, n = ACCURACY[scale]
    for family in FAMILIES:
        kinds = {"measured", "accuracy", family, family.partition("-")[0]}
        yield Case(family, _make, {"family": family, "m": m, "n": n, "p": 4}, frozenset(kinds))
    m, n = SPEED[scale]
    for name, family in (("well", "kappa-1e2"), ("ill", "kappa-1e12")):
        kinds = {"measured", "speed", f"{name}-conditioned"}
        yield Case(f"speed-{name}", _make, {"family": family, "m": m, "n": n, "p": 2}, frozenset(kinds))
    m, n = SIMULATED[scale]
    for p, part, suffix in ((16, 1, ""), (64, 1, ""), (256, 1, ""), (1024, 1, ""), (1024, 2, "-half"), (1024, 4, "-quarter")):
        kinds = {"simulated", f"p{p}"}
        yield Case(f"virtual-{p}{suffix}", _nothing, {"m": m, "n": n // part, "p": p}, frozenset(kinds))


@qr.read
def read(path: Path, *, ranks: int = 2, columns: str = "") -> Iterator[Case]:
    """A matrix in a file (.npy, .mtx, .parquet, .csv) on so many ranks; of a table the numeric columns, or those named."""
    from armillary.errors import InputError

    if not 1 <= ranks <= 256:
        raise InputError(f"found {ranks}; expected 1 to 256", where="--ranks")
    _file(path, columns, path.stat().st_mtime_ns)
    yield Case(path.name, _load, {"p": ranks, "columns": columns}, frozenset({"measured", "file"}), source=path)


@qr.run
def run(method: Method, case: Case) -> dict[str, float]:
    """Factors on threads against the clock and looks at Q and R, or on virtual ranks in simulated time."""
    if "simulated" in case.kinds:
        return dict(simulated(method, case.parameters["m"], case.parameters["n"], case.parameters["p"]))
    import os

    import numpy as np
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    from armillary import comm

    a, p = case.workload, case.parameters["p"]
    with threadpool_limits(max(1, (os.cpu_count() or 1) // p)):
        ran = comm.run(_measured, method, a, ranks=p)
    seconds = max(value[0] for value in ran.values)
    collectives, most = _sent(ran)
    if ran[0][1] is None:
        return {
            "seconds": math.inf, "orthogonality": math.inf, "residual": math.inf, "stable": 0.0, "failed": 1.0,
            "collectives": collectives, "bytes_per_rank": most,
        }  # fmt: skip
    q, r = np.concatenate([value[1] for value in ran.values]), ran[0][2]
    n = a.shape[1]
    orthogonality = float(np.linalg.norm(np.eye(n) - q.conj().T @ q))
    residual = float(np.linalg.norm(a - q @ r) / np.linalg.norm(a))
    stable = max(orthogonality, residual) <= 1e-14 * math.sqrt(n)
    return {
        "seconds": seconds, "orthogonality": orthogonality, "residual": residual, "stable": float(stable), "failed": 0.0,
        "collectives": collectives, "bytes_per_rank": most,
    }  # fmt: skip


def _measured(comm: Communicator, method: Method, a: np.ndarray) -> tuple[float, Any, Any]:
    """Seconds, and Q and R of this rank, None where the method broke down."""
    from .method import Breakdown

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
    """The metrics of an m×n matrix on p virtual ranks, 128 a node.

    Messages are real, of blocks of 2n rows each; every row is charged as so many that there are m. Nothing random is in it, so that repeats
    give the same and are taken from the first.
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
    """Orthogonality over the condition, and simulated seconds over ranks."""
    from armillary.figures import panels

    figures = []
    kappas = [name for name, facts in result.cases.items() if name.startswith("kappa-") and "accuracy" in facts["kinds"]]
    virtual = [name for name in result.cases if name.startswith("virtual-") and name[8:].isdigit()]
    if len(kappas) > 1:
        lines = {}
        for technique in result.techniques:
            medians = result.medians(technique, "orthogonality")
            lines[technique] = [(k.removeprefix("kappa-"), medians[k]) for k in kappas if k in medians and math.isfinite(medians[k])]
        figures.append(panels({"": lines}, "‖I − QᴴQ‖ by condition; a line ends where the method breaks down", "κ", "", log_y=True))
    if len(virtual) > 1:
        lines = {}
        for technique in result.techniques:
            medians = result.medians(technique, "simulated_seconds")
            lines[technique] = [(k.removeprefix("virtual-"), medians[k]) for k in virtual if k in medians]
        figures.append(panels({"": lines}, "Simulated seconds by ranks", "ranks", "s", log_y=True))
    return figures


def _make(case: Case, rng: np.random.Generator) -> np.ndarray:
    from threadpoolctl import threadpool_limits

    from .workload import matrix

    with threadpool_limits(1):
        return matrix(case.parameters["family"], case.parameters["m"], case.parameters["n"], rng)


def _nothing(case: Case, rng: np.random.Generator) -> None:
    return None


def _load(case: Case, rng: np.random.Generator) -> np.ndarray:
    assert case.source is not None
    return _file(case.source, case.parameters["columns"], case.source.stat().st_mtime_ns)


@functools.lru_cache(maxsize=2)
def _file(path: Path, columns: str, changed_ns: int) -> np.ndarray:
    import numpy as np

    from armillary.errors import InputError

    from .workload import read_rows

    found = read_rows(path, None, columns)
    if found.shape[0] < found.shape[1] or not found.shape[1]:
        raise InputError(f"found {found.shape[0]} rows of {found.shape[1]} columns; expected at least as many rows", where=str(path))
    bad = np.argwhere(~np.isfinite(found))
    if len(bad):
        raise InputError(f"row {bad[0][0]}, column {bad[0][1]}: found {found[tuple(bad[0])]}; expected finite numbers", where=str(path))
    return found
