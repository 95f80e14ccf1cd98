"""SplitQuant's heuristic, bit-width transfer, lets fast stages take over layers of the slowest one at fewer bits.

The heuristic begins with the best quality that fits and then makes moves. The straggler is the stage with the largest T_pre·(m_p − 1) +
(n − 1)·(m_d − 1)·T_dec, and every faster stage (a pioneer) may take over layers from it. The conversions say how many layers fit in the
room of one pioneer layer: (16: two at 8), (8: one at 8), (16: four at 4), (8: two at 4), (4: one at 4). Layers keep their order, so the
stages between the two shift, and on every stage the lower precisions go to the layers where ω grows least. The best improving move that
fits is made, until there is none.

SplitQuant: Resource-Efficient LLM Offline Serving on Heterogeneous GPUs via Phase-Aware Model Partition and Adaptive Quantization,
IEEE CLUSTER 2025 (as LLM-PQ, arXiv 2403.01136). Our reading: as many layers move as the conversion says; a pioneer's layer of P
bits goes down to the new precision where memory asks for it; the straggler may also lower one of its own layers, or give up
precisions from either end. The start is exact where that is quick, else greedy with moved cuts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.claim import Claim

from .adabits import best_quality
from .planning.ilp import objective_of
from .planning.plan import Plan
from .planning.problem import Choice, DoesNotFit, Ints, Problem
from .splitquant import SplitQuant
from .workload import OfflineWork

#: (bits of a pioneer's layer, bits at which layers move, how many).
CONVERSIONS = ((16, 8, 2), (8, 8, 1), (16, 4, 4), (8, 4, 2), (4, 4, 1))
MOST_MOVES = 1000
#: The number of binaries up to which the start is found exactly.
EXACT_START = 240


@dataclass(frozen=True)
class SplitQuantH(SplitQuant):
    """SplitQuant with its heuristic in place of the mixed-integer program (IEEE CLUSTER 2025)."""

    claims: ClassVar[tuple[Claim, ...]] = ()

    def plan_for(self, work: OfflineWork) -> Plan:
        """Returns the plan for this work by running the heuristic on every order and pair of micro-batches."""
        return self.enumerated(work, exact=False)


def heuristic(problem: Problem, *, theta: float = 0.0, quality: float | None = None, start: Choice | None = None) -> Choice:
    """Returns the choice at which bit-width transfer ends; raises `DoesNotFit` if even the best quality that fits is over `quality`."""
    problem.check()
    choice = start or quality_start(problem)
    if quality is not None and problem.quality(choice) > quality * (1 + 1e-9) + 1e-12:
        raise DoesNotFit(f"the best quality found that fits loses {problem.quality(choice):.4g}; {quality:.4g} is allowed")
    now = objective_of(problem, choice, theta)
    for _ in range(MOST_MOVES):
        best, at = None, now
        for other in moves(problem, choice):
            if quality is not None and problem.quality(other) > quality * (1 + 1e-9) + 1e-12:
                continue
            then = objective_of(problem, other, theta)
            if then < at * (1 - 1e-9) and problem.feasible(other):
                best, at = other, then
        if best is None:
            return choice
        choice, now = best, at
    return choice


def stage_weight(problem: Problem, choice: Choice) -> np.ndarray:
    """Returns T_pre·(m_p − 1) + (n − 1)·(m_d − 1)·T_dec of every stage, or the plain times with one micro-batch; the largest straggles."""
    pre, dec = problem.stage_times(choice)
    weight = pre * (problem.micro_prefill - 1) + dec * (problem.output - 1) * (problem.micro_decode - 1)
    return weight if weight.max() > 0 else pre + dec * (problem.output - 1)


def moves(problem: Problem, choice: Choice) -> Iterator[Choice]:
    """Yields every move from this choice."""
    weight = stage_weight(problem, choice)
    straggler = int(weight.argmax())
    slots = [np.sort(choice.bits[choice.layers_of(j)]) for j in range(problem.devices)]
    place = {bits: k for k, bits in enumerate(problem.bits)}
    for lower in range(len(problem.bits)):
        for higher in np.unique(slots[straggler][slots[straggler] > lower]):
            yield arranged(problem, _with(slots, straggler, _replaced(slots[straggler], int(higher), lower)))
    for pioneer in range(problem.devices):
        if weight[pioneer] >= weight[straggler]:
            continue
        for held, moved, count in CONVERSIONS:
            if held not in place or moved not in place or place[held] not in slots[pioneer] or len(slots[straggler]) <= count:
                continue
            for kept in (slots[straggler][count:], slots[straggler][:-count]):
                more = np.append(slots[pioneer], [place[moved]] * count)
                taken = [more] if moved == held else [more, _replaced(more, place[held], place[moved])]
                for own in taken:
                    yield arranged(problem, _with(_with(slots, straggler, kept), pioneer, own))


def _with(slots: list[Ints], at: int, new: Ints) -> list[Ints]:
    return [new if j == at else old for j, old in enumerate(slots)]


def _replaced(slots: Ints, old: int, new: int) -> Ints:
    out = slots.copy()
    out[int(np.flatnonzero(out == old)[0])] = new
    return out


def arranged(problem: Problem, slots: list[Ints]) -> Choice:
    """Returns the layers in order over the stages, as many as each has precisions; the most sensitive layers of a stage get most bits."""
    device = np.repeat(np.arange(problem.devices), [len(s) for s in slots])
    bits = np.empty(problem.layers, np.int64)
    at = 0
    for own in slots:
        if len(own):
            minds = problem.omega[at : at + len(own), 0]
            bits[at + np.argsort(-minds, kind="stable")] = np.sort(own)[::-1]
        at += len(own)
    return Choice(device, bits)


def quality_start(problem: Problem) -> Choice:
    """Returns the best quality that fits, exactly if the program is small, else with greedy bits and cuts that move while that helps."""
    if problem.layers * problem.devices * len(problem.bits) <= EXACT_START:
        return best_quality(problem, limit_s=10.0)[0]
    least = problem.memory[:, 0]
    room = np.maximum(problem.budget, 0.0)
    # At these cuts, layers at the fewest bits fill the devices in proportion.
    edges = np.concatenate([[0.0], np.cumsum(room)]) / room.sum() * least.sum()
    ends = np.searchsorted(np.cumsum(least), edges[1:-1], side="right")
    counts = np.diff(np.concatenate([[0], ends, [problem.layers]]))
    while (counts < 1).any():
        counts[int(counts.argmax())] -= 1
        counts[int(counts.argmin())] += 1
    best, found = _greedy(problem, counts)
    for _ in range(10 * problem.layers):
        tried = []
        for a in range(problem.devices):
            for b in range(problem.devices):
                if a != b and counts[a] > 1:
                    moved = counts.copy()
                    moved[a] -= 1
                    moved[b] += 1
                    tried.append((*_greedy(problem, moved), moved))
        if not tried:
            break
        value, choice, moved = min(tried, key=lambda each: each[0])
        if value >= best * (1 - 1e-12):
            break
        best, found, counts = value, choice, moved
    if not problem.feasible(found):
        return best_quality(problem, limit_s=10.0, gap=0.05)[0]
    return found


def _greedy(problem: Problem, counts: Ints) -> tuple[float, Choice]:
    """Returns (Σω, choice) for these layers per device: bits rise from the fewest where a byte gains most; misfits count as penalties."""
    layers = np.arange(problem.layers)
    device, bits = np.repeat(np.arange(problem.devices), counts), np.zeros(problem.layers, np.int64)
    left = problem.budget - np.bincount(device, problem.memory[:, 0], problem.devices)
    over = float(np.maximum(-left, 0.0).sum())
    # Steps to more bits are sorted by worth. A layer's own steps stay in order, because each is worth less than the one before.
    gain = problem.omega[:, :-1] - problem.omega[:, 1:]
    size = np.maximum(problem.memory[:, 1:] - problem.memory[:, :-1], 1e-300)
    order = np.argsort(-(gain / size).ravel(), kind="stable")
    for flat in order:
        layer, step = divmod(int(flat), gain.shape[1])
        if bits[layer] == step and size[layer, step] <= left[device[layer]]:
            left[device[layer]] -= size[layer, step]
            bits[layer] = step + 1
    value = float(problem.omega[layers, bits].sum())
    scale = float(problem.omega.max()) * problem.layers + 1.0
    return value + (scale * (1 + over / problem.memory.max()) if over > 0 else 0.0), Choice(device, bits)
