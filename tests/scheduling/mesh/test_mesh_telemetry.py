"""What is known about costs: cold measurements, noise, slow nodes."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.scheduling.mesh import Telemetry, Trace, change, clean
from armillary.scheduling.mesh.octree.scenes import costs, refined, sedov


def trace(rows: list[tuple[int, int, int, float]], per_node: int = 2) -> Trace:
    step, block, rank, cost = (np.array(column) for column in zip(*rows, strict=True))
    return Trace(step, block, rank, cost.astype(float), per_node)


def test_cold_measurements_are_dropped_and_the_least_of_three_counts() -> None:
    rows = [(0, 0, 0, 9.0), (1, 0, 0, 4.0), (2, 0, 0, 6.0), (3, 0, 0, 5.0), (0, 1, 0, 3.0), (1, 1, 1, 99.0), (2, 1, 1, 5.0), (3, 1, 1, 7.0)]
    found = clean(trace(rows))
    assert found.block.tolist() == [0, 1]
    assert found.cost_us.tolist() == [4.0, 3.0]
    assert found.slow == {}


def test_a_run_knows_what_clean_would_say() -> None:
    telemetry = Telemetry(np.array([9.0, 3.0]))
    rank = [[0, 0], [0, 1], [0, 1], [0, 1]]
    cost = [[9.0, 3.0], [4.0, 99.0], [6.0, 5.0], [5.0, 7.0]]
    for step in range(1, 4):
        telemetry.measured(np.array(cost[step]), np.array(rank[step]) != np.array(rank[step - 1]))
    assert telemetry.known.tolist() == [4.0, 3.0]
    raw = Telemetry(np.array([9.0, 3.0]), hygiene=False)
    raw.measured(np.array([4.0, 99.0]), np.array([False, True]))
    assert raw.known.tolist() == [4.0, 99.0]


def test_a_refined_mesh_inherits_what_is_known_and_blocks_that_stay_keep_their_measurements() -> None:
    eight = refined((2, 2, 2), 3, lambda level, low, high: np.zeros(len(low), bool))
    fifteen = refined((2, 2, 2), 3, lambda level, low, high: (low == 0).all(1) & (level == 0))
    telemetry = Telemetry(np.arange(1.0, 9.0))
    telemetry.measured(np.arange(1.0, 9.0) + 0.5, np.zeros(8, bool))
    telemetry.change(change(eight, fifteen))
    assert telemetry.known.tolist() == [1.0] * 8 + list(range(2, 9))
    telemetry.measured(np.full(15, 100.0), np.zeros(15, bool))
    telemetry.measured(np.full(15, 100.0), np.zeros(15, bool))
    # Three measurements: a block that stayed still has 2.5 among them, and a child its inherited cost.
    assert telemetry.known.tolist() == [1.0] * 8 + [x + 0.5 for x in range(2, 9)]


def test_no_slow_node_no_flag() -> None:
    rng = np.random.default_rng(0)
    scene = sedov(128, 20, rng)
    blocks = scene.blocks(10)
    before, after = np.arange(len(blocks)) * 128 // len(blocks), rng.integers(0, 128, len(blocks))
    rows = []
    for step in range(10):
        rank = before if step < 5 else after
        rows += [(step, b, int(rank[b]), float(c)) for b, c in enumerate(costs(scene, blocks, 10, rng))]
    assert clean(trace(rows, 16)).slow == {}
    equal = [(0, b, b % 64, float(c)) for b, c in enumerate(rng.lognormal(0, 0.1, 200))]
    assert clean(trace(equal, 16), equal_work=True).slow == {}


def test_a_throttled_node_is_named_and_its_factor_taken_out() -> None:
    rng = np.random.default_rng(1)
    true = np.r_[np.full(100, 100.0), np.full(92, 300.0)]
    before, after = np.arange(192) // 3, rng.permutation(192) // 3
    rows = []
    for step in range(6):
        rank = before if step < 2 else after
        slow = np.where(rank // 16 == 2, 2.0, 1.0)
        rows += [(step, b, int(rank[b]), float(true[b] * slow[b] * f)) for b, f in enumerate(rng.lognormal(0, 0.02, 192))]
    found = clean(trace(rows, 16))
    assert sorted(found.slow) == list(range(32, 48))
    assert list(found.slow.values()) == pytest.approx([2.0] * 16, rel=0.1)
    assert found.cost_us == pytest.approx(true, rel=0.15)


def test_a_health_check_of_equal_blocks_needs_no_history() -> None:
    rows = [(0, b, b // 2, 100.0 * (1.5 if b // 2 in (4, 5) else 1.0)) for b in range(32)]
    assert clean(trace(rows), equal_work=True).slow == pytest.approx({4: 1.5, 5: 1.5})
    assert clean(trace(rows)).slow == {}, "without a history nobody knows whether the blocks are costly or the node is slow"
    mixed = [(step, block, rank, cost if block != 8 else 100.0) for step, block, rank, cost in rows]
    assert list(clean(trace(mixed), equal_work=True).slow) == [5], "one quick block clears a rank"


@pytest.mark.parametrize("rows", [[(0, 0, 0, -1.0)], [(0, 0, 0, float("nan"))], [(0, -1, 0, 1.0)], [(0, 0, -1, 1.0)]])
def test_measurements_that_cannot_be_are_refused(rows: list[tuple[int, int, int, float]]) -> None:
    with pytest.raises(InputError, match="expected numbers from 0 on"):
        clean(trace(rows))
    with pytest.raises(InputError, match="different lengths"):
        clean(Trace(np.array([0, 1]), np.array([0]), np.array([0]), np.array([1.0])))
