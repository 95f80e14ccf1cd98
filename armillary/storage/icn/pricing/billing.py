"""What a run used, in bytes, seconds and messages, and the bill for it at any prices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..workload import Network
from .prices import GB, GIB, YEAR, Prices

#: Columns of the counts.
REQUESTS, HITS, DELIVERED, HIT_BYTES, ORIGIN_BYTES, HOP_BYTES, OWN_DOLLARS, INTERNAL_BYTES, TRANSIT_BYTES, WRITES, COPIES, CACHED = range(
    12
)


@dataclass(frozen=True, eq=False)
class Usage:
    """Counts over the billed requests.

    `held` are byte-seconds, and `written` and `read` are bytes, by tier. `late` is the number of answers after their deadline, by class.
    `latency` holds the seconds of each request (float32).
    """

    held: np.ndarray
    written: np.ndarray
    read: np.ndarray
    late: np.ndarray
    counts: np.ndarray
    latency: np.ndarray

    def count(self, which: int) -> float:
        """One of the counts, by its column."""
        return float(self.counts[which])


@dataclass(frozen=True)
class Bill:
    """Dollars for the billed requests, in four parts."""

    depreciation: float
    bandwidth: float
    energy: float
    service: float

    @property
    def total(self) -> float:
        """The whole bill."""
        return self.depreciation + self.bandwidth + self.energy + self.service


def bill(used: Usage, prices: Prices) -> Bill:
    """The bill for what was used, at these prices. Links that carry a price of their own keep it."""
    tiers = prices.tiers
    depreciation = sum(
        tier.price / GIB * (used.held[i] / (tier.lifetime * YEAR) + used.written[i] / tier.endurance) for i, tier in enumerate(tiers)
    )
    bandwidth = used.count(OWN_DOLLARS) + (used.count(INTERNAL_BYTES) * prices.internal + used.count(TRANSIT_BYTES) * prices.transit) / GB
    joules = used.count(HOP_BYTES) * prices.hop_energy
    for i, tier in enumerate(tiers):
        joules += used.held[i] * tier.idle / GIB + used.written[i] * tier.write_energy + used.read[i] * tier.read_energy
    service = sum(float(used.late[i]) * of.penalty for i, of in enumerate(prices.classes))
    return Bill(float(depreciation), float(bandwidth), float(joules * prices.joule), float(service))


@dataclass(frozen=True, eq=False)
class Report:
    """What a strategy used on a network, and the bill for it."""

    network: Network
    usage: Usage
    bill: Bill

    @property
    def cost_per_GB(self) -> float:
        """Dollars per GB delivered."""
        return self.bill.total / max(self.usage.count(DELIVERED) / GB, 1e-300)

    @property
    def hit_ratio(self) -> float:
        """Share of requests that a cache served."""
        return self.usage.count(HITS) / max(1.0, self.usage.count(REQUESTS))

    @property
    def byte_hit_ratio(self) -> float:
        """Share of bytes that caches served."""
        return self.usage.count(HIT_BYTES) / max(1.0, self.usage.count(DELIVERED))

    @property
    def replicas(self) -> float:
        """Mean number of copies of a content that is cached at all."""
        return self.usage.count(COPIES) / max(1.0, self.usage.count(CACHED))
