"""DDRM: learn how likely an allocation violates the objective, learn what to allocate, and let the first brake the second.

Stage 1, the predictor, reads five windows of ten numbers per service (an LSTM), lets services look at each other with a learned bias for
who calls whom and who shares a node (attention), and gives the probability that proposed quotas violate the objective in the next window
and within five. Stage 2, the decider, is a policy trained by PPO that sees the predictor's tokens and probabilities, and moves every quota
by −20, −10, 0, +10 or +30 %. The shield passes its action to the predictor, and raises services in the order of the probability's slope
until the risk is at most 0.1 or all are up; after ten calm windows the least sensitive service gives one level more.

DDRM: An SLO-aware Deep Dynamic Resource Management Framework for Microservices, IEEE CLUSTER 2025. The two stages are the abstract's; the
networks, the reward, the shield and the first lesson of the decider (it imitates the greedy rule over the predictor) are our design.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from armillary.arena import Claim, Gain, Kind, Level, parameter
from armillary.case import Case
from armillary.learn import Recipe, obtain

from .application.application import Application
from .application.built_in import built_in
from .control.allocator import Allocator

if TYPE_CHECKING:
    from .control.learned import LearnedController
    from .sockets.advisor import Advisor

RIVALS = ("hpa", "vpa", "step-rule", "deepest-first", "predict-only", "rl-only")
#: Explored windows, steps of the predictor, windows of the first lesson, and decisions of PPO; and the first two on first use elsewhere.
WINDOWS, STEPS, LESSON, DECISIONS = 20_000, 600, 4_000, 40_000
COLD_WINDOWS, COLD_STEPS = 6_000, 300
TRAINING = (Case("train-microservices", parameters={"application": "shop-8", "windows": WINDOWS}).digest,)
#: SHA-256 of the shipped model, as `armillary learn rebuild ddrm` prints it.
SHIPPED: Mapping[str, str] = {"ddrm": "6d9b4ed74785c08a33a85a58cb792c04612a47c7aa37db64e15791c18f03038a"}
_TRAIN = "armillary.scheduling.microservices.learning.train"


@dataclass(frozen=True)
class Ddrm(Allocator):
    """Quotas by a learned policy behind a learned brake."""

    p_max: float = parameter(0.1, "risk of a violation above which the shield raises quotas", range=(0.0, 1.0))
    decider: bool = parameter(True, "whether a learned policy decides; otherwise the greedy rule over the predictor")
    shield: bool = parameter(True, "whether unsafe actions are raised")
    by_slope: bool = parameter(True, "whether the shield raises services by the slope of the risk; otherwise the busiest first")
    calm: bool = parameter(True, "whether ten calm windows permit one level less")
    foresight: bool = parameter(True, "whether the policy sees the predictor's tokens and probabilities (false trains anew)")
    relations: bool = parameter(True, "whether the predictor knows who calls whom (false trains anew)")
    lesson: bool = parameter(True, "whether the policy begins by imitating the greedy rule (false trains anew)")
    practice: bool = parameter(True, "whether PPO follows the lesson (false trains anew)")
    cold_start: bool = parameter(True, "whether an application without a model gets a predictor of its own, trained on first use")

    claims = (
        Claim(
            "score", over=RIVALS, by=Gain(percent=(29.8, None)), on=Kind("load"), aggregate="max", honest=(15, 40), part=3,
            why="another testbed and other baselines; half of the published gain would still pay, and above 40 % the rivals are set badly",
            says="up to 29.8 % better than the best rival", source="abstract",
        ),
        Claim(
            "score", over=RIVALS, by=Gain(percent=(0, None)), on=Kind("load"), source="ours",
            says="on average over all load shapes no worse than the best rival",
        ),
        Claim(
            "slo_violation", by=Level(at_most=0.02), on=Kind("varying"), source="abstract; level ours",
            says="stable under highly varying workloads: at most 2 % of the windows violated",
        ),
        Claim(
            "slo_violation", over=RIVALS, by=Gain(difference=(0, None)), on=Kind("varying"), source="abstract; level ours",
            says="no more violated windows than the best rival under highly varying workloads",
        ),
        Claim(
            "score", over="deepest-first", by=Gain(ratio=(1 / 1.1, None)), on=Kind("misfit"), source="ours",
            says="at most 10 % worse than deepest-first where nothing can be foreseen, or with another application's predictor",
        ),
        Claim("decide_ms", by=Level(at_most=10.0), on=(Kind("load"), Kind("misfit")), says="a decision takes at most 10 ms", source="ours"),
    )  # fmt: skip

    def recipe(self) -> Recipe:
        """How predictor and decider are made, on the shop."""
        facts = {
            "application": anonymous(built_in("shop-8")), "windows": WINDOWS, "steps": STEPS, "lesson": LESSON if self.lesson else 0,
            "decisions": DECISIONS if self.practice else 0, "foresight": self.foresight, "relations": self.relations,
        }  # fmt: skip
        name = "-".join(["ddrm", *(f"no-{part}" for part in ("foresight", "relations", "lesson", "practice") if not getattr(self, part))])
        return Recipe(
            "scheduling/microservices/ddrm", f"{_TRAIN}:train", parameters=facts, cases=TRAINING, seed=0, name=name,
            shipped=SHIPPED.get(name, ""), expected_s=120,
        )  # fmt: skip

    def recipes(self) -> list[Recipe]:
        """The shipped model."""
        return [replace(self, foresight=True, relations=True, lesson=True, practice=True).recipe()]

    def predictor_recipe(self, app: Application) -> Recipe:
        """How the predictor of another application is made."""
        facts = {"application": anonymous(app), "windows": COLD_WINDOWS, "steps": COLD_STEPS, "relations": self.relations}
        return Recipe(
            "scheduling/microservices/ddrm", f"{_TRAIN}:train_predictor", parameters=facts, seed=0, name="ddrm-predictor",
            expected_s=3 * len(app.services),
        )  # fmt: skip

    def predictor_parts(self, app: Application) -> Any:
        """The frozen predictor for an application: the shipped one for the shop, otherwise one that is trained on first use."""
        whole = self.recipe()
        if not self.cold_start or anonymous(app) == whole.parameters["application"]:
            return _frozen(self)
        return _own(self, app)

    def controller(self, app: Application) -> LearnedController:
        """A controller for one run."""
        from .control.learned import LearnedController
        from .learning.predictor import Predictor

        predictor = Predictor(self.predictor_parts(app), app, self.relations)
        return LearnedController(
            app, predictor, _policy(self) if self.decider else None, self.shield, self.by_slope, self.calm, self.foresight, self.p_max
        )  # fmt: skip

    @classmethod
    def load(cls, application: str | Application = "shop-8", **settings: Any) -> Advisor:
        """Advice for a running application: `decide(window)` gives cores by service."""
        from .sockets.advisor import Advisor

        app = built_in(application) if isinstance(application, str) else application
        return Advisor(app, cls(**settings).controller(app))


def anonymous(app: Application) -> dict[str, Any]:
    """The application as JSON in which services, nodes and requests have numbers for names, so that a renamed one is the same."""
    from .readers.documents import document_of

    found = document_of(app)
    nodes = {name: f"n{i}" for i, name in enumerate(dict.fromkeys(service.node for service in app.services if service.node))}
    names = {name: f"s{i}" for i, name in enumerate(app.names)}
    for service in found["services"]:
        service["name"] = names[service["name"]]
        if "node" in service:
            service["node"] = nodes[service["node"]]
    for i, request in enumerate(found["requests"]):
        request["name"] = f"r{i}"
        waiting = [request["tree"]]
        while waiting:
            call = waiting.pop()
            call["service"] = names[call["service"]]
            waiting += [one for group in call.get("calls", []) for one in group]
    return found | {"name": "application"}


@functools.lru_cache(maxsize=8)
def _frozen(technique: Ddrm) -> Any:
    return obtain(technique.recipe()).frozen()


@functools.lru_cache(maxsize=8)
def _policy(technique: Ddrm) -> Any:
    return _frozen(technique)["decider"]


@functools.lru_cache(maxsize=8)
def _own(technique: Ddrm, app: Application) -> Any:
    return obtain(technique.predictor_recipe(app)).frozen()
