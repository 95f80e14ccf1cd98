"""CFseq's second module searches for the order of the fields by brute force: the compressor itself scores each order on a sample.

With up to seven blocks of fields, every order is tried. With more, a local search takes one field out at a time, tries it at every other
place and keeps the best; when no such move helps, it exchanges blocks and moves neighbours in pairs, and then starts again from a
perturbed order. An order is first scored on one stretch and dropped there if it is over half a per cent worse than the incumbent. The
steps of the search are our design. Scores do not depend on the number of threads, and neither does the outcome unless the clock ends it.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from ..records.sample import Sample
from ..records.split import assemble
from ..streams.compressors import Compressor

EXHAUSTIVE_BLOCKS = 7
DROP = 1.005
#: A stretch smaller than this says too little to drop an order.
LEAST_PART_BYTES = 32 << 10
#: The number of orders that the real compressor scores after a search with its stand-in.
FINALISTS = 16
Order = tuple[int, ...]


@dataclass
class Scorer:
    """Scores orders of the fields by the compressed bytes of a sample; it lives as long as one search."""

    sample: Sample
    compressor: Compressor
    threads: int = 1
    #: The number of orders that were scored, on a stretch or in full.
    tried: int = 0
    _known: dict[Order, int] = field(default_factory=dict)
    _known_part: dict[Order, int] = field(default_factory=dict)
    _own: threading.local = field(default_factory=threading.local)

    def __post_init__(self) -> None:
        part = self.sample.part()
        self._part = part if part.bytes >= LEAST_PART_BYTES and len(self.sample.stretches) > 1 else None

    def text(self, order: Order, sample: Sample | None = None) -> memoryview:
        """Returns the sample as a log in this order is written, with the lines that do not fit in their places."""
        taken = self.sample if sample is None else sample
        if not hasattr(self._own, "out"):
            self._own.out = np.empty(self.sample.bytes, np.uint8)
        _, separator, width, _ = taken.format.code
        used = assemble(
            taken.data, taken.begins, taken.starts, taken.ends, taken.moves, np.array(order, np.int64), separator, width, self._own.out
        )
        return memoryview(self._own.out[:used])

    def _size(self, order: Order, sample: Sample) -> int:
        return len(self.compressor.compress(self.text(order, sample)))

    def score(self, order: Order) -> int:
        """Returns the compressed bytes of the whole sample."""
        if order not in self._known:
            self._known[order] = self._size(order, self.sample)
            self.tried += 1
        return self._known[order]

    def leaders(self, count: int) -> list[Order]:
        """Returns the best of the orders that were scored in full."""
        return heapq.nsmallest(count, self._known, key=self._known.__getitem__)

    def best(self, orders: Iterable[Order], incumbent: Order, pool: ThreadPoolExecutor | None) -> Order:
        """Returns the best of these orders and the incumbent; ties go to the incumbent, then to the earlier order."""
        wanted = list(dict.fromkeys(order for order in orders if order not in self._known))
        candidates = [order for order in dict.fromkeys(orders) if order in self._known]
        if self._part is not None:
            part = self._part
            for order in (incumbent, *wanted):
                self._known_part.setdefault(order, -1)
            new = [order for order in (incumbent, *wanted) if self._known_part[order] < 0]
            for order, size in zip(new, self._each(lambda order: self._size(order, part), new, pool), strict=True):
                self._known_part[order] = size
            self.tried += len(new)
            limit = DROP * self._known_part[incumbent]
            wanted = [order for order in wanted if self._known_part[order] <= limit]
        for order, size in zip(wanted, self._each(lambda order: self._size(order, self.sample), wanted, pool), strict=True):
            self._known[order] = size
        self.tried += len(wanted)
        return min((incumbent, *candidates, *wanted), key=self.score)

    def _each(self, work: Callable[[Order], int], orders: list[Order], pool: ThreadPoolExecutor | None) -> Iterable[int]:
        return map(work, orders) if pool is None or len(orders) < 2 else pool.map(work, orders)


@dataclass(frozen=True)
class Found:
    """The best order, its compressed bytes and those of the original order, and what the search took."""

    order: Order
    bytes: int
    original_bytes: int
    tried: int
    seconds: float
    ended_early: bool
    #: The best orders that were scored in full, with every local optimum and every start, best first; the real compressor chooses.
    finalists: tuple[Order, ...]


@dataclass
class _Budget:
    scorer: Scorer
    deadline: float
    most_orders: int
    spent: bool = False

    def over(self) -> bool:
        self.spent = self.spent or self.scorer.tried >= self.most_orders or time.perf_counter() >= self.deadline
        return self.spent


def search(
    scorer: Scorer,
    start: Order,
    blocks: tuple[Order, ...],
    *,
    budget_s: float = 30.0,
    most_orders: int = 1 << 30,
    restarts: int = 2,
    seed: int = 0,
) -> Found:
    """Searches from `start` for the best order of the fields, within a budget of seconds and of orders."""
    began = time.perf_counter()
    budget = _Budget(scorer, began + budget_s, most_orders)
    fields = len(start)
    original = tuple(range(fields))
    optima: list[Order] = [original, start]
    pool = ThreadPoolExecutor(scorer.threads) if scorer.threads > 1 else None
    if fields <= EXHAUSTIVE_BLOCKS:
        # So few fields need no blocks, which would rule out orders.
        blocks = tuple((i,) for i in start)
    try:
        if len(blocks) <= EXHAUSTIVE_BLOCKS:
            optima.append(_exhaustive(scorer, blocks, min(optima, key=scorer.score), budget, pool))
        else:
            # The search starts from the entropies' order first, and then from the original order, which a vendor may have chosen well.
            optima.extend([_local(scorer, begin, blocks, start, budget, pool) for begin in (start, original)])
            rng = np.random.Generator(np.random.PCG64(seed))
            for _ in range(restarts):
                if budget.over():
                    break
                optima.append(_local(scorer, _shaken(min(optima, key=scorer.score), rng), blocks, start, budget, pool))
    finally:
        if pool is not None:
            pool.shutdown()
    finalists = tuple(sorted(dict.fromkeys((*optima, *scorer.leaders(FINALISTS))), key=scorer.score))
    best = finalists[0]
    seconds = time.perf_counter() - began
    return Found(best, scorer.score(best), scorer.score(original), scorer.tried, seconds, budget.spent, finalists)


def polish(scorer: Scorer, finalists: Iterable[Order], *, budget_s: float, most_orders: int) -> tuple[Order, int]:
    """Returns the best of the finalists for this scorer after moving single fields and pairs, and the number of orders that it took.

    Orders that a stand-in found good are near the best for the real compressor, which this scorer holds.
    """
    budget = _Budget(scorer, time.perf_counter() + budget_s, most_orders)
    pool = ThreadPoolExecutor(scorer.threads) if scorer.threads > 1 else None
    try:
        orders = list(finalists)
        order = scorer.best(orders, orders[0], pool)
        before = None
        while order != before and not budget.over():
            before = order
            order = _insertions(scorer, order, order, budget, pool)
            order = _pair_moves(scorer, order, budget, pool)
    finally:
        if pool is not None:
            pool.shutdown()
    return order, scorer.tried


def _exhaustive(scorer: Scorer, blocks: tuple[Order, ...], incumbent: Order, budget: _Budget, pool: ThreadPoolExecutor | None) -> Order:
    every = (tuple(itertools.chain.from_iterable(order)) for order in itertools.permutations(blocks))
    for batch in itertools.batched(every, 32) if hasattr(itertools, "batched") else _batches(every, 32):
        if budget.over():
            break
        incumbent = scorer.best(batch, incumbent, pool)
    return incumbent


def _batches(orders: Iterable[Order], size: int) -> Iterable[tuple[Order, ...]]:
    left = iter(orders)
    while batch := tuple(itertools.islice(left, size)):
        yield batch


def _local(
    scorer: Scorer, order: Order, blocks: tuple[Order, ...], turns: Order, budget: _Budget, pool: ThreadPoolExecutor | None
) -> Order:
    while not budget.over():
        before = order
        order = _insertions(scorer, order, turns, budget, pool)
        if budget.over():
            break
        order = _exchanges(scorer, order, blocks, budget, pool)
        if order == before:
            order = _pair_moves(scorer, order, budget, pool)
            if order == before:
                break
    return order


def _pair_moves(scorer: Scorer, order: Order, budget: _Budget, pool: ThreadPoolExecutor | None) -> Order:
    """Moves two neighbours at a time to every other place, which leaves optima in which each of them keeps the other in place."""
    for first in range(len(order) - 1):
        if budget.over():
            break
        pair, rest = order[first : first + 2], (*order[:first], *order[first + 2 :])
        order = scorer.best([(*rest[:place], *pair, *rest[place:]) for place in range(len(rest) + 1)], order, pool)
    return order


def _insertions(scorer: Scorer, order: Order, turns: Order, budget: _Budget, pool: ThreadPoolExecutor | None) -> Order:
    still = 0
    turn = 0
    while still < len(order) and not budget.over():
        taken = turns[turn % len(turns)]
        rest = tuple(field for field in order if field != taken)
        moved = scorer.best([(*rest[:place], taken, *rest[place:]) for place in range(len(order))], order, pool)
        still = still + 1 if moved == order else 0
        order = moved
        turn += 1
    return order


def _exchanges(scorer: Scorer, order: Order, blocks: tuple[Order, ...], budget: _Budget, pool: ThreadPoolExecutor | None) -> Order:
    home = {field: number for number, block in enumerate(blocks) for field in block}
    runs = [tuple(run) for _, run in itertools.groupby(order, key=home.__getitem__)]
    for i in range(len(runs)):
        if budget.over():
            break
        swapped = []
        for j in range(i + 1, len(runs)):
            exchanged = [*runs[:i], runs[j], *runs[i + 1 : j], runs[i], *runs[j + 1 :]]
            swapped.append(tuple(itertools.chain.from_iterable(exchanged)))
        better = scorer.best(swapped, order, pool)
        if better != order:
            order = better
            runs = [tuple(run) for _, run in itertools.groupby(order, key=home.__getitem__)]
            if i >= len(runs):
                break
    return order


def _shaken(order: Order, rng: np.random.Generator) -> Order:
    """Returns the order with a quarter of its fields, at least three, put elsewhere."""
    shaken = list(order)
    for _ in range(max(3, len(order) // 4)):
        shaken.insert(int(rng.integers(len(order))), shaken.pop(int(rng.integers(len(order)))))
    return tuple(shaken)
