"""Advises how many ranks pay off for a matrix on a cluster, from counted operations and bytes alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError

from ..blocks.block_arrow import BlockArrow
from ..blocks.partitions import partition
from ..inversion.reduced import STRATEGIES, elements_of
from .work import Work, balance_from_flops, part_work, whole_work

if TYPE_CHECKING:
    from armillary.cluster import Cluster


@dataclass(frozen=True)
class Choice:
    """One way to cut the chain, and its modelled seconds: the slowest rank's stretch, the reduced system, and the exchange."""

    ranks: int
    strategy: str
    stretch_s: float
    reduced_s: float
    exchange_s: float

    @property
    def seconds(self) -> float:
        """Altogether."""
        return self.stretch_s + self.reduced_s + self.exchange_s


@dataclass(frozen=True)
class Advice:
    """The best choice, the balance, and the best choice for each number of ranks.

    `crossover` is the number of ranks from which on another strategy than the one of two ranks is best; None where there is none.
    """

    best: Choice
    balance: float
    table: tuple[Choice, ...]
    crossover: int | None

    def __str__(self) -> str:
        lines = [f"{c.ranks:5d} ranks  {c.strategy:14s} {c.seconds:.3g} s" for c in self.table]
        b = self.best
        return "\n".join(
            [f"{b.ranks} ranks, {b.strategy}, rank 0 with {self.balance:.2f} times the blocks of another: {b.seconds:.3g} s", *lines]
        )


def advise(matrix: BlockArrow, cluster: Cluster | str, most_ranks: int = 1024) -> Advice:
    """Finds ranks, balance and strategy with the least modelled seconds for factor and selected inverse.

    There is one core per rank and one rank per node. The model runs operations at the shares of `costs` of a core's peak, and messages at
    the latency and rate between two nodes; an allgather is ⌈log₂ p⌉ messages with all but a rank's own data, gather-scatter is a tree, and
    nested is both in groups of √p.
    """
    flops, latency, rate = _machine(cluster)
    limit = min(most_ranks, (matrix.n + 1) // 2)
    if limit < 1:
        raise InputError(f"found {most_ranks} ranks; expected at least 1", where="most_ranks")
    table = []
    for ranks in _powers(limit):
        choices = [_choice(matrix, ranks, strategy, flops, latency, rate) for strategy in (STRATEGIES if ranks > 1 else STRATEGIES[:1])]
        table.append(min(choices, key=lambda c: c.seconds))
    best = min(table, key=lambda c: c.seconds)
    other = next((c.ranks for c in table[1:] if c.strategy != table[1].strategy), None) if len(table) > 1 else None
    return Advice(best, balance_from_flops(matrix.b, matrix.a), tuple(table), other)


def _choice(matrix: BlockArrow, ranks: int, strategy: str, flops: float, latency: float, rate: float) -> Choice:
    n, b, a = matrix.n, matrix.b, matrix.a
    if ranks == 1:
        return Choice(1, strategy, whole_work(n, b, a).seconds(flops), 0.0, 0.0)
    bounds = partition(n, ranks, "auto", b, a)
    stretch = max(part_work(end - begin, b, a, begin > 0).seconds(flops) for begin, end in pairwise(bounds))
    width = matrix.diagonal.dtype.itemsize
    everything = sum(elements_of(rank, ranks, b, a) for rank in range(ranks)) * width
    steps = math.ceil(math.log2(ranks))
    reduced = whole_work(2 * ranks - 1, b, a)
    tip = 2 * steps * (latency + a * a * width / rate)
    if strategy == "allgather":
        return Choice(ranks, strategy, stretch, reduced.seconds(flops), tip + steps * latency + everything / rate)
    if strategy == "gather-scatter":
        return Choice(ranks, strategy, stretch, reduced.seconds(flops), tip + 2 * (steps * latency + everything / rate))
    leaders = math.isqrt(ranks - 1) + 1
    inner = _nested(2 * ranks - 1, leaders, b, a)
    between = sum(elements_of(rank, leaders, b, a) for rank in range(leaders)) * width
    hops = math.ceil(math.log2(max(2, leaders)))
    exchange = tip * 2 + 2 * (hops * latency + everything / leaders / rate) + hops * latency + between / rate
    return Choice(ranks, strategy, stretch, inner.seconds(flops), exchange)


def _nested(blocks: int, leaders: int, b: int, a: int) -> Work:
    group = -(-blocks // leaders)
    return part_work(group, b, a, fill=True) + whole_work(2 * leaders - 1, b, a)


def _powers(limit: int) -> list[int]:
    found = [1]
    while 2 * found[-1] <= limit:
        found.append(2 * found[-1])
    return found if found[-1] == limit else [*found, limit]


def _machine(cluster: Cluster | str) -> tuple[float, float, float]:
    """Returns flops per second of a core, and the latency and bytes per second between two nodes."""
    import numpy as np

    from armillary import comm

    def work(ranks: comm.Communicator) -> float:
        ranks.compute(flops=1e9)
        return ranks.now()

    def message(ranks: comm.Communicator, nbytes: int) -> float:
        block = np.zeros(nbytes, np.uint8)
        if ranks.rank == 0:
            ranks.send(block, 1)
        else:
            ranks.recv(block, 0)
        return ranks.now()

    where: dict[str, Any] = {"backend": "virtual", "cluster": cluster, "placement": "round-robin"}
    flops = 1e9 / comm.run(work, ranks=1, **where)[0]
    short, long = (comm.run(message, nbytes, ranks=2, **where)[1] for nbytes in (8, 1 << 22))
    return flops, short, (1 << 22) / max(long - short, 1e-12)
