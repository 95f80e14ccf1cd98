"""PPO: a small network picks the next job, or waits.

At every arrival and completion the policy is asked until it waits or nothing fits. It sees free qubits and expected ends by QPU, link
rates, and the first ten waiting jobs, and picks one of them; jobs that do not fit are masked. The job gets the QPUs that `epr-nodes` would
choose; with `choose_nodes` a second head picks among the eight best sets. Training takes 60,000 decisions on other batches of 50 jobs, at
once, on complete networks, with expected times.

Advanced Scheduling Strategies for Distributed Quantum Computing Jobs, arXiv 2602.24152. The observation, the reward and the training are
our design. Proximal Policy Optimization Algorithms, 2017.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from armillary.arena import Claim, Gain, Kind, NotForThisCase, parameter
from armillary.case import Case
from armillary.learn import Model, Recipe, mlp_into, obtain

from .learning.observation import CONTEXT, FACTS, JOBS, QPUS, SETS, WAIT, after, choices, observe
from .planning.strategy import Start, State, Strategy

#: Jobs of a training batch, circuits in the pool, unequal networks, and decisions.
BATCH, POOL, NETWORKS, DECISIONS = 50, 200, 8, 60_000
TRAINING = (Case("train-quantum", parameters={"jobs": BATCH, "pool": POOL, "networks": NETWORKS}).digest,)
#: SHA-256 of the shipped models, as `armillary learn rebuild ppo` prints them.
SHIPPED: Mapping[str, str] = {
    "ppo": "b11f5ba5fc9f9b3e779759253dd498419fb3aa2177608b7a83f4d0ba7971fca6",
    "ppo-nodes": "a952f7d181603c203442f8a92d2575752e857a6039c381d49706454c95211946",
}


@dataclass(frozen=True)
class Ppo(Strategy):
    """The policy's choice of the next job."""

    choose_nodes: bool = parameter(False, "whether a second head picks among the eight best sets of QPUs")
    decisions: int = parameter(DECISIONS, "decisions of the training; another number than the default trains anew", range=(16, 100_000_000))

    slots = False
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim("makespan_s", over=("asap", "epr-nodes"), by=Gain(percent=(-5, None)), on=Kind("trained"), source="paper",
              says="as good as the best strategy on the load that it was trained for"),
        Claim("makespan_s", over=("asap", "epr-nodes"), by=Gain(percent=(-15, None)), on=Kind("batch", "untrained"), source="paper",
              says="close to the best strategy on other loads and topologies"),
        Claim("makespan_s", over="epr", by=Gain(ratio=(1 / 1.1, None)), on=Kind("misfit"), source="ours",
              says="at most 10 % slower than epr where the rates that it is told belong to other links"),
    )  # fmt: skip

    def recipe(self) -> Recipe:
        """How the policy is made."""
        name = "ppo-nodes" if self.choose_nodes else "ppo"
        facts = {"choose_nodes": self.choose_nodes, "jobs": BATCH, "pool": POOL, "networks": NETWORKS, "decisions": self.decisions}
        return Recipe(
            "scheduling/quantum/ppo", "armillary.scheduling.quantum.learning.train:train", parameters=facts, cases=TRAINING, seed=0,
            name=name, shipped=SHIPPED[name] if self.decisions == DECISIONS else "", expected_s=45,
        )  # fmt: skip

    def recipes(self) -> list[Recipe]:
        """The shipped models."""
        return [replace(self, choose_nodes=choose, decisions=DECISIONS).recipe() for choose in (False, True)]

    def model(self) -> Model:
        """The trained model."""
        return obtain(self.recipe())

    def select(self, state: State) -> list[Start]:
        """The jobs that start now, one after the other until the policy waits."""
        if len(state.network) > QPUS:
            raise NotForThisCase(f"found {len(state.network)} QPUs; the policy was trained for at most {QPUS}")
        policy = _policy(self)
        starts: list[Start] = []
        while state.queue:
            seen, mask = observe(state)
            if not mask[:WAIT].any():
                break
            logits = policy(seen)
            action = int(np.where(mask, logits[: JOBS + 1], -np.inf).argmax())
            if action == WAIT:
                break
            offered = choices(state, action, SETS if self.choose_nodes else 1)
            which = int(logits[JOBS + 1 :].argmax()) if self.choose_nodes else 0
            start = offered[min(which, len(offered) - 1)]
            starts.append(start)
            state = after(state, *start)
        return starts


@functools.lru_cache(maxsize=8)
def _policy(technique: Ppo) -> Any:
    """The policy's logits of one observation, in a compiled loop that gives the same bits everywhere."""
    parts = technique.model().frozen()
    networks = [parts[name] for name in ("score", "wait", *(["sets"] if technique.choose_nodes else []))]
    (score, wait, *sets), scratches = [net.compiled for net in networks], [net.scratch() for net in networks]
    out = np.zeros(JOBS + 1 + (SETS if technique.choose_nodes else 0), np.float32)
    row = np.zeros(CONTEXT + FACTS, np.float32)

    def logits(seen: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        facts = seen[CONTEXT:].reshape(JOBS, FACTS)
        row[:CONTEXT] = seen[:CONTEXT]
        for i in range(JOBS):
            row[CONTEXT:] = facts[i]
            mlp_into(*score, row, out[i : i + 1], scratches[0])
        row[CONTEXT:] = facts.mean(0)
        mlp_into(*wait, row, out[JOBS : JOBS + 1], scratches[1])
        if sets:
            mlp_into(*sets[0], seen, out[JOBS + 1 :], scratches[2])
        return out

    return logits
