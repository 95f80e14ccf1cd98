"""Double deep Q-learning over batched environments, or over transitions that are known beforehand.

Deep Reinforcement Learning with Double Q-learning, AAAI 2016: the online network chooses the next action and a slowly following copy
values it. Where the reward of every action is known for a transition (`full_feedback`), all outputs are regressed at once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError
from armillary.streams import stream

from .backprop import FlatMlp, Kept, adam
from .determinism import deterministic
from .environments import BatchedEnv, allowed, check_actions, masked_argmax, seeds_of
from .kinds import Activation
from .perceptron import Mlp
from .ppo import Trained

if TYPE_CHECKING:
    import polars as pl

Array = np.ndarray[Any, Any]


def double_dqn_target(reward: Array, discount: Array, online: Array, target: Array, mask: Array | None = None) -> Array:
    """`r + discount · Q_target(s', argmax_a Q_online(s', a))` over allowed actions; `reward` is [batch] or [batch, actions].

    discount: γ^k for k steps ahead, and 0 where the episode was done. A next state without any allowed action counts as 0.
    """
    if mask is not None:
        discount = discount * mask.any(-1)
    value = discount * np.take_along_axis(target, masked_argmax(online, mask)[:, None], -1)[:, 0]
    found: Array = reward + (value if reward.ndim == 1 else value[:, None])
    return found


@dataclass(frozen=True)
class Transitions:
    """Transitions as arrays over one axis: what was seen, done, received and seen next.

    reward is [rows], or [rows, actions] where the reward of every action is known; NaN marks an action that was not possible.
    done marks ends after which nothing follows. next_mask [rows, actions] is what the next state allows, or None.
    """

    observation: Array
    action: Array
    reward: Array
    next_observation: Array
    done: Array
    next_mask: Array | None = None


class Replay:
    """A ring of transitions in preallocated arrays, drawn uniformly or in proportion to their priority."""

    def __init__(self, capacity: int, observation: int, actions: int, *, full_feedback: bool = False, priority: float = 0.0) -> None:
        self.capacity, self.size, self._next, self.alpha = capacity, 0, 0, priority
        self.observation = np.zeros((capacity, observation), np.float32)
        self.next_observation = np.zeros((capacity, observation), np.float32)
        self.action = np.zeros(capacity, np.int64)
        self.reward = np.zeros((capacity, actions) if full_feedback else capacity, np.float32)
        self.discount = np.zeros(capacity, np.float32)
        self.next_mask = np.ones((capacity, actions), bool)
        #: Whether any next state forbids anything.
        self.masked = False
        self.priority = np.zeros(capacity if priority else 0)
        self._largest = 1.0

    def add(
        self, observation: Array, action: Array, reward: Array, next_observation: Array, discount: Array, next_mask: Array | None
    ) -> None:
        """Stores some transitions in the place of the oldest ones."""
        at = (self._next + np.arange(len(action))) % self.capacity
        self.observation[at], self.action[at], self.reward[at] = observation, action, reward
        self.next_observation[at], self.discount[at] = next_observation, discount
        if next_mask is not None:
            self.masked = True
            self.next_mask[at] = next_mask
        if self.alpha:
            self.priority[at] = self._largest
        self._next = int((self._next + len(action)) % self.capacity)
        self.size = min(self.capacity, self.size + len(action))

    def draw(self, rng: np.random.Generator, batch: int, beta: float) -> tuple[Array, Array | None]:
        """Places of a batch, and the weights that undo the bias of priorities."""
        if not self.alpha:
            return rng.integers(0, self.size, batch), None
        total = np.cumsum(self.priority[: self.size] ** self.alpha)
        at = np.minimum(np.searchsorted(total, rng.random(batch) * total[-1], side="right"), self.size - 1)
        weights = (self.size * self.priority[at] ** self.alpha / total[-1]) ** -beta
        return at, (weights / weights.max()).astype(np.float32)

    def surprised(self, at: Array, errors: Array) -> None:
        """Sets the priorities of transitions to their errors."""
        self.priority[at] = np.abs(errors) + 1e-6
        self._largest = max(self._largest, float(self.priority[at].max()))


@dataclass(frozen=True)
class Dqn:
    """Double DQN. The constructor takes parameters only; `train` and `train_offline` do the work."""

    hidden: tuple[int, ...] = (64, 64)
    activation: Activation = "relu"
    gamma: float = 0.99
    lr: float = 1e-3
    batch: int = 64
    #: Transitions that are kept.
    capacity: int = 50_000
    #: Transitions between two updates.
    train_every: int = 4
    learning_starts: int = 1000
    #: Updates between two copies to the target network.
    copy_every: int = 1000
    #: The share of the online network that goes into the target at every update, instead of copies; 0 copies.
    polyak: float = 0.0
    #: The probability of a random action falls linearly from the first to the last value over a share of the training.
    explore_first: float = 1.0
    explore_last: float = 0.05
    explore_share: float = 0.2
    n_step: int = 1
    #: The exponent of proportional priorities; 0 draws uniformly.
    priority: float = 0.0
    #: Regresses all actions at once from `info["rewards"]`; assumes that the next state does not depend on the action.
    full_feedback: bool = False
    most_norm: float = 10.0

    def train(
        self, env: BatchedEnv, decisions: int, *, seed: int = 0, network: Mlp | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> Trained:  # fmt: skip
        """Makes `decisions` decisions in `env`, with an update after every `train_every` of them; returns the trained network."""
        if len(env.factors) != 1 or len(env.observation) != 1:
            said = f"found factors {env.factors} and observations {env.observation}; expected one action and a vector"
            raise InputError(said, where=env.name)
        if decisions <= 0:
            raise InputError(f"found {decisions} decisions; expected at least one", where=env.name)
        if self.full_feedback and self.n_step != 1:
            raise InputError("found full_feedback with n_step above 1; expected one of them", where=env.name)
        with deterministic():
            made = network or Mlp(env.observation[0], self.hidden, env.factors[0], activation=self.activation, seed=seed)
            check_actions(env, (made.config.outputs,), made.config.inputs)
            return _Play(self, env, decisions, seed, _Learner(self, made, seed)).train(progress)

    def train_offline(
        self, transitions: Transitions, updates: int, *, seed: int = 0, network: Mlp | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> Trained:  # fmt: skip
        """Makes `updates` updates from transitions that are all known beforehand; nothing is explored."""
        rows, size = np.shape(transitions.observation)
        if updates <= 0 or rows <= 0:
            raise InputError(f"found {updates} updates on {rows} transitions; expected at least one of each")
        reward = np.asarray(transitions.reward, np.float32)
        actions = network.config.outputs if network else reward.shape[1] if reward.ndim == 2 else int(np.max(transitions.action)) + 1
        with deterministic():
            made = network or Mlp(size, self.hidden, actions, activation=self.activation, seed=seed)
            learner = _Learner(self, made, seed)
            replay = Replay(rows, size, actions, full_feedback=reward.ndim == 2, priority=self.priority)
            discount = np.where(transitions.done, 0.0, self.gamma)
            replay.add(transitions.observation, transitions.action, reward, transitions.next_observation, discount, transitions.next_mask)
            losses: list[tuple[int, float | None, float | None, float]] = []
            for update in range(updates):
                loss = learner.update(replay, update / updates)
                if (update + 1) % max(1, updates // 50) == 0:
                    losses.append((update + 1, None, None, loss))
                    if progress is not None:
                        progress((update + 1) / updates)
            return Trained(learner.finished(), _table(losses), updates, seed)


class _Learner:
    """The online and the target network, and how one update changes them."""

    def __init__(self, how: Dqn, network: Mlp, seed: int) -> None:
        self.how, self.network = how, network
        self.online = FlatMlp(network.config, network.state_arrays())
        self.behind = FlatMlp(network.config, network.state_arrays())
        self._first, self._second = np.zeros_like(self.online.flat), np.zeros_like(self.online.flat)
        self.rng = stream(seed, "replay")
        self.updates = 0

    def update(self, replay: Replay, share: float) -> float:
        """One step on a batch, and its loss; `share` is how much of the training is over."""
        how, online = self.how, self.online
        at, weights = replay.draw(self.rng, how.batch, 0.4 + 0.6 * share)
        following = replay.next_observation[at]
        mask = replay.next_mask[at] if replay.masked else None
        target = double_dqn_target(replay.reward[at], replay.discount[at], online(following), self.behind(following), mask)
        kept: Kept = []
        q = online(replay.observation[at], kept)
        rows = np.arange(len(at))
        if target.ndim == 1:
            error = q[rows, replay.action[at]] - target
        else:
            error = np.where(np.isfinite(target), q - target, np.float32(0))
        size = np.abs(error)
        slope = np.minimum(np.maximum(error, -1), 1)  # Huber's.
        if weights is not None:
            replay.surprised(at, size if size.ndim == 1 else size.mean(-1))
            slope *= weights if slope.ndim == 1 else weights[:, None]
        slope /= np.float32(error.size)
        if target.ndim == 1:
            whole = np.zeros_like(q)
            whole[rows, replay.action[at]] = slope
            slope = whole
        online.backward(kept, slope.astype(np.float32, copy=False))
        self._step()
        return float(np.where(size < 1, 0.5 * error * error, size - 0.5).mean())

    def _step(self) -> None:
        how, online = self.how, self.online
        self.updates += 1
        norm = math.sqrt(float(np.dot(online.gradient, online.gradient)))
        scale = np.float32(min(1.0, how.most_norm / (norm + 1e-6)))
        rate, root = np.float32(how.lr / (1 - 0.9**self.updates)), np.float32(math.sqrt(1 - 0.999**self.updates))
        adam(online.flat, online.gradient, self._first, self._second, rate, root, scale)
        if how.polyak:
            self.behind.flat += np.float32(how.polyak) * (online.flat - self.behind.flat)
        elif self.updates % how.copy_every == 0:
            self.behind.flat[:] = online.flat

    def finished(self) -> Mlp:
        """The PyTorch module with the weights that were learned."""
        self.network.load_arrays(self.online.arrays())
        self.network.eval()
        return self.network


class _Play:
    """Acting in the environment, and learning from it."""

    def __init__(self, how: Dqn, env: BatchedEnv, decisions: int, seed: int, learner: _Learner) -> None:
        self.how, self.env, self.decisions, self.seed, self.learner = how, env, decisions, seed, learner
        self.replay = Replay(
            how.capacity, env.observation[0], env.factors[0], full_feedback=how.full_feedback, priority=how.priority
        )  # fmt: skip
        self.explore = stream(seed, "explore")
        #: The last `n_step` observations, actions, rewards and masks of all copies, newest last; `held` says how many belong together.
        self.past: deque[tuple[Array, Array, Array]] = deque(maxlen=how.n_step)
        self.held = np.zeros(env.n, np.int64)

    def train(self, progress: Callable[[float], None] | None) -> Trained:
        env, how, n = self.env, self.how, self.env.n
        observation = np.asarray(env.reset(seeds_of(self.seed, n)), np.float32)
        mask = allowed(env)
        total, length = np.zeros(n), 0
        last: deque[float] = deque(maxlen=100)
        rows: list[tuple[Any, ...]] = []
        steps = -(-self.decisions // n)
        loss = 0.0
        for step in range(steps):
            action = self._act(observation, mask, step / steps, step * n < how.learning_starts)
            following, reward, done, truncated, info = env.step(action)
            following = np.asarray(following, np.float32)
            ended = done | truncated
            reached = following
            if ended.any():
                reached = np.where(ended[:, None], np.asarray(info["final_obs"], np.float32), following)
            next_mask = allowed(env)
            # What a cut episode would have allowed next is not known, so everything counts as allowed there.
            after = None if next_mask is None else np.where(ended[:, None], True, next_mask)
            self._remember(observation, action, reward, info, reached, done, ended, after)
            total += reward
            last += total[ended].tolist()
            total[ended] = 0
            observation, mask, length = following, next_mask, length + n
            due = (length - how.learning_starts) // how.train_every
            while self.learner.updates < due and self.replay.size >= min(how.batch, how.learning_starts):
                loss = self.learner.update(self.replay, step / steps)
            if (step + 1) % max(1, steps // 50) == 0 or step + 1 == steps:
                rows.append((length, float(np.mean(last)) if last else None, self._epsilon((step + 1) / steps), loss))
                if progress is not None:
                    progress((step + 1) / steps)
        return Trained(self.learner.finished(), _table(rows), length, self.seed)

    def _epsilon(self, share: float) -> float:
        how = self.how
        return how.explore_first + (how.explore_last - how.explore_first) * min(1.0, share / max(how.explore_share, 1e-9))

    def _act(self, observation: Array, mask: Array | None, share: float, at_random: bool) -> Array:
        n, actions = self.env.n, self.env.factors[0]
        explored = self.explore.random(n) < (1.0 if at_random else self._epsilon(share))
        draws = self.explore.random((n, actions), dtype=np.float32)
        if explored.all():
            return masked_argmax(draws, mask)
        best = masked_argmax(self.learner.online(observation), mask)
        return np.where(explored, masked_argmax(draws, mask), best) if explored.any() else best

    def _remember(
        self, observation: Array, action: Array, reward: Array, info: dict[str, Any], reached: Array, done: Array, ended: Array,
        next_mask: Array | None,
    ) -> None:  # fmt: skip
        how = self.how
        if how.full_feedback:
            if "rewards" not in info:
                raise InputError('found no info["rewards"]; expected the reward of every action for full_feedback', where=self.env.name)
            reward = np.asarray(info["rewards"], np.float32)
        if how.n_step == 1:
            self.replay.add(observation, action, reward, reached, np.where(done, 0.0, how.gamma), next_mask)
            return
        self.past.append((observation, action, np.asarray(reward, np.float64)))
        self.held = np.minimum(self.held + 1, how.n_step)
        summed = np.zeros(self.env.n)
        for age in range(len(self.past)):
            seen, chosen, received = self.past[-1 - age]
            summed = received + how.gamma * summed
            # The oldest start has all its steps; at the end of an episode the younger ones get no more.
            out = (self.held > age) & (ended | (age == how.n_step - 1))
            if out.any():
                discount = np.where(done[out], 0.0, how.gamma ** (age + 1))
                self.replay.add(
                    seen[out], chosen[out], summed[out], reached[out], discount, None if next_mask is None else next_mask[out]
                )  # fmt: skip
        self.held[ended] = 0


def _table(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    import polars as pl

    names = ("decisions", "mean_return", "explore", "loss")
    return pl.DataFrame(rows, schema={name: pl.Int64 if name == "decisions" else pl.Float64 for name in names}, orient="row")
