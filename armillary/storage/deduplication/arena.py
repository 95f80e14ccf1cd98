"""Which layout or relocation scheme gives a deduplicated store its read speed back, and at what price?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Case, Constant, Metric, NotForThisCase, Result, parameter
from armillary.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from .layouts.placement import Placement
    from .workload import Workload

_SIMULATED, _STORE = frozenset({"simulated"}), frozenset({"measured"})

deduplication = Arena(
    "storage/deduplication",
    question="Which layout or relocation scheme gives a deduplicated store its read speed back, and at what cost in space and moved bytes?",
    metrics=[
        Metric("read_throughput", unit="MB/s", better="higher", kind="by case", doc="mean speed at which a file is read"),
        Metric("read_p10", unit="MB/s", better="higher", kind="by case", doc="speed below which a tenth of the files are read"),
        Metric("full_dedup_read", unit="MB/s", better="higher", kind="by case",
               doc="read_throughput of a layout that stores no chunk twice, and 0 for one that does"),
        Metric("runs_per_file", better="lower", kind="by case", doc="mean number of maximal stretches that lie consecutively on disk"),
        Metric("containers_per_file", better="lower", kind="by case", doc="mean number of containers in which a file lies"),
        Metric("containers_over_ideal", better="lower", kind="by case",
               doc="containers in which files lie, over those that their bytes would fill"),
        Metric("dedup_ratio", better="higher", kind="measured", steady=True, doc="logical bytes over the physical bytes of chunks in use"),
        Metric("container_fill", better="higher", kind="by case", scale="difference",
               doc="share of slots in use; slack and holes count as unused"),
        Metric("moved_bytes", better="lower", kind="by case", scale="difference", doc="share of the store that relocation copies"),
        Metric("disk_over_live", better="lower", kind="measured", steady=True, on=_STORE,
               doc="bytes that the containers take on the disk for each byte of chunks in use"),
        Metric("buffer_MiB", unit="MiB", better="lower", kind="simulated", scale="difference", on=_SIMULATED,
               doc="most that waits in memory"),
        Metric("relocate_s", unit="s", better="lower", kind="measured", scale="difference",
               doc="time for planning, and on a real store also for moving"),
        Metric("ingest_MBps", unit="MB/s", better="higher", kind="measured", on=_STORE,
               doc="speed of chunking, hashing, writing and committing"),
        Metric("index_bytes_per_chunk", unit="B", better="lower", kind="measured", steady=True, on=_STORE, doc="size of the index on disk"),
    ],
    techniques={
        "arrival": ".arrival:Arrival",
        "hash": ".hash:Hashed",
        "per-file": ".per_file:PerFile",
        "capping": ".capping:Capping",
        "har": ".har:Har",
        "smr": ".smr:Smr",
        "reodedup": ".reodedup:Reodedup",
        "reodedup-append": ".reodedup_append:ReodedupAppend",
    },
    papers={"reodedup": "reodedup"},
    baseline="arrival",
    tradeoff=("dedup_ratio", "read_throughput"),
    telling=("vm", "registry-updates", "vm-hdd", "vm-one-writer", "home-store"),
    constants=(
        Constant("containers", "4 MiB, on 8 nodes by rendezvous hashing", "", "ours"),
        Constant("NVMe", "seek 0.08 ms, 2 GB/s", "", "ours"),
        Constant("disk", "seek 6 ms, 180 MB/s", "", "ours"),
        Constant("network", "0.2 ms round trip, 10 Gb/s per node", "", "ours"),
        Constant("readers", "8 files at once, each with 16 requests in flight", "", "ours"),
    ),
)  # fmt: skip

REFERENCES = {"tiny": 6_000, "small": 200_000, "large": 50_000_000}
#: The number of references of the case that is really written and read, each of 16 KiB.
STORED = {"tiny": 300, "small": 4_000, "large": 64_000}
FLAVOURS = ("vm", "home", "registry", "checkpoints")


@deduplication.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields four kinds of file that sixteen writers write at once, also with updates, on disks and by one writer, and a real store."""
    references = REFERENCES[scale]
    for flavour in FLAVOURS:
        plain = {"flavour": flavour, "references": references, "writers": 16, "rounds": 0, "disk": "nvme"}
        kinds = {"simulated", "concurrent", flavour, "nvme"}
        yield Case(flavour, _generate, plain, frozenset(kinds | {"still"}))
        yield Case(f"{flavour}-updates", _generate, {**plain, "rounds": 3}, frozenset(kinds | {"updates"}))
    yield Case("vm-hdd", _generate, {"flavour": "vm", "references": references, "writers": 16, "rounds": 0, "disk": "hdd"},
               frozenset({"simulated", "concurrent", "vm", "hdd", "still"}))  # fmt: skip
    yield Case("vm-one-writer", _generate, {"flavour": "vm", "references": references, "writers": 1, "rounds": 0, "disk": "nvme"},
               frozenset({"simulated", "alone", "vm", "nvme", "still"}))  # fmt: skip
    yield Case("home-store", _generate, {"flavour": "home", "references": STORED[scale], "writers": 16, "rounds": 0, "disk": "nvme"},
               frozenset({"measured", "home", "still"}))  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """How files are cut into chunks, who wrote them, and what they are read back from."""

    chunker: Literal["fixed", "fastcdc"] = parameter("fixed", "how the files of a folder are cut into chunks")
    chunk: int = parameter(16384, "bytes of a chunk, or their average for fastcdc", range=(256, 1 << 26))
    writers: int = parameter(16, "files of a folder that were written at once", range=(1, 1_000_000))
    disk: Literal["nvme", "hdd"] = parameter("nvme", "the disks of the nodes")

    def validate(self) -> None:
        """Checks that FastCDC gets a power of two, because it cuts at no other sizes."""
        if self.chunker == "fastcdc" and self.chunk & (self.chunk - 1):
            raise InputError(f"found {self.chunk}; expected a power of two for fastcdc", where="--chunk")


@deduplication.read(Reading, folders=True)
def read(path: Path, how: Reading) -> Workload:
    """Reads a directory tree or OCI image layout (chunked here), a CSV, JSON lines or Parquet table of writes, or FIU IODedup text."""
    from .readers.formats import read_work
    from .workload import HDD, NVME

    devices = NVME if how.disk == "nvme" else HDD
    work = read_work(path, chunker=how.chunker, chunk=how.chunk, writers=how.writers, devices=devices)
    if not work.references:
        raise InputError("found no byte of content; expected files or writes", where=str(path))
    return work


@deduplication.own_cases
def own_cases(work: Workload, name: str, how: Reading) -> Iterator[Case]:
    """Makes one case: the files as they were written, and their updates if there are any."""
    parameters = {"chunker": how.chunker, "chunk": how.chunk, "writers": how.writers, "disk": how.disk}
    kinds = {"simulated", "file", how.disk, "concurrent" if how.writers >= 8 else "alone", "updates" if work.updates else "still"}
    yield Case(name, parameters=parameters, kinds=frozenset(kinds))


@deduplication.example
def example(folder: Path) -> Path:
    """Writes a trace in which two clients write two files that share a chunk, one of which is overwritten later."""
    file = folder / "writes.csv"
    writes = [(0, "x", "a", 0, "11"), (1, "y", "b", 0, "11"), (2, "x", "a", 4096, "22"), (3, "y", "b", 4096, "33"), (4, "x", "a", 0, "44")]
    rows = [f"{time},{client},{name},{offset},4096,{digits * 16}" for time, client, name, offset, digits in writes]
    file.write_text("time,client,file,offset,length,fingerprint\n" + "\n".join(rows) + "\n")
    return file


@deduplication.run
def run(placement: Placement, case: Case) -> dict[str, float]:
    """Lays the chunks out, then reads every file once through the queues of the nodes."""
    import numpy as np

    from .layouts.layout import containers_per_file, ideal_containers, runs_per_file
    from .simulation.reading import read_all

    work: Workload = case.workload
    if "measured" in case.kinds:
        from .store.measurement import measure

        return measure(placement, work)
    layout = placement.lay(work)
    filled = np.diff(work.files.starts) > 0
    if not filled.any():
        raise NotForThisCase("there is no byte to read")
    speed = read_all(work, layout, case.stream("reading")).throughput
    physical, logical = layout.physical_bytes(work.sizes), int(work.sizes[layout.chunks].sum())
    least = int(work.sizes[np.unique(layout.chunks)].sum())
    containers = containers_per_file(work.files.starts, layout.place, layout.slots)
    return {
        "read_throughput": float(speed.mean()),
        "read_p10": float(np.quantile(speed, 0.1)),
        "full_dedup_read": float(speed.mean()) if physical == least else 0.0,
        "runs_per_file": float(runs_per_file(work.files.starts, layout.place, layout.slots)[filled].mean()),
        "containers_per_file": float(containers[filled].mean()),
        "containers_over_ideal": float(containers.sum() / ideal_containers(work, layout.chunks).sum()),
        "dedup_ratio": logical / physical,
        "container_fill": layout.fill(),
        "moved_bytes": layout.moved_bytes / physical,
        "buffer_MiB": layout.buffer_bytes / 2**20,
        "relocate_s": layout.relocate_s,
    }


@deduplication.answer
def answer(result: Result) -> str:
    """The gain of layouts that store nothing twice over arrival order, and that of rewriting with its price."""
    cases = [case for case, facts in result.cases.items() if "simulated" in facts["kinds"]] or list(result.cases)
    gains, kept = {}, {}
    for name in result.techniques:
        found = [result.ratio(case, "read_throughput", name, "arrival") for case in cases]
        ratios = [result.ratio(case, "dedup_ratio", name, "arrival") for case in cases]
        if name != "arrival" and found and None not in found and None not in ratios:
            gains[name], kept[name] = [gain for gain in found if gain], [ratio for ratio in ratios if ratio]
    if not gains:
        ranked = result.on(cases[0], "read_throughput") if cases else {}
        return f"On {cases[0]}, files are read at {_listed_speeds(ranked)}." if ranked else "No layout was read to the end."
    if "reodedup" in gains:
        gains.pop("reodedup-append", None)
    whole = [name for name in gains if min(kept[name]) > 1 - 1e-9]
    said = [f"{_best(whole, gains)} without storing a byte twice"] if whole else []
    rewriting = [name for name in gains if name not in whole]
    if rewriting:
        best = max(rewriting, key=lambda name: _middle(gains[name]))
        said.append(f"{_best([best], gains)} at {_middle(kept[best]):.2f} times the deduplication ratio")
    many = "" if len(cases) == 1 else f" in the middle of {len(cases)} cases"
    return f"Against chunks in order of arrival, files are read {', and '.join(said)}{many} (simulated)."


def _best(names: list[str], gains: dict[str, list[float]]) -> str:
    """`1.8 times as fast with reodedup and 1.7 with per-file`, for the two best."""
    first, *rest = sorted(names, key=lambda name: -_middle(gains[name]))[:2]
    return f"{_middle(gains[first]):.2f} times as fast with {first}" + "".join(f" and {_middle(gains[r]):.2f} times with {r}" for r in rest)


def _listed_speeds(ranked: Mapping[str, float]) -> str:
    from armillary.wording import listed

    return listed([f"{speed:.0f} MB/s with {name}" for name, speed in ranked.items()])


def _middle(values: list[float]) -> float:
    import statistics

    return statistics.median(values)


@deduplication.plots
def plots(result: Result) -> Sequence[Any]:
    """Plots the read speed against the deduplication ratio that is left, one panel per case."""
    from armillary.figures import panels

    lines: dict[str, dict[str, list[tuple[float | str, float]]]] = {}
    for technique in result.techniques:
        ratios = result.medians(technique, "dedup_ratio")
        for case, speed in result.medians(technique, "read_throughput").items():
            lines.setdefault(case, {}).setdefault(technique, []).append((ratios[case], speed))
    return [panels(lines, "Read speed against the deduplication that is left", "deduplication ratio", "MB/s")] if lines else []


@deduplication.warm_up
def warm_up(placement: Placement, case: Case) -> None:
    """Lays out fifty references, so that the clock sees no compilation."""
    import numpy as np

    from .workload import generate

    placement.lay(generate("home", np.random.default_rng(0), references=50, rounds=1))


def _generate(case: Case, rng: np.random.Generator) -> Workload:
    from .workload import HDD, NVME, generate

    how = dict(case.parameters)
    devices = {"nvme": NVME, "hdd": HDD}[how.pop("disk")]
    return generate(how.pop("flavour"), rng, devices=devices, **how)
