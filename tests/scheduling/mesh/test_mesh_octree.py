"""Blocks, neighbours, refinement."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.scheduling.mesh import Blocks, Graph, change, face_messages
from armillary.scheduling.mesh.octree.mesh import overlapping, z_order
from armillary.scheduling.mesh.octree.refinement import by_position
from armillary.scheduling.mesh.octree.scenes import box, costs, orszag, refined, sedov


def cube(side: int = 2) -> Blocks:
    return refined((side, side, side), 3, lambda level, low, high: np.zeros(len(low), bool))


def one_refined() -> Blocks:
    return refined((2, 2, 2), 3, lambda level, low, high: (low == 0).all(1) & (level == 0))


def brute_force(blocks: Blocks, face: float, roots: tuple[int, int, int] | None = None) -> dict[tuple[int, int], float]:
    """Messages by comparing every pair of boxes in units of the finest level."""
    finest = int(blocks.level.max())
    d = blocks.dimensions
    low = blocks.place << (finest - blocks.level)[:, None]
    size = 1 << (finest - blocks.level)
    found: dict[tuple[int, int], float] = {}
    wraps = [range(-1, 2) if roots is not None and axis < d else (0,) for axis in range(3)]
    for shift in itertools.product(*wraps):
        moved = low + np.array([s * ((roots or (0, 0, 0))[axis] << finest) for axis, s in enumerate(shift)])
        for a in range(len(blocks)):
            overlap = np.minimum(low[a] + size[a], moved + size[:, None]) - np.maximum(low[a], moved)
            touching = ((overlap[:, :d] > 0).sum(1) == d - 1) & ((overlap[:, :d] == 0).sum(1) == 1)
            for b in np.flatnonzero(touching & (np.arange(len(blocks)) != a)).tolist():
                share = float(min(size[a], size[b]) / max(size[a], size[b])) ** (d - 1)
                found[a, b] = found.get((a, b), 0.0) + face * share
    return found


def as_pairs(graph: Graph) -> dict[tuple[int, int], float]:
    found: dict[tuple[int, int], float] = {}
    for a, b, size in zip(graph.source.tolist(), graph.target.tolist(), graph.size.tolist(), strict=True):
        found[a, b] = found.get((a, b), 0.0) + size
    return found


def test_eight_blocks_have_three_neighbours_each() -> None:
    graph = face_messages(cube(), 64.0)
    assert np.diff(graph.first).tolist() == [3] * 8
    assert set(graph.size) == {64.0}


def test_a_refined_corner_sends_quarters() -> None:
    blocks = one_refined()
    graph = face_messages(blocks, 64.0)
    assert len(blocks) == 15
    assert as_pairs(graph) == brute_force(blocks, 64.0)
    assert sorted(set(graph.size)) == [16.0, 64.0]


@given(st.integers(0, 1000), st.sampled_from([2, 3]), st.booleans())
@settings(max_examples=10, deadline=None)
def test_neighbours_are_those_of_a_comparison_of_all_boxes(seed: int, dimensions: int, periodic: bool) -> None:
    rng = np.random.default_rng(seed)
    roots = (3, 3, 3 if dimensions == 3 else 1)
    blocks = refined(roots, dimensions, lambda level, low, high: rng.random(len(low)) < 0.1)
    wrapped = roots if periodic else None
    assert as_pairs(face_messages(blocks, 32.0, wrapped)) == pytest.approx(brute_force(blocks, 32.0, wrapped))
    assert overlapping(blocks) is None


def test_the_curve_visits_children_in_the_place_of_their_parent() -> None:
    blocks = one_refined()
    assert blocks.level.tolist() == [1] * 8 + [0] * 7
    assert blocks.place[:8].tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]]
    with pytest.raises(InputError, match="smaller mesh"):
        z_order(np.array([0, 15]), np.array([[1 << 18, 0, 0], [0, 0, 0]]))


def test_children_inherit_and_a_merged_block_takes_the_mean() -> None:
    eight, fifteen = cube(), one_refined()
    cost = np.arange(1.0, 9.0)
    finer = change(eight, fifteen)
    mapped = finer.mapped(cost)
    assert len(mapped) == 15
    assert mapped[:8].tolist() == [1.0] * 8
    assert mapped[8:].tolist() == cost[1:].tolist()
    assert finer.same.sum() == 7
    mapped[:8] = np.arange(8.0)
    back = change(fifteen, eight).mapped(mapped)
    assert back.tolist() == [3.5, *cost[1:]]


def test_two_levels_at_once_and_blocks_from_nowhere() -> None:
    one = Blocks.of([0], [[0, 0, 0]], 2)
    four = Blocks.of([1] * 4, [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]], 2)
    sixteen = Blocks.of([2] * 16, [[i, j, 0] for i in range(4) for j in range(4)], 2)
    assert change(one, sixteen).mapped(np.array([5.0])).tolist() == [5.0] * 16
    assert change(sixteen, one).mapped(np.arange(16.0)).tolist() == [7.5]
    assert change(four, four).same.all()
    elsewhere = Blocks.of([0], [[7, 7, 0]], 2)
    assert change(four, elsewhere).mapped(np.array([1.0, 2, 3, 6])).tolist() == [3.0]
    assert by_position(4, 8).mapped(np.arange(4.0)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("ranks", [128, 512])
@pytest.mark.parametrize("make", [sedov, orszag])
def test_scenes_keep_two_to_four_blocks_per_rank_and_jump_one_level(make: object, ranks: int) -> None:
    scene = make(ranks, 40, np.random.default_rng(3))  # type: ignore[operator]
    for step in range(0, 41, 10):
        blocks = scene.blocks(step)
        assert 2 <= len(blocks) / ranks <= 4
        assert overlapping(blocks) is None
        graph = face_messages(blocks, 1.0, scene.roots if scene.periodic else None)
        assert np.abs(blocks.level[graph.source] - blocks.level[graph.target]).max() <= 1
        # The leaves fill the domain.
        assert (0.5 ** (blocks.dimensions * blocks.level.astype(float))).sum() == np.prod(scene.roots)


def test_costs_rise_where_the_front_is() -> None:
    scene = sedov(512, 40, np.random.default_rng(3))
    blocks = scene.blocks(20)
    hot = scene.heat(blocks, 20) > 0
    cost = costs(scene, blocks, 20, np.random.default_rng(0))
    assert cost[hot].mean() / cost[~hot].mean() == pytest.approx(3.0, rel=0.03)
    assert blocks.level[hot].min() == 2, "the front is always on the finest level when the mesh was just made"
    assert cost[~hot].std() / cost[~hot].mean() == pytest.approx(0.15, abs=0.02)


def test_a_box_has_the_published_number_of_blocks() -> None:
    assert len(box(512)) == 1736
    assert len(box(8)) == 40


@pytest.mark.parametrize(("source", "target", "size"), [([0], [9], [1.0]), ([-1], [0], [1.0]), ([0], [1], [-1.0]), ([0], [1], [np.inf])])
def test_messages_between_unknown_blocks_are_refused(source: list[int], target: list[int], size: list[float]) -> None:
    with pytest.raises(InputError, match="expected"):
        Graph.of(source, target, size, 3)
