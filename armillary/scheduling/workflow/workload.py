"""Built-in workflows, written out in the shapes of published ones, and what a case holds.

Task counts are the published ones, at most 100 per stage by default. Sizes of the 1000-genome workflow are those of its public traces
(`individuals` reads 2.4 GiB per task in operations of 8 KiB and writes 80 KiB, `sifting` reads 1.1 to 1.6 GiB); the others are chosen in
the order of magnitude of public traces. Seconds of computation are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from armillary.errors import unknown

from .planning.configurations import Configurations, Layout
from .planning.costs import Costs
from .stages.statistics import Statistics
from .stages.workflow import Floats, Ints, Workflow
from .storage.tiers import Machine

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class WorkflowWork:
    """One case: the layout and its configurations, the candidates among them, and what the judge said about the candidates."""

    name: str
    layout: Layout
    configurations: Configurations
    #: The numbers of the candidates, which were judged, and their makespans in seconds.
    candidates: Ints
    judged: Floats
    #: What a planner may know; costs are missing if only makespans were given.
    costs: tuple[Costs, ...] = ()
    statistics: Statistics | None = None
    machine: Machine | None = None
    workflow: Workflow | None = None
    #: Whether the makespans of the candidates are the user's own, so that a tree may only see those outside its fold.
    given: bool = False
    #: One judged run for the timeline: the number of the configuration and the times of its tasks.
    timeline: tuple[int, Floats, Ints] | None = field(default=None, compare=False)


class _Builder:
    """Collects tasks and files."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kinds: list[str] = []
        self.seconds: list[float] = []
        self.reads: list[list[int]] = []
        self.size: list[float] = []
        self.producer: list[int] = []
        self.file_names: list[str] = []

    def file(self, size: float, producer: int = -1, name: str = "") -> int:
        self.size.append(float(round(size)))
        self.producer.append(producer)
        self.file_names.append(name or f"file-{len(self.size)}")
        return len(self.size) - 1

    def task(self, kind: str, seconds: float, reads: Sequence[int], outputs: Sequence[float] = ()) -> list[int]:
        """Adds a task and returns its output files."""
        number = len(self.kinds)
        self.kinds.append(kind)
        self.seconds.append(float(f"{seconds:.6g}"))
        self.reads.append(list(reads))
        return [self.file(size, number, f"{kind}-{number}-{n}.out") for n, size in enumerate(outputs)]

    def done(self, transfer: dict[str, float], random: Sequence[str] = ()) -> Workflow:
        """The workflow, with bytes per operation by kind of task."""
        count = len(self.kinds)
        names = [f"{kind}_ID{n:07d}" for n, kind in enumerate(self.kinds)]
        made = Workflow.of(
            self.name, self.kinds, self.seconds, [1] * count, self.size, self.producer, self.reads, [[] for _ in range(count)], names,
            self.file_names,
        )  # fmt: skip
        by_stage = {stage: transfer[stage.partition("@")[0]] for stage in made.stages if stage.partition("@")[0] in transfer}
        return made.with_operations(by_stage, [stage for stage in made.stages if stage.partition("@")[0] in random])


def genome(rng: np.random.Generator, most: int = 100) -> Workflow:
    """1000-genome: individuals (300) to merge (10); sifting (10); both to mutation_overlap (10) and frequency (10)."""
    build = _Builder("genome")
    chromosomes, per = 10, max(1, min(300, most) // 10)
    columns = build.file(20 * KIB, name="columns.txt")
    for _ in range(chromosomes):
        data = build.file(2.4 * GIB)
        variants = build.file(rng.uniform(1.1, 1.6) * GIB)
        parts = [build.task("individuals", rng.uniform(18, 22), [data, columns], [80 * KIB])[0] for _ in range(per)]
        merged = build.task("individuals_merge", rng.uniform(8, 10), parts, [80 * KIB * per])
        sifted = build.task("sifting", rng.uniform(3, 5), [variants], [500 * KIB])
        build.task("mutation_overlap", rng.uniform(8, 12), [*merged, *sifted, columns], [150 * KIB])
        build.task("frequency", rng.uniform(20, 28), [*merged, *sifted, columns], [260 * KIB])
    return build.done({"individuals": 8 * KIB, "sifting": 64 * KIB})


def montage(rng: np.random.Generator, most: int = 100) -> Workflow:
    """Montage: images are projected, overlaps are fitted, backgrounds are levelled, and all is added to one mosaic."""
    build = _Builder("montage")
    images = max(2, min(60, most * 3 // 5))
    header = build.file(300)
    projected = [build.task("mProject", rng.uniform(10, 14), [build.file(7.5 * MIB), header], [50 * MIB, 50 * MIB]) for _ in range(images)]
    fits = []
    pairs = [(n, n + d) for n in range(images) for d in (1, 2) if n + d < images][:most]
    for a, b in pairs:
        fits += build.task("mDiffFit", rng.uniform(2, 3), [*projected[a], *projected[b]], [300])
    table = build.task("mConcatFit", rng.uniform(0.5, 1), fits, [50 * len(pairs)])
    model = build.task("mBgModel", rng.uniform(4, 6), table, [4 * KIB])
    levelled = [build.task("mBackground", rng.uniform(4, 6), [*files, *model], [50 * MIB, 50 * MIB]) for files in projected]
    images_table = build.task("mImgtbl", rng.uniform(0.5, 1), [files[0] for files in levelled], [3 * KIB * images])
    mosaic = build.task("mAdd", rng.uniform(8, 12), [*images_table, *(f for files in levelled for f in files)], [20 * MIB * images])
    build.task("mViewer", rng.uniform(6, 10), mosaic, [2 * MIB])
    return build.done({"mProject": 256 * KIB, "mDiffFit": 256 * KIB})


def seismology(rng: np.random.Generator, most: int = 100) -> Workflow:
    """Seismic cross correlation: pairs of traces are deconvolved, and one task sifts the results."""
    build = _Builder("seismology")
    common = build.file(2 * MIB)
    parts = [build.task("sG1IterDecon", rng.uniform(3, 8), [build.file(30 * MIB), common], [6 * MIB])[0] for _ in range(min(100, most))]
    build.task("siftSTFByMisfit", rng.uniform(2, 4), parts, [4 * MIB])
    return build.done({"sG1IterDecon": 16 * KIB})


def pyflextrkr(rng: np.random.Generator, most: int = 100, stages: int = 9) -> Workflow:
    """Storm tracking like PyFLEXTRKR: a chain of nine stages, wide ones over the hours of a day and narrow ones over all of them."""
    build = _Builder("pyflextrkr")
    names = ["idfeature", "tracksingle", "gettracks", "trackstats", "identifymcs", "matchpf", "robustmcs", "mapfeature", "speed"]
    names = [*names, *(f"after{n}" for n in range(1, 64))][:stages]
    narrow, hours = {"gettracks", "identifymcs", "robustmcs"}, max(1, min(48, most))
    before = [[build.file(180 * MIB)] for _ in range(hours)]
    for name in names:
        if name in narrow:
            files = [f for row in before for f in row]
            outputs = build.task(name, rng.uniform(4, 8), files, [10 * MIB] * hours)
            before = [[f] for f in outputs]
        else:
            size = 60 * MIB if name in ("idfeature", "mapfeature") else 20 * MIB
            before = [build.task(name, rng.uniform(4, 8), row, [size]) for row in before]
    return build.done({"idfeature": 64 * KIB, "mapfeature": 64 * KIB})


def ddmd(rng: np.random.Generator, most: int = 100, rounds: int = 2) -> Workflow:
    """A loop of four stages like DeepDriveMD's, unrolled: simulate, aggregate, train, infer; the next round starts from the inference."""
    build = _Builder("ddmd")
    start = [build.file(5 * MIB)]
    for _ in range(rounds):
        frames = [build.task("openmm", rng.uniform(25, 35), start, [400 * MIB])[0] for _ in range(min(24, most))]
        gathered = build.task("aggregate", rng.uniform(3, 5), frames, [200 * MIB * min(24, most)])
        trained = build.task("training", rng.uniform(15, 25), gathered, [60 * MIB])
        start = build.task("inference", rng.uniform(5, 8), [*trained, *gathered], [10 * MIB])
    return build.done({"openmm": 256 * KIB, "training": 128 * KIB}, random=["training"])


WORKFLOWS: dict[str, Callable[..., Workflow]] = {
    "genome": genome, "montage": montage, "seismology": seismology, "pyflextrkr": pyflextrkr, "ddmd": ddmd,
}  # fmt: skip


def built_in(name: str, rng: np.random.Generator, most: int = 100, **shape: int) -> Workflow:
    """A built-in workflow with at most `most` tasks per stage."""
    if name not in WORKFLOWS:
        raise unknown("workflow", name, WORKFLOWS)
    return WORKFLOWS[name](rng, most, **shape)
