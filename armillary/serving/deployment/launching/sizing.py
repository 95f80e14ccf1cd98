"""How many replicas does this service need for these requests? Asked of the serving simulator, not guessed.

The least number of replicas is looked for with which the share of requests that are answered in time, first token and each further one,
reaches the goal: doubled until it does, then halved in between. Times are simulated from modelled iterations (`armillary.llm`).
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
    """What counts as in time: seconds to the first token, seconds per further token, and the share of requests that must be."""

    ttft_s: float = 1.0
    tpot_s: float = 0.1
    share: float = 0.99

    def check(self) -> None:
        """Raises InputError for a goal that is none."""
        if not (self.ttft_s > 0 and self.tpot_s > 0 and 0 < self.share <= 1):
            raise InputError(f"goal: found {self.ttft_s}, {self.tpot_s} s and {self.share}; expected positive seconds and a share up to 1")


@dataclass(frozen=True)
class Sized:
    """The least number of replicas that reaches the goal, the share in time with every number that was tried, and the service so scaled."""

    replicas: int
    tried: dict[int, float]
    service: Service


def size(
    service: Service, requests: Requests, model: Model | str, device: str, goal: Goal | None = None, *, replica: Replica | None = None
) -> Sized:
    """The service with `scale` for these requests on `device`; `model` gives the shape, which a description only names."""
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
    """The least count from 1 to 256 with share(count) ≥ goal, for a share that does not fall with the count; all that were tried."""
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
