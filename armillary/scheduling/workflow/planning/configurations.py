"""Configurations: a tier for each stage, and a number of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.scheduling.workflow.stages.statistics import Statistics
from armillary.scheduling.workflow.stages.workflow import Ints

#: The most configurations that are enumerated.
MOST = 1 << 22
#: Names of columns that stand beside those of the stages.
RESERVED = (
    "nodes", "region", "configurations", "survival", "median_s", "low_s", "q75_s", "high_s", "makespan_s", "judged_s", "promised_s",
)  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """What a configuration chooses for: stages with their levels and predecessors, and tiers, of which one is shared."""

    stages: tuple[str, ...]
    order: tuple[int, ...]
    #: The predecessors of each stage whose data it reads, and whether it reads initial data.
    before: tuple[tuple[int, ...], ...]
    initial: tuple[bool, ...]
    tiers: tuple[str, ...]
    shared: int
    tasks: tuple[int, ...]

    def __post_init__(self) -> None:
        taken = [stage for stage in self.stages if stage in RESERVED]
        if taken:
            raise InputError(f'found a stage called "{taken[0]}"; expected another name, because tables have a column of that name')

    @staticmethod
    def of(statistics: Statistics, tiers: Sequence[str], shared: int) -> Layout:
        """The layout of a workflow's stages."""
        stages = statistics.stages
        return Layout(
            tuple(s.name for s in stages), tuple(s.order for s in stages), tuple(tuple(sorted(s.reads)) for s in stages),
            tuple(s.initial is not None for s in stages), tuple(tiers), shared, tuple(s.tasks for s in stages),
        )  # fmt: skip

    @property
    def after(self) -> tuple[tuple[int, ...], ...]:
        """The successors of each stage."""
        return tuple(tuple(s for s, before in enumerate(self.before) if p in before) for p in range(len(self.stages)))

    @property
    def orders(self) -> int:
        """The number of levels."""
        return max(self.order, default=-1) + 1


@dataclass(frozen=True)
class Configurations:
    """The tier of each stage (an array by [configuration, stage]) and the nodes of each configuration."""

    tier: npt.NDArray[np.int8]
    nodes: Ints

    def __len__(self) -> int:
        return len(self.nodes)

    def at(self, chosen: Ints | npt.NDArray[np.bool_]) -> Configurations:
        """Some of them."""
        return Configurations(self.tier[chosen], self.nodes[chosen])

    def named(self, n: int, layout: Layout) -> dict[str, str | int]:
        """One of them as `{stage: tier, "nodes": nodes}`."""
        return {**{s: layout.tiers[t] for s, t in zip(layout.stages, self.tier[n].tolist())}, "nodes": int(self.nodes[n])}


def enumerate_configurations(
    layout: Layout, nodes: Sequence[int], *, cross_local: bool = False, sample: int = 0, seed: int = 0, most: int = MOST
) -> Configurations:  # fmt: skip
    """All valid configurations, the nodes varying slowest; with `sample`, that many seeded ones if there are more.

    Data does not move between two different local tiers on an edge unless `cross_local` is set. For the stages of the 1000-genome
    workflow and three tiers this leaves 87 of 243.
    """
    if not nodes or len(set(nodes)) < len(nodes) or min(nodes) < 1:
        raise InputError(f"found {list(nodes)}; expected different numbers of nodes from 1", where="nodes")
    found: npt.NDArray[np.int8] | None = np.zeros((1, 0), np.int8)
    for s in range(len(layout.stages)):
        assert found is not None
        if len(found) * len(layout.tiers) * len(nodes) > len(layout.tiers) * most:
            found = None
            break
        found = _extended(found, s, layout, cross_local)
        # Every configuration so far can be completed, with the shared tier at the least, so this is a lower bound.
        if len(found) * len(nodes) > most:
            found = None
            break
    if found is None or (sample and len(found) * len(nodes) > sample):
        if not sample:
            raise InputError(f"found more than {most:,} configurations; give a sample size with sample (--sample)", where="configurations")
        return _sampled(layout, nodes, cross_local, sample, seed) if found is None else _some(found, nodes, sample, seed)
    return Configurations(np.tile(found, (len(nodes), 1)), np.repeat(np.array(nodes, np.int64), len(found)))


def _extended(found: npt.NDArray[np.int8], s: int, layout: Layout, cross_local: bool) -> npt.NDArray[np.int8]:
    parts = []
    for t in range(len(layout.tiers)):
        fits = np.ones(len(found), bool)
        if t != layout.shared and not cross_local:
            for p in layout.before[s]:
                fits &= (found[:, p] == t) | (found[:, p] == layout.shared)
        parts.append((fits, t))
    # The order of the enumeration is that of counting: the last stage varies fastest.
    count = np.stack([fits for fits, _ in parts], 1)
    rows, tiers = np.nonzero(count)
    return np.concatenate([found[rows], tiers.astype(np.int8)[:, None]], 1)


def _some(found: npt.NDArray[np.int8], nodes: Sequence[int], sample: int, seed: int) -> Configurations:
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(len(found) * len(nodes), sample, replace=False))
    return Configurations(found[chosen % len(found)], np.array(nodes, np.int64)[chosen // len(found)])


def _sampled(layout: Layout, nodes: Sequence[int], cross_local: bool, sample: int, seed: int) -> Configurations:
    """Different random configurations, stage by stage among the tiers that are allowed; fewer if so many are not found."""
    rng = np.random.default_rng(seed)
    drawn = np.zeros((2 * sample, len(layout.stages)), np.int8)
    for s in range(len(layout.stages)):
        allowed = np.ones((len(drawn), len(layout.tiers)), bool)
        for t in range(len(layout.tiers)):
            if t != layout.shared and not cross_local:
                for p in layout.before[s]:
                    allowed[:, t] &= (drawn[:, p] == t) | (drawn[:, p] == layout.shared)
        drawn[:, s] = np.where(allowed, rng.random(allowed.shape), -1.0).argmax(1)
    many = np.concatenate([drawn, rng.integers(len(nodes), size=len(drawn))[:, None]], 1).astype(np.int64)
    unique = np.unique(many, axis=0)
    kept = unique[np.sort(rng.permutation(len(unique))[:sample])]
    return Configurations(kept[:, :-1].astype(np.int8), np.array(nodes, np.int64)[kept[:, -1]])
