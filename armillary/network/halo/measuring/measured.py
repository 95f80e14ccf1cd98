"""Measurements: which strategies there are, and what their rounds say."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from armillary import comm

#: A measurement is noisy if its rounds spread by more than this share of the median.
NOISY = 0.3
#: The seconds after which a job is assumed to hang.
_PATIENCE_S = 600.0
PROGRAM = "armillary.network.halo.measuring.program:measure"


@dataclass(frozen=True, order=True)
class Strategy:
    """One way to exchange: method, call, and how each is done."""

    method: str
    call: str
    packer: str = "numpy"
    describe: str = "subarray"
    corners: str = "auto"

    def __str__(self) -> str:
        return f"{self.method} {self.call}"

    def given(self) -> dict[str, str]:
        """The strategy as the ranks take it."""
        return {name: getattr(self, name) for name in ("method", "call", "packer", "describe", "corners")}


FOUR = ("p2p", "p2p-persistent", "neighbourhood", "neighbourhood-persistent")
STRATEGIES = (*(Strategy("packed", call) for call in (*FOUR, "partitioned")), *(Strategy("datatype", call) for call in FOUR))


@dataclass(frozen=True)
class Measured:
    """The seconds of one exchange in each round by a strategy, and by the loop by hand in the same rounds; the slowest rank counts.

    Rounds of several jobs stand one after the other.
    """

    own: tuple[float, ...]
    reference: tuple[float, ...]
    #: The seconds of a step of the code, exchange included.
    step: float
    #: What the library did wrong if the strategy fell back to messages, or "".
    fault: str = ""

    @property
    def ratio(self) -> float:
        """The median of the rounds' own ratios to the loop by hand."""
        return statistics.median(a / b for a, b in zip(self.own, self.reference))

    @property
    def median(self) -> float:
        """The median seconds of an exchange."""
        return statistics.median(self.own)

    @property
    def spread(self) -> float:
        """The distance between the quartiles of the ratios, as a share of their median."""
        low, _, high = statistics.quantiles([a / b for a, b in zip(self.own, self.reference)], n=4)
        return (high - low) / self.ratio

    @property
    def noisy(self) -> bool:
        """Whether the rounds differ too much to hold a claim."""
        return self.spread > NOISY


def measure(
    works: Sequence[Mapping[str, Any]], strategies: Sequence[Strategy], *, library: str, ranks: int, rounds: int, jobs: int = 1
) -> list[dict[Strategy, Measured]]:
    """Measure strategies on works in jobs of an MPI library, and return one table per work. Wrong halos end a job with an error.

    Each job has new processes and all of the rounds, which are put together; processes that are placed badly stay so until they end.
    """
    given = [one.given() for one in strategies]
    found = [
        comm.run(
            PROGRAM, [dict(work) for work in works], given, rounds, ranks=ranks, backend="mpi", library=library, timeout=_PATIENCE_S
        )[0]
        for _ in range(jobs)
    ]  # fmt: skip
    return [{one: _together(cells) for one, *cells in zip(strategies, *tables)} for tables in zip(*found)]


def _together(cells: Sequence[Mapping[str, Any]]) -> Measured:
    """One strategy on one work in all jobs."""
    own, reference = ([seconds for cell in cells for seconds in cell[what]] for what in ("own", "reference"))
    fault = next((cell["fault"] for cell in cells if cell["fault"]), "")
    return Measured(tuple(own), tuple(reference), statistics.median(cell["step"] for cell in cells), fault)
