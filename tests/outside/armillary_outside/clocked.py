"""An arena that measures."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from armillary.arena import Arena, Case, Metric, Technique

clocked = Arena(
    "outside/clocked",
    question="Which spin is shorter?",
    metrics=[Metric("seconds", unit="s", better="lower", kind="measured"), Metric("spins", better="lower", kind="simulated")],
    techniques={"short": ".clocked:Short", "long": ".clocked:Long"},
    warmup=True,
)


@dataclass(frozen=True)
class Short(Technique):
    """Spins a little. Nobody, Nowhere 2024."""

    spins = 1_000


@dataclass(frozen=True)
class Long(Technique):
    """Spins more. Nobody, Nowhere 2024."""

    spins = 20_000


@clocked.cases
def cases(scale: str) -> list[Case]:
    """Three cases that are all alike."""
    return [Case(f"spin-{i}", lambda case, rng: None) for i in range(3)]


@clocked.run
def run(technique: Short | Long, case: Case) -> dict[str, float]:
    """Spins against the clock, and notes in `OUTSIDE_LOG` when it began and ended."""
    start = time.perf_counter()
    for _ in range(technique.spins):
        pass
    time.sleep(float(os.environ.get("OUTSIDE_MS", "0")) / 1000)
    seconds = time.perf_counter() - start
    log = os.environ.get("OUTSIDE_LOG")
    if log:
        with open(log, "a") as file:
            file.write(f"{start} {time.perf_counter()}\n")
    return {"seconds": seconds, "spins": technique.spins}
