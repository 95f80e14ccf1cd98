"""The arena end to end: its workloads, its files, promises against delivery, and figures that go together."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from armillary import compare
from armillary.arena import Case, NotForThisCase, Outcome
from armillary.errors import InputError
from armillary.llm import Model, Plan
from armillary.training.pipeline import Division, interleaved, read_lengths, read_profile, resnet, sequences, transformer
from armillary.training.pipeline.arena import pipeline
from armillary.training.pipeline.planning.layers import even_cuts
from armillary.training.pipeline.readers.profile_csv import COLUMNS
from armillary.training.pipeline.simulation.simulator import simulate, unit_costs
from armillary.training.pipeline.workload import draw_lengths

TINY = {case.name: case.at(0, 0) for case in pipeline.built_in("tiny")}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """The arena's example, sequences for more packs than ranks, and a schedule, each as a user's file."""
    folder = tmp_path_factory.mktemp("small")
    path, options = pipeline.write_example(folder)
    (folder / "lengths.txt").write_text("900\n" * 12 + "5000\n" * 6)
    given = interleaved(2, 4, 2).to_csv(folder / "schedule.csv")
    found = [*pipeline.from_file(path, options), *pipeline.from_file(folder / "lengths.txt", {"tp": "2"}), *pipeline.from_file(given, {})]
    return {case.name: case for case in found}


@pytest.mark.parametrize("technique", sorted(pipeline.techniques))
def test_the_figures_of_every_technique_go_together_on_small_files(technique: str, small: dict[str, Case]) -> None:
    assert go_together(technique, small) > 0


@pytest.mark.slow
@pytest.mark.parametrize("technique", sorted(set(pipeline.techniques) - {"given"}))
def test_the_figures_of_every_technique_go_together(technique: str) -> None:
    assert go_together(technique, TINY) > 0


def go_together(technique: str, cases: dict[str, Case]) -> int:
    """Asserts what holds between the figures of a technique on each case that it takes, and returns their number."""
    taken = 0
    for name, case in cases.items():
        outcome = pipeline.execute(pipeline.make(technique), case)
        if isinstance(outcome, NotForThisCase):
            continue
        assert isinstance(outcome, Outcome), name
        v, work = outcome.values, case.workload
        assert v["step_time_s"] > 0
        assert 0 <= v["bubble_fraction"] < 1
        assert 0 < v["useful_fraction"] <= 1 - v["bubble_fraction"] + 1e-12
        assert v["memory_imbalance"] >= 1
        assert 0 < v["memory_utilisation"] <= v["peak_memory_bytes"] / work.capacity + 1e-12
        assert v["peak_memory_bytes"] <= work.capacity * (1 + 1e-12)
        assert v["promise_error"] < 0.6
        bars = json.loads(next(left.data for left in outcome.artifacts if left.name == "timeline.json"))
        assert max(bar["ts"] + bar["dur"] for bar in bars) <= 1e6 * v["step_time_s"] * (1 + 1e-6)
        taken += 1
    return taken


def misfits() -> list[str]:
    return [case.name for case in pipeline.built_in("small") if "misfit" in case.kinds]


@pytest.mark.slow
@pytest.mark.parametrize("name", misfits())
def test_planners_stand_costs_that_turn_out_otherwise(name: str) -> None:
    case = next(case.at(0, 0) for case in pipeline.built_in("small") if case.name == name)
    simplest = {"prt": "1f1b", "bmpipe": "megatron-uniform", "infinipipe": "1f1b"}
    for technique, baseline in simplest.items():
        found = [pipeline.execute(pipeline.make(each), case) for each in (technique, baseline)]
        if all(isinstance(each, Outcome) for each in found):
            ours, plain = (each.values["step_time_s"] for each in found)  # type: ignore[union-attr]
            assert ours <= 1.03 * plain, technique


def test_a_misfit_changes_what_is_delivered_and_not_what_is_planned() -> None:
    work = TINY["misfit-bert-base"].workload
    plan = pipeline.make("1f1b").plan(work)  # type: ignore[attr-defined]
    assert work.simulate(plan).makespan != work.simulate(plan, actual=False).makespan
    assert work.simulate(plan).peak.tolist() == work.simulate(plan, actual=False).peak.tolist()


def test_transformers_are_cut_into_what_they_consist_of() -> None:
    model = Model.preset("bert-base")
    halves = transformer(model, Plan(pp=8, micro_batch=2), 128, 4, "dgx-a100", halves=True).layers
    whole = transformer(model, Plan(pp=8, micro_batch=2), 128, 4, "dgx-a100").layers
    assert (halves.body, whole.body) == (24, 12)
    for name in ("forward", "backward_input", "backward_weight", "state", "gradients"):
        assert getattr(halves, name).sum() == pytest.approx(getattr(whole, name).sum()), name
    assert halves.kept[:, 0].sum() == pytest.approx(whole.kept[:, 0].sum())
    params = sum(t.params for t in model.once if t.split == "vocabulary" and t.part == "embedding")  # the tied head holds its own copy
    assert whole.state.sum() == pytest.approx(18 * (model.params() + params))


def test_resnets_have_their_published_work() -> None:
    found = {name: resnet(name, 32, 8, 8, "dgx-a100") for name in ("resnet50", "resnet101", "resnet152")}
    assert [work.layers.body for work in found.values()] == [16, 33, 50]
    # Published parameters: 25.6, 44.5 and 60.2 million, each held with 18 bytes of state.
    millions = [work.layers.state.sum() / 18e6 for work in found.values()]
    assert millions == pytest.approx([25.557, 44.549, 60.193], rel=1e-3)


def test_lengths_have_the_shape_that_was_meant() -> None:
    rng = np.random.default_rng(0)
    for corpus, share, short in (("github", 0.0207, 0.85), ("web", 0.0031, 0.95)):
        found = draw_lengths(corpus, 1 << 24, 196608, rng)
        assert (found < 8192).mean() > short
        assert (found > 32768).mean() == pytest.approx(share, rel=0.4)
        assert found.max() <= 196608
        assert (1 << 24) <= found.sum() < (1 << 24) + 196608
    with pytest.raises(InputError, match="corpus"):
        draw_lengths("books", 1000, 1000, rng)


def profile(folder: Path, **changes: str) -> Path:
    """A good profile, with cells replaced by `row_column="text"`."""
    rows = [["emb", "head", 1, 0, 1, 0, 0, 100, 0, 0, 0, 10]]
    rows += [[f"l{i}", "body", 2, 2, 2, 1, 2, 100, 80, 40, 10, 10] for i in range(4)]
    rows += [["loss", "tail", 1, 1, 1, 0, 0, 100, 8, 8, 8, 0]]
    for place, text in changes.items():
        row, _, column = place[1:].partition("_")
        rows[int(row)][COLUMNS.index(column)] = text
    path = folder / "profile.csv"
    path.write_text(",".join(COLUMNS) + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


def test_a_profile_is_read_as_it_is(tmp_path: Path) -> None:
    layers = read_profile(profile(tmp_path), state=2.0)
    assert layers.options == ("none", "selective", "full")
    assert layers.forward.tolist() == [0.001, 0.002, 0.002, 0.002, 0.002, 0.001]
    assert layers.state.tolist() == [200.0] * 6
    division = Division.uniform(layers, even_cuts(4, 2), 2)
    assert division.seconds[0].tolist() == pytest.approx([0.005, 0.005])
    assert division.seconds[3].tolist() == pytest.approx([0.004, 0.004])
    fused = tmp_path / "fused.csv"
    header = "name,type,forward_ms,backward_ms,recompute_selective_ms,recompute_mlp_ms,recompute_full_ms,param_bytes,act_none_bytes,act_selective_bytes,act_mlp_bytes,act_full_bytes,boundary_bytes"
    fused.write_text(f"{header}\na,body,1,3,1,1,1,5,4,3,2,1,1\n")
    both = read_profile(fused)
    assert both.options == ("none", "selective", "mlp", "full")
    assert both.backward_input.tolist() == both.backward_weight.tolist() == [0.0015]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"r1_forward_ms": "-1"}, r'profile.csv:3: column "forward_ms": found "?-1'),
        ({"r1_forward_ms": "nan"}, "forward_ms"),
        ({"r2_act_full_bytes": "90"}, r'profile.csv:4: column "act_full_bytes": found 90 bytes; expected at most act_none_bytes'),
        ({"r1_type": "tail"}, "at most one tail, as the last"),
        ({"r0_type": "body", "r3_type": "head"}, "at most one head, as the first"),
    ],
)
def test_bad_profiles_are_refused(tmp_path: Path, change: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_profile(profile(tmp_path, **change))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"pp": "9"}, "9 ranks for 4 body layers"),
        ({"pp": "2", "capacity_gb": "1e-7"}, "stage 0 of an even split needs 300 bytes for its parameters alone, 200 bytes more"),
        ({"micros": "0"}, "--micros: found 0"),
    ],
)
def test_a_profile_that_cannot_be_planned_is_refused(tmp_path: Path, options: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        pipeline.from_file(profile(tmp_path), options)


def test_lengths_are_read_from_every_format(tmp_path: Path) -> None:
    import polars as pl

    text, lines, ids, table = (tmp_path / name for name in ("a.txt", "b.jsonl", "c.jsonl", "d.parquet"))
    text.write_text("5\n\n70\n")
    lines.write_text('{"length": 5}\n{"length": 70}\n')
    ids.write_text('{"input_ids": [1, 2]}\n{"input_ids": [3]}\n')
    pl.DataFrame({"length": [5, 70]}).write_parquet(table)
    assert [read_lengths(path).tolist() for path in (text, lines, table)] == [[5, 70]] * 3
    assert read_lengths(ids).tolist() == [2, 1]
    for bad, says in (("5\nx\n", "a.txt:2"), ("0\n", "from 1 to"), (f"{1 << 25}\n", "from 1 to"), ("", "no lengths")):
        text.write_text(bad)
        with pytest.raises(InputError, match=says):
            read_lengths(text)
    lines.write_text('{"size": 5}\n')
    with pytest.raises(InputError, match="neither length nor input_ids"):
        read_lengths(lines)


def test_own_files_become_work(tmp_path: Path) -> None:
    lengths = tmp_path / "lengths.txt"
    lengths.write_text("\n".join(["900"] * 40 + ["30000"]) + "\n")
    found = compare("training/pipeline", work=lengths, options={"pp": "4", "tp": "2"}, techniques=["1f1b", "seq1f1b", "infinipipe"])
    assert "infinipipe" in found.answer() or "seq1f1b" in found.answer()
    config = tmp_path / "config.json"
    config.write_text(json.dumps({
        "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "intermediate_size": 1024, "vocab_size": 1000,
    }))  # fmt: skip
    case = pipeline.from_file(config, {"pp": "4", "batch": "8", "tokens": "256"})[0]
    assert case.workload.micros == 8
    with pytest.raises(InputError, match="expected a multiple"):
        pipeline.from_file(config, {"pp": "4", "batch": "9", "micro_batch": "2"})


def test_a_users_schedule_is_compared_with_the_others(tmp_path: Path) -> None:
    path = interleaved(4, 8, 2).to_csv(tmp_path / "mine.csv")
    found = compare("training/pipeline", work=path, techniques=["given", "gpipe", "zb-v"], options={"latency_us": "0"})
    on = found.on("mine.csv", "step_time_s")
    # Eight stages of 1 ms per pass: 57 chunk passes of the interleaved schedule; gpipe has four stages of 2 ms.
    assert on["given"] == pytest.approx(0.057)
    assert on["gpipe"] == pytest.approx(0.066)
    assert found.best("mine.csv", "step_time_s") == "zb-v"
    with pytest.raises(InputError, match="4 body layers for 8 stages"):
        pipeline.from_file(path, {"profile": str(profile(tmp_path))})


def test_the_answer_names_winner_gain_and_bubble() -> None:
    found = compare("training/pipeline", scale="tiny", cases=["gpt3-175b-m8"], techniques=["1f1b", "zb-h1"])
    assert found.answer().startswith("zb-h1 has the shortest step on gpt3-175b-m8, 1.29 times as fast as 1f1b with bubbles of 32 %")


def test_sequences_longer_than_the_model_takes_are_refused() -> None:
    with pytest.raises(InputError, match="expected 1 to 4,096"):
        sequences(Model.preset("llama-2-7b"), Plan(pp=4), np.array([5000]), 4096, "dgx-a100")
    with pytest.raises(InputError, match="kinds of layers"):
        sequences(Model.preset("deepseek-v3"), Plan(pp=4), np.array([5000]), 8192, "dgx-a100")


def test_a_config_is_planned_on_the_cluster_that_was_named_and_the_answer_says_what_to_run(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({
        "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 8,
        "intermediate_size": 8192, "vocab_size": 32000,
    }))  # fmt: skip
    how = {"work": config, "techniques": ["gpipe", "1f1b"], "store": tmp_path / "store.db"}
    fast, slow = (compare("training/pipeline", cluster=name, **how) for name in ("dgx-h100", "dgx-a100"))
    assert fast.on("config.json", "step_time_s")["1f1b"] < 0.6 * slow.on("config.json", "step_time_s")["1f1b"]
    said = fast.answer()
    assert "4 stages on 4 ranks" in said
    assert "16 micro-batches" in said
    assert "GB on the fullest rank" in said


def test_a_table_of_another_kind_gets_a_line_that_names_the_kinds(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    path.write_text("arrived_at,prompt_tokens\n0.5,400\n0.7,300\n")
    with pytest.raises(InputError, match=r"forward_ms.*0F0.*column length \(--column"):
        pipeline.from_file(path)
    (case,) = pipeline.from_file(path, {"column": "prompt_tokens"})
    assert case.workload.lengths.tolist() == [400, 300]


@pytest.mark.parametrize("name", ["stage", "kind", "micro", "stage_rank", "following", "previous_slice", "replica"])
def test_no_loop_follows_an_index_that_leads_nowhere(name: str) -> None:
    schedule = interleaved(2, 4, 2)
    wrong = getattr(schedule, name).copy()
    wrong[0] = 1 << 40
    with pytest.raises(InputError, match="does not exist"):
        simulate(replace(schedule, **{name: wrong}), unit_costs(schedule))
