"""Iteration prices of layouts agree with `StepCost`, and the mirror and the ranks with hand-made cases."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from armillary.llm import StepCost
from armillary.llm.serving import state as st
from armillary.serving.resilience import Node, make_node, price
from armillary.serving.resilience.simulation.mirror import Mirror
from armillary.serving.resilience.simulation.ranks import Ranks, request_load


@pytest.mark.parametrize("name", ["llama-3.1-70b", "mixtral-8x22b"])
@pytest.mark.parametrize("gpus", [8, 4])
def test_even_groups_cost_what_the_ground_says(name: str, gpus: int) -> None:
    node = make_node(name)
    ours = price(node, node.layout(gpus)).arrays()
    ground = StepCost.build(node.model, node.device, tp=gpus).table
    np.testing.assert_allclose(ours.body_s, ground.body_s, rtol=1e-12)
    np.testing.assert_allclose(ours.head_s, ground.head_s, rtol=1e-12)
    assert (ours.pair_s, ours.context_s) == (pytest.approx(ground.pair_s), pytest.approx(ground.context_s))


def test_a_layer_waits_for_the_gpu_with_two_heads() -> None:
    node = make_node("llama-3.1-70b")
    eight, naive, cyclic, hybrid = (
        price(node, node.layout(g, p)).arrays() for g, p in ((8, "hybrid"), (7, "naive"), (7, "cyclic"), (7, "hybrid"))
    )  # type: ignore[arg-type]
    assert naive.context_s == pytest.approx(2 * eight.context_s)
    assert cyclic.context_s == pytest.approx(naive.context_s)
    assert hybrid.context_s == pytest.approx((1 + 1 / 7) * eight.context_s)
    assert (eight.body_s[1:] < hybrid.body_s[1:]).all()
    assert hybrid.body_s[-1] < naive.body_s[-1]


def test_uneven_ranks_and_slow_devices_cost_more() -> None:
    node = make_node("llama-3.1-70b")
    layout = node.layout(7)
    p = price(node, layout)
    assert p.rates(1.0, 1.0)[1] == pytest.approx(p.rates(1 / 7, 1 / 7)[1] * 2 / (8 / 7))
    # A rank with all tokens computes a head's projections for them, an eighth of attention's matrices in every layer.
    head = 80 * 2 * (8 + 1) * 128 * 8192 * 2 * p.grid[-1] / node.device.peak("bf16")
    assert 0.5 * head < p.body(1.0)[-1] - p.body(1 / 7)[-1] < 2.0 * head
    assert (np.diff([p.body(s)[-1] for s in (1 / 7, 0.2, 0.3, 0.6, 1.0)]) > 0).all()
    slow = price(node, layout, {layout.devices[3]: 1.5})
    assert slow.arrays().context_s == pytest.approx(1.5 * p.arrays().context_s)
    late = slow.body(1 / 7)[-1] / p.body(1 / 7)[-1]
    assert 1.2 < late < 1.5  # collectives do not slow down
    absent = price(node, layout, {99: 3.0})
    assert absent.body(1 / 7)[-1] == p.body(1 / 7)[-1]


def test_capacity_of_the_fullest_gpu() -> None:
    node = make_node("llama-3.1-70b")
    tokens = {(g, p): node.kv_blocks(node.layout(g, p)) * 16 for g in (8, 7) for p in ("naive", "cyclic", "hybrid")}  # type: ignore[arg-type]
    free = 0.9 * node.device.memory - 2 * 2**30 - float(node.weight_bytes(node.layout(8)).max())
    assert tokens[8, "naive"] == tokens[8, "hybrid"] == int(free / (327_680 / 8)) // 16 * 16
    assert tokens[7, "naive"] < tokens[7, "hybrid"] < tokens[7, "cyclic"] < tokens[8, "naive"]


def test_the_mirror_copies_full_blocks_in_order_at_its_rate() -> None:
    mirror, both = Mirror(2, 16), np.array([0, 1])
    mirror.update(1.0, both, np.array([100, 40]), 64.0)  # 96 + 32 full, 64 copied: all to the first
    assert mirror.safe.tolist() == [64, 0]
    assert mirror.lag_tokens == 64
    mirror.update(1.5, both, np.array([100, 40]), 64.0)
    assert mirror.safe.tolist() == [96, 0]
    assert mirror.lag_tokens == 32
    mirror.update(9.0, both, np.array([111, 47]), 64.0)  # nothing new is full
    assert mirror.safe.tolist() == [96, 32]
    assert mirror.lag_tokens == 0
    assert mirror.copied_tokens == 128
    mirror.update(10.0, both, np.array([112, 15]), 64.0)  # the second was put back: what it had is void
    assert mirror.safe.tolist() == [112, 0]
    mirror.back(0, 50)
    assert mirror.safe[0] == 50
    alone = Mirror(1, 16)
    alone.update(1.0, np.array([0]), np.array([64]), 1e9)
    alone.update(2.0, np.array([0]), np.array([20]), 1e9)
    assert (alone.safe.tolist(), alone.queued.tolist()) == ([16], [16])


def serving(prompt: list[int], known: list[int], computed: list[int]) -> SimpleNamespace:
    seq = np.zeros((len(prompt), 16), np.int64)
    seq[:, st.PROMPT], seq[:, st.KNOWN], seq[:, st.COMPUTED] = prompt, known, computed
    return SimpleNamespace(state=SimpleNamespace(seq=seq))


def test_a_request_goes_to_the_rank_with_least_work() -> None:
    # The load of a decode is its 500 tokens; that of an untouched prompt of 100 is 100 + 0.01·(100·101/2) = 150.5.
    at = serving([400, 100, 10, 10], [501, 100, 10, 10], [500, 0, 0, 0])
    assert request_load(at.state.seq, np.array([0, 1]), 0.01).tolist() == [500.0, 150.5]
    ranks = Ranks(4, load_aware=True, migrate_above=0.0)
    ranks.of[:2] = [3, 5]
    ranks.assign(at, np.arange(4), [3, 5], 0.01)  # type: ignore[arg-type]
    assert ranks.of.tolist() == [3, 5, 5, 5]
    full = Ranks(4, load_aware=True, migrate_above=0.0)
    full.of[:2] = [3, 5]
    at.state.seq[1, st.COMPUTED] = 99
    full.assign(at, np.arange(4), [3, 5], 0.0, room_tokens=105.0)  # type: ignore[arg-type]
    assert full.of.tolist() == [3, 5, 5, 5]  # neither has room: the least loaded
    at.state.seq[0, st.COMPUTED], at.state.seq[0, st.KNOWN] = 50, 51
    at.state.seq[1, st.KNOWN], at.state.seq[1, st.PROMPT] = 100, 10
    full.of[2:] = -1
    full.assign(at, np.arange(4), [3, 5], 0.0, room_tokens=105.0)  # type: ignore[arg-type]
    assert full.of.tolist() == [3, 5, 3, 3]


def test_requests_that_come_together_are_spread() -> None:
    ranks = Ranks(5, load_aware=True, migrate_above=0.0)
    ranks.assign(serving([100, 60, 50, 10, 10], [100, 60, 50, 10, 10], [0] * 5), np.arange(5), [2, 6], 0.0)  # type: ignore[arg-type]
    assert ranks.of.tolist() == [2, 6, 6, 2, 2]  # 100 | 60 | 60 + 50 | 100 + 10 | 110 and 110: the first


def test_ranks_in_turn() -> None:
    ranks = Ranks(5, load_aware=False)
    ranks.assign(serving([9] * 5, [9] * 5, [0] * 5), np.arange(5), [1, 4], 0.0)  # type: ignore[arg-type]
    assert ranks.of.tolist() == [1, 4, 1, 4, 1]


def test_the_busiest_rank_gives_a_request_away() -> None:
    at = serving([10] * 4, [1001, 401, 301, 101], [1000, 400, 300, 100])
    ranks = Ranks(4, load_aware=True, migrate_above=0.2)
    ranks.of[:] = [0, 0, 0, 1]
    ranks.assign(at, np.arange(4), [0, 1], 0.0)  # type: ignore[arg-type]
    assert ranks.of.tolist() == [1, 0, 0, 1]
    assert ranks.moved_tokens == 1000
    never = Ranks(4, load_aware=True, migrate_above=0.0)
    never.of[:] = [0, 0, 0, 1]
    never.assign(at, np.arange(4), [0, 1], 0.0)  # type: ignore[arg-type]
    assert never.of.tolist() == [0, 0, 0, 1]


def test_a_node_of_another_kind() -> None:
    node = Node(make_node("llama-3.1-70b").model, gpus=6)
    assert node.layout(6).dp_heads.tolist() == [2] * 80
    assert price(node, node.layout(6)).even == 1 / 6
