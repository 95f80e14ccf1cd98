"""The arena end to end: its workloads, its files, and figures that go together."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from armillary import compare
from armillary.arena import NotForThisCase, Outcome
from armillary.errors import InputError
from armillary.training.rollout import RolloutWork, Setup, Verl, ablation, chain_of_thought, metrics, mix, read_log, read_streams
from armillary.training.rollout.analysis.ablation import ROLLPACKER, SEER, TAILS
from armillary.training.rollout.arena import rollout
from armillary.training.rollout.simulation.steps import ks_distance, tail

TINY = {case.name: case for case in rollout.built_in("tiny")}


@pytest.mark.parametrize("technique", sorted(rollout.techniques))
def test_the_figures_of_every_technique_go_together(technique: str) -> None:
    for name in ("mix-7b-8k", "cot-moonlight-64k"):
        outcome = rollout.execute(rollout.make(technique), TINY[name])
        assert isinstance(outcome, Outcome), name
        values = outcome.values
        assert values["step_s"] > values["rollout_s"] > values["tail_s"] >= 0 or technique == "one-step-async"
        assert 0 <= values["bubble_fraction"] < 1
        assert values["all_tokens_per_s"] >= values["rollout_tokens_per_s"] * (1 - 1e-9)
        assert 0 <= values["sample_bias"] <= 1
        policy = values["offpolicy_fraction"]
        assert (policy > 0) == (technique in ("one-step-async", "partial-rollout")), (name, policy)
        assert outcome.artifacts[0].data.count(b"\n") >= 2


def test_an_epoch_shorter_than_a_round_is_declined() -> None:
    setup = Setup("qwen2.5-7b", gpus=4, tp=2, p0=4, r0=2, max_length=100)
    work = RolloutWork.of(setup, [10] * 4, [[5, 6]] * 4)
    with pytest.raises(NotForThisCase, match="a round starts 5"):
        rollout.make("rollpacker").steps(work)  # type: ignore[attr-defined]
    assert len(rollout.make("rollpacker", {"eta": 1.0}).steps(work)) == 1  # type: ignore[attr-defined]


def test_mixes_have_the_published_shape() -> None:
    rng = np.random.default_rng(0)
    work = mix(Setup("qwen2.5-14b", gpus=64, tp=2, max_length=16384), 10, rng)
    assert work.steps == 10
    lengths = work.length
    assert 500 < np.median(lengths) < 600
    assert 755 < np.quantile(lengths, 0.75) < 1100
    assert 25 < lengths.max() / np.median(lengths) < 32
    assert 0.03 < np.isinf(work.reward_s).mean() < 0.07
    assert not work.correct[np.isinf(work.reward_s)].any()


def test_chains_have_their_mean_and_resemble_each_other() -> None:
    rng = np.random.default_rng(0)
    work = chain_of_thought(Setup("moonlight-16b-a3b", gpus=32, tp=1, p0=2000, max_length=65536, train_tp=1), 1, 22e3, rng)
    assert work.length.mean() == pytest.approx(22e3, rel=0.05)
    log = np.log(work.length[:, :8].astype(float))
    assert log.mean(1).std() > 2 * log.std(1).mean()
    with pytest.raises(InputError, match="mean"):
        chain_of_thought(work.setup, 1, 1e6, rng)


def test_a_prompt_that_starts_again_draws_on() -> None:
    setup = Setup("qwen2.5-7b", gpus=4, tp=2, p0=1, r0=2, max_length=100)
    work = RolloutWork.of(setup, [10], [[1, 2, 3, 4, 5, 6]])
    assert work.draw([0, 0], [0, 1], [0, 0]).tolist() == [0, 1]
    assert work.draw([0, 0], [0, 1], [1, 1]).tolist() == [3, 4]
    assert work.draw([0], [2], [1]).tolist() == [5]
    assert work.draw([0], [0], [2]).tolist() == [0]


def test_distances_and_tails_by_hand() -> None:
    assert ks_distance(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 4])) == 0
    assert ks_distance(np.array([1, 2]), np.array([3, 4])) == 1
    assert ks_distance(np.array([1, 2, 3, 4]), np.array([1, 2])) == 0.5
    assert tail(np.arange(1.0, 11.0)) == 1.0
    assert tail(np.arange(1.0, 21.0)) == 2.0
    assert tail(np.zeros(0)) == 0.0


def test_ablations_add_part_by_part() -> None:
    work = TINY["mix-14b-16k"].workload
    parts = ablation(work, ROLLPACKER)
    assert list(parts) == list(ROLLPACKER)
    assert parts["+ tail batching"]["rollout_s"] < parts["verl"]["rollout_s"]
    assert parts["+ reward scheduler"]["step_s"] < parts["+ tail batching"]["step_s"]
    rng = np.random.default_rng(0)
    tails = ablation(mix(Setup("qwen2.5-14b", gpus=64, tp=2, max_length=16384), 5, rng), TAILS)
    assert tails["both 1.25"]["rollout_s"] < min(tails["prompts 1.25"]["rollout_s"], tails["responses 1.25"]["rollout_s"])
    assert set(ablation(TINY["cot-qwen2-vl-40k"].workload, SEER)) == set(SEER)


ROWS = [
    {"step": s, "prompt_id": f"p{s}-{p}", "response_id": j, "prompt_tokens": 50, "response_tokens": 20 + 10 * p + j, "reward_s": 1.5, "task": "code"}
    for s in range(3) for p in range(4) for j in range(2)
]  # fmt: skip


def log(folder: Path, rows: list[dict]) -> Path:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def test_a_log_is_an_epoch(tmp_path: Path) -> None:
    setup, path = Setup("qwen2.5-7b", gpus=4, tp=2, max_length=1000), log(tmp_path, ROWS)
    work = read_log(path, setup)
    assert (work.setup.p0, work.setup.r0, work.steps) == (4, 2, 3)
    assert work.length.tolist() == [[20 + 10 * p, 21 + 10 * p] for _ in range(3) for p in range(4)]
    assert (work.task == 1).all()
    assert (work.reward_s == 1.5).all()
    assert metrics(Verl().steps(work), work)["step_s"] > 0
    assert read_log(path, setup, limit=2).steps == 2


def changed(at: int, **values: object) -> list[dict]:
    rows = [dict(r) for r in ROWS]
    rows[at].update(values)
    return rows


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (changed(3, response_tokens=5000), 'column "response_tokens": found 5000; expected a whole number of tokens from 1 to 1,000'),
        (changed(3, response_id=0), "response_id 0 again; expected it once"),
        (changed(3, task="poetry"), "poetry"),
        (changed(3, prompt_tokens=51), "different prompt_tokens"),
        (ROWS[:-1], "has 1 responses; expected 2"),
        ([*ROWS[:14], *ROWS[16:]], "step 1 has 3 prompts; expected 4, as in step 0"),
    ],
)
def test_bad_logs_are_refused(tmp_path: Path, rows: list[dict], says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_log(log(tmp_path, rows), Setup("qwen2.5-7b", gpus=4, tp=2, max_length=1000))


def test_token_streams_are_read_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "streams.jsonl"
    path.write_text('{"group": "a", "request": 0, "tokens": [1, 2, 3]}\n{"group": "a", "request": 1, "tokens": [4]}\n')
    found = read_streams(path)
    assert [name for name, _ in found["a"]] == ["0", "1"]
    assert found["a"][0][1].tolist() == [1, 2, 3]
    for bad in (
        '{"group": "a", "request": 0, "tokens": [3000000000]}',
        '{"group": "a", "request": 0, "tokens": "no"}',
        '{"group": "a"}',
        "",
    ):
        path.write_text(bad)
        with pytest.raises(InputError):
            read_streams(path)


@pytest.mark.parametrize("size", [{"tp": 3}, {"gpus": 0}, {"r0": 0}, {"train_tp": 5}, {"max_length": 0}, {"gpus": 1 << 30}])
def test_bad_set_ups_are_refused(size: dict) -> None:
    with pytest.raises(InputError):
        Setup("qwen2.5-7b", **{"gpus": 8, "tp": 2, **size})
    with pytest.raises(InputError, match="model"):
        Setup("no-such-model").instances()
    with pytest.raises(InputError):
        Setup("qwen2.5-32b", gpus=8, tp=1, max_length=65536).instances()


def test_work_that_cannot_be_is_refused() -> None:
    setup = Setup("qwen2.5-7b", gpus=4, tp=2, max_length=100)
    for prompt, length in (([10], [[101]]), ([10], [[0]]), ([0], [[5]]), ([], []), ([5000], [[5]])):
        with pytest.raises(InputError):
            RolloutWork.of(setup, prompt, length)
    with pytest.raises(InputError):
        RolloutWork.of(setup, [10], [[5]], reward_s=[[-1.0]])


def test_the_answer_names_the_shortest_on_policy_steps(tmp_path: Path) -> None:
    how = {"gpus": "4", "longest": "1000"}
    found = compare("training/rollout", work=log(tmp_path, ROWS), options=how, techniques=["verl", "seer", "one-step-async"])
    assert found.answer().startswith("seer has the shortest on-policy steps on log.jsonl (")
