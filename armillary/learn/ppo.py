"""Proximal policy optimisation over batched environments, with masks, factored actions and heads that entities share.

Proximal Policy Optimization Algorithms, 2017; advantages by High-Dimensional Continuous Control Using Generalized Advantage
Estimation, 2016. Roll-outs are computed by NumPy from the network's own memory, and updates by PyTorch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from armillary.errors import InputError
from armillary.streams import stream

from .determinism import deterministic
from .environments import BatchedEnv, allowed, check_actions, has_entities, seeds_of
from .frozen import freeze
from .kinds import Activation
from .optimiser import Adam
from .policies import ActorCritic
from .store import Model

if TYPE_CHECKING:
    import polars as pl

Array = np.ndarray[Any, Any]
#: What stands for −inf in logits whose gradient is taken; the softmax of it is exactly 0.
CLOSED = -1e9


@dataclass(frozen=True)
class Trained:
    """What a reinforcement learner leaves: its network, what happened on the way, and how many decisions it made."""

    network: nn.Module
    history: pl.DataFrame
    decisions: int
    seed: int
    deterministic: bool = True

    def model(self, **facts: Any) -> Model:
        """The model to store; facts as in `Model.of`."""
        known = {"steps": self.decisions, "seed": self.seed, "deterministic": self.deterministic}
        return Model.of(self.network, **known | facts)


def gae(rewards: Array, values: Array, after: Array, done: Array, truncated: Array, gamma: float, lam: float) -> Array:
    """Generalised advantages, all arrays [steps, copies]: `A_t = δ_t + γλ A_{t+1}`, `δ_t = r_t + γ V(s_{t+1}) − V(s_t)`.

    after: the value of the state that step t reached, which at the end of an episode is its last observation. It does not count where
    the episode is done; where it is truncated, it does. Neither kind of end lets later advantages through.
    """
    delta = rewards + gamma * np.where(done, 0.0, after) - values
    keep = np.where(done | truncated, 0.0, gamma * lam)
    out = np.empty_like(delta)
    running = np.zeros(delta.shape[1:], delta.dtype)
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + keep[t] * running
        out[t] = running
    return out


@dataclass(frozen=True)
class Ppo:
    """Clipped PPO. The constructor takes parameters only; `train` does the work."""

    #: Steps of each copy between two updates.
    rollout: int = 128
    epochs: int = 4
    minibatch: int = 512
    #: The first learning rate of Adam, which falls linearly to 0.
    lr: float = 3e-4
    gamma: float = 0.99
    lam: float = 0.95
    clip: float = 0.2
    value_weight: float = 0.5
    entropy: float = 0.01
    most_norm: float = 0.5
    #: An update ends early when the policy has moved by more than this (approximate KL divergence).
    most_kl: float = 0.03
    hidden: tuple[int, ...] = (64, 64)
    activation: Activation = "tanh"
    normalise_observations: bool = True
    normalise_rewards: bool = True

    def train(
        self, env: BatchedEnv, decisions: int, *, seed: int = 0, network: nn.Module | None = None, device: str = "cpu",
        progress: Callable[[float], None] | None = None,
    ) -> Trained:  # fmt: skip
        """Makes `decisions` decisions in `env` (rounded up to whole roll-outs) and returns the trained network.

        network: one to go on from, or one of the field's own, which gives (logits, value) for an observation; an `ActorCritic` by default.
        It is changed in place.
        """
        if decisions <= 0 or self.rollout <= 0 or self.minibatch <= 0 or self.epochs <= 0:
            raise InputError("found no decisions, roll-out, epochs or minibatch; expected at least one of each", where=env.name)
        with deterministic(device):
            return _Run(self, env, decisions, seed, network, device).train(progress)


class _Moments:
    """Running mean and variance over all rows that it was given."""

    def __init__(self, size: int) -> None:
        self.count = 1e-4
        self.mean = np.zeros(size)
        self.variance = np.ones(size)

    def add(self, rows: Array) -> None:
        rows = rows.reshape(-1, len(self.mean)).astype(np.float64)
        count, mean, variance = len(rows), rows.mean(0), rows.var(0)
        total = self.count + count
        apart = mean - self.mean
        self.mean = self.mean + apart * count / total
        self.variance = (self.variance * self.count + variance * count + apart**2 * self.count * count / total) / total
        self.count = total


class _Run:
    """One training run: the copies' present observations, the running moments, the optimiser."""

    def __init__(self, how: Ppo, env: BatchedEnv, decisions: int, seed: int, network: nn.Module | None, device: str) -> None:
        self.how, self.env, self.seed, self.device = how, env, seed, device
        inputs = env.observation[-1]
        if network is None:
            network = ActorCritic(inputs, env.factors, how.hidden, entities=has_entities(env), activation=how.activation, seed=seed)
        self.own = isinstance(network, ActorCritic)
        if isinstance(network, ActorCritic):
            check_actions(env, network.config.factors, network.config.inputs)
        self.network = network.to(device)
        self.network.train()
        # The optimiser works in place, so the arrays of this frozen network are always the present weights.
        self.frozen = freeze(network.config, _views(network)) if device == "cpu" and isinstance(network, ActorCritic) else None
        self.per_update = env.n * how.rollout
        self.updates = -(-decisions // self.per_update)
        self.optimiser = Adam((p for p in network.parameters() if p.requires_grad), how.lr, eps=1e-5)
        self.seen, self.returned = _Moments(inputs), _Moments(1)
        self.discounted = np.zeros(env.n)
        self.explore, self.batches = stream(seed, "explore"), stream(seed, "batches")
        self.index = _factor_index(env)
        self.episode_return, self.episode_length = np.zeros(env.n), np.zeros(env.n, np.int64)
        #: (return, length) of the last episodes that ended.
        self.last: deque[tuple[float, int]] = deque(maxlen=100)

    def train(self, progress: Callable[[float], None] | None) -> Trained:
        rows: list[tuple[Any, ...]] = []
        self.observation = np.asarray(self.env.reset(seeds_of(self.seed, self.env.n)), np.float32)
        for update in range(self.updates):
            self.optimiser.lr = self.how.lr * (1 - update / self.updates)
            batch = self._roll_out()
            facts = self._improve(batch)
            self._normalise(batch["observation"])
            returns = [one[0] for one in self.last]
            lengths = [one[1] for one in self.last]
            mean = (float(np.mean(returns)), float(np.mean(lengths))) if returns else (None, None)
            rows.append(((update + 1) * self.per_update, *mean, *facts))
            if progress is not None:
                progress((update + 1) / self.updates)
        self.network.to("cpu").eval()
        return Trained(self.network, _table(rows), self.updates * self.per_update, self.seed, self.device == "cpu")

    def _answer(self, observation: Array) -> tuple[Array, Array]:
        """Logits [n, factors, actions] and values [n] of observations."""
        if self.frozen is not None:
            logits, values = self.frozen.both(observation)
        else:
            with torch.no_grad():
                found, value = self.network(torch.from_numpy(np.ascontiguousarray(observation)).to(self.device))
            logits, values = found.cpu().numpy(), value.cpu().numpy()
        return self._by_factor(logits, -np.inf), values

    def _by_factor(self, flat: Array, filler: Any) -> Array:
        """[…, factors, actions] of […, Σ factors]; shorter factors are filled up."""
        if self.index is None:
            return flat if flat.ndim == 3 else flat[:, None, :]
        padded = np.concatenate([flat, np.full((len(flat), 1), filler, flat.dtype)], -1)
        return padded[:, self.index]

    def _roll_out(self) -> dict[str, Array]:
        env, how, n = self.env, self.how, self.env.n
        first_logits, _ = self._answer(self.observation)
        factors, actions = first_logits.shape[1:]
        shape = (how.rollout, n)
        noise = self.explore.gumbel(size=(*shape, factors, actions)).astype(np.float32)
        out: dict[str, Array] = {
            "observation": np.empty((*shape, *env.observation), np.float32), "action": np.empty((*shape, factors), np.int64),
            "value": np.empty(shape, np.float32), "after": np.zeros(shape, np.float32),
            "reward": np.empty(shape, np.float32), "done": np.empty(shape, bool), "truncated": np.empty(shape, bool),
        }  # fmt: skip
        masked, all_logits = None, np.empty((*shape, factors, actions), np.float32)
        for t in range(how.rollout):
            mask = allowed(env)
            logits, value = self._answer(self.observation)
            if mask is not None:
                open_ = self._by_factor(mask, False)
                if masked is None:
                    masked = out["mask"] = np.ones((*shape, factors, actions), bool)
                masked[t] = open_
                logits = np.where(open_, logits, -np.inf)
            action = (logits + noise[t]).argmax(-1)
            out["observation"][t], out["action"][t], out["value"][t] = self.observation, action, value
            all_logits[t] = logits
            given = action if has_entities(env) or len(env.factors) > 1 else action[:, 0]
            observation, reward, done, truncated, info = env.step(given)
            out["reward"][t], out["done"][t], out["truncated"][t] = reward, done, truncated
            self.episode_return += reward
            self.episode_length += 1
            cut = np.asarray(truncated & ~done)
            if cut.any():
                out["after"][t, cut] = self._answer(np.asarray(info["final_obs"], np.float32))[1][cut]
            ended = done | truncated
            if ended.any():
                self.last += zip(self.episode_return[ended].tolist(), self.episode_length[ended].tolist())
                self.episode_return[ended] = 0
                self.episode_length[ended] = 0
            self.observation = np.asarray(observation, np.float32)
        out["log_p"] = _log_p(all_logits, out["action"])
        ends = out["done"] | out["truncated"]
        following = np.concatenate([out["value"][1:], self._answer(self.observation)[1][None]])
        out["after"] = np.where(ends, out["after"], following)
        rewards = self._scaled(out["reward"], ends)
        out["advantage"] = gae(rewards, out["value"], out["after"], out["done"], out["truncated"], how.gamma, how.lam).astype(np.float32)
        out["return"] = out["advantage"] + out["value"]
        return out

    def _scaled(self, rewards: Array, ends: Array) -> Array:
        """Rewards divided by the running standard deviation of the discounted return."""
        if not self.how.normalise_rewards:
            return rewards
        returns = np.empty(rewards.shape)
        for t in range(len(rewards)):
            self.discounted = self.discounted * self.how.gamma + rewards[t]
            returns[t] = self.discounted
            self.discounted = np.where(ends[t], 0.0, self.discounted)
        self.returned.add(returns)
        scale = float(1 / np.sqrt(self.returned.variance[0] + 1e-8))
        if self.own:
            with torch.no_grad():
                self.network.return_scale.fill_(scale)  # type: ignore[operator]
        return np.clip(rewards * scale, -10, 10).astype(np.float32)

    def _normalise(self, observations: Array) -> None:
        """Brings the network's normalisation up to date, between an update and the next roll-out, so that both see the same one."""
        if not (self.how.normalise_observations and self.own):
            return
        self.seen.add(observations)
        with torch.no_grad():
            self.network.observation_mean.copy_(torch.from_numpy(self.seen.mean))  # type: ignore[operator]
            self.network.observation_scale.copy_(torch.from_numpy(1 / np.sqrt(self.seen.variance + 1e-8)))  # type: ignore[operator]

    def _improve(self, batch: dict[str, Array]) -> tuple[float, float, float, float]:
        how = self.how
        size = self.per_update
        wanted = [name for name in ("observation", "action", "log_p", "advantage", "return", "mask") if name in batch]
        flat = {name: torch.from_numpy(batch[name].reshape(size, *batch[name].shape[2:])).to(self.device) for name in wanted}
        facts = [(0.0, 0.0, 0.0, 0.0)]
        for _ in range(how.epochs):
            order = torch.from_numpy(self.batches.permutation(size)).to(self.device)
            for i in range(0, size, how.minibatch):
                chosen = order[i : i + how.minibatch]
                fact = self._step({name: a[chosen] for name, a in flat.items()})
                facts.append(fact)
                if fact[3] > how.most_kl:
                    return tuple(np.mean(facts[1:], 0).tolist())
        return tuple(np.mean(facts[1:], 0).tolist())

    def _step(self, part: dict[str, Tensor]) -> tuple[float, float, float, float]:
        how = self.how
        logits, value = self.network(part["observation"])
        logits = self._tensor_by_factor(logits)
        if "mask" in part:
            logits = logits.masked_fill(~part["mask"], CLOSED)
        log_all = fn.log_softmax(logits, -1)
        log_p = log_all.gather(-1, part["action"][..., None])[..., 0].sum(-1)
        log_ratio = log_p - part["log_p"]
        ratio = torch.exp(log_ratio)
        advantage = part["advantage"]
        if len(advantage) > 1:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - how.clip, 1 + how.clip) * advantage).mean()
        value_loss = fn.mse_loss(value, part["return"])
        entropy = -(log_all.exp() * log_all).sum(-1).sum(-1).mean()
        self.optimiser.clear()
        torch.autograd.backward(how.value_weight * value_loss - gain - how.entropy * entropy)
        nn.utils.clip_grad_norm_(self.optimiser.tensors, how.most_norm)
        with torch.no_grad():
            kl = float(((ratio - 1) - log_ratio).mean())
        if kl <= how.most_kl:
            self.optimiser.step()
        return -gain.item(), value_loss.item(), entropy.item(), kl

    def _tensor_by_factor(self, flat: Tensor) -> Tensor:
        if self.index is None:
            return flat if flat.ndim == 3 else flat[:, None, :]
        padded = torch.cat([flat, flat.new_full((len(flat), 1), CLOSED)], -1)
        return padded[:, torch.from_numpy(self.index).to(flat.device)]


def _views(network: nn.Module) -> dict[str, Array]:
    """The network's own memory as arrays."""
    return {name: value.detach().numpy() for name, value in network.state_dict().items()}


def _factor_index(env: BatchedEnv) -> Array | None:
    """The columns of each factor, [factors, most actions], where the last column of all is the filler; None for one factor."""
    if has_entities(env) or len(env.factors) == 1:
        return None
    total, most = sum(env.factors), max(env.factors)
    index = np.full((len(env.factors), most), total, np.int64)
    at = 0
    for i, size in enumerate(env.factors):
        index[i, :size] = np.arange(at, at + size)
        at += size
    return index


def _log_p(logits: Array, action: Array) -> Array:
    """The log probability of the actions, summed over factors."""
    top = logits.max(-1, keepdims=True)
    total = np.log(np.exp(logits - top).sum(-1)) + top[..., 0]
    found: Array = (np.take_along_axis(logits, action[..., None], -1)[..., 0] - total).sum(-1)
    return found


def _table(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    import polars as pl

    names = ("decisions", "mean_return", "mean_length", "policy_loss", "value_loss", "entropy", "kl")
    return pl.DataFrame(rows, schema={name: pl.Int64 if name == "decisions" else pl.Float64 for name in names}, orient="row")
