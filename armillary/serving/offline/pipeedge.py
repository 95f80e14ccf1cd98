"""PipeEdge finds the partition and the device order whose slowest stage is fastest, at one precision, by dynamic programming.

f[k, used, last] is the smallest possible longest stage time of the first k layers on the devices used so far, of which `last` is the last
one. The next stage takes layers k to m on a remaining device, and its time covers its compute and the transfer to it. Devices may be left
out. One micro-batch size serves both phases, and a stage's time is that of all its passes, prompts and tokens together. The published
system knows one kind of pass, and this is its strongest reading for generation (`phase` gives the others).

PipeEdge: Pipeline Parallelism for Large-Scale Model Inference on Heterogeneous Edge Devices, DSD 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from armillary.arena import Technique
from armillary.parameters import parameter

from .planning.plan import Plan, halved_until_it_fits, plan_of, problem_of
from .planning.problem import DoesNotFit, Problem, flat
from .workload import Device, OfflineWork


@dataclass(frozen=True)
class PipeEdge(Technique):
    """Finds the best partition by dynamic programming at a single precision (PipeEdge, DSD 2022)."""

    phase: Literal["both", "prefill", "decode"] = parameter("both", "the passes whose stage times are balanced")

    def plan_for(self, work: OfflineWork) -> Plan:
        """Plans at the fastest single precision within the work's quality, or at the highest that fits if any quality will do."""

        def make(batch: int) -> Plan:
            found = []
            for bit in reversed(range(len(work.bits))):
                if work.quality is not None and work.omegas[:, bit].sum() > work.quality * (1 + 1e-9):
                    continue
                try:
                    found.append(partitioned(work, batch, bit, self.phase))
                except DoesNotFit:
                    continue
                if work.quality is None:
                    break
            if not found:
                raise DoesNotFit(f"{work.model.name} does not fit {work.cluster.name} at one precision of at most that loss of quality")
            return min(found, key=lambda plan: plan.predicted_s)

        return halved_until_it_fits(work, make)


def partitioned(work: OfflineWork, batch: int, bit: int, phase: str = "both") -> Plan:
    """Returns the plan with the smallest longest stage at one precision (an index of the work's bits)."""
    size = -(-batch // len(work.devices))
    kinds: dict[tuple[str, str], list[Device]] = {}
    for device in work.devices:
        kinds.setdefault((device.kind, device.host), []).append(device)
    groups = list(kinds.values())
    one = [own[0] for own in groups]
    order, counts = _searched(work, one, [len(own) for own in groups], size, batch, bit, phase)
    left = [iter(own) for own in groups]
    devices = [next(left[g]) for g in order]
    problem = problem_of(work, devices, size, size, batch=batch)
    choice = flat(problem, counts, bit)
    if not problem.feasible(choice):
        raise DoesNotFit("no partition at one precision fits")
    return plan_of(work, devices, choice, size, size, batch=batch, predicted_s=problem.seconds(choice), solver="dynamic programming")


def _searched(
    work: OfflineWork, kinds: list[Device], counts: list[int], size: int, batch: int, bit: int, phase: str
) -> tuple[list[int], list[int]]:
    """Returns (kind of each stage, layers of each stage)."""
    # Each kind is priced as the first of a pipeline of one, with the additional duties of the first device.
    alone = [problem_of(work, [device], size, size, batch=batch) for device in kinds]
    layers = work.model.layers
    from .pricing.layer_cost import once_bytes

    def stage(problem: Problem, first: bool) -> Any:
        passes = (
            0.0 if phase == "decode" else problem.micro_prefill,
            0.0 if phase == "prefill" else problem.micro_decode * (problem.output - 1),
        )
        each = passes[0] * problem.prefill[:, 0, bit] + passes[1] * problem.decode[:, 0, bit]
        once = first * (passes[0] * problem.once_prefill[0] + passes[1] * problem.once_decode[0])
        budget = problem.budget[0] + (0.0 if first else once_bytes(work.model))
        time, held = (np.concatenate([[0.0], np.cumsum(x)]) for x in (each, problem.memory[:, bit]))
        cost = time[None, :] - time[:, None] + once
        fits = (held[None, :] - held[:, None] <= budget) & (np.arange(layers + 1)[None, :] > np.arange(layers + 1)[:, None])
        return np.where(fits, cost, np.inf)

    send = np.zeros((len(kinds), len(kinds)))
    usual, hidden = work.usual, work.model.hidden
    for a, here in enumerate(kinds):
        for b in range(len(kinds)):
            other = kinds[b] if a != b else next((d for d in work.devices if d.kind == here.kind and d is not here), here)
            latency, per_byte = work.cluster.alpha_beta(here.place, other.place) if other is not here else (0.0, 0.0)
            whole = alone[a].micro_prefill * (latency + per_byte * 2 * hidden * size * usual.prompt) * (phase != "decode")
            send[a, b] = whole + alone[a].micro_decode * (usual.output - 1) * (latency + per_byte * 2 * hidden * size) * (
                phase != "prefill"
            )
    costs = [[stage(problem, first) for first in (False, True)] for problem in alone]
    # For each (used, last): the smallest longest stage after k layers, and the layer and state from which its last stage began.
    start: tuple[int, ...] = (0,) * len(kinds)
    best: dict[tuple[tuple[int, ...], int], Any] = {(start, -1): np.where(np.arange(layers + 1) == 0, 0.0, np.inf)}
    back: dict[tuple[tuple[int, ...], int], tuple[Any, Any]] = {}
    queue = [(start, -1)]
    for used, last in queue:
        for g in range(len(kinds)):
            if used[g] == counts[g]:
                continue
            state = (tuple(n + (k == g) for k, n in enumerate(used)), g)
            met = np.maximum(best[used, last], send[last, g] if last >= 0 else 0.0)
            through = np.maximum(met[:, None], costs[g][last < 0])
            value, began = through.min(0), through.argmin(0)
            if state not in best:
                best[state] = np.full(layers + 1, np.inf)
                back[state] = (np.zeros(layers + 1, int), np.full(layers + 1, -1))
                queue.append(state)
            better = value < best[state]
            best[state] = np.where(better, value, best[state])
            back[state] = (np.where(better, began, back[state][0]), np.where(better, last, back[state][1]))
    end = min((s for s in best if s[1] >= 0), key=lambda s: best[s][layers], default=None)
    if end is None or not np.isfinite(best[end][layers]):
        raise DoesNotFit("no partition at one precision fits")
    order, sizes, at = [], [], layers
    while end[1] >= 0:
        began, before = int(back[end][0][at]), int(back[end][1][at])
        order.append(end[1])
        sizes.append(at - began)
        end, at = (tuple(n - (k == end[1]) for k, n in enumerate(end[0])), before), began
    return order[::-1], sizes[::-1]
