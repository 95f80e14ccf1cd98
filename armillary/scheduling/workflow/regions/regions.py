"""Regions of configurations: leaves of the chosen tree, ordered by median makespan, each with a rule that a person can read."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.workflow.planning.configurations import Configurations, Layout
from armillary.scheduling.workflow.stages.workflow import Floats, Ints

from .tree import Chosen, Settings, Tree, choose, features

if TYPE_CHECKING:
    import polars as pl

#: Rows on which a tree is fitted; from more, a sample by quantiles of the makespan is taken.
MOST_ROWS = 20_000
ANY = "*"


@dataclass(frozen=True)
class Region:
    """One region: its configurations by number, its makespans, and its rule."""

    members: Ints
    median: float
    low: float
    high: float
    q75: float
    #: For each stage, the tiers that it may be on; `*` if its tier is free.
    rule: Mapping[str, str]
    #: The numbers of nodes that occur, or `*`.
    nodes: str

    def said(self) -> str:
        """The rule in words; a stage whose tier is free is left out."""
        parts = [f"{stage} on {tiers}" for stage, tiers in self.rule.items() if tiers != ANY]
        if self.nodes != ANY:
            parts.append(f"{self.nodes} nodes")
        return "; ".join(parts) or "anything"


@dataclass(frozen=True)
class Regions:
    """All regions of a set of configurations, best first."""

    layout: Layout
    configurations: Configurations
    total: Floats
    regions: tuple[Region, ...]
    chosen: Chosen
    tree: Tree
    #: The region of each leaf of the pruned tree.
    by_leaf: Mapping[int, int]

    def locate(self, configurations: Configurations) -> Ints:
        """The region into which each of these configurations falls."""
        leaf = _leaves(self.tree, self.chosen.alpha, configurations, self.layout)
        return np.array([self.by_leaf[one] for one in leaf.tolist()], np.int64)

    @functools.cached_property
    def of(self) -> Ints:
        """The region of each configuration."""
        found = np.empty(len(self.configurations), np.int64)
        for number, region in enumerate(self.regions):
            found[region.members] = number
        return found

    def table(self) -> pl.DataFrame:
        """One row per region: size, makespans in seconds, nodes, and a column per stage."""
        import polars as pl

        rows = [
            {"region": n + 1, "configurations": len(r.members), "median_s": r.median, "low_s": r.low, "q75_s": r.q75, "high_s": r.high,
             "nodes": r.nodes, **r.rule} for n, r in enumerate(self.regions)
        ]  # fmt: skip
        return pl.DataFrame(rows)


def find_regions(
    configurations: Configurations, layout: Layout, total: Floats, settings: Settings, *, merge: bool = False, most_rows: int = MOST_ROWS
) -> Regions:  # fmt: skip
    """The regions of configurations with known or modelled makespans."""
    if len(configurations) < 2:
        raise InputError(f"found {len(configurations)} configurations; expected at least 2", where="configurations")
    rows = stratified(total, most_rows, settings.seed)
    x = features(configurations.at(rows), layout)
    tree = Tree(x, total[rows], settings)
    chosen = choose(x, total[rows], tree, settings)
    leaf = _leaves(tree, chosen.alpha, configurations, layout)
    groups = [(np.flatnonzero(leaf == one), [int(one)]) for one in np.unique(leaf)]
    groups.sort(key=lambda group: (float(np.median(total[group[0]])), int(group[0][0])))
    if merge:
        groups = _merged(groups, total)
    described = tuple(_region(members, configurations, layout, total) for members, _ in groups)
    by_leaf = {one: number for number, (_, leaves) in enumerate(groups) for one in leaves}
    return Regions(layout, configurations, total, described, chosen, tree, by_leaf)


def _leaves(tree: Tree, alpha: float, configurations: Configurations, layout: Layout) -> Ints:
    """The leaf of each configuration, block by block, because the columns of millions of them would not fit into memory."""
    found = np.empty(len(configurations), np.int64)
    for start in range(0, len(found), MOST_ROWS):
        rows = np.arange(start, min(start + MOST_ROWS, len(found)))
        found[rows] = tree.leaf_of(features(configurations.at(rows), layout), alpha)
    return found


def stratified(total: Floats, most: int, seed: int) -> Ints:
    """At most `most` rows, spread evenly over the quantiles of the makespan."""
    if len(total) <= most:
        return np.arange(len(total))
    order = np.argsort(total, kind="stable")
    edges = np.linspace(0, len(total), most + 1).astype(np.int64)
    drawn = np.random.default_rng(seed).random(most)
    return np.sort(order[edges[:-1] + (drawn * np.diff(edges)).astype(np.int64)])


def _merged(groups: Sequence[tuple[Ints, list[int]]], total: Floats) -> list[tuple[Ints, list[int]]]:
    """Joins neighbours whose medians differ by less than 10 % or whose quartiles overlap."""
    done = [groups[0]]
    for members, leaves in groups[1:]:
        first, second = total[done[-1][0]], total[members]
        if np.median(second) < 1.1 * np.median(first) or np.quantile(first, 0.75) > np.quantile(second, 0.25):
            done[-1] = (np.sort(np.concatenate([done[-1][0], members])), done[-1][1] + leaves)
        else:
            done.append((members, leaves))
    return done


def _region(members: Ints, configurations: Configurations, layout: Layout, total: Floats) -> Region:
    rule = {}
    for s, stage in enumerate(layout.stages):
        seen, possible = np.unique(configurations.tier[members, s]), np.unique(configurations.tier[:, s])
        rule[stage] = ANY if len(seen) == len(possible) else "/".join(layout.tiers[t] for t in seen)
    counts, all_counts = np.unique(configurations.nodes[members]), np.unique(configurations.nodes)
    nodes = ANY if len(counts) == len(all_counts) else "/".join(map(str, counts.tolist()))
    of = total[members]
    return Region(members, float(np.median(of)), float(of.min()), float(of.max()), float(np.quantile(of, 0.75)), rule, nodes)


def survival(found: Regions, settings: Settings, times: int = 20, seed: int = 0) -> list[float]:
    """How often each region's rule appears again if the tree is fitted on a bootstrap sample with the same strength of pruning.

    A rule survives if some leaf of the new tree, applied to all configurations, has the same rule and nodes (our design).
    """
    total = found.total
    wanted = [(tuple(region.rule.items()), region.nodes) for region in found.regions]
    count = np.zeros(len(wanted))
    rng = np.random.default_rng(seed)
    for _ in range(times):
        rows = rng.integers(len(total), size=min(len(total), MOST_ROWS))
        tree = Tree(features(found.configurations.at(rows), found.layout), total[rows], settings)
        leaf = _leaves(tree, found.chosen.alpha, found.configurations, found.layout)
        again = set()
        for one in np.unique(leaf):
            region = _region(np.flatnonzero(leaf == one), found.configurations, found.layout, total)
            again.add((tuple(region.rule.items()), region.nodes))
        count += [rule in again for rule in wanted]
    return [float(share) for share in count / times]
