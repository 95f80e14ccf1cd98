"""nsys2prv: every device of a large run in one trace, with an object for each, and efficiencies that multiply.

Reports of all processes are read straight into columns, get one object model (nodes, tasks, host threads, streams) and one clock, and are
written as records of Paraver, in which every span keeps its exact times and numbers. From the same columns come efficiencies, each of which
is a product of factors with one reason, and the device time that each cause cost.

nsys2prv: detailed and quantitative analysis of large-scale GPU execution traces with Paraver, IEEE CLUSTER 2025. Our design: the causes of
lost device time and their rules, the alignment by collectives, and its uncertainty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from armillary.arena import Claim, Gain, Kind, Level, parameter

from .analysis.aligning import aligned
from .analysis.efficiency import kernel_times
from .analysis.lost import lost
from .analysis.regions import region_of
from .attribution import Analyst, Attribution
from .readers.reading import read_trace
from .run.merging import merged
from .run.model import Run


@dataclass(frozen=True)
class Nsys2prv(Analyst):
    """The published pipeline."""

    align: bool = parameter(True, "align the clocks of reports by MPI_Init and by collectives; otherwise session starts are believed")
    split_nccl: bool = parameter(True, "count kernels of NCCL as communication; otherwise as computing")
    unions: bool = parameter(True, "count a moment once, however many activities overlap in it; otherwise durations are added up")

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "peak_memory", by=Level(at_most=80.0), on=Kind("conversion"), says="traces of hundreds of devices or more", source="abstract",
            scale="large",
        ),
        Claim(
            "cause_found", over=("stats", "busy"), by=Gain(difference=(0.3, None)), on=Kind("planted"),
            says="more insight than native views: it names the planted main cause", source="abstract",
        ),
        Claim(
            "cause_found", over="breakdown", by=Gain(difference=(0.0, None)), on=Kind("planted"),
            says="more insight than a breakdown by device: it names the planted main cause", source="abstract",
        ),
        Claim(
            "attribution_error", by=Level(at_most=3.0), on=Kind("planted"), says="quantitative: lost time by cause within 3 points",
            source="abstract, level ours",
        ),
        Claim(
            "beyond_doubt", by=Level(at_most=0.0), on=Kind("misfit"),
            says="where clocks drift, the reported uncertainty covers what that costs", source="our design",
        ),
        Claim(
            "wrong_names", by=Level(at_most=0.0), on=Kind("misfit"), says="where clocks drift, no cause is named that is not there",
            source="our design",
        ),
    )  # fmt: skip

    def attribute(self, run: Run) -> Attribution:
        """The shares of the device time that were lost, by cause."""
        return self.attribute_region(run, None)

    def attribute_region(self, run: Run, region: str | None) -> Attribution:
        """The same within the ranges of NVTX that are called `region`."""
        run = aligned(run) if self.align else run
        found = lost(run, region=region, split=self.split_nccl, unions=self.unions)
        whole = max(1.0, float(found.elapsed_ns) * len(found.devices))
        kernels = {name: time / whole for name, time in kernel_times(run, region_of(run, region)).items()}
        # Without alignment nobody says how far the clocks are wrong.
        doubt = found.uncertainty if self.align else 0.0
        return Attribution(max(1.0, found.elapsed_ns), found.shares, float(found.useful.sum()) / whole, kernels, doubt)

    def convert(self, reports: Sequence[Path], target: Path) -> tuple[int, int]:
        """Reads reports, merges them and writes Paraver's files; returns (events, bytes written)."""
        run = merged([read_trace(one) for one in reports], align=self.align, spare=True)
        return len(run), run.to_paraver(target)
