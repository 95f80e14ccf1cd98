"""A random forest over hardware counters: corrupted data change what a program does, and a classifier can see that.

A fault in an index moves accesses and so misses; one that keeps a solver from converging adds iterations; where the work itself depends on
values, branches and instructions change. So windows of counters, compared with what clean windows of the same kernel and matrix show,
tell of a corruption, and nobody has to change the code.

Detecting Silent Data Corruption From Hardware Counters, IEEE CLUSTER 2025. Published are the counters, the families of classifiers, errors
drawn from a study of propagation, and training on labelled windows. How windows are compared with clean ones at the same place of a run,
the pairs of runs with a sham fault, and the threshold by runs are **our design**.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim, Gain, Kind, Level
from armillary.parameters import parameter

from .detection.features import Wanted
from .detection.technique import CounterDetector

STAND_IN = "counters of a modelled core"
COMPETITIVE = "no more harm is missed than by detectors inside the algorithm"
WHY = "the difference of at most 0.05 is ours: the abstract says competitive"


def competitive(kind: str, *rivals: str) -> Claim:
    """At most 0.05 more harmful runs are missed than by the best of the rivals."""
    return Claim(
        "harm_missed", over=rivals, by=Gain(difference=(-0.05, None)), on=Kind("folds", kind), says=COMPETITIVE, source="abstract",
        stand_in=STAND_IN,
    )  # fmt: skip


@dataclass(frozen=True)
class CountersForest(CounterDetector):
    """A vote of 200 trees over one window of counters."""

    iterations: bool = parameter(True, "whether it sees how much longer a run is than clean ones")
    caches: bool = parameter(True, "whether it sees accesses, misses and clocks")
    differences: bool = parameter(True, "whether it sees differences to the window before")
    kind: ClassVar[str] = "forest"

    claims: ClassVar[tuple[Claim, ...]] = (
        competitive("krylov", "abft", "residual", "aid", "range"),
        competitive("sweeps", "abft", "aid", "range"),
        competitive("passes", "abft", "range"),
        Claim(
            "inference", by=Level(at_most=2.0), on=Kind("folds"), says="a decision takes less than 2 % of a window of 100 ms",
            source="abstract",
        ),
        Claim(
            "overhead", by=Level(at_most=2.0), on=Kind("folds"), says="less than 2 % overhead", source="abstract",
            needs="hardware counters (perf_event_open)",
        ),
        *(
            Claim(
                "recall_at_5", over=one, by=Gain(difference=(0.0, None)), on=Kind("ablation"), honest=(1e-9, None),
                says=f"finds more than without {what}", source="ours", why="the abstract gives no figure", stand_in=STAND_IN,
            )
            for one, what in (
                ("forest-no-iterations", "the number of iterations"), ("forest-no-caches", "cache counters"),
                ("forest-no-differences", "differences"),
            )
        ),
    )  # fmt: skip

    @classmethod
    def claims_with(cls, settings: object) -> tuple[Claim, ...]:
        """Parts left out make no claims."""
        return () if settings else cls.claims

    @property
    def wanted(self) -> Wanted:
        """The features that it looks at."""
        return Wanted(self.iterations, self.caches, self.differences)

    @property
    def whole(self) -> bool:
        """Whether no part is left out."""
        return self.iterations and self.caches and self.differences
