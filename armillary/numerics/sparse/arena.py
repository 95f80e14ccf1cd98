"""How fast can I permute, cut out of, or write into this distributed sparse matrix, and how much has to move?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Constant, Metric, Result, parameter
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from scipy.sparse import csc_array

    from .rearranging.method import Method, Operation
    from .workload import Work

_MEASURED = frozenset({"measured"})
_SIMULATED = frozenset({"simulated"})
_SENT = "payload sent to other ranks in all phases, by the rank that sends most; a broadcast or gather counts every message"

sparse = Arena(
    "numerics/sparse",
    question="How fast can I permute, cut out of, or write into this distributed sparse matrix, and how much has to move?",
    telling=["rmat-permute", "rmat-extract-random", "poisson5-rcm", "hypersparse-permute", "rmat-permute-p*"],
    metrics=[
        Metric("seconds", unit="s", better="lower", kind="measured", on=_MEASURED,
               doc="one operation on the slowest rank; median of rounds"),
        Metric("simulated_seconds", unit="s", better="lower", kind="simulated", on=_SIMULATED,
               doc="one operation on virtual ranks of the cluster"),
        Metric("bytes_per_rank", unit="B", better="lower", kind="measured", steady=True, doc=_SENT),
        Metric("messages", better="lower", kind="measured", steady=True,
               doc="messages with payload to other ranks, by the rank that sends most"),
        Metric("imbalance", better="lower", kind="measured", steady=True,
               doc="entries of the fullest rank after the operation, over the mean"),
        Metric("peak_bytes", unit="B", better="lower", kind="measured", on=_MEASURED, doc="peak of what all ranks together allocate"),
        Metric("identify", unit="s", better=None, kind="by case", doc="finding where entries go and packing them, on the slowest rank"),
        Metric("exchange", unit="s", better=None, kind="by case", doc="moving entries or blocks, on the slowest rank"),
        Metric("build", unit="s", better=None, kind="by case", doc="building the new block, or local products, on the slowest rank"),
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
    repeats=1,
    constants=[
        Constant("R-MAT quadrants", "0.57, 0.19, 0.19, 0.05", "", "Graph500 specification"),
        Constant("compute", "bytes that each pass reads and writes", "B",
                 "the technique counts them, and a core of the cluster is charged for them"),
    ],
)  # fmt: skip

#: Rows as exponents of two, by scale: measured cases, the stream of batches, and virtual ranks by their number.
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
#: The matrices that are permuted on virtual ranks.
MOVED = ("rmat", "poisson5", "erdos-renyi", "poisson27")
VIRTUAL = ("p16", "p64", "many")
#: How many ranks "many" are, by scale; 1,024 take this process minutes.
MANY = {"tiny": 64, "small": 256, "large": 1024}
#: Assignments of the stream at the tiny scale; the others have `workload.BATCHES`.
_TINY_BATCHES = 4
CLUSTER = "perlmutter-cpu"
_ROUNDS = {"tiny": 1, "small": 5, "large": 5}
_MOST_RANKS = 1024
#: The operations of `workload.OPERATIONS` that take given indices.
_INDEXED = ("permute", "rows-and-columns", "extract-random", "extract-contiguous")


@sparse.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields operations on four threads of this machine, and permutations on 16, 64 and many virtual ranks of a cluster."""
    size = SIZES[scale]
    for family, name in MEASURED:
        what = {"matrix": family, "operation": name, "ranks": THREADS, "rounds": _ROUNDS[scale]}
        exponent = size["stream"] if name == "stream" else size["measured"]
        if (scale, name) == ("tiny", "stream"):
            what["batches"] = _TINY_BATCHES
        kinds = {"measured", "few-ranks", family, name.partition("-")[0], f"p{THREADS}"}
        yield Case(f"{family}-{name}", _make, {**what, "exponent": exponent}, frozenset(kinds))
    for family in MOVED[:2] if scale == "tiny" else MOVED:
        for some in VIRTUAL if family == "rmat" else VIRTUAL[:2]:
            if (scale, some) == ("tiny", "p64"):  # There, "many" is 64.
                continue
            p = MANY[scale] if some == "many" else int(some[1:])
            what = {"matrix": family, "operation": "permute", "ranks": p, "cluster": CLUSTER, "exponent": size[some]}
            further = ({"moved"} if some != "many" else set()) | ({"few-ranks"} if p < 1024 else set())
            yield Case(f"{family}-permute-{some}", _make, what, frozenset({"simulated", family, "permute", some} | further))


@dataclass(frozen=True)
class Reading:
    """Options: what is done to the matrix, with which indices, and on how many ranks."""

    operation: str = parameter("permute", "what is done to the matrix", choices=(*_INDEXED, "rcm", "assign", "stream"))
    rows: str = parameter("", "a file of row indices (.npy, or text with one per line); drawn if empty", file=True)
    cols: str = parameter("", "a file of column indices, in the same form; drawn if empty", file=True)
    base: int = parameter(0, "the number from which the files of indices count", choices=(0, 1))
    ranks: int = parameter(4, "the number of threads here, and of virtual ranks on the cluster", range=(1, _MOST_RANKS))
    cluster: str = parameter(CLUSTER, "the preset of the cluster that carries the virtual ranks")

    def validate(self) -> None:
        """Refuses indices for other operations than permutations and extractions, and unknown clusters."""
        from armillary.cluster import preset

        if (self.rows or self.cols) and self.operation not in _INDEXED:
            raise InputError(f"found indices for {self.operation}; expected them for permute or an extraction", where="--rows, --cols")
        preset(self.cluster)


@sparse.read(Reading)
def read(path: Path, how: Reading) -> tuple[csc_array, Operation | None]:
    """Reads a matrix (.mtx, .mtx.gz, .npz, .npy, or an edge list .txt, .txt.gz), and the operation where its indices are given."""
    from .distribution.distributed import canonical
    from .readers.shares import read_work

    found = canonical(read_work(path))
    if how.rows or how.cols:
        return found, _given(found, how)
    if how.operation in ("permute", "rcm") and found.shape[0] != found.shape[1]:
        raise InputError(f"found a matrix of {found.shape}; expected a square one for {how.operation} without indices", where=str(path))
    return found, None


def _given(found: csc_array, how: Reading) -> Operation:
    """Returns the operation with the indices of the user's files."""
    import numpy as np

    from .readers.shares import read_index
    from .rearranging.method import Operation

    sides = [read_index(side, how.base) if side else np.arange(n) for side, n in zip((how.rows, how.cols), found.shape)]
    made = Operation("permute" if how.operation in ("permute", "rows-and-columns") else "extract", sides[0], sides[1])
    for side, n, where in zip(sides, found.shape, (how.rows or "rows", how.cols or "cols")):
        bad = np.flatnonzero(side >= n)
        if bad.size:
            found_index, most = side[bad[0]] + how.base, n - 1 + how.base
            raise InputError(f"found index {found_index} at position {bad[0]}; expected at most {most}", where=where)
        if made.name == "permute" and (side.size != n or np.unique(side).size != n):
            raise InputError(f"found {side.size} indices, {np.unique(side).size} different; expected a permutation of {n}", where=where)
    return made


@sparse.own_cases
def own_cases(loaded: tuple[csc_array, Operation | None], name: str, how: Reading) -> Iterator[Case]:
    """Yields one case on threads of this machine, and one on as many virtual ranks of the cluster."""
    what = {"operation": how.operation, "base": how.base, "ranks": how.ranks, "rounds": 3}
    yield Case(f"{name}-{how.operation}", _own, what, frozenset({"measured", "few-ranks", "file"}))
    virtual = {**what, "cluster": how.cluster}
    yield Case(f"{name}-{how.operation}-virtual", _own, virtual, frozenset({"simulated", "few-ranks", "file"}))


@sparse.example
def example(folder: Path) -> Path:
    """Writes four edges between three nodes, as a SNAP edge list."""
    file = folder / "edges.txt"
    file.write_text("# Directed graph\n# FromNodeId\tToNodeId\n0\t1\n0\t2\n1\t2\n2\t0\n")
    return file


@sparse.run
def run(method: Method, case: Case) -> dict[str, float]:
    """Deals the matrix, performs the operation on ranks and compares the result with SciPy's, bit by bit."""
    from .rearranging.measure import PHASES, measure

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
    """Draws the bytes and the simulated seconds of a permutation over the number of ranks."""

    def place(case: str, facts: Mapping[str, Any]) -> tuple[str, str] | None:
        family, _, ranks = case.partition("-permute-")
        return (family, ranks) if ranks in VIRTUAL else None

    shown = (("bytes_per_rank", "Bytes sent per rank"), ("simulated_seconds", "Simulated seconds"))
    how: dict[str, Any] = {"x": "ranks", "log_y": True, "least_points": 2}
    return [figure for metric, title in shown for figure in result.panels(f"{title}, permutation", metric, place, y=metric, **how)]


def _make(case: Case, rng: np.random.Generator) -> Work:
    from .workload import BATCHES, Work, matrix, operation

    found = matrix(case.parameters["matrix"], case.parameters["exponent"], rng)
    return Work(found, operation(case.parameters["operation"], found, rng, case.parameters.get("batches", BATCHES)))


def _own(case: Case, rng: np.random.Generator) -> Work:
    """Returns the user's matrix, with indices that are drawn where none were given."""
    import numpy as np

    from .workload import Work, operation

    found, made = case.loaded
    seed = int(rng.integers(2**31))
    return Work(found, made or operation(case.parameters["operation"], found, np.random.default_rng(seed)))
