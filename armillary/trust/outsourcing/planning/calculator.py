"""Outsource or not: what a query takes here and there, and after how many queries the setup is earned back.

A query that is outsourced takes round trip + 32n/bandwidth + server + check. Here it takes the plain sum, or the one with stored copies of
the bases, which has a setup of its own. The sums' costs per term fall with n, and so do those of the checks, so costs are measured at the
number of terms that is asked for (`measured_costs`); above `MOST_MEASURED` they are scaled from there, and `scaled` says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.trust.outsourcing.delegation.server import ANSWER_BYTES, Server
from armillary.trust.outsourcing.group.bases import MOST_TERMS, Bases, random_scalars
from armillary.trust.outsourcing.group.element import ENCODED_BYTES
from armillary.trust.outsourcing.measuring import in_turns, once
from armillary.trust.outsourcing.summing.msm import FixedBases, msm
from armillary.trust.outsourcing.two_g2t import Client

#: Terms up to which costs are measured rather than scaled.
MOST_MEASURED = 1 << 14


@dataclass(frozen=True)
class Costs:
    """CPU seconds on one core for one number of terms: two ways to sum here, the second with its setup; the server; the checks."""

    local_s: float
    fixed_s: float
    fixed_setup_s: float
    server_s: float
    setup_s: float
    check_s: float
    #: Whether they were measured for fewer terms and scaled.
    scaled: bool = False


@dataclass(frozen=True)
class Network:
    """A round trip without data in seconds, and bytes per second towards the server; `scalars` is false where both sides derive them."""

    round_trip_s: float = 0.001
    bytes_per_s: float = 125e6
    scalars: bool = True

    def __post_init__(self) -> None:
        if not (self.round_trip_s >= 0 and self.bytes_per_s > 0 and math.isfinite(self.round_trip_s)):
            found = f"found a round trip of {self.round_trip_s} s and {self.bytes_per_s} bytes per second"
            raise InputError(f"{found}; expected at least 0 and more than 0")

    def seconds(self, terms: int) -> float:
        """For a query and its answer."""
        return self.round_trip_s + (ENCODED_BYTES * terms * self.scalars + ANSWER_BYTES) / self.bytes_per_s


@dataclass(frozen=True)
class Choice:
    """What one query takes either way, and how many must be asked."""

    #: The faster way to sum here, and the client's own work for a check.
    local_s: float
    check_s: float
    #: The time until the checked sum is there.
    outsourced_s: float
    setup_s: float
    #: Queries after which the client's own work, setup included, is less than doing the sums; infinite if never.
    queries_of_work: float
    #: The same for the time until the sum is there.
    queries_of_time: float

    @property
    def saves_work(self) -> bool:
        """Whether it saves the client work after some number of queries."""
        return math.isfinite(self.queries_of_work)

    @property
    def saves_time(self) -> bool:
        """Whether it saves time after some number of queries."""
        return math.isfinite(self.queries_of_time)


def measured_costs(terms: int) -> Costs:
    """What this machine takes for uniformly random scalars."""
    if not 1 <= terms <= MOST_TERMS:
        raise InputError(f"found {terms:,} terms; expected 1 to {MOST_TERMS:,}")
    n = min(terms, MOST_MEASURED)
    bases = Bases.from_label("armillary", n)
    x = random_scalars(np.random.default_rng(0), n)
    fixed, fixed_setup = once(lambda: FixedBases(bases))
    (client, public), setup = once(lambda: Client.setup(bases))
    server = Server(bases, public)
    answer = server.answer(x)
    works = {"local": lambda: msm(bases, x), "fixed": lambda: fixed.msm(x), "server": lambda: server.answer(x)}
    took = in_turns({**works, "check": lambda: client.verify(x, answer), "inner": lambda: client.inner(x)})
    by = terms / n
    # Of a check only the inner product grows with the terms.
    check = took["check"] + took["inner"] * (by - 1)
    return Costs(by * took["local"], by * took["fixed"], by * fixed_setup, by * took["server"], by * setup, check, terms > n)


def choose(terms: int, costs: Costs, network: Network | None = None, *, server_cores: float = 1.0) -> Choice:
    """Whether to outsource sums of `terms` terms to a server with so many cores of the same speed."""
    if terms < 1 or not server_cores > 0:
        raise InputError(f"found {terms} terms and {server_cores} cores; expected at least one term and more than no core")
    there = 0.0 if network is None else network.seconds(terms)
    outsourced = there + costs.server_s / server_cores + costs.check_s
    work, time = (earned_back(costs, spent) for spent in (costs.check_s, outsourced))
    return Choice(min(costs.local_s, costs.fixed_s), costs.check_s, outsourced, costs.setup_s, work, time)


def earned_back(costs: Costs, spent_s: float) -> float:
    """Queries from which on setup and `spent_s` per query are less than both ways of summing here; infinite if never."""
    plain = queries(costs.setup_s, costs.local_s - spent_s)
    return max(plain, queries(costs.setup_s - costs.fixed_setup_s, costs.fixed_s - spent_s))


def queries(setup_s: float, saved_s: float) -> float:
    """The least number of queries whose savings exceed a setup."""
    if saved_s <= 0:
        return math.inf
    return max(1.0, math.floor(setup_s / saved_s) + 1.0)
