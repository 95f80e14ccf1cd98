"""PPO and DQN: their arithmetic by hand, worlds whose optimum is known, masks, ends of episodes, Gymnasium's checkers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from small_worlds import Bandit, Both, OneStep, Team, Walk  # noqa: E402

from armillary.errors import InputError  # noqa: E402
from armillary.learn import ActorCritic, Dqn, Mlp, Ppo, Transitions, copies_of, episode_returns, masked_argmax  # noqa: E402
from armillary.learn.dqn import Replay, double_dqn_target  # noqa: E402
from armillary.learn.environments import allowed, register_environments  # noqa: E402
from armillary.learn.ppo import _Run, gae  # noqa: E402


def column(*values: float) -> np.ndarray:
    return np.array(values)[:, None]


def test_advantages_by_hand() -> None:
    done = np.array([[False], [False], [True]])
    found = gae(column(1, 0, 2), column(0.5, 0.4, 0.3), column(0.4, 0.3, 99), done, ~done & False, 0.9, 0.8)
    assert np.allclose(found[:, 0], (1.64768, 1.094, 1.7))


def test_a_cut_episode_counts_what_would_have_come_and_a_finished_one_does_not() -> None:
    one = (column(1.0), column(0.0), column(5.0))
    yes, no = np.array([[True]]), np.array([[False]])
    assert gae(*one, no, yes, 0.9, 0.8)[0, 0] == pytest.approx(1 + 0.9 * 5)
    assert gae(*one, yes, no, 0.9, 0.8)[0, 0] == pytest.approx(1)


@pytest.mark.parametrize("truncates", [True, False])
def test_ppo_uses_the_last_observation_of_a_cut_episode(truncates: bool) -> None:
    how = Ppo(rollout=4, gamma=0.9, normalise_rewards=False)
    env = OneStep(truncates=truncates)
    run = _Run(how, env, 16, 0, ActorCritic(1, (2,), (8,), seed=3), "cpu")
    run.observation = env.reset(np.arange(4))
    batch = run._roll_out()
    last = run._answer(np.ones((4, 1), np.float32))[1]
    expected = 1 + 0.9 * last if truncates else np.ones(4)
    assert np.allclose(batch["return"], expected[None, :], atol=1e-6)


@pytest.mark.parametrize("truncates", [True, False])
def test_dqn_stores_the_last_observation_of_a_cut_episode(truncates: bool) -> None:
    from armillary.learn.dqn import _Learner, _Play

    how, env = Dqn(gamma=0.9, learning_starts=10**6), OneStep(truncates=truncates)
    play = _Play(how, env, 8, 0, _Learner(how, Mlp(1, (4,), 2), 0))
    play.train(None)
    assert (play.replay.next_observation[:8] == 1).all()
    assert np.allclose(play.replay.discount[:8], 0.9 if truncates else 0)


def test_double_dqn_target_by_hand() -> None:
    t = np.array
    online, target = t([[1.0, 2.0, 3.0]]), t([[9.0, 9.0, 5.0]])
    assert double_dqn_target(t([1.0]), t([0.9]), online, target).item() == pytest.approx(5.5)
    assert double_dqn_target(t([1.0]), t([0.0]), online, target).item() == 1
    masked = double_dqn_target(t([1.0]), t([0.9]), online, target, t([[True, True, False]]))
    assert masked.item() == pytest.approx(1 + 0.9 * 9)
    assert double_dqn_target(t([[1.0, 2.0]]), t([0.9]), online, target).tolist() == [[pytest.approx(5.5), pytest.approx(6.5)]]
    assert double_dqn_target(t([1.0]), t([0.9]), online, target, t([[False] * 3])).item() == 1


def test_a_masked_action_is_never_the_best_one() -> None:
    rng = np.random.default_rng(0)
    mask = rng.random((100_000, 7)) < 0.3
    mask[np.arange(100_000), rng.integers(0, 7, 100_000)] = True
    assert mask[np.arange(100_000), masked_argmax(rng.standard_normal((100_000, 7)), mask)].all()


def test_ppo_solves_a_bandit_with_contexts() -> None:
    trained = Ppo(rollout=16, minibatch=64, lr=3e-3).train(Bandit(16), 8_000)
    policy = trained.model().frozen()
    pays = Bandit().pay(np.arange(4), policy(np.eye(4, dtype=np.float32)))
    assert pays.mean() >= 0.95
    assert trained.history["mean_return"][-1] > trained.history["mean_return"][0]


def test_ppo_finds_an_optimum_that_needs_both_factors() -> None:
    policy = Ppo(rollout=16, minibatch=64, lr=3e-3).train(Both(16), 6_000).model().frozen()
    assert policy(np.eye(2, dtype=np.float32)).tolist() == [[1, 3], [2, 2]]


def test_a_shared_head_serves_another_number_of_entities() -> None:
    policy = Ppo(rollout=16, minibatch=64, lr=3e-3, hidden=(32, 32)).train(Team(16, 3), 5_000).model().frozen()
    right = np.random.default_rng(1).integers(0, 3, (20, 7))
    assert (policy(np.eye(3, dtype=np.float32)[right]) == right).mean() > 0.95


def test_masks_hold_for_both_learners() -> None:
    Ppo(rollout=16, minibatch=64).train(Walk(8), 1000)
    net = Dqn(learning_starts=100, copy_every=50).train(Walk(8), 1000).model().frozen()
    assert net(np.eye(5, dtype=np.float32))[2].argmax() == 1


@pytest.mark.parametrize("learner", [Ppo(rollout=4), Dqn()])
def test_a_world_that_allows_nothing_is_named(learner: object) -> None:
    with pytest.raises(InputError, match="walk: found no allowed action in copy 0"):
        learner.train(Walk(4, blocked=True), 100)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "how", [{}, *(pytest.param(more, marks=pytest.mark.slow) for more in ({"n_step": 3}, {"priority": 0.6}, {"polyak": 0.05}))]
)
def test_dqn_finds_the_exact_values_of_a_short_walk(how: dict) -> None:
    trained = Dqn(learning_starts=200, copy_every=30, gamma=0.9, lr=3e-3, **how).train(Walk(8, fenced=False), 3000 if not how else 5000)
    q = trained.model().frozen()(np.eye(5, dtype=np.float32))
    assert q[3, 1] == pytest.approx(1, abs=0.05)
    assert q[2, 1] == pytest.approx(0.9, abs=0.06)
    if how.get("n_step", 1) == 1:  # Several steps follow the policy that explored.
        assert q[1, 1] == pytest.approx(0.81, abs=0.08)


def test_full_feedback_regresses_every_action_at_once() -> None:
    env = Bandit(16)
    q = Dqn(full_feedback=True, gamma=0.0, lr=1e-2, learning_starts=100).train(env, 2000).model().frozen()(np.eye(4, dtype=np.float32))
    assert np.abs(q - env.pays).max() < 0.05
    with pytest.raises(InputError, match="expected the reward of every action"):
        Dqn(full_feedback=True).train(Walk(8), 100)


def test_known_transitions_need_no_environment() -> None:
    rng = np.random.default_rng(0)
    context = rng.integers(0, 4, 2000)
    seen = np.eye(4, dtype=np.float32)[context]
    pays = Bandit().pays[context]
    given = Transitions(seen, rng.integers(0, 10, 2000), pays, seen, np.ones(2000, bool))
    q = Dqn(lr=1e-2, batch=128).train_offline(given, 300).model().frozen()(np.eye(4, dtype=np.float32))
    assert np.abs(q - Bandit().pays).max() < 0.05
    taken = Transitions(seen, given.action, pays[np.arange(2000), given.action], seen, np.ones(2000, bool))
    q = Dqn(lr=1e-2, batch=128).train_offline(taken, 400).model().frozen()(np.eye(4, dtype=np.float32))
    assert q.argmax(1).tolist() == [7, 2, 9, 0]


def test_returns_over_several_steps_are_summed_and_discounted() -> None:
    from armillary.learn.dqn import _Learner, _Play

    how = Dqn(n_step=3, gamma=0.5, learning_starts=10**6, explore_first=1.0, explore_last=1.0, explore_share=1.0)
    env = Walk(4, fenced=False)
    play = _Play(how, env, 400, 1, _Learner(how, Mlp(5, (4,), 2), 0))
    play.train(None)
    store = play.replay
    seen, reached = store.observation[: store.size].argmax(1), store.next_observation[: store.size].argmax(1)
    paid = store.reward[: store.size]
    ended = store.discount[: store.size] == 0
    assert set(np.unique(paid[paid > 0]).tolist()) <= {1.0, 0.5, 0.25}
    assert ((paid > 0) == (ended & (reached == 4))).all()
    assert (paid[(seen == 2) & (reached == 4)] == 0.5).all(), "from 2 to 4 in two steps pays γ"
    assert (np.abs(seen - reached) <= 3).all()
    assert set(np.unique(store.discount[: store.size]).tolist()) <= {0.0, 0.5, 0.25, 0.125}


def test_returns_count_the_first_episode_of_every_copy() -> None:
    right = episode_returns(Walk(6), lambda seen, mask: np.ones(len(seen), np.int64), gamma=0.5)
    assert right.tolist() == [0.5] * 6
    left = episode_returns(Walk(6), lambda seen, mask: masked_argmax(np.tile([1.0, 0.0], (len(seen), 1)), mask))
    assert left.tolist() == [0.0] * 6


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu", "silu"])
@pytest.mark.parametrize("hidden", [(), (7,), (8, 6, 5)])
def test_an_update_is_the_one_that_torch_makes(activation: str, hidden: tuple[int, ...]) -> None:
    from armillary.learn.dqn import _Learner

    how = Dqn(lr=0.01, batch=32, gamma=0.9, polyak=0.1, most_norm=0.05)
    net, peer, behind = (Mlp(3, hidden, 4, activation=activation, seed=2) for _ in range(3))
    learner, rng = _Learner(how, net, 0), np.random.default_rng(0)
    ring = Replay(200, 3, 4)
    ring.add(
        rng.standard_normal((200, 3)), rng.integers(0, 4, 200), 3 * rng.standard_normal(200), rng.standard_normal((200, 3)),
        np.where(rng.random(200) < 0.2, 0, 0.9), rng.random((200, 4)) < 0.6,
    )  # fmt: skip
    optimiser, drawn = torch.optim.Adam(peer.parameters(), 0.01), np.random.Generator(type(learner.rng.bit_generator)())
    drawn.bit_generator.state = learner.rng.bit_generator.state
    for _ in range(15):
        at = drawn.integers(0, 200, 32)
        after, mask = torch.from_numpy(ring.next_observation[at]), torch.from_numpy(ring.next_mask[at])
        with torch.no_grad():
            chosen = peer(after).masked_fill(~mask, -torch.inf).argmax(-1, keepdim=True)
            value = torch.where(mask.any(-1), behind(after).gather(-1, chosen)[:, 0], 0.0)
            wanted = torch.from_numpy(ring.reward[at]) + torch.from_numpy(ring.discount[at]) * value
        q = peer(torch.from_numpy(ring.observation[at])).gather(-1, torch.from_numpy(ring.action[at])[:, None])[:, 0]
        loss = torch.nn.functional.huber_loss(q, wanted)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), 0.05)
        optimiser.step()
        assert learner.update(ring, 0.0) == pytest.approx(loss.item(), abs=1e-5)
        with torch.no_grad():
            for old, new in zip(behind.parameters(), peer.parameters()):
                old.lerp_(new, 0.1)
    for ours, theirs in zip(learner.finished().parameters(), peer.parameters()):
        assert torch.allclose(ours, theirs, atol=2e-5)


def test_the_ring_keeps_the_newest() -> None:
    ring = Replay(5, 1, 2)
    for i in range(7):
        ring.add(np.full((1, 1), i), np.array([0]), np.array([i]), np.zeros((1, 1)), np.zeros(1), None)
    assert sorted(ring.reward.tolist()) == [2, 3, 4, 5, 6]
    assert ring.size == 5


def test_priorities_decide_how_often_a_transition_is_drawn() -> None:
    ring = Replay(4, 1, 2, priority=1.0)
    ring.add(np.zeros((4, 1)), np.zeros(4, np.int64), np.zeros(4), np.zeros((4, 1)), np.zeros(4), None)
    ring.surprised(np.arange(4), np.array([1.0, 1.0, 2.0, 0.0]))
    at, weights = ring.draw(np.random.default_rng(0), 40_000, 1.0)
    share = np.bincount(at, minlength=4) / 40_000
    assert np.allclose(share, [0.25, 0.25, 0.5, 0], atol=0.01)
    assert weights is not None
    assert weights[at == 2].max() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("learner", [Ppo(rollout=8, minibatch=32, epochs=2), Dqn(learning_starts=50)])
def test_learning_is_the_same_whatever_was_drawn_before(learner: object) -> None:
    def once() -> list[np.ndarray]:
        return list(learner.train(Walk(8), 600, seed=4).model().arrays.values())  # type: ignore[attr-defined]

    one = once()
    torch.rand(3)
    np.random.default_rng().random()
    assert all(np.array_equal(a, b) for a, b in zip(one, once()))


def test_a_model_meets_the_world_that_it_fits() -> None:
    with pytest.raises(InputError, match=r"bandit: found actions \(10,\); expected the model's \(2,\)"):
        Ppo().train(Bandit(), 100, network=ActorCritic(4, (2,)))
    with pytest.raises(InputError, match="observations of 4 numbers"):
        Dqn().train(Bandit(), 100, network=Mlp(5, (4,), 10))
    with pytest.raises(InputError, match="expected one action"):
        Dqn().train(Both(), 100)
    with pytest.raises(InputError, match="0 decisions"):
        Dqn().train(Bandit(), 0)


def test_normalisation_is_stored_with_the_policy() -> None:
    model = Ppo(rollout=16, minibatch=64).train(Bandit(16), 600).model()
    assert not np.allclose(model.arrays["observation_mean"], 0)
    assert model.arrays["return_scale"][0] != 1
    with torch.no_grad():
        logits, value = model.module()(torch.eye(4))
    assert np.allclose(model.frozen().logits(np.eye(4)), logits, atol=1e-5)
    assert np.allclose(model.frozen().value(np.eye(4)), value, atol=1e-5)


def test_masks_may_come_one_array_per_factor() -> None:
    class Split(Both):
        def mask(self) -> list[np.ndarray]:
            return [np.ones((self.n, 3), bool), np.tile([True, False, True, True], (self.n, 1))]

    env = Split(4)
    env.reset(np.arange(4))
    assert allowed(env).shape == (4, 7)
    Ppo(rollout=8, minibatch=32).train(env, 64)


def test_single_and_vector_are_gymnasiums() -> None:
    pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    from armillary.learn import Single, Vector

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for make in (lambda: Walk(1, fenced=False), lambda: Bandit(1), lambda: Both(1), lambda: Team(1)):
            check_env(Single(make()), skip_render_check=True)
    env = Single(Walk(1))
    env.reset(seed=1)
    assert env.action_masks().tolist() == [True, True]
    env.step(1)
    assert env.action_masks().tolist() == [False, True]
    seen, reward, done, truncated, _ = env.step(1)
    assert (seen.argmax(), reward, done, truncated) == (4, 1.0, True, False), "the last observation, not the next episode's first"
    vector = Vector(Walk(3, fenced=False))
    first, _ = vector.reset(seed=5)
    assert first.shape == (3, 5)
    assert vector.observation_space.contains(first)
    vector.step(np.ones(3, np.int64))
    seen, reward, done, _, info = vector.step(np.ones(3, np.int64))
    assert done.all()
    assert info["_final_obs"].all()
    assert (info["final_obs"].argmax(1) == 4).all()
    assert (seen.argmax(1) == 2).all()


def test_single_passes_the_checker_of_stable_baselines() -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_checker import check_env

    from armillary.learn import Single

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(Single(Walk(1, fenced=False)))
        check_env(Single(Both(1)))


def test_gymnasiums_environments_can_be_learned() -> None:
    pytest.importorskip("gymnasium")
    env = copies_of("CartPole-v1", 4)
    assert (env.name, env.n, env.factors, env.observation) == ("CartPole-v1", 4, (2,), (4,))
    trained = Ppo(rollout=16, minibatch=32).train(env, 128)
    assert trained.decisions == 128
    with pytest.raises(InputError, match="expected Discrete"):
        copies_of("Pendulum-v1", 1)


def test_environments_are_registered_by_their_list(tmp_path, monkeypatch) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    from armillary.learn import environments

    home = tmp_path / "armillary" / "field" / "arena"
    home.mkdir(parents=True)
    (home / "environment.py").write_text('raise RuntimeError("imported")\nENVIRONMENTS = {"Nothing-v0": "small_worlds:Walk"}\n')
    monkeypatch.setattr(environments, "__file__", str(tmp_path / "armillary" / "learn" / "environments.py"))
    register_environments()
    register_environments()
    assert gymnasium.registry.pop("armillary/Nothing-v0").entry_point == "small_worlds:Walk"
