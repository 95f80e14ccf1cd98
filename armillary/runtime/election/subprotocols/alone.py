"""Detect by itself: agents of one rank, their tokens, and everyone else; and how a message spreads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from armillary.errors import InputError
from armillary.kernels import kernel
from armillary.runtime.election.population.play import CHUNK
from armillary.runtime.election.population.randomness import draw_pairs, words

from .detect import watch

_AGENT = np.dtype([("rank", np.int32), ("token_rank", np.int32), ("token_index", np.int32), ("token_sign", np.int32)], align=True)


class _Witnesses(NamedTuple):
    rho: int


@kernel
def _watched(agents, memory, first, second, random, c):  # type: ignore[no-untyped-def]
    """The number of interactions to a proof, or −1."""
    for k in range(len(first)):
        u, v = first[k], second[k]
        for king, holder in ((u, v), (v, u)):
            if agents[king].rank == 1 and (agents[holder].rank == 1 or watch(agents, memory, king, holder, True, random, c)):
                return k + 1
    return -1


def proof_time(n: int, rho: int, rng: np.random.Generator, *, kings: int = 2, most: int = 1 << 40) -> float | None:
    """The parallel time until one of the kings' ranks is proved to be held twice, or None after `most` interactions without a proof."""
    if not 1 <= kings <= n or rho < 1:
        raise InputError(f"found {kings} kings and {rho} witnesses; expected 1 to {n} kings and at least one witness")
    agents, memory = np.zeros(n, _AGENT), np.zeros((n, rho), np.uint32)
    agents["rank"][:kings] = 1
    pairs, own, done = words(rng), words(rng), 0
    first, second = np.zeros(CHUNK, np.int32), np.zeros(CHUNK, np.int32)
    while done < most:
        many = min(CHUNK, most - done)
        draw_pairs(pairs, n, first[:many], second[:many])
        found = _watched(agents, memory, first[:many], second[:many], own, _Witnesses(rho))
        if found >= 0:
            return (done + int(found)) / n
        done += many
    return None


@kernel
def _spread(informed, first, second, left):  # type: ignore[no-untyped-def]
    for k in range(len(first)):
        u, v = first[k], second[k]
        if informed[u] != informed[v]:
            informed[u] = 1
            informed[v] = 1
            left -= 1
            if left == 0:
                return k + 1, left
    return len(first), left


def spreading_time(n: int, rng: np.random.Generator) -> float:
    """The parallel time in which what one agent knows reaches all."""
    informed, pairs, done, left = np.zeros(n, np.int8), words(rng), 0, n - 1
    informed[0] = 1
    first, second = np.zeros(CHUNK, np.int32), np.zeros(CHUNK, np.int32)
    while left:
        draw_pairs(pairs, n, first, second)
        met, left = _spread(informed, first, second, left)
        done += int(met)
    return done / n
