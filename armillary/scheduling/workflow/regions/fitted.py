"""Fitted regions: what a user asks them, and what leaves for a workflow system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError, unknown
from armillary.scheduling.workflow.planning.configurations import Configurations, Layout
from armillary.scheduling.workflow.planning.makespan import Sensitivity, critical_path, makespans, sensitivity
from armillary.scheduling.workflow.planning.query import Query
from armillary.scheduling.workflow.planning.ranker import Planning, Ranking

from .regions import Regions, survival

if TYPE_CHECKING:
    import polars as pl

    from armillary.scheduling.workflow.qosflow import QoSFlow
    from armillary.scheduling.workflow.stages.workflow import Workflow

Configuration = Mapping[str, "str | int"]


@dataclass(frozen=True)
class Explanation:
    """Why a configuration takes as long as it does, by the analytic model."""

    makespan_s: float
    critical_path: str
    shares: Sensitivity
    region: int
    rule: str


@dataclass(frozen=True)
class Answer:
    """The answer to a question: a region, its rule and range, and one configuration; or that there is none, and the nearest region."""

    feasible: bool
    region: int
    rule: str
    low_s: float
    high_s: float
    configuration: dict[str, str | int]

    def __str__(self) -> str:
        said = f"region {self.region} ({self.rule}), {self.low_s:.4g} to {self.high_s:.4g} s"
        where = ", ".join(f"{stage}: {tier}" for stage, tier in self.configuration.items())
        return f"{said}; for example {where}" if self.feasible else f"infeasible; nearest: {said}; for example {where}"


class Fitted:
    """Regions of a workflow's configurations, to be asked."""

    def __init__(self, technique: QoSFlow, planning: Planning, found: Regions, workflow: Workflow | None = None) -> None:
        self.technique, self.planning, self.found, self.workflow = technique, planning, found, workflow

    @property
    def layout(self) -> Layout:
        """Stages and tiers."""
        return self.planning.layout

    def regions(self, *, bootstrap: int = 0) -> pl.DataFrame:
        """One row per region, best first, with makespans in seconds and the tiers of each stage, where `*` means any.

        With `bootstrap`, the column `survival` says in which share of that many resamplings the same rule was found again.
        """
        import polars as pl

        table = self.found.table()
        if bootstrap:
            again = survival(self.found, self.technique.settings, bootstrap, self.technique.seed)
            table = table.insert_column(2, pl.Series("survival", again))
        return table

    def ask(
        self, deadline_s: float | None = None, nodes_max: int | None = None, tiers: Sequence[str] | None = None,
        capacity: float | None = None,
    ) -> Answer:  # fmt: skip
        """The first region that meets all conditions, with the configuration of fewest nodes and least local data in it.

        A deadline is met by a region whose upper quartile is not above it. Without a deadline, the least time is asked for. `capacity`
        is in bytes per node on each local tier.
        """
        query = Query(deadline_s, nodes_max, None if tiers is None else tuple(tiers), capacity)
        query.check(self.layout)
        everything = self.planning.configurations
        planning = Planning(
            self.layout, everything, np.arange(len(everything)), self.planning.costs, self.planning.statistics, self.planning.machine
        )
        allowed = query.allows(everything, self.layout, planning.local_bytes)
        if not allowed.any():
            raise InputError("no configuration respects the limits; expected more nodes, tiers or capacity", where="ask")
        ranking = self._ranking()
        best = self.technique.answer(planning, ranking, query)
        feasible = len(best) > 0
        if not feasible:
            best = self.technique.answer(planning, ranking, Query(None, nodes_max, query.tiers, capacity))
        return self._answer(int(best[0]), feasible)

    def _ranking(self) -> Ranking:
        from armillary.scheduling.workflow.qosflow import QoSRanking

        region = self.found.of
        return QoSRanking(
            region.astype(float), np.array([one.median for one in self.found.regions])[region],
            np.array([one.q75 for one in self.found.regions])[region],
        )  # fmt: skip

    def _answer(self, n: int, feasible: bool) -> Answer:
        number = int(self.found.of[n])
        region = self.found.regions[number]
        return Answer(feasible, number + 1, region.said(), region.low, region.high, self.found.configurations.named(n, self.layout))

    def rank(self) -> pl.DataFrame:
        """All configurations, best region first, with the makespan that was modelled or given."""
        import polars as pl

        configurations = self.found.configurations
        order = np.lexsort((self.found.total, self.found.of))
        rows = [
            {"region": int(self.found.of[n]) + 1, "makespan_s": float(self.found.total[n]), **configurations.named(n, self.layout)}
            for n in order.tolist()
        ]
        return pl.DataFrame(rows)

    def number(self, configuration: Configuration) -> int:
        """The number of a configuration `{stage: tier, "nodes": nodes}`."""
        tiers = []
        for stage in self.layout.stages:
            if stage not in configuration:
                raise InputError(f'stage "{stage}" is missing', where="configuration")
            if configuration[stage] not in self.layout.tiers:
                raise unknown("tier", str(configuration[stage]), self.layout.tiers, where=stage)
            tiers.append(self.layout.tiers.index(str(configuration[stage])))
        for name in configuration:
            if name != "nodes" and name not in self.layout.stages:
                raise unknown("stage", name, self.layout.stages, where="configuration")
        all_of: Configurations = self.found.configurations
        nodes = configuration.get("nodes", int(all_of.nodes[0]))
        found = np.flatnonzero((all_of.tier == np.array(tiers, np.int8)).all(1) & (all_of.nodes == nodes))
        if not len(found):
            raise InputError("this configuration is not valid, or was not among those that were fitted", where="configuration")
        return int(found[0])

    def explain(self, configuration: Configuration) -> Explanation:
        """The critical path of a configuration, the shares of its makespan, and its region."""
        n = self.number(configuration)
        number = int(self.found.of[n])
        one = self.planning.configurations.at(np.array([n]))
        cost = next((cost for cost in self.planning.costs if cost.nodes == int(one.nodes[0])), None)
        if cost is None:
            raise InputError("a table of makespans has no costs to explain them with", where="explain")
        model = makespans(one, self.layout, [cost])
        shares = sensitivity(0, model, one.tier[0], self.layout, cost)
        path = critical_path(0, model, self.layout, cost.tasks_per_node)
        return Explanation(float(model.total[0]), path, shares, number + 1, self.found.regions[number].said())

    def to_slurm(self, configuration: Configuration, folder: str | Path) -> list[Path]:
        """Writes a job script per stage and `submit.sh`; see `sockets.job_scripts`."""
        from armillary.scheduling.workflow.sockets.job_scripts import write_scripts

        if self.workflow is None:
            raise InputError("job scripts need a workflow with tasks and files", where="to_slurm")
        return write_scripts(self, configuration, Path(folder))

    def to_snakemake(self, configuration: Configuration) -> str:
        """A Snakemake profile with the resources of each rule; see `sockets.snakemake`."""
        from armillary.scheduling.workflow.sockets.snakemake import profile_of

        return profile_of(self, configuration)
