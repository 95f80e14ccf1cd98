"""Environments that step many copies at once, and how they meet Gymnasium's.

A batched environment holds the state of its copies in arrays, with no Python object per copy. `Single` and `Vector` (in `gymnasium_envs`)
make Gymnasium environments of it, and `copies_of` makes a batched one of any Gymnasium environment with discrete actions.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from armillary import extras
from armillary.errors import InputError
from armillary.streams import seed32

Array = np.ndarray[Any, Any]
Step = tuple[Array, Array, Array, Array, dict[str, Any]]


@runtime_checkable
class BatchedEnv(Protocol):
    """`n` copies of an environment that are stepped together.

    A copy that ends begins its next episode within the same step. `step` returns the observation with which the next episode begins, and
    the last one of the episode that ended in `info["final_obs"]` [n, …], whose other rows do not count.
    """

    #: What messages call it.
    name: str
    #: The number of copies.
    n: int
    #: The shape of one observation: (inputs,), or (entities, inputs) where entities share one policy head.
    observation: tuple[int, ...]
    #: The number of actions of each factor: (5,) is one choice of five. With entities it is that of each entity.
    factors: tuple[int, ...]

    def reset(self, seeds: Array) -> Array:
        """Begins an episode in every copy, each from its own seed (uint32 [n]); returns float32 observations [n, …]."""
        ...

    def step(self, actions: Array) -> Step:
        """Observations [n, …], rewards [n], done [n], truncated [n], and info, after the actions [n] (or [n, factors], [n, entities]).

        `done` is an end that the state itself brings, after which nothing follows; `truncated` cuts an episode that would go on.
        `info["rewards"]` [n, actions], where the environment gives it, is the reward that each action would have had.
        """
        ...

    def mask(self) -> Array | list[Array] | None:
        """What is allowed now: bool [n, Σ factors] (or [n, entities, actions]), one array per factor, or None if everything is."""
        ...


def has_entities(env: BatchedEnv) -> bool:
    """Whether the observation is one row per entity."""
    return len(env.observation) == 2


def seeds_of(seed: int, n: int) -> Array:
    """The seeds of the copies under a seed: those of `("env", i)`."""
    return np.array([seed32(seed, "env", str(i)) for i in range(n)], np.uint32)


def allowed(env: BatchedEnv) -> Array | None:
    """The mask as one bool array, or None; a row without any allowed action is an error that names the environment."""
    found = env.mask()
    if found is None:
        return None
    parts = [np.asarray(part, bool) for part in found] if isinstance(found, list) else _split(np.asarray(found, bool), env)
    for factor, part in enumerate(parts):
        stuck = ~part.any(-1)
        if stuck.any():
            copy = int(np.argwhere(stuck)[0][0])
            raise InputError(f"found no allowed action in copy {copy} for factor {factor}; expected at least one", where=env.name)
    whole: Array = np.concatenate(parts, -1) if len(parts) > 1 else parts[0]
    return whole


def _split(mask: Array, env: BatchedEnv) -> list[Array]:
    expected = (env.n, env.observation[0], env.factors[0]) if has_entities(env) else (env.n, sum(env.factors))
    if mask.shape != expected:
        raise InputError(f"found a mask of shape {mask.shape}; expected {expected}", where=env.name)
    return np.split(mask, np.cumsum(env.factors)[:-1], -1) if len(env.factors) > 1 else [mask]


def masked_argmax(values: Array, mask: Array | None) -> Array:
    """The number of the first largest allowed value of each row."""
    found: Array = (values if mask is None else np.where(mask, values, -np.inf)).argmax(-1)
    return found


def episode_returns(env: BatchedEnv, act: Callable[[Array, Array | None], Array], *, seed: int = 0, gamma: float = 1.0) -> Array:
    """The return of the first episode of every copy, [n], when `act(observations, mask)` decides. A frozen policy is such a function.

    The seed names streams of its own, so no copy meets an episode of training.
    """
    observation = np.asarray(env.reset(np.array([seed32(seed, "play", str(i)) for i in range(env.n)], np.uint32)), np.float32)
    total, weight, going = np.zeros(env.n), 1.0, np.ones(env.n, bool)
    while going.any():
        seen, reward, done, truncated, _ = env.step(act(observation, allowed(env)))
        total += weight * np.where(going, reward, 0.0)
        going &= ~(done | truncated)
        observation, weight = np.asarray(seen, np.float32), weight * gamma
    return total


def check_actions(env: BatchedEnv, factors: Sequence[int], inputs: int) -> None:
    """Raises InputError where a model's actions or inputs are not those of the environment."""
    if tuple(factors) != tuple(env.factors):
        raise InputError(f"found actions {tuple(env.factors)}; expected the model's {tuple(factors)}", where=env.name)
    if env.observation[-1] != inputs:
        raise InputError(f"found observations of {env.observation[-1]} numbers; expected the model's {inputs}", where=env.name)


class Copies:
    """A batched environment made of `n` Gymnasium environments that are stepped one after the other."""

    def __init__(self, make: Callable[[], Any], n: int) -> None:
        self._envs = [make() for _ in range(n)]
        first = self._envs[0]
        self.name, self.n = str(getattr(first.spec, "id", type(first).__name__)), n
        self.observation = tuple(first.observation_space.shape)
        space = first.action_space
        if hasattr(space, "nvec"):
            self.factors = tuple(int(k) for k in space.nvec)
        elif hasattr(space, "n"):
            self.factors = (int(space.n),)
        else:
            raise InputError(f"found the action space {space}; expected Discrete or MultiDiscrete", where=self.name)
        if len(self.observation) != 1:
            raise InputError(f"found observations of shape {self.observation}; expected a vector", where=self.name)

    def reset(self, seeds: Array) -> Array:
        """See `BatchedEnv`."""
        return np.stack([np.asarray(env.reset(seed=int(seed))[0], np.float32) for env, seed in zip(self._envs, seeds)])

    def step(self, actions: Array) -> Step:
        """See `BatchedEnv`."""
        observations = np.empty((self.n, *self.observation), np.float32)
        final = np.zeros_like(observations)
        rewards, done, truncated = np.zeros(self.n, np.float32), np.zeros(self.n, bool), np.zeros(self.n, bool)
        for i, env in enumerate(self._envs):
            action = int(actions[i]) if len(self.factors) == 1 else actions[i]
            seen, rewards[i], done[i], truncated[i], _ = env.step(action)
            if done[i] or truncated[i]:
                final[i] = seen
                seen = env.reset()[0]
            observations[i] = seen
        return observations, rewards, done, truncated, {"final_obs": final}

    def mask(self) -> Array | None:
        """The `action_masks()` of the environments, where they have them."""
        first = self._envs[0].unwrapped
        if not hasattr(first, "action_masks"):
            return None
        return np.stack([np.asarray(env.unwrapped.action_masks(), bool).ravel() for env in self._envs])


def copies_of(name: str, n: int = 16, **options: Any) -> Copies:
    """`n` copies of a Gymnasium environment, by its registered name."""
    gymnasium = extras.need("gymnasium")
    return Copies(lambda: gymnasium.make(name, **options), n)


def register_environments() -> None:
    """Registers the environments of all arenas with Gymnasium, which calls this when it is imported.

    An arena lists its own in `environment.py` as a literal `ENVIRONMENTS = {"KeepAlive-v0": "package.module:make"}`; the file is read but
    not imported.
    """
    gymnasium = extras.need("gymnasium")
    for file in sorted(Path(__file__).parents[1].glob("*/*/environment.py")):
        for node in ast.parse(file.read_bytes()).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "ENVIRONMENTS":
                for name, target in ast.literal_eval(node.value).items():
                    full = f"armillary/{name}"
                    if full not in gymnasium.registry:
                        gymnasium.register(full, entry_point=target)
