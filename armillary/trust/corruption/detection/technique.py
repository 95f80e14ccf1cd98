"""What the techniques are made of: those that read counters, and those that look into the algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.arena import NotForThisCase, Technique
from armillary.parameters import parameter

from .alarms import Judged, auc, begins, held, highest, level
from .features import Wanted

if TYPE_CHECKING:
    from ..workload import Work
    from .folds import Fold
    from .runs import Array, Runs

MATRICES = frozenset({"solved"})
#: What a kernel lacks, by what a check needs.
LACKS = {
    "multiplies": "no product that a checksum could check", "recurs": "no recurrence for its residual",
    "moves": "no iterate that moves in small steps",
}  # fmt: skip


class Detector(Technique):
    """One way to notice corruption."""

    def judge(self, work: Work) -> tuple[list[Judged], float]:
        """(scores and thresholds by fold, seconds of training)."""
        raise NotImplementedError

    def costs(self, work: Work) -> tuple[float, float]:
        """(overhead, the part of it that is no sampling), in percent of the time of what is watched; measured."""
        raise NotImplementedError


@dataclass(frozen=True)
class CounterDetector(Detector):
    """A classifier over counters; it alarms if `of_m` of the last `of_n` windows are above a threshold."""

    of_m: int = parameter(2, "windows above the threshold that make an alarm", range=(1, 20))
    of_n: int = parameter(3, "windows among which they are", range=(1, 20))
    clean_alarms: float = parameter(0.01, "share of clean windows that may alarm, on the runs that choose the threshold", range=(1e-4, 0.5))
    kind: ClassVar[str] = ""
    supervised: ClassVar[bool] = True

    def validate(self) -> None:
        """m of n."""
        from armillary.errors import InputError

        if self.of_m > self.of_n:
            raise InputError(f"found {self.of_m} of {self.of_n} windows; expected m of n with m up to n", where="of_m")

    @property
    def wanted(self) -> Wanted:
        """The features that it looks at."""
        return Wanted()

    def kinds(self, work: Work) -> tuple[list[str], float]:
        """(the classifier for each fold, seconds of training)."""
        _, seconds = work.learned(self.kind, self.wanted)
        return [self.kind] * len(work.folds(self.wanted)), seconds

    def judge(self, work: Work) -> tuple[list[Judged], float]:
        """Scores the judged windows of every fold."""
        most = int((np.diff(work.runs.first) - work.runs.start).max())
        if most < self.of_m:
            raise NotForThisCase(f"found {most} windows at most after a fault; an alarm takes {self.of_m}")
        chosen, seconds = self.kinds(work)
        found = []
        for number, (kind, fold) in enumerate(zip(chosen, work.folds(self.wanted))):
            scorer = work.learned(kind, self.wanted)[0][number]
            threshold = self.threshold(work.runs, fold, scorer(fold.choose))
            found.append(Judged.of(work.runs, fold.judged, fold.judge.rows, scorer(fold.judge), threshold, self.of_m, self.of_n))
        return found, seconds

    def threshold(self, runs: Runs, fold: Fold, score: Array) -> float:
        """The least score that few enough clean windows exceed, on the runs that were not taught."""
        filtered = held(score, begins(runs, fold.choose.rows), self.of_m, self.of_n)
        clean = filtered[fold.choose.labels == 0]
        found = level(clean, self.clean_alarms)
        return found if np.isfinite(found) else float(clean.max(initial=-np.inf))

    def costs(self, work: Work) -> tuple[float, float]:
        """Seconds of one sample and one decision, over windows of 100 ms."""
        from .costs import counter_costs

        chosen, _ = self.kinds(work)
        return counter_costs(work, work.learned(chosen[0], self.wanted)[0][0], self.wanted)


def chosen_by(work: Work, wanted: Wanted, family: tuple[str, ...], m: int, n: int) -> tuple[list[str], float]:
    """For each fold the classifier that finds most of the choosing runs at 10 % false alarms, then by AUC; and all seconds."""
    learned = {kind: work.learned(kind, wanted) for kind in family}
    found = []
    for number, fold in enumerate(work.folds(wanted)):
        bad = work.runs.corrupted[fold.choosing]
        ranked = []
        for place, kind in enumerate(family):
            score = held(learned[kind][0][number](fold.choose), begins(work.runs, fold.choose.rows), m, n)
            top = highest(work.runs, fold.choosing, fold.choose.rows, score)
            # Among fewer than nine clean runs, none may alarm.
            limit = min(level(top[~bad], 0.1), float(top[~bad].max(initial=-np.inf)))
            ranked.append((-float((top[bad] > limit).mean()), -auc(top, bad.astype(np.int64)), place, kind))
        found.append(min(ranked)[3])
    return found, sum(seconds for _, seconds in learned.values())


class AlgorithmDetector(Detector):
    """A check inside the algorithm, whose scores stand beside the counters of every run: more than 1 is an alarm."""

    takes: ClassVar[frozenset[str]] = MATRICES
    #: What the solver must offer ("multiplies", "recurs", "moves"), and the column of the checks.
    needs: ClassVar[str] = ""
    column: ClassVar[int] = 0

    def check_kernel(self, work: Work) -> None:
        """Declines a kernel that it cannot check."""
        from ..solvers.kinds import SOLVERS

        if self.needs == "multiplies" and "cycles" not in work.runs.columns:
            raise NotForThisCase("checks of products would be counted with the products; compare with --counters model")
        if self.needs and not getattr(SOLVERS[work.kernel], self.needs):
            raise NotForThisCase(f"{work.kernel} has {LACKS[self.needs]}")

    def scores(self, work: Work, fold: Fold) -> Array:
        """Scores of the judged windows."""
        found: Array = work.runs.checks[fold.judge.rows, self.column]
        return found

    def judge(self, work: Work) -> tuple[list[Judged], float]:
        """Scores the judged windows of every fold."""
        self.check_kernel(work)
        return [
            Judged.of(work.runs, fold.judged, fold.judge.rows, self.scores(work, fold), 1.0, 1, 1) for fold in work.folds()
        ], 0.0

    def costs(self, work: Work) -> tuple[float, float]:
        """Seconds of the check, over those of a product with the matrix."""
        from .costs import check_costs

        found = check_costs(work, self.check_name)
        return found, found

    check_name: ClassVar[str] = ""
