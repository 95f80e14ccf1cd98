"""The placement policies, against hand-made answers, brute force and bounds that share no code with them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.scheduling.mesh import Cplx, Graph, Machine, State, locality, place
from armillary.scheduling.mesh.cdp import cdp, chunks
from armillary.scheduling.mesh.contiguous import contiguous
from armillary.scheduling.mesh.contiguous_best import best_contiguous
from armillary.scheduling.mesh.cplx import cplx, rebalanced, select
from armillary.scheduling.mesh.ilp import exact
from armillary.scheduling.mesh.lpt import lpt
from armillary.scheduling.mesh.octree.scenes import drawn_costs
from armillary.scheduling.mesh.placement.policy import loads

TEN = np.array([5.0, 1, 1, 1, 1, 5, 1, 1, 4, 2])
POLICIES = ("baseline", "cyclic", "contiguous", "contiguous-best", "cdp", "lpt", "cplx")

whole_costs = st.lists(st.integers(0, 30), min_size=1, max_size=11).filter(any).map(lambda c: np.array(c, float))


def maximum(costs: np.ndarray, placement: np.ndarray, ranks: int) -> float:
    return float(loads(costs, placement, ranks).max())


def test_ten_blocks_on_four_ranks_by_hand() -> None:
    assert contiguous(TEN, 4).tolist() == [0, 1, 1, 1, 1, 2, 2, 2, 3, 3]
    assert loads(TEN, contiguous(TEN, 4), 4).tolist() == [5, 4, 7, 6]
    assert cdp(TEN, 4).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]
    assert loads(TEN, cdp(TEN, 4), 4).tolist() == [7, 7, 2, 6]
    assert sorted(loads(TEN, lpt(TEN, 4), 4)) == [5, 5, 6, 6]
    assert cplx(TEN, 4, 50).tolist() == [0, 2, 2, 1, 1, 1, 2, 2, 3, 3]
    assert loads(TEN, cplx(TEN, 4, 50), 4).tolist() == [5, 7, 4, 6]
    assert maximum(TEN, cplx(TEN, 4, 100), 4) == 6
    assert maximum(TEN, best_contiguous(TEN, 4), 4) == 7
    assert maximum(TEN, exact(TEN, 4), 4) == 6


def test_blocks_are_dealt_out_in_turn() -> None:
    assert place(TEN, 4, "cyclic").tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]


def test_unit_costs_fill_the_last_ranks_first() -> None:
    assert place(TEN, 4, "baseline").tolist() == [0, 0, 1, 1, 2, 2, 2, 3, 3, 3]


def test_x_0_is_cdp() -> None:
    rng = np.random.default_rng(0)
    for _ in range(1000):
        ranks = int(rng.integers(1, 40))
        costs = rng.random(ranks + int(rng.integers(0, 120)))
        assert np.array_equal(cplx(costs, ranks, 0), cdp(costs, ranks))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_every_rank_of_cdp_has_nearly_the_same_number_of_blocks(data: st.DataObject) -> None:
    ranks = data.draw(st.integers(1, 40))
    n = data.draw(st.integers(ranks, 200))
    chunk = data.draw(st.integers(1, 50))
    costs = np.random.default_rng(data.draw(st.integers(0, 99))).random(n)
    placement = cdp(costs, ranks, chunk, even="equal")
    sizes, bounds = chunks(costs, ranks, chunk)
    assert sizes.sum() == ranks
    assert sizes.max() <= chunk
    assert sizes.max() - sizes.min() <= 1
    assert (np.diff(placement) >= 0).all()
    assert np.diff(placement).max(initial=0) <= 1
    first = 0
    for size, begin, end in zip(sizes, bounds, bounds[1:], strict=False):
        counts = np.bincount(placement[begin:end] - first, minlength=size)
        assert len(counts) == size
        assert set(counts) <= {(end - begin) // size, -(-(end - begin) // size)}
        first += size


@given(whole_costs, st.integers(1, 11))
@settings(max_examples=120, deadline=None)
def test_no_contiguous_placement_beats_the_enumeration(costs: np.ndarray, ranks: int) -> None:
    n = len(costs)
    ranks = min(ranks, n)
    best, restricted = math.inf, math.inf
    for cuts in itertools.combinations(range(1, n), ranks - 1):
        edges = (0, *cuts, n)
        largest = max(costs[a:b].sum() for a, b in itertools.pairwise(edges))
        best = min(best, largest)
        if {b - a for a, b in itertools.pairwise(edges)} <= {n // ranks, -(-n // ranks)}:
            restricted = min(restricted, largest)
    assert maximum(costs, best_contiguous(costs, ranks), ranks) == best
    assert maximum(costs, cdp(costs, ranks, even="equal"), ranks) == restricted >= best
    assert maximum(costs, contiguous(costs, ranks), ranks) >= best


@given(st.lists(st.integers(1, 20), min_size=2, max_size=8).map(lambda c: np.array(c, float)), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_lpt_keeps_grahams_bound_and_no_policy_beats_brute_force(costs: np.ndarray, ranks: int) -> None:
    ranks = min(ranks, len(costs))
    optimum = min(maximum(costs, np.array(way), ranks) for way in itertools.product(range(ranks), repeat=len(costs)))
    assert optimum <= maximum(costs, lpt(costs, ranks), ranks) <= (4 / 3 - 1 / (3 * ranks)) * optimum + 1e-9
    for policy in POLICIES:
        assert maximum(costs, place(costs, ranks, policy), ranks) >= optimum
    assert maximum(costs, exact(costs, ranks), ranks) == pytest.approx(optimum)


@pytest.mark.parametrize("policy", POLICIES)
def test_equal_costs_are_balanced_and_stay(policy: str) -> None:
    costs = np.full(60, 3.0)
    placement = place(costs, 12, policy)
    assert loads(costs, placement, 12).tolist() == [15.0] * 12
    if policy == "cplx":
        assert np.array_equal(placement, cdp(costs, 12))


def test_more_x_balances_more_and_scatters_more() -> None:
    found = np.zeros((5, 4, 2))
    for seed in range(5):
        costs = drawn_costs("lognormal", 1736, np.random.default_rng(seed))
        for at, x in enumerate((0, 25, 50, 100)):
            placement = cplx(costs, 512, x)
            load = loads(costs, placement, 512)
            found[seed, at] = load.max() / load.mean(), locality(placement, 16)
    assert (np.diff(found[..., 0]) < 0).all()
    assert (np.diff(found[..., 1]) > 0).all()
    imbalance, scattered = found.mean(0).T
    assert list(imbalance) == sorted(imbalance, reverse=True)
    assert list(scattered) == sorted(scattered)
    assert imbalance[0] == pytest.approx(1.80, abs=0.1)
    assert imbalance[2] == pytest.approx(1.29, abs=0.08)
    assert scattered[0] == pytest.approx(0.29, abs=0.02)
    assert scattered[2] == pytest.approx(1.74, abs=0.1)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_unit_of_cost_does_not_matter(policy: str) -> None:
    costs = np.random.default_rng(1).integers(1, 1000, 500).astype(float)
    first = place(costs, 77, policy)
    for factor in (0.25, 1024.0, 3.0):
        assert np.array_equal(place(factor * costs, 77, policy), first)


def test_a_prime_number_of_ranks_is_solved_in_chunks_nearly_as_well() -> None:
    costs = drawn_costs("lognormal", 3500, np.random.default_rng(2))
    whole = maximum(costs, cdp(costs, 1021, 1021), 1021)
    assert whole <= maximum(costs, cdp(costs, 1021), 1021) <= 1.1 * whole


def test_if_ranks_divide_blocks_costs_cut_unless_equal_pieces_are_asked_for() -> None:
    costs = np.array([9.0, 1, 1, 1, 1, 1])
    assert cdp(costs, 3).tolist() == contiguous(costs, 3).tolist() == [0, 1, 2, 2, 2, 2]
    assert cdp(costs, 3, even="equal").tolist() == [0, 0, 1, 1, 2, 2]


def test_ranks_are_chosen_from_both_ends_until_nothing_is_to_gain() -> None:
    load = np.array([10.0, 10, 1, 10, 19])
    assert select(load, 5).tolist() == [4, 2]  # The mean of 19 and 1 is the overall mean.
    assert select(load, 1).tolist() == [4]
    assert select(load, 0).tolist() == []
    # 101 and 99 are both within 2 % of the mean: the first pair is taken, then it stops.
    assert select(np.array([101.0, 100, 100, 99]), 4).tolist() == [0, 3]
    assert select(np.array([101.0, 101, 99.5, 98.5]), 4, threshold=0.0).tolist() == [0, 1, 2, 3]
    assert select(np.full(4, 7.0), 4).tolist() == [0]


def test_light_ranks_come_after_the_heavy_ones_by_decreasing_load() -> None:
    load = np.array([30.0, 1, 2, 29, 18])
    assert select(load, 4, threshold=0.0).tolist() == [0, 3, 2, 1]


@given(st.integers(0, 10_000), st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_unchosen_ranks_keep_their_blocks_and_the_maximum_never_rises(seed: int, x: int) -> None:
    rng = np.random.default_rng(seed)
    ranks = int(rng.integers(2, 60))
    costs = rng.exponential(size=ranks + int(rng.integers(1, 200)))
    start = cdp(costs, ranks)
    chosen = select(loads(costs, start, ranks), int(ranks * x / 100))
    placement = cplx(costs, ranks, x)
    outside = ~np.isin(start, chosen)
    assert np.array_equal(placement[outside], start[outside])
    assert set(placement[~outside]) <= set(chosen)
    # LPT on the chosen ranks is at most 4/3 of the best for them, and the contiguous start is one way to place them.
    assert maximum(costs, placement, ranks) <= 4 / 3 * maximum(costs, start, ranks) + 1e-9


def test_alternatives_choose_fewer_ranks_at_no_higher_maximum() -> None:
    costs = drawn_costs("power-law", 410, np.random.default_rng(3))  # One block is the maximum of any placement.
    start = cdp(costs, 100)
    plain, fewer = rebalanced(costs, start, 100, 80), rebalanced(costs, start, 100, 80, alternatives=4)
    assert maximum(costs, fewer, 100) <= maximum(costs, plain, 100)
    assert (fewer != start).sum() < (plain != start).sum()


def test_the_walk_of_the_dial_needs_no_more_than_a_million_blocks_can_bear() -> None:
    """The table of the dynamic program is that of a chunk, whatever the number of blocks."""
    costs = np.random.default_rng(0).random(60_000)
    placement = place(costs, 8192, "cplx")
    assert np.bincount(placement, minlength=8192).min() >= 1
    with pytest.raises(InputError, match="8192"):
        place(costs, 8192, "cplx", chunk=10_000)


@pytest.mark.parametrize(
    ("costs", "ranks", "more", "match"),
    [
        ([1.0, 2.0], 3, {}, "2 blocks for 3 ranks"),
        ([1.0, -2.0], 1, {}, "block 1: found the cost -2"),
        ([1.0, math.nan], 1, {}, "block 1"),
        ([1.0, math.inf], 1, {}, "block 1"),
        ([1.0], 0, {}, "from 1 on"),
        ([1.0], -4, {}, "from 1 on"),
        ([1.0], 1, {"x": 101}, "from 0 to 100"),
        ([1.0], 1, {"x": -1}, "from 0 to 100"),
        ([1.0], 1, {"policy": "best"}, "unknown policy"),
        ([1.0], 1, {"policy": "metis"}, "expected the messages"),
        ([[1.0]], 1, {}, "one cost per block"),
        ([1.0, 1.0], 1, {"graph": Graph.empty(3)}, "graph of 3 blocks"),
        ([1.0], 1, {"trigger": "often"}, "trigger"),
    ],
)
def test_bad_input_is_one_line(costs: list[float], ranks: int, more: dict[str, object], match: str) -> None:
    with pytest.raises(InputError, match=match) as error:
        place(costs, ranks, **more)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("policy", POLICIES)
def test_degenerate_work(policy: str) -> None:
    assert place([4.0], 1, policy).tolist() == [0]
    assert sorted(place([4.0, 0.0, 2.0], 3, policy)) == [0, 1, 2] or policy == "lpt"
    assert set(place(np.zeros(6), 3, policy)) == {0, 1, 2}
    assert set(place(np.r_[1e15, np.zeros(9)], 2, policy)) <= {0, 1}


def test_unchanged_costs_get_the_cached_answer() -> None:
    class Counting(Cplx):
        asked = 0

        def at(self, state: State, x: float) -> np.ndarray:
            type(self).asked += 1
            return super().at(state, x)

    session = Counting().session()
    state = State(TEN, 4, Graph.empty(10), Machine())
    assert session.place(state) is session.place(State(TEN.copy(), 4, state.graph, Machine()))
    assert Counting.asked == 1
    session.place(State(TEN[::-1].copy(), 4, state.graph, Machine()))
    assert Counting.asked == 2
