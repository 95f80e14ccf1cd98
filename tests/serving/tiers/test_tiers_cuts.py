"""Cuts agree with hand-made cases, with a search over every cut, and with the classic programme without bisection."""

from __future__ import annotations

from itertools import combinations, combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import cluster
from armillary.errors import InputError
from armillary.llm import Model, flops
from armillary.serving.tiers import BlockCosts, EdgeShard, GPipe, Heft, Hierarchy, Hyperion, Mix, bsdp, robust_bsdp
from armillary.serving.tiers.edgeshard import least_latency
from armillary.serving.tiers.workload import equal_tiers

COST = [2.0] * 9 + [6.0]
ONES = [1.0] * 10


def test_the_bound_by_hand():
    cuts, bound = bsdp(COST, ONES, [1, 2, 4], [3, 4, 10])
    assert (cuts, bound) == ((1, 4), 4.0)
    # Equal splits would do 6.0 (3, 4, 3) or 8.0 (4, 3, 3).
    assert bsdp(COST, ONES, [1, 2, 4], [1, 1, 10]) == ((1, 2), 5.0)


def test_scaling_costs_scales_the_bound_and_nothing_else():
    cuts, bound = bsdp(COST, ONES, [1, 2, 4], [3, 4, 10])
    assert bsdp([1e6 * c for c in COST], ONES, [1, 2, 4], [3, 4, 10]) == (cuts, pytest.approx(1e6 * bound))
    assert bsdp(COST, ONES, [1e-9, 2e-9, 4e-9], [3, 4, 10]) == (cuts, pytest.approx(1e9 * bound))


def test_one_tier_has_no_cut():
    assert bsdp(COST, ONES, [2.0], [10]) == ((), 12.0)


def every_cut(cost, memory, capacity, budget, transfer=None, *, skip=False):
    """(bound, transfers, sum of stages, cuts) of every cut that fits."""
    n, tiers = len(cost), len(capacity)
    choices = combinations(range(1, n), tiers - 1) if not skip else combinations_with_replacement(range(n + 1), tiers - 1)
    for cuts in choices:
        edges = [0, *cuts, n]
        if all(sum(memory[a:b]) <= budget[j] * (1 + 1e-9) for j, (a, b) in enumerate(pairwise(edges))):
            stages = [sum(cost[a:b]) / capacity[j] for j, (a, b) in enumerate(pairwise(edges))]
            moved = 0.0 if transfer is None else sum(transfer[j][c] for j, c in enumerate(cuts))
            yield max(stages), moved, sum(stages), cuts



numbers = st.integers(1, 9).map(float)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=11), st.lists(st.tuples(numbers, st.integers(1, 40)), min_size=1, max_size=4),
       st.booleans(), st.integers(0, 2**31))  # fmt: skip
def test_no_cut_has_a_lower_bound(blocks, tiers, skip, seed):
    cost, memory = (list(x) for x in zip(*blocks, strict=True))
    capacity, budget = (list(x) for x in zip(*tiers, strict=True))
    transfer = np.random.default_rng(seed).integers(0, 4, (len(capacity) - 1, len(cost) + 1)).astype(float)
    if len(capacity) > len(cost) and not skip:
        with pytest.raises(InputError, match="at least one block per tier"):
            bsdp(cost, memory, capacity, budget)
        return
    found = sorted(every_cut(cost, memory, capacity, budget, transfer, skip=skip))
    if not found:
        with pytest.raises(InputError, match=r"memory|times as much"):
            bsdp(cost, memory, capacity, budget, transfer=transfer, skip_tiers=skip)
        return
    cuts, bound = bsdp(cost, memory, capacity, budget, transfer=transfer, skip_tiers=skip)
    assert bound == pytest.approx(found[0][0], rel=1e-9)
    # Among the best the transfers are least, then the sum of stages.
    mine = next(f for f in found if f[3] == cuts)
    best = [f for f in found if f[0] <= bound * (1 + 1e-9)]
    assert mine[1] == pytest.approx(min(f[1] for f in best))
    assert mine[2] == pytest.approx(min(f[2] for f in best if f[1] <= mine[1] + 1e-9))


def linear_partition(cost, memory, capacity, budget):
    """The classic programme: the least largest stage over all prefixes, tier by tier."""
    n = len(cost)
    best = [0.0] + [np.inf] * n
    for j, speed in enumerate(capacity):
        best = [
            min((max(best[a], sum(cost[a:b]) / speed) for a in range(b) if sum(memory[a:b]) <= budget[j]), default=np.inf)
            for b in range(n + 1)
        ]  # fmt: skip
    return best[n]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31))
def test_larger_models_agree_with_the_programme_without_bisection(seed):
    rng = np.random.default_rng(seed)
    cost, memory = rng.uniform(0.5, 2.0, 40).tolist(), rng.uniform(0.5, 1.5, 40).tolist()
    capacity, budget = rng.uniform(1, 10, 5).tolist(), rng.uniform(8, 20, 5).tolist()
    expected = linear_partition(cost, memory, capacity, budget)
    if not np.isfinite(expected):
        with pytest.raises(InputError):
            bsdp(cost, memory, capacity, budget)
    else:
        assert bsdp(cost, memory, capacity, budget)[1] == pytest.approx(expected, rel=1e-9)


def test_what_does_not_fit_is_said_with_what_would():
    with pytest.raises(InputError, match=r"10 bytes of blocks .* budgets of at least 2 times as much") as caught:
        bsdp(COST, ONES, [1, 2, 4], [2, 2, 2])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([1, 1], [1, 1], [1, 0], [9, 9]), "capacity"),
        (([1, 1], [1, 1], [1, -1], [9, 9]), "capacity"),
        (([1, 0], [1, 1], [1, 1], [9, 9]), "cost"),
        (([1, np.nan], [1, 1], [1, 1], [9, 9]), "cost"),
        (([1, 1], [1], [1, 1], [9, 9]), "blocks and tiers"),
        (([1, 1], [1, 1], [1, 1], [9, -1]), "budget"),
        (([1], [1], [1, 1], [9, 9]), "at least one block per tier"),
        (([1, 1], [1, 1], [1, 1], [0, 9]), "tier 0 has no memory"),
    ],
)
def test_bad_numbers(arguments, said):
    with pytest.raises(InputError, match=said):
        bsdp(*arguments)


def test_a_robust_cut_is_best_on_average_over_all_cuts():
    rng = np.random.default_rng(SEED)
    n, tiers, scenarios = 12, 3, 6
    cost, memory, budget = rng.uniform(1, 2, n), np.ones(n), [6.0, 6.0, 12.0]
    capacities = rng.uniform(1, 6, (scenarios, tiers))
    transfers = rng.uniform(0, 3, (scenarios, tiers - 1, 1)) * np.ones((1, 1, n + 1))
    cuts, mean = robust_bsdp(cost, memory, capacities, budget, transfers)

    def value(cuts):
        stages = np.diff(np.concatenate([[0], np.cumsum(cost)])[[0, *cuts, n]])
        pairs = zip(capacities, transfers, strict=True)
        return float(np.mean([(stages / c).max() + sum(t[j, x] for j, x in enumerate(cuts)) for c, t in pairs]))

    every = [c for c in combinations(range(1, n), 2) if c[0] <= 6 and c[1] - c[0] <= 6]
    assert mean == pytest.approx(value(cuts))
    assert mean <= min(map(value, every)) * 1.02
    assert mean <= min(value(bsdp(cost, memory, c, budget)[0]) for c in capacities) + 1e-12


SEED = 5


def test_least_latency_against_every_cut():
    rng = np.random.default_rng(SEED)
    for _ in range(20):
        tiers, n = 3, 7
        seconds, memory = rng.uniform(0.1, 2, (tiers, n)), rng.uniform(0.5, 1.5, n)
        budget, transfer = np.array([3.0, 4.0, 6.0]), rng.uniform(0, 2, (tiers - 1, n + 1))
        found = []
        for a, b in combinations_with_replacement(range(n + 1), 2):
            parts = [(0, a), (a, b), (b, n)]
            if a >= 1 and all(memory[lo:hi].sum() <= room for (lo, hi), room in zip(parts, budget, strict=True)):
                spent = sum(seconds[j, lo:hi].sum() for j, (lo, hi) in enumerate(parts)) + transfer[0, a] + transfer[1, b]
                found.append((spent, (a, b)))
        cuts, best = least_latency(seconds, memory, budget, transfer)
        assert best == pytest.approx(min(found)[0])
        assert cuts == min(found)[1]


def test_models_are_cut_by_the_speed_of_their_tiers():
    tiers = Hierarchy.of_cluster(cluster.find("tiers-3"))
    costs, mix = BlockCosts(Model.find("phi-3-medium"), tiers), Mix(128, 128)
    plan = Hyperion().cut(costs, mix)
    counts = [hi - lo for lo, hi in plan.segments]
    assert sum(counts) == 40
    assert counts == sorted(counts)
    assert [hi - lo for lo, hi in GPipe().cut(costs, mix).segments] == [13, 14, 13]
    each = costs.flops(mix)
    even = [each[lo:hi].sum() for lo, hi in Heft().cut(costs, mix).segments]
    assert max(even) - min(even) <= 2 * each.max()
    assert EdgeShard().cut(costs, mix).cuts[0] >= 1


def test_equal_tiers_get_equal_parts():
    costs = BlockCosts(Model.find("llama-3-8b"), equal_tiers())
    mix = Mix(128, 128)
    for kind in ("flops", "time"):
        work = costs.work(kind, mix)
        stages = [work[lo:hi].sum() for lo, hi in Hyperion(cost=kind).cut(costs, mix).segments]
        # The head costs more than a block and cannot be cut.
        assert max(stages) <= work.sum() / 3 + work[0]


def test_flops_of_the_blocks_are_those_of_the_model():
    costs = BlockCosts(Model.find("llama-3-8b"), equal_tiers())
    p, n = 50, 7
    whole = flops(costs.model, [(p, 0), *((1, p + i) for i in range(1, n))], logits="last")
    assert costs.flops(Mix(p, n)).sum() == pytest.approx(whole.forward, rel=1e-3)


def test_weights_of_the_blocks_are_those_of_the_model():
    for name in ("llama-3-8b", "phi-3-medium"):
        model = Model.find(name)
        assert BlockCosts(model, equal_tiers()).weights.sum() == pytest.approx(model.weight_bytes())


def test_plans_in_the_words_of_other_programs():
    plan = Hyperion().plan("phi-3-medium")
    assert plan.pipeline_split() == [f"model.layers.{c}" for c in plan.cuts]
    counts = [hi - lo for lo, hi in plan.segments]
    assert plan.llama_cpp(["a:1", "b:2", "c:3"]) == ["--tensor-split", ",".join(map(str, counts)), "--rpc", "a:1,b:2,c:3"]
    assert plan.table().rows()[0] == ("edge", 0, counts[0] - 1, counts[0])
    with pytest.raises(InputError, match="hosts"):
        plan.llama_cpp(["a:1"])
