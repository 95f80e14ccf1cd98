"""The arena end to end: layouts, the modelled step, files from strangers, and what it answers."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary import compare
from armillary.arena import Outcome
from armillary.errors import InputError
from armillary.llm import Model
from armillary.training.sharding import (
    Ddp,
    Flat,
    Fsdp2Rowwise,
    Interleaved,
    MegatronFsdp,
    VeScaleFsdp,
    Whole,
    Zero3Elementwise,
    modelled,
    planned,
    ragged,
    read_header,
    shapes_of,
)  # fmt: skip
from armillary.training.sharding.arena import FAR, plots, sharding
from armillary.training.sharding.cost.step import WIDTH
from armillary.training.sharding.readers.blocks import read_blocks
from armillary.training.sharding.readers.safetensors_header import by_module

ALL = tuple(sharding.techniques)
SMALL = [{"a": (8, 6), "b": (6, 4), "n": (5,)}, {"c": (8, 6), "d": (6, 4), "m": (5,)}]


def work(n: int = 4, blocks: Any = (2, 0), **how: Any) -> Any:
    return planned(SMALL, n, blocks, **how)


# Layouts


@pytest.mark.parametrize("technique", ALL)
@pytest.mark.parametrize("n", [1, 3, 4])
def test_every_element_of_every_weight_lies_in_exactly_one_place(technique: str, n: int) -> None:
    made = sharding.make(technique).on_ranks()  # type: ignore[attr-defined]
    for group in made.groups(work(n).modules, n, 4):
        for bucket in group.buckets:
            seen = [np.zeros(w.size, int) for w in bucket.weights]
            for rank in range(n):
                taken = np.zeros(bucket.shard, int)
                for i, piece in bucket.pieces(rank):
                    seen[i][piece.start : piece.stop] += 1
                    taken[piece.at : piece.at + piece.size] += 1
                assert taken.max(initial=0) <= 1
            assert all((each == (n if technique == "ddp" else 1)).all() for each in seen)


def cut_by_hand(bucket: Any) -> int:
    """Blocks with elements on more than one rank, element by element."""
    total = 0
    for i, weight in enumerate(bucket.weights):
        owner = np.full(weight.size, -1)
        for rank in range(bucket.n):
            piece = bucket.piece(i, rank)
            owner[piece.start : piece.stop] = rank
        for start in range(0, weight.size, weight.grain):
            total += len(set(owner[start : start + weight.grain])) > 1
    return total


@pytest.mark.parametrize("technique", [name for name in ALL if name != "ddp"])
@pytest.mark.parametrize("block", [1, "row", (3, 0), (4, 3), "whole"])
def test_cut_blocks_are_those_on_several_ranks(technique: str, block: Any) -> None:
    made = sharding.make(technique).on_ranks()  # type: ignore[attr-defined]
    buckets = [b for g in made.groups(work(3, block).modules, 3, 1) for b in g.buckets]
    assert [b.cut_blocks() for b in buckets] == [cut_by_hand(b) for b in buckets]
    if technique == "vescale-fsdp":
        assert not any(b.cut_blocks() for b in buckets)


def test_fused_experts_are_divided_along_the_dimension_that_pads_least() -> None:
    (expert,) = ragged.weights_of({"w": (4, 12, 6)}, (2, 0))
    one, other = (Fsdp2Rowwise(choose=choose).buckets([expert], 6, 1)[0] for choose in (True, False))
    assert isinstance(one, Interleaved)
    assert (one.dims, one.padded, one.cut_blocks()) == ((1,), 288, 0)
    assert (other.padded, other.cut_blocks()) == (6 * 72, 0)  # type: ignore[attr-defined]
    # Two rows in blocks of three: each of the four matrices has cuts after 2, 4, 8 and 10 rows, inside 4 blocks.
    (three,) = ragged.weights_of({"w": (4, 12, 6)}, (3, 0))
    assert Fsdp2Rowwise().buckets([three], 6, 1)[0].cut_blocks() == 16
    (wide,) = ragged.weights_of({"w": (2, 2, 12)}, (2, 4))
    bucket = Fsdp2Rowwise().buckets([wide], 6, 1)[0]
    assert (bucket.dims, bucket.cut_blocks()) == ((2,), 2)  # type: ignore[attr-defined]
    assert Fsdp2Rowwise().buckets(ragged.weights_of({"w": (2, 2, 24)}, (2, 4)), 6, 1)[0].cut_blocks() == 0
    with pytest.raises(InputError, match="divided along dimension 1"):
        one.piece(0, 0)


def test_padding_by_hand() -> None:
    made = ragged.weights_of({"a": (7, 4), "b": (3,)})
    assert Fsdp2Rowwise(choose=False).buckets(made, 2, 1)[0].shard == 4 * 4 + 2
    assert Zero3Elementwise().buckets(made, 2, 1)[0].shard == 14 + 2
    assert Ddp().buckets(made, 2, 32)[0] == Whole(made, 2, 31, (0, 28))
    assert sharding.make("fsdp1-flat").buckets(made, 2, 8)[0].shard == 16  # type: ignore[attr-defined]


def test_megatron_sorts_by_row_length_and_pads_to_whole_rows() -> None:
    made = ragged.weights_of({"a": (7, 4), "b": (3, 6), "c": (8,), "d": (5,)})
    buckets = MegatronFsdp().buckets(made, 2, 1)
    assert [[w.name for w in b.weights] for b in buckets] == [["b"], ["a", "c"], ["d"]]
    assert [b.shard for b in buckets] == [12, 20, 3]
    assert all(isinstance(b, Flat) for b in buckets)
    for bucket, row in zip(buckets, (6, 4, 1)):
        for i, weight in enumerate(bucket.weights):
            for rank in range(2):
                piece = bucket.piece(i, rank)
                assert not weight.matrix or piece.start % row == piece.stop % row == 0
    # A vector that is shorter than a row fills a gap, if its length allows it to join.
    filled = MegatronFsdp().buckets(ragged.weights_of({"a": (2, 4), "v": (4,)}), 3, 1)
    assert len(filled) == 1


# The modelled step


def test_collectives_of_a_planned_step_move_the_padded_buffers() -> None:
    """One group, no overlap: gather, forward, backward, reduce, update, one after the other."""
    from armillary.llm.cost.operators import collective_seconds

    one = planned([{"a": (1 << 12, 1 << 12)}], 16, (32, 0), optimizer="adamw")
    chip, fabric = one.machine
    found = modelled(VeScaleFsdp(), one)
    gather, reduce = (float(collective_seconds(fabric, k, WIDTH * float(1 << 24), 16, far=True)) for k in ("all-gather", "reduce-scatter"))
    update = 30.0 * (1 << 20) / (chip.calibration.eta_m * chip.bandwidth)
    assert found.step_s == pytest.approx(gather + found.compute_s + reduce + update)
    assert found.padding == found.cut_blocks == found.copy_s == 0
    assert found.state_bytes == pytest.approx((1 << 20) * 18 + 2 * WIDTH * (1 << 24))
    flat = modelled(sharding.make("fsdp1-flat"), one)  # type: ignore[arg-type]
    copied = 2 * WIDTH * (1 << 24) / (chip.calibration.eta_m * chip.bandwidth)
    assert flat.step_s == pytest.approx(found.step_s + copied)


def test_prefetching_hides_gathers_and_never_costs() -> None:
    llama = Model.preset("llama-3-8b")
    some = planned(shapes_of(llama), 64, (32, 0), model=llama, tokens=4096)
    with_it, without = modelled(VeScaleFsdp(), some), modelled(VeScaleFsdp(prefetch=False), some)
    assert with_it.step_s < without.step_s
    assert with_it.step_s >= with_it.compute_s + with_it.update_s
    lanes: dict[str, list[tuple[float, float]]] = {}
    for lane, _, start, seconds in with_it.events:
        lanes.setdefault(lane, []).append((start, seconds))
    for events in lanes.values():
        assert all(a[0] + a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(events))


def test_parts_of_vescale_in_the_model() -> None:
    """Without planning blocks are cut, without the shared buffer bytes are copied, without division or merging more is padded."""
    llama = Model.preset("llama-3-70b")
    some = planned(shapes_of(llama)[:9], 1024, (32, 0))
    full = modelled(VeScaleFsdp(), some)
    assert (full.cut_blocks, full.copy_s) == (0, 0)
    assert modelled(VeScaleFsdp(order="given"), some).cut_blocks > 0
    assert modelled(VeScaleFsdp(buffer="per-parameter"), some).copy_s > 0
    assert modelled(VeScaleFsdp(divide=False), some).padding > full.padding
    alone = modelled(VeScaleFsdp(merge=0.0), some)
    assert alone.padding > 5 * full.padding
    assert alone.buffer_bytes < full.buffer_bytes
    assert alone.step_s > full.step_s


def test_where_nothing_must_be_kept_vescale_is_a_flat_buffer() -> None:
    for n in (8, 100):
        some = planned(shapes_of(Model.preset("gpt2")), n, 1, optimizer="adamw")
        flat, mine = (modelled(sharding.make(name), some) for name in ("fsdp1-flat", "vescale-fsdp"))  # type: ignore[arg-type]
        assert mine.padding == pytest.approx(flat.padding, abs=1e-9)
        assert mine.step_s <= 1.02 * flat.step_s
        assert mine.state_bytes <= flat.state_bytes


@pytest.mark.parametrize("name", ["llama-3-8b", "gpt-oss-120b", "deepseek-v3", "gpt2", "mixtral-8x7b", "opt-6.7b"])
def test_shapes_have_all_parameters_of_the_model(name: str) -> None:
    model = Model.preset(name)
    modules = shapes_of(model)
    assert sum(int(np.prod(shape)) for module in modules for shape in module.values()) == model.params()
    assert len(modules) in (model.layers + 1, model.layers + 2)


def test_gpt_oss_has_the_fused_experts_of_its_public_checkpoint() -> None:
    layer = shapes_of(Model.preset("gpt-oss-120b"))[1]
    assert layer["layers.0.experts.gate_up_proj.weight"] == (128, 5760, 2880)
    assert layer["layers.0.experts.down_proj.weight"] == (128, 2880, 2880)
    assert layer["layers.0.experts.gate_up_proj.bias"] == (128, 5760)


# Cases and answers


def test_claims_have_four_cases_and_the_defaults_are_few() -> None:
    cases = sharding.built_in("small")
    for _, _, claim in sharding.claims():
        assert sum(claim.kinds[0].takes(case.kinds) for case in cases) >= 4
    assert len(sharding.telling_cases("small") or ()) == 4
    assert sum("sweep" in case.kinds for case in cases) == 3 * 5 * 6 - 6


def test_the_answer_names_what_cuts_nothing() -> None:
    result = compare("training/sharding", cases=["llama-3-70b-n64"], scale="tiny", repeats=1)
    assert "vescale-fsdp cuts no block on the planned case, and its step takes 1.00 times as long" in result.answer()
    assert "Ask for" in compare("training/sharding", cases=["llama-3-70b-n64"], scale="tiny", repeats=1, metrics=["padding_ratio"]).answer()
    only = compare("training/sharding", cases=["llama-3-70b-n64"], scale="tiny", repeats=1, techniques=["fsdp1-flat"])
    assert "No sharding without cut blocks" in only.answer()
    assert len(plots(result)) == 2


def test_training_that_goes_astray_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge is the single process: a technique whose weights differ from it gets no figures."""
    from armillary.training.sharding.runtime import sharded

    case = next(c for c in sharding.built_in("tiny") if c.name == "tiny-gpt-n2-adamw").at(0, 0)
    with monkeypatch.context() as strict:  # Both references are made before anything goes astray.
        strict.setitem(FAR, "adamw", 0.0)
        assert isinstance(sharding.execute(sharding.make("vescale-fsdp"), case), Outcome)
    step = sharded.Sharded.step
    monkeypatch.setattr(sharded.Sharded, "step", lambda self: [p.grad.mul_(-1) for p in self.parameters()] and step(self))
    with pytest.raises(RuntimeError, match="from that of a single process"):
        sharding.execute(sharding.make("fsdp1-flat"), replace(case, parameters={**case.parameters}))


def test_a_rounding_that_sends_a_token_elsewhere_is_told_from_a_wrong_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where experts nearly tie, training in float32 may part from that of a single process; float64 then tells who is right."""
    case = next(c for c in sharding.built_in("tiny") if c.name == "tiny-moe-n2-adam8bit").at(0, 0)
    monkeypatch.setitem(FAR, "adam8bit", 0.0)
    assert isinstance(sharding.execute(sharding.make("vescale-fsdp"), case), Outcome)
    monkeypatch.setattr("armillary.training.sharding.arena.FAR_EXACT", 0.0)
    with pytest.raises(RuntimeError, match="from that of a single process"):
        sharding.execute(sharding.make("vescale-fsdp"), case)


# Files


def header(folder: Path, said: Any, data: int = 0, length: int | None = None) -> Path:
    text = said if isinstance(said, bytes) else json.dumps(said).encode()
    path = folder / "model.safetensors"
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + bytes(data))
    return path


def entry(shape: Any = (2, 3), start: int = 0, stop: int = 24, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape) if isinstance(shape, tuple) else shape, "data_offsets": [start, stop]}


def test_headers_give_shapes_by_module(tmp_path: Path) -> None:
    said = {
        "__metadata__": {"format": "pt"}, "model.embed_tokens.weight": entry(), "model.layers.1.w": entry((4,), 24, 32, "BF16"),
        "model.layers.0.w": entry((4,), 32, 40, "BF16"), "lm_head.weight": entry((1,), 40, 44), "steps": entry((1,), 44, 52, "I64"),
    }  # fmt: skip
    found = read_header(header(tmp_path, said, 52))
    assert found["model.layers.1.w"] == (4,)
    assert "steps" not in found
    assert [list(module) for module in by_module(found)] == [
        ["model.embed_tokens.weight"], ["model.layers.0.w"], ["model.layers.1.w"], ["lm_head.weight"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "data", "length", "says"),
    [
        (b"{}", 0, 1 << 40, "found a header of 1,099,511,627,776 bytes in a file of 10"),
        (b"{}", 0, 3, "found a header of 3 bytes in a file of 10"),
        (b"{}" + b" " * 10, 0, 100_000_001, "expected at most 100,000,000"),
        (b"[1]", 0, None, "found no object"),
        (b"{", 0, None, "model.safetensors"),
        ({"a": 7}, 0, None, 'tensor "a": expected dtype'),
        ({"a": entry(dtype="F99")}, 24, None, "known dtype"),
        ({"a": entry([2, -3])}, 24, None, "expected sizes from 0"),
        ({"a": entry([2, True])}, 24, None, "expected sizes from 0"),
        ({"a": entry()}, 23, None, "inside 23 bytes"),
        ({"a": entry(stop=20)}, 24, None, "expected those of its shape"),
        ({"a": {**entry(), "data_offsets": [0]}}, 24, None, "expected two numbers"),
        ({"a": entry(), "b": entry(start=20, stop=44)}, 44, None, "overlap"),
        ({"a": entry(dtype="I32")}, 24, None, "found no tensor of floating-point"),
    ],
)
def test_headers_that_lie_are_refused_in_one_line(tmp_path: Path, said: Any, data: int, length: int | None, says: str) -> None:
    with pytest.raises(InputError) as error:
        read_header(header(tmp_path, said, data, length))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_blocks_are_words_or_rules(tmp_path: Path) -> None:
    assert [read_blocks(word) for word in ("1", "row", "whole", "32", "128x64")] == [1, "row", "whole", (32, 0), (128, 64)]
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\npattern = "*.w"\nblock = [4, 4]\n')
    assert read_blocks(str(rules)) == [{"pattern": "*.w", "block": [4, 4]}]
    for text, says in (("[[rule", "rules.toml"), ("x = 1", "expected a list of rules")):
        rules.write_text(text)
        with pytest.raises(InputError, match=says):
            read_blocks(str(rules))


def test_a_config_and_a_header_are_cases(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 100,
    }))  # fmt: skip
    (case,) = sharding.from_file(config, {"ranks": 8, "block": "16x16"})
    assert case.kinds == {"planned", "file"}
    values = sharding.execute(sharding.make("vescale-fsdp"), case.at(0, 0)).values  # type: ignore[union-attr]
    assert values["cut_blocks"] == 0
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps([{"pattern": "*", "block": "row"}, {"pattern": "*.up_proj*", "block": 1}]))
    with pytest.raises(InputError, match="matches two rules"):
        sharding.from_file(config, {"block": str(rules)})
    other = tmp_path / "weights.bin"
    other.write_bytes(b"1")
    with pytest.raises(InputError, match=r"expected a config\.json or a \.safetensors"):
        sharding.from_file(other)
