"""Which in-memory hash table answers most lookups a second for my key type, table size and miss rate, on this processor?"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Metric, NotForThisCase
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from armillary.study import Result

    from .table import Map
    from .workload import Work

_SPEED, _FILL, _LINES, _FLOATS = (frozenset({name}) for name in ("speed", "fill", "lines", "floats"))

keyvalue = Arena(
    "storage/keyvalue",
    question="Which in-memory hash table answers most lookups a second for my key type, table size and miss rate, on this CPU?",
    metrics=[
        Metric("lookups_per_s", unit="1/s", better="higher", kind="measured", on=_SPEED, doc="median pass over shuffled queries"),
        Metric("inserts_per_s", unit="1/s", better="higher", kind="measured", on=_SPEED, doc="a build from nothing, keys in random order"),
        Metric("bytes_per_key", unit="B", better="lower", kind="measured", steady=True, on=_SPEED,
               doc="keys, values and whatever the table adds"),
        Metric("insert_failure_rate", better="lower", kind="measured", steady=True, scale="difference", on=_FILL,
               doc="keys with no free candidate slot, before any stash, displacement or growth"),
        Metric("lines_per_lookup", better="lower", kind="measured", steady=True, on=_LINES,
               doc="distinct 64-byte lines, a hit's value included; by an instrumented twin of the lookup"),
        Metric("float32_over_float64", better="higher", kind="measured", on=_FLOATS, doc="lookups_per_s of float32 over float64 keys"),
    ],
    techniques={
        "simd3": ".simd3:Simd3",
        "one-hash": ".layout_rivals:OneHash",
        "two-hash": ".layout_rivals:TwoHash",
        "three-hash": ".layout_rivals:ThreeHash",
        "three-regions": ".layout_rivals:ThreeRegions",
        "linear": ".linear:Linear",
        "robin-hood": ".robin_hood:RobinHood",
        "cuckoo": ".cuckoo:Cuckoo",
        "swiss": ".swiss:Swiss",
        "sorted": ".sorted:Sorted",
        "dict": ".python_dict:PythonDict",
        "numba-dict": ".numba_dict:NumbaDict",
        "pandas-index": ".pandas_index:PandasIndex",
        "polars-join": ".polars_join:PolarsJoin",
    },
    papers={"simd3": "avx512-kv"},
    baseline="dict",
    tradeoff=("bytes_per_key", "lookups_per_s"),
    repeats=2,
)  # fmt: skip

ENTRIES = {"tiny": 20_000, "small": 1_000_000, "large": 16_000_000}
QUERIES = {"tiny": 20_000, "small": 1_000_000, "large": 4_000_000}
FULL_SIZE = 550_000_000
LOAD = 0.8
PASSES, FEWER_PASSES, ENOUGH_SECONDS = 5, 3, 1.0
#: Distribution, key type, popularity and miss rates of the cases against the clock.
SPEED = (
    ("uniform", "uint32", "hit", (0, 50, 90)), ("uniform", "uint64", "hit", (0, 50, 90)), ("uniform", "uint64", "zipf", (0,)),
    ("dense", "int32", "hit", (50,)), ("clustered", "int64", "hit", (90,)),
    ("unit", "float32", "hit", (90,)), ("unit", "float64", "hit", (90,)),
)  # fmt: skip
FILLS = (0.5, 0.8, 0.85, 0.9, 0.95)


@keyvalue.cases
def cases(scale: str) -> Iterator[Case]:
    """Key types and miss rates against the clock, loads to fill, lines to count, and the published table of 550 million entries."""
    n, queries = ENTRIES[scale], QUERIES[scale]
    for distribution, dtype, popularity, misses in SPEED:
        for miss in misses:
            what = {"distribution": distribution, "dtype": dtype, "n": n, "queries": queries, "miss": miss / 100, "popularity": popularity}
            kinds = {"speed", "in-scale", distribution, dtype, f"miss-{miss}"}
            yield Case(f"{popularity if popularity == 'zipf' else distribution}-{dtype}@miss-{miss}", _make, what, frozenset(kinds))
    for miss in (0, 50, 90):
        both = {"distribution": "unit", "n": n, "queries": queries // 2, "miss": miss / 100}
        yield Case(f"floats@miss-{miss}", _make_floats, both, _FLOATS | {f"miss-{miss}"})
    for load in FILLS:
        for distribution in ("uniform", "dense", "clustered"):
            what = {"distribution": distribution, "dtype": "uint32", "n": n, "load": load}
            yield Case(f"fill-{load}-{distribution}", _make_keys, what, frozenset({"fill", f"load-{load}", distribution}))
    for load in (0.5, 0.8):
        for miss in (0, 100):
            what = {"distribution": "uniform", "dtype": "uint32", "n": n, "queries": queries, "miss": miss / 100, "load": load}
            yield Case(f"lines-{load}@miss-{miss}", _make, what, frozenset({"lines", f"miss-{miss}"}))
    what = {"distribution": "uniform", "dtype": "uint32", "n": FULL_SIZE if scale == "large" else 0, "queries": 8_000_000, "miss": 0.9}
    yield Case("published-size@miss-90", _make, what, frozenset({"speed", "full-size", "miss-90"}))


@keyvalue.read
def read(
    path: Path,
    *,
    column: str = "",
    values: str = "",
    queries: str = "",
    miss: tuple[float, ...] = (0.0, 0.5, 0.9),
    load: float = LOAD,
) -> Iterator[Case]:
    """A column of keys (.npy, .parquet, .arrow, .csv).

    `column` names the keys (the first one otherwise), `values` the column of values (row numbers otherwise), `queries` a file of queries
    in the order in which they come; without it, queries are drawn from the keys with these miss rates.
    """
    if not 0 < load <= 0.97:
        raise InputError(f"found {load}; expected above 0 and at most 0.97", where="--load")
    if any(not 0 <= share <= 1 for share in miss) or not miss:
        raise InputError(f"found {list(miss)}; expected shares from 0 to 1", where="--miss")
    how: dict[str, Any] = {"column": column, "values": values, "queries": queries, "load": load}
    # Read whole now: what is wrong with a file is said before anything is run or written.
    _file(path, path.stat().st_mtime_ns, column, values, queries)
    kinds = frozenset({"speed", "file"})
    if queries:
        yield Case(path.name, _load, {**how, "miss": None}, kinds, source=path)
        return
    for share in miss:
        yield Case(f"{path.name}@miss-{100 * share:g}", _load, {**how, "miss": share}, kinds, source=path)


@keyvalue.run
def run(technique: Map, case: Case) -> dict[str, float]:
    """Builds and asks against the clock, or fills, or counts lines, as the case says."""
    load = float(case.parameters.get("load", LOAD))
    if "fill" in case.kinds:
        return {"insert_failure_rate": technique.failure_rate(case.workload, load)}
    if "full-size" in case.kinds:
        _worth_trying(technique, case)
    if "floats" in case.kinds:
        single, double = case.workload
        speeds = [_timed(_built(technique, work, load), work) for work in (single, double)]
        return {"float32_over_float64": speeds[0] / speeds[1]}
    work: Work = case.workload
    if "lines" in case.kinds:
        return {"lines_per_lookup": _lines(technique, work, load)}
    _compile(technique, work.keys.dtype.name, work.values.dtype.name)
    start = time.perf_counter()
    table = technique.build(work.keys, work.values, load)
    built = time.perf_counter() - start
    n = max(1, len(work.keys))
    return {"lookups_per_s": _timed(table, work), "inserts_per_s": n / built, "bytes_per_key": table.nbytes / n}


def _built(technique: Map, work: Work, load: float) -> Any:
    _compile(technique, work.keys.dtype.name, work.values.dtype.name)
    return technique.build(work.keys, work.values, load)


def _timed(table: Any, work: Work) -> float:
    """Lookups a second: the median of five passes, of three once they took a second."""
    import numpy as np

    seconds: list[float] = []
    while len(seconds) < PASSES and not (len(seconds) >= FEWER_PASSES and sum(seconds) > ENOUGH_SECONDS):
        start = time.perf_counter()
        table.get_many(work.queries)
        seconds.append(time.perf_counter() - start)
    return len(work.queries) / float(np.median(seconds))


def _lines(technique: Map, work: Work, load: float) -> float:
    count: Callable[[np.ndarray], float] | None = getattr(technique.build(work.keys[:1], work.values[:1], load), "mean_lines", None)
    if count is None:
        raise NotForThisCase("its memory accesses cannot be counted from here")
    return float(technique.build(work.keys, work.values, load).mean_lines(work.queries))  # type: ignore[attr-defined]


def _worth_trying(technique: Map, case: Case) -> None:
    n = int(case.parameters["n"])
    if not n:
        raise NotForThisCase("550 million entries are for --scale large")
    need, free = n * (technique.bytes_per_entry + 12), free_bytes()
    if need > free:
        raise NotForThisCase(f"needs about {need / 2**30:.0f} GiB for {n} entries, and {free / 2**30:.0f} GiB are free")


def free_bytes() -> float:
    """Bytes of memory that could be taken now."""
    import os

    try:
        with open("/proc/meminfo") as file:
            return next(1024.0 * int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


@functools.lru_cache(maxsize=128)
def _compile(technique: Map, keys: str, values: str) -> None:
    """Lets Numba compile for these widths on three keys, so that the clock sees work only."""
    import numpy as np

    few = np.array([1, 2, 3], keys)
    technique.build(few, few.astype(values), LOAD).get_many(few)


@keyvalue.plots
def plots(result: Result) -> Sequence[Any]:
    """Lookups a second over the miss rate for each key type, and failures over the load for each distribution."""
    from armillary.figures import panels

    figures = []
    for prefix, metric, title, x in (
        ("uniform-", "lookups_per_s", "Lookups a second over the miss rate, by key type", "misses, %"),
        ("fill-", "insert_failure_rate", "Share of insertions without a free candidate, by load", "load"),
    ):
        names = [name for name in result.cases if name.startswith(prefix)]
        lines: dict[str, dict[str, list[tuple[float | str, float]]]] = {}
        for technique in result.techniques:
            medians = result.medians(technique, metric)
            for name in names:
                if name in medians:
                    panel, point = _panel(name)
                    lines.setdefault(panel, {}).setdefault(technique, []).append((point, medians[name]))
        if lines:
            figures.append(panels(lines, title, x, metric, log_y=prefix == "uniform-"))
    return figures


def _panel(name: str) -> tuple[str, float]:
    if name.startswith("fill-"):
        _, load, distribution = name.split("-")
        return distribution, float(load)
    kind, _, miss = name.partition("@miss-")
    return kind, float(miss)


def _make(case: Case, rng: np.random.Generator) -> Work:
    from .workload import make_work

    p = case.parameters
    return make_work(p["distribution"], p["dtype"], p["n"], p["queries"], p["miss"], rng, popularity=p.get("popularity", "hit"))


def _make_floats(case: Case, rng: np.random.Generator) -> tuple[Work, Work]:
    from .workload import make_work

    p = case.parameters
    n = min(p["n"], 4_000_000)  # float32 has 2^24 evenly spaced values in [0, 1)
    single, double = (make_work("unit", dtype, n, p["queries"], p["miss"], rng) for dtype in ("float32", "float64"))
    return single, double


def _make_keys(case: Case, rng: np.random.Generator) -> np.ndarray:
    from .keys import bits_of
    from .workload import distinct_keys

    return rng.permutation(bits_of(distinct_keys(case.parameters["distribution"], case.parameters["dtype"], case.parameters["n"], rng)))


def _load(case: Case, rng: np.random.Generator) -> Work:
    assert case.source is not None
    p = case.parameters
    keys, values, queries = _file(case.source, case.source.stat().st_mtime_ns, p["column"], p["values"], p["queries"])
    from .workload import own_queries, own_work

    asked = own_queries(keys, p["miss"], max(QUERIES["small"], min(len(keys), QUERIES["large"])), rng) if queries is None else queries
    return own_work(keys, values, asked)


@functools.lru_cache(maxsize=2)
def _file(path: Path, changed_ns: int, column: str, values: str, queries: str) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    from .keys import as_keys
    from .workload import read_column, read_values

    keys = read_column(path, column)
    if not len(keys):
        raise InputError("found no rows; expected keys", where=str(path))
    asked = None
    if queries:
        other = Path(queries)
        if not other.exists():
            raise InputError("no such file", where=queries)
        asked = as_keys(read_column(other), keys.dtype, queries)
    return keys, read_values(path, values) if values else None, asked
