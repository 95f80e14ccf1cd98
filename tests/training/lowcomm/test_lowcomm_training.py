"""Real training with every technique: counts, losses, parts that are switched off, and workers that stop and go on."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.llm import TrainableTiny
from armillary.training.lowcomm import (
    Ddp,
    DdpThenDiloco,
    Diloco,
    DilocoThenDdp,
    LargeBatch,
    LocalSgd,
    Network,
    Sizes,
    StreamingDiloco,
    Training,
    explored,
    fastest,
    front,
    linear_cka,
    trained,
    training,
    wall_clock_s,
)  # fmt: skip
from armillary.training.lowcomm.cost.wall_clock import exchange_s, wire_bytes
from armillary.training.lowcomm.evaluation.loss import longest_rise, mean_loss, unigram_entropy
from armillary.training.lowcomm.evaluation.tasks import exact_match
from armillary.training.lowcomm.workers import checkpoints
from armillary.training.lowcomm.workers.inner import Inner, factor
from armillary.training.lowcomm.workers.training import made

SMALL = Sizes(width=16, layers=1, heads=2, context=16, batch=2, workers=2, every=4, steps=(10, 0, 0), validation=16, compared=16, prompts=8)
EVERY: list[Any] = [Ddp(), LargeBatch(), LocalSgd(), Diloco(), StreamingDiloco()]
#: Parameters of the small model: embedding, head, four projections and the feed-forward part.
P = 2 * 256 * 16 + 4 * 16 * 16 + 2 * 16 * 64


def documents(seed: int = 0, count: int = 60) -> list[bytes]:
    """Half of the documents are lines of code, half are rows of numbers: two kinds of text that neighbours share."""
    rng = np.random.default_rng(seed)
    names = ("alpha", "beta", "gamma", "delta")
    code = [b"".join(b"def %s(x): return %s\n" % tuple(rng.choice(names, 2).astype("S")) for _ in range(12)) for _ in range(count // 2)]
    digits = [b" ".join(b"%d" % n for n in rng.integers(0, 99, 100)) + b"\n" for _ in range(count // 2)]
    return code + digits


@functools.cache
def work(**changes: Any) -> Training:
    return training(documents(), replace(SMALL, **changes), np.random.default_rng(1), raw=0.0)


@functools.cache
def run(technique: Any, **changes: Any) -> Any:
    return trained(technique, work(**changes))


# Counts


@pytest.mark.parametrize(("steps", "every"), [(10, 4), (5, 1), (3, 7)])
def test_bytes_are_those_of_the_closed_forms(steps: int, every: int) -> None:
    how = {"steps": (steps, 0, 0), "every": every}
    rounds = math.ceil(steps / every)
    assert (run(Ddp(), **how).comm_bytes, run(Ddp(), **how).sync_count) == (4 * P * steps, steps)
    for technique in (Diloco(), LocalSgd(), LargeBatch()):
        assert (run(technique, **how).comm_bytes, run(technique, **how).sync_count) == (4 * P * rounds, rounds)
    assert run(Diloco(bits=16), **how).comm_bytes == 2 * P * rounds
    assert run(Diloco(bits=4), **how).comm_bytes == (P // 2 + 4 * math.ceil(P / 256)) * rounds


def test_fragments_together_send_what_the_whole_would_and_the_rest_at_the_end() -> None:
    # Three fragments (embedding, layer, head) after steps 2, 5 and 8 of eight; then two that have trained since.
    found = run(StreamingDiloco(fragments=3), steps=(8, 0, 0), every=8)
    parts = [256 * 16, P - 2 * 256 * 16, 256 * 16]
    assert found.sync_count == 5
    assert found.comm_bytes == 4 * (sum(parts) + parts[0] + parts[1])


def test_every_worker_ends_with_the_same_weights() -> None:
    from armillary import comm
    from armillary.training.lowcomm.workload import PROGRAM

    for technique in ("diloco:Diloco", "streaming_diloco:StreamingDiloco", "ddp:Ddp"):
        ran = comm.run(PROGRAM, f"armillary.training.lowcomm.{technique}", {}, work().plain(), ranks=2, backend="virtual").values
        assert np.array_equal(ran[0]["stages"][0]["weights"], ran[1]["stages"][0]["weights"])
        assert ran[0]["stages"][0]["losses"] != ran[1]["stages"][0]["losses"]


# What techniques must equal


def test_averaged_gradients_are_those_of_one_worker_with_the_batch_of_all() -> None:
    two = work()
    stage = two.stages[0]
    joined = {name: getattr(stage, name).reshape(10, 1, 4, 16) for name in ("inputs", "targets")}
    one = replace(two, sizes=replace(two.sizes, workers=1, batch=4), stages=(replace(stage, **joined),))
    np.testing.assert_allclose(trained(Ddp(), one).weights, run(Ddp()).weights, atol=2e-5)


def test_rounds_of_one_step_are_the_baselines() -> None:
    assert np.array_equal(run(LargeBatch(), every=1).weights, run(Ddp(), every=1).weights)
    assert np.array_equal(run(Diloco(outer="average"), every=4).weights, run(LocalSgd(), every=4).weights)
    assert np.array_equal(run(Diloco(lr=1.0, momentum=0.0), every=4).weights, run(LocalSgd(), every=4).weights)
    assert np.array_equal(run(StreamingDiloco(fragments=1, delay=0, mix=0.0)).weights, run(Diloco()).weights)


def test_one_worker_that_averages_is_plain_training_bit_for_bit() -> None:
    alone = work(workers=1)
    model = made(alone.plain())
    inner = Inner(model, 10)
    stage = alone.stages[0]
    for step in range(10):
        model.loss(torch.from_numpy(stage.inputs[step, 0]).long(), torch.from_numpy(stage.targets[step, 0]).long()).backward()  # type: ignore[no-untyped-call]
        inner.done += 1
        inner.update()
    for technique in (Ddp(), LocalSgd()):
        assert np.array_equal(trained(technique, alone).weights, inner.weights.numpy())


def test_an_inner_step_is_torch_s_adamw_on_clipped_gradients() -> None:
    """Against `clip_grad_norm_` and `torch.optim.AdamW` on a second model, with the schedule written out."""
    model, peer = made(work().plain()), made(work().plain())
    inner = Inner(model, 5)
    adamw = torch.optim.AdamW(peer.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(5):
        ids = torch.from_numpy(work().stages[0].inputs[step, 0]).long()
        for one in (model, peer):
            (100 * one.loss(ids[:, :-1], ids[:, 1:])).backward()  # type: ignore[no-untyped-call]
        inner.done += 1
        inner.update()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
        adamw.param_groups[0]["lr"] = 3e-3 * math.sqrt(64 / 16) * (1.0 if step == 0 else 0.5 * (1 + math.cos(math.pi * (step - 1) / 4)))
        adamw.step()
        adamw.zero_grad()
        for p, q in zip(model.parameters(), peer.parameters()):
            assert torch.allclose(p, q, atol=1e-6)


def test_schedules_warm_up_and_end_at_zero() -> None:
    cosine = [factor(step, 100) for step in range(100)]
    assert cosine[:5] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert all(a > b for a, b in itertools.pairwise(cosine[5:]))
    assert 0 < cosine[-1] < 1e-3
    linear = [factor(step, 100, "warmdown") for step in range(100)]
    assert linear[5:81] == [1.0] * 76
    assert linear[-1] == pytest.approx(1 / 20)


def test_large_batches_use_the_mean_of_the_rates_that_they_stand_for() -> None:
    """One update of ten steps: the gradient is their mean, and so is the rate, times √10."""
    alone = work(workers=1, every=10)
    stage, model = alone.stages[0], made(alone.plain())
    for step in range(10):
        (model.loss(torch.from_numpy(stage.inputs[step, 0]).long(), torch.from_numpy(stage.targets[step, 0]).long()) / 10).backward()  # type: ignore[no-untyped-call]
    rate = 3e-3 * 2 * math.sqrt(10) * sum(factor(step, 10) for step in range(10)) / 10
    adamw = torch.optim.AdamW(model.parameters(), rate, (0.9, 0.95), weight_decay=0.1)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adamw.step()
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    np.testing.assert_allclose(trained(LargeBatch(), alone).weights, flat.numpy(), atol=2e-4 * rate)
    rates = {scaling: trained(LargeBatch(scaling=scaling), alone).weights for scaling in ("constant", "sqrt", "linear")}  # type: ignore[arg-type]
    start = torch.cat([p.detach().reshape(-1) for p in made(alone.plain()).parameters()]).numpy()
    moved = [float(np.abs(weights - start).max()) for weights in rates.values()]
    assert moved[1] / moved[0] == pytest.approx(math.sqrt(10), rel=0.02)
    assert moved[2] / moved[0] == pytest.approx(10, rel=0.02)


# Learning


#: A higher learning rate, so that forty steps teach what the tests look for.
LEARNS = {"steps": (40, 0, 0), "every": 8, "batch": 4, "lr": 4.0}


@pytest.mark.parametrize("technique", EVERY, ids=lambda one: type(one).__name__)
def test_training_learns_more_than_frequencies(technique: Any) -> None:
    """Large batches make five updates here, and are left behind by frequencies; the others are not."""
    found = run(technique, **LEARNS)
    entropy = unigram_entropy(work(**LEARNS).stages[0].val_targets)
    if isinstance(technique, LargeBatch):
        assert found.val_loss("pretrain") < math.log(256)
    else:
        assert found.val_loss("pretrain") < entropy
    assert longest_rise([(int(s), float(v)) for s, v in found.stages[0]["curve"]], 40) <= 0.2


def test_reset_optimizers_train_differently_from_the_second_round_on() -> None:
    kept, reset = run(Diloco(), steps=(8, 0, 0)), run(Diloco(keep=False), steps=(8, 0, 0))
    assert kept.stages[0]["losses"][:5] == reset.stages[0]["losses"][:5]
    assert kept.stages[0]["losses"][5:] != reset.stages[0]["losses"][5:]


def test_workers_with_their_own_text_disagree_more_and_drift_further() -> None:
    """The mean of workers that disagree is further from data parallelism; an outer optimizer adds a drift of its own."""
    drift, cosine = {}, {}
    for shards in ("iid", "by-file"):
        how = {**LEARNS, "shards": shards}
        drift[shards] = 1 - linear_cka(run(LocalSgd(), **how).features(), run(Ddp(), **how).features())
        cosine[shards] = [run(technique, **how).cosine for technique in (LocalSgd(), Ddp())]
    assert drift["by-file"] > 1.5 * drift["iid"] > 0
    assert all(a < b < 1 for a, b in zip(cosine["by-file"], cosine["iid"]))
    assert 1 - linear_cka(run(Diloco(), **LEARNS).features(), run(Ddp(), **LEARNS).features()) > drift["iid"]


def test_muon_trains_the_matrices_and_adamw_the_rest() -> None:
    inner = Inner(made(work().plain()), 10, "muon")
    muon, adamw = inner.optimizers
    assert sum(p.numel() for group in muon.param_groups for p in group["params"]) == P - 2 * 256 * 16
    assert [group["lr"] for group in adamw.param_groups] == pytest.approx([0.004 * (16 / 768) ** -0.5, 0.2 * (16 / 768) ** -0.5])
    muons = run(Diloco(), optimizer="muon", steps=(20, 0, 0), every=5)
    assert muons.val_loss("pretrain") < math.log(256) - 1


def test_stages_follow_each_other_and_arms_change_technique_after_pretraining() -> None:
    how = {"steps": (4, 4, 4), "context": 32}
    arms = {type(one).__name__: run(one, **how) for one in (Ddp(), Diloco(), DilocoThenDdp(), DdpThenDiloco())}
    assert [one["syncs"] for one in arms["DilocoThenDdp"].stages] == [1, 4, 4]
    assert [one["syncs"] for one in arms["DdpThenDiloco"].stages] == [4, 1, 1]
    for arm, first in (("DilocoThenDdp", "Diloco"), ("DdpThenDiloco", "Ddp")):
        assert np.array_equal(arms[arm].stages[0]["weights"], arms[first].stages[0]["weights"])
        assert not np.array_equal(arms[arm].weights, arms[first].weights)
    assert arms["Ddp"].payloads == [4 * P * 4] * 3
    assert set(arms["Ddp"].accuracies()) == {"add", "subtract", "modulo", "reverse", "recall"}
    for technique in (Ddp(), Diloco(), DilocoThenDdp(), DdpThenDiloco()):
        work = arms[type(technique).__name__].work
        shared = trained(technique, work, after=trained(technique.pretrains_as(), work, stop=work.sizes.steps[0]))
        alone = arms[type(technique).__name__]
        assert [one["name"] for one in shared.stages] == ["pretrain", "mid", "sft"]
        assert np.array_equal(shared.weights, alone.weights), "pretraining that arms share changes no bit"
        assert (shared.payloads, shared.sync_count, shared.cosine) == (alone.payloads, alone.sync_count, alone.cosine)


@pytest.mark.slow
def test_fine_tuning_teaches_the_tasks() -> None:
    """Data parallelism gets more than three times what the most frequent answer gets; DiLoCo, as in the study, gets less, but learns too."""
    sizes = Sizes(context=48, batch=12, workers=2, every=30, steps=(50, 100, 500), prompts=256, optimizer="muon")
    taught = training(documents(count=80), sizes, np.random.default_rng(0))
    for technique, times in ((Ddp(), 3), (Diloco(), 2)):
        found = trained(technique, taught)
        assert np.mean(list(found.accuracies().values())) > times * taught.chance
        for one in found.stages:
            assert longest_rise([(int(s), float(v)) for s, v in one["curve"]], one["steps"]) <= 0.2


def test_a_loss_that_is_not_finite_names_step_and_worker() -> None:
    """A wrong token of worker 1 at step 3 that makes its loss infinite: an embedding of infinity."""
    broken = work()
    inputs = broken.stages[0].inputs.copy()
    inputs[2, 1, 0, 0] = 255
    plain = {**broken.plain(), "stages": [{**broken.stages[0].plain(), "inputs": inputs}]}
    from armillary import comm
    from armillary.training.lowcomm.workers import training as program

    def poisoned(ranks: Any) -> Any:
        once = program.made

        def made_bad(facts: Any) -> TrainableTiny:
            model = once(facts)
            with torch.no_grad():
                model.model.embed_tokens.weight[255] = torch.inf
            return model

        program.made = made_bad
        try:
            return program.train(ranks, "armillary.training.lowcomm.local_sgd:LocalSgd", {}, plain)
        finally:
            program.made = once

    with pytest.raises(comm.RankFailed, match="the loss is nan at step 3 of worker 1"):
        comm.run(poisoned, ranks=2, backend="virtual")


def test_a_learning_rate_that_is_too_high_is_said_in_one_line() -> None:
    with pytest.raises(InputError, match=r"(loss is|not finite)"):
        trained(LocalSgd(), work(lr=1e30))


# Going on


@pytest.mark.parametrize("technique", EVERY, ids=lambda one: type(one).__name__)
def test_workers_that_are_stopped_go_on_to_the_same_weights(technique: Any, tmp_path: Path) -> None:
    """At the end of a round of the first stage (4), inside one (6), and in the second stage (13)."""
    how = {"steps": (10, 5, 0), "context": 32}
    for stop in (4, 6, 13) if isinstance(technique, Diloco) else (6,):
        folder = tmp_path / str(stop)
        assert len(trained(technique, work(**how), folder=str(folder), save_every=1, stop=stop).stages) == (stop > 10)
        assert checkpoints.saved(folder, 0) == [stop - 1, stop]
        went_on = trained(technique, work(**how), folder=str(folder), save_every=50)
        assert np.array_equal(went_on.weights, run(technique, **how).weights)
        assert went_on.stages[-1]["losses"] == run(technique, **how).stages[-1]["losses"]


def test_workers_go_on_from_the_newest_step_that_all_have(tmp_path: Path) -> None:
    trained(Diloco(), work(), folder=str(tmp_path), save_every=2, stop=6)
    (tmp_path / "worker-1-6.npz").unlink()
    assert np.array_equal(trained(Diloco(), work(), folder=str(tmp_path), save_every=2).weights, run(Diloco()).weights)
    (tmp_path / "worker-0-99.npz").write_bytes(b"junk")
    (tmp_path / "worker-1-99.npz").write_bytes(b"junk")
    with pytest.raises(InputError) as error:
        trained(Diloco(), work(), folder=str(tmp_path))
    assert "\n" not in str(error.value)


# Judges


def test_alignment_is_one_for_a_rotation_and_small_for_strangers() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 6))
    rotation = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    assert linear_cka(x, 3 * x @ rotation + 7) == pytest.approx(1)
    assert linear_cka(x, rng.normal(size=(500, 6))) < 0.1
    gram = (x - x.mean(0)) @ (x - x.mean(0)).T
    y = rng.normal(size=(500, 4))
    other = (y - y.mean(0)) @ (y - y.mean(0)).T
    by_kernels = (gram * other).sum() / math.sqrt((gram * gram).sum() * (other * other).sum())
    assert linear_cka(x, y) == pytest.approx(by_kernels)
    assert linear_cka(x, np.ones((500, 3))) == 0


def test_exact_match_is_greedy_generation() -> None:
    """One pass over prompt and answer against generating token by token, on a model that is partly right."""
    model = made(work().plain())
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.from_numpy(rng.normal(size=tuple(p.shape)).astype("f4")))
    prompts = [rng.integers(0, 256, n).astype(np.int16) for n in (3, 5, 8, 4)]
    answers = []
    for i, prompt in enumerate(prompts):
        tokens = prompt.tolist()
        for _ in range(3):
            tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
        answer = np.array(tokens[len(prompt) :], np.int16)
        if i == 1:
            answer[-1] = (answer[-1] + 1) % 256
        answers.append(answer)
    assert exact_match(model, prompts, answers) == 0.75


def test_losses_leave_out_what_has_no_target() -> None:
    model = made(work().plain())
    ids = torch.from_numpy(work().stages[0].inputs[0, 0]).long()
    aims = ids.clone()
    aims[:, 5:] = -1
    by_hand = -torch.log_softmax(model(ids), -1)[:, :5].gather(-1, ids[:, :5, None]).mean()
    assert mean_loss(model, ids, aims) == pytest.approx(float(by_hand.detach()), rel=1e-6)
    assert unigram_entropy([0, 0, 1, 1, -1]) == pytest.approx(math.log(2))
    assert longest_rise([(10, 3.0), (20, 2.0), (30, 2.5), (40, 2.6), (50, 1.0)], 50) == 0.4


def test_the_wall_clock_is_steps_and_what_nothing_hides() -> None:
    network = Network(8e6, 0.01)
    # 4 workers, a payload of 1 MB: 1.5 MB at 1 MB/s and six messages; a gather sends 3 MB and three messages.
    assert exchange_s(1e6, 4, network) == pytest.approx(1.5 + 0.06)
    assert exchange_s(1e6, 4, network, gathers=True) == pytest.approx(3 + 0.03)
    assert wire_bytes(100, 1) == wire_bytes(100, 1, gathers=True) == 0
    assert wall_clock_s(10, 0.1, 5, 5e6, 4, network) == pytest.approx(1 + 5 * 1.56)
    assert wall_clock_s(10, 0.1, 5, 5e6, 4, network, hidden_s=1.0) == pytest.approx(1 + 5 * 0.56)
    assert wall_clock_s(10, 0.1, 5, 5e6, 4, network, hidden_s=9.0) == pytest.approx(1)
    assert wall_clock_s(10, 0.1, 0, 0, 4, network) == pytest.approx(1)


@settings(max_examples=50, deadline=None)
@given(steps=st.integers(1, 1000), every=st.integers(1, 100), k=st.integers(1, 16), rate=st.floats(1e5, 1e10))
def test_fewer_exchanges_never_take_longer(steps: int, every: int, k: int, rate: float) -> None:
    rounds = math.ceil(steps / every)
    many, few = (wall_clock_s(steps, 0.01, n, n * 1e6, k, Network(rate)) for n in (steps, rounds))
    assert few <= many + 1e-9


# Which rounds


def test_a_slow_network_asks_for_long_rounds_and_a_fast_one_for_none() -> None:
    choices = explored(work(**LEARNS), (4, 20))
    assert [one.every for one in choices] == [0, 4, 20]
    assert len({one.run.stages[0]["step_s"] for one in choices}) == 1, "a quiet moment would decide"
    best = front(choices)
    assert all(a.comm_bytes < b.comm_bytes and a.val_loss > b.val_loss for a, b in itertools.pairwise(best))
    assert {one.every for one in choices} >= {one.every for one in best}
    for one in choices:
        beaten = [x for x in choices if x.comm_bytes <= one.comm_bytes and x.val_loss < one.val_loss]
        assert (one in best) == (not beaten)
    goal = max(one.val_loss for one in choices) + 0.2
    slow, _ = fastest(choices, goal, Network(1e4)) or (None, 0)
    fast, seconds = fastest(choices, goal, Network(1e12, 0.0)) or (None, 0)
    assert slow is not None
    assert fast is not None
    assert slow.every > fast.every
    assert seconds <= fast.run.stages[0]["step_s"] * 40 * 1.001
    assert fastest(choices, 0.0, Network()) is None
