"""Environments whose optimum is known, and what tests of learned parts share."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class World:
    """One-step episodes: the context is the observation, and an action is paid by `pay(context, action)`."""

    name = "world"

    def __init__(self, n: int, contexts: int, factors: tuple[int, ...]) -> None:
        self.n, self.contexts, self.factors, self.observation = n, contexts, factors, (contexts,)

    def reset(self, seeds: Array) -> Array:
        self.rng = np.random.default_rng(np.asarray(seeds))
        return self._next()

    def _next(self) -> Array:
        self.context = self.rng.integers(0, self.contexts, self.n)
        return np.eye(self.contexts, dtype=np.float32)[self.context]

    def pay(self, context: Array, action: Array) -> Array:
        raise NotImplementedError

    def step(self, actions: Array) -> Any:
        reward = self.pay(self.context, actions).astype(np.float32)
        info: dict[str, Any] = {"final_obs": np.eye(self.contexts, dtype=np.float32)[self.context]}
        if len(self.factors) == 1:
            info["rewards"] = np.stack([self.pay(self.context, np.full(self.n, a)) for a in range(self.factors[0])], 1).astype(np.float32)
        return self._next(), reward, np.ones(self.n, bool), np.zeros(self.n, bool), info

    def mask(self) -> Any:
        return None


class Bandit(World):
    """Ten arms, four contexts; the best arm of each context pays 1 and the others less."""

    name = "bandit"

    def __init__(self, n: int = 16) -> None:
        super().__init__(n, 4, (10,))
        self.pays = np.random.default_rng(5).uniform(0, 0.6, (4, 10))
        self.pays[np.arange(4), [7, 2, 9, 0]] = 1.0

    def pay(self, context: Array, action: Array) -> Array:
        return self.pays[context, action]


class Both(World):
    """Two factors of different sizes; it pays 1 only if both are right, and 0.2 if one is."""

    name = "both"

    def __init__(self, n: int = 16) -> None:
        super().__init__(n, 2, (3, 4))

    def pay(self, context: Array, action: Array) -> Array:
        first, second = action[:, 0] == context + 1, action[:, 1] == 3 - context
        return np.where(first & second, 1.0, 0.2 * (first | second))


class OneStep:
    """Pays 1 and ends at once, by an end of its own or by being cut; the value of the last observation is what differs."""

    name, factors, observation = "one-step", (2,), (1,)

    def __init__(self, n: int = 4, *, truncates: bool) -> None:
        self.n, self.truncates = n, truncates

    def reset(self, seeds: Array) -> Array:
        return np.zeros((self.n, 1), np.float32)

    def step(self, actions: Array) -> Any:
        ends = np.ones(self.n, bool)
        cut = ends if self.truncates else ~ends
        return np.zeros((self.n, 1), np.float32), np.ones(self.n, np.float32), ~cut, cut, {"final_obs": np.ones((self.n, 1), np.float32)}

    def mask(self) -> Any:
        return None


class Walk:
    """Steps left or right on 0…4 from 2; 4 pays 1 and ends, 0 ends, and after 8 steps it is cut. At 3 nobody may go left."""

    name, factors, observation = "walk", (2,), (5,)

    def __init__(self, n: int = 8, *, blocked: bool = False, fenced: bool = True) -> None:
        self.n, self.blocked, self.fenced = n, blocked, fenced

    def reset(self, seeds: Array) -> Array:
        self.rng = np.random.default_rng(np.asarray(seeds))
        self.place, self.age = np.full(self.n, 2), np.zeros(self.n, np.int64)
        return self._seen()

    def _seen(self) -> Array:
        return np.eye(5, dtype=np.float32)[self.place]

    def step(self, actions: Array) -> Any:
        assert not (self.fenced and (actions[self.place == 3] == 0).any()), "a masked action was taken"
        self.place = self.place + np.where(actions == 1, 1, -1)
        self.age += 1
        done = (self.place == 0) | (self.place == 4)
        truncated = (self.age >= 8) & ~done
        reward, final = (self.place == 4).astype(np.float32), self._seen()
        ended = done | truncated
        self.place, self.age = np.where(ended, 2, self.place), np.where(ended, 0, self.age)
        return self._seen(), reward, done, truncated, {"final_obs": final}

    def mask(self) -> Any:
        if not (self.fenced or self.blocked):
            return None
        mask = np.ones((self.n, 2), bool)
        if self.fenced:
            mask[self.place == 3, 0] = False
        if self.blocked:
            mask[:] = False
        return mask


class Team:
    """Each of several entities must choose the action that its own observation names; it pays the share that did."""

    name, factors = "team", (3,)

    def __init__(self, n: int = 16, entities: int = 3) -> None:
        self.n, self.observation = n, (entities, 3)

    def reset(self, seeds: Array) -> Array:
        self.rng = np.random.default_rng(np.asarray(seeds))
        return self._next()

    def _next(self) -> Array:
        self.right = self.rng.integers(0, 3, (self.n, self.observation[0]))
        return np.eye(3, dtype=np.float32)[self.right]

    def step(self, actions: Array) -> Any:
        reward = (actions == self.right).mean(1).astype(np.float32)
        final = np.eye(3, dtype=np.float32)[self.right]
        return self._next(), reward, np.ones(self.n, bool), np.zeros(self.n, bool), {"final_obs": final}

    def mask(self) -> Any:
        return None
