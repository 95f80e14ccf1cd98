"""BMPipe: partition, recomputation and bubbles are one problem, so one integer linear programme decides them together.

Moving a layer changes a stage's time, its memory and every other stage's waiting. Step time and memory are written as linear expressions
of how many layers of each type, with each option of recomputation, sit on each stage (`planning/symbolic.py`), and an ILP chooses all of
them at once. The best few solutions are simulated together with the baselines' plans, and the fastest that fits is returned, because the
simulator and not the model is the judge.

Published are the one symbolic model of computation, memory and bubbles, and that an ILP solves it. The expressions are our design, checked
by simulation.

BMPipe: Bubble-Memory Co-optimization Strategy Planner for Very-large DNN Training, IEEE CLUSTER 2025.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from armillary.arena import Claim, Gain, Kind, NotForThisCase, Technique
from armillary.errors import InputError
from armillary.parameters import parameter

from .adapipe import AdaPipe
from .megatron_uniform import MegatronUniform
from .merak import Merak
from .pipedream import PipeDream
from .planning.in_flight import ORDERS
from .planning.layers import Division, LayeredWork, Layers, StagePlan, even_cuts, fastest
from .planning.search import CHUNKS, Setting, needed, settings
from .planning.symbolic import Program, Units
from .simulation.simulator import Links, Simulated

#: Integers of a programme beyond which it is not set up.
MOST_VARIABLES = 20_000
_WHY = "figures on NPUs are reported, not published, and the models of layers are ours"


@dataclass(frozen=True)
class BmPipe(Technique):
    """An ILP over partition, recomputation and bubbles at once. BMPipe, IEEE CLUSTER 2025; the expressions are ours."""

    chunks: tuple[int, ...] = parameter(CHUNKS, "numbers of chunks per rank to try", range=(1, 64))
    orders: tuple[str, ...] = parameter(ORDERS, "kinds of schedule to try", choices=ORDERS)
    solutions: int = parameter(5, "solutions of the most promising programmes that are simulated", range=(1, 50))
    gap: float = parameter(0.005, "relative gap at which the solver stops", range=(0.0, 0.5))
    nodes: int = parameter(1000, "nodes at which the solver stops, divided by the square of the chunks", range=(1, 10_000_000))
    recompute: Literal["free", "uniform"] = parameter("free", "an option per layer and stage, or one for all layers")
    partition: Literal["free", "even"] = parameter("free", "any number of layers per stage, or the even split")
    bubble: bool = parameter(True, "whether the programme sees the bubble, or only the slowest stage")
    fallback: bool = parameter(True, "whether the baselines' plans are candidates too")

    takes = frozenset({"layered"})
    claims = (
        Claim(
            "step_time_s", over="megatron-uniform", by=Gain(ratio=(1.36, None)), on=Kind("plan"), aggregate="max", honest=(1.25, 1.6),
            why=_WHY, says="up to 1.36 times as fast as Megatron's uniform plan", source="abstract",
        ),
        Claim(
            "step_time_s", over=("pipedream", "merak", "adapipe"), by=Gain(ratio=(1.27, None)), on=Kind("plan"), aggregate="max",
            honest=(1.15, 1.5), why=_WHY, says="up to 1.27 times as fast as the best of PipeDream, Merak and AdaPipe", source="abstract",
        ),
        Claim(
            "memory_utilisation", over="megatron-uniform", by=Gain(ratio=(1.42, None)), on=Kind("plan"), aggregate="max",
            honest=(1.25, 1.7), why=_WHY, says="up to 1.42 times the memory utilisation of Megatron's uniform plan", source="abstract",
        ),
        Claim(
            "step_time_s", over="megatron-uniform", by=Gain(ratio=(1.36, None)), on=Kind("plan"), aggregate="max",
            needs="16,384 NPUs", says="the same on up to 16K NPUs", source="abstract",
        ),
    )  # fmt: skip

    def plan(self, work: LayeredWork) -> StagePlan:
        """The fastest of the programme's solutions and, with `fallback`, of the baselines' plans."""
        candidates = list(self.solved(work))
        if self.fallback:
            for rival in (MegatronUniform, Merak, PipeDream, AdaPipe):
                candidates += rival(self.chunks, self.orders).candidates(work)
        return fastest(work, candidates, "bmpipe")[0]

    def solved(self, work: LayeredWork) -> Iterator[StagePlan]:
        """The solutions of one programme per kind of schedule and number of chunks.

        Each programme gives one; those whose first one is within 2 % of the fastest, simulated, go on.
        """
        first: list[tuple[float, Iterator[StagePlan]]] = []
        for setting in settings(work, self.chunks, self.orders):
            if setting.stages * len(work.layers.options) * len(Units.of(work.layers).count) > MOST_VARIABLES:
                continue
            program = Program(setting, uniform=self.recompute == "uniform", even=self.partition == "even", bubble=self.bubble)
            more = self._plans(setting, program)
            best = next(more, None)
            if best is not None:
                yield best
                first.append((work.simulate(best, actual=False).makespan, more))
        least = min((seconds for seconds, _ in first), default=0.0)
        for seconds, more in first:
            if seconds <= 1.02 * least:
                yield from more

    def _plans(self, setting: Setting, program: Program) -> Iterator[StagePlan]:
        # Programmes with several chunks are larger, so they get fewer nodes and fewer further solutions.
        nodes, most = max(20, self.nodes // setting.chunks**2), max(1, self.solutions // setting.chunks)
        for number, found in enumerate(program.solutions(most, self.gap, nodes)):
            yield setting.plan(found.division, found.seconds, source="bmpipe", solution=number, gap=found.gap)


@dataclass(frozen=True, eq=False)
class Planned:
    """A plan with its simulation, and the forms in which other programs take it."""

    work: LayeredWork
    plan: StagePlan
    simulated: Simulated

    @property
    def seconds(self) -> float:
        """Simulated seconds of a step."""
        return self.simulated.makespan

    @property
    def layers(self) -> tuple[int, ...]:
        """Body layers per stage, in pipeline order."""
        return tuple(int(n) for n in np.diff(self.plan.division.cuts))

    def stages(self) -> list[dict[str, Any]]:
        """One row per stage: layers by type, recomputed layers by option, offset from an even split, expected peak, and what binds."""
        return stage_rows(self.work, self.plan, self.simulated)

    def to_megatron_args(self) -> list[str]:
        """Arguments of Megatron-LM: the number of stages, and the layout of layers over them."""
        return ["--pipeline-model-parallel-size", str(self.work.ranks), "--pipeline-model-parallel-layout", layout(self.plan.division)]

    def to_json(self, path: Path | str) -> Path:
        """Writes the stages, the schedule's kind and the promised and simulated seconds."""
        target = Path(path)
        said = {
            "order": self.plan.order, "chunks": self.plan.chunks, "predicted_s": self.plan.predicted, "simulated_s": self.seconds,
            "stages": self.stages(),
        }  # fmt: skip
        target.write_text(json.dumps(said, indent=1) + "\n")
        return target

    def to_csv(self, path: Path | str) -> Path:
        """Writes torch's schedule file."""
        return self.plan.schedule.to_csv(path)


def plan(
    layers: Layers, p: int, m: int, capacity: float, v: Sequence[int] = CHUNKS, *, overhead: float = 0.0, links: Links = Links(),  # noqa: B008
    **parameters: Any,
) -> Planned:  # fmt: skip
    """Plans `layers` for p ranks and m micro-batches within `capacity` bytes per rank.

    `parameters` are those of `BmPipe`. Raises an `InputError` that names the stage and the shortage where nothing fits.
    """
    work = LayeredWork(layers, p, m, capacity, links, overhead=overhead)
    try:
        found = BmPipe(chunks=tuple(v), **parameters).plan(work)
    except NotForThisCase:
        raise InputError(shortage(work, v)) from None
    return Planned(work, found, work.simulate(found))


def shortage(work: LayeredWork, chunks: Sequence[int] = CHUNKS) -> str:
    """Which stage lacks how many bytes, with the even split that recomputes everything and has the smallest shortage."""
    best: tuple[float, int] | None = None
    last = len(work.layers.options) - 1
    for setting in settings(work, chunks):
        lack = needed(setting, Division.uniform(work.layers, even_cuts(work.layers.body, setting.stages), last)) - work.capacity
        worst = int(lack.argmax())
        if best is None or lack[worst] < best[0]:
            best = float(lack[worst]), worst
    assert best is not None
    return f"no plan fits: with everything recomputed, stage {best[1]} lacks {max(0.0, best[0]):,.0f} bytes"


def stage_rows(work: LayeredWork, plan: StagePlan, found: Simulated) -> list[dict[str, Any]]:
    """One row per stage of a plan: what sits there, what it recomputes, and which constraint binds."""
    layers, division = work.layers, plan.division
    even = layers.body / division.stages
    forward, backward_input, backward_weight, again = division.seconds
    whole = forward + backward_input + backward_weight + again
    by_rank = np.bincount(plan.schedule.stage_rank[: division.stages], whole, work.ranks)
    rows = []
    for q in range(division.stages):
        at, rank = division.stage(q), int(plan.schedule.stage_rank[q])
        types, options = [layers.types[i] for i in range(at.start, at.stop)], [int(division.choice[i]) for i in range(at.start, at.stop)]
        body = [o for t, o in zip(types, options) if t not in ("head", "tail")]
        binds = [name for name, tight in (
            ("time", by_rank[rank] >= 0.99 * by_rank.max()), ("memory", found.peak[rank] >= 0.95 * work.capacity),
        ) if tight]  # fmt: skip
        rows.append({
            "stage": q, "rank": rank, "layers": " ".join(f"{types.count(t)} {t}" for t in dict.fromkeys(types)),
            "recompute": " ".join(f"{body.count(r)} {name}" for r, name in enumerate(layers.options) if r in body),
            "offset": round(len(body) - even, 3), "seconds": float(whole[q]), "peak_bytes": float(found.peak[rank]),
            "binds": " and ".join(binds) or "nothing",
        })  # fmt: skip
    return rows


def layout(division: Division) -> str:
    """Megatron's pipeline layout: `E` embedding, `t` layer, `L` loss, stages split by `|`, `*n` for repeated letters and brackets."""
    stages = []
    for q in range(division.stages):
        letters = "".join(
            {"head": "E", "tail": "L"}.get(division.layers.types[i], "t") for i in range(division.stage(q).start, division.stage(q).stop)
        )
        count = letters.count("t")
        stages.append(letters.replace("t" * count, f"t*{count}" if count > 1 else "t"))
    said, at = "", 0
    while at < len(stages):
        same = 1
        while at + same < len(stages) - 1 and stages[at + same] == stages[at]:
            same += 1
        last = at + same >= len(stages)
        said += f"({stages[at]}|)*{same}" if same > 1 and not last else "|".join([stages[at]] * same) + ("" if last else "|")
        at += same
    return said
