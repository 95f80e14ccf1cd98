"""The work of a network: a catalogue of contents and a stream of requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.workloads import draw, poisson, zipf_shares

from .pricing.prices import Prices
from .simulation.topology import Topology

KIB, MIB = 2**10, 2**20
#: Size classes of built-in contents: share of requests, median bytes, spread of the logarithm.
SIZES = ((0.60, 32 * KIB, 1.0), (0.30, 2 * MIB, 0.0), (0.10, 64 * MIB, 0.0))
#: Shares of gold, silver and bronze contents.
CLASSES = (0.10, 0.30, 0.60)


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Contents 0…m−1 with their bytes (int64), class of service (int8) and origin (int32, an index of the topology's origins)."""

    size: np.ndarray
    service: np.ndarray
    origin: np.ndarray
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.size)


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests in order of time: seconds (float64), receiver (int32, a node) and content (int32). The first `warm` are not billed."""

    time: np.ndarray
    receiver: np.ndarray
    content: np.ndarray
    warm: int = 0

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True, eq=False)
class Network:
    """A piece of work: a topology, its catalogue and requests, prices, and each node's cache in bytes by tier (int64[n, tiers])."""

    topology: Topology
    catalogue: Catalogue
    requests: Requests
    prices: Prices
    capacity: np.ndarray

    def __post_init__(self) -> None:
        r, c, t = self.requests, self.catalogue, self.topology
        shape, early = (len(t), len(self.prices.tiers)), np.diff(r.time) < 0
        if self.capacity.shape != shape or (self.capacity < 0).any():
            raise InputError(f"capacity: found the shape {self.capacity.shape}; expected {shape} and none below 0")
        if early.any():
            raise InputError(f"request {int(early.argmax()) + 2}: found a time before the one above; expected times in order")
        for what, values, count in (
            ("requests: found the content", r.content, len(c)), ("requests: found the receiver", r.receiver, len(t)),
            ("catalogue: found the origin", c.origin, len(t.origins)), ("catalogue: found the class", c.service, len(self.prices.classes)),
        ):  # fmt: skip
            outside = (values < 0) | (values >= count)
            if outside.any():
                raise InputError(f"{what} {int(values[outside.argmax()])}; expected 0 to {count - 1}")
        if len(c) and c.size.min() < 1:
            raise InputError(f"catalogue: found a content of {int(c.size.min())} bytes; expected 1 or more")


def shared_out(topology: Topology, catalogue: Catalogue, prices: Prices, share: float) -> np.ndarray:
    """int64[n, tiers]: bytes of each node's caches, which are equal and together hold `share` of the catalogue's bytes."""
    each = share * float(catalogue.size.sum()) / len(topology)
    return np.tile([int(each * tier.share) for tier in prices.tiers], (len(topology), 1)).astype(np.int64)


def generate(
    topology: Topology, prices: Prices, rng: np.random.Generator, *, contents: int, requests: int, warm: int, alpha: float, share: float,
    rate: float = 2.0,
) -> Network:  # fmt: skip
    """Independent Zipf requests that arrive at `rate` per second at every receiver (Poisson), for contents of three sizes and classes."""
    kind = rng.choice(len(SIZES), contents, p=[row[0] for row in SIZES])
    size = np.empty(contents, np.int64)
    for k, (_, median, spread) in enumerate(SIZES):
        of = kind == k
        size[of] = np.maximum(512, np.exp(np.log(median) + spread * rng.normal(size=int(of.sum()))))
    catalogue = Catalogue(
        size,
        rng.choice(len(prices.classes), contents, p=_shares(len(prices.classes))).astype(np.int8),
        rng.integers(0, len(topology.origins), contents).astype(np.int32),
    )
    drawn = draw(rng, np.cumsum(zipf_shares(contents, alpha)), requests, side="left")
    asked = Requests(
        poisson(rng, requests, rate * len(topology.receivers)),
        rng.choice(topology.receivers, requests).astype(np.int32),
        drawn.astype(np.int32),
        warm,
    )
    return Network(topology, catalogue, asked, prices, shared_out(topology, catalogue, prices, share))


def _shares(count: int) -> Any:
    first = np.array(CLASSES[:count] + (CLASSES[-1],) * (count - len(CLASSES)))
    return first / first.sum()
