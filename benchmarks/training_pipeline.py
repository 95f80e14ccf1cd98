"""How fast pipelines are ordered, simulated and planned, and how that compares with torch's own generator and simulator.

    python benchmarks/training_pipeline.py

torch.distributed.pipelining is the only public peer: it makes the same orders and steps through them without a clock. The planners have
none; their times stand beside the goals that they were built for. Every figure is the best of some rounds in this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.llm import Model, Plan
from armillary.training.pipeline import (
    Layers,
    Polynomial,
    TokenCosts,
    bmpipe,
    infinipipe,
    interleaved,
    prt,
    simulate,
    transformer,
    unit_costs,
)
from armillary.training.pipeline.bmpipe import BmPipe


def best(work: Callable[[], Any], rounds: int = 3) -> float:
    """The least seconds of some rounds, after one that compiles."""
    work()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def beside_torch(ranks: int, micros: int, chunks: int) -> None:
    """Orders and simulation of interleaved 1F1B, ours and torch's, in one run."""
    from torch.distributed.pipelining import schedules
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    stages = ranks * chunks
    ours = best(lambda: interleaved(ranks, micros, chunks))
    theirs = best(lambda: get_schedule_ops(schedules.ScheduleInterleaved1F1B, ranks, micros, chunks), 1)
    said(f"order of {ranks} ranks × {micros} micro-batches × {chunks} chunks", ours, theirs)
    schedule = interleaved(ranks, micros, chunks)
    costs = unit_costs(schedule)
    ours = best(lambda: simulate(schedule, costs))
    actions = {r: [schedules._Action.from_str(str(each)) for each in schedule.actions(r)] for r in range(ranks)}
    with_comms = schedules._add_send_recv(actions, lambda s: s % ranks, stages)

    def step_through() -> object:
        return schedules._simulate_comms_compute({r: list(ops) for r, ops in with_comms.items()}, lambda s: s % ranks, stages)

    said(f"simulation of {len(schedule):,} actions (torch's has no clock)", ours, best(step_through, 1))


def said(what: str, ours: float, theirs: float) -> None:
    """Prints both times and their ratio."""
    print(f"{what}: {1e3 * ours:.2f} ms; torch {1e3 * theirs:.0f} ms, {theirs / ours:.0f} times that")


def large_simulations() -> None:
    """Goals: 262,144 actions within 1 s, a million within 3 s, and PRT's schedule of 262,144 within 2 s."""
    for ranks, micros, chunks in ((64, 512, 4), (64, 1024, 8)):
        schedule = interleaved(ranks, micros, chunks)
        costs = unit_costs(schedule)
        print(f"simulation of {len(schedule):,} actions: {best(lambda s=schedule, c=costs: simulate(s, c)):.3f} s")
    print(f"PRT's schedule of 64 ranks, 8 rounds, 256 micro-batches: {best(lambda: prt.schedule(64, 256, 8)):.3f} s (goal 2)")


def planners() -> None:
    """Goals: 20 s for 128 layers on 16 ranks with four options, and 20 s for 4,096 sequences on 16 ranks."""
    n = 128
    one = np.ones(n)
    extra, kept = np.tile([0, 0.2, 0.5, 1.0], (n, 1)), np.tile([8.0, 6.0, 4.0, 1.0], (n, 1))
    layers = Layers(
        tuple(map(str, range(n))), ("body",) * n, ("none", "selective", "mlp", "full"), one, one, one, extra, kept, 2 * one, 0 * one,
        0 * one,
    )  # fmt: skip
    seconds = best(lambda: bmpipe.plan(layers, 16, 64, 450.0, v=(1,)), 1)
    print(f"BMPipe, 128 layers, 16 ranks, 4 options, one chunk: {seconds:.1f} s (goal 20)")
    plan = Plan(tp=4, pp=8, micro_batch=1, sequence_parallel=True)
    work = transformer(Model.preset("llama-3-70b"), plan, 8192, 32, "dgx-h100")
    print(f"BMPipe, llama3-70b-vocab with all its choices: {best(lambda: BmPipe().plan(work), 1):.1f} s (goal 5)")
    rng = np.random.default_rng(0)
    lengths = np.clip(np.exp(rng.normal(7.0, 1.3, 4096)), 16, 65536).astype(int)
    costs = TokenCosts(64, Polynomial(4e-11, 9e-7, 1e-4), {"none": 41e3, "selective": 40e3, "full": 2.5e3}, keys=5e3, sent=2.5e3, state=1e9)
    print(f"InfiniPipe, 4,096 sequences, 16 ranks: {best(lambda: infinipipe.plan(lengths, costs, 16, 60e9), 1):.1f} s (goal 20)")


if __name__ == "__main__":
    beside_torch(8, 64, 2)
    large_simulations()
    planners()
