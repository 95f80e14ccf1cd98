"""Recovery plans have the bytes counted by hand and by plain loops, times within bounds, and survive a loss during a recovery."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.llm import Model
from armillary.serving.resilience import DATA_PARALLEL, Layout, Node, failsafe_layout, make_node, plan_recovery
from armillary.serving.resilience.planning.recovery import HOST, Held, recover

SMALL = {
    "model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 5,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1000, "max_position_embeddings": 4096, "tie_word_embeddings": False,
}  # fmt: skip


def small(gpus: int = 8, **changes: object) -> Node:
    return Node(Model.from_config({**SMALL, **changes}, name="small"), gpus=gpus)


def test_a_hundred_thousand_tokens_on_one_of_eight() -> None:
    node = make_node("llama-3.1-70b")
    assert node.kv_token_bytes == 327_680
    plan = plan_recovery(failsafe_layout(8, 80, 8), 2, [1000] * 100, [1000] * 100)
    assert plan.kv_bytes == pytest.approx(4.096e9)
    assert plan.kv_bytes / (7 * node.pcie) == pytest.approx(10.639e-3, rel=1e-4)
    assert plan.seconds - plan.weights_s >= 10.6e-3
    assert plan.recompute_tokens == 0
    # Exactly the dead GPU's eighth of all weights comes from the host, because the head that becomes data parallel is fetched once.
    assert plan.weight_bytes == pytest.approx(float(node.weight_bytes(node.layout(8))[0]) - 161 * 8192 * 2, rel=1e-9)
    assert plan.lower_bound_s <= plan.seconds <= 1.3 * plan.lower_bound_s


def test_what_is_not_mirrored_is_computed_again() -> None:
    plan = plan_recovery(failsafe_layout(8, 80, 8), 0, [100, 200], [96, 300])
    assert plan.recompute_tokens == 4
    assert plan.kept.tolist() == [96, 200]
    assert plan.kv_bytes == pytest.approx(296 * 327_680 / 8)
    none = plan_recovery(failsafe_layout(8, 80, 8), 0, [100, 200], 0)
    assert (none.recompute_tokens, none.kv_bytes) == (300, 0.0)


def test_a_second_loss_takes_data_parallel_kv_with_it() -> None:
    first = plan_recovery(failsafe_layout(8, 80, 8), 2, [700], [700], rank=[2]).layout
    lost_rank = plan_recovery(first, 5, [700], [700], rank=[5])
    other = plan_recovery(first, 5, [700], [700], rank=[6])
    assert other.kv_bytes == pytest.approx(700 * 327_680 / 8)
    assert lost_rank.kv_bytes == pytest.approx(2 * other.kv_bytes)
    assert other.rank.tolist() == [6]
    assert lost_rank.rank[0] not in (2, 5)


def counted(node: Node, old: Layout, new: Layout, dead: int, kept: list[int], rank: list[int], after: list[int]) -> tuple[float, float]:
    """Counts the bytes of weights, and of keys and values, that no survivor has, shard by shard."""
    left = [d for d in old.devices if d != dead]
    weights = 0.0
    for layer in range(old.layers):
        size = node.bytes_by_layer[layer]
        weights += size[0] * sum(owner == dead for owner in old.heads[layer]) + size[1] * sum(owner == dead for owner in old.ffn[layer])
    weights += sum(node.vocab_unit_bytes for owner in old.vocab[0] if owner == dead)
    kv = 0.0
    for q, tokens in enumerate(kept):
        for layer, h in itertools.product(range(old.layers), range(old.kv_heads)):
            where = old.heads[layer, h]
            if where == dead or (where == DATA_PARALLEL and rank[q] == dead):
                to = new.heads[layer, h]
                assert (after[q] if to == DATA_PARALLEL else to) in left
                kv += tokens * node.head_layer_bytes
    return weights, kv


@given(
    st.integers(2, 8), st.sampled_from(["naive", "cyclic", "hybrid"]), st.lists(st.integers(0, 5000), min_size=1, max_size=12),
    st.sampled_from([1, 2, 4, 8]), st.data(),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_bytes_and_times_of_any_loss(gpus: int, placement: str, tokens: list[int], kv_heads: int, data: st.DataObject) -> None:
    node = small(gpus, num_key_value_heads=kv_heads)
    old = node.layout(gpus, placement)  # type: ignore[arg-type]
    dead = data.draw(st.integers(0, gpus - 1))
    rank = [data.draw(st.integers(0, gpus - 1)) for _ in tokens]
    plan = plan_recovery(old, dead, tokens, tokens, node=node, rank=rank)
    weights, kv = counted(node, old, plan.layout, dead, tokens, rank, plan.rank.tolist())
    assert plan.weight_bytes == pytest.approx(weights)
    assert plan.kv_bytes == pytest.approx(kv)
    assert dead not in plan.layout.devices
    assert dead not in plan.rank.tolist()
    assert all(t.source != dead and t.target != dead and t.source != t.target for t in plan.transfers)
    assert plan.lower_bound_s <= plan.seconds * (1 + 1e-9)
    assert (plan.kv_s >= plan.weights_s - 1e-12).all()
    assert plan.kv_s.max() <= plan.seconds * (1 + 1e-9) + 1e-12


@given(st.integers(3, 8), st.integers(40, 200), st.integers(0, 2))
@settings(max_examples=15, deadline=None)
def test_even_requests_come_back_within_a_third_of_the_bound(gpus: int, requests: int, dead: int) -> None:
    node = small(gpus)
    plan = plan_recovery(node.layout(gpus), dead, [4000] * requests, [4000] * requests, node=node)
    assert plan.seconds <= 1.3 * plan.lower_bound_s


def test_what_survivors_hold_is_not_fetched() -> None:
    node = small()
    plan = plan_recovery(node.layout(8, "cyclic"), 4, [10], [10], node=node)
    from_host = sum(t.nbytes for t in plan.transfers if t.source == HOST and t.what == "weights")
    assert from_host == pytest.approx(plan.weight_bytes)
    old, new, left = node.layout(8, "cyclic"), plan.layout, [d for d in range(8) if d != 4]
    passed = 0.0
    for layer, h in itertools.product(range(5), range(4)):
        passed += node.bytes_by_layer[layer, 0] * (old.heads[layer, h] != 4 and new.heads[layer, h] != old.heads[layer, h])
    for layer, u in itertools.product(range(5), range(old.ffn.shape[1])):
        passed += node.bytes_by_layer[layer, 1] * (old.ffn[layer, u] != 4 and new.ffn[layer, u] != old.ffn[layer, u])
    passed += node.vocab_unit_bytes * sum(old.vocab[0, u] != 4 and new.vocab[0, u] != old.vocab[0, u] for u in range(old.vocab.shape[1]))
    assert passed > 0
    assert sum(t.nbytes for t in plan.transfers if t.source in left) == pytest.approx(passed)
    four = node.layout(4)  # four heads, four GPUs: one each
    three = plan_recovery(four, 1, [10], [10], node=node)
    shared = [t for t in three.transfers if t.source != HOST]
    # Three need the head that becomes data parallel, so each byte comes once from the host and twice from a neighbour.
    assert sum(t.nbytes for t in shared) == pytest.approx(2 * node.bytes_by_layer[:, 0].sum())


def test_a_further_loss_begins_from_what_is_there() -> None:
    node = make_node("llama-3.1-70b")
    plan = plan_recovery(node.layout(8), 3, [1000] * 64, [1000] * 64, node=node)
    full = []
    for share in (0.0, 0.5, 1.0):
        held = Held.of(node.layout(8), 8)
        held.forget(3)
        plan.arrive(held, share * plan.weights_s, node.pcie)
        held.forget(5)
        left = node.layout((0, 1, 2, 4, 6, 7), keep=plan.layout)
        nothing = np.zeros(0, np.int64)
        full.append(recover(node, left, held, nothing, np.zeros((0, 80, 8), bool), nothing).weight_bytes)
    assert full[0] > full[1] > full[2]
    # If nothing had arrived, two eighths of the weights are missing; if all had, only what device 5 held then.
    eighth = plan.weight_bytes
    assert full[0] == pytest.approx(2 * eighth)
    assert full[2] == pytest.approx(eighth * (1 + 1 / 7) - node.bytes_by_layer[:, 0].sum() / 7, rel=0.02)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: plan_recovery(failsafe_layout(8, 80, 8), 8, [1], [1]), "found device 8"),
        (lambda: plan_recovery(failsafe_layout(8, 80, 3), 1, [1], [1]), "leave no room"),
        (lambda: plan_recovery(failsafe_layout(8, 80, 1), 0, [1], [1]), "no device is left"),
        (lambda: plan_recovery(failsafe_layout(4, 80, 8), 0, [1], [1]), "give its node"),
        (lambda: plan_recovery(failsafe_layout(8, 80, 8), 0, [-1], [1]), "0 or more"),
        (lambda: plan_recovery(failsafe_layout(8, 80, 8), 0, [1, 2], [1, 2], rank=[1]), "one for each of 2"),
        (lambda: make_node("llama-3.1-70b", 2), "leave no room"),
        (lambda: make_node("deepseek-v3", 8), "no heads to lay out"),
        (lambda: make_node("llama-3.1-70b", 65), "1 to 64"),
    ],
)
def test_what_cannot_be_recovered(call, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_fewest_gpus_that_hold_the_weights() -> None:
    node = make_node("llama-3.1-70b")
    assert node.least_gpus() == 3
    assert node.weight_bytes(node.layout(1))[0] == pytest.approx(node.model.weight_bytes(), rel=1e-12)
    assert make_node("mixtral-8x22b").least_gpus() == 5
    seven = node.weight_bytes(node.layout(7))
    # Six further copies of the data-parallel head and of the norms.
    copies = 6 * (node.bytes_by_layer[:, 0].sum() + 161 * 8192 * 2)
    assert seven.sum() == pytest.approx(node.model.weight_bytes() + copies, rel=1e-12)
