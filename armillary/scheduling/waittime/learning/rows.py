"""Rows to learn from: what was known at the submission of jobs whose waits are known by now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from armillary.learn.features import Feature
from armillary.learn.store import Model
from armillary.scheduling.swf import Jobs
from armillary.scheduling.waittime.features.names import columns
from armillary.scheduling.waittime.features.sweep import Known, Log, known_at_submission

from .heads import Heads, Progress, Rows, fit_heads

if TYPE_CHECKING:
    from armillary.scheduling.waittime.learned_wait import LearnedWait

Floats = npt.NDArray[np.float64]
#: Where a model is trained anew, every job of this many decides when training stops; the latest alone would leave out what is new.
HELD = 6


def known(how: LearnedWait, log: Log, first: int = 0) -> Known:
    """What the technique could know at the submissions from number `first` on."""
    return known_at_submission(log, first=first, depth=how.depth, half_life=how.history_half_life)


def rows(seen: Known, features: tuple[Feature, ...], jobs: Jobs, chosen: npt.NDArray[np.int64]) -> Rows:
    """The rows of the chosen jobs, which stand at `seen.first` or behind it."""
    return Rows(columns(seen.matrix[chosen - seen.first], features), jobs.wait_s[chosen])


def fitted(how: LearnedWait, train: Rows, held: Rows, *, seed: int = 0, progress: Progress | None = None) -> Model:
    """Both heads under the technique's parameters."""
    return fit_heads(
        how.model, how.features(), train, held, zero_wait_s=how.zero_wait_s, zero_head=how.zero_head, seed=seed, progress=progress
    )  # fmt: skip


def fitted_up_to(how: LearnedWait, jobs: Jobs, seen: Known, by: int) -> Model:
    """A model from all jobs before number `by` whose waits are known when it is submitted; every sixth of them is held out."""
    told = np.arange(by)[jobs.start_s[:by] <= jobs.submit_s[by]]
    held, features = np.arange(len(told)) % HELD == HELD - 1, how.features()
    return fitted(how, rows(seen, features, jobs, told[~held]), rows(seen, features, jobs, told[held]))


def answers(how: LearnedWait, model: Model, seen: Known) -> Floats:
    """The waits that a model predicts for all rows."""
    return Heads(model).answer(columns(seen.matrix, how.features()))
