"""Sequence parallelism without a pipeline: devices share the tokens of long sequences, and exchange heads for attention.

Every group of `degree` devices works on one pack at a time, split by tokens; before attention an all-to-all turns that into a split by
heads, and after it back. Groups are data-parallel, with weights sharded over all devices and gathered layer by layer. There is no bubble,
but every layer pays for its exchange.

DeepSpeed Ulysses: System Optimizations for Enabling Training of Extreme Long Sequence Transformer Models, 2023.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from armillary.arena import NotForThisCase, Technique

from .chunks.packed import pack_sizes, packs_of
from .chunks.work import Chunk, ChunkPlan, SequenceWork
from .simulation.schedule import Schedule
from .simulation.simulator import Costs, Simulated, simulate


@dataclass(frozen=True)
class SequenceParallel(Technique):
    """Ulysses over packs with sharded weights, at the best degree. DeepSpeed Ulysses, 2023."""

    takes = frozenset({"sequences"})

    def plan(self, work: SequenceWork) -> ChunkPlan:
        """The fastest degree, size of packs and choice between no and full recomputation that fit."""
        if work.parallel is None:
            raise NotForThisCase("sequence parallelism needs a model, and the costs are a polynomial")
        best: tuple[float, ChunkPlan] | None = None
        for degree in work.parallel.degrees():
            for tokens in pack_sizes(work):
                packs = packs_of(work, tokens)
                for full in (False, True):
                    plan = self._with(work, packs, degree, full)
                    found = work.simulate(plan, actual=False)
                    if work.fits(found) and (best is None or found.makespan < best[0]):
                        best = found.makespan, plan
                    if work.fits(found):
                        break
        if best is None:
            raise NotForThisCase("sequence parallelism does not fit at any degree")
        return best[1]

    def _with(self, work: SequenceWork, packs: tuple[Chunk, ...], degree: int, full: bool) -> ChunkPlan:
        """Packs go to groups of devices, the longest first to the group that is free first."""
        forward, backward, none, kept, moved = work.parallel.costs(packs, degree)
        again = forward if full else 0.0 * forward
        groups = max(1, work.parallel.devices // degree)
        load = np.zeros(groups)
        mine: list[list[int]] = [[] for _ in range(groups)]
        for k in np.lexsort((np.arange(len(packs)), -(forward + backward))):
            at = int(load.argmin())
            load[at] += forward[k] + backward[k] + again[k]
            mine[at].append(int(k))
        used = [each for each in mine if each]
        # Every group is a chain of one stage of its own, and a pack runs forward and at once backward.
        micro = np.array([k for each in used for k in each for _ in range(2)])
        stage = np.repeat(np.arange(len(used)), [2 * len(each) for each in used])
        schedule = Schedule.of_arrays(
            np.concatenate([[0], np.cumsum([2 * len(each) for each in used])]), stage, np.tile([0, 3], len(packs)), micro,
            following=np.full(len(used), -1),
        )  # fmt: skip

        def run(actual: bool) -> Simulated:
            slow = float(work.slowdown.mean()) if actual and work.slowdown is not None else 1.0
            found = simulate(
                schedule,
                Costs(
                    slow * forward[None, :], slow * backward[None, :], 0.0 * forward[None, :], slow * again[None, :],
                    kept=(kept if full else none)[None, :], workspace=((none - kept) / work.costs.layers * full)[None, :],
                    static=work.parallel.static(), overhead=work.overhead,
                ),
            )  # fmt: skip
            return replace(found, sent_bytes=float(moved.sum()) * (1.5 if full else 1.0), transfers=0)

        blank = np.zeros((len(packs), 1), np.int64)
        predicted = float((forward + backward + again).sum() / groups)
        return ChunkPlan(packs, schedule, np.array([0, work.costs.layers]), blank, "full" if full else "none", predicted, "ulysses", run)
