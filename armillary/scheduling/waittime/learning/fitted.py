"""A model that was learned from a log, and what it says about a queue."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.learn.calibration import Conformal
from armillary.learn.kinds import PartsConfig
from armillary.learn.store import Model, load
from armillary.scheduling.swf import Jobs
from armillary.scheduling.waittime.features.state import QueueState, at_submission
from armillary.scheduling.waittime.features.sweep import Known, Log
from armillary.scheduling.waittime.judging.intervals import CLASS_EDGES, COVERAGE, calibrated, interval
from armillary.scheduling.waittime.workload import FEWEST
from armillary.wording import counted

from .rows import answers, fitted, known, rows

if TYPE_CHECKING:
    from armillary.scheduling.waittime.learned_wait import LearnedWait

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class WaitModel:
    """What `LearnedWait.fit` learned. `history` is the log, whose users and executables it remembers."""

    how: LearnedWait
    history: Jobs
    model: Model

    def predict(self, jobs: Jobs, state: QueueState | None = None) -> Floats:
        """The wait of each job in seconds.

        With a `state`, each job is asked about alone, as if it were submitted at `state.now_s`; its own submit time does not count.
        Without one, `jobs` is a log, every job of which is answered from what came before it there; a wait of NaN goes on.
        """
        return answers(self.how, self.model, self._known(jobs, state))

    def predict_interval(self, jobs: Jobs, state: QueueState | None = None) -> tuple[Floats, Floats]:
        """(lower, upper) ends of intervals that cover 90 % of the waits, in seconds."""
        return interval(self.radii, self.predict(jobs, state), jobs.nodes)

    @property
    def radii(self) -> Conformal:
        """The radii of the intervals in ln(1 + s), by size class."""
        found = np.asarray(self.model.frozen()["radius"], np.float64)
        return Conformal(COVERAGE, float(found[-1]), {i: float(r) for i, r in enumerate(found[:-1])})

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes the model, without the history, as safetensors; returns its hex SHA-256."""
        return self.model.save(path)

    @staticmethod
    def load(path: str | os.PathLike[str], how: LearnedWait, history: Jobs) -> WaitModel:
        """Reads a model that was saved with the same parameters."""
        model = load(path)
        width = len(CLASS_EDGES) + 2
        if not isinstance(model.config, PartsConfig) or model.config.arrays.get("radius") != (width,):
            raise InputError("found a model without its radii; expected one of learned-wait", where=str(path))
        names = model.features.names if model.features else ()
        wanted = tuple(feature.name for feature in how.features())
        if names != wanted:
            raise InputError(f"found {counted(len(names), 'feature')}; expected the {len(wanted)} of these parameters", where=str(path))
        return WaitModel(how, history, model)

    def _known(self, jobs: Jobs, state: QueueState | None) -> Known:
        if state is None:
            return known(self.how, Log.of(jobs))
        parts = [known(self.how, at_submission(self.history, state, jobs.take(slice(i, i + 1))), -1) for i in range(len(jobs))]
        return Known.joined(parts)


def fit_log(how: LearnedWait, jobs: Jobs) -> WaitModel:
    """Learns from the first part of a log and calibrates on the last 15 %."""
    log = _with_waits(jobs)
    seen = known(how, Log.of(log))
    cut = len(log) - max(1, int(0.15 * len(log)))
    before = np.arange(cut)
    sides = before[log.start_s[:cut] <= log.submit_s[cut]], np.arange(cut, len(log))
    features = how.features()
    model = fitted(how, *(rows(seen, features, log, side) for side in sides))
    found = answers(how, model, seen.part(cut, len(log)))
    return WaitModel(how, log, _with_radii(model, calibrated(found, log.wait_s[cut:], log.nodes[cut:])))


def _with_waits(jobs: Jobs) -> Jobs:
    known_waits = ~np.isnan(jobs.wait_s)
    count = int(known_waits.sum())
    if count < FEWEST:
        raise InputError(f"found {counted(count, 'job')} with known waits; expected at least {FEWEST}")
    return jobs if count == len(jobs) else jobs.take(known_waits)


def _with_radii(model: Model, around: Conformal) -> Model:
    classes = len(CLASS_EDGES) + 1
    radius = np.array([*(around.by_group.get(c, around.radius) for c in range(classes)), around.radius], np.float32)
    assert isinstance(model.config, PartsConfig)
    config = PartsConfig(parts=model.config.parts, arrays={**model.config.arrays, "radius": radius.shape})
    return replace(model, config=config, arrays={**model.arrays, "radius": radius})
