"""Models, requests and bounds of the built-in cases; requests from files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown
from armillary.workloads import poisson

from .collectives.wires import Wires
from .planning.phase_cost import find_model
from .planning.placement import Fleet, Slo
from .simulation.bursts import CALM, Bursts
from .simulation.serving_run import Floats, Ints

#: Seconds to the first token and a token after it that the papers ask for: those of DistServe (OSDI 2024, table 1) for OPT; the same
#: for Llama-2-70B as for OPT-66B, which is of its size.
BOUNDS = {
    ("opt-66b", "chat"): (2.5, 0.15), ("opt-175b", "chat"): (4.0, 0.2), ("opt-66b", "summary"): (15.0, 0.15),
    ("llama-2-70b", "chat"): (2.5, 0.15), ("llama-2-70b", "summary"): (15.0, 0.15), ("opt-175b", "summary"): (15.0, 0.2),
}  # fmt: skip
LIKE = ("chat", "summary")
MOST_REQUESTS = 2_000_000
#: Latencies are compared at this share of the rate that the planner expects of hierarchical all-reduces.
OWN_SHARE = 0.5


@dataclass(frozen=True)
class ServingWork:
    """What is served on which wires: a model, requests at a rate of one per second, bounds, bursts, and a placement where one is given."""

    wires: Wires
    model: str
    #: Arrivals in seconds, one per second on average; prompt and output tokens.
    arrival: Floats
    prompt: Ints
    output: Ints
    slo: Slo
    bursts: Bursts = CALM
    #: A given placement; with None the technique plans one.
    placed: tuple[Fleet, Fleet] | None = None
    seed: int = 0
    #: Requests per second at which latencies are compared.
    rate: float = 1.0
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if not len(self.arrival):
            raise InputError("requests: found none; expected at least one")
        if not 0 < self.rate < np.inf:
            raise InputError(f"rate: found {self.rate}; expected requests per second above 0")

    @property
    def mean_prompt(self) -> float:
        """The mean number of tokens."""
        return float(self.prompt.mean())

    @property
    def mean_output(self) -> float:
        """The mean number of tokens."""
        return float(self.output.mean())

    def at(self, rate: float, most: int | None = None) -> tuple[Floats, Ints, Ints]:
        """Returns (arrival, prompt, output) at `rate` requests per second, of which the first `most` are taken."""
        return self.arrival[:most] / rate, self.prompt[:most], self.output[:most]


def lengths(like: str, count: int, rng: np.random.Generator, longest: int = 2048) -> tuple[Ints, Ints]:
    """Draws (prompt, output) tokens like ShareGPT's chats, or like DistServe's LongBench summaries (1,738 in, 91 out on average).

    Prompts of summaries are cut so that prompt and output fit into `longest`, as those systems do.
    """
    from armillary.llm.serving.synthetic import lengths as known
    from armillary.llm.serving.synthetic import tokens

    if like == "chat":
        prompt, output = known("sharegpt", count, rng)
    elif like == "summary":
        prompt, output = tokens(rng, count, 1700, 0.35, 64, 1 << 20), tokens(rng, count, 80, 0.5, 8, 256)
    else:
        raise unknown("kind of request", like, LIKE)
    output = np.minimum(output, longest // 2)
    return np.minimum(prompt, longest - output), output


def synthetic(
    wires: Wires, model: str, like: str, count: int, rng: np.random.Generator, *, bursts: Bursts = CALM,
    placed: tuple[Fleet, Fleet] | None = None, rate: float | None = None, slo: Slo | None = None,
) -> ServingWork:  # fmt: skip
    """Draws `count` Poisson arrivals of chats or summaries for a model."""
    from .collectives.path import Path
    from .planning.planner import expected_rate

    if not 1 <= count <= MOST_REQUESTS:
        raise InputError(f"count: found {count}; expected 1 to {MOST_REQUESTS} requests")
    longest = int(find_model(model).max_length or 2048)
    prompt, output = lengths(like, count, rng, min(longest, 2048))
    arrival = poisson(rng, count, rate=1.0)
    bounds = slo or Slo(*BOUNDS.get((model, like), (2.5, 0.15)))
    work = ServingWork(wires, model, arrival, prompt, output, bounds, bursts, placed, int(rng.integers(1 << 31)))
    return replace(work, rate=rate if rate is not None else OWN_SHARE * expected_rate(work, Path()))


def from_requests(
    requests: Any, wires: Wires, model: str, slo: Slo, *, bursts: Bursts = CALM, placed: tuple[Fleet, Fleet] | None = None, seed: int = 0,
) -> ServingWork:  # fmt: skip
    """Makes work of a trace: latencies are compared at its own rate, and it is stretched in time to find the highest one."""
    arrival = np.asarray(requests.arrival_s, float)
    order = np.argsort(arrival, kind="stable")
    span = float(arrival.max() - arrival.min()) if len(arrival) else 0.0
    if len(arrival) < 2 or span <= 0:
        raise InputError(f"requests: found {len(arrival)} over {span:g} s; expected two or more at different times")
    rate = len(arrival) / span
    arrival = (arrival[order] - arrival.min()) * rate
    prompt, output = requests.prompt[order].astype(np.int64), requests.output[order].astype(np.int64)
    return ServingWork(wires, model, arrival, prompt, output, slo, bursts, placed, seed, rate)
