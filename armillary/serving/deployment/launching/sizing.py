"""How many replicas does this service need for these requests? The serving simulator answers.

`size` searches for the least number of replicas with which enough requests get their first token and each further token in time. It
doubles the number until the goal is reached and then bisects. Times are simulated from modelled iterations (`armillary.llm`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError

from ..description.service import Scale, Service

if TYPE_CHECKING:
    from armillary.llm import Model, Replica, Requests

MOST_REPLICAS = 256


@dataclass(frozen=True)
class Goal:
    """The seconds to the first token and per further token that count as in time, and the share of requests that must be in time."""

    ttft_s: float = 1.0
    tpot_s: float = 0.1
    share: float = 0.99

    def check(self) -> None:
        """Raises InputError for a goal that makes no sense."""
        if not (self.ttft_s > 0 and self.tpot_s > 0 and 0 < self.share <= 1):
            raise InputError(f"goal: found {self.ttft_s}, {self.tpot_s} s and {self.share}; expected positive seconds and a share up to 1")


@dataclass(frozen=True)
class Sized:
    """The least number of replicas that reaches the goal, the share in time for every number tried, and the service scaled accordingly."""

    replicas: int
    tried: dict[int, float]
    service: Service


def size(
    service: Service, requests: Requests, model: Model | str, device: str, goal: Goal | None = None, *, replica: Replica | None = None
) -> Sized:
    """Returns the service scaled for these requests on `device`. `model` gives the shape, because a description only names the model."""
    from armillary.llm import Fleet
    from armillary.llm import Replica as Engine

    wanted = goal or Goal()
    wanted.check()
    if service.parallel.nodes > 1:
        raise InputError("a replica that spans nodes is not scaled", where=service.name)
    length = service.engine_args.get("max-model-len")
    most = int(length) if isinstance(length, int) and not isinstance(length, bool) else None
    one = replica or Engine(model, device=device, tp=service.parallel.tensor, pp=service.parallel.pipeline, max_model_len=most)

    def in_time(count: int) -> float:
        result = Fleet([one] * count, router="least-tokens").run(requests)
        with np.errstate(invalid="ignore"):
            good = np.isfinite(result.finish) & (result.ttft <= wanted.ttft_s) & (np.nan_to_num(result.tpot) <= wanted.tpot_s)
        return float(good.mean())

    found, tried = least(in_time, wanted.share)
    minimum = min(service.scale.min, found)
    scaled = service.model_copy(update={"scale": Scale(**{**service.scale.model_dump(), "min": minimum, "max": max(found, minimum)})})
    return Sized(found, tried, scaled)


def least(share: Callable[[int], float], goal: float) -> tuple[int, dict[int, float]]:
    """Returns the least count from 1 to 256 with share(count) ≥ goal, and all counts tried; the share must not fall with the count."""
    tried: dict[int, float] = {}

    def reached(count: int) -> bool:
        tried[count] = share(count)
        return tried[count] >= goal

    low, high = 0, 1
    while not reached(high):
        low, high = high, high * 2
        if high > MOST_REPLICAS:
            raise InputError(
                f"{low} replicas answer {tried[low]:.1%} in time; expected {goal:.1%}: a single request is too slow for this goal"
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high, dict(sorted(tried.items()))
