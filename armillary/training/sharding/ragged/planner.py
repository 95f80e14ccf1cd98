"""The planner: lay tensors out in one buffer of N equal shards so that no block is cut and little is padded.

Given tensors of e_t elements with granularity g_t, N ranks and an alignment q, choose the shard size S (a multiple of q), an order and
offsets o_t such that for every cut kS strictly inside a tensor (kS − o_t) mod g_t = 0, and make S as small as possible.

For a fixed order and S, the earliest feasible offset of each tensor is the best, since an earlier end never hurts. The order is the hard
part. Several orders are tried for each S (ours, because the paper has its own heuristics): the given one, by granularity from either end,
by size, granularities in turn with the tensors that may be cut anywhere as filler, and one that always places the tensor that leaves the
smallest gap. S grows over all values that can be feasible: a tensor of more than 2S elements contains two cuts, so that S must be a
multiple of its granularity. The first value at which every tensor has a place when it is alone is a lower bound, and `Plan.gap` says how
far from it the plan is.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown

from .granularity import Rule, Weight, weights_of
from .placement import RaggedShard

Ints = npt.NDArray[np.int64]
ORDERS = ("planned", "given")
#: Shard sizes that are tried one after the other before the search doubles its steps.
MOST_CANDIDATES = 4096
#: Candidates times tensors, so that a file of very many tensors is answered too.
MOST_TRIALS = 1 << 25
#: 128 bytes of float32.
ALIGN = 32
MOST_RANKS = 1 << 20


@dataclass(frozen=True)
class Plan:
    """Where each tensor lies in a buffer of `n` shards of `shard` elements, and the least shard that any plan could have."""

    n: int
    shard: int
    weights: tuple[Weight, ...]
    offsets: tuple[int, ...]
    bound: int

    @property
    def elements(self) -> int:
        """Elements of the tensors, without padding."""
        return sum(weight.size for weight in self.weights)

    @property
    def padding_ratio(self) -> float:
        """Elements of the buffer over those of the tensors, minus 1."""
        return self.n * self.shard / self.elements - 1

    @property
    def gap(self) -> float:
        """How much larger the shard is than its lower bound, as a share."""
        return self.shard / self.bound - 1

    def local_sizes(self, name: str) -> list[int]:
        """The elements of a tensor on each rank."""
        i = self._index(name)
        at, size = self.offsets[i], self.weights[i].size
        found = [0] * self.n
        for rank in range(at // self.shard, (at + size - 1) // self.shard + 1):
            found[rank] = min(at + size, (rank + 1) * self.shard) - max(at, rank * self.shard)
        return found

    def placement(self, name: str) -> RaggedShard:
        """The placement of one tensor: the largest granularity that its cuts respect, and each rank's share."""
        return RaggedShard.of_sizes(self.weights[self._index(name)].shape, self.local_sizes(name))

    def cut_blocks(self) -> int:
        """The blocks that a shard boundary cuts; zero in every plan with `order="planned"`."""
        return sum(len(cut_blocks(w.size, w.grain, self.shard, at)) for w, at in zip(self.weights, self.offsets))

    def _index(self, name: str) -> int:
        for i, weight in enumerate(self.weights):
            if weight.name == name:
                return i
        raise unknown("tensor", name, [weight.name for weight in self.weights], where="plan")

    def to_json(self) -> str:
        """The plan as JSON, which `from_json` reads."""
        tensors = [
            {"name": w.name, "shape": list(w.shape), "block": list(w.block) if isinstance(w.block, tuple) else w.block, "offset": at}
            for w, at in zip(self.weights, self.offsets)
        ]  # fmt: skip
        return json.dumps({"ranks": self.n, "shard": self.shard, "bound": self.bound, "tensors": tensors}, indent=1)

    @staticmethod
    def from_json(text: str | bytes, where: str = "plan") -> Plan:
        """Read a plan, and check that its tensors lie inside the buffer and do not overlap."""
        from armillary.files import parse_json

        from .granularity import block_of

        said = parse_json(text.encode() if isinstance(text, str) else text, where=where)
        try:
            n, shard, bound = (_whole(said[key], key, where) for key in ("ranks", "shard", "bound"))
            rows = [
                (str(t["name"]), [int(x) for x in t["shape"]], t["block"], _whole(t["offset"], "offset", where, 0)) for t in said["tensors"]
            ]
        except (KeyError, TypeError, ValueError):
            raise InputError("expected ranks, shard, bound and tensors with name, shape, block and offset", where=where) from None
        weights = tuple(
            Weight(w.name, w.shape, block_of(block, where))
            for w, (_, _, block, _) in zip(weights_of({name: shape for name, shape, _, _ in rows}), rows, strict=True)
        )
        found = Plan(n, shard, weights, tuple(at for *_, at in rows), bound)
        spans = sorted((at, at + w.size, w.name) for at, w in zip(found.offsets, weights))
        for (_, stop, one), (start, _, other) in itertools.pairwise(spans):
            if start < stop:
                raise InputError(f'"{one}" and "{other}" overlap', where=where)
        if spans and spans[-1][1] > n * shard:
            raise InputError(f'"{spans[-1][2]}" ends after the {n * shard} elements of the buffer', where=where)
        return found


def _whole(found: Any, key: str, where: str, least: int = 1) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found < 1 << 60:
        raise InputError(f'key "{key}": found {found!r}; expected a whole number from {least}', where=where)
    return found


def cut_blocks(size: int, grain: int, shard: int, at: int = 0) -> Ints:
    """The numbers of the blocks of a tensor at offset `at` that a boundary between shards cuts."""
    first = -(at + 1) // -shard if at else 1
    cuts = np.arange(first * shard - at, size, shard, dtype=np.int64)
    cuts = cuts[cuts > 0]
    return np.unique(cuts[cuts % grain != 0] // grain)


def plan(
    shapes: Mapping[str, Sequence[int]], n: int, blocks: Iterable[Rule] | Any = None, *, align: int = ALIGN, order: str = "planned",
    strict: bool = False,
) -> Plan:  # fmt: skip
    """Plan one group of tensors over `n` ranks.

    `blocks` is a block for all matrices or a list of rules (see `granularity`). `align` is the alignment of the shard in elements, which is
    128 bytes of float32 by default. `order="given"` does not plan: tensors follow one another as given, and blocks are cut.
    """
    return plan_weights(weights_of(shapes, blocks, strict=strict and n > 1), n, align=align, order=order)


def plan_weights(weights: Sequence[Weight], n: int, *, align: int = ALIGN, order: str = "planned") -> Plan:
    """Plan tensors whose blocks are known."""
    if order not in ORDERS:
        raise unknown("order", order, ORDERS, where="plan")
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST_RANKS:
        raise InputError(f"found {n!r}; expected 1 to {MOST_RANKS:,} ranks", where="n")
    if not 1 <= align <= 1 << 30:
        raise InputError(f"found {align}; expected 1 to 2³⁰ elements", where="align")
    if not weights:
        raise InputError("found no tensors; expected at least one", where="plan")
    sizes = np.array([weight.size for weight in weights], np.int64)
    total = int(sizes.sum())
    if total >= 1 << 58:
        raise InputError(f"found {total:,} elements together; expected fewer than 2⁵⁸", where="plan")
    grains = np.minimum(np.array([weight.grain for weight in weights], np.int64), sizes)
    if order == "given":
        shard = _up(-(-total // n), align)
        offsets = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        return Plan(n, shard, tuple(weights), tuple(offsets.tolist()), shard)
    orders = _orders(sizes, grains)
    shard, bound = _smallest(sizes, grains, n, align, orders)
    offsets = np.empty(len(sizes), np.int64)
    scratch = np.empty(len(sizes), np.bool_)
    from .search import first_feasible

    which = first_feasible(sizes, grains, orders, n, shard, shard, 1, offsets, scratch)
    assert which == shard
    return Plan(n, shard, tuple(weights), tuple(offsets.tolist()), bound)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _orders(sizes: Ints, grains: Ints) -> Ints:
    """The orders to try, without repetitions, each as indices of the tensors."""
    count = len(sizes)
    by_grain = sorted(range(count), key=lambda t: (-grains[t], -sizes[t]))
    by_size = sorted(range(count), key=lambda t: (-sizes[t], -grains[t]))
    classes = [list(same) for _, same in itertools.groupby(by_grain, key=lambda t: grains[t])]
    filler = classes.pop() if grains.min() == 1 else []
    in_turn = [t for row in itertools.zip_longest(*classes) for t in row if t is not None] + filler
    found = dict.fromkeys(map(tuple, (list(range(count)), by_grain, by_size, in_turn, by_grain[::-1])))
    return np.array(list(found), np.int64)


def _intervals(sizes: Ints, grains: Ints, n: int, align: int) -> Iterator[tuple[int, int, int]]:
    """Shard sizes that can be feasible, ascending, as (first, stop, step): every other size cuts a block of some tensor."""
    at = max(-(-int(sizes.sum()) // n), int(grains.max()))
    spans = sorted({(int(e), int(g)) for e, g in zip(sizes, grains)}, reverse=True)
    while True:
        twice = [(e, g) for e, g in spans if e > 2 * at]
        step = math.lcm(align, *(g for _, g in twice))
        stop = -(-min((e for e, _ in twice), default=1 << 62) // 2)
        first = _up(at, step)
        if first < stop:
            yield first, stop, step
        if not twice:
            return
        at = max(stop, at + 1)


def _smallest(sizes: Ints, grains: Ints, n: int, align: int, orders: Ints) -> tuple[int, int]:
    """The smallest shard that some order makes feasible among the candidates, and the lower bound."""
    from .search import first_alone, first_feasible

    offsets, scratch = np.empty(len(sizes), np.int64), np.empty(len(sizes), np.bool_)

    def first(start: int, stop: int, step: int) -> int:
        return int(first_feasible(sizes, grains, orders, n, start, stop - 1, step, offsets, scratch))

    left, bound, last = min(MOST_CANDIDATES, max(16, MOST_TRIALS // len(sizes))), 0, 0
    for start, stop, step in _intervals(sizes, grains, n, align):
        if not bound:
            alone = int(first_alone(sizes, grains, start, stop - 1, step))
            if alone < 0:
                continue
            start = bound = alone
        stop = min(stop, start + left * step)
        found = first(start, stop, step)
        if found >= 0:
            return found, bound
        tried = -(-(stop - start) // step)
        left, last = left - tried, start + (tried - 1) * step
        if left <= 0:
            break
    # A shard that holds everything is always feasible, so this ends.
    step = align
    while first(last + step, last + step + 1, 1) < 0:
        last, step = last + step, 2 * step
    low, high = last, last + step
    while high - low > align:
        middle = low + _up((high - low) // 2, align)
        if middle >= high:
            break
        low, high = (low, middle) if first(middle, middle + 1, 1) >= 0 else (middle, high)
    return high, bound
