"""Scheduling a batch as an environment: start one of the first ten waiting jobs, or wait for the next completion.

An episode is a batch that is there at once. Jobs take the times that the planner expects, so no luck is learned. The reward of waiting is
−Δt · (1 − utilisation) − 0.1 · Δt · waiting and running jobs / all jobs, the second being what the mean latency grows by, with Δt in lower
bounds of the batch; the last step adds −makespan / lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.learn.environments import Step
from armillary.streams import stream

from .learning.observation import INPUTS, JOBS, SETS, WAIT, after, choices, observe
from .planning.planner import Planner
from .planning.strategy import State
from .simulation.batch import Job

ENVIRONMENTS = {"QuantumBatch-v0": "armillary.scheduling.quantum.environment:make"}
Array = npt.NDArray[Any]
#: Draws the jobs of an episode, and the planner that knows their network.
Draw = Callable[[np.random.Generator], tuple[list[Job], Planner]]
LATENCY_WEIGHT = 0.1


class QuantumBatch:
    """A batched environment; with `choose_nodes` a second factor picks among the eight best sets of QPUs."""

    name = "armillary/QuantumBatch-v0"
    observation: tuple[int, ...] = (INPUTS,)

    def __init__(self, n: int, draw: Draw, choose_nodes: bool = False) -> None:
        self.n, self._draw, self._sets = n, draw, SETS if choose_nodes else 1
        self.factors: tuple[int, ...] = (JOBS + 1, SETS) if choose_nodes else (JOBS + 1,)
        self._rngs: list[np.random.Generator] = []
        self._states: list[State] = []
        self._bounds = np.ones(n)
        self._masks = np.ones((n, sum(self.factors)), bool)

    def reset(self, seeds: Array) -> Array:
        """See `BatchedEnv`."""
        self._rngs = [np.random.default_rng(int(seed)) for seed in seeds]
        self._states = [self._begun(i) for i in range(self.n)]
        return np.stack([self._seen(i) for i in range(self.n)])

    def _begun(self, i: int) -> State:
        jobs, planner = self._draw(self._rngs[i])
        alone = [planner.expected_s(job, planner.alone(job)) for job in jobs]
        network = planner.network
        self._bounds[i] = max(sum(job.qubits * s for job, s in zip(jobs, alone)) / network.qubits, max(alone))
        return State(0.0, network, planner, jobs, tuple(range(len(jobs))), tuple(network.data.tolist()))

    def _seen(self, i: int) -> Array:
        seen, mask = observe(self._states[i])
        self._masks[i, : JOBS + 1] = mask
        return seen

    def step(self, actions: Array) -> Step:
        """See `BatchedEnv`."""
        reward, done = np.zeros(self.n, np.float32), np.zeros(self.n, bool)
        final, seen = np.zeros((self.n, INPUTS), np.float32), np.empty((self.n, INPUTS), np.float32)
        for i in range(self.n):
            chosen = np.atleast_1d(actions[i])
            reward[i] = self._act(i, int(chosen[0]), int(chosen[-1]) if self._sets > 1 else 0)
            state = self._states[i]
            if not state.queue:
                # What is left only runs out; nothing can be decided any more.
                reward[i] += self._end(i)
                done[i] = True
                final[i] = self._seen(i)
                self._states[i] = self._begun(i)
            seen[i] = self._seen(i)
        return seen, reward, done, np.zeros(self.n, bool), {"final_obs": final}

    def _act(self, i: int, action: int, which: int) -> float:
        state = self._states[i]
        if action != WAIT:
            offered = choices(state, action, self._sets)
            self._states[i] = after(state, *offered[min(which, len(offered) - 1)])
            return 0.0
        return self._wait(i)

    def _wait(self, i: int) -> float:
        """Lets time pass until the next completion."""
        state = self._states[i]
        at = min(end for _, _, end in state.running)
        ended = [one for one in state.running if one[2] == at]
        free, network = list(state.free), state.network
        for _, placement, _ in ended:
            for qpu, size in zip(placement.qpus, placement.sizes):
                free[qpu] += size
        passed = (at - state.now_s) / self._bounds[i]
        idle = sum(state.free) / network.qubits
        present = (len(state.queue) + len(state.running)) / len(state.jobs)
        running = tuple(one for one in state.running if one[2] > at)
        self._states[i] = State(at, network, state.planner, state.jobs, state.queue, tuple(free), running)
        return -passed * idle - LATENCY_WEIGHT * passed * present

    def _end(self, i: int) -> float:
        reward = 0.0
        while self._states[i].running:
            reward += self._wait(i)
        return reward - self._states[i].now_s / self._bounds[i]

    def mask(self) -> Array:
        """A job is allowed if it fits, and waiting if something runs."""
        return self._masks.copy()


def training_batches(
    jobs: int = 50, pool: int = 200, networks: int = 8, seed: int = 0, topology: str = "complete", cluster: str = "qpu-6"
) -> Draw:
    """Draws batches from a pool of training circuits, half of them on equal links and half on one of so many unequal networks."""
    from .network.network import Network
    from .workload import SHOTS, circuits, linked

    rng = stream(seed, "scheduling/quantum", "train")
    plain = Network.of(cluster)
    made = [Job(f"{i}-{circuit.name}", circuit, shots=SHOTS) for i, circuit in enumerate(circuits(pool, rng, min(24, plain.qubits)))]
    equal = Planner(linked(plain, topology))
    unequal = [Planner(linked(plain, topology, rng), like=equal) for _ in range(networks)]

    def draw(own: np.random.Generator) -> tuple[list[Job], Planner]:
        planner = equal if not unequal or own.random() < 0.5 else unequal[int(own.integers(len(unequal)))]
        return [made[k] for k in own.choice(len(made), jobs, replace=False).tolist()], planner

    return draw


def make(jobs: int = 50, choose_nodes: bool = False, **options: Any) -> Any:
    """One copy as a Gymnasium environment, on training batches of so many jobs."""
    from armillary.learn.gymnasium_envs import Single

    return Single(QuantumBatch(1, training_batches(jobs, **options), choose_nodes))
