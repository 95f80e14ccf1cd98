"""The learned policy: what it sees, masks, the environment's rewards, the shipped models, and learning against a peer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from armillary.arena import NotForThisCase
from armillary.learn import episode_returns, load
from armillary.learn.recipes import SHIPPED_BYTES
from armillary.scheduling.quantum import Asap, Job, Network, Planner, Ppo, QuantumBatch, State, built_in, ghz, play, qft, training_batches
from armillary.scheduling.quantum.learning.observation import CONTEXT, FACTS, INPUTS, JOBS, after, choices, observe
from armillary.scheduling.quantum.workload import repeated


def state(sizes: list[int], **more: object) -> State:
    network = Network.of()
    jobs = [Job(str(i), ghz(n)) for i, n in enumerate(sizes)]
    return State(0.0, network, Planner(network), jobs, range(len(jobs)), network.data.tolist(), **more)  # type: ignore[arg-type]


def test_the_observation_by_hand() -> None:
    at = state([8, 12, 20])
    seen, mask = observe(at)
    assert seen.shape == (INPUTS,) == (80,)
    assert seen[:12].tolist() == [1, 0] * 6
    assert seen[12:27] == pytest.approx([182 / 250] * 15)
    assert seen[27:29] == pytest.approx([3 / 50, 1])
    rows = seen[CONTEXT:].reshape(JOBS, FACTS)
    assert rows[:3, 0] == pytest.approx([8 / 48, 12 / 48, 20 / 48])
    assert rows[0, 1] == 0
    assert rows[2, 1] == pytest.approx(2 * rows[1, 1])  # no pair, one pair, two pairs per shot
    assert mask.tolist() == [True] * 3 + [False] * 8
    started = after(at, *choices(at, 2, 1)[0])
    seen, mask = observe(started)
    assert sum(started.free) == 28
    assert mask.tolist() == [True] * 2 + [False] * 8 + [True]
    assert seen[1] > 0
    assert seen[11] == 0
    full = replace(started, free=[0] * 6)
    assert observe(full)[1].tolist() == [False] * 10 + [True]


def test_masked_actions_have_probability_zero() -> None:
    torch = pytest.importorskip("torch")
    from armillary.learn.ppo import CLOSED

    env = QuantumBatch(4, training_batches(8, pool=10, networks=1))
    env.reset(np.arange(4, dtype=np.uint32))
    rng = np.random.default_rng(0)
    for _ in range(15):
        mask = env.mask()
        logits = torch.from_numpy(rng.normal(0, 50, mask.shape)).masked_fill(torch.from_numpy(~mask), CLOSED)
        chance = torch.softmax(logits, -1).numpy()
        assert (chance[~mask] == 0).all()
        assert mask.any(1).all()
        env.step(np.array([rng.choice(np.flatnonzero(row)) for row in mask]))
    shut = observe(replace(state([8]), free=[0] * 6, running=((0, choices(state([8]), 0, 1)[0][1], 1.0),)))[1]
    assert shut.tolist() == [False] * 10 + [True]


def test_an_episode_is_the_planners_schedule() -> None:
    env = QuantumBatch(1, training_batches(6, pool=20, networks=2))
    env.reset(np.array([3], np.uint32))
    begun = env._states[0]
    bound, total, done = float(env._bounds[0]), 0.0, np.array([False])
    while not done[0]:
        # The first job that fits, or waiting: first in, first served, without slots.
        _, reward, done, _, info = env.step(env.mask()[:, : JOBS + 1].argmax(1))
        total += float(reward[0])
    from armillary.scheduling.quantum.epr_nodes import on_best_links
    from armillary.scheduling.quantum.planning.strategy import filled

    class Eager(Asap):
        def select(self, at: State) -> list:  # type: ignore[type-arg]
            return filled(at, at.queue, on_best_links)

    found = play(begun.jobs, begun.network, Eager(), clock="planned", planner=begun.planner)
    work = sum(job.qubits * (end - start) for job, start, end in zip(found.jobs, found.start_s, found.finish_s))
    idle = found.makespan_s - work / found.network.qubits
    latency = float(found.latency_s.mean())
    assert total == pytest.approx(-(idle + 0.1 * latency + found.makespan_s) / bound, rel=1e-4)
    assert info["final_obs"].shape == (1, INPUTS)


def test_the_environment_is_registered_with_gymnasium() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    from armillary.learn.environments import register_environments

    register_environments()
    made = gymnasium.make("armillary/QuantumBatch-v0", jobs=5, pool=10, networks=1)
    assert made.observation_space.shape == (INPUTS,)
    assert made.action_space.n == JOBS + 1
    seen, _ = made.reset(seed=1)
    again, _ = made.reset(seed=1)
    assert np.array_equal(seen, again)
    assert made.unwrapped.action_masks().tolist() == [True] * 5 + [False] * 6
    over = False
    while not over:
        open_ = np.flatnonzero(made.unwrapped.action_masks())
        seen, reward, over, cut, _ = made.step(int(open_[0]))
        assert made.observation_space.contains(seen)
        assert not cut
    assert reward < -1


@pytest.mark.slow
def test_training_gives_the_same_weights_twice() -> None:
    pytest.importorskip("torch")
    from armillary.learn import Ppo as Learner
    from armillary.scheduling.quantum.learning.network import Scorer

    draw = training_batches(4, pool=8, networks=1)
    env = QuantumBatch(8, draw)
    trained = Learner(rollout=16, minibatch=128, lr=3e-3).train(env, 128 * 3, seed=0, network=Scorer())
    again = Learner(rollout=16, minibatch=128, lr=3e-3).train(QuantumBatch(8, draw), 128 * 3, seed=0, network=Scorer())
    assert all(np.array_equal(a, b) for a, b in zip(trained.model().arrays.values(), again.model().arrays.values()))


def test_the_shipped_models_are_those_of_the_recipes() -> None:
    for recipe in Ppo().recipes():
        model = load(recipe.file)
        assert recipe.file.stat().st_size <= SHIPPED_BYTES
        assert model.digest == recipe.shipped
        assert model.created_from == recipe.digest()
        assert model.trained_on == recipe.cases


@pytest.mark.parametrize("choose_nodes", [False, True])
def test_the_policy_runs_batches_of_any_size_up_to_six_qpus(choose_nodes: bool) -> None:
    technique = Ppo(choose_nodes=choose_nodes)
    for jobs, topology in ((1, "complete"), (12, "star"), (25, "ring")):
        work = built_in(np.random.default_rng(jobs), jobs=jobs, topology=topology, heterogeneous=True, arrivals="slots", seed=2)
        found = work.play(technique)
        assert (found.finish_s > 0).all()
        assert found.makespan_s == work.play(technique).makespan_s
    three = repeated(Network.of(), 3)
    assert play([Job("a", qft(20)), Job("b", ghz(8))], three, technique).makespan_s > 0
    with pytest.raises(NotForThisCase, match="trained for at most 6"):
        play([Job("a", ghz(8))], repeated(Network.of(), 7), technique)


@pytest.mark.slow
def test_the_policy_beats_starting_whatever_fits_where_its_settings_were_chosen() -> None:
    pytest.importorskip("torch")
    from functools import partial

    from armillary.scheduling.quantum.learning.network import Scorer
    from armillary.scheduling.quantum.learning.train import CHECKED, act

    network, model = Scorer(), Ppo().model()
    model.load_into(network)
    env = QuantumBatch(CHECKED, training_batches(seed=1))
    learned = episode_returns(env, partial(act, network)).mean()
    assert learned == pytest.approx(model.metrics["mean_return"], abs=0.02)
    assert learned > episode_returns(env, lambda seen, mask: mask.argmax(1)).mean()  # type: ignore[union-attr]


def test_compiled_logits_are_the_networks() -> None:
    torch = pytest.importorskip("torch")
    from armillary.scheduling.quantum.learning.network import Scorer
    from armillary.scheduling.quantum.ppo import _policy

    for choose in (False, True):
        technique = Ppo(choose_nodes=choose)
        network = Scorer(choose)
        technique.model().load_into(network)
        seen, _ = observe(state([8, 12, 20, 6]))
        with torch.no_grad():
            expected = network(torch.from_numpy(seen[None]))[0][0].numpy()
        assert _policy(technique)(seen) == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_learning_keeps_up_with_stable_baselines() -> None:
    stable = pytest.importorskip("stable_baselines3")
    from armillary.learn import Ppo as Learner
    from armillary.scheduling.quantum.learning.network import Scorer

    class Forgiving(QuantumBatch):
        """Stable-baselines3's PPO knows no masks: an action that is not allowed becomes the first that is."""

        def step(self, actions: np.ndarray) -> tuple:  # type: ignore[type-arg, override]
            mask = self.mask()
            chosen = np.where(mask[np.arange(self.n), actions], actions, mask.argmax(1))
            return super().step(chosen)

    import gymnasium

    from armillary.learn.gymnasium_envs import Single

    draw = training_batches(20, pool=60, networks=2)
    ours = Learner(rollout=64, minibatch=256, lr=1e-3, gamma=0.99).train(QuantumBatch(8, draw), 4_000, seed=0, network=Scorer())
    network = ours.network

    def act(seen: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        import torch

        with torch.no_grad():
            logits = network(torch.from_numpy(seen))[0].numpy()
        return np.where(mask, logits, -np.inf).argmax(1)

    single: gymnasium.Env = Single(Forgiving(1, draw))  # type: ignore[type-arg]
    theirs = stable.PPO("MlpPolicy", single, n_steps=512, batch_size=256, gamma=0.99, seed=0, device="cpu").learn(4_000)
    check = training_batches(20, pool=60, networks=2, seed=1)
    mine = episode_returns(QuantumBatch(16, check), act).mean()
    other = episode_returns(Forgiving(16, check), lambda seen, mask: theirs.predict(seen, deterministic=True)[0]).mean()
    assert mine >= other - 0.1
