"""The work: a network of clocks, what their oscillators and links do, and for how long it is watched."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from armillary.errors import InputError, unknown

from .bounds.budget import checked_kappa, error_budget, weighted_diameter
from .graph.network import ClockNetwork, Floats
from .simulation.oscillators import Oscillators

RATES = ("halves", "slope", "end", "random")
DELAYS = ("random", "bias", "reveal")
#: The settings of gradient clock synchronisation by which adversaries take their time, whatever technique is running.
MU, C = 1e-4, 2.5
MOST_STEPS = 5_000_000


@dataclass(frozen=True)
class ClockWork:
    """Clocks in a network, for `settle_s` seconds unseen and then for `judged_s` seconds."""

    network: ClockNetwork
    oscillators: Oscillators = field(default_factory=Oscillators)
    #: Seconds between two measurements of a link, the granularity of stamps, and the time from a request's arrival to its answer.
    period: float = 1e-4
    grain: float = 1e-9
    turnaround: float = 1e-6
    #: The share of its delay that a link does not tell beforehand: the least delay is (1 − uncertainty)·delay.
    uncertainty: float = 1.0
    #: The factor by which asymmetry, jitter, grain and uncertainty are declared larger than they are.
    declared: float = 1.0
    #: How frequencies and delays are chosen: "halves", "slope", "end" or "random"; "random", "bias" or "reveal".
    rates: str = "halves"
    delays: str = "bias"
    #: Clocks start within this many seconds of each other.
    initial_s: float = 1e-6
    settle_s: float = 1.0
    judged_s: float = 2.0
    #: Whether one clock runs at three times the band, which nobody knows.
    runaway: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rates not in RATES:
            raise unknown("adversary of rates", self.rates, RATES)
        if self.delays not in DELAYS:
            raise unknown("adversary of delays", self.delays, DELAYS)
        if not self.period > 0:
            raise InputError(f"found {self.period:g}; expected a period of more than 0 seconds", where="period")
        if not 0 <= self.uncertainty <= 1:
            raise InputError(f"found {self.uncertainty:g}; expected a share from 0 to 1", where="uncertainty")
        if not self.judged_s >= self.period or self.settle_s < 0:
            raise InputError("found less than one period to look at; expected settle_s of at least 0 and judged_s of at least a period")
        if (self.settle_s + self.judged_s) / self.period > MOST_STEPS:
            raise InputError(
                f"found {(self.settle_s + self.judged_s) / self.period:,.0f} periods; expected at most {MOST_STEPS:,}", where="seconds"
            )
        if self.oscillators.offsets and len(self.oscillators.offsets) != self.network.nodes:
            raise InputError(f"found {len(self.oscillators.offsets)} frequencies for {self.network.nodes} clocks")

    @property
    def rho(self) -> float:
        """The width of the frequency band that is declared."""
        return self.oscillators.rho

    @property
    def steps(self) -> tuple[int, int]:
        """Measuring periods before and while the skew is judged."""
        return round(self.settle_s / self.period), max(1, round(self.judged_s / self.period))


def reference_kappa(network: ClockNetwork, rho: float, period: float, grain: float, turnaround: float) -> Floats:
    """κ of two-way measurement with the usual settings: the unit of `weighted_skew` and of the adversaries' patience."""
    budget = error_budget(network, rho=rho, mu=MU, period=period, grain=grain, turnaround=turnaround)
    return checked_kappa(budget.total, C)


def turn_s(work: ClockWork) -> float:
    """Seconds in which a difference of ρ in frequency becomes the weighted diameter: the beat of `halves`."""
    kappa = reference_kappa(work.network, work.rho, work.period, work.grain, work.turnaround)
    return weighted_diameter(work.network, kappa)[0] / work.rho


def settled(work: ClockWork, most_s: float = 60.0) -> ClockWork:
    """The same work with as many seconds unseen as its adversary needs to do its worst, at most `most_s`."""
    turn = turn_s(work)
    if work.rates == "halves":
        needed = 2 * turn
    elif work.rates == "random":
        needed = 1.0
    else:
        needed = 3 * turn
    return replace(work, settle_s=float(min(most_s, max(0.5, needed))))
