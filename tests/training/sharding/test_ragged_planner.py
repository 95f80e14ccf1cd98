"""The planner: optima by hand and by brute force, properties of every plan, and what it says of bad input."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.llm import Model
from armillary.training.sharding import ragged, shapes_of
from armillary.training.sharding.ragged.planner import cut_blocks, plan_weights
from armillary.training.sharding.ragged.search import earliest

Pairs = list[tuple[int, int]]


def weights(pairs: Pairs) -> list[ragged.Weight]:
    """Tensors of (size, granularity): g columns with whole rows, or vectors."""
    return [ragged.Weight(str(i), (e // g, g) if g > 1 else (e,), "row" if g > 1 else 1) for i, (e, g) in enumerate(pairs)]


ABCD: Pairs = [(24, 8), (12, 4), (10, 1), (9, 3)]


@pytest.mark.parametrize(("n", "shard"), [(2, 28), (3, 19), (4, 16), (5, 16)])
def test_four_tensors_by_hand(n: int, shard: int) -> None:
    assert plan_weights(weights(ABCD), n, align=1).shard == shard


@pytest.mark.parametrize(("n", "shard"), [(2, 203), (3, 144), (4, 128), (6, 128)])
def test_two_matrices_in_blocks_of_four_rows(n: int, shard: int) -> None:
    shapes = {"w1": (12, 16), "w2": (16, 12), "b": (16,), "n": (5,)}
    plan = ragged.plan(shapes, n, [{"pattern": "w*", "block": [4, 4]}], align=1)
    assert plan.shard == shard
    assert plan.cut_blocks() == 0


def test_a_big_block_forces_padding_and_the_bound_says_so() -> None:
    plan = plan_weights(weights([(6144, 2048), (3200, 64), (7, 1)]), 4, align=1)
    assert (plan.shard, plan.bound, plan.gap) == (4096, 4096, 0.0)
    assert plan.padding_ratio == pytest.approx(4 * 4096 / 9351 - 1)


def fits(order: tuple[tuple[int, int], ...], n: int, shard: int) -> bool:
    """Whether tensors in this order fit, trying every offset one by one."""
    x = 0
    for e, g in order:
        while x + e <= n * shard and any((k * shard - x) % g for k in range(x // shard + 1, (x + e - 1) // shard + 1)):
            x += 1
        x += e
        if x > n * shard:
            return False
    return True


def smallest(pairs: Pairs, n: int) -> int:
    """The smallest shard over all orders."""
    orders = set(itertools.permutations(pairs))
    shard = max(-(-sum(e for e, _ in pairs) // n), max(g for _, g in pairs))
    while not any(fits(order, n, shard) for order in orders):
        shard += 1
    return shard


def instances(count: int, seed: int) -> list[tuple[Pairs, int]]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        grains = rng.choice([1, 2, 3, 4, 6, 8], rng.integers(1, 6))
        found.append(([(int(g) * int(rng.integers(1, 6)), int(g)) for g in grains], int(rng.integers(1, 6))))
    return found


def test_the_planner_is_as_good_as_brute_force_almost_always() -> None:
    equal, count = 0, 300
    for pairs, n in instances(count, seed=1):
        best, plan = smallest(pairs, n), plan_weights(weights(pairs), n, align=1)
        assert plan.bound <= best <= plan.shard, (pairs, n)
        equal += plan.shard == best
    assert equal >= 0.95 * count


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=12),
    st.integers(1, 40), st.sampled_from([1, 4, 32]),
)  # fmt: skip
@settings(max_examples=50)
def test_no_plan_cuts_a_block_or_lets_tensors_overlap(shapes: list[tuple[int, int, int]], n: int, align: int) -> None:
    made = [
        ragged.Weight(str(i), (rows, columns), (high, 0) if high * columns > 1 else 1) for i, (rows, columns, high) in enumerate(shapes)
    ]
    plan = plan_weights(made, n, align=align)
    assert plan.cut_blocks() == 0
    assert plan.shard % align == 0
    assert plan.shard >= plan.bound
    spans = sorted((at, at + w.size) for at, w in zip(plan.offsets, plan.weights))
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    assert spans[0][0] >= 0
    assert spans[-1][1] <= n * plan.shard
    for weight in made:
        sizes = plan.local_sizes(weight.name)
        assert sum(sizes) == weight.size
        assert plan.placement(weight.name).sizes(weight.shape) == sizes
    again = ragged.Plan.from_json(plan.to_json())
    assert again == plan


@given(st.integers(0, 60), st.integers(1, 60), st.integers(1, 12), st.integers(1, 30))
@settings(max_examples=50)
def test_the_earliest_offset_is_the_first_that_cuts_nothing(x: int, blocks: int, grain: int, shard: int) -> None:
    size = blocks * grain

    def good(at: int) -> bool:
        return all((k * shard - at) % grain == 0 for k in range(at // shard + 1, (at + size - 1) // shard + 1))

    expected = next((at for at in range(x, x + 3 * shard + 1) if good(at)), -1)
    assert earliest(x, size, grain, shard) == expected


def test_where_everything_may_be_cut_only_the_alignment_pads() -> None:
    plan = ragged.plan({"a": (100, 7), "b": (13,), "c": (5, 5, 5)}, 6, 1, align=32)
    assert plan.shard == -(-838 // (6 * 32)) * 32
    one = ragged.plan({"a": (100, 7)}, 1, "whole", align=1)
    assert (one.shard, one.padding_ratio) == (700, 0.0)


def test_a_given_order_is_not_planned_and_cuts_blocks() -> None:
    plan = plan_weights(weights(ABCD), 4, align=1, order="given")
    assert (plan.shard, plan.offsets) == (14, (0, 24, 36, 46))
    assert plan.cut_blocks() == 1
    assert cut_blocks(24, 8, 14).tolist() == [1]


def test_granularities() -> None:
    assert ragged.granularity((12, 16)) == 1
    assert ragged.granularity((12, 16), "row") == 16
    assert ragged.granularity((12, 16), [4, 4]) == 64
    assert ragged.granularity((12, 16), [4, 0]) == 64
    assert ragged.granularity((12, 16), "whole") == 192
    assert ragged.granularity((3, 12, 16), "whole") == 192
    assert ragged.granularity((3, 12, 16), [4, 16]) == 64
    assert ragged.granularity((16,), [4, 4]) == 1
    assert ragged.granularity((2, 16), [4, 4]) == 32


def llama_layers(count: int) -> list[tuple[ragged.Weight, ...]]:
    shapes = shapes_of(Model.preset("llama-3-70b"))[1 : count + 1]
    return [ragged.weights_of(layer, [32, 0]) for layer in shapes]


def test_layers_of_llama_are_padded_by_less_than_a_hundredth() -> None:
    layer = llama_layers(1)[0]
    alone = plan_weights(layer, 64, align=64)
    # Rows of 8,192 and of 28,672 elements in one buffer: no plan can do better.
    assert alone.shard == alone.bound == 8 * 32 * 57344
    assert alone.padding_ratio == pytest.approx(0.098, abs=0.001)
    ((length, plans),) = ragged.merged([layer], 64, align=64)
    assert (length, len(plans)) == (1, 3)
    assert sum(64 * p.shard for p in plans) / sum(w.size for w in layer) - 1 < 0.01
    ((length, plans),) = ragged.merged(llama_layers(3), 64, padding=0.01, divide=False, align=64)
    assert (length, len(plans)) == (3, 1)
    assert plans[0].padding_ratio < 0.01


def test_merging_stops_when_it_is_good_enough_or_does_not_help() -> None:
    rows = [ragged.weights_of({f"w{i}": (6, 4)}, [2, 0]) for i in range(4)]
    assert [length for length, _ in ragged.merged(rows, 2, padding=0.01, align=1)] == [2, 2]
    assert [length for length, _ in ragged.merged(rows, 2, padding=0.4, align=1)] == [1, 1, 1, 1]
    assert [length for length, _ in ragged.merged(rows, 2, padding=0, align=1)] == [1, 1, 1, 1]
    assert [length for length, _ in ragged.merged(rows, 3, padding=0.01, align=1)] == [1, 1, 1, 1]
    # Three blocks on eight ranks are padded by 5/3, six by 1/3, and twelve by 1/3 again.
    found = ragged.merged(rows, 8, padding=0.01, most=4, align=1)
    assert [length for length, _ in found] == [2, 2]
    assert {w.name for _, plans in found for p in plans for w in p.weights} == {"w0", "w1", "w2", "w3"}


def test_tensors_without_blocks_fill_gaps_or_stand_apart() -> None:
    made = ragged.weights_of({"a": (4, 6), "b": (4, 4), "bias": (3,)}, [{"pattern": "?", "block": [2, 0]}])
    plans = ragged.divided(made, 2, align=1)
    assert sorted(w.name for p in plans for w in p.weights) == ["a", "b", "bias"]
    assert sum(p.shard for p in plans) == 12 + 8 + 2


def test_what_each_block_costs() -> None:
    made = ragged.weights_of({"a": (6, 8), "b": (10, 3), "c": (4,)}, [{"pattern": "a", "block": "whole"}, {"pattern": "b", "block": "row"}])
    cost = ragged.padding_by_rule(made, 4, align=1)
    assert set(cost) == {"all", "whole", "row", "none"}
    assert cost["none"] <= cost["row"] <= cost["whole"] <= cost["all"] + 1e-12
    assert cost["whole"] == pytest.approx(4 * 48 / 82 - 1)


def test_ten_thousand_ranks_and_a_thousand_tensors() -> None:
    shapes = {f"w{i}": (4096, 4096 if i % 3 else 11008) for i in range(1000)}
    plan = ragged.plan(shapes, 10240, [32, 0])
    assert plan.cut_blocks() == 0
    assert plan.gap < 0.1


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ragged.plan({}, 2), "found no tensors"),
        (lambda: ragged.plan({"a": (2, 2)}, 0), "found 0; expected 1 to"),
        (lambda: ragged.plan({"a": (2, 2)}, 2, align=0), "align: found 0"),
        (lambda: ragged.plan({"a": (2, 0)}, 2), "expected sizes from 1"),
        (lambda: ragged.plan({"a": (1 << 40, 1 << 40)}, 2), "at most 2⁴⁸ elements"),
        (lambda: ragged.plan({"a": (2, 2)}, 2, order="best"), 'order "best"'),
        (lambda: ragged.plan({"a": (2, 2)}, 2, "rows"), "block: found 'rows'; expected 1, \"row\""),
        (lambda: ragged.plan({"a": (2, 2)}, 2, [{"pattern": "*", "block": [0, 2]}]), "rule 1: block"),
        (lambda: ragged.plan({"a": (2, 2)}, 2, [{"pattern": "*"}]), 'expected a "pattern" and a "block"'),
        (
            lambda: ragged.plan({"a.x": (2, 2)}, 2, [{"pattern": "a.*", "block": 1}, {"pattern": "*.x", "block": "row"}]),
            'matches two rules, "a.*" and "*.x"',
        ),
        (lambda: ragged.plan({"a": (2, 2)}, 2, [4, 4], strict=True), "found a block of 4 × 4 in 2×2"),
        (lambda: ragged.plan({"a": (2, 2)}, 2).placement("b"), 'tensor "b"'),
    ],
)
def test_bad_input_is_one_line(call: object, says: str) -> None:
    with pytest.raises(InputError) as error:
        call()  # type: ignore[operator]
    assert says in str(error.value), str(error.value)
    assert "\n" not in str(error.value)


def test_a_block_larger_than_its_tensor_is_taken_on_one_rank() -> None:
    assert ragged.plan({"a": (2, 2)}, 1, [4, 4], strict=True, align=1).shard == 4


def test_plans_from_strangers_are_checked() -> None:
    plan = json.loads(ragged.plan({"a": (4, 4), "b": (8,)}, 2, "row", align=1).to_json())
    for change, says in (
        ({"ranks": 0}, '"ranks": found 0'),
        ({"shard": 5}, "ends after the 10 elements"),
        ({"tensors": [{**plan["tensors"][0], "offset": 0}, {**plan["tensors"][1], "offset": 4}]}, "overlap"),
        ({"tensors": 7}, "expected ranks, shard"),
        ({"tensors": [{"name": "a"}]}, "expected ranks, shard"),
    ):
        with pytest.raises(InputError, match=says):
            ragged.Plan.from_json(json.dumps({**plan, **change}))
    with pytest.raises(InputError):
        ragged.Plan.from_json("{")
