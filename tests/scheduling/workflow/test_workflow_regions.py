"""Separation, the tree and its pruning, rules of regions, questions, and the part of each piece."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workflow_examples import GENOME, TWO, TWO_COSTS, random_costs

from armillary.errors import InputError
from armillary.scheduling.workflow import (
    Configurations,
    Layout,
    Machine,
    Planner,
    Planning,
    QoSFlow,
    Settings,
    built_in,
    enumerate_configurations,
    find_regions,
    hedges_g,
    makespans,
    separation,
)
from armillary.scheduling.workflow.regions.regions import stratified
from armillary.scheduling.workflow.regions.separation import MOST_G, is_significant, robust_cv
from armillary.scheduling.workflow.regions.tree import Tree, choose, features

sklearn_tree = pytest.importorskip("sklearn.tree")


def fitted(costs_seed: int = 3, layout: Layout = GENOME, nodes: tuple[int, ...] = (2, 5)) -> tuple[Configurations, np.ndarray]:
    rng = np.random.default_rng(costs_seed)
    found = enumerate_configurations(layout, nodes)
    return found, makespans(found, layout, [random_costs(layout, n, rng) for n in nodes]).total


def test_hedges_g_by_hand() -> None:
    one, two = np.array([1.0, 2, 3, 4]), np.array([3.0, 4, 5, 6])
    assert hedges_g(one, two) == pytest.approx(1.34712, abs=5e-6)
    assert hedges_g(one, two) == pytest.approx(20 / 23 * 2 / math.sqrt(10 / 6))
    assert hedges_g(two, one) == pytest.approx(-hedges_g(one, two))
    assert hedges_g(np.ones(4), np.ones(4)) == 0
    assert hedges_g(np.ones(4), np.full(4, 2.0)) == MOST_G
    assert hedges_g(np.array([1.0]), np.array([2.0])) == 0


def test_separation_by_hand() -> None:
    values = np.array([1.0, 2, 3, 4, 3, 4, 5, 6, 100.0])
    group = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2])
    assert robust_cv(values[:4]) == pytest.approx(1.4826 * 1 / 2.5)
    assert is_significant(values[:4], values[4:8], 0.1)
    assert separation(group, values, 4, 0.1) == pytest.approx(1.34712, abs=5e-6)
    assert separation(group, values, 5, 0.1) == 0.0
    # A gap of the size of the spread is not enough if the threshold is one.
    close = np.array([1.0, 2, 3, 4, 1.1, 2.1, 3.1, 4.1])
    assert separation(np.repeat([0, 1], 4), close, 4, 10.0) == 0.0
    # With a second pair that is not significant, the score is halved by its weight.
    three = np.concatenate([values[:8], [3.05, 4.05, 5.05, 6.05]])
    assert separation(np.repeat([5, 1, 9], 4), three, 4, 10.0) == pytest.approx(1.34712 / 2, abs=5e-6)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(20, 160))
def test_pruning_is_that_of_scikit_learn(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.random((rows, 6)) < 0.5).astype(np.float32)
    y = x @ rng.random(6) + rng.random(rows)
    tree = Tree(x, y, Settings(min_leaf=2))
    theirs = tree.made.cost_complexity_pruning_path(x, y)
    assert tree.strengths == pytest.approx(np.unique(np.maximum(theirs.ccp_alphas, 0)), rel=1e-9, abs=1e-9)
    for alpha in tree.strengths[:-1] * 1.0001 + 1e-9:
        pruned = sklearn_tree.DecisionTreeRegressor(
            criterion="absolute_error", min_samples_leaf=2, max_depth=12, random_state=0, ccp_alpha=float(alpha)
        ).fit(x, y)
        assert tree.leaves(float(alpha)) == pruned.get_n_leaves()
        ours, other = tree.leaf_of(x, float(alpha)), pruned.apply(x)
        assert len(set(zip(ours.tolist(), other.tolist()))) == len(set(other.tolist())), "the same rows share a leaf"
        assert tree.value[ours] == pytest.approx(pruned.predict(x))


def test_the_choice_keeps_its_promise_about_the_error() -> None:
    found, total = fitted()
    x = features(found, GENOME)
    for selection in ("constrained", "pass_only", "weighted", "unpruned"):
        setting = Settings(selection=selection)
        tree = Tree(x, total, setting)
        chosen = choose(x, total, tree, setting)
        assert chosen.alpha in chosen.alphas
        if selection == "constrained":
            at = chosen.alphas.tolist().index(chosen.alpha)
            near = chosen.error <= 1.02 * chosen.error.min() + 1e-12
            assert near[at]
            assert chosen.score[at] == chosen.score[near].max()
        if selection == "unpruned":
            assert chosen.alpha == 0.0


def test_every_configuration_lies_in_one_region_and_regions_are_ordered() -> None:
    found, total = fitted()
    regions = find_regions(found, GENOME, total, Settings())
    members = np.sort(np.concatenate([region.members for region in regions.regions]))
    assert members.tolist() == list(range(len(found)))
    medians = [region.median for region in regions.regions]
    assert medians == sorted(medians)
    assert min(len(region.members) for region in regions.regions) >= 8
    assert np.array_equal(regions.locate(found), regions.of)
    for number, region in enumerate(regions.regions):
        assert region.low == total[regions.of == number].min()
        for s, stage in enumerate(GENOME.stages):
            seen = {GENOME.tiers[t] for t in found.tier[region.members, s]}
            assert region.rule[stage] == "*" if len(seen) == 3 else set(region.rule[stage].split("/")) == seen


def test_a_stage_whose_tier_never_matters_is_free_in_every_region() -> None:
    rng = np.random.default_rng(0)
    alone = Layout((*GENOME.stages, "idle"), (*GENOME.order, 0), (*GENOME.before, ()), (*GENOME.initial, False), GENOME.tiers, 0, (1,) * 6)
    found = enumerate_configurations(alone, [2])
    cost = random_costs(alone, 2, rng)
    for name in ("read", "write", "stage_in", "stage_out", "flush"):
        getattr(cost, name)[5] = 0.0
    cost.compute[5] = 0.0
    regions = find_regions(found, alone, makespans(found, alone, [cost]).total, Settings())
    assert len(regions.regions) > 2
    assert {region.rule["idle"] for region in regions.regions} == {"*"}
    assert any(tiers != "*" for region in regions.regions for tiers in region.rule.values())


def test_doubling_all_costs_doubles_medians_and_changes_no_rule() -> None:
    rng = np.random.default_rng(5)
    found, cost = enumerate_configurations(GENOME, [2]), random_costs(GENOME, 2, rng)
    one = find_regions(found, GENOME, makespans(found, GENOME, [cost]).total, Settings())
    two = find_regions(found, GENOME, makespans(found, GENOME, [cost.scaled(2.0)]).total, Settings())
    assert [region.rule for region in one.regions] == [region.rule for region in two.regions]
    assert [2 * region.median for region in one.regions] == pytest.approx([region.median for region in two.regions])


def test_permuting_the_names_of_tiers_permutes_rules_only() -> None:
    found, total = fitted(nodes=(2,))
    one = find_regions(found, GENOME, total, Settings())
    swap = np.array([0, 2, 1], np.int8)
    other = replace(GENOME, tiers=("beegfs", "tmpfs", "ssd"))
    two = find_regions(Configurations(swap[found.tier], found.nodes), other, total, Settings())
    assert [region.median for region in one.regions] == [region.median for region in two.regions]
    def sets(regions):  # type: ignore[no-untyped-def]
        return [{stage: set(tiers.split("/")) for stage, tiers in region.rule.items()} for region in regions.regions]

    assert sets(one) == sets(two)


def two_stage_fit() -> tuple[Planning, QoSFlow]:
    found = enumerate_configurations(TWO, [1])
    return Planning(TWO, found, np.arange(4), (TWO_COSTS,)), QoSFlow(min_leaf=1, selection="unpruned")


def test_questions_are_answered_on_regions() -> None:
    planning, technique = two_stage_fit()
    fit = Planner(planning).fit(technique)
    best = fit.ask()
    assert best.feasible
    assert best.configuration == {"A": "s", "B": "s", "nodes": 1}
    assert fit.ask(deadline_s=10).configuration == best.configuration
    assert fit.ask(deadline_s=19, tiers=["b"]).feasible is False
    assert fit.ask(deadline_s=20, tiers=["b"]).configuration == {"A": "b", "B": "b", "nodes": 1}
    said = fit.explain({"A": "s", "B": "s", "nodes": 1})
    assert said.makespan_s == pytest.approx(9.3)
    assert said.region == 1
    assert fit.rank()["makespan_s"].to_list() == pytest.approx([9.3, 17.5, 18.1, 20])
    for wrong, match in (({"A": "s"}, "missing"), ({"A": "s", "B": "x"}, "unknown tier"), ({"A": "s", "B": "s", "C": "s"}, "unknown stage"),
                         ({"A": "s", "B": "s", "nodes": 7}, "not valid")):  # fmt: skip
        with pytest.raises(InputError, match=match):
            fit.explain(wrong)
    with pytest.raises(InputError, match="unknown tier"):
        fit.ask(tiers=["tape"])
    with pytest.raises(InputError, match="not negative"):
        fit.ask(deadline_s=float("nan"))
    with pytest.raises(InputError, match="respects the limits"):
        fit.ask(nodes_max=0)


def test_a_deadline_below_the_best_makespan_is_infeasible_with_the_nearest_region() -> None:
    planning, technique = two_stage_fit()
    answer = Planner(planning).fit(technique).ask(deadline_s=5)
    assert not answer.feasible
    assert answer.region == 1
    assert answer.low_s == pytest.approx(9.3)
    assert str(answer).startswith("infeasible; nearest: region 1")


def test_inside_a_region_fewer_nodes_and_less_local_data_come_first() -> None:
    planner = Planner.of(built_in("genome", np.random.default_rng(0), 20), Machine.of("tiers-10"), [2, 5, 10])
    fit = planner.fit()
    loose = fit.ask(deadline_s=1e6)
    region = fit.found.regions[loose.region - 1]
    nodes = fit.found.configurations.nodes[region.members]
    assert loose.configuration["nodes"] == nodes.min()
    limited = fit.ask(nodes_max=5)
    assert int(limited.configuration["nodes"]) <= 5
    assert fit.ask(capacity=1.0).configuration["individuals"] == "beegfs"


def test_a_table_of_measured_makespans_is_ranked_by_trees_that_did_not_see_a_row() -> None:
    """With makespans that no rule explains, rows are ordered by luck; a tree that had seen them would order most of them rightly."""
    from armillary.scheduling.workflow import concordance

    found = enumerate_configurations(GENOME, [2, 5, 10])
    noise = np.random.default_rng(0).uniform(100, 200, len(found))
    planning = Planning(GENOME, found, np.arange(len(found)), measured=noise)
    ranking = QoSFlow(min_leaf=2, selection="unpruned").rank(planning)
    assert 0.4 < concordance(ranking.score, noise) < 0.6
    seen = find_regions(found, GENOME, noise, Settings(min_leaf=2, selection="unpruned"))
    assert concordance(seen.of.astype(float), noise) > 0.75
    ruled = 100.0 - 40 * (found.tier[:, 0] == 2) - 15 * (found.tier[:, 0] == 1) + 20 * (found.nodes == 2) + 7 * (found.tier[:, 4] == 0)
    real = ruled + np.random.default_rng(1).uniform(0, 1, len(found))
    assert concordance(QoSFlow().rank(replace(planning, measured=real)).score, real) > 0.9


def test_merged_regions_are_fewer_and_still_ordered() -> None:
    found, total = fitted()
    plain, merged = (find_regions(found, GENOME, total, Settings(selection="unpruned"), merge=m) for m in (False, True))
    assert 1 <= len(merged.regions) < len(plain.regions)
    for first, second in zip(merged.regions, merged.regions[1:]):
        assert second.median >= 1.1 * first.median
    assert np.array_equal(merged.locate(found), merged.of)


def test_a_stratified_sample_covers_all_quantiles() -> None:
    total = np.random.default_rng(0).permutation(10_000).astype(float)
    rows = stratified(total, 100, 0)
    assert len(rows) == 100
    assert np.bincount((total[rows] // 100).astype(int)).tolist() == [1] * 100
    found, made = fitted()
    few = find_regions(found, GENOME, made, Settings(min_leaf=4), most_rows=60)
    assert sum(len(region.members) for region in few.regions) == len(found), "all are scored"


def test_rules_survive_resampling_where_the_gap_is_wide() -> None:
    """One stage decides everything: its two sides are found again in every bootstrap sample."""
    layout = Layout(("a", "b"), (0, 0), ((), ()), (True, True), ("x", "y", "z"), 0, (1, 1))
    found = enumerate_configurations(layout, [1, 2, 4, 8], cross_local=True)
    total = np.where(found.tier[:, 0] == 2, 10.0, 100.0)
    fit_of = find_regions(found, layout, total, Settings(min_leaf=4))
    from armillary.scheduling.workflow.regions.regions import survival

    assert [region.rule["a"] for region in fit_of.regions] == ["z", "x/y"]
    assert survival(fit_of, Settings(min_leaf=4), 5) == [1.0, 1.0]
    with pytest.raises(InputError, match="at least 2"):
        find_regions(found.at(np.array([0])), layout, total[:1], Settings())
