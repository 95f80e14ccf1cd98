"""Cuts long sequences into slices of equal time and packs short ones, so that all chunks take about as long."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop

from ..simulation.schedule import IntArray
from ..simulation.simulator import FloatArray
from .polynomial import Polynomial
from .work import Chunk

#: Slices end at multiples of this many tokens, which kernels like.
ROUND = 128


def boundaries(length: int, n: int, cost: Polynomial, round_to: int = ROUND, split: Literal["time", "tokens"] = "time") -> list[float]:
    """The ends of n slices of a sequence, of equal time: a·e²/2 + b·e = (j/n)·T in closed form. With `tokens`, of equal length.

    Later slices attend to more context, so they are shorter: where attention is everything, the ends are at length·√(j/n).
    """
    if n < 1 or n > length:
        raise InputError(f"found {n} slices for {length} tokens; expected at least one token per slice")
    whole = cost.a * length * length / 2 + cost.b * length
    ends: list[float] = []
    for j in range(1, n):
        share = j / n
        if split == "tokens" or cost.a <= 0:
            end = share * length
        else:
            # The root in the form that keeps its digits where attention costs next to nothing.
            end = 2 * share * whole / (cost.b + math.sqrt(cost.b**2 + 2 * cost.a * share * whole))
        ends.append(end if round_to <= 0 else float(round_to * round(end / round_to)))
    if round_to > 0:
        least, steps = 0.0, min(round_to, length // n)
        for j in range(n - 1):  # Every slice keeps at least one step.
            ends[j] = min(max(ends[j], least + steps), length - (n - 1 - j) * steps)
            least = ends[j]
    return [*ends, float(length)]


def process(
    lengths: IntArray, cost: Polynomial, target_s: float, most_tokens: int, *, split: Literal["time", "tokens"] = "time",
    hybrid: bool = True,
    granularity: Literal["mixed", "batch", "token"] = "mixed", round_to: int = ROUND,
) -> tuple[Chunk, ...]:  # fmt: skip
    """The chunks of a batch for a target time and a cap of tokens, in the order in which they run.

    A sequence that takes more than 1.1 times the target, or has more tokens than the cap, is long: it is cut into n = max(⌈T/target⌉,
    ⌈tokens/cap⌉) slices. Short ones, and last slices below 0.9 times the target, are packed by best fit decreasing on time, up to 1.05
    times the target and the cap. Long sequences come first, the longest first; packed chunks fill the end. `hybrid=False` packs no last
    slices; `granularity` "batch" cuts nothing and "token" packs nothing.
    """
    if target_s <= 0 or most_tokens < 1:
        raise InputError(f"a target of {target_s} s and {most_tokens} tokens; expected both above 0")
    times = cost.a * lengths.astype(float) ** 2 / 2 + cost.b * lengths
    long = (times > 1.1 * target_s) | (lengths > most_tokens)
    if granularity == "batch":
        if lengths.max() > most_tokens:
            raise InputError(f"a sequence has {lengths.max()} tokens, and {most_tokens} fit; whole sequences do not")
        long[:] = False
    groups = [
        (i, _slices(int(lengths[i]), float(times[i]), cost, target_s, most_tokens, split, round_to))
        for i in sorted(np.flatnonzero(long).tolist(), key=lambda i: (-times[i], i))
    ]
    short = np.flatnonzero(~long)
    order = short[np.lexsort((short, -times[short]))]
    if granularity == "token":
        return _numbered(groups, {}, [[i] for i in order.tolist()], lengths)
    ends: list[tuple[int, float, int]] = []
    for group, (_, counts) in enumerate(groups if hybrid else ()):
        context, count = sum(counts[:-1]), counts[-1]
        seconds = cost.a * count * (context + count / 2) + cost.b * count
        if seconds < 0.9 * target_s:
            ends.append((group, seconds, count))
    bins = best_fit(
        times[order], lengths[order], 1.05 * target_s, most_tokens, np.array([end[1] for end in ends]),
        np.array([end[2] for end in ends], np.int64),
    )  # fmt: skip
    filled: dict[int, list[int]] = {}
    packs: dict[int, list[int]] = {}
    for item, place in zip(order.tolist(), bins.tolist()):
        if place < len(ends):
            filled.setdefault(ends[place][0], []).append(item)
        else:
            packs.setdefault(place, []).append(item)
    return _numbered(groups, filled, [packs[place] for place in sorted(packs)], lengths)


def _slices(
    length: int, seconds: float, cost: Polynomial, target: float, cap: int, split: Literal["time", "tokens"], round_to: int
) -> list[int]:
    """The lengths of a long sequence's slices, of equal time; where the cap binds, each takes what the cap and the target allow."""
    n = min(length, max(math.ceil(seconds / target), math.ceil(length / cap), 2))
    ends = boundaries(length, n, cost, round_to, split)
    counts = [round(b - a) for a, b in zip([0.0, *ends[:-1]], ends)]
    if max(counts) <= cap:
        return counts
    step = round_to if 0 < round_to <= cap else 1
    counts, at = [], 0
    while at < length:
        until = target + cost.a * at * at / 2 + cost.b * at
        end = 2 * until / (cost.b + math.sqrt(cost.b**2 + 2 * cost.a * until)) if split == "time" else at + length / n
        size = max(step, step * int(min(cap, end - at) // step))
        counts.append(min(size, length - at))
        at += counts[-1]
    return counts


def _numbered(
    groups: Sequence[tuple[int, list[int]]], filled: dict[int, list[int]], packs: Sequence[list[int]], lengths: IntArray
) -> tuple[Chunk, ...]:
    """Chunks in order: the slices of long sequences, with what fills their last ones, then packs."""
    chunks: list[Chunk] = []
    for group, (sequence, counts) in enumerate(groups):
        context = 0
        for j, count in enumerate(counts):
            last = j == len(counts) - 1
            more = tuple((i, int(lengths[i])) for i in filled.get(group, ())) if last else ()
            chunks.append(Chunk(((sequence, count), *more), context, len(chunks) - 1 if j else -1, not last))
            context += count
    return (*chunks, *(Chunk(tuple((i, int(lengths[i])) for i in pack)) for pack in packs))


def best_fit(
    seconds: FloatArray,
    tokens: IntArray,
    most_s: float,
    most_tokens: int,
    open_s: FloatArray | None = None,
    open_tokens: IntArray | None = None,
) -> IntArray:
    """The bin of every item: the one with the least time left in which it fits, or a new one. Bins that are open at the start come first.

    Items come in the order in which they are placed (longest first for best fit decreasing).
    """
    start_s = np.zeros(0) if open_s is None else np.asarray(open_s, float)
    start_tokens = np.zeros(0, np.int64) if open_tokens is None else np.asarray(open_tokens, np.int64)
    return _best_fit(np.asarray(seconds, float), np.asarray(tokens, np.int64), float(most_s), int(most_tokens), start_s, start_tokens)


@loop
def _best_fit(seconds: Any, tokens: Any, most_s: Any, most_tokens: Any, open_s: Any, open_tokens: Any) -> Any:
    n, k = seconds.shape[0], open_s.shape[0]
    left_s = np.empty(n + k)
    left_tokens = np.empty(n + k, np.int64)
    for i in range(k):
        left_s[i], left_tokens[i] = most_s - open_s[i], most_tokens - open_tokens[i]
    bins = np.empty(n, np.int64)
    for i in range(n):
        best = -1
        for j in range(k):
            if seconds[i] <= left_s[j] and tokens[i] <= left_tokens[j] and (best < 0 or left_s[j] < left_s[best]):
                best = j
        if best < 0:
            best = k
            left_s[k], left_tokens[k] = most_s, most_tokens
            k += 1
        left_s[best] -= seconds[i]
        left_tokens[best] -= tokens[i]
        bins[i] = best
    return bins
