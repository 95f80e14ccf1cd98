"""Which eviction policy misses least on this trace, at this cache size, and what does each decision cost?"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Case, Metric
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from armillary.study import Result

    from .policy import CacheOutcome, Policy
    from .workload import Trace

eviction = Arena(
    "storage/eviction",
    question="Which eviction policy misses least on this trace, at this cache size, and what does each decision cost?",
    metrics=[
        Metric("miss_ratio", better="lower", kind="simulated", doc="lookups that did not find their object, per lookup; warm-up counts"),
        Metric("byte_miss_ratio", better="lower", kind="simulated", on=frozenset({"bytes"}), doc="bytes missed per byte asked for"),
        Metric("miss_reduction", better="higher", kind="simulated", scale="difference", doc="share of FIFO's misses that are avoided"),
        Metric("moves_per_request", better="lower", kind="simulated", doc="queue insertions, reinsertions, relinkings: locks and writes"),
        Metric(
            "demotion_precision",
            better="higher",
            kind="simulated",
            scale="difference",
            doc="evictions of never-hit objects that are not asked for in the next capacity/miss_ratio requests; 1 if there is none",
        ),
        Metric("demotion_age", unit="requests", better=None, kind="simulated", doc="mean requests from insertion to such an eviction"),
        Metric("requests_per_s", unit="1/s", better="higher", kind="measured", doc="replayed on one thread, ids dense already"),
        Metric("metadata_bytes_per_object", unit="B", better="lower", kind="modelled", doc="tables and queues of this implementation"),
    ],
    techniques={
        "fifo": ".fifo:Fifo",
        "lru": ".lru:Lru",
        "clock": ".clock:Clock",
        "random": ".random:Random",
        "lfu": ".lfu:Lfu",
        "slru": ".slru:Slru",
        "2q": ".two_q:TwoQ",
        "lirs": ".lirs:Lirs",
        "arc": ".arc:Arc",
        "w-tinylfu": ".w_tinylfu:WTinyLfu",
        "sieve": ".sieve:Sieve",
        "s3-fifo": ".s3_fifo:S3Fifo",
        "fifo-mep": ".fifo_mep:FifoMep",
        "belady": ".belady:Belady",
    },
    papers={"fifo-mep": "fifo-mep"},
    baseline="s3-fifo",
    tradeoff=("miss_ratio", "requests_per_s"),
    uses=("armillary.storage.queue", "armillary.storage.idmap"),
)

#: Cache size as a share of the distinct objects (or of their bytes).
SHARES = {"small": 0.001, "medium": 0.01, "large": 0.1}
LEAST_OBJECTS = 50
TRACES = ("zipf-0.8", "zipf-1.0", "cdn", "block", "scan-mix", "burst-short", "burst-medium", "burst-long", "shift")
REQUESTS = {"tiny": 20_000, "small": 1_000_000, "large": 100_000_000}


@eviction.cases
def cases(scale: str) -> Iterator[Case]:
    """Nine seeded mixtures, each at three cache sizes; every object counts one."""
    for trace in TRACES:
        for size, share in SHARES.items():
            kinds = {"objects", size, trace.partition("-")[0], trace}
            yield Case(f"{trace}@{size}", _generate, {"trace": trace, "requests": REQUESTS[scale], "share": share}, frozenset(kinds))


@eviction.read
def read(
    path: Path,
    *,
    format: str = "auto",
    columns: str = "",
    delimiter: str = "",
    header: str = "auto",
    block: int = 4096,
    sizes: tuple[float, ...] = tuple(SHARES.values()),
    count: Literal["objects", "bytes"] = "objects",
) -> Iterator[Case]:
    """A trace file at several cache sizes.

    `sizes` below 1 are shares of the distinct objects (of their bytes, with `count="bytes"`), others objects (bytes).
    """
    how: dict[str, Any] = {"format": format, "columns": columns, "delimiter": delimiter, "header": header, "block": block, "count": count}
    if not sizes or not all(0 < size < 2**62 for size in sizes):
        raise InputError(f"found {list(sizes)}; expected shares below 1, or numbers of {count}", where="--sizes")
    # Read whole now: what is wrong with the file is said before anything is run or written.
    _file(path, path.stat().st_mtime_ns, **how)
    for size in sizes:
        kinds = {"file", count, *(name for name, share in SHARES.items() if share == size)}
        yield Case(f"{path.name}@{size:.10g}", _load, {**how, "path": str(path), "share": size}, frozenset(kinds), source=path)


@eviction.run
def run(policy: Policy, case: Case) -> dict[str, float]:
    """Replays the trace twice: once against the clock, once to see every eviction."""
    trace: Trace = case.workload
    capacity = _capacity(trace, case)
    sized = trace.sizes is not None
    _compile(policy, sized)
    start = time.perf_counter()
    policy.simulate(trace, capacity, log=False)
    seconds = time.perf_counter() - start
    outcome = policy.simulate(trace, capacity, log=True)
    fifo = _fifo_misses(case)
    precision, age = demotion(trace, outcome)
    metrics = {
        "miss_ratio": outcome.miss_ratio,
        "miss_reduction": (fifo - outcome.misses) / fifo if fifo else 0.0,
        "moves_per_request": outcome.moves / max(1, len(trace)),
        "demotion_precision": precision,
        "demotion_age": age,
        "requests_per_s": len(trace) / seconds,
        "metadata_bytes_per_object": policy.metadata_bytes_per_object(min(capacity, 100_000) if not sized else 1000),
    }
    return {**metrics, "byte_miss_ratio": byte_miss_ratio(trace, outcome)} if sized else metrics


def demotion(trace: Trace, outcome: CacheOutcome) -> tuple[float, float]:
    """(precision, mean age in requests) of the evictions of objects that were never hit."""
    evictions = outcome.evictions
    assert evictions is not None
    unused = evictions.never_hit
    inserted, evicted = evictions.inserted[unused], evictions.evicted[unused]
    if not len(inserted):
        return 1.0, 0.0
    again = trace.next_access()[inserted]
    far = (again >= len(trace)) | (again - evicted > outcome.capacity / max(outcome.miss_ratio, 1e-300))
    return float(far.mean()), float((evicted - inserted).mean())


def byte_miss_ratio(trace: Trace, outcome: CacheOutcome) -> float:
    """Bytes of lookups that missed per byte looked up."""
    assert trace.sizes is not None
    lookups = slice(None) if trace.operations is None else trace.operations == 0
    asked = trace.sizes[lookups]
    total = int(asked.sum())
    return float(asked[~outcome.hits[lookups]].sum() / total) if total else 0.0


@eviction.plots
def plots(result: Result) -> Sequence[Any]:
    """Miss ratio over cache size, one panel a trace."""
    from armillary.figures import panels

    groups: dict[str, dict[float, str]] = {}
    for name, facts in result.cases.items():
        groups.setdefault(name.rpartition("@")[0], {})[facts["parameters"]["share"]] = name
    if all(len(group) < 2 for group in groups.values()):
        return []
    medians = {technique: result.medians(technique, "miss_ratio") for technique in result.techniques}
    lines = {
        trace: {t: [(share, m[case]) for share, case in sorted(group.items()) if case in m] for t, m in medians.items()}
        for trace, group in groups.items()
    }
    return [panels(lines, "Miss ratio over cache size, by trace", "share of distinct objects", "miss ratio", log_x=True)]


def _generate(case: Case, rng: np.random.Generator) -> Trace:
    from .workload import built_in

    return built_in(case.parameters["trace"], rng, case.parameters["requests"])


def _load(case: Case, rng: np.random.Generator) -> Trace:
    assert case.source is not None
    return _file(case.source, case.source.stat().st_mtime_ns, **{k: v for k, v in case.parameters.items() if k not in ("path", "share")})


@functools.lru_cache(maxsize=2)
def _file(path: Path, changed_ns: int, *, count: str, **how: Any) -> Trace:
    """A trace file, read once for all cache sizes."""
    import dataclasses

    from .readers import open_trace

    trace = open_trace(path, **how).load()
    if count == "objects":
        return dataclasses.replace(trace, sizes=None)
    if trace.sizes is None:
        raise InputError("found no sizes; expected a trace that has them, for --count bytes", where=str(path))
    return trace


def _capacity(trace: Trace, case: Case) -> int:
    """The cache size in objects or bytes; shares give at least 50 objects (of mean size)."""
    share = float(case.parameters["share"])
    if share >= 1:
        return int(share)
    if trace.sizes is None:
        return max(LEAST_OBJECTS, int(share * trace.distinct))
    import numpy as np

    # Of an object whose size changes, the first size counts.
    _, first = np.unique(trace.objects, return_index=True)
    total = int(trace.sizes[first].sum())
    return max(LEAST_OBJECTS * total // max(1, trace.distinct), int(share * total), 1)


#: FIFO's misses on the last case, which every technique's reduction is taken from.
_FIFO: dict[tuple[str, int, int], int] = {}


def _fifo_misses(case: Case) -> int:
    from .fifo import Fifo

    key = (case.digest, case.seed, case.repeat)
    if key not in _FIFO:
        _FIFO.clear()
        _FIFO[key] = Fifo().simulate(case.workload, _capacity(case.workload, case), log=False).misses
    return _FIFO[key]


@functools.lru_cache(maxsize=64)
def _compile(policy: Any, sized: bool) -> None:
    """Lets Numba compile the policy's kernel on a trace of three requests, so that the clock sees requests only."""
    import numpy as np

    from .workload import from_ids

    ids = np.array([1, 2, 1])
    policy.simulate(from_ids(ids, np.ones(3, np.int64) if sized else None), 2)
