"""On a byte-addressable CXL device that works in pages inside, which metadata engine serves creates, stats and listings fastest?"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Constant, Metric
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from armillary.study import Result

    from .engine import MetadataEngine
    from .workload import Work

_STATS, _LISTS, _CREATES = (frozenset({name}) for name in ("stats", "lists", "creates"))

metadata = Arena(
    "storage/metadata",
    question="Which metadata engine serves creates, stats and listings fastest on a byte-addressable CXL device with pages inside?",
    metrics=[
        Metric("ops_per_s", unit="1/s", better="higher", kind="simulated", doc="24 × 16 clients in a closed loop, without the first tenth"),
        Metric("latency_us", unit="µs", better="lower", kind="simulated", doc="mean, with 5 µs of network each way"),
        Metric("latency_p99_us", unit="µs", better="lower", kind="simulated"),
        Metric("stat_us", unit="µs", better="lower", kind="simulated", on=_STATS, doc="mean latency of stat and open"),
        Metric("listing_us", unit="µs", better="lower", kind="simulated", on=_LISTS, doc="mean latency of readdirplus"),
        Metric("create_us", unit="µs", better="lower", kind="simulated", on=_CREATES, doc="mean latency of create"),
        Metric("granules_per_op", better="lower", kind="measured", steady=True,
               doc="distinct granules that an operation touches on the real layout"),
        Metric("device_hit_ratio", better="higher", kind="simulated", scale="difference", doc="granules found in the device's cache"),
        Metric("write_amplification", better="lower", kind="measured", steady=True, on=_CREATES,
               doc="device bytes written per byte of names and attributes changed"),
        Metric("cpu_ns_per_op", unit="ns", better="lower", kind="measured", doc="our own engine's code, on one thread"),
    ],
    techniques={
        "ext4": ".ext4:Ext4",
        "nova": ".nova:Nova",
        "kv": ".kv:Kv",
        "mdsec": ".mdsec:Mdsec",
    },
    papers={"mdsec": "mdsec"},
    baseline="nova",
    tradeoff=("granules_per_op", "ops_per_s"),
    constants=(
        Constant("device", "4 KiB granules; 0.7 µs first line, 0.02 µs further ones; 25 µs miss, 16 fills; 1.5 GB/s back; 0.3 µs fence", "",
                 "order of magnitude of public characterisations of DRAM-cached flash modules"),
        Constant("software", "ext4 4.5 µs and 0.8 µs under its commit lock, nova and mdsec 1.6 µs, kv 2.5 µs", "", "ours"),
        Constant("network", "5", "µs each way", "ours"),
    ),
    uses=("armillary.storage.queue", "armillary.storage.idmap"),
)  # fmt: skip

#: (files, timed operations) of a case.
SIZES = {"tiny": (2_000, 6_000), "small": (100_000, 500_000), "large": (10_000_000, 50_000_000)}
#: Bytes that a file's metadata is reckoned with when the device's cache is sized: a record and its share of a header.
BYTES_A_FILE = 288
CACHE = 1 / 8
HANDLERS = 16
_HAS = {"mdtest": _STATS | _LISTS | _CREATES, "loader": _STATS | _LISTS, "checkpoint": _CREATES, "mixed": _STATS | _LISTS | _CREATES}


@metadata.cases
def cases(scale: str) -> Iterator[Case]:
    """Four kinds of work on the hybrid device, `mixed` on other granules and caches, and on a module without flash."""
    files, ops = SIZES[scale]
    for name in ("mixed", "loader", "mdtest", "checkpoint"):
        kinds = {name, *_HAS[name], *(("claim",) if name != "checkpoint" else ())}
        yield _case(name, name, files, ops, kinds)
    for granule in (256, 512, 16384):
        yield _case(f"mixed@granule-{granule}", "mixed", files, ops // 2, {"sensitivity", *_HAS["mixed"]}, granule=granule)
    for part in (32, 2):
        yield _case(f"mixed@cache-1/{part}", "mixed", files, ops // 2, {"sensitivity", *_HAS["mixed"]}, cache=1 / part)
    yield _case("mixed@cxl-dram", "mixed", files, ops // 2, {"sensitivity", *_HAS["mixed"]}, device="cxl-dram", granule=64)


def _case(title: str, name: str, files: int, ops: int, kinds: set[str], *, granule: int = 4096, cache: float = CACHE,
          device: str = "cxl-hybrid") -> Case:  # fmt: skip
    how = {"work": name, "files": files, "ops": ops, "granule": granule, "cache": cache, "device": device}
    return Case(title, _generate, how, frozenset(kinds))


@metadata.read
def read(
    path: Path, *, granule: int = 4096, cache: float = CACHE, device: str = "cxl-hybrid", ops: int = 100_000, lenient: bool = False,
) -> Iterator[Case]:  # fmt: skip
    """A folder, `find -printf` output (.txt, .tsv), a trace of operations (.csv, .parquet), or an mdtest command line (.mdtest).

    A tree without operations gets `ops` of the mixture: stats, opens, listings, creates, unlinks. `lenient` counts operations on missing
    paths instead of
    refusing them. `cache` is the device's cache as a share of the metadata.
    """
    if not 0 < cache <= 64:
        raise InputError(f"found {cache:g}; expected a share above 0", where="--cache")
    if granule < 64 or granule > 16384 or granule & (granule - 1):
        raise InputError(f"found {granule}; expected a power of two from 64 to 16384", where="--granule")
    if not 1 <= ops <= 100_000_000:
        raise InputError(f"found {ops}; expected 1 to 100,000,000", where="--ops")
    from .device import device as device_named

    device_named(device)
    how: dict[str, Any] = {"granule": granule, "cache": cache, "device": device, "ops": ops, "lenient": lenient}
    # Read whole now: what is wrong with a file is said before anything is run or written.
    work = _file(path, _changed(path), ops, lenient)
    kinds = {"file"}
    done = set(work.ops[work.loaded :, 0].tolist())
    kinds |= {kind for kind, wanted in (("stats", {1, 2}), ("lists", {8}), ("creates", {3})) if done & wanted}
    yield Case(path.name, _load, {**how, "path": str(path)}, frozenset(kinds), source=path if path.is_file() else None)


@metadata.run
def run(technique: MetadataEngine, case: Case) -> dict[str, float]:
    """Loads the tree, then sends the operations through the engine, the device and the queues."""
    import numpy as np

    from .device import device as device_named
    from .simulation import simulate
    from .workload import CREATE, OPEN, READDIRPLUS, STAT

    p = case.parameters
    work: Work = case.workload
    _compiled(technique)
    named = device_named(p["device"])
    device = named.sized(int(p["cache"] * BYTES_A_FILE * work.files), p["granule"])
    engine = technique.start(work, int(p["cache"] * BYTES_A_FILE * work.files), granule=device.granule)
    engine.load()
    found = simulate(engine, work, device, handlers=getattr(technique, "handlers", HANDLERS))
    latency = found.latency_us
    metrics = {
        "ops_per_s": found.ops_per_s,
        "latency_us": float(latency.mean()) if len(latency) else 0.0,
        "latency_p99_us": float(np.quantile(latency, 0.99)) if len(latency) else 0.0,
        "granules_per_op": found.granules_per_op,
        "device_hit_ratio": found.hit_ratio,
        "cpu_ns_per_op": 1e9 * found.engine_s / max(1, len(work.ops) - work.loaded),
    }
    for metric, kind, of in (("stat_us", _STATS, (STAT, OPEN)), ("listing_us", _LISTS, (READDIRPLUS,)), ("create_us", _CREATES, (CREATE,))):
        if kind <= case.kinds:
            chosen = latency[np.isin(found.kind, of)]
            metrics[metric] = float(chosen.mean()) if len(chosen) else 0.0
    if case.kinds >= _CREATES:
        metrics["write_amplification"] = found.device_bytes_written / max(1, work.bytes_changed)
    return metrics


@metadata.plots
def plots(result: Result) -> Sequence[Any]:
    """Operations a second over the granule and over the cache, on `mixed`."""
    from armillary.figures import panels

    places = {"mixed": ("granule", 4096.0), "granule": ("granule", 0.0), "cache": ("cache", 0.0)}
    lines: dict[str, dict[str, list[tuple[float | str, float]]]] = {}
    for technique in result.techniques:
        for case, value in result.medians(technique, "ops_per_s").items():
            name, _, rest = case.partition("@")
            if name != "mixed" or rest.startswith("cxl"):
                continue
            what, _, number = rest.partition("-")
            if not rest:
                lines.setdefault("cache", {}).setdefault(technique, []).append((CACHE, value))
            panel, default = places[what or "mixed"]
            x = default if not rest else 1 / float(number[2:]) if what == "cache" else float(number)
            lines.setdefault(panel, {}).setdefault(technique, []).append((x, value))
    for of_panel in lines.values():
        for points in of_panel.values():
            points.sort()
    if not lines or all(len(points) < 2 for panel in lines.values() for points in panel.values()):
        return []
    return [panels(lines, "Operations a second on the mixture", "granule, B; cache, share of the metadata", "1/s", log_x=True)]


def _generate(case: Case, rng: np.random.Generator) -> Work:
    from .generate import generate

    p = case.parameters
    return generate(p["work"], rng, p["files"], p["ops"])


def _load(case: Case, rng: np.random.Generator) -> Work:
    path = Path(case.parameters["path"])
    return _file(path, _changed(path), case.parameters["ops"], case.parameters["lenient"])


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns


@functools.lru_cache(maxsize=2)
def _file(path: Path, changed_ns: int, ops: int, lenient: bool) -> Work:
    from .readers import read_work

    return read_work(path, ops=ops, lenient=lenient)


@functools.lru_cache
def _compiled(technique: MetadataEngine) -> None:
    """Compiles outside the clock."""
    import numpy as np

    from .device import device
    from .generate import generate
    from .simulation import simulate

    few = generate("mixed", np.random.default_rng(0), 300, 400)
    engine = technique.start(few, 1 << 16)
    engine.load()
    simulate(engine, few, device().sized(1 << 16), handlers=getattr(technique, "handlers", HANDLERS))
