"""What every technique does: order the candidates of a workflow, and answer a question with one of them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np

from armillary.arena import NotForThisCase, Technique
from armillary.scheduling.workflow.stages.statistics import Statistics
from armillary.scheduling.workflow.stages.workflow import Floats, Ints
from armillary.scheduling.workflow.storage.tiers import Machine

from .capacity import bytes_on
from .configurations import Configurations, Layout
from .costs import Costs
from .makespan import totals
from .query import Query


@dataclass(frozen=True)
class Planning:
    """What is known before anything runs: configurations, the candidates among them, and the cells of the analytic model.

    `measured` has makespans of the candidates where users brought their own, which only a technique that learns from them may see, and
    never those of the rows that it ranks.
    """

    layout: Layout
    configurations: Configurations
    candidates: Ints
    costs: tuple[Costs, ...] = ()
    statistics: Statistics | None = None
    machine: Machine | None = None
    measured: Floats | None = field(default=None, repr=False)

    @property
    def options(self) -> Configurations:
        """The candidates."""
        return self.configurations.at(self.candidates)

    @functools.cached_property
    def total(self) -> Floats:
        """The analytic makespans of all configurations, in seconds."""
        if not self.costs:
            raise NotForThisCase("needs costs, and the table has only makespans")
        return totals(self.configurations, self.layout, self.costs)

    @functools.cached_property
    def local_bytes(self) -> Floats:
        """The most bytes per node on one local tier, of each candidate; zero where sizes are not known."""
        if self.statistics is None:
            return np.zeros(len(self.candidates))
        return bytes_on(self.options, self.layout, self.statistics).max(1)


@dataclass(frozen=True)
class Ranking:
    """A score for each candidate, lower first; equal scores are ties. `promise` are makespans in seconds, or None without any."""

    score: Floats
    promise: Floats | None = None


class Ranker(Technique):
    """A technique that orders configurations."""

    def rank(self, planning: Planning) -> Ranking:
        """The order of the candidates."""
        raise NotImplementedError

    def answer(self, planning: Planning, ranking: Ranking, query: Query) -> Ints:
        """The candidates, equally good by its lights, that answer a query; none if it calls the query infeasible.

        A technique without promises takes the first configuration that the limits allow. One with promises calls a query infeasible if
        none of the allowed configurations is promised to meet the deadline.
        """
        allowed = query.allows(planning.options, planning.layout, planning.local_bytes)
        if ranking.promise is not None and query.deadline_s is not None:
            allowed &= ranking.promise <= query.deadline_s
        if not allowed.any():
            return np.empty(0, np.int64)
        return np.flatnonzero(allowed & (ranking.score == ranking.score[allowed].min()))


def ranks(*keys: Floats | Ints) -> Floats:
    """One score from several keys, the first of which counts most; equal in all keys is a tie."""
    _, score = np.unique(np.stack([np.asarray(key, float) for key in keys], 1), axis=0, return_inverse=True)
    return np.asarray(score, float).reshape(-1)
