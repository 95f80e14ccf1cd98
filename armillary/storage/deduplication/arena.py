"""Which layout or relocation scheme gives a deduplicated store its read speed back, and at what price?"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Constant, Metric, NotForThisCase
from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    import numpy as np

    from armillary.study import Result

    from .technique import Placement
    from .workload import Workload

_SIMULATED, _STORE = frozenset({"simulated"}), frozenset({"measured"})

deduplication = Arena(
    "storage/deduplication",
    question="Which layout or relocation scheme gives a deduplicated store its read speed back, at what price in space and moved bytes?",
    metrics=[
        Metric("read_throughput", unit="MB/s", better="higher", kind="by case", doc="mean over files"),
        Metric("read_p10", unit="MB/s", better="higher", kind="by case", doc="a tenth of the files is read slower"),
        Metric("full_dedup_read", unit="MB/s", better="higher", kind="by case",
               doc="read_throughput of a layout that keeps no chunk twice; 0 of one that does"),
        Metric("runs_per_file", better="lower", kind="by case", doc="maximal physically consecutive stretches"),
        Metric("containers_per_file", better="lower", kind="by case"),
        Metric("containers_over_ideal", better="lower", kind="by case", doc="containers of all files over what their bytes would fill"),
        Metric("dedup_ratio", better="higher", kind="measured", steady=True, doc="logical over physical bytes of chunks in use"),
        Metric("container_fill", better="higher", kind="by case", scale="difference", doc="share of slots in use: slack and holes count"),
        Metric("moved_bytes", better="lower", kind="by case", scale="difference", doc="share of the store copied by relocation"),
        Metric("buffer_MiB", unit="MiB", better="lower", kind="simulated", scale="difference", on=_SIMULATED, doc="most that waits"),
        Metric("relocate_s", unit="s", better="lower", kind="measured", scale="difference", doc="planning, and on a real store moving"),
        Metric("ingest_MBps", unit="MB/s", better="higher", kind="measured", on=_STORE, doc="chunking, hashing, writing, committing"),
        Metric("index_bytes_per_chunk", unit="B", better="lower", kind="measured", steady=True, on=_STORE),
    ],
    techniques={
        "arrival": ".arrival:Arrival",
        "hash": ".hashed:Hashed",
        "per-file": ".per_file:PerFile",
        "capping": ".capping:Capping",
        "har": ".har:Har",
        "smr": ".smr:Smr",
        "reodedup": ".reodedup:Reodedup",
        "reodedup-append": ".reodedup:ReodedupAppend",
    },
    papers={"reodedup": "reodedup"},
    baseline="arrival",
    tradeoff=("dedup_ratio", "read_throughput"),
    constants=(
        Constant("containers", "4 MiB, on 8 nodes by rendezvous hashing", "", "ours"),
        Constant("NVMe", "seek 0.08 ms, 2 GB/s", "", "ours"),
        Constant("disk", "seek 6 ms, 180 MB/s", "", "ours"),
        Constant("network", "0.2 ms round trip, 10 Gb/s a node", "", "ours"),
        Constant("readers", "8 files at once, 16 requests each under way", "", "ours"),
    ),
    uses=("armillary.storage.queue", "armillary.engine.queues"),
)  # fmt: skip

REFERENCES = {"tiny": 6_000, "small": 200_000, "large": 50_000_000}
#: References of the case that is really written and read: 16 KiB each.
STORED = {"tiny": 300, "small": 8_000, "large": 64_000}
FLAVOURS = ("vm", "home", "registry", "checkpoints")


@deduplication.cases
def cases(scale: str) -> Iterator[Case]:
    """Four kinds of file written by sixteen at once, the same with updates, on disks, by one writer; and a real store."""
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


@deduplication.read
def read(
    path: Path, *, chunker: str = "fixed", chunk: int = 16384, writers: int = 16, disk: str = "nvme"
) -> Iterator[Case]:  # fmt: skip
    """A directory tree or OCI image layout (chunked here), a CSV or Parquet of writes, or FIU IODedup text."""
    from .files import tree_digest

    if disk not in ("nvme", "hdd"):
        raise unknown("disk", disk, ("nvme", "hdd"), where="--disk")
    how = {"path": str(path), "chunker": chunker, "chunk": chunk, "writers": writers, "disk": disk}
    kinds = {"simulated", "file", disk, "concurrent" if writers >= 8 else "alone"}
    if path.is_dir():
        # A directory has no bytes of its own to tell it by.
        how["digest"] = tree_digest(path)
        _file(path, str(how["digest"]), chunker, chunk, writers, disk)
        yield Case(path.resolve().name or "tree", _load, how, frozenset(kinds))
        return
    work = _file(path, str(path.stat().st_mtime_ns), chunker, chunk, writers, disk)
    yield Case(path.name, _load, how, frozenset(kinds | {"updates" if work.updates else "still"}), source=path)


@deduplication.run
def run(placement: Placement, case: Case) -> dict[str, float]:
    """Lays out, then reads every file once through the queues of the nodes."""
    import numpy as np

    from .layout import containers_per_file, ideal_containers, runs_per_file
    from .reading import read_all

    work: Workload = case.workload
    _compiled(placement)
    if "measured" in case.kinds:
        from .measuring import measure

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


def _generate(case: Case, rng: np.random.Generator) -> Workload:
    from .workload import HDD, NVME, generate

    how = dict(case.parameters)
    devices = {"nvme": NVME, "hdd": HDD}[how.pop("disk")]
    return generate(how.pop("flavour"), rng, devices=devices, **how)


def _load(case: Case, rng: np.random.Generator) -> Workload:
    how = case.parameters
    changed = how["digest"] if case.source is None else str(case.source.stat().st_mtime_ns)
    return _file(Path(how["path"]), changed, how["chunker"], how["chunk"], how["writers"], how["disk"])


@functools.lru_cache(maxsize=2)
def _file(path: Path, changed: str, chunker: str, chunk: int, writers: int, disk: str) -> Workload:
    from .files import read_work
    from .workload import HDD, NVME

    work = read_work(path, chunker=chunker, chunk=chunk, writers=writers, devices=NVME if disk == "nvme" else HDD)
    if not work.references:
        raise InputError("found no byte of content; expected files or writes", where=str(path))
    return work


@deduplication.plots
def plots(result: Result) -> Sequence[Any]:
    """Reading speed against the deduplication ratio that is left, by case."""
    from armillary.figures import panels

    lines: dict[str, dict[str, list[tuple[float | str, float]]]] = {}
    for technique in result.techniques:
        ratios = result.medians(technique, "dedup_ratio")
        for case, speed in result.medians(technique, "read_throughput").items():
            lines.setdefault(case, {}).setdefault(technique, []).append((ratios[case], speed))
    return [panels(lines, "What deduplication is kept, what reading is won", "deduplication ratio", "MB/s")] if lines else []


@functools.lru_cache
def _compiled(placement: Placement) -> None:
    """Compiles outside the clock."""
    import numpy as np

    from .workload import generate

    placement.lay(generate("home", np.random.default_rng(0), references=50, rounds=1))
