"""SplitQuant's heuristic, bit-width transfer, lets fast stages take over layers of the slowest one at fewer bits.

The heuristic begins with the best quality that fits and then makes moves. The straggler is the stage with the largest T_pre·(m_p − 1) +
(n − 1)·(m_d − 1)·T_dec, and every faster stage (a pioneer) may take over layers from it. The conversions say how many layers fit in the
room of one pioneer layer: (16: two at 8), (8: one at 8), (16: four at 4), (8: two at 4), (4: one at 4). Layers keep their order, so the
stages between the two shift, and on every stage the lower precisions go to the layers where ω grows least. The best improving move that
fits is made, until there is none.

SplitQuant: Resource-Efficient LLM Offline Serving on Heterogeneous GPUs via Phase-Aware Model Partition and Adaptive Quantization,
IEEE CLUSTER 2025 (as LLM-PQ, arXiv 2403.01136). Our reading: as many layers move as the conversion says; a pioneer's layer of P
bits goes down to the new precision where memory asks for it; the straggler may also lower one of its own layers, or give up
precisions from either end. The start is exact where that is quick, else greedy with moved cuts. Our addition is what follows the
transfers: single changes and pairs of changes on any stage (`polished`), without which small plans ended up to 44 % from the best.
"""

from __future__ import annotations

import itertools
import math
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
#: Improvements after the transfers, candidates of each that are tried, and changes up to which all pairs of them are looked at.
MOST_POLISH, MOST_TRIED, MOST_CHANGES = 400, 16, 160
#: The number of ways to cut up to which each of them is a start.
FEW_CUTS = 40
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
    transferred = _transferred(problem, choice, theta, quality)
    # Transfers look at the straggler only, so a plan in which another stage, or two changes at once, would help is improved afterwards.
    most = np.inf if quality is None else quality * (1 + 1e-9) + 1e-12
    starts = [transferred, *(c for c in balanced_starts(problem) if problem.feasible(c) and problem.quality(c) <= most)]
    return min((polished(problem, each, theta, quality) for each in starts), key=lambda c: objective_of(problem, c, theta))


def balanced_starts(problem: Problem) -> Iterator[Choice]:
    """Yields cuts at which the stages take equally long in either phase or in both, or all cuts if they are few, with greedy bits."""
    if math.comb(problem.layers - 1, problem.devices - 1) <= FEW_CUTS:
        for cuts in itertools.combinations(range(1, problem.layers), problem.devices - 1):
            yield _greedy(problem, np.diff([0, *cuts, problem.layers]))[1]
        return
    middle = len(problem.bits) // 2
    prefill, decode = problem.prefill[:, :, middle].mean(0), problem.decode[:, :, middle].mean(0)
    both = prefill * max(1, problem.prefill_turns) + decode * max(1, problem.decode_turns)
    for seconds in (prefill, decode, both):
        speed = 1.0 / np.maximum(seconds, 1e-300)
        counts = np.diff(np.rint(np.concatenate([[0.0], np.cumsum(speed)]) / speed.sum() * problem.layers)).astype(np.int64)
        while (counts < 1).any():
            counts[int(counts.argmax())] -= 1
            counts[int(counts.argmin())] += 1
        yield _greedy(problem, counts)[1]


def _transferred(problem: Problem, choice: Choice, theta: float, quality: float | None) -> Choice:
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


def polished(problem: Problem, choice: Choice, theta: float = 0.0, quality: float | None = None) -> Choice:
    """Returns the choice after single changes and pairs of changes, the best first, until none improves seconds + θ·Σω within `quality`.

    A change gives one layer other bits, or moves the first or last layer of a stage to its neighbour at any bits.
    """
    most = np.inf if quality is None else quality * (1 + 1e-9) + 1e-12
    for _ in range(MOST_POLISH):
        better = _improved(problem, choice, theta, most)
        if better is None:
            return choice
        choice = better
    return choice


def _improved(problem: Problem, choice: Choice, theta: float, most: float) -> Choice | None:
    layer, device, bits = _changes(problem, choice)
    pre, dec = (np.zeros((len(layer), problem.devices)) for _ in range(2))
    held = np.zeros_like(pre)
    rows, was, had = np.arange(len(layer)), choice.device[layer], choice.bits[layer]
    for table, into in ((problem.prefill, pre), (problem.decode, dec)):
        np.add.at(into, (rows, was), -table[layer, was, had])
        np.add.at(into, (rows, device), table[layer, device, bits])
    np.add.at(held, (rows, was), -problem.memory[layer, had])
    np.add.at(held, (rows, device), problem.memory[layer, bits])
    omega = problem.omega[layer, bits] - problem.omega[layer, had]
    now = objective_of(problem, choice, theta)
    for a, b in ((rows, None), _pairs(layer, was, device)):
        together = [x[a] if b is None else x[a] + x[b] for x in (pre, dec, held, omega)]
        values = _values(problem, choice, theta, most, *together)
        for best in np.argsort(values, kind="stable")[:MOST_TRIED]:
            if not values[best] < now * (1 - 1e-9):
                break
            found = Choice(choice.device.copy(), choice.bits.copy())
            for change in (a[best],) if b is None else (a[best], b[best]):
                found.device[layer[change]], found.bits[layer[change]] = device[change], bits[change]
            if problem.feasible(found) and objective_of(problem, found, theta) < now * (1 - 1e-9):
                return found
    return None


def _changes(problem: Problem, choice: Choice) -> tuple[Ints, Ints, Ints]:
    """Returns (layer, device, bits) of every single change."""
    kinds = np.arange(len(problem.bits))
    layers = np.arange(problem.layers)
    cut = np.flatnonzero(np.diff(choice.device)) + 1
    layer = np.concatenate([np.repeat(layers, len(kinds)), np.repeat(cut, len(kinds)), np.repeat(cut - 1, len(kinds))])
    device = np.concatenate([choice.device[np.repeat(layers, len(kinds))], np.repeat(choice.device[cut - 1], len(kinds)),
                             np.repeat(choice.device[cut], len(kinds))])  # fmt: skip
    bits = np.tile(kinds, problem.layers + 2 * len(cut))
    real = (device != choice.device[layer]) | (bits != choice.bits[layer])
    return layer[real], device[real], bits[real]


def _pairs(layer: Ints, was: Ints, device: Ints) -> tuple[Ints, Ints]:
    """Returns the pairs of changes to different layers; beyond `MOST_CHANGES` only those with a move between stages."""
    moves = np.flatnonzero(was != device)
    first = np.arange(len(layer)) if len(layer) <= MOST_CHANGES else moves
    a, b = (x.ravel() for x in np.meshgrid(first, np.arange(len(layer)), indexing="ij"))
    real = layer[a] != layer[b]
    return a[real], b[real]


def _values(
    problem: Problem, choice: Choice, theta: float, most: float, pre: np.ndarray, dec: np.ndarray, held: np.ndarray, omega: np.ndarray
) -> np.ndarray:
    """Returns seconds + θ·Σω after each change of the stages' times; infinite where memory or quality does not allow it."""
    layers = np.arange(problem.layers)
    total = []
    for table, once, send, more in (
        (problem.prefill, problem.once_prefill, problem.send_prefill, pre), (problem.decode, problem.once_decode, problem.send_decode, dec),
    ):  # fmt: skip
        each = np.bincount(choice.device, table[layers, choice.device, choice.bits], problem.devices)
        total.append(np.maximum(each + once + more, send))
    seconds = total[0].sum(1) + problem.prefill_turns * total[0].max(1)
    if problem.decodes:
        seconds += total[1].sum(1) + problem.decode_turns * total[1].max(1)
    lost = problem.quality(choice) + omega
    fits = (problem.held(choice) + held <= problem.budget * (1 + 1e-9) + 1e-12).all(1) & (lost <= most)
    return np.where(fits, seconds + theta * lost, np.inf)


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
