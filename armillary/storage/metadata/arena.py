"""On a byte-addressable CXL device that works in pages inside, which metadata engine serves creates, stats and listings fastest?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Case, Constant, Metric, Result, parameter
from armillary.errors import InputError
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from .readers.mdtest import MdtestRun
    from .readers.trees import Tree
    from .simulation.engine import MetadataEngine
    from .workload import Work

_STATS, _LISTS, _CREATES = (frozenset({name}) for name in ("stats", "lists", "creates"))

metadata = Arena(
    "storage/metadata",
    question="Which metadata engine serves creates, stats and listings fastest on a byte-addressable CXL device with pages inside?",
    metrics=[
        Metric("ops_per_s", unit="1/s", better="higher", kind="simulated",
               doc="operations of 24 × 16 clients in a closed loop, without the first tenth"),
        Metric("latency_us", unit="µs", better="lower", kind="simulated", doc="mean latency, with 5 µs of network each way"),
        Metric("latency_p99_us", unit="µs", better="lower", kind="simulated", doc="99th percentile of the latency"),
        Metric("stat_us", unit="µs", better="lower", kind="simulated", on=_STATS, doc="mean latency of stat and open"),
        Metric("listing_us", unit="µs", better="lower", kind="simulated", on=_LISTS,
               doc="mean latency of readdirplus, in the first tenth if none comes later"),
        Metric("create_us", unit="µs", better="lower", kind="simulated", on=_CREATES, doc="mean latency of create"),
        Metric("granules_per_op", better="lower", kind="measured", steady=True,
               doc="distinct granules that an operation touches in the real layout"),
        Metric("device_hit_ratio", better="higher", kind="simulated", scale="difference",
               doc="share of granules that are found in the device's cache"),
        Metric("write_amplification", better="lower", kind="measured", steady=True, on=_CREATES,
               doc="bytes that the device writes per byte of names and attributes changed"),
        Metric("cpu_ns_per_op", unit="ns", better="lower", kind="measured", doc="CPU time of our own engine's code on one thread"),
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
        Constant("device", "4 KiB granules; 0.7 µs for the first line, 0.02 µs for each further one; 25 µs per miss, 16 fills at once; "
                 "1.5 GB/s write-back; 0.3 µs fence", "",
                 "ours, in the cluster preset cxl-hybrid: the order of magnitude of public characterisations of DRAM-cached flash"),
        Constant("software", "ext4 4.5 µs and 0.8 µs under its commit lock, nova and mdsec 1.6 µs, kv 2.5 µs", "", "ours"),
        Constant("network", "5", "µs each way", "ours"),
        Constant("handoff", "0.2", "µs from one handler to another", "ours"),
    ),
    # The values are simulated, and cases differ far more than two draws of one.
    repeats=2,
    telling=("mixed", "loader", "mdtest", "checkpoint"),
)  # fmt: skip

#: (files, timed operations) of a case.
SIZES = {"tiny": (2_000, 6_000), "small": (100_000, 500_000), "large": (10_000_000, 50_000_000)}
#: Bytes of metadata per file by which the device's cache is sized: a record and its share of a header.
BYTES_PER_FILE = 288
CACHE = 1 / 8
HANDLERS = 16
_HAS = {"mdtest": _STATS | _LISTS | _CREATES, "loader": _STATS | _LISTS, "checkpoint": _CREATES, "mixed": _STATS | _LISTS | _CREATES}
#: Trees of another shape for the work that the claims are made for: directories of hundreds of files, of a hundred, and a flat tree.
_SHAPES = {"mixed-wide": ("mixed", {"median": 400}), "loader-small": ("loader", {"most": 100}), "mdtest-flat": ("mdtest", {"depth": 1})}
#: Operations below which a drawn mixture may lack a kind.
_ENOUGH = 1000


@metadata.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields four kinds of work on the hybrid device, three of them on trees of two shapes, and the mixture on other devices."""
    files, ops = SIZES[scale]
    for name in ("mixed", "loader", "mdtest", "checkpoint"):
        yield _case(name, name, files, ops, {name, *_HAS[name], *(("claim",) if name != "checkpoint" else ())})
    for title, (name, shape) in _SHAPES.items():
        yield _case(title, name, files, ops, {name, "claim", *_HAS[name]}, shape=shape)
    for granule in (256, 512, 16384):
        yield _case(f"mixed@granule-{granule}", "mixed", files, ops // 2, {"sensitivity", *_HAS["mixed"]}, granule=granule)
    for part in (32, 2):
        yield _case(f"mixed@cache-1/{part}", "mixed", files, ops // 2, {"sensitivity", *_HAS["mixed"]}, cache=1 / part)
    yield _case("mixed@cxl-dram", "mixed", files, ops // 2, {"sensitivity", *_HAS["mixed"]}, device="cxl-dram", granule=64)


def _case(title: str, name: str, files: int, ops: int, kinds: set[str], *, granule: int = 4096, cache: float = CACHE,
          device: str = "cxl-hybrid", shape: dict[str, int] | None = None) -> Case:  # fmt: skip
    how = {"work": name, "files": files, "ops": ops, "granule": granule, "cache": cache, "device": device, "shape": shape or {}}
    return Case(title, _generate, how, frozenset(kinds))


@dataclass(frozen=True)
class Reading:
    """The device on which the operations run, and how many are drawn for a tree that has none."""

    granule: int = parameter(4096, "bytes of the device's granule", choices=[1 << bit for bit in range(6, 15)])
    cache: float = parameter(CACHE, "the device's cache as a share of the metadata", range=(0, 64))
    device: Literal["cxl-hybrid", "cxl-dram"] = parameter("cxl-hybrid", "flash behind a DRAM cache, or DRAM alone")
    ops: int = parameter(100_000, "operations of the mixture that are drawn for a tree", range=(1, 100_000_000))
    lenient: bool = parameter(False, "whether operations on missing paths are counted instead of refused")

    def validate(self) -> None:
        """Refuses a device without a cache."""
        if self.cache == 0:
            raise InputError("found 0; expected a share above 0", where="--cache")


@metadata.read(Reading, folders=True)
def read(path: Path, how: Reading) -> Work | Tree | MdtestRun:
    """Reads a folder, `find -printf` output (.txt, .tsv), a trace (.csv, .jsonl, .parquet), or an mdtest command line (.mdtest)."""
    from .readers.formats import read_source

    return read_source(path, lenient=how.lenient)


@metadata.own_cases
def own_cases(source: Work | Tree | MdtestRun, name: str, how: Reading) -> Iterator[Case]:
    """Yields one case, the operations on the chosen device; those that a tree lacks are drawn anew for each repeat."""
    from .workload import CREATE, OPEN, READDIRPLUS, STAT, Work

    kinds = {"file"}
    if isinstance(source, Work):
        done = set(source.ops[source.loaded :, 0].tolist())
        kinds |= {kind for kind, of in (("stats", {STAT, OPEN}), ("lists", {READDIRPLUS}), ("creates", {CREATE})) if done & of}
    elif not hasattr(source, "load") or how.ops >= _ENOUGH:
        kinds |= {"stats", "lists", "creates"}
    on = {"granule": how.granule, "cache": how.cache, "device": how.device, "ops": how.ops}
    yield Case(name, _drawn, on, frozenset(kinds))


@metadata.example
def example(folder: Path) -> Path:
    """Writes a trace in which two clients create, stat, rename, list and remove files."""
    file = folder / "operations.csv"
    rows = ["0,a,mkdir,/d,", "1,a,create,/d/x,", "2,b,create,/d/y,", "3,b,stat,/d/x,", "4,a,readdirplus,/d,", "5,a,rename,/d/x,/d/z",
            "6,b,open,/d/z,", "7,b,unlink,/d/y,"]  # fmt: skip
    file.write_text("time_s,client,op,path,path2\n" + "\n".join(rows) + "\n")
    return file


@metadata.run
def run(technique: MetadataEngine, case: Case) -> dict[str, float]:
    """Loads the tree, then sends the operations through the engine, the device and the queues."""
    import numpy as np

    from .simulation.closed_loop import simulate
    from .simulation.device import device as device_named
    from .workload import CREATE, OPEN, READDIRPLUS, STAT

    p = case.parameters
    work: Work = case.workload
    named = device_named(p["device"])
    device = named.sized(int(p["cache"] * BYTES_PER_FILE * work.files), p["granule"])
    engine = technique.start(work, int(p["cache"] * BYTES_PER_FILE * work.files), granule=device.granule)
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
            metrics[metric] = found.mean_latency_us(of)
    if case.kinds >= _CREATES:
        metrics["write_amplification"] = found.device_bytes_written / max(1, work.bytes_changed)
    return metrics


@metadata.answer
def answer(result: Result) -> str:
    """Names the fastest engine on each kind of work, and how far ahead of the next it is."""
    first = result.first_places("ops_per_s")
    if not first:
        return "Nothing was run to the end."
    parts: list[str] = []
    for name in first:
        won = [case for case in result.cases if result.best(case, "ops_per_s") == name]
        leads = [(case, second, result.ratio(case, "ops_per_s", name, second))
                 for case in won if (second := result.second(case, "ops_per_s"))]  # fmt: skip
        clear = [f"{case} ({ratio:.2g} times {second})" for case, second, ratio in leads if ratio and ratio >= 1.05]
        parts += [f"{name}{'' if parts else ' serves most operations per second'} on {listed(clear, 4)}"] if clear else []
    return f"{'; '.join(parts)}." if parts else f"No engine leads the next by 5 % on any case; {listed(list(first))} come first."


@metadata.plots
def plots(result: Result) -> Sequence[Any]:
    """Plots operations per second over the granule and over the cache, on `mixed`."""
    from armillary.figures import panels

    def over(what: str) -> dict[str, list[tuple[float | str, float]]]:
        def place(case: str, facts: Mapping[str, Any]) -> tuple[str, float] | None:
            shown = case == "mixed" or case.startswith(f"mixed@{what}")
            return (what, facts["parameters"][what]) if shown else None

        return result.lines("ops_per_s", place).get(what, {})

    lines = {what: points for what in ("cache", "granule") if (points := over(what))}
    if all(len(points) < 2 for panel in lines.values() for points in panel.values()):
        return []
    x = "granule in bytes, or cache as a share of the metadata"
    return [panels(lines, "Operations per second on the mixture", x, "1/s", log_x=True)]


@metadata.warm_up
def warm_up(technique: MetadataEngine, case: Case) -> None:
    """Runs four hundred operations, so that the clock sees no compilation."""
    import numpy as np

    from .simulation.closed_loop import simulate
    from .simulation.device import device
    from .workload import generate

    few = generate("mixed", np.random.default_rng(0), 300, 400)
    engine = technique.start(few, 1 << 16)
    engine.load()
    simulate(engine, few, device().sized(1 << 16), handlers=getattr(technique, "handlers", HANDLERS))


def _generate(case: Case, rng: np.random.Generator) -> Work:
    from .workload import generate

    p = case.parameters
    return generate(p["work"], rng, p["files"], p["ops"], **p["shape"])


def _drawn(case: Case, rng: np.random.Generator) -> Work:
    from .readers.formats import drawn

    return drawn(case.loaded, rng, case.parameters["ops"])
