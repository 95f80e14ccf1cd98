"""The arena: files of load and of failures, what a bad one says, the answer, and its cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from armillary import catalogue, compare
from armillary.errors import InputError
from armillary.training.checkpoint import DcpAsync, Gemini, expert_load, read_load, read_outages
from armillary.training.checkpoint.arena import Reading, checkpoint, read

HOW = {"model": "gpt-moe-125m", "gpus": "16"}


def load(count: int = 30) -> Any:
    return expert_load(np.random.default_rng(1), count, 12, 8, 2048 * 8 * 2)


def long_rows(found: Any) -> list[str]:
    t, m, e = np.indices(found.shape)
    rows = zip(t.ravel(), m.ravel(), e.ravel(), found.ravel(), strict=True)
    return ["iteration,layer,expert,tokens", *(",".join(map(str, row)) for row in rows)]


def written(folder: Path, rows: list[str], name: str = "load.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(rows) + "\n")
    return path


# Load


def test_long_and_wide_tables_are_the_same_load(tmp_path: Path) -> None:
    found = load()
    assert np.array_equal(read_load(written(tmp_path, long_rows(found))), found)
    t, m = np.indices(found.shape[:2])
    frame = pl.DataFrame({"iteration": t.ravel(), "layer": m.ravel(), **{f"expert_{e}": found[:, :, e].ravel() for e in range(8)}})
    frame.sample(fraction=1.0, shuffle=True, seed=3).write_parquet(tmp_path / "load.parquet")
    assert np.array_equal(read_load(tmp_path / "load.parquet"), found)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: rows[:-1], "iteration 29, layer 11, expert 7 is missing"),
        (lambda rows: [*rows, rows[5]], "found iteration 0, layer 0 again"),
        (lambda rows: [*rows[:1], "0,0,0,1", *rows[2:]], r"found \d+ tokens in all; expected \d+, as in the first layer"),
        (lambda rows: [*rows[:1], "0,0,0,-4", *rows[2:]], 'column "tokens"'),
        (lambda rows: [*rows[:1], "0,0,5000,4", *rows[2:]], 'column "expert"'),
        (lambda rows: [*rows[:1], "99999999,0,0,4", *rows[2:]], 'column "iteration"'),
        (lambda rows: rows[: 1 + 20 * 96], "found 20 iterations; expected more than the 20 of the warm-up"),
        (lambda rows: ["time_s,rank", "1,2"], "expected expert load .columns iteration, layer, expert, tokens"),
        (lambda rows: ["iteration,layer,expert_0,expert_2", "0,0,1,1"], "without gaps"),
        (lambda rows: [*rows[:1], "90000,0,0,4", "0,99999,0,4", *rows[2:]], "expected at most 20,000,000 values"),
    ],
)
def test_a_bad_load_is_said_in_one_line(tmp_path: Path, change: Any, says: str) -> None:
    path = written(tmp_path, change(long_rows(load())))
    with pytest.raises(InputError, match=says) as error:
        read_load(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"model": "gpt-moe-350m"}, "has 24 MoE layers of 8 experts"),
        ({"model": "llama-2-7b"}, "has no experts"),
        ({"model": "gpt-moe-7b"}, "unknown model preset"),
        ({"ep": 3}, "expected a multiple of ep 3"),
        ({"ep": 16}, "expected a divisor of 8 experts"),
        ({"gpus": 12}, "expected a multiple of 8"),
        ({"cluster": "cpu-2core"}, "has no GPU"),
    ],
)
def test_options_that_do_not_fit_the_load_are_refused(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    path = written(tmp_path, long_rows(load(25)))
    with pytest.raises(InputError, match=says):
        read(path, Reading(**{"model": "gpt-moe-125m", "gpus": 16, **options}))


def test_a_config_draws_its_load_and_a_dense_one_is_refused(tmp_path: Path) -> None:
    source = Path(catalogue.ROOT) / "llm" / "presets" / "models"
    path = tmp_path / "config.json"
    path.write_text((source / "deepseek-moe-16b.json").read_text())
    made = read(path, Reading(gpus=32, ep=32, tokens=1024, iterations=25, load="balanced"))
    assert made.tokens.shape == (25, 27, 64)
    assert (made.tokens.sum(axis=2) == 1024 * 32 * 6).all()
    path.write_text((source / "llama-2-7b.json").read_text())
    with pytest.raises(InputError, match="has no experts"):
        read(path, Reading())
    with pytest.raises(InputError, match="expected fewer"):
        path.write_text((source / "deepseek-moe-16b.json").read_text())
        read(path, Reading(gpus=32, ep=32, iterations=100_000))


# Failures


def test_ranks_of_a_failure_trace_are_nodes(tmp_path: Path) -> None:
    path = written(tmp_path, ["time_s,rank", "10,0", "10,9", "500,15", "9000,3"], "failures.csv")
    found = read_outages(path, 16, 8, 3600.0)
    assert found.events.part.tolist() == [0, 1, 1, 0]
    assert found.mtbf_s == 1800.0


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (["time_s,rank", "10,16"], 'column "rank"'),
        (["time_s,rank", "10,1", "5,1"], "do not decrease"),
        (["time_s,rank", "-1,1"], 'column "time_s"'),
        (["time,gpu", "1,1"], "expected a failure trace with time_s and rank"),
    ],
)
def test_a_bad_failure_trace_is_said_in_one_line(tmp_path: Path, rows: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_outages(written(tmp_path, rows, "failures.csv"), 16, 8, 3600.0)


# The command


def test_a_load_and_a_trace_of_ones_own_are_compared(tmp_path: Path) -> None:
    path, trace = written(tmp_path, long_rows(load(40))), written(tmp_path, ["time_s,rank", "700,3", "700,9"], "failures.csv")
    found = compare(
        "training/checkpoint",
        work=path,
        options={**HOW, "failures": str(trace), "horizon_h": "1"},
        techniques=["none", "gemini", "dcp-async"],
    )
    assert "Through failures" in found.answer()
    assert found.medians("gemini", "goodput")["load.csv"] > found.medians("none", "goodput")["load.csv"]


def test_the_answer_names_the_fastest_that_checkpoints() -> None:
    found = compare("training/checkpoint", scale="tiny", cases=["mixtral-8x7b-skewed"], techniques=["none", "dcp-async", "moe-rckpt"])
    assert found.answer().startswith(
        "moe-rckpt has the shortest iterations of all that checkpoint, on mixtral-8x7b-skewed, which it makes 0."
    )
    found = compare("training/checkpoint", scale="tiny", cases=["mixtral-8x7b-skewed"], techniques=["none"])
    assert found.answer() == "No technique that checkpoints ran on these cases."


def test_all_models_run_on_another_cluster() -> None:
    found = compare(
        "training/checkpoint", scale="tiny", cluster="dgx-h100", cases=["gpt-moe-350m-skewed"], techniques=["none", "moe-rckpt"]
    )
    assert found.medians("moe-rckpt", "overhead_ratio")["gpt-moe-350m-skewed"] < 0.05


def test_more_replicas_than_nodes_are_declined() -> None:
    case = next(case for case in checkpoint.built_in("tiny") if case.name == "gpt-moe-350m-skewed").at(0, 0)
    assert "replicas: found 3 for 2 nodes" in str(checkpoint.execute(checkpoint.make("gemini", {"replicas": 3}), case))


def test_a_single_node_has_an_idle_network_and_no_neighbour(tmp_path: Path) -> None:
    made = read(written(tmp_path, long_rows(load(25))), Reading(model="gpt-moe-125m", gpus=8))
    assert made.spans.shape[1] == 1
    assert DcpAsync().train(made).iteration_s > 0
    with pytest.raises(InputError, match="replicas: found 2 for 1 nodes"):
        Gemini().train(made)


def test_every_kind_has_its_cases() -> None:
    kinds = [case.kinds for case in checkpoint.built_in("small")]
    counts = {kind: sum(kind in one for one in kinds) for kind in ("per-iteration", "failures", "misfit", "in-node", "measured")}
    assert counts == {"per-iteration": 16, "failures": 5, "misfit": 4, "in-node": 2, "measured": 1}
    assert checkpoint.telling_cases() is not None
    assert len(checkpoint.telling_cases() or ()) == 3


def test_techniques_that_are_only_simulated_decline_real_training() -> None:
    case = next(case for case in checkpoint.built_in("small") if case.name == "real-kill").at(0, 0)
    for name in ("torchsnapshot", "dcp-async", "checkfreq", "moevement"):
        assert "simulated only" in str(checkpoint.execute(checkpoint.make(name), case))
