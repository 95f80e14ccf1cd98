"""PRT: let every micro-batch pass through the same GPUs several times, so that filling the pipeline costs a fraction.

A pipeline's depth need not equal the number of GPUs. The model is cut into D = r·p stages, and every micro-batch passes through the same p
GPUs r times ("reuse"): filling and draining cost one r-th as much. The step ideally takes (f + b)·(m + (p − 1)/r) for m ≥ p, where f and b
are a GPU's seconds per micro-batch. More rounds pay until transfers, or kernels that are too short, eat the gain. The idea does not
depend on the direction, so it applies to pipelines that run in both directions too (`prt-two`).

Only the abstract's facts are public to us, and the construction is our reconstruction. With the loop mapping its schedule is interleaved
1F1B with r chunks; what is added is the choice of r, the finer partition, the snake mapping and the two directions.

PRT: An Efficient Pipeline Reuse Technology for Large Models Training, IEEE CLUSTER 2025.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from armillary.arena import Claim, Gain, Kind, NotForThisCase, Technique
from armillary.errors import InputError, unknown
from armillary.parameters import parameter

from .orders.interleaved import interleaved
from .orders.one_way import one_f_one_b_order
from .orders.snake import snake
from .orders.two_ways import two_way
from .planning.layers import Division, LayeredWork, StagePlan, fastest
from .planning.partition import balanced_cuts
from .planning.promise import promised
from .planning.two_way import two_way_candidates
from .simulation.schedule import Schedule
from .simulation.simulator import simulate, unit_costs

Turns = Literal["loop", "snake"]
_WHY = "ten points either way: the number of micro-batches, the batch and r are not in the abstract"
_ONE = (
    Claim(
        "step_time_s", over=("gpipe", "1f1b"), by=Gain(ratio=(1.5478, None)), on=Kind("bert"), aggregate="max", honest=(1.45, 1.65),
        why=_WHY, says="up to 54.78 % more throughput than the pipeline without reuse on BERT", source="abstract",
    ),
    Claim(
        "step_time_s", over=("gpipe", "1f1b"), by=Gain(ratio=(1.7659, None)), on=Kind("resnet"), aggregate="max", honest=(1.6, 1.9),
        why=_WHY, says="up to 76.59 % more throughput than the pipeline without reuse on ResNet", source="abstract",
    ),
    Claim("memory_imbalance", over="1f1b", on=Kind("bert"), says="more balanced memory over the GPUs, on BERT", source="abstract"),
    Claim("memory_imbalance", over="1f1b", on=Kind("resnet"), says="more balanced memory over the GPUs, on ResNet", source="abstract"),
)  # fmt: skip
_TWO = (
    Claim(
        "step_time_s", over="chimera", by=Gain(ratio=(1.3038, None)), on=Kind("bert"), aggregate="max", honest=(1.2, 1.4), why=_WHY,
        says="up to 30.38 % more throughput than a bidirectional pipeline without reuse on BERT", source="abstract",
    ),
    Claim(
        "step_time_s", over="chimera", by=Gain(ratio=(1.2645, None)), on=Kind("resnet"), aggregate="max", honest=(1.16, 1.37), why=_WHY,
        says="up to 26.45 % more throughput than a bidirectional pipeline without reuse on ResNet", source="abstract",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Prt(Technique):
    """Reuse of the pipeline with a chosen or automatic number of rounds. PRT, IEEE CLUSTER 2025; the construction is ours."""

    reuse: int | None = parameter(None, "rounds through the GPUs; by default the fastest", range=(1, 256))
    mapping: Literal["best", "loop", "snake"] = parameter(
        "best", "whether rounds go on at the first GPU again, or turn around at the ends; by default the faster"
    )
    direction: Literal["one", "two"] = parameter("one", "one direction, or two copies of the model in opposite directions")
    shortest_s: float = parameter(1e-3, "seconds of a stage's passes below which more rounds are not tried", range=(0.0, 10.0))

    takes = frozenset({"layered"})
    claims = _ONE

    @classmethod
    def claims_with(cls, settings: Mapping[str, str]) -> tuple[Claim, ...]:
        """The claims of the direction."""
        return _TWO if settings.get("direction") == "two" else _ONE

    def plan(self, work: LayeredWork) -> StagePlan:
        """The fastest number of rounds, each on the partition with the least longest stage, with the cheapest recomputation that fits."""
        if self.direction == "two" and work.micros % 2:
            raise NotForThisCase(f"two directions need an even number of micro-batches; there are {work.micros}")
        return fastest(work, [plan for rounds in self.rounds(work) for plan in self._with(work, rounds)], "prt")[0]

    def rounds(self, work: LayeredWork) -> list[int]:
        """The numbers of rounds to try: the one that was asked for, or all for which stages stay long enough."""
        if self.reuse is not None:
            if self.reuse > work.depth:
                raise NotForThisCase(f"{self.reuse} rounds on {work.ranks} ranks need more than {work.layers.body} layers")
            return [self.reuse]
        whole = float((work.layers.forward + work.layers.backward).sum()) / work.ranks
        return [r for r in range(1, work.depth + 1) if r == 1 or whole / r >= self.shortest_s]

    def _with(self, work: LayeredWork, rounds: int) -> Iterator[StagePlan]:
        if self.direction == "two":
            yield from two_way_candidates(work, rounds, "prt-two", snake=self.mapping == "snake")
            return
        for option in np.argsort(work.layers.extra.sum(0), kind="stable").tolist():
            division = Division.uniform(work.layers, balanced_cuts(work.layers, work.ranks * rounds, work.layers.extra[:, option]), option)
            order = "1f1b" if rounds == 1 else "interleaved"
            predicted = promised(division, order, work.ranks, work.micros, rounds) + work.exposed(division)
            made = [StagePlan(division, each, predicted, "prt", rounds) for each in self._schedules(work, division, rounds)]
            yield from made
            # Every further option recomputes more, so it is tried only if memory asks for it.
            if any(work.fits(work.simulate(plan, actual=False)) for plan in made):
                return

    def _schedules(self, work: LayeredWork, division: Division, rounds: int) -> Iterator[Schedule]:
        if self.mapping != "snake" or rounds == 1:
            yield looped(work.ranks, work.micros, rounds)
        if self.mapping != "loop" and rounds > 1:
            forward, backward_input, backward_weight, again = division.seconds
            transfer = work.links.latency_s + float(np.mean(division.costs().sent)) / work.links.rate
            yield from snake(work.ranks, work.micros, rounds, forward, backward_input + backward_weight + again, transfer)


def schedule(
    p: int, m: int, reuse: int = 2, direction: Literal["one", "two"] = "one", mapping: Turns = "loop", *, forward: float = 1.0,
    backward: float = 2.0,
) -> Schedule:  # fmt: skip
    """The schedule of p GPUs, m micro-batches and `reuse` rounds, for equal stages of `forward` and `backward` seconds per GPU.

    `.to_csv(path)` writes it for torch's runtime, which takes the map of stages from the file: the loop is torch's Interleaved layout, the
    snake with two rounds its V layout.
    """
    if reuse < 1:
        raise InputError(f"reuse: found {reuse}; expected at least one round")
    if mapping not in ("loop", "snake"):
        raise unknown("mapping", str(mapping), ("loop", "snake"))
    if direction not in ("one", "two"):
        raise unknown("direction", str(direction), ("one", "two"))
    if direction == "one" and (mapping == "loop" or reuse == 1):
        return looped(p, m, reuse)
    each = np.full(p * reuse, 1 / reuse)
    if direction == "one":
        made = snake(p, m, reuse, forward * each, backward * each)
    else:
        made = two_way(p, m, forward * each, backward * each, reuse=reuse, snake=mapping == "snake")
    return min(
        made, key=lambda found: simulate(found, unit_costs(found, forward / reuse, backward / 2 / reuse, backward / 2 / reuse)).makespan
    )


def looped(p: int, m: int, reuse: int) -> Schedule:
    """The order of the loop mapping: groups of p micro-batches, each round after round. One round is 1F1B, more are interleaved 1F1B."""
    return one_f_one_b_order(p, m) if reuse == 1 else interleaved(p, m, reuse)


def ideal_seconds(p: int, m: int, reuse: int, forward: float, backward: float) -> float:
    """(f + b)·(m + (p − 1)/r) for m ≥ p.

    With fewer micro-batches one returns to the first GPU only after p hops: each direction takes ((r − 1)·max(m, p) + m + p − 1)/r times
    its seconds.
    """
    return (forward + backward) * ((reuse - 1) * max(m, p) + m + p - 1) / reuse if m < p else (forward + backward) * (m + (p - 1) / reuse)


def feasible_depth(
    m: int, p: int, layers: int, forward: float = 1.0, backward: float = 2.0, transfer_s: float = 0.0, shortest_s: float = 0.0
) -> int:
    """The number of rounds r ≤ layers/p that minimises the ideal step plus its transfers.

    A round adds p hops forward and p backward to the way of a micro-batch, and only the way of the first one is exposed. Rounds whose
    stages would take less than `shortest_s` are left out.
    """
    if not 1 <= p <= layers:
        raise InputError(f"found {p} ranks for {layers} layers; expected at least one layer per rank")
    allowed = [r for r in range(1, layers // p + 1) if r == 1 or (forward + backward) / r >= shortest_s]
    return min(allowed, key=lambda r: ideal_seconds(p, m, r, forward, backward) + 2 * (r * p - 1) * transfer_s)
