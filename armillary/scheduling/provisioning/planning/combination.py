"""SoCL's large scale of combination: neighbouring groups of a service merge and drop an instance, many services at a time.

Given where all other services are, each service can be judged by itself, so the services are evaluated side by side. Their merges are
applied in the order of gain, each played out again in the state that the earlier ones left.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .moves import losses
from .partition import Groups
from .state import LEAST_GAIN, State

#: (estimated gain, service, group, other group, node whose instance goes)
Merge = tuple[float, int, int, int, int]


def combine(state: State, groups: dict[int, Groups], workers: int = 1, accepted: Callable[[float], None] | None = None) -> int:
    """Merges groups, at most every second one per round and service, until a round brings nothing; returns how many merges were kept.

    The loops that evaluate a service run outside the interpreter's lock, so `workers` threads share them out; the result does not depend
    on their number.
    """
    group = {m: found.group.copy() for m, found in groups.items()}
    kept = 0
    with ThreadPoolExecutor(max(1, workers)) as pool:
        while True:
            found = [merge for merges in pool.map(lambda m: merges_of(state, m, group[m]), sorted(group)) for merge in merges]
            busy: set[tuple[int, int]] = set()
            merged = 0
            for _, m, g, h, k in sorted(found, key=lambda merge: (-merge[0], merge[1:])):
                if (m, g) in busy or (m, h) in busy or not state.has[m, k]:
                    continue
                if state.change(drop=[(m, k)]):
                    busy |= {(m, g), (m, h)}
                    group[m][group[m] == h] = g
                    merged += 1
                    if accepted is not None:
                        accepted(state.objective)
            kept += merged
            if not merged:
                return kept


def merges_of(state: State, m: int, group: np.ndarray) -> list[Merge]:
    """The merges of two adjacent groups of a service that promise a gain: in each, the instance goes whose removal costs least."""
    p = state.problem
    nodes = state.held[m, : state.count[m]]
    if len(nodes) < 2:
        return []
    gains = state.per_price * p.price[m] - state.per_ms * losses(state, m, state.by_node(m))
    best: dict[int, tuple[float, int]] = {}
    for k, gain in zip(nodes.tolist(), gains.tolist()):
        g = int(group[k])
        if g not in best or gain > best[g][0]:
            best[g] = (gain, k)
    pairs = {(min(a, b), max(a, b)) for a, b in zip(group[p.link_a].tolist(), group[p.link_b].tolist()) if a != b}
    found = []
    for g, h in sorted(pairs):
        if g in best and h in best:
            gain, k = max(best[g], best[h], key=lambda one: (one[0], -one[1]))
            if gain > LEAST_GAIN:
                found.append((gain, m, g, h, k))
    return found
