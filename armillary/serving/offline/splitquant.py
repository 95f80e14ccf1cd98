"""SplitQuant chooses the layer split, every layer's bits and both micro-batches together, for both phases at once.

Prompts are bound by compute and tokens by memory, and old devices are slower by different factors in the two phases. A split that is even
in one phase is therefore uneven in the other, and a layer at fewer bits on a slow device may cost less quality than it saves time. A
mixed-integer program (`planning/ilp.py`) is exact for one order of the devices and one pair of micro-batches. Orders and micro-batches are
enumerated, and those whose relaxation is worse than the best known plan are skipped. Deep models are solved for pairs of layers, and
the result is improved layer by layer (ours). Times come from the published linear latency model
(`pricing/latency_model.py`), and quality from its indicator ω (`quality/indicator.py`).

SplitQuant: Resource-Efficient LLM Offline Serving on Heterogeneous GPUs via Phase-Aware Model Partition and Adaptive Quantization,
IEEE CLUSTER 2025 (its first form: LLM-PQ, arXiv 2403.01136). The released planner needs a commercial solver; this one uses HiGHS.
Our design: the order of the enumeration, the bound that skips, a batch that is halved if nothing fits, and the stand-in for ω if no
weights are given.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from armillary.arena import Technique
from armillary.claim import Claim, Gain, Kind, Level
from armillary.errors import InputError
from armillary.parameters import parameter

from .planning.ilp import Solver, objective_of, relaxed, solve
from .planning.plan import Plan, halved_until_it_fits, plan_of, problem_of
from .planning.problem import Choice, DoesNotFit, Problem
from .pricing.latency_model import LatencyModel, fit, read_profile
from .quality.indicator import OmegaTable, read_omega
from .workload import BITS, UNGROUPED, Device, OfflineWork

if TYPE_CHECKING:
    from armillary.cluster import Cluster
    from armillary.llm import Model

#: Every other planner that keeps the bound on quality; memory-proportional takes 4 bits whatever is lost.
_OVER = ("pipeedge", "uniform", "flexgen", "adabits")
_WHY = "our devices are modelled, not measured, and the clusters are our reading of the published mixes"


@dataclass(frozen=True)
class SplitQuant(Technique):
    """Plans with SplitQuant's exact program (IEEE CLUSTER 2025): layer split, bits and micro-batches together."""

    theta: float = parameter(0.0, "seconds that one unit of lost quality (Σω) is worth; at 0 only the bound counts", range=(0, 1e9))
    quality: float | None = parameter(None, "the largest Σω allowed; none takes the work's own bound, or any with theta")
    objective: Literal["paper", "released"] = parameter("paper", "whose form the last pipeline term has: the paper's or the release's")
    orders: Literal["types", "all", "given"] = parameter(
        "types", "device orders tried: those of the kinds, all that differ, or the cluster's own"
    )
    group: int = parameter(0, "layers that share a device and bits; 0 means one, or two above 40 layers", range=(0, 64))
    allow_empty: bool = parameter(False, "whether devices may go without layers")
    gap: float = parameter(1e-4, "relative gap at which the solver stops", range=(0, 1))
    limit_s: float = parameter(60.0, "seconds for the solver on one order and pair of micro-batches", range=(0.01, 86400))
    total_s: float = parameter(300.0, "seconds for all of them, after which the best plan so far is returned", range=(0.01, 86400))
    solver: Solver = parameter("auto", "the interface to HiGHS: scipy, highspy (with a start), or auto, which is scipy")

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim("token_throughput", over=_OVER, by=Gain(ratio=(1.61, None)), on=Kind("published"), honest=(1.3, 2.0), why=_WHY,
              says="1.61 times the tokens per second of the best other planner on average, at no worse quality",
              source="abstract"),
        Claim("token_throughput", over=_OVER, by=Gain(ratio=(2.34, None)), on=Kind("published"), aggregate="max", honest=(1.8, None),
              why=_WHY, says="up to 2.34 times the tokens per second of the state of the art", source="abstract"),
        Claim("over_quality", by=Level(at_most=0.0), on=Kind("published"), says="no quality violation", source="abstract"),
    )  # fmt: skip

    def plan(
        self, model: str | Path | Model | Mapping[str, Any], cluster: Cluster | str | Path, *, prompt: Any = 512, output: Any = 100,
        batch: int = 32, bits: Sequence[int] = BITS, omega: OmegaTable | str | Path | None = None,
        profile: LatencyModel | str | Path | Mapping[str, str | Path] | None = None,
    ) -> Plan:  # fmt: skip
        """Returns the plan for a model (`config.json`, preset) on a cluster (file, preset); `prompt` and `output` are in tokens.

        omega: a table, or CSV `layer,bits,omega`; without one a stand-in is used. profile: measured latencies of the devices, a CSV with a
        column `device` or one CSV for each device; without one the operators of `armillary.llm` are used.
        """
        table = omega if isinstance(omega, OmegaTable) or omega is None else read_omega(omega)
        work = OfflineWork.of(
            model, cluster, prompt=prompt, output=output, batch=batch, omega=table, bits=bits, profile=profile_of(profile)
        )
        return self.plan_for(work)

    def plan_for(self, work: OfflineWork) -> Plan:
        """Returns the plan for this work."""
        return self.enumerated(work, exact=True)

    def validate(self) -> None:
        """Raises InputError for a negative bound on quality."""
        if self.quality is not None and not self.quality >= 0:
            raise InputError(f"quality: found {self.quality}; expected 0 or more, or none")

    def bound(self, work: OfflineWork) -> float | None:
        """Returns the largest Σω allowed: the technique's own bound, or else that of the work unless θ weighs quality already."""
        return self.quality if self.quality is not None else None if self.theta > 0 else work.quality

    def enumerated(self, work: OfflineWork, *, exact: bool) -> Plan:
        """Returns the best plan over orders and micro-batches, for the whole batch or the largest part of it that fits."""
        return halved_until_it_fits(work, lambda batch: self._best(work, batch, exact))

    def _best(self, work: OfflineWork, batch: int, exact: bool) -> Plan:
        until = time.monotonic() + self.total_s
        quality = self.bound(work)
        group = max(work.group, self.group or (2 if exact and work.model.layers > UNGROUPED else 1))
        tried: list[tuple[float, Choice | None, Problem, tuple[Device, ...], int, int]] = []
        problem, trouble = None, None
        for order in self.device_orders(work.devices, work.model.layers):
            for p, d in micro_batches(batch, len(order)):
                try:
                    problem = problem_of(work, order, p, d, batch=batch, group=group, released=self.objective == "released")
                    problem.check(empty=self.allow_empty)
                    found = self._heuristic(problem, quality)
                except DoesNotFit as problem_with:
                    trouble = trouble or problem_with
                    continue
                value = objective_of(problem, found, self.theta) if found is not None else float("inf")
                tried.append((value, found, problem, order, p, d))
        if not tried:
            raise trouble or DoesNotFit(f"{work.model.name} does not fit {work.cluster.name}")
        tried.sort(key=lambda each: each[0])
        best = tried[0]
        how, passed, solved = "heuristic", 0, 0
        for _value, start, problem, order, p, d in tried if exact else ():
            if time.monotonic() > until:
                how += ", out of time"
                break
            if relaxed(problem, theta=self.theta, quality=quality, empty=self.allow_empty) >= best[0] * (1 - self.gap):
                passed += 1
                continue
            try:
                limit = max(0.01, min(self.limit_s, until - time.monotonic()))
                exactly = solve(
                    problem, theta=self.theta, quality=quality, empty=self.allow_empty, start=start, gap=self.gap, limit_s=limit,
                    solver=self.solver,
                )  # fmt: skip
            except DoesNotFit:
                continue
            solved += 1
            if exactly.objective < best[0] or solved == 1:
                how = exactly.solver
            if exactly.objective < best[0] or best[1] is None:
                best = (exactly.objective, exactly.choice, problem, order, p, d)
        _value, choice, problem, order, p, d = best
        if choice is None:
            raise DoesNotFit(f"{work.model.name} does not fit {work.cluster.name} at Σω of at most {quality}")
        alone = exact and not self.group and group > work.group == 1
        if alone:
            problem = problem_of(work, order, p, d, batch=batch, released=self.objective == "released")
            choice = self._ungrouped(problem, choice, group, quality)
            group = 1
        notes = (f"{len(tried)} orders and micro-batches, {solved} solved, {passed} passed over by their bound",) if exact else ()
        plan = plan_of(work, order, choice, p, d, batch=batch, group=group, predicted_s=problem.seconds(choice), solver=how, notes=notes)
        return self._or_heuristic(plan, batch) if alone else plan

    def _ungrouped(self, problem: Problem, choice: Choice, group: int, quality: float | None) -> Choice:
        """Returns the choice for groups of layers, improved by changes of single layers."""
        from .splitquant_h import polished

        device, bits = (np.repeat(x, group)[: problem.layers] for x in (choice.device, choice.bits))
        return polished(problem, Choice(device, bits), self.theta, quality)

    def _or_heuristic(self, plan: Plan, batch: int) -> Plan:
        """Returns the plan that was solved for groups, or the heuristic's for single layers where that is better."""
        try:
            quick = self._best(plan.work, batch, exact=False)
        except DoesNotFit:
            return plan
        ours, theirs = (each.predicted_s + self.theta * each.quality_loss for each in (plan, quick))
        return replace(quick, notes=plan.notes) if theirs < ours else plan

    def _heuristic(self, problem: Problem, quality: float | None) -> Choice | None:
        from .splitquant_h import heuristic

        try:
            return heuristic(problem, theta=self.theta, quality=quality)
        except DoesNotFit:
            if type(self) is SplitQuant:
                return None  # the exact program decides
            raise

    def device_orders(self, devices: Sequence[Device], layers: int) -> Iterator[tuple[Device, ...]]:
        """Returns the orders to try; devices of one kind on one node are interchangeable."""
        if len(devices) > layers and not self.allow_empty:
            devices = devices[:layers]
        return orders(devices, self.orders)


def orders(devices: Sequence[Device], which: Literal["types", "all", "given"] = "types") -> Iterator[tuple[Device, ...]]:
    """Yields the distinct orders of devices: of whole kinds (those of one kind on one node together), of all, or only the given one."""
    if which == "given":
        yield tuple(devices)
        return
    kinds: dict[tuple[str, str], list[Device]] = {}
    for device in devices:
        kinds.setdefault((device.kind, device.host), []).append(device)
    if which == "types":
        for names in itertools.permutations(kinds):
            yield tuple(d for name in names for d in kinds[name])
        return
    for names in _arrangements([(name, len(own)) for name, own in kinds.items()]):
        left = {name: iter(own) for name, own in kinds.items()}
        yield tuple(next(left[name]) for name in names)


def _arrangements(counts: list[tuple[Any, int]]) -> Iterator[tuple[Any, ...]]:
    if not any(n for _, n in counts):
        yield ()
        return
    for k, (name, n) in enumerate(counts):
        if n:
            for rest in _arrangements([*counts[:k], (name, n - 1), *counts[k + 1 :]]):
                yield (name, *rest)


def micro_batches(batch: int, devices: int) -> Iterable[tuple[int, int]]:
    """Yields (prefill, decode) micro-batches: decode is the batch over the devices, and prefill takes each divisor of that."""
    decode = -(-batch // devices)
    return [(p, decode) for p in range(1, decode + 1) if decode % p == 0]


def profile_of(profile: LatencyModel | str | Path | Mapping[str, str | Path] | None) -> LatencyModel | None:
    """Returns the latency model of measured profiles, a given model unchanged, or None."""
    if profile is None or isinstance(profile, LatencyModel):
        return profile
    if isinstance(profile, Mapping):
        return fit([row for device, path in profile.items() for row in read_profile(path, device)], source="profiles")
    return fit(read_profile(profile), source=str(profile))
