"""Layouts have the figures of the paper's case by hand, agree with HiGHS as an oracle, and keep their properties for every size."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array

from armillary.errors import InputError
from armillary.serving.resilience import DATA_PARALLEL, Layout, failsafe_layout


def loads(gpus: int, placement: str) -> list[int]:
    return failsafe_layout(8, 80, gpus, placement=placement).heads_per_gpu.sum(axis=0).tolist()  # type: ignore[arg-type,no-any-return]


def test_seven_gpus_by_hand() -> None:
    assert (max(loads(7, "naive")), min(loads(7, "naive"))) == (160, 80)
    assert (max(loads(7, "cyclic")), min(loads(7, "cyclic"))) == (92, 91)
    capacity = [failsafe_layout(8, 80, 7, placement=p).kv_tokens(92 * 160 * 512.0 * 1000, 512.0) for p in ("cyclic", "naive")]  # type: ignore[arg-type]
    assert capacity == [160_000, 92_000]
    assert capacity[0] / capacity[1] == pytest.approx(1.739, abs=5e-4)


def test_six_and_five_gpus_by_hand() -> None:
    assert (max(loads(6, "cyclic")), max(loads(6, "naive"))) == (107, 160)
    assert loads(5, "cyclic") == [128] * 5
    assert max(loads(5, "naive")) == 160


def test_head_of_a_layer_goes_where_the_formula_says() -> None:
    layout = failsafe_layout(8, 80, 7, placement="cyclic")
    assert all(layout.heads[layer, h] == (h + layer) % 7 for layer in range(80) for h in range(8))
    five = failsafe_layout(8, 16, 5, placement="cyclic")
    assert all(five.heads[layer, h] == (h + 3 * layer) % 5 for layer in range(16) for h in range(8))


def test_hybrid_attention_of_a_layer() -> None:
    layout = failsafe_layout(8, 80, 7)
    assert layout.attention_work().max() == pytest.approx(1 + 1 / 7)
    assert failsafe_layout(8, 80, 7, placement="naive").attention_work().max() == 2
    assert layout.dp_heads.tolist() == [1] * 80
    assert layout.compute_imbalance() == pytest.approx(1.0)
    # A rank with half of all requests makes every layer wait for it.
    assert layout.attention_work([0.5, *[0.5 / 6] * 6]).max() == 1.5


@pytest.mark.parametrize("gpus", [8, 4, 2, 1])
def test_where_the_number_divides_hybrid_is_plain_tensor_parallelism(gpus: int) -> None:
    found = [failsafe_layout(8, 10, gpus, placement=p) for p in ("naive", "cyclic", "hybrid")]  # type: ignore[arg-type]
    assert all((layout.heads == found[0].heads).all() for layout in found)
    assert not (found[2].heads == DATA_PARALLEL).any()
    assert set(found[2].heads_per_gpu.ravel().tolist()) == {8 // gpus}


def test_a_loss_moves_the_lost_heads_only() -> None:
    old = failsafe_layout(8, 80, 8, ffn=28672, vocab=128256)
    new = failsafe_layout(8, 80, [d for d in range(8) if d != 3], ffn=28672, vocab=128256, keep=old)
    assert ((new.heads != old.heads) == (old.heads == 3)).all()
    assert (new.heads[old.heads == 3] == DATA_PARALLEL).all()
    assert ((new.ffn != old.ffn) == (old.ffn == 3)).all()
    assert set(new.units_per_gpu.ravel().tolist()) == {32}
    again = failsafe_layout(8, 80, [0, 1, 2, 4, 6, 7], ffn=28672, vocab=128256, keep=new)
    assert again.dp_heads.tolist() == [2] * 80
    assert ((again.heads != new.heads) == (new.heads == 5)).all()


sizes = st.tuples(st.integers(1, 16), st.integers(1, 24), st.integers(1, 11))


@given(sizes, st.sampled_from(["cyclic", "hybrid"]), st.integers(0, 300))
@settings(max_examples=60, deadline=None)
def test_shares_differ_by_one_at_most(size: tuple[int, int, int], placement: str, ffn: int) -> None:
    heads, layers, gpus = size
    layout = failsafe_layout(heads, layers, gpus, placement=placement, ffn=ffn, ffn_unit=8)  # type: ignore[arg-type]
    total = layout.heads_per_gpu.sum(axis=0)
    assert int(total.sum() + layout.dp_heads.sum()) == heads * layers
    assert total.max() - total.min() <= 1
    assert np.ptp(layout.heads_per_gpu, axis=1).max() <= (placement == "cyclic")
    assert np.ptp(layout.units_per_gpu, axis=1).max(initial=0) <= 1
    columns = layout.units_per_gpu.sum(axis=0)
    assert columns.max() - columns.min() <= 1
    if placement == "hybrid":
        assert layout.dp_heads.tolist() == [heads % gpus] * layers


@given(sizes, st.data())
@settings(max_examples=60, deadline=None)
def test_keeping_moves_as_little_as_the_counts_allow(size: tuple[int, int, int], data: st.DataObject) -> None:
    heads, layers, gpus = size
    placement = data.draw(st.sampled_from(["cyclic", "hybrid"]))
    old = failsafe_layout(heads, layers, gpus, placement=placement, ffn=64, ffn_unit=8)
    dead = data.draw(st.integers(0, gpus - 1))
    left = [d for d in range(gpus) if d != dead] or [gpus]
    new = failsafe_layout(heads, layers, left, placement=placement, ffn=64, ffn_unit=8, keep=old)
    plain = failsafe_layout(heads, layers, left, placement=placement, ffn=64, ffn_unit=8)
    assert (np.sort(new.heads_per_gpu, axis=1) == np.sort(plain.heads_per_gpu, axis=1)).all()
    before = np.stack([(old.heads == d).sum(axis=1) for d in left], axis=1)
    stays = (new.heads == old.heads) & (old.heads != DATA_PARALLEL)
    assert stays.sum() == np.minimum(before, new.heads_per_gpu).sum()


@given(sizes, st.sampled_from(["naive", "cyclic", "hybrid"]))
@settings(max_examples=25, deadline=None)
def test_a_plan_file_is_read_back_as_it_was(size: tuple[int, int, int], placement: str) -> None:
    layout = failsafe_layout(*size, placement=placement, ffn=100, ffn_unit=8, vocab=77, vocab_unit=4)  # type: ignore[arg-type]
    again = Layout.from_json(layout.to_json())
    assert again.devices == layout.devices
    assert again.placement == placement
    assert all((getattr(again, part) == getattr(layout, part)).all() for part in ("heads", "ffn", "vocab"))


def least_max_load(heads: int, layers: int, gpus: int) -> int:
    """Asks HiGHS for the least largest load if every (layer, head) has one GPU and no GPU more than ⌈H/G⌉ heads of a layer."""
    n = layers * heads * gpus
    variable = np.arange(n).reshape(layers, heads, gpus)
    once = [(row, 0, 1.0, 1.0) for row in variable.reshape(-1, gpus)]
    largest = [(variable[:, :, g].ravel(), -1, -np.inf, 0.0) for g in range(gpus)]
    in_layer = [(variable[layer, :, g], 0, -np.inf, -(-heads // gpus)) for layer in range(layers) for g in range(gpus)]
    matrix = lil_array((len(once) + len(largest) + len(in_layer), n + 1))
    for at, (columns, load, _, _) in enumerate(rows := [*once, *largest, *in_layer]):
        matrix[at, columns] = 1
        matrix[at, n] = load
    limits = LinearConstraint(matrix.tocsr(), [low for _, _, low, _ in rows], [high for *_, high in rows])
    cost, bounds = np.r_[np.zeros(n), 1], Bounds(0, np.r_[np.ones(n), np.inf])
    found = milp(cost, constraints=limits, integrality=np.ones(n + 1), bounds=bounds)
    assert found.status == 0
    return round(found.fun)


@pytest.mark.parametrize(
    ("heads", "layers", "gpus"), [(8, 16, 7), (8, 16, 6), (8, 5, 5), (8, 3, 7), (4, 16, 3), (5, 7, 4), (3, 9, 7), (8, 16, 3)]
)
def test_no_placement_has_a_smaller_largest_load(heads: int, layers: int, gpus: int) -> None:
    cyclic = failsafe_layout(heads, layers, gpus, placement="cyclic").heads_per_gpu.sum(axis=0).max()
    assert cyclic == least_max_load(heads, layers, gpus)
    naive = failsafe_layout(heads, layers, gpus, placement="naive").heads_per_gpu.sum(axis=0).max()
    assert naive >= cyclic


def test_an_odd_number_of_gpus_without_a_failure(tmp_path) -> None:  # type: ignore[no-untyped-def]
    layout = failsafe_layout(8, 4, 6, ffn=1024, vocab=640)
    layout.write(tmp_path / "six.json")
    plan = json.loads((tmp_path / "six.json").read_text())
    assert plan["dp_heads"] == [[6, 7]] * 4
    assert [shard["heads"][0] for shard in plan["shards"]] == [[0], [1], [2], [3], [4], [5]]
    assert sum(b - a for shard in plan["shards"] for a, b in shard["ffn_columns"][0]) == 1024


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda p: p.update(armillary_layout=2), "armillary_layout"),
        (lambda p: p.update(placement="spiral"), 'unknown placement "spiral"'),
        (lambda p: p.update(layers=10**9), '"layers": found 1000000000'),
        (lambda p: p.update(layers=10**7), "owners in all"),
        (lambda p: p.update(devices=[0, 0, 1]), "different numbers"),
        (lambda p: p["shards"].pop(), "one object for each"),
        (lambda p: p["shards"][0]["heads"].pop(), "a list for each of 3 layers"),
        (lambda p: p["shards"][0]["heads"][0].append(99), "inside the model"),
        (lambda p: p["shards"][0]["heads"][0].append(1), "held twice"),
        (lambda p: p["shards"][0]["heads"][0].clear(), "has no place"),
        (lambda p: p["shards"][0]["ffn_columns"][0].append([1, 2]), "a range of units"),
    ],
)
def test_a_plan_file_that_is_wrong_is_refused_in_a_line(change, says: str) -> None:  # type: ignore[no-untyped-def]
    plan = json.loads(failsafe_layout(4, 3, 3, ffn=64, ffn_unit=8).to_json())
    change(plan)
    with pytest.raises(InputError, match=says) as caught:
        Layout.from_json(json.dumps(plan), "plan.json")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("plan.json")


@pytest.mark.parametrize("text", ["7", '{"a": 1}'])
def test_no_plan_file_at_all(text: str) -> None:
    with pytest.raises(InputError, match=r"plan\.json"):
        Layout.from_json(text, "plan.json")


@pytest.mark.parametrize(
    "wrong", [{"kv_heads": 0}, {"layers": 0}, {"gpus": 0}, {"gpus": [1, 1]}, {"ffn": -1}, {"layers": 10**7}, {"placement": "spiral"}]
)  # fmt: skip
def test_sizes_that_are_none(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        failsafe_layout(**{"kv_heads": 8, "layers": 4, "gpus": 7, **wrong})  # type: ignore[arg-type]


def test_a_layout_of_another_model_is_not_kept() -> None:
    with pytest.raises(InputError, match="another model"):
        failsafe_layout(8, 4, 7, keep=failsafe_layout(8, 5, 8))
