"""The ladder measured from outside: what the rounds of each rung say, on ranks that are started for it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from armillary import comm

from .ladder import Access

#: Exchanges in a time step.
EXCHANGES = 6
NOISY = 0.3
PROGRAM = "armillary.network.halo.views.program:measure"
_PATIENCE_S = 600.0


@dataclass(frozen=True)
class Rounds:
    """The seconds of a step by round, on the slowest rank: Python's own, all of them, and those of the first rung in the same rounds."""

    own: tuple[float, ...]
    step: tuple[float, ...]
    reference: tuple[float, ...]
    #: Conversions of arrays per step.
    conversions: float
    #: Why a GPU could not capture the step, or "".
    fault: str = ""

    @property
    def host_overhead(self) -> float:
        """The median seconds of Python per exchange."""
        return statistics.median(self.own) / EXCHANGES

    @property
    def step_s(self) -> float:
        """The median seconds of a step."""
        return statistics.median(self.step)

    @property
    def noisy(self) -> bool:
        """Whether the ratio to the first rung differs too much between rounds."""
        ratios = [a / b for a, b in zip(self.own, self.reference)]
        low, _, high = statistics.quantiles(ratios, n=4)
        return (high - low) / statistics.median(ratios) > NOISY


def climb(
    work: Mapping[str, Any], rungs: Sequence[Access], *, ranks: int, rounds: int, library: str = "", jobs: int = 1
) -> dict[Access, Rounds]:
    """Measure rungs of the ladder in one set of ranks, in turns; each is first held against one rank, bit for bit.

    `work` is what `program.measure` takes. With `device` "cuda" the ranks have a GPU each and talk through NCCL, otherwise through MPI.
    The rounds of several jobs, each with new processes, are put together.
    """
    given = [asdict(one) for one in rungs]
    on: dict[str, Any] = {"backend": "nccl"} if work["device"] == "cuda" else {"backend": "mpi", "library": library}
    found = [comm.run(PROGRAM, dict(work), given, rounds, ranks=ranks, timeout=_PATIENCE_S, **on).values[0] for _ in range(jobs)]
    first = _seconds([rows[0] for rows in found], "own")
    return {
        one: Rounds(_seconds(rows, "own"), _seconds(rows, "step"), first, rows[0]["conversions"], _fault(rows))
        for one, *rows in zip(rungs, *found)
    }  # fmt: skip


def _seconds(rows: Sequence[Mapping[str, Any]], what: str) -> tuple[float, ...]:
    """The seconds of one rung by round, job after job."""
    return tuple(seconds for row in rows for seconds in row[what])


def _fault(rows: Sequence[Mapping[str, Any]]) -> str:
    return next((row["fault"] for row in rows if row["fault"]), "")
