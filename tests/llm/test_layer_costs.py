"""The cost of one layer for segments: equal to whole stages where both can say it, and right where only it can."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.llm import Batch, Model, Plan, activations, layer_costs
from armillary.llm.cost.training_step import train


@pytest.mark.parametrize(("name", "tp"), [("llama-3-70b", 4), ("gpt3-175b", 8), ("bert-large", 1), ("mixtral-8x7b", 2)])
@pytest.mark.parametrize("recompute", ["none", "selective", "mlp", "full"])
def test_whole_sequences_cost_what_a_stage_costs(name: str, tp: int, recompute: str) -> None:
    model = Model.preset(name)
    plan = Plan(tp=tp, pp=4, micro_batch=2, sequence_parallel=tp > 1, recompute=recompute)  # type: ignore[arg-type]
    stage = train(model, plan, Batch(2, 512), "h100-80")[1]
    layers = model.layers // 4
    found = layer_costs(model, model.layer(0), [[(512, 0)] * 2], plan, "h100-80")
    assert layers * found.forward[0] == pytest.approx(stage.forward)
    assert layers * found.backward_input[0] == pytest.approx(stage.backward_input)
    assert layers * found.backward_weight[0] == pytest.approx(stage.backward_weight)
    assert layers * found.recompute[recompute][0] == pytest.approx(stage.recompute)
    kept = activations(model, model.layer(0), 2, 512, tp=tp, sequence_parallel=tp > 1, recompute=recompute).total  # type: ignore[arg-type]
    assert found.kept[recompute][0] == pytest.approx(kept)
    assert layers * kept == pytest.approx(stage.activation_bytes)


@pytest.mark.parametrize("name", ["bert-base", "llama-2-7b", "deepseek-v3"])
def test_halves_add_up_to_the_layer(name: str) -> None:
    model = Model.preset(name)
    chunk = [[(300, 0), (100, 50)]]
    whole, first, second = (layer_costs(model, model.layer(5), chunk, Plan(), "a100-80", part=part) for part in ("layer", "attention", "mlp"))  # type: ignore[arg-type]
    for field in ("forward", "backward_input", "backward_weight", "collective", "exchange", "keys"):
        assert getattr(first, field) + getattr(second, field) == pytest.approx(getattr(whole, field)), field
    assert first.kept["none"] + second.kept["none"] == pytest.approx(whole.kept["none"])


def test_context_costs_attention_alone() -> None:
    model = Model.preset("llama-2-7b")
    near, far = (layer_costs(model, model.layer(0), [[(4096, c)]], Plan(), "h100-80") for c in (0, 65536))
    assert far.forward[0] > near.forward[0]
    assert (far.forward - far.recompute["selective"]) == pytest.approx(near.forward - near.recompute["selective"])
    assert far.kept == near.kept
    assert near.keys[0] == 4096 * 2 * 2 * 32 * 128
    # Pairs: n(n + 1)/2 + n·c, and attention is bound by them.
    ratio = (4096 * 4097 / 2 + 4096 * 65536) / (4096 * 4097 / 2)
    assert far.recompute["selective"][0] / near.recompute["selective"][0] == pytest.approx(ratio, rel=0.1)


def test_collectives_are_counted_apart_and_far_ones_are_slower() -> None:
    model = Model.preset("deepseek-v3")
    near, far = (layer_costs(model, model.layer(10), [[(4096, 0)]], Plan(dp=ep, ep=ep), "h100-80") for ep in (8, 64))
    assert near.collective[0] == far.collective[0] == 0
    assert far.exchange[0] > near.exchange[0] > 0
    split = layer_costs(Model.preset("llama-2-7b"), Model.preset("llama-2-7b").layer(0), [[(4096, 0)]], Plan(tp=4), "h100-80")
    assert split.collective[0] > 0
    assert split.exchange[0] == 0


def test_chunks_are_priced_one_by_one() -> None:
    model = Model.preset("llama-2-7b")
    chunks = [[(512, 0)], [(100, 0), (28, 7)], [(512, 4096)]]
    together = layer_costs(model, model.layer(0), chunks, Plan(), "h100-80")
    for k, chunk in enumerate(chunks):
        alone = layer_costs(model, model.layer(0), [chunk], Plan(), "h100-80")
        assert together.forward[k] == alone.forward[0]
    assert together.tokens.tolist() == [512, 128, 512]
    assert np.isfinite(together.backward_input).all()


@pytest.mark.parametrize(
    ("plan", "chunks", "part", "says"),
    [
        (Plan(attention="unfused"), [[(8, 0)]], "layer", "fused attention"),
        (Plan(cp=2), [[(8, 0)]], "layer", "context parallelism"),
        (Plan(), [[]], "layer", "without tokens"),
        (Plan(), [], "layer", "without tokens"),
        (Plan(), [[(8, 0)]], "head", 'unknown part of a layer "head"'),
        (Plan(), [[(-8, 0), (20, 0)]], "layer", "expected 0 or more"),
    ],
)
def test_what_cannot_be_priced_is_refused(plan: Plan, chunks: list, part: str, says: str) -> None:
    model = Model.preset("llama-2-7b")
    with pytest.raises(InputError, match=says):
        layer_costs(model, model.layer(0), chunks, plan, "h100-80", part=part)  # type: ignore[arg-type]
