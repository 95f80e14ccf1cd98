"""How schedules without elastic chunks run a batch of sequences: packs of up to the longest sequence, whole or cut into equal slices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from armillary.arena import NotForThisCase
from armillary.errors import InputError

from ..orders.one_way import seq_one_f_one_b
from ..planning.in_flight import order as make_order
from ..planning.layers import even_cuts
from ..simulation.schedule import Schedule
from .processor import best_fit
from .work import Chunk, ChunkPlan, SequenceWork

#: Options of recomputation that a pack may use for all its layers.
OPTIONS = ("none", "selective", "mlp", "full")


def packs_of(work: SequenceWork, tokens: int) -> tuple[Chunk, ...]:
    """Whole sequences packed by best fit decreasing into chunks of up to `tokens`, the fullest first."""
    lengths = work.lengths
    order = np.lexsort((np.arange(len(lengths)), -lengths))
    bins = best_fit(lengths[order].astype(float), lengths[order], float(tokens), tokens)
    packs: dict[int, list[int]] = {}
    for item, place in zip(order.tolist(), bins.tolist()):
        packs.setdefault(place, []).append(item)
    return tuple(Chunk(tuple((i, int(lengths[i])) for i in packs[place])) for place in sorted(packs))


def sliced(packs: Sequence[Chunk], n: int) -> tuple[Chunk, ...]:
    """Every pack cut into n slices of equal tokens; a sequence that crosses a cut goes on in the next slice."""
    found: list[Chunk] = []
    for pack in packs:
        ends = [pack.tokens * (j + 1) // n for j in range(n)]
        at, seen, first = 0, 0, True
        rest = list(pack.slices)
        for end in ends:
            context, slices, continued = seen, [], False
            while at < end:
                sequence, left = rest[0]
                take = min(left, end - at)
                slices.append((sequence, take))
                at += take
                if take == left:
                    rest.pop(0)
                    seen = 0
                else:
                    rest[0] = (sequence, left - take)
                    seen += take
                    continued = True
            if slices:
                found.append(Chunk(tuple(slices), context, -1 if first else len(found) - 1, continued))
                first = False
    return tuple(found)


def pack_sizes(work: SequenceWork) -> list[int]:
    """Tokens of a pack to try: the longest sequence, twice as many, and the model's limit."""
    longest = int(work.lengths.max())
    return sorted({longest, min(2 * longest, work.longest), work.longest})


def packed_plan(work: SequenceWork, order: str, chunks: Iterable[int] = (1,)) -> ChunkPlan:
    """The fastest of all sizes of packs, numbers of chunks per rank and options of recomputation that fit."""
    return fastest_chunks(work, packed_candidates(work, order, chunks), order)


def packed_candidates(work: SequenceWork, order: str, chunks: Iterable[int] = (1,)) -> Iterator[ChunkPlan]:
    """Plans of whole packs."""
    allowed = [v for v in chunks if v * work.ranks <= work.costs.layers]
    for tokens in pack_sizes(work):
        packs = packs_of(work, tokens)
        for v in allowed:
            yield from _with_options(work, packs, make_order(order, work.ranks, len(packs), v), v, order)


def sliced_candidates(work: SequenceWork, counts: Iterable[int]) -> Iterator[ChunkPlan]:
    """Plans of packs that are all cut into the same number of slices."""
    for tokens in pack_sizes(work):
        packs = packs_of(work, tokens)
        for n in counts:
            if n > min(pack.tokens for pack in packs):
                continue
            slices = sliced(packs, n)
            starts = [i for i, chunk in enumerate(slices) if chunk.previous < 0]
            sizes = np.diff([*starts, len(slices)])
            yield from _with_options(work, slices, seq_one_f_one_b(work.ranks, sizes), 1, "seq1f1b")


def _with_options(work: SequenceWork, chunks: tuple[Chunk, ...], schedule: Schedule, v: int, order: str) -> Iterator[ChunkPlan]:
    cuts = even_cuts(work.costs.layers, work.ranks * v)
    for option in OPTIONS:
        if option in work.costs.kept:
            yield ChunkPlan(
                chunks,
                schedule,
                cuts,
                np.zeros((len(chunks), len(cuts) - 1), np.int64),
                option,
                order=order,
                notes={"source": order, "v": v},
            )


def fastest_chunks(work: SequenceWork, candidates: Iterable[ChunkPlan], what: str) -> ChunkPlan:
    """The plan with the shortest simulated step among those that fit, as planners know the costs; it promises its closed form."""
    best: tuple[float, ChunkPlan] | None = None
    shortage = np.inf
    for plan in candidates:
        found = work.simulate(plan, actual=False)
        if not work.fits(found):
            shortage = min(shortage, float((found.peak - work.capacity).max()))
        elif best is None or found.makespan < best[0] * (1 - 1e-12):
            best = found.makespan, plan
    if best is None:
        lacks = f"the best plan exceeds memory by {shortage / 2**30:.1f} GiB" if np.isfinite(shortage) else "no plan could be made"
        raise NotForThisCase(f"{what} does not fit: {lacks}")
    return replace(best[1], predicted=promise(work, best[1]))


def promise(work: SequenceWork, plan: ChunkPlan) -> float:
    """What a plan is expected to take by the polynomial: the longest stage's work, and the first chunk's way through the others.

    Σ_k (F + B + recomputation) of the busiest stage, plus (1/v)·Σ over the other stages of the mean chunk.
    """
    if plan.elsewhere is not None:
        raise InputError("a plan without a pipeline promises for itself")
    costs = work.costs
    layers = np.diff(plan.cuts).astype(float)
    forward, backward = costs.forward.seconds(plan.chunks), costs.forward.backward_seconds(plan.chunks)
    tokens = np.array([chunk.tokens for chunk in plan.chunks], float)
    again = {"none": 0.0 * forward, "selective": costs.forward.attention(plan.chunks), "full": forward, "mlp": 0.4 * forward}
    extra = np.outer(layers, again[plan.option]) if plan.option else plan.recompute.T * forward
    total = np.outer(layers, forward + backward) + extra
    total[-1] += sum(costs.tail) * tokens
    whole = total.sum(1)
    by_rank = whole.reshape(-1, work.ranks).sum(0)
    busiest = int(by_rank.argmax())
    v = len(layers) // work.ranks
    others = (by_rank.sum() - by_rank[busiest]) / len(plan.chunks) / v
    return float(by_rank[busiest] + others)
