"""The work of this arena: a model, nodes with other load, links that fade, and requests at a share of the slowest tier's capacity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.cluster import Cluster
from armillary.errors import InputError
from armillary.llm.cost.device import chip
from armillary.llm.model.shapes import Model
from armillary.llm.serving.requests import Requests
from armillary.llm.serving.synthetic import lengths
from armillary.workloads import poisson

from .gpipe import GPipe
from .nodes.hierarchy import Hierarchy, Tier
from .nodes.rate import Rate, background, two_states
from .nodes.stage_cost import BlockCosts, Mix

#: A link's second state, the mean seconds in each, the largest share of a device that others take, and the seconds between its changes.
FADED, FADE_S, MOST_OTHERS, OTHERS_S = 0.4, 30.0, 0.5, 60.0
#: The mean number of passes per iteration that is assumed when the load of batching nodes is chosen.
BATCH = 16
LONG = (64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class TierWork:
    """A model on tiers and the requests to it; `mix` is their mean, which an operator knows."""

    costs: BlockCosts
    requests: Requests
    mix: Mix
    batching: bool


def mean_mix(requests: Requests) -> Mix:
    """Returns the mean request."""
    return Mix(float(requests.prompt.mean()), float(requests.output.mean()))


def fading(hierarchy: Hierarchy, period_s: float, rng: np.random.Generator) -> Hierarchy:
    """Returns the same tiers with links that fade and nodes that others use too."""
    links = []
    for tier in hierarchy.tiers[:-1]:
        assert tier.uplink is not None
        links.append(two_states(tier.uplink.mean, FADED * tier.uplink.mean, FADE_S, period_s, rng))
    left = [[background(MOST_OTHERS, OTHERS_S, period_s, rng) for _ in tier.chips] for tier in hierarchy.tiers]
    return hierarchy.with_links(links).with_load(left)


def equal_tiers(name: str = "l40s", nodes: int = 3, rate: float = 1.25e9, latency_s: float = 0.005) -> Hierarchy:
    """Returns three tiers of the same nodes and links with nothing else on them, as a control."""
    idle = tuple(Rate.constant(1.0) for _ in range(nodes))
    return Hierarchy(tuple(Tier(t, (chip(name),) * nodes, idle, Rate.constant(rate), latency_s) for t in ("low", "middle", "high")))


def capacity(costs: BlockCosts, mix: Mix, batching: bool) -> float:
    """Requests per second that the slowest tier can take when every tier has the same number of blocks."""
    plan = GPipe().cut(costs, mix)
    found = []
    for j, (tier, (lo, hi)) in enumerate(zip(costs.hierarchy.tiers, plan.segments, strict=True)):
        total = 0.0
        for k in range(len(tier)):
            at_once = BATCH if batching else 1
            prompt = costs.pass_seconds(j, k, lo, hi, round(mix.prompt), 1, mix.prompt * (mix.prompt + 1) / 2, 0.0)
            context = at_once * (mix.prompt + mix.output / 2)
            token = costs.pass_seconds(j, k, lo, hi, at_once, at_once, 0.0, context) / at_once
            total += tier.left[k].mean / (prompt + (mix.output - 1) * token)
        found.append(total)
    return min(found)


def draw_lengths(like: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draws (prompt, output) tokens: "even" 128 and 128, "long" answers of 64 to 1,024, "summary" 512 and 32, or those of ShareGPT or of
    the Azure conversations ("conversation").
    """
    if like == "even":
        return np.full(n, 128), np.full(n, 128)
    if like == "long":
        return np.full(n, 128), rng.choice(LONG, n)
    if like == "summary":
        return np.full(n, 512), np.full(n, 32)
    prompt, output = lengths("azure-conv" if like == "conversation" else "sharegpt", n, rng)
    return np.minimum(prompt, 1024), np.minimum(output, 512)


def built_in(
    model: str, tiers: str, rho: float, like: str, seconds: float, batching: bool, rng: np.random.Generator, cluster: Cluster | None = None
) -> TierWork:
    """Draws requests for `seconds` of simulated time at `rho` of the slowest tier's capacity with equal numbers of blocks."""
    from armillary.cluster import find

    if tiers == "equal":
        hierarchy = equal_tiers()
    else:
        hierarchy = Hierarchy.of_cluster(cluster if cluster is not None else find("tiers-3"))
        if tiers == "mixed":
            hierarchy = fading(hierarchy, max(600.0, seconds), rng)
    costs = BlockCosts(Model.find(model), hierarchy)
    prompt, output = draw_lengths(like, 4096, rng)
    rate = rho * capacity(costs, Mix(float(prompt.mean()), float(output.mean())), batching)
    n = max(4, round(rate * seconds))
    prompt, output = draw_lengths(like, n, rng)
    requests = Requests.of(poisson(rng, n, rate), prompt, output)
    return TierWork(costs, requests, mean_mix(requests), batching)


def of_requests(requests: Requests, model: str, hierarchy: Hierarchy, rho: float, batching: bool) -> TierWork:
    """Returns a user's requests; `rho` above 0 stretches their arrivals to that share of the slowest tier's capacity."""
    if len(requests) == 0:
        raise InputError("found no requests")
    costs, mix = BlockCosts(Model.find(model), hierarchy), mean_mix(requests)
    if rho > 0 and len(requests) > 1:
        span = float(requests.arrival_s[-1] - requests.arrival_s[0])
        wanted = (len(requests) - 1) / (rho * capacity(costs, mix, batching))
        start = requests.arrival_s - requests.arrival_s[0]
        requests = Requests.of(
            start * (wanted / span) if span > 0 else np.linspace(0, wanted, len(requests)), requests.prompt, requests.output
        )
    return TierWork(costs, requests, mix, batching)
