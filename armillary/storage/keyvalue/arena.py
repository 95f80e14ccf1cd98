"""Which in-memory hash table answers most lookups per second for my key type, table size and miss rate, on this processor?"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Metric, NotForThisCase, Result, parameter
from armillary.errors import InputError
from armillary.memory import too_much
from armillary.timing import Stopwatch
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from armillary.result import Place

    from .tables.map import Map
    from .workload import Work

_SPEED, _FILL, _LINES, _FLOATS = (frozenset({name}) for name in ("speed", "fill", "lines", "floats"))

keyvalue = Arena(
    "storage/keyvalue",
    question="Which in-memory hash table answers most lookups per second for my key type, table size and miss rate, on this CPU?",
    metrics=[
        Metric("lookups_per_s", unit="1/s", better="higher", kind="measured", on=_SPEED, doc="median pass over shuffled queries"),
        Metric("inserts_per_s", unit="1/s", better="higher", kind="measured", on=_SPEED, doc="a build from nothing, in random order"),
        Metric("bytes_per_key", unit="B", better="lower", kind="measured", steady=True, on=_SPEED,
               doc="keys, values and whatever the table adds"),
        Metric("insert_failure_rate", better="lower", kind="measured", steady=True, scale="difference", on=_FILL,
               doc="keys with no free candidate slot, before any stash, displacement or growth"),
        Metric("lines_per_lookup", better="lower", kind="measured", steady=True, on=_LINES,
               doc="distinct 64-byte lines, a hit's value included, as an instrumented twin of the lookup counts them"),
        Metric("float32_over_float64", better="higher", kind="measured", on=_FLOATS, doc="lookups_per_s of float32 over float64 keys"),
    ],
    techniques={
        "simd3": ".simd3:Simd3",
        "one-hash": ".one_hash:OneHash",
        "two-hash": ".two_hash:TwoHash",
        "three-hash": ".three_hash:ThreeHash",
        "three-regions": ".three_regions:ThreeRegions",
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
    telling=("uniform-uint32@miss-0", "uniform-uint64@miss-90", "fill-0.9-uniform", "lines-0.8@miss-100"),
)  # fmt: skip

ENTRIES = {"tiny": 20_000, "small": 1_000_000, "large": 16_000_000}
QUERIES = {"tiny": 20_000, "small": 1_000_000, "large": 4_000_000}
FULL_SIZE = 550_000_000
#: Further sizes of tables that no cache holds, at the large scale.
LESS_THAN_FULL = (200_000_000, 300_000_000, 400_000_000)
LOAD = 0.8
PASSES, FEWER_PASSES, ENOUGH_SECONDS = 5, 3, 1.0
#: Distribution, key type, popularity and miss rates of the cases against the clock.
SPEED = (
    ("uniform", "uint32", "hit", (0, 50, 90)), ("uniform", "uint64", "hit", (0, 50, 90)), ("uniform", "uint64", "zipf", (0,)),
    ("dense", "int32", "hit", (50,)), ("clustered", "int64", "hit", (90,)),
    ("unit", "float32", "hit", (90,)), ("unit", "float64", "hit", (90,)),
)  # fmt: skip
FILLS = (0.5, 0.8, 0.85, 0.9, 0.95)
FILLED = (("uniform", "uint32"), ("dense", "uint32"), ("clustered", "uint32"), ("uniform", "uint64"))


@keyvalue.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields key types and miss rates against the clock, loads to fill, lines to count, and the published table of 550 million entries."""
    n, queries = ENTRIES[scale], QUERIES[scale]
    for distribution, dtype, popularity, misses in SPEED:
        for miss in misses:
            what = {"distribution": distribution, "dtype": dtype, "n": n, "queries": queries, "miss": miss / 100, "popularity": popularity}
            kinds = {"speed", "in-scale", distribution, dtype, f"miss-{miss}"}
            yield Case(f"{popularity if popularity == 'zipf' else distribution}-{dtype}@miss-{miss}", _make, what, frozenset(kinds))
    for miss in (0, 25, 50, 90):
        both = {"distribution": "unit", "n": n, "queries": queries // 2, "miss": miss / 100}
        yield Case(f"floats@miss-{miss}", _make_floats, both, _FLOATS | {f"miss-{miss}"})
    for load in FILLS:
        for distribution, dtype in FILLED:
            what = {"distribution": distribution, "dtype": dtype, "n": n, "load": load}
            name = f"fill-{load}-{distribution}" + ("" if dtype == "uint32" else f"-{dtype}")
            yield Case(name, _make_keys, what, frozenset({"fill", f"load-{load}", distribution, dtype}))
    for load in (0.5, 0.8):
        for miss in (0, 100):
            what = {"distribution": "uniform", "dtype": "uint32", "n": n, "queries": queries, "miss": miss / 100, "load": load}
            yield Case(f"lines-{load}@miss-{miss}", _make, what, frozenset({"lines", f"miss-{miss}"}))
    for entries in (FULL_SIZE, *LESS_THAN_FULL):
        size = entries if scale == "large" else 0
        what = {"distribution": "uniform", "dtype": "uint32", "n": size, "queries": 8_000_000, "miss": 0.9}
        name = "published-size@miss-90" if entries == FULL_SIZE else f"{entries // 1_000_000}-million@miss-90"
        yield Case(name, _make, what, frozenset({"speed", "full-size", "miss-90"}))


@dataclass(frozen=True)
class Reading:
    """Which columns of a file are keys and values, and what is asked."""

    column: str = parameter("", "the column of keys; the first one if empty")
    values: str = parameter("", "the column of values; row numbers if empty")
    queries: str = parameter("", "a file of queries in the order in which they come; without it they are drawn from the keys", file=True)
    miss: tuple[float, ...] = parameter((0.0, 0.5, 0.9), "shares of the drawn queries that miss", range=(0.0, 1.0))
    load: float = parameter(LOAD, "entries per slot at which tables are built", range=(0.01, 0.97))

    def validate(self) -> None:
        """Refuses a list without a miss rate."""
        if not self.miss:
            raise InputError("found none; expected shares from 0 to 1", where="--miss")


@keyvalue.read(Reading)
def read(path: Path, how: Reading) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Reads a column of keys (.npy, .parquet, .arrow, .csv), perhaps with values and a file of queries."""
    from .tables.keys import as_keys
    from .workload import read_column, read_values

    keys = read_column(path, how.column)
    if not len(keys):
        raise InputError("found no rows; expected keys", where=str(path))
    asked = None
    if how.queries:
        if not Path(how.queries).exists():
            raise InputError("no such file", where=how.queries)
        asked = as_keys(read_column(Path(how.queries)), keys.dtype, how.queries)
    return keys, read_values(path, how.values) if how.values else None, asked


@keyvalue.own_cases
def own_cases(loaded: tuple[np.ndarray, Any, np.ndarray | None], name: str, how: Reading) -> Iterator[Case]:
    """Yields one case for the queries of the file, or one per miss rate for drawn ones."""
    for share in how.miss if loaded[2] is None else (None,):
        label = name if share is None else f"{name}@miss-{100 * share:g}"
        yield Case(label, _own, {"miss": share, "load": how.load}, frozenset({"speed", "file"}))


@keyvalue.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes a hundred keys to a CSV file, and queries of which half miss."""
    keys, asked = folder / "keys.csv", folder / "queries.csv"
    keys.write_text("key\n" + "".join(f"{7 * i + 1}\n" for i in range(100)))
    asked.write_text("key\n" + "".join(f"{7 * (i // 2) + 1 + i % 2}\n" for i in range(200)))
    return keys, {"queries": str(asked)}


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
    with Stopwatch() as watch:
        table = technique.build(work.keys, work.values, load)
    n = max(1, len(work.keys))
    return {"lookups_per_s": _timed(table, work), "inserts_per_s": n / watch.seconds, "bytes_per_key": table.nbytes / n}


def _built(technique: Map, work: Work, load: float) -> Any:
    _compile(technique, work.keys.dtype.name, work.values.dtype.name)
    return technique.build(work.keys, work.values, load)


def _timed(table: Any, work: Work) -> float:
    """Measures lookups per second as the median of five passes, or of three once they took a second."""
    import numpy as np

    seconds: list[float] = []
    while len(seconds) < PASSES and not (len(seconds) >= FEWER_PASSES and sum(seconds) > ENOUGH_SECONDS):
        with Stopwatch() as watch:
            table.get_many(work.queries)
        seconds.append(watch.seconds)
    return len(work.queries) / float(np.median(seconds))


def _lines(technique: Map, work: Work, load: float) -> float:
    # A table of one key tells whether it can count at all.
    technique.build(work.keys[:1], work.values[:1], load).mean_lines(work.queries[:1])
    return technique.build(work.keys, work.values, load).mean_lines(work.queries)


def _worth_trying(technique: Map, case: Case) -> None:
    n = int(case.parameters["n"])
    if not n:
        raise NotForThisCase("hundreds of millions of entries are for --scale large")
    if said := too_much(round(n * (technique.bytes_per_entry + 12)), f"a table of {n:,} entries"):
        raise NotForThisCase(said)


@functools.lru_cache(maxsize=128)
def _compile(technique: Map, keys: str, values: str) -> None:
    """Lets Numba compile for these widths on three keys, so that the clock sees work only."""
    import numpy as np

    few = np.array([1, 2, 3], keys)
    technique.build(few, few.astype(values), LOAD).get_many(few)


@keyvalue.answer
def answer(result: Result) -> str:
    """Names the fastest map on the cases against the clock, how far ahead of the next it is, and the memory that it takes."""
    first = result.first_places("lookups_per_s")
    if not first:
        return "Nothing was run against the clock to the end."
    parts: list[str] = []
    for name in first:
        won = [case for case in result.cases if result.best(case, "lookups_per_s") == name]
        leads = {case: (second, result.ratio(case, "lookups_per_s", name, second) or 1.0)
                 for case in won if (second := result.second(case, "lookups_per_s"))}  # fmt: skip
        clear = [f"{case} ({ratio:.2g} times {second})" for case, (second, ratio) in leads.items() if ratio >= 1.05]
        close = [f"{case} (level with {second})" for case, (second, ratio) in leads.items() if ratio < 1.05]
        size = result.on(won[0], "bytes_per_key").get(name)
        taking = f", at {size:.3g} bytes per key," if size else ""
        parts.append(f"{name}{taking}{'' if parts else ' answers most lookups per second'} on {listed(clear + close or won, 4)}")
    return f"{'; '.join(parts)}."


@keyvalue.plots
def plots(result: Result) -> Sequence[Any]:
    """Plots lookups per second over the miss rate by key type, and failures over the load by distribution."""

    def of(prefix: str) -> Place:
        return lambda case, facts: _panel(case) if case.startswith(prefix) else None

    speed, failures = "Lookups per second over the miss rate, by key type", "Share of insertions without a free candidate, by load"
    return [
        *result.panels(speed, "lookups_per_s", of("uniform-"), x="misses, %", y="lookups_per_s", log_y=True),
        *result.panels(failures, "insert_failure_rate", of("fill-"), x="load", y="insert_failure_rate"),
    ]


def _panel(name: str) -> tuple[str, float]:
    if name.startswith("fill-"):
        _, load, distribution = name.split("-", 2)
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
    from .tables.keys import bits_of
    from .workload import distinct_keys

    return rng.permutation(bits_of(distinct_keys(case.parameters["distribution"], case.parameters["dtype"], case.parameters["n"], rng)))


def _own(case: Case, rng: np.random.Generator) -> Work:
    from .workload import own_queries, own_work

    keys, values, asked = case.loaded
    if asked is None:
        asked = own_queries(keys, case.parameters["miss"], max(QUERIES["small"], min(len(keys), QUERIES["large"])), rng)
    return own_work(keys, values, asked)
