"""Cuts a chain of blocks for several ranks, and takes one rank's part."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from armillary import arrays
from armillary.errors import InputError

from ..costs.work import balance_from_flops
from .block_arrow import BlockArrow


@dataclass(frozen=True)
class Part:
    """The blocks of one rank: `diagonal` (m, b, b), `arrow` (m, a, b), and `lower`, whose entry i lies below diagonal i.

    The last rank's `lower` has m−1 blocks. Every other's has m: the last one leads to the first block of the next rank. `tip` is the
    whole matrix's, the same on every rank. `labels` are the blocks' numbers in the whole matrix, for errors.
    """

    diagonal: arrays.Array
    lower: arrays.Array
    arrow: arrays.Array
    tip: arrays.Array
    labels: tuple[int, ...]

    @property
    def m(self) -> int:
        """Blocks of this rank."""
        return int(self.diagonal.shape[0])


def partition(n: int, ranks: int, balance: float | str = "auto", b: int = 100, a: int = 0) -> tuple[int, ...]:
    """Returns the first block of each rank, and n: rank 0 gets `balance` times as many blocks as each other one, which has more work per
    block.

    "auto" takes the ratio of the flop counts for blocks of b with an arrow of a, about 2.2. Rank 0 has at least one block and every
    other at least two, its first and last, so that 2·ranks − 1 ≤ n.
    """
    if ranks < 1 or 2 * ranks - 1 > n:
        raise InputError(f"found {ranks} ranks for {n} blocks; expected 2·ranks − 1 ≤ blocks, at most {(n + 1) // 2} ranks", where="ranks")
    ratio = balance_from_flops(b, a) if balance == "auto" else _ratio(balance)
    theirs = min(max(2 * (ranks - 1), round(n * (ranks - 1) / (ratio + ranks - 1))), n - 1) if ranks > 1 else 0
    each, spare = divmod(theirs, ranks - 1) if ranks > 1 else (0, 0)
    return tuple(accumulate([n - theirs, *[each + (r < spare) for r in range(ranks - 1)]], initial=0))


def part_of(blocks: BlockArrow, bounds: tuple[int, ...], rank: int) -> Part:
    """Returns what a rank holds, as views of the whole."""
    start, stop = bounds[rank], bounds[rank + 1]
    return Part(blocks.diagonal[start:stop], blocks.lower[start:stop], blocks.arrow[start:stop], blocks.tip, tuple(range(start, stop)))


def _ratio(balance: float | str) -> float:
    try:
        ratio = float(balance)
    except ValueError:
        ratio = -1.0
    if not 0.05 <= ratio <= 1000:
        raise InputError(f'found {balance!r}; expected "auto" or a ratio of 0.05 to 1000', where="balance")
    return ratio
