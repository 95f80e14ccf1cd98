"""Which eviction policy misses least on this trace, at this cache size, and what does each decision cost?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Case, Metric, Result, parameter
from armillary.errors import InputError
from armillary.timing import Stopwatch

if TYPE_CHECKING:
    import numpy as np

    from .simulation.policy import CacheOutcome, Policy
    from .workload import Trace

eviction = Arena(
    "storage/eviction",
    question="Which eviction policy misses least on this trace, at this cache size, and what does each decision cost?",
    metrics=[
        Metric("miss_ratio", better="lower", kind="simulated", doc="lookups that did not find their object, per lookup, with warm-up"),
        Metric("byte_miss_ratio", better="lower", kind="simulated", on=frozenset({"bytes"}), doc="bytes missed per byte asked for"),
        Metric("miss_reduction", better="higher", kind="simulated", scale="difference", doc="share of FIFO's misses that are avoided"),
        Metric("moves_per_request", better="lower", kind="simulated", doc="queue insertions, reinsertions and relinkings (locks)"),
        Metric("demotion_precision", better="higher", kind="simulated", scale="difference",
               doc="share of evicted never-hit objects that are not asked for while the cache fills once more; 1 without any"),
        Metric("demotion_age", unit="requests", better=None, kind="simulated", doc="mean requests from insertion to such an eviction"),
        Metric("requests_per_s", unit="1/s", better="higher", kind="measured", doc="requests per second on one thread, with dense ids"),
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
    telling=("zipf-1.0@medium", "cdn@medium", "block@medium", "burst-medium@medium", "shift@medium"),
)  # fmt: skip

#: Cache size as a share of the distinct objects (or of their bytes).
SHARES = {"small": 0.001, "medium": 0.01, "large": 0.1}
LEAST_OBJECTS = 50
TRACES = ("zipf-0.8", "zipf-1.0", "cdn", "block", "scan-mix", "burst-short", "burst-medium", "burst-long", "shift")
REQUESTS = {"tiny": 20_000, "small": 1_000_000, "large": 100_000_000}


@eviction.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields nine seeded mixtures, each at three cache sizes; every object counts one."""
    for trace in TRACES:
        for size, share in SHARES.items():
            kinds = {"objects", size, trace.partition("-")[0], trace}
            yield Case(f"{trace}@{size}", _generate, {"trace": trace, "requests": REQUESTS[scale], "share": share}, frozenset(kinds))


@dataclass(frozen=True)
class Reading:
    """How a trace file is read, and at which cache sizes it is replayed."""

    format: str = parameter("auto", "auto, oracleGeneral, csv, text, twitter, msr, alibaba or tencent")
    columns: str = parameter("", "what the columns of a CSV are: time=0,id=1,size=2, or names of the header as in id=lbn")
    delimiter: str = parameter("", "comma, tab, ; | or space; it is detected if empty")
    header: Literal["auto", "yes", "no"] = parameter("auto", "whether the first line names the columns")
    block: int = parameter(4096, "bytes of a block; block traces become one request per block", range=(512, 2**30))
    sizes: tuple[float, ...] = parameter(
        tuple(SHARES.values()), "cache sizes: below 1 shares of all objects or of their bytes, otherwise objects or bytes", range=(0, 2**62)
    )
    count: Literal["objects", "bytes"] = parameter("objects", "whether cache sizes count objects or bytes")

    def validate(self) -> None:
        """Refuses caches of size 0, which hold nothing."""
        if not self.sizes or 0 in self.sizes:
            raise InputError(f"found {list(self.sizes)}; expected shares below 1, or numbers of {self.count}", where="--sizes")


@eviction.read(Reading)
def read(path: Path, how: Reading) -> Trace:
    """Reads a trace in libCacheSim's binary format, in CSV with a column map, or in Twitter's, MSR's, Alibaba's or Tencent's format.

    The file may be compressed.
    """
    from .readers import open_trace

    given = {name: getattr(how, name) for name in ("format", "columns", "delimiter", "header", "block")}
    trace = open_trace(path, **given).load()
    if how.count == "objects":
        return replace(trace, sizes=None)
    if trace.sizes is None:
        raise InputError("found no sizes; expected a trace that has them, for --count bytes", where=str(path))
    return trace


@eviction.own_cases
def own_cases(trace: Trace, name: str, how: Reading) -> Iterator[Case]:
    """Makes one case per cache size."""
    for size in how.sizes:
        kinds = {"file", how.count, *(word for word, share in SHARES.items() if share == size)}
        yield Case(f"{name}@{size:.10g}", parameters={"share": size}, kinds=frozenset(kinds))


@eviction.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes eight requests for four objects as CSV."""
    file = folder / "trace.csv"
    file.write_text("time,id,size\n" + "".join(f"{t},{name},{100 + t}\n" for t, name in enumerate("abacabad")))
    return file, {"sizes": "2"}


@eviction.run
def run(policy: Policy, case: Case) -> dict[str, float]:
    """Replays the trace twice: once against the clock, once to see every eviction."""
    trace: Trace = case.workload
    capacity = _capacity(trace, case)
    sized = trace.sizes is not None
    with Stopwatch() as watch:
        policy.simulate(trace, capacity, log=False)
    outcome = policy.simulate(trace, capacity, log=True)
    fifo = case.once(_fifo_misses)
    precision, age = demotion(trace, outcome)
    metrics = {
        "miss_ratio": outcome.miss_ratio,
        "miss_reduction": (fifo - outcome.misses) / fifo if fifo else 0.0,
        "moves_per_request": outcome.moves / max(1, len(trace)),
        "demotion_precision": precision,
        "demotion_age": age,
        "requests_per_s": len(trace) / watch.seconds,
        "metadata_bytes_per_object": policy.metadata_bytes_per_object(min(capacity, 100_000) if not sized else 1000),
    }
    return {**metrics, "byte_miss_ratio": byte_miss_ratio(trace, outcome)} if sized else metrics


def demotion(trace: Trace, outcome: CacheOutcome) -> tuple[float, float]:
    """(precision, mean age in requests) of the evictions of objects that were never hit.

    An eviction was right if the object is not asked for in the requests in which misses fill the cache once more: capacity / miss_ratio
    where objects count, and capacity / (bytes missed per request) where bytes do.
    """
    evictions = outcome.evictions
    assert evictions is not None
    unused = evictions.never_hit
    inserted, evicted = evictions.inserted[unused], evictions.evicted[unused]
    if not len(inserted):
        return 1.0, 0.0
    again = trace.next_access()[inserted]
    filling = outcome.miss_ratio if trace.sizes is None else outcome.miss_ratio * _missed_size(trace, outcome)
    far = (again >= len(trace)) | (again - evicted > outcome.capacity / max(filling, 1e-300))
    return float(far.mean()), float((evicted - inserted).mean())


def _missed_size(trace: Trace, outcome: CacheOutcome) -> float:
    """Mean bytes of the objects that lookups missed."""
    assert trace.sizes is not None
    lookups = slice(None) if trace.operations is None else trace.operations == 0
    missed = trace.sizes[lookups][~outcome.hits[lookups]]
    return float(missed.mean()) if len(missed) else 0.0


def byte_miss_ratio(trace: Trace, outcome: CacheOutcome) -> float:
    """Bytes of lookups that missed per byte looked up."""
    assert trace.sizes is not None
    lookups = slice(None) if trace.operations is None else trace.operations == 0
    asked = trace.sizes[lookups]
    total = int(asked.sum())
    return float(asked[~outcome.hits[lookups]].sum() / total) if total else 0.0


@eviction.plots
def plots(result: Result) -> Sequence[Any]:
    """Plots the miss ratio over the cache size, one panel per trace."""

    def place(case: str, facts: Mapping[str, Any]) -> tuple[str, float]:
        return case.rpartition("@")[0], facts["parameters"]["share"]

    title = "Miss ratio over cache size, by trace"
    return result.panels(title, "miss_ratio", place, x="share of distinct objects", y="miss ratio", log_x=True, least_points=2)


def _generate(case: Case, rng: np.random.Generator) -> Trace:
    from .workload import built_in

    return built_in(case.parameters["trace"], rng, case.parameters["requests"])


def _capacity(trace: Trace, case: Case) -> int:
    """The cache size in objects or bytes; shares give at least 50 objects (of mean size)."""
    share = float(case.parameters["share"])
    if share >= 1:
        return int(share)
    if trace.sizes is None:
        return max(LEAST_OBJECTS, int(share * trace.distinct))
    import numpy as np

    # If the size of an object changes, the first size counts.
    _, first = np.unique(trace.objects, return_index=True)
    total = int(trace.sizes[first].sum())
    return max(LEAST_OBJECTS * total // max(1, trace.distinct), int(share * total), 1)


def _fifo_misses(case: Case) -> int:
    """FIFO's misses, from which every technique's reduction is taken."""
    from .fifo import Fifo

    return Fifo().simulate(case.workload, _capacity(case.workload, case), log=False).misses


@eviction.warm_up
def warm_up(policy: Policy, case: Case) -> None:
    """Replays three requests, so that the clock sees requests and no compilation."""
    import numpy as np

    from .workload import from_ids

    policy.simulate(from_ids(np.array([1, 2, 1]), None if case.workload.sizes is None else np.ones(3, np.int64)), 2)
