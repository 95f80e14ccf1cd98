"""Which tensors share a buffer.

One buffer needs a shard that is a multiple of the granularities of all its large tensors, and their least common multiple may be huge (rows
of 8,192 and of 28,672 elements in blocks of 32 rows: 1.8 million elements, on every rank). Two remedies, both ours: tensors whose
granularities do not divide one another get buffers of their own, which costs one more collective, and neighbouring modules share buffers,
which costs memory, because they are gathered together. Both stop as soon as little enough is padded.
"""

from __future__ import annotations

from collections.abc import Sequence

from .granularity import Weight
from .planner import ALIGN, Plan, plan_weights

#: Below this padding ratio one buffer is good enough.
LITTLE = 0.01


def divided(weights: Sequence[Weight], n: int, *, align: int = ALIGN) -> list[Plan]:
    """Plan tensors in one buffer per chain of granularities of which each divides the next; returns one plan per buffer.

    Tensors that may be cut anywhere join the buffer in which they cost least, or have one of their own.
    """
    chains: list[list[Weight]] = []
    for weight in sorted((w for w in weights if w.grain > 1), key=lambda w: -w.grain):
        for chain in chains:
            if chain[0].grain % weight.grain == 0:
                chain.append(weight)
                break
        else:
            chains.append([weight])
    filler = [w for w in weights if w.grain == 1]
    plans = [plan_weights(chain, n, align=align) for chain in chains]
    if not filler:
        return plans
    best = [*plans, plan_weights(filler, n, align=align)]
    for i, chain in enumerate(chains):
        tried = [*plans[:i], plan_weights([*chain, *filler], n, align=align), *plans[i + 1 :]]
        if sum(p.shard for p in tried) <= sum(p.shard for p in best):
            best = tried
    return best


def padding_of(plans: Sequence[Plan]) -> float:
    """The padding ratio of several buffers together."""
    return sum(p.n * p.shard for p in plans) / sum(p.elements for p in plans) - 1


def merged(
    modules: Sequence[Sequence[Weight]], n: int, *, padding: float = 0.05, most: int = 4, divide: bool = True, align: int = ALIGN
) -> list[tuple[int, list[Plan]]]:
    """Group neighbouring modules and plan their buffers; returns (modules in the group, plans) in order.

    A group has one buffer, or several (`divide`) where one would be padded by more than a hundredth. It is the shortest run of modules with
    less than `padding`. If no run of up to `most` modules has, it is the one with the least padding where that halves the padding of the
    module by itself, and the module by itself otherwise. Equal runs of modules are planned once; `padding` 0 merges none.
    """
    known: dict[tuple[Weight, ...], list[Plan]] = {}

    def planned(group: Sequence[Weight]) -> list[Plan]:
        # Planned under numbers, so that equal modules can take the plan over.
        numbered = tuple(Weight(str(i), w.shape, w.block) for i, w in enumerate(group))
        if numbered not in known:
            known[numbered] = [plan_weights(numbered, n, align=align)]
            if divide and padding_of(known[numbered]) >= LITTLE:
                known[numbered] = min(known[numbered], divided(numbered, n, align=align), key=padding_of)
        return [Plan(n, p.shard, tuple(group[int(w.name)] for w in p.weights), p.offsets, p.bound) for p in known[numbered]]

    found: list[tuple[int, list[Plan]]] = []
    at = 0
    while at < len(modules):
        tried: list[tuple[float, int, list[Plan]]] = []
        for length in range(1, min(most, len(modules) - at) + 1 if padding > 0 else 2):
            plans = planned([w for module in modules[at : at + length] for w in module])
            tried.append((padding_of(plans), length, plans))
            if tried[-1][0] < padding:
                break
        best = tried[-1] if tried[-1][0] < padding else min(tried, key=lambda each: each[:2])
        if best[0] >= padding and best[0] > tried[0][0] / 2:
            best = tried[0]
        found.append(best[1:])
        at += best[1]
    return found


def padding_by_rule(weights: Sequence[Weight], n: int, *, align: int = ALIGN) -> dict[str, float]:
    """What each block costs in one buffer: the padding ratio with all blocks, with each kind of block alone, and with none."""
    found = {"all": plan_weights(weights, n, align=align).padding_ratio}
    kinds = dict.fromkeys(str(w.block) for w in weights if w.grain > 1)
    for kind in kinds:
        alone = [w if str(w.block) == kind else Weight(w.name, w.shape) for w in weights]
        found[kind] = plan_weights(alone, n, align=align).padding_ratio
    found["none"] = plan_weights([Weight(w.name, w.shape) for w in weights], n, align=align).padding_ratio
    return found
