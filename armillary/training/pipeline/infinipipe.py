"""InfiniPipe: long sequences are cut into slices, short ones are packed, and every piece carries about the same time.

Pipelines over whole sequences need too much memory at long context, and pipelines over slices waste hardware on short sequences. Elastic
pipeline parallelism mixes both in one step. A sequence processor makes chunks of about equal time (`chunks/processor.py`): slices of long
sequences with boundaries at equal time rather than equal tokens, packs of short ones, and hybrids of both. A list schedule runs the
backward pass that is ready, else the next forward pass (or both in turn), with backward passes of slices reversed. How many layers each
chunk recomputes is chosen per chunk and stage, because early stages hold more chunks (`chunks/checkpointing.py`). All of it is built for
several chunk times, simulated, and the fastest is kept.

Published are the kinds of chunks and {C, S}, the cost model for time and memory, balanced splitting and packing, and checkpointing chosen
per chunk and stage together with the schedule. The exact rules are our design.

Data-Centric Elastic Pipeline Parallelism for Efficient Long-Context LLM Training, arXiv 2509.21275 (later: InfiniPipe).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from armillary.arena import Claim, Gain, Kind, NotForThisCase, Technique
from armillary.errors import InputError
from armillary.parameters import parameter

from .chunks.checkpointing import Burden, checkpoints
from .chunks.packed import fastest_chunks, packed_candidates, promise, sliced_candidates
from .chunks.processor import ROUND, process
from .chunks.work import Chunk, ChunkPlan, SequenceWork, TokenCosts, previous_slices
from .orders.listed import Course, list_schedule
from .planning.layers import even_cuts
from .simulation.schedule import IntArray, Schedule
from .simulation.simulator import FloatArray, Links, Simulated

#: The longest sequence's time is divided by these to get the chunk times that are tried.
DIVISORS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
#: Tokens of a chunk below which kernels no longer fill a device.
SATURATING = 2048
#: Nodes at which the choice of recomputation on one stage stops; more change the step by less than a thousandth on the built-in cases.
NODES = 200


@dataclass(frozen=True)
class InfiniPipe(Technique):
    """Elastic chunks with adaptive checkpointing. InfiniPipe, arXiv 2509.21275; the rules in detail are ours."""

    split: Literal["time", "tokens"] = parameter("time", "slices of equal time, or of equal tokens")
    hybrid: bool = parameter(True, "whether last slices are filled with short sequences")
    checkpoint: Literal["adaptive", "uniform", "full"] = parameter(
        "adaptive", "layers recomputed per chunk and stage, one number of layers for all, or every layer"
    )
    granularity: Literal["mixed", "batch", "token"] = parameter("mixed", "cut and pack, pack only, or cut only")
    fallback: bool = parameter(True, "whether the plans of 1f1b, interleaved-1f1b and seq1f1b are candidates too")

    takes = frozenset({"sequences"})
    claims = (
        Claim(
            "step_time_s", over=("1f1b", "interleaved-1f1b", "zb-h1", "seq1f1b", "sequence-parallel"), by=Gain(ratio=(1.69, None)),
            on=Kind("long"), aggregate="max", honest=(1.5, 2.0), part=1.15,
            why="the paper's rivals are whole systems, ours are their schedules with their best settings",
            says="up to 1.69 times as fast as the best of the others", source="abstract",
        ),
    )  # fmt: skip

    def plan(self, work: SequenceWork) -> ChunkPlan:
        """The fastest of all chunk times and, with `fallback`, of the other schedules' plans."""
        candidates = list(self.elastic(work))
        rivals: list[ChunkPlan] = []
        if self.fallback:
            rivals = [
                *packed_candidates(work, "1f1b"), *packed_candidates(work, "interleaved", (2, 3, 4, 6)),
                *sliced_candidates(work, (2, 4, 8, 16)),
            ]  # fmt: skip
        best = fastest_chunks(work, [*candidates, *rivals], "infinipipe")
        if best.notes.get("source") != "infinipipe":
            return best
        return self._refined(work, best)

    def elastic(self, work: SequenceWork) -> Iterator[ChunkPlan]:
        """Plans for every chunk time that fits memory, and for the best three without hybrids and without packs.

        Each is scheduled twice: once with backward passes as soon as they can run, once with forward and backward passes in turn.
        """
        found: list[tuple[float, float]] = []
        for target in targets(work) if token_cap(work) >= ROUND else ():
            for plan in self._plans(work, target, self.hybrid, self.granularity):
                simulated = work.simulate(plan, actual=False)
                if work.fits(simulated):
                    found.append((simulated.makespan, target))
                yield plan
        if self.granularity == "mixed" and self.hybrid:
            best = list(dict.fromkeys(target for _, target in sorted(found)))[:3]
            for target in best:
                yield from self._plans(work, target, False, "mixed")
                yield from self._plans(work, target, False, "token")

    def _plans(
        self, work: SequenceWork, target: float, hybrid: bool, granularity: Literal["mixed", "batch", "token"]
    ) -> Iterator[ChunkPlan]:
        try:
            chunks = process(
                work.lengths, work.costs.forward, target, token_cap(work), split=self.split, hybrid=hybrid, granularity=granularity
            )
        except InputError:  # A whole sequence does not fit, and none may be cut.
            return
        for in_turn in (False, True):
            found = self._scheduled(work, chunks, in_turn)
            if found is not None:
                yield found

    def _scheduled(
        self, work: SequenceWork, chunks: tuple[Chunk, ...], in_turn: bool, exact: bool = False, schedule: Schedule | None = None
    ) -> ChunkPlan | None:
        cuts = even_cuts(work.costs.layers, work.ranks)
        layers = np.diff(cuts)
        burden = burden_of(work, chunks, work.ranks)
        room = work.capacity - work.overhead - work.static(cuts) - float((burden.none - burden.full).max())
        if schedule is None:
            try:
                schedule = elastic_schedule(work, chunks, layers, burden, room, in_turn=in_turn)
            except InputError:
                return None
        recompute = self._recomputed(work, chunks, schedule, layers, burden, room, exact)
        if recompute is None:
            return None
        plan = ChunkPlan(chunks, schedule, cuts, recompute, order="elastic", notes={"source": "infinipipe", "in_turn": in_turn})
        return replace(plan, predicted=promise(work, plan))

    def _recomputed(
        self, work: SequenceWork, chunks: tuple[Chunk, ...], schedule: Schedule, layers: IntArray, burden: Burden, room: FloatArray,
        exact: bool,
    ) -> IntArray | None:  # fmt: skip
        whole = np.broadcast_to(layers, (len(chunks), len(layers))).copy()
        if self.checkpoint == "full":
            return whole
        forward, backward = work.costs.forward.seconds(chunks), work.costs.forward.backward_seconds(chunks)
        busy = layers.astype(np.float64) * float((forward + backward).sum())
        found = checkpoints(schedule, layers, busy, burden, room, exact=exact, nodes=NODES)
        if self.checkpoint == "adaptive" or found is None:
            return found
        share = float((found / layers).max())
        return np.ceil(share * whole - 1e-9).astype(np.int64)

    def _refined(self, work: SequenceWork, plan: ChunkPlan) -> ChunkPlan:
        """The same chunks, solved exactly, and once more in the order that their recomputation gives; the fastest is kept."""
        if self.checkpoint != "adaptive":
            return plan
        best, seconds = plan, work.simulate(plan, actual=False).makespan
        for again in (False, True):
            in_turn = bool(best.notes["in_turn"])
            better = self._scheduled(work, best.chunks, in_turn, True, self._reordered(work, best) if again else best.schedule)
            if better is not None:
                found = work.simulate(better, actual=False)
                if work.fits(found) and found.makespan < seconds:
                    best, seconds = better, found.makespan
        return best

    def _reordered(self, work: SequenceWork, plan: ChunkPlan) -> Schedule:
        """The list schedule with the seconds that recomputation takes; the plan's own where that comes to a standstill."""
        burden = burden_of(work, plan.chunks, work.ranks)
        room = work.capacity - work.overhead - work.static(plan.cuts) - float((burden.none - burden.full).max())
        try:
            return elastic_schedule(
                work, plan.chunks, np.diff(plan.cuts), burden, room, plan.recompute, in_turn=bool(plan.notes["in_turn"])
            )
        except InputError:
            return plan.schedule


def targets(work: SequenceWork) -> list[float]:
    """Chunk times to try: the longest sequence's time over the divisors, as long as a saturating chunk takes no longer."""
    cost = work.costs.forward
    longest = cost.of(float(work.lengths.max())) - cost.g
    least = cost.of(float(SATURATING)) - cost.g
    found = [longest / d for d in DIVISORS if longest / d >= least]
    return found or [max(longest, least)]


def token_cap(work: SequenceWork) -> int:
    """Tokens of a chunk that fit the fullest stage with everything recomputed, when as many chunks as ranks are in flight."""
    costs, cuts = work.costs, even_cuts(work.costs.layers, work.ranks)
    layers = np.diff(cuts)
    room = work.capacity - work.overhead - work.static(cuts)
    flying = work.ranks - np.arange(work.ranks)
    per_token = layers * flying * (costs.kept["full"] + costs.keys) + (costs.kept["none"] - costs.kept["full"])
    per_token[-1] += costs.tail_kept
    return max(1, int((room / per_token).min()))


def burden_of(work: SequenceWork, chunks: tuple[Chunk, ...], stages: int) -> Burden:
    """What the chunks weigh."""
    costs = work.costs
    tokens = np.array([chunk.tokens for chunk in chunks], float)
    split = np.array([chunk.split_tokens for chunk in chunks], float)
    fixed = np.zeros((stages, len(chunks)))
    fixed[-1] = costs.tail_kept * tokens
    return Burden(tokens * costs.kept["none"], tokens * costs.kept["full"], split * costs.keys, costs.forward.seconds(chunks), fixed)


def elastic_schedule(
    work: SequenceWork, chunks: tuple[Chunk, ...], layers: IntArray, burden: Burden, room: FloatArray, recompute: IntArray | None = None,
    *, in_turn: bool = False,
) -> Schedule:  # fmt: skip
    """The list schedule: the backward pass that is ready, else the next forward pass if fewer than the limit are in flight and it fits.

    With `in_turn` a forward pass that is ready follows each backward pass. That is 1F1B over slices and keeps later stages busier; without
    it less is in flight, so less is recomputed.
    The limit of stage s is (p − s) + (most slices of a sequence − 1). Memory counts chunks as if they were recomputed in full, which the
    choice of recomputation can always fall back to.
    """
    p, count = len(layers), len(chunks)
    previous = previous_slices(chunks)
    backward_order, most = _reversed_slices(previous)
    forward = np.outer(layers, work.costs.forward.seconds(chunks))
    backward = np.outer(layers, work.costs.forward.backward_seconds(chunks))
    if recompute is not None:
        backward = backward + recompute.T * burden.again
    tokens = np.array([chunk.tokens for chunk in chunks], float)
    forward[-1] += work.costs.tail[0] * tokens
    backward[-1] += (work.costs.tail[1] + work.costs.tail[2]) * tokens
    place = np.broadcast_to(np.arange(count, dtype=float), (p, count))
    turn = np.empty(count)
    turn[backward_order] = np.arange(count)
    return list_schedule(
        Course(
            np.arange(p), np.append(np.arange(1, p), -1), (np.arange(count),) * p, (backward_order,) * p, forward, backward,
            place + count, np.broadcast_to(turn, (p, count)).copy(), p - np.arange(p) + most - 1,
            work.links.latency_s + np.broadcast_to(tokens * work.costs.sent, (p, count)) / work.links.rate, previous,
            room=room, kept=np.outer(layers, burden.full) + burden.fixed, keys=np.outer(layers, burden.keys),
            in_turn=in_turn,
        )
    )  # fmt: skip


def _reversed_slices(previous: IntArray) -> tuple[IntArray, int]:
    """(chunks in the order of their backward passes, most slices of a sequence)."""
    groups: list[list[int]] = []
    for k, before in enumerate(previous.tolist()):
        if before >= 0:
            groups[-1].append(k)
        else:
            groups.append([k])
    return np.array([k for group in groups for k in reversed(group)], np.int64), max(len(group) for group in groups)


@dataclass(frozen=True, eq=False)
class Planned:
    """A plan for a batch of sequences: its chunks, its schedule, its recomputation, and what it takes."""

    work: SequenceWork
    plan: ChunkPlan
    simulated: Simulated

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The chunks in the order of their forward passes."""
        return self.plan.chunks

    @property
    def schedule(self) -> Schedule:
        """The schedule, which `to_csv` writes for torch's runtime."""
        return self.plan.schedule

    @property
    def recompute(self) -> IntArray:
        """Recomputed layers of chunk k on stage s, as [k, s]."""
        return self.plan.recompute

    @property
    def predicted(self) -> float:
        """The seconds that the plan promises."""
        return self.plan.predicted

    def to_csv(self, path: Path | str) -> Path:
        """Writes torch's schedule file."""
        return self.plan.schedule.to_csv(path)


def plan(
    lengths: npt.ArrayLike, costs: TokenCosts, p: int, capacity: float, *, links: Links = Links(), overhead: float = 0.0,  # noqa: B008
    longest: int | None = None, **parameters: Any,
) -> Planned:  # fmt: skip
    """Plans a batch of sequences for p ranks with `capacity` bytes each; `parameters` are those of `InfiniPipe`.

    `longest` is the model's limit of tokens. Raises an `InputError` where nothing fits, with the smallest shortage.
    """
    from .workload import MOST_TOKENS, check_lengths

    checked = check_lengths(np.asarray(lengths), MOST_TOKENS if longest is None else longest)
    work = SequenceWork(checked, costs, p, capacity, int(longest or checked.max()), links, overhead)
    try:
        found = InfiniPipe(**parameters).plan(work)
    except NotForThisCase as declined:
        raise InputError(str(declined)) from None
    return Planned(work, found, work.simulate(found))


def pack(lengths: npt.ArrayLike, target_s: float, tokens: int, costs: TokenCosts) -> list[list[tuple[int, int, int]]]:
    """The chunks of a batch for a target time and a cap of tokens, each as a list of (sequence, first token, tokens).

    A sampler for data loaders: cut and packed, but without a schedule.
    """
    from .workload import MOST_TOKENS, check_lengths

    chunks = process(check_lengths(np.asarray(lengths), MOST_TOKENS), costs.forward, target_s, tokens)
    return [[(i, chunk.context if n == 0 else 0, count) for n, (i, count) in enumerate(chunk.slices)] for chunk in chunks]
