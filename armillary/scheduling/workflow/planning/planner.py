"""A workflow whose configurations are to be fitted: from a WfFormat file, from a table of costs, or from measured makespans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.workflow.stages.statistics import ScalingRules, Statistics
from armillary.scheduling.workflow.stages.workflow import Workflow
from armillary.scheduling.workflow.storage.profile import Profile
from armillary.scheduling.workflow.storage.tiers import Machine

from .capacity import fitting
from .configurations import Layout, enumerate_configurations
from .costs import costs_of
from .ranker import Planning

if TYPE_CHECKING:
    from armillary.cluster import Cluster
    from armillary.scheduling.workflow.qosflow import QoSFlow
    from armillary.scheduling.workflow.regions.fitted import Fitted


@dataclass(frozen=True)
class Planner:
    """What is known about a workflow before it runs; `fit` finds its regions."""

    planning: Planning
    workflow: Workflow | None = None

    @staticmethod
    def of(
        workflow: Workflow, machine: Machine, nodes: Sequence[int] = (2, 5, 10), *, profile: Profile | None = None,
        cross_local: bool = False, capacity: bool = False, sample: int = 0, rules: ScalingRules | None = None, scale: float = 1.0,
    ) -> Planner:  # fmt: skip
        """A workflow on a machine.

        `capacity` leaves out configurations whose files do not fit on a local tier. `sample` draws that many configurations if there
        are more. With `rules`, the statistics are projected to `scale` first.
        """
        statistics = Statistics.of(workflow)
        if rules is not None:
            statistics = rules.project(statistics, scale)
        found = plan(statistics, machine, nodes, profile=profile, cross_local=cross_local, capacity=capacity, sample=sample)
        return Planner(found, workflow)

    @staticmethod
    def from_wfformat(
        path: str | Path, *, tiers: Sequence[str] = (), nodes: Sequence[int] = (2, 5, 10), machine: Cluster | str = "tiers-10",
        profile: Profile | None = None, cross_local: bool = False, capacity: bool = False, sample: int = 0,
    ) -> Planner:  # fmt: skip
        """A WfFormat file on a cluster (a description, a preset or a file), with these tiers or all."""
        from armillary.tasks.formats import from_wfformat

        workflow = Workflow.from_graph(from_wfformat(path))
        found = Machine.of(machine, tuple(tiers))
        return Planner.of(workflow, found, nodes, profile=profile, cross_local=cross_local, capacity=capacity, sample=sample)

    @staticmethod
    def from_costs(
        path: str | Path, order: str | Path, *, nodes: Sequence[int] = (2, 5, 10), cross_local: bool = False, shared: str = ""
    ) -> Planner:
        """A table of costs per edge, with the order of stages; `shared` names the shared tier if its name does not tell."""
        from armillary.scheduling.workflow.readers.cost_table import read_costs

        table = read_costs(path, order, shared=shared)
        configurations = enumerate_configurations(table.layout, nodes, cross_local=cross_local)
        costs = tuple(table.at(n, cross_local=cross_local) for n in nodes)
        return Planner(Planning(table.layout, configurations, np.arange(len(configurations)), costs))

    def fit(self, technique: QoSFlow | None = None) -> Fitted:
        """The regions of all configurations."""
        from armillary.scheduling.workflow.qosflow import QoSFlow
        from armillary.scheduling.workflow.regions.fitted import Fitted

        made = technique or QoSFlow()
        return Fitted(made, self.planning, made.regions(self.planning), self.workflow)


def plan(
    statistics: Statistics, machine: Machine, nodes: Sequence[int], *, profile: Profile | None = None, cross_local: bool = False,
    capacity: bool = False, sample: int = 0, seed: int = 0,
) -> Planning:  # fmt: skip
    """Configurations and costs of a workflow's stages on a machine; every configuration is a candidate."""
    layout = Layout.of(statistics, machine.names, machine.shared)
    costs = tuple(costs_of(statistics, machine, n, profile) for n in nodes)
    configurations = enumerate_configurations(layout, nodes, cross_local=cross_local, sample=sample, seed=seed)
    if capacity:
        configurations = fitting(configurations, layout, statistics, machine)
        if not len(configurations):
            raise InputError("no configuration fits on the local tiers, not even everything shared", where=statistics.name)
    return Planning(layout, configurations, np.arange(len(configurations)), costs, statistics, machine)


def fit_table(path: str | Path, technique: QoSFlow, order: str | Path = "", shared: str = "") -> Fitted:
    """Regions of measured configurations."""
    from armillary.scheduling.workflow.readers.configuration_table import read_configurations
    from armillary.scheduling.workflow.regions.fitted import Fitted
    from armillary.scheduling.workflow.regions.regions import find_regions

    table = read_configurations(path, order, shared=shared)
    found = find_regions(table.configurations, table.layout, table.total, technique.settings, merge=technique.merge)
    return Fitted(technique, Planning(table.layout, table.configurations, np.arange(len(table.total))), found)
