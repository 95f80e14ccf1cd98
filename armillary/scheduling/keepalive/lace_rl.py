"""LACE-RL: a small network chooses each idle pod's keep-alive, from how likely it is used again, what a cold start costs, and the grid.

When a pod becomes idle, a double DQN (14-64-64-9) chooses from {0, 1, 5, 10, 30, 60, 120, 300, 600} s. It sees the function's probability
of reuse within each of these, from a decayed histogram of its gaps; the cold start, vCPUs and memory of the function; the carbon
intensity and its trend; and λ, the weight of carbon against latency. One network serves all functions and all λ. Training replays days
of other functions, on which every gap is known. The reward of every action is therefore known too, and all outputs are regressed at once
(`full_feedback`). A pod never waits longer than until its idling has cost about as much as a cold start (`limit_waits`), which is the
deterministic rule of ski rental and no part of the paper.

Green or Fast? Learning to Balance Cold Starts and Idle Carbon in Serverless Computing, arXiv 2602.23935. The components of the state, the
DQN and λ are published. The lists, the histogram, the training and the limit are our design. Cold starts and intensities are divided by
what static-60 cost on the training day, sizes and intensities enter as logarithms and λ as log-odds, because the trade is one of ratios.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from armillary.arena import Claim, Gain, Kind, Level, NotForThisCase, Technique, parameter
from armillary.case import Case
from armillary.learn import Model, Recipe, obtain
from armillary.scheduling.energy import GRIDS

from .simulation.decisions import NETWORK
from .simulation.play import Policy
from .workload import KeepAliveWork

if TYPE_CHECKING:
    from .sockets.controller import Controller

RIVALS = ("static-60", "static-600", "none", "histogram", "latency-min", "carbon-min", "swarm", "break-even")
#: Functions and invocations of each training day, and decisions and updates of the training.
FUNCTIONS, INVOCATIONS, DECISIONS, UPDATES = 500, 200_000, 200_000, 5_000
TRAINING = tuple(Case(f"train-{name}", parameters={"grid": name, "functions": FUNCTIONS, "most": INVOCATIONS}).digest for name in GRIDS)
#: SHA-256 of the shipped models, as `armillary learn rebuild lace-rl` prints them.
SHIPPED: Mapping[str, str] = {
    "lace-rl": "b80e3eefdc0599bc9e7ee13ebcb51d11ae18b92f0b4280be07232c014c634118",
    "lace-rl-no-ci": "7b71d8f37c97a15136fd62e62e44a461e4a19b863eb17aec9c3d95b54af709ee",
    "lace-rl-no-reuse": "f9e70f564dde49769189571ed00e021c4d6880aa96bfbbe7aa5c22f9c3e3d5b9",
    "lace-rl-textbook": "4c040516ded48e4a21a4a5db2ca145fafd68207c1d6415b7845d096f1e49a837",
}


@dataclass(frozen=True)
class LaceRl(Technique):
    """The network's choice for every idle pod."""

    see_ci: bool = parameter(True, "whether the network sees the carbon intensity and its trend")
    see_reuse: bool = parameter(True, "whether the network sees how likely the function is used again")
    full_feedback: bool = parameter(True, "regress all actions at once; otherwise a textbook DQN sees only the reward of its action")
    limit_waits: bool = parameter(True, "never wait longer than until idling has cost as much as a cold start (ours)")
    retrain: bool = parameter(False, "train on the first part of your own trace instead of using the shipped model")
    updates: int = parameter(UPDATES, "updates of the training; any number but the default trains a new model", range=(1, 1_000_000))

    weighs = True

    claims = (
        Claim(
            "joint_share", by=Level(at_least=1.0), on=Kind("front"), honest=(0.7, None), part=0.4, stand_in="Huawei-like day",
            why="the paper's day is not part of the project; on equal pods and a flat grid no timer can remove a share of the cold starts "
            "without idling at least that share of static-60's time, so both figures need unequal pods or a changing grid",
            says="51.69 % fewer cold starts and 77.08 % less idle carbon than static-60", source="abstract",
        ),
        Claim(
            "cost", over=RIVALS, by=Gain(percent=(2, 30)), on=Kind("grid"), honest=(2, 30), part=0,
            why="the paper has no break-even rule with the same knowledge; any gain over it counts in part",
            says="better trade-offs between latency and carbon", source="abstract",
        ),
        Claim(
            "pareto_gap", by=Level(at_most=0.10), on=Kind("front"), says="approaches the oracle's performance", source="abstract",
        ),
        Claim("decide_us", by=Level(at_most=15.0), says="a decision takes about 15 µs", source="paper"),
        Claim(
            "cost", over="break-even", by=Gain(percent=(-5, None)), on=Kind("misfit"), source="ours",
            says="at most 5 % worse than break-even where gaps come in random order and the grid is another than in training",
        ),
    )  # fmt: skip

    @property
    def variant(self) -> str:
        """The name of the model file."""
        parts = [name for name, on in (("no-ci", self.see_ci), ("no-reuse", self.see_reuse), ("textbook", self.full_feedback)) if not on]
        return "-".join(["lace-rl", *parts])

    def recipe(self) -> Recipe:
        """How this variant's network is made from the built-in training days."""
        facts = {
            "see_ci": self.see_ci, "see_reuse": self.see_reuse, "full_feedback": self.full_feedback, "updates": self.updates,
            "decisions": DECISIONS, "functions": FUNCTIONS, "invocations": INVOCATIONS,
        }  # fmt: skip
        shipped = SHIPPED.get(self.variant, "") if self.updates == UPDATES else ""
        return Recipe(
            "scheduling/keepalive/lace-rl", "armillary.scheduling.keepalive.learning.train:train", parameters=facts, cases=TRAINING,
            seed=0, name=self.variant, shipped=shipped, expected_s=10 if self.full_feedback else 30,
        )  # fmt: skip

    def recipes(self) -> list[Recipe]:
        """The shipped models: that of the technique, and one with each trained part switched off."""
        whole = replace(self, see_ci=True, see_reuse=True, full_feedback=True)
        off: tuple[Mapping[str, Any], ...] = ({}, {"see_ci": False}, {"see_reuse": False}, {"full_feedback": False})
        return [replace(whole, **change).recipe() for change in off]

    def model(self, work: KeepAliveWork | None = None) -> Model:
        """The trained model: the shipped one, or with `retrain` one that is trained on the history of a user's trace."""
        if self.retrain and work is not None and work.history is not None:
            if not len(work.history):
                raise NotForThisCase("no invocation stands in the history to train on; set --history")
            return self._own(work)
        return obtain(self.recipe())

    def _own(self, work: KeepAliveWork) -> Model:
        from .learning.train import trained

        history = work.history
        assert history is not None

        def train(recipe: Recipe, progress: Any) -> Model:
            return trained([(history, work.carbon, work.knowledge)], recipe.parameters, recipe.seed, progress)

        own = self.recipe()
        return obtain(replace(own, train=train, cases=(work.history_digest,), name=f"{self.variant}-own", shipped="", expected_s=60))

    def policy(self, work: KeepAliveWork) -> Policy:
        """The network inside the compiled loop."""
        return Policy(NETWORK, network=self.model(work).frozen()["q"].compiled, see_reuse=self.see_reuse, see_ci=self.see_ci,
                      limit=self.limit_waits)  # fmt: skip

    @classmethod
    def load(
        cls, lam: float = 0.5, *, model: str | None = None, latency_s: float | None = None, carbon_g: float | None = None
    ) -> Controller:
        """A controller for a running platform: `keep_alive(function_id, now, ci)` and `observe(function_id, t_end, t_next)`.

        latency_s, carbon_g: cold-start seconds and grams of idle carbon per invocation of your platform with a keep-alive of 60 s. Those
        of the training days are used if they are not given.
        """
        from .sockets.controller import Controller

        return Controller.of(obtain(cls().recipe(), model), lam, latency_s=latency_s, carbon_g=carbon_g)
