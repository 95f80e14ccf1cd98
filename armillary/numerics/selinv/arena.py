"""How fast are the wanted blocks of the inverse of a block-tridiagonal matrix with an arrow, and over how many processes?"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Constant, Metric, NotForThisCase, Result, parameter
from armillary.timing import Stopwatch, timed

from .costs.work import CALL_S, GEMM, POTRF, TRSM

if TYPE_CHECKING:
    import numpy as np

    from .blocks.block_arrow import BlockArrow
    from .inversion.grading import Reference
    from .inversion.method import Answer, Method, Problem
    from .serinv import Serinv

_SHARES = "share of a core's peak, measured by benchmarks/selinv_speed.py on a 2-core host and assumed for the cluster's cores"

selinv = Arena(
    "numerics/selinv",
    question="How fast are variances from a huge block-tridiagonal precision matrix with an arrow, and over how many processes?",
    telling=["field-a", "no-arrow", "ill-conditioned", "virtual-4", "virtual-16a"],
    metrics=[
        Metric("seconds", unit="s", better="lower", kind="by case",
               doc="factorisation and wanted entries of the inverse, with one core per process"),
        Metric("error", better="lower", kind="measured", steady=True,
               doc="largest error of a wanted entry over the largest entry of its column, in 24 columns"),
        Metric("logdet_error", better="lower", kind="measured", steady=True, doc="relative error of the log-determinant"),
        Metric("bytes_per_rank", unit="B", better="lower", kind="measured", steady=True,
               doc="payload sent by the rank that sends most; a collective counts once"),
        Metric("parallel_efficiency", better="higher", kind="by case", on=frozenset({"parallel"}),
               doc="T₁ / (p·T_p), which is 1/p for a technique that runs on one process"),
        Metric("peak_bytes", unit="B", better="lower", kind="measured", doc="peak memory beyond the matrix, including the answer"),
    ],
    techniques={
        "serinv": ".serinv:Serinv",
        "serinv-sequential": ".serinv_sequential:SerinvSequential",
        "takahashi": ".takahashi:Takahashi",
        "solve-columns": ".solve_columns:SolveColumns",
        "dense": ".dense:Dense",
    },
    papers={"serinv": "serinv"},
    baseline="takahashi",
    tradeoff=("seconds", "peak_bytes"),
    repeats=2,
    constants=[
        Constant("gemm", GEMM, "", _SHARES),
        Constant("triangular solve", TRSM, "", _SHARES),
        Constant("cholesky", POTRF, "", _SHARES),
        Constant("call", CALL_S, "s", "time of a kernel call, sum or copy on a small block, measured by benchmarks/selinv_speed.py"),
        Constant("cluster", "perlmutter-cpu", "", "one rank per node and one core per rank; peak and network are those of the preset"),
    ],
)  # fmt: skip

CLUSTER = "perlmutter-cpu"
#: Days, side of the grid, fixed effects.
MEASURED = {
    "tiny": {"field-a": (8, 3, 2), "field-b": (9, 2, 2), "field-c": (10, 3, 3), "field-d": (12, 2, 3)},
    "small": {"field-a": (64, 10, 4), "field-b": (96, 7, 4), "field-c": (48, 8, 10), "field-d": (80, 9, 6)},
    "large": {"field-a": (365, 22, 10), "field-b": (200, 20, 10), "field-c": (128, 16, 10), "field-d": (160, 18, 6)},
}
SIMULATED = {"tiny": (40, (2, 2, 3)), "small": (512, (6, 7, 8)), "large": (512, (10, 12, 14))}
GPU = {"tiny": (16, (3, 4, 5, 6)), "small": (64, (12, 14, 16, 18)), "large": (365, (14, 16, 20, 22))}
RANDOM = {"tiny": (7, 4), "small": (32, 48), "large": (64, 128)}
#: A run that takes longer than this many seconds is timed once; shorter ones are repeated.
_LONG_S, _REPEATS = 2.0, 5


@selinv.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields Gaussian fields and awkward matrices on two ranks here, fields on 2 to 16 virtual ranks, and fields on a CUDA device."""
    for name, (n, side, a) in MEASURED[scale].items():
        facts = {"n": n, "side": side, "a": a, "ranks": 2}
        yield Case(name, _field, facts, frozenset({"measured", "cpu", "spatio-temporal", "parallel"}))
    n, b = RANDOM[scale]
    shapes: dict[str, dict[str, Any]] = {
        "random": {"a": 5}, "no-arrow": {"a": 0}, "complex": {"a": 2, "kind": "complex"}, "unequal": {"a": 3, "unequal": True},
        "ill-conditioned": {"a": 3, "condition": 1e12},
    }  # fmt: skip
    for name, how in shapes.items():
        yield Case(name, _random, {"n": n, "b": b, "ranks": 2, **how}, frozenset({"measured", "cpu", "random", "parallel", name}))
    n, sides = SIMULATED[scale]
    for ranks in (2, 4, 8):
        yield Case(f"virtual-{ranks}", _field, _sized(n, sides[0], ranks), frozenset({"simulated", "spatio-temporal", "parallel"}))
    for letter, side in zip("abc", sides):
        yield Case(f"virtual-16{letter}", _field, _sized(n, side, 16), frozenset({"simulated", "spatio-temporal", "parallel", "p16"}))
    n, wide = GPU[scale]
    for letter, side in zip("abcd", wide):
        yield Case(f"gpu-{letter}", _field, _sized(n, side, 1), frozenset({"measured", "gpu", "spatio-temporal"}))


def _sized(n: int, side: int, ranks: int) -> dict[str, int]:
    return {"n": n, "side": side, "a": 4, "ranks": ranks}


@dataclass(frozen=True)
class Reading:
    """Options: how a sparse matrix is cut into blocks, and over how many ranks it is inverted."""

    block: str = parameter("auto", "the block size, several sizes as in 3,3,2, or auto to find it in the pattern")
    arrow: str = parameter("auto", "the number of arrow rows, or auto to find it in the pattern")
    ranks: int = parameter(2, "the number of ranks; n blocks allow up to (n + 1)/2", range=(1, 1 << 20))


@selinv.read(Reading)
def read(path: Path, how: Reading) -> BlockArrow:
    """Reads a matrix from a file: block arrays in an `.npz`, or a sparse Hermitian matrix in a `.mtx` or `.npz`."""
    from .blocks.partitions import partition
    from .workload import read_blocks

    blocks = read_blocks(path, how.block, how.arrow)
    partition(blocks.n, how.ranks)
    return blocks


@selinv.own_cases
def own_cases(blocks: BlockArrow, name: str, how: Reading) -> Iterator[Case]:
    """Yields one case, the matrix on the ranks that were asked for."""
    kinds = {"measured", "cpu", "file", *(["parallel"] if how.ranks > 1 else [])}
    yield Case(name, _own, {"block": how.block, "arrow": how.arrow, "ranks": how.ranks}, frozenset(kinds))


@selinv.example
def example(folder: Path) -> Path:
    """Writes a tridiagonal matrix of eight rows in Matrix Market's format."""
    file = folder / "chain.mtx"
    entries = [f"{k} {k} 4" for k in range(1, 9)] + [f"{k + 1} {k} -1" for k in range(1, 8)]
    file.write_text(f"%%MatrixMarket matrix coordinate real symmetric\n8 8 {len(entries)}\n" + "\n".join(entries) + "\n")
    return file


@selinv.run
def run(method: Method, case: Case) -> dict[str, float] | NotForThisCase:
    """Inverts against the clock, or in simulated time on virtual ranks, and compares with refined columns of the inverse."""
    from .serinv import Serinv

    if "gpu" in case.kinds and not _cuda():
        return NotForThisCase("needs PyTorch with a CUDA device")
    work: _Work = case.workload
    problem, ranks = work.problem, case.parameters["ranks"]
    problem.sparse  # noqa: B018  # Built before the clock starts.
    if "simulated" in case.kinds:
        return _simulated(method, work, ranks)
    own_ranks = (method.ranks or ranks) if isinstance(method, Serinv) else 1
    answer, seconds, peak = _timed(method, _on_device(problem, method) if "gpu" in case.kinds else problem)
    efficiency = 1.0 / ranks
    if isinstance(method, Serinv) and own_ranks > 1:
        from dataclasses import replace

        _, alone, _ = _timed(replace(method, ranks=1), problem)
        efficiency = alone / (own_ranks * seconds)
    found = _graded(answer, work.reference, seconds, peak)
    return {**found, "parallel_efficiency": efficiency} if "parallel" in case.kinds else found


def _graded(answer: Answer, reference: Reference, seconds: float, peak: int) -> dict[str, float]:
    return {
        "seconds": seconds,
        "error": reference.error(answer.inverse.to_sparse()),
        "logdet_error": reference.logdet_error(answer.logdet),
        "bytes_per_rank": answer.bytes_per_rank,
        "peak_bytes": peak,
    }


def _simulated(method: Method, work: _Work, ranks: int) -> dict[str, float] | NotForThisCase:
    """Computes real answers; operations and messages take their time on nodes of the cluster, step by step."""
    from .serinv import Serinv
    from .serinv_sequential import SerinvSequential

    if not isinstance(method, Serinv | SerinvSequential):
        return NotForThisCase("it has no steps that virtual ranks could time, and a formula is not compared with simulated seconds")
    own = method if isinstance(method, Serinv) else Serinv(ranks=1)
    answer, peak = _traced(lambda: on_virtual_ranks(own, work.problem))
    seconds = answer.simulated_s or 0.0
    efficiency = work.alone_s / ((own.ranks or ranks) * seconds) if own is method else 1.0 / ranks
    return {**_graded(answer, work.reference, seconds, peak), "parallel_efficiency": efficiency}


def on_virtual_ranks(method: Serinv, problem: Problem) -> Answer:
    """Inverts on virtual ranks, one per node of the cluster; the answer has the simulated seconds."""
    return method.on_ranks(problem, "virtual", cluster=CLUSTER, placement="round-robin")


def _timed(method: Method, problem: Problem) -> tuple[Answer, float, int]:
    import_module("scipy.linalg")  # SciPy has a BLAS of its own, and only libraries that are loaded can be limited.
    on_device = problem.blocks.diagonal
    with import_module("threadpoolctl").threadpool_limits(1):
        with Stopwatch(on_device) as watch:
            answer, peak = _traced(lambda: method.invert(problem))
        if watch.seconds > _LONG_S:
            return answer, watch.seconds, peak
        return answer, timed(lambda: method.invert(problem), on_device, min_seconds=0, min_calls=_REPEATS).median, peak


def _traced(work: Callable[[], Answer]) -> tuple[Answer, int]:
    """Returns the answer and the peak of held bytes: those of Python and NumPy, of a CUDA device, and of libraries that report theirs."""
    import tracemalloc

    if cuda := _cuda():
        torch = import_module("torch")
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    tracemalloc.start()
    try:
        answer = work()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return answer, peak + answer.native_bytes + (torch.cuda.max_memory_allocated() - before if cuda else 0)


@selinv.warm_up
def warm_up(method: Method, case: Case) -> None:
    """Compiles Takahashi's loops for real and complex numbers; the other techniques call libraries only."""
    import numpy as np

    from .inversion.method import Problem
    from .takahashi import Takahashi
    from .workload import random_blocks

    if isinstance(method, Takahashi):
        for kind in ("real", "complex"):
            method.invert(Problem(random_blocks(3, 2, 1, np.random.default_rng(7), kind)))


@selinv.plots
def plots(result: Result) -> Sequence[Any]:
    """Draws the simulated seconds over the number of ranks."""
    ranks = {"virtual-2": 2, "virtual-4": 4, "virtual-8": 8, "virtual-16a": 16}

    def place(case: str, facts: Mapping[str, Any]) -> tuple[str, int] | None:
        return ("", ranks[case]) if case in ranks else None

    return result.panels("Simulated seconds, by ranks", "seconds", place, x="ranks", y="seconds", log_y=True, least_points=2)


class _Work:
    """A problem, with its reference, which is computed when it is first asked for."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self.problem = problem
        self._rng = rng

    @functools.cached_property
    def reference(self) -> Reference:
        """Columns of the inverse, which are the same for every technique."""
        from .inversion.grading import reference

        return reference(self.problem.sparse, self._rng)

    @functools.cached_property
    def alone_s(self) -> float:
        """The simulated seconds that one rank takes alone."""
        from .serinv import Serinv

        return on_virtual_ranks(Serinv(ranks=1), self.problem).simulated_s or 0.0


def _field(case: Case, rng: np.random.Generator) -> _Work:
    from .inversion.method import Problem
    from .workload import spatio_temporal

    p = case.parameters
    return _Work(Problem(spatio_temporal(p["n"], p["side"], p["a"], rng), p["ranks"]), rng)


def _random(case: Case, rng: np.random.Generator) -> _Work:
    from .inversion.method import Problem
    from .workload import random_blocks

    p = case.parameters
    n, b = p["n"], p["b"]
    sizes = tuple(int(x) for x in rng.integers(max(1, b // 2), b + 1, n)) if p.get("unequal") else ()
    blocks = random_blocks(n, b, p["a"], rng, p.get("kind", "real"), sizes, p.get("condition", 0.0))
    return _Work(Problem(blocks, p["ranks"]), rng)


def _own(case: Case, rng: np.random.Generator) -> _Work:
    from .inversion.method import Problem

    return _Work(Problem(case.loaded, case.parameters["ranks"]), rng)


@functools.cache
def _cuda() -> bool:
    return find_spec("torch") is not None and bool(import_module("torch").cuda.is_available())


def _on_device(problem: Problem, method: Method) -> Problem:
    """Returns the blocks on the CUDA device for techniques that can use it, and on the host for the others."""
    from .inversion.method import Problem
    from .serinv import Serinv
    from .serinv_sequential import SerinvSequential

    if not isinstance(method, Serinv | SerinvSequential):
        return problem
    torch = import_module("torch")
    return Problem(problem.blocks.mapped(lambda x: torch.from_numpy(x).cuda()), problem.ranks)
