"""One piece of work: a problem, the requests that are played through every plan, and how long the exact solver may take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .problem.problem import Problem
from .simulation.delivery import REQUESTS, Requests, draw_requests


@dataclass(frozen=True, eq=False)
class ProvisioningWork:
    """A problem with its requests; `limit_s` bounds HiGHS."""

    problem: Problem
    requests: Requests
    limit_s: float


def work_of(problem: Problem, rng: np.random.Generator, *, limit_s: float = 5.0, requests: int = REQUESTS) -> ProvisioningWork:
    """The work of a problem, with requests drawn from `rng`."""
    return ProvisioningWork(problem, draw_requests(problem, rng, requests), limit_s)
