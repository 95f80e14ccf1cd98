"""Batched environments as Gymnasium's: `Single` is one copy, `Vector` is all of them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from armillary.errors import InputError

from .environments import BatchedEnv, allowed, has_entities

Array = np.ndarray[Any, Any]


def _spaces(env: BatchedEnv) -> tuple[spaces.Box, spaces.Space[Any]]:
    seen = spaces.Box(-np.inf, np.inf, env.observation, np.float32)
    factors = env.factors * env.observation[0] if has_entities(env) else env.factors
    return seen, spaces.Discrete(factors[0]) if len(factors) == 1 else spaces.MultiDiscrete(list(factors))


class Single(gymnasium.Env[Array, Any]):
    """One copy as a `gymnasium.Env`, with `action_masks()` as sb3-contrib reads them."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, env: BatchedEnv) -> None:
        if env.n != 1:
            raise InputError(f"found {env.n} copies; expected one", where=env.name)
        self._env = env
        self.observation_space, self.action_space = _spaces(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begins an episode; the same seed gives the same one."""
        super().reset(seed=seed)
        drawn = self.np_random.integers(0, 1 << 32, 1, dtype=np.uint32)
        return np.asarray(self._env.reset(drawn)[0], np.float32), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """The last observation of an episode is returned as it is; the next one begins with `reset`."""
        actions = np.asarray(action)[None]
        observation, reward, done, truncated, info = self._env.step(actions)
        ended = bool(done[0] or truncated[0])
        seen = info["final_obs"][0] if ended else observation[0]
        more = {key: value[0] for key, value in info.items() if key != "final_obs" and isinstance(value, np.ndarray)}
        return np.asarray(seen, np.float32), float(reward[0]), bool(done[0]), bool(truncated[0]), more

    def action_masks(self) -> Array:
        """What is allowed now, for all factors one after the other."""
        found = allowed(self._env)
        count = int(sum(getattr(self.action_space, "nvec", [getattr(self.action_space, "n", 0)])))
        return np.ones(count, bool) if found is None else found[0].ravel()


class Vector(VectorEnv[Array, Any, Array]):
    """All copies as a `gymnasium.vector.VectorEnv` that resets a copy within the step that ends it."""

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, env: BatchedEnv) -> None:
        self._env, self.num_envs = env, env.n
        self.single_observation_space, self.single_action_space = _spaces(env)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, env.n)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, env.n)

    def reset(self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begins an episode in every copy."""
        if isinstance(seed, list):
            seeds = np.array([0 if one is None else one for one in seed], np.uint32)
        else:
            if seed is not None or self._np_random is None:
                self._np_random, self._np_random_seed = gymnasium.utils.seeding.np_random(seed)
            seeds = self._np_random.integers(0, 1 << 32, self.num_envs, dtype=np.uint32)
        return self._env.reset(seeds), {}

    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """`info["final_obs"]` holds the last observations of the episodes that ended."""
        observation, reward, done, truncated, info = self._env.step(np.asarray(actions))
        ended = done | truncated
        return observation, reward, done, truncated, info | ({"_final_obs": ended} if ended.any() else {})
