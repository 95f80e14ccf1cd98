"""A schedule's kind with the best that goes with it: balanced stages, one option of recomputation for all layers, a number of chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ..simulation.schedule import Schedule
from .layers import Division, LayeredWork, StagePlan, fastest
from .partition import balanced_cuts
from .promise import promised


def plain_plan(
    work: LayeredWork, order: str, make: Callable[[int], Schedule], chunks: Iterable[int] = (1,), *, promise: str | None = None,
    what: str = "", copies: int = 1,
) -> StagePlan:  # fmt: skip
    """The fastest plan with `make(chunks)`: stages of least longest time, and the same option for all layers.

    Every option and number of chunks is simulated, and the fastest that fits memory is taken.
    """
    allowed = [v for v in chunks if v <= work.depth]
    return fastest(work, list(_candidates(work, order, make, allowed, promise or order, copies)), what or order)[0]


def _candidates(
    work: LayeredWork, order: str, make: Callable[[int], Schedule], chunks: Iterable[int], promise: str, copies: int
) -> Iterator[StagePlan]:
    for v in chunks:
        schedule = make(v)
        for option in range(len(work.layers.options)):
            extra = work.layers.extra[:, option]
            division = Division.uniform(work.layers, balanced_cuts(work.layers, work.ranks * v, extra), option)
            predicted = promised(division, promise, work.ranks, work.micros, v) + work.exposed(division)
            yield StagePlan(division, schedule, predicted, order, v, copies)
