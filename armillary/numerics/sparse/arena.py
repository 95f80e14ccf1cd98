"""How fast can I permute, cut out of, or write into this distributed sparse matrix, and how much has to move?"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Constant, Metric
from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    import numpy as np

    from armillary.study import Result

    from .method import Method
    from .workload import Work

_MEASURED = frozenset({"measured"})
_SIMULATED = frozenset({"simulated"})
_SENT = "payload for other ranks in all phases, broadcasts and gathers by the messages that they send; the most of any rank"

sparse = Arena(
    "numerics/sparse",
    question="How fast can I permute, cut out of, or write into this distributed sparse matrix, and how much has to move?",
    metrics=[
        Metric("seconds", unit="s", better="lower", kind="measured", on=_MEASURED, doc="one operation, slowest rank; median of rounds"),
        Metric("simulated_seconds", unit="s", better="lower", kind="simulated", on=_SIMULATED, doc="one operation on the cluster"),
        Metric("bytes_per_rank", unit="B", better="lower", kind="measured", steady=True, doc=_SENT),
        Metric(
            "messages", better="lower", kind="measured", steady=True, doc="messages to other ranks that carry payload; the most of any rank"
        ),
        Metric("imbalance", better="lower", kind="measured", steady=True, doc="most entries of a rank after the operation over the mean"),
        Metric("peak_bytes", unit="B", better="lower", kind="measured", on=_MEASURED, doc="most that all ranks together allocate"),
        Metric("identify", unit="s", better=None, kind="by case", doc="working out where entries go, and packing; slowest rank"),
        Metric("exchange", unit="s", better=None, kind="by case", doc="moving entries or blocks; slowest rank"),
        Metric("build", unit="s", better=None, kind="by case", doc="making the new block, or local products; slowest rank"),
    ],
    techniques={
        "ieb": ".ieb:Ieb",
        "spgemm": ".spgemm:Spgemm",
        "row-blocks": ".row_blocks:RowBlocks",
        "gather": ".gather:Gather",
        "scipy": ".scipy_one:ScipyOne",
    },
    papers={"ieb": "ieb"},
    baseline="spgemm",
    tradeoff=("bytes_per_rank", "seconds"),
    uses=("armillary.comm", "armillary.numerics.matrix_files"),
    repeats=1,
    constants=[
        Constant("R-MAT quadrants", "0.57, 0.19, 0.19, 0.05", "", "Graph500 specification"),
        Constant("compute", "bytes that each pass reads and writes", "B", "counted by the technique, charged to a core of the cluster"),
    ],
)

#: Exponents of two of the rows, by scale: measured cases, the stream of batches, and virtual ranks by their number.
SIZES: dict[str, dict[str, int]] = {
    "tiny": {"measured": 9, "stream": 8, "p16": 8, "p64": 8, "many": 8},
    "small": {"measured": 16, "stream": 12, "p16": 14, "p64": 14, "many": 14},
    "large": {"measured": 20, "stream": 16, "p16": 18, "p64": 18, "many": 18},
}
MEASURED = (
    ("rmat", "permute"), ("rmat", "rows-and-columns"), ("rmat", "extract-random"), ("rmat", "extract-contiguous"), ("rmat", "assign"),
    ("rmat", "stream"), ("erdos-renyi", "permute"), ("poisson5", "permute"), ("poisson5", "rcm"), ("poisson27", "permute"),
    ("hypersparse", "permute"),
)  # fmt: skip
THREADS = 4
VIRTUAL = ("p16", "p64", "many")
#: What many ranks are, by scale: 1,024 take this process minutes.
MANY = {"tiny": 64, "small": 256, "large": 1024}
CLUSTER = "perlmutter-cpu"
_ROUNDS = {"tiny": 1, "small": 5, "large": 5}
_MOST_RANKS = 1024


@sparse.cases
def cases(scale: str) -> Iterator[Case]:
    """Matrices and operations on four threads of this machine, and permutations on 16 and 64 virtual ranks of a cluster, and on many."""
    size = SIZES[scale]
    for family, name in MEASURED:
        what = {"matrix": family, "operation": name, "ranks": THREADS, "rounds": _ROUNDS[scale]}
        exponent = size["stream"] if name == "stream" else size["measured"]
        kinds = {"measured", "few-ranks", family, name.partition("-")[0], f"p{THREADS}"}
        yield Case(f"{family}-{name}", _make, {**what, "exponent": exponent}, frozenset(kinds))
    for family in ("rmat", "poisson5"):
        for some in VIRTUAL if family == "rmat" else VIRTUAL[:2]:
            p = MANY[scale] if some == "many" else int(some[1:])
            what = {"matrix": family, "operation": "permute", "ranks": p, "cluster": CLUSTER, "exponent": size[some]}
            kinds = (
                {"simulated", family, "permute", some} | ({"moved"} if some != "many" else set()) | ({"few-ranks"} if p < 1024 else set())
            )
            yield Case(f"{family}-permute-{some}", _make, what, frozenset(kinds))


@sparse.read
def read(
    path: Path, *, operation: str = "permute", rows: str = "", cols: str = "", base: int = 0, ranks: int = 4, cluster: str = CLUSTER
) -> Iterator[Case]:
    """A matrix (.mtx, .mtx.gz, .npz, .npy, or an edge list .txt, .txt.gz), on `ranks` threads and as many virtual ranks of `cluster`.

    `rows` and `cols` are files of indices counted from `base` (.npy, or one on each line); without them they are drawn.
    """
    from .workload import OPERATIONS

    if operation not in OPERATIONS:
        raise unknown("operation", operation, OPERATIONS, where="--operation")
    if not 1 <= ranks <= _MOST_RANKS:
        raise InputError(f"found {ranks}; expected 1 to {_MOST_RANKS}", where="--ranks")
    if (rows or cols) and operation in ("assign", "stream", "rcm"):
        raise InputError(f"found indices for {operation}; expected them for permute or an extraction", where="--rows, --cols")
    _known_cluster(cluster)
    what = {"operation": operation, "rows": rows, "cols": cols, "base": base, "ranks": ranks, "rounds": 3}
    _from_file(path, path.stat().st_mtime_ns, operation, rows, cols, base, 0)
    yield Case(f"{path.name}-{operation}", _load, what, frozenset({"measured", "few-ranks", "file"}), source=path)
    yield Case(
        f"{path.name}-{operation}-virtual", _load, {**what, "cluster": cluster}, frozenset({"simulated", "few-ranks", "file"}), source=path
    )


@sparse.run
def run(method: Method, case: Case) -> dict[str, float]:
    """Deals the matrix, does the operation on ranks and compares the result with SciPy's, bit by bit."""
    from .measure import PHASES, measure

    work: Work = case.workload
    found = measure(method, work, case.parameters["ranks"], case.parameters.get("rounds", 1), case.parameters.get("cluster"))
    total = sum(found.entries)
    values = {
        "bytes_per_rank": float(max(found.sent)),
        "messages": float(max(found.messages)),
        "imbalance": max(found.entries) * len(found.entries) / total if total else 1.0,
        **{phase: found.phases[phase] for phase in PHASES},
    }
    if "measured" in case.kinds:
        assert found.peak_bytes is not None
        return {**values, "seconds": found.seconds, "peak_bytes": float(found.peak_bytes)}
    return {**values, "simulated_seconds": found.seconds}


@sparse.plots
def plots(result: Result) -> Sequence[Any]:
    """Bytes and simulated seconds of a permutation over the number of ranks."""
    from armillary.figures import panels

    figures = []
    for metric, title in (("bytes_per_rank", "Bytes sent per rank"), ("simulated_seconds", "Simulated seconds")):
        tables = {}
        for family in ("rmat", "poisson5"):
            lines = {}
            for technique in result.techniques:
                medians = result.medians(technique, metric)
                names = {f"{family}-permute-{some}": some for some in VIRTUAL}
                points = [(some, medians[name]) for name, some in names.items() if medians.get(name, 0) > 0]
                if len(points) > 1:
                    lines[technique] = points
            if lines:
                tables[family] = lines
        if tables:
            figures.append(panels(tables, f"{title}, permutation", "ranks", metric, log_y=True))
    return figures


def _make(case: Case, rng: np.random.Generator) -> Work:
    from .workload import Work, matrix, operation

    found = matrix(case.parameters["matrix"], case.parameters["exponent"], rng)
    return Work(found, operation(case.parameters["operation"], found, rng))


def _load(case: Case, rng: np.random.Generator) -> Work:
    assert case.source is not None
    what = case.parameters
    changed = case.source.stat().st_mtime_ns
    return _from_file(case.source, changed, what["operation"], what["rows"], what["cols"], what["base"], int(rng.integers(2**31)))


@functools.lru_cache(maxsize=2)
def _from_file(path: Path, changed_ns: int, name: str, rows: str, cols: str, base: int, seed: int) -> Work:
    import numpy as np

    from . import workload
    from .distributed import canonical
    from .files import read_index, read_work
    from .method import Operation

    found = canonical(read_work(path))
    rng = np.random.default_rng(seed)
    if not (rows or cols):
        if name in ("permute", "rcm") and found.shape[0] != found.shape[1]:
            raise InputError(f"found a matrix of {found.shape}; expected a square one for {name} without indices", where=str(path))
        return workload.Work(found, workload.operation(name, found, rng))
    sides = [read_index(side, base) if side else np.arange(n) for side, n in zip((rows, cols), found.shape)]
    made = Operation("permute" if name in ("permute", "rows-and-columns") else "extract", sides[0], sides[1])
    for side, n, where in zip(sides, found.shape, (rows or "rows", cols or "cols")):
        bad = np.flatnonzero(side >= n)
        if bad.size:
            raise InputError(f"found index {side[bad[0]] + base} at position {bad[0]}; expected at most {n - 1 + base}", where=where)
        if made.name == "permute" and (side.size != n or np.unique(side).size != n):
            raise InputError(f"found {side.size} indices, {np.unique(side).size} different; expected a permutation of {n}", where=where)
    return workload.Work(found, made)


def _known_cluster(name: str) -> None:
    from armillary.cluster import preset

    preset(name)
