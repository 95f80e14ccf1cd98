"""Learn the wait from the job, the state of the queue and the past of its user, with the scheduler's forecast as one of the inputs.

The scheduler's forecast believes requested times and knows no later arrivals. What it errs by is regular: users overestimate in their own
ways, and a queue of a given depth drains in its own time. So a learner maps what is known at submission to the wait. One head says whether
the job starts at once, the other predicts the logarithm of the wait of those that do not, and a split-conformal step gives intervals.

Are We There Yet? Predicting the Queue Wait Times for HPC Jobs, IEEE CLUSTER 2025. Features, models and the two heads are **our design**
after its abstract, which names several learners, data simulated from real traces, wait and bounded slowdown per processor as measures, and
the scheduler's estimate as the rival.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.arena import Claim, Gain, Kind
from armillary.learn.features import Feature
from armillary.learn.recipes import Recipe, obtain
from armillary.parameters import parameter
from armillary.scheduling.swf import Jobs

from .features.names import chosen
from .judging.forecaster import Forecaster, Predicted
from .scheduler import DEPTH
from .workload import KINDS, WaitWork

if TYPE_CHECKING:
    from armillary.learn.store import Model

    from .learning.fitted import WaitModel

#: SHA-256 of the shipped models, which `armillary learn rebuild learned-wait` prints.
SHIPPED = {
    "estimates": "7f5f14deff3726889b1d4048a16d66ea6db42cea027e2fbc5855eef5b53f709b",
    "exact": "24967462ee5be2f05cad8cfe51ec529ef721a69f0a312cb0c4eaf2095b651dce",
    "shuffled": "1c3d28d066c5f17eb42ff0fe61ba7227c8c04cebf158fe5d035a0904ed35ed2f",
}
ESTIMATES = Kind("estimates")
RIVALS = ("scheduler", "forward-sim", "recent-mean", "qbets")


@dataclass(frozen=True)
class LearnedWait(Forecaster):
    """Predicts the wait of a job from what is known when it is submitted.

    `fit(jobs)` learns from a log and returns a `WaitModel`, whose `predict(jobs, state)` answers about a queue.
    """

    model: str = parameter("boosting", "the learner", choices=("boosting", "forest", "knn", "mlp"))
    use_forecast: bool = parameter(True, "whether the scheduler's plan is among the inputs")
    use_history: bool = parameter(True, "whether the past of users and executables is among the inputs")
    zero_head: bool = parameter(True, "whether a classifier of its own says that a job starts at once")
    history_half_life: float = parameter(20.0, "own jobs after which the weight of a past job has halved", range=(0.1, 1e6))
    zero_wait_s: float = parameter(10.0, "seconds below which a wait counts as none", range=(0.0, 1e6))
    refit_every: int = parameter(0, "jobs after which the model is trained anew on all known waits; 0 never does", range=(0, 1_000_000))
    depth: int = parameter(500, DEPTH, range=(1, 100_000))

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "mae_s", over="scheduler", by=Gain(ratio=(4.1, None)), on=ESTIMATES, honest=(2.5, 8.0), part=1.2,
            says="the mean error is 4.1 times as small as the scheduler's", source="abstract",
            why="another workload and another scheduler; above 8 times the rival would be broken, not beaten",
        ),
        Claim(
            "slowdown_mae", over="scheduler", by=Gain(ratio=(1.5, None)), on=ESTIMATES,
            says="the bounded slowdown per processor is predicted better than by the scheduler", source="abstract, without a figure",
        ),
        Claim(
            "mae_s", over=RIVALS, by=Gain(ratio=(1.1, None)), on=ESTIMATES,
            says="learning adds something to the best forecast that needs none", source="ours",
        ),
        Claim(
            "mae_s", over=("forward-easy", "slurm-estimate"), by=Gain(ratio=(1.1, None)), on=ESTIMATES,
            says="learning adds something to the scheduler itself, simulated forward, and to sbatch --test-only", source="ours",
        ),
        Claim(
            "mae_s", over="recent-mean", by=Gain(ratio=(1 / 1.05, None)), on=Kind("shuffled"),
            says="learned from waits of other jobs, it is at most 5 % worse than the mean of recent waits", source="ours",
        ),
    )  # fmt: skip

    def features(self) -> tuple[Feature, ...]:
        """The features that the model reads, in their order."""
        return chosen(forecast=self.use_forecast, history=self.use_history)

    def recipes(self) -> list[Recipe]:
        """The shipped models, one per kind of built-in log."""
        return [self.recipe(kind) for kind in KINDS]

    def recipe(self, kind: str) -> Recipe:
        """How the model for a kind of built-in log is made."""
        from .learning.train import training_logs

        names = tuple(name for name, _, _ in training_logs(kind))
        parameters = {k: v for k, v in asdict(self).items() if k != "refit_every"} | {"kind": kind}
        return Recipe(
            "scheduling/waittime/learned-wait", "armillary.scheduling.waittime.learning.train:train", parameters=parameters, cases=names,
            seed=0, name=f"learned-wait-{kind}", expected_s=8, shipped=SHIPPED[kind] if self == LearnedWait() else "",
        )  # fmt: skip

    def learn(self, work: WaitWork) -> Model | None:
        """The model of the work's kind, or one that learns from the log's first slice; None where it is retrained as it goes."""
        if self.refit_every:
            return None
        if work.taught:
            return obtain(self.recipe(work.taught))
        from .learning.rows import fitted, known, rows

        before = work.jobs.take(slice(0, work.test))
        seen, features = known(self, WaitWork(before).log), self.features()
        sides = (work.told(0, work.tune, work.tune), work.told(work.tune, work.test, work.test))
        return fitted(self, *(rows(seen, features, work.jobs, side) for side in sides))

    def predictions(self, work: WaitWork, learned: Any = None) -> Predicted:
        """The predicted waits of all jobs from the tuning slice on."""
        from .learning.rows import answers, fitted_up_to, known

        if not self.refit_every:
            model: Any = self.learn(work) if learned is None else learned
            return Predicted(work.tune, answers(self, model, known(self, work.log, work.tune)))
        seen = known(self, work.log)
        found = np.zeros(len(work) - work.tune)
        for first in range(work.tune, len(work), self.refit_every):
            model = fitted_up_to(self, work.jobs, seen, first)
            last = min(first + self.refit_every, len(work))
            found[first - work.tune : last - work.tune] = answers(self, model, seen.part(first, last))
        return Predicted(work.tune, found)

    def fit(self, jobs: Jobs) -> WaitModel:
        """Learns from a log with waits, the latest 15 % of which calibrate the intervals."""
        from .learning.fitted import fit_log

        return fit_log(self, jobs)
