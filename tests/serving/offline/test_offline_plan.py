"""Plans and their judge: the pipeline and memory by hand, every technique on the same work, and plans in other programs' formats."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from armillary import catalogue
from armillary.errors import InputError
from armillary.llm import chip
from armillary.serving.offline import (
    Adabits,
    DoesNotFit,
    FlexGen,
    MemoryProportional,
    OfflineWork,
    PipeEdge,
    Plan,
    SplitQuant,
    SplitQuantH,
    Stage,
    Uniform,
    pareto,
    which_gpu,
)  # fmt: skip
from armillary.serving.offline.arena import nodes_of
from armillary.serving.offline.memory_proportional import shares
from armillary.serving.offline.pipeedge import partitioned
from armillary.serving.offline.planning.advice import with_device
from armillary.serving.offline.planning.ilp import solve
from armillary.serving.offline.planning.plan import budget_of, halved_until_it_fits, problem_of
from armillary.serving.offline.planning.problem import flat
from armillary.serving.offline.pricing.layer_cost import Shards, cache_bytes, layer_bytes, layer_seconds, once_bytes, temporary_bytes
from armillary.serving.offline.simulation import pipeline
from armillary.serving.offline.splitquant import micro_batches, orders
from armillary.serving.offline.workload import CONFIGS, model_of

SMALL = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
    "intermediate_size": 128, "vocab_size": 64,
}  # fmt: skip
TECHNIQUES = [
    SplitQuant(group=12, limit_s=10), SplitQuantH(), Uniform(), PipeEdge(), Adabits(group=4), FlexGen(), MemoryProportional(),
]  # fmt: skip


@functools.cache
def mixed(number: int = 3, model: str = "opt-30b", output: int = 12, batch: int = 32, quality: float | None = 48.0) -> OfflineWork:
    return OfflineWork.of(model, f"mixed-offline-{number}", prompt=512, output=output, batch=batch, quality=quality)


def two_stages(work: OfflineWork) -> Plan:
    devices = work.devices
    return Plan(work, (Stage(devices[0], 0, 3, (16, 16, 16)), Stage(devices[1], 3, 4, (16,))), 1, 1, 2)


def test_the_pipeline_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stages take 9 and 8 s per prompt and 3 and 4 s per token, with two micro-batches and ten tokens.

    Prompts leave the second stage at 17 and 26 s, and from then on it never rests: it makes 2 · 9 tokens of 4 s.
    """
    took = {"t4": (3.0, 1.0), "v100-32": (8.0, 4.0)}

    def layer(model: Any, kind: Any, device: Any, bits: int, sequences: int, new: int, context: int) -> Shards:
        return Shards(took[device.name][new == 1], 0.0)

    monkeypatch.setattr(pipeline, "layer_seconds", layer)
    monkeypatch.setattr(pipeline, "head_seconds", lambda *_: 0.0)
    monkeypatch.setattr(pipeline, "embedding_seconds", lambda *_: 0.0)
    work = OfflineWork.of(SMALL, nodes_of(("t4", "v100-32")), prompt=8, output=10, batch=2)
    ran = two_stages(work).simulate()
    assert ran.prefill_s == pytest.approx(26, abs=0.01)
    assert ran.makespan_s == pytest.approx(26 + 18 * 4, abs=0.02)
    assert ran.token_throughput == pytest.approx(20 / 98, rel=1e-3)
    assert ran.busy == pytest.approx([(2 * 9 + 18 * 3) / 98, (2 * 8 + 18 * 4) / 98], rel=1e-3)
    # Alone in the pipeline, a sequence makes a token only after its prompt and its previous token.
    one = OfflineWork.of(SMALL, nodes_of(("t4", "v100-32")), prompt=8, output=10, batch=1)
    assert replace(two_stages(one), batch=1).simulate().makespan_s == pytest.approx(17 + 9 * 7, abs=0.02)


def test_one_device_is_the_sum_of_its_passes() -> None:
    work = OfflineWork.of("opt-13b", "mixed-offline-2", prompt=128, output=5, batch=4)
    plan = Uniform().plan_for(work)
    assert (len(plan.stages), plan.prefill_batch, plan.decode_batch) == (1, 4, 4)
    device, kind, bits = plan.stages[0].device.chip, work.model.layer(0), plan.layer_bits[0]
    passes = [(128, 0), *((1, 128 + r) for r in range(4))]
    layers = 40 * sum(layer_seconds(work.model, kind, device, bits, 4, new, past).total for new, past in passes)
    ran = plan.simulate()
    assert layers < ran.makespan_s < layers * 1.05  # embeddings and head


def test_a_slow_link_is_felt_by_the_judge() -> None:
    fast, slow = (OfflineWork.of("wide-8", nodes_of(("t4", "p100-12"), rate), output=6, batch=8) for rate in ("100 Gb/s", "0.2 Gb/s"))
    assert Uniform().plan_for(slow).simulate().makespan_s > 1.5 * Uniform().plan_for(fast).simulate().makespan_s


@pytest.mark.parametrize("number", [3, 4, 8])
def test_the_formula_is_near_the_pipeline(number: int) -> None:
    work = mixed(number, CONFIG_OF[number], output=40)
    for technique in (SplitQuantH(), PipeEdge()):
        plan = technique.plan_for(work)
        assert plan.predicted_s == pytest.approx(plan.simulate().makespan_s, rel=0.1)


CONFIG_OF = {3: "opt-30b", 4: "opt-30b", 8: "opt-66b"}


@pytest.mark.parametrize("technique", TECHNIQUES, ids=lambda t: type(t).__name__)
def test_every_plan_holds_all_layers_and_fits(technique: Any) -> None:
    work = mixed()
    plan = technique.plan_for(work)
    plan.check()
    assert [s.first for s in plan.stages] == [0, *(s.last for s in plan.stages[:-1])]
    assert len(plan.layer_bits) == 48
    assert set(plan.layer_bits) <= {3, 4, 8, 16}
    assert plan.quality_loss <= 48.0 + 1e-6
    ran = plan.simulate()
    assert ran.tokens == 32 * 12
    assert ran.makespan_s > 0
    assert max(ran.busy) <= 1 + 1e-9
    assert technique.plan_for(work).stages == plan.stages


def test_a_plan_that_does_not_fit_is_found_out() -> None:
    work = mixed()
    plan = Uniform().plan_for(work)
    with pytest.raises(DoesNotFit, match=r"device 0 \(t4\) would hold"):
        replace(plan, stages=tuple(replace(s, bits=(16,) * len(s)) for s in plan.stages)).simulate()
    with pytest.raises(InputError, match="follow each other"):
        replace(plan, stages=plan.stages[1:]).check()


def test_memory_by_hand() -> None:
    model = model_of("opt-13b")
    kind = model.layer(0)
    matrices, small = 12 * 5120 * 5120, 9 * 5120 + 4 * 5120
    assert layer_bytes(model, kind, 16) == 2 * (matrices + small)
    assert layer_bytes(model, kind, 8) == matrices + 2 * small
    assert layer_bytes(model, kind, 4) == matrices * (0.5 + 2.5 / 128) + 2 * small
    assert cache_bytes(model, 32 * 612) == 4 * 5120 * 32 * 612
    work = OfflineWork.of("opt-13b", "mixed-offline-1")
    left = 0.95 * 32e9 - 1.93e9 - once_bytes(model) - temporary_bytes(model, 2, 512)
    assert budget_of(work, work.devices[0], True, 2) == pytest.approx(left)
    assert budget_of(work, work.devices[0], False, 2) == pytest.approx(left + once_bytes(model))


def test_bloom_and_opt_have_their_published_sizes() -> None:
    sizes = {name: model_of(name).params() / 1e9 for name in CONFIGS}
    assert sizes["bloom-176b"] == pytest.approx(176.247, rel=1e-3)
    assert [round(sizes[f"opt-{n}b"]) for n in (13, 30, 66)] == [13, 30, 66]


def test_eight_bits_compute_on_int8_units_only_where_there_are_some() -> None:
    model = model_of("opt-30b")
    kind = model.layer(0)
    times = {name: {b: layer_seconds(model, kind, chip(name), b, 8, 512, 0).total for b in (4, 8, 16)} for name in ("t4", "v100-32")}
    assert times["t4"][8] < 0.7 * times["t4"][16]
    assert times["v100-32"][8] > times["v100-32"][16]  # made fp16 again
    assert times["t4"][4] > times["t4"][16]
    decode = {b: layer_seconds(model, kind, chip("t4"), b, 8, 1, 512).total for b in (4, 16)}
    assert decode[4] < decode[16]


def test_a_planner_blind_to_decoding_splits_otherwise() -> None:
    work = mixed(3, output=100)
    order = next(iter(orders(work.devices)))
    problem = problem_of(work, order, 1, 8, group=4)
    aware = solve(problem, quality=48.0, limit_s=20)
    blind = solve(replace(problem, decode=problem.decode * 1e-9, once_decode=problem.once_decode * 0), quality=48.0, limit_s=20)
    counts = [np.bincount(found.choice.device).tolist() for found in (aware, blind)]
    assert counts[0] != counts[1]
    assert problem.seconds(aware.choice) < 0.98 * problem.seconds(blind.choice)


def test_swapping_equal_devices_changes_nothing() -> None:
    work = mixed()
    first, second, *others = work.devices
    found = [solve(problem_of(work, (*two, *others), 2, 8, group=8), limit_s=20) for two in ((first, second), (second, first))]
    assert found[0].objective == pytest.approx(found[1].objective, rel=1e-3)


def test_orders_that_differ_are_tried_once() -> None:
    devices = mixed(5, "opt-66b").devices  # four T4 and two V100
    assert len(list(orders(devices, "types"))) == 2
    every = [tuple(d.kind for d in order) for order in orders(devices, "all")]
    assert len(every) == len(set(every)) == 15
    assert len(list(orders(devices, "given"))) == 1
    assert list(micro_batches(32, 5)) == [(1, 7), (7, 7)]


def test_pipeedge_finds_the_least_largest_stage() -> None:
    """Brute force tries all orders and cuts of a small cluster."""
    work = OfflineWork.of("wide-8", nodes_of(("t4", "v100-32", "t4")), output=12, batch=6, quality=None)
    plan = partitioned(work, 6, work.bits.index(8))
    size, bit = 2, work.bits.index(8)

    def largest(order: Any, counts: Any) -> float:
        problem = problem_of(work, order, size, size)
        choice = flat(problem, counts, bit)
        if not problem.feasible(choice):
            return np.inf
        layers = np.arange(problem.layers)
        each = problem.micro_prefill * problem.prefill[layers, choice.device, bit]
        each = each + problem.micro_decode * (problem.output - 1) * problem.decode[layers, choice.device, bit]
        once = problem.micro_prefill * problem.once_prefill + problem.micro_decode * (problem.output - 1) * problem.once_decode
        send = problem.micro_prefill * problem.send_prefill + problem.micro_decode * (problem.output - 1) * problem.send_decode
        return float(max((np.bincount(choice.device, each, problem.devices) + once).max(), *send[:-1], 0.0))

    best = np.inf
    for used in (1, 2, 3):
        for order in itertools.permutations(work.devices, used):
            for cuts in itertools.combinations(range(1, 8), used - 1):
                best = min(best, largest(order, np.diff([0, *cuts, 8])))
    found = largest([s.device for s in plan.stages], [len(s) for s in plan.stages])
    assert found == pytest.approx(best, rel=1e-9)


def test_flexgen_streams_only_what_does_not_fit() -> None:
    roomy = FlexGen(bits=4).plan_for(mixed(3))
    assert all(s.weights_on_host == s.cache_on_host == 0 for s in roomy.stages)
    tight = FlexGen(bits=16).plan_for(mixed(7, "opt-30b", output=4))
    assert any(s.weights_on_host + s.cache_on_host > 0 for s in tight.stages)
    tight.check()
    ran = tight.simulate()
    assert ran.makespan_s > FlexGen(bits=4).plan_for(mixed(7, "opt-30b", output=4)).simulate().makespan_s
    # It is no faster than the host link brings the weights that stay on the host, once per token and block.
    stage = tight.stages[0]
    layers = len(stage) * layer_bytes(tight.work.model, tight.work.model.layer(0), 16) * stage.weights_on_host
    assert ran.makespan_s >= 4 * layers / 12e9


def test_layers_in_proportion_to_memory() -> None:
    assert shares(np.array([10.0, 20.0, 30.0]), 12, 1.0) == [2, 4, 6]
    assert shares(np.array([10.0, 10.0]), 3, 1.0) == [2, 1]
    assert shares(np.array([0.1, 50.0]), 10, 1.0) == [1, 9]
    assert sum(shares(np.array([2.0, 2.0]), 10, 1.0)) == 4  # full: the caller says that it does not fit


def test_a_batch_is_halved_until_something_fits() -> None:
    asked = []

    def make(batch: int) -> int:
        asked.append(batch)
        if batch > 3:
            raise DoesNotFit(f"{batch} is too many")
        return batch

    work = mixed()
    assert halved_until_it_fits(work, make) == 2
    assert asked == [32, 16, 8, 4, 2]
    with pytest.raises(DoesNotFit, match="at 3 bits the layers and their cache need"):
        SplitQuant().plan("bloom-176b", "mixed-offline-1", output=4)


def test_the_plan_in_other_programs_words() -> None:
    plan = SplitQuantH(quality=40.0).plan("llama-3-8b", "mixed-offline-3", prompt=256, output=8, batch=8)
    counts = [len(s) for s in plan.stages]
    assert plan.vllm_pp() == "VLLM_PP_LAYER_PARTITION=" + ",".join(map(str, counts))
    where = plan.device_map()
    assert len(where) == 32 + 3
    assert where["lm_head"] == where["model.embed_tokens"] == where["model.layers.0"] == plan.stages[0].device.number
    assert where["model.layers.31"] == plan.stages[-1].device.number
    table = plan.table()
    assert table["count"].to_list() == counts
    mixed_bits = replace(plan, stages=(replace(plan.stages[0], first=0, last=32, bits=(16, *[8] * 15, *[4] * 16)),))
    recipe = mixed_bits.bits()
    assert set(recipe["config_groups"]) == {"bits_4", "bits_8"}
    assert recipe["config_groups"]["bits_4"]["weights"]["group_size"] == 128
    assert recipe["config_groups"]["bits_8"]["targets"][0].startswith(r"re:model\.layers\.(1|2|")
    rules = mixed_bits.bits("gptq")
    assert rules["bits"] == 4
    assert rules["dynamic"][r"-:model\.layers\.(0)\..*"] == {}
    with pytest.raises(InputError, match="style"):
        mixed_bits.bits("awq")  # type: ignore[arg-type]
    opt = Uniform().plan_for(mixed()).device_map()
    assert "model.decoder.layers.47" in opt


def test_a_curve_of_quality_and_speed() -> None:
    work = OfflineWork.of("wide-8", nodes_of(("t4", "p100-12")), output=8, batch=32)
    curve = pareto(work, points=3)
    assert len(curve) >= 2
    assert all(a.quality_loss < b.quality_loss and a.token_throughput < b.token_throughput for a, b in itertools.pairwise(curve))


def test_which_gpu_to_add() -> None:
    work = OfflineWork.of("wide-8", nodes_of(("t4",)), output=8, batch=16, quality=9.0)
    found = which_gpu(work, ("t4", "a100-40"))
    assert [each.device for each in found] == ["a100-40", "t4"]
    assert found[0].gain > 0
    assert with_device(work.cluster, "t4").devices() == 2
    with pytest.raises(InputError):
        with_device(work.cluster, "no-such-gpu")


def test_an_arena_run_leaves_its_plan() -> None:
    arena = catalogue.arena("serving/offline")
    case = next(c for c in arena.built_in("tiny") if c.name == "cluster-7").at(1, 0)
    outcome = arena.execute(arena.make("uniform"), case)
    assert outcome.values["over_quality"] == 0  # type: ignore[union-attr]
    assert [a.name for a in outcome.artifacts] == ["plan.csv", "plan.json"]  # type: ignore[union-attr]
