"""An arena of drawn numbers, whose techniques can be told to misbehave."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from armillary.arena import Arena, Artifact, Case, Claim, Gain, InputError, Kind, Metric, NotForThisCase, Outcome, Technique, parameter

draws = Arena(
    "outside/draws",
    question="Which technique draws most?",
    metrics=[
        Metric("total", better="higher", kind="simulated", doc="sum of the work's numbers"),
        Metric("price", unit="EUR", better="lower", kind="modelled", doc="a formula of the total"),
    ],
    techniques={"plain": ".draws:Plain", "twin": ".draws:Twin", "own": ".draws:Own", "moody": ".draws:Moody"},
    baseline="plain",
    repeats=3,
)


@dataclass(frozen=True)
class Plain(Technique):
    """Adds up what the work brings. Nobody, Nowhere 2024."""

    factor: float = field(default=1.0, metadata={"doc": "what the sum is multiplied with", "range": (0.1, 100.0)})
    claims = (Claim("total", over="twin", by=Gain(ratio=(1.0, None)), on=Kind("drawn"), says="never less than its twin"),)

    def draw(self, case: Case) -> float:
        """The sum of the workload and of ten more numbers of the work's stream."""
        return self.factor * (float(case.workload.sum()) + float(case.rng.random(10).sum()))


@dataclass(frozen=True)
class Twin(Plain):
    """The same under another name. Nobody, Nowhere 2024."""

    claims = ()


@dataclass(frozen=True)
class Own(Plain):
    """Adds a number of its own. Nobody, Nowhere 2024."""

    claims = ()

    def draw(self, case: Case) -> float:
        """The work's sum and one draw from the technique's stream."""
        return super().draw(case) + float(self.rng.random())


@dataclass(frozen=True)
class Moody(Plain):
    """Does what its mood says. Nobody, Nowhere 2024."""

    mood: str = field(default="fine", metadata={"doc": "how it misbehaves"})
    claims = ()


@draws.cases
def cases(scale: str) -> list[Case]:
    """Six cases of drawn numbers; `OUTSIDE_MS` makes each unit that long."""
    return [Case(f"draw-{i}", _make, {"n": 10 * (i + 1)}, frozenset({"drawn", "even" if i % 2 == 0 else "odd"})) for i in range(6)]


@dataclass(frozen=True)
class Reading:
    """Which lines are taken."""

    skip: int = parameter(0, "lines to leave out at the beginning", range=(0, 1000))


@draws.read(Reading)
def read(path: Path, how: Reading) -> np.ndarray:
    """One number per line."""
    numbers = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        try:
            numbers.append(float(line))
        except ValueError:
            raise InputError(f'found "{line[:40]}"; expected a number', where=f"{path}:{number}") from None
    return np.array(numbers[how.skip :])


@draws.example
def example(folder: Path) -> Path:
    """Three numbers."""
    file = folder / "numbers.txt"
    file.write_text("1\n2\n3\n")
    return file


@draws.run
def run(technique: Plain, case: Case) -> object:
    """Draws, after noting that it ran."""
    if "OUTSIDE_MS" in os.environ:
        time.sleep(float(os.environ["OUTSIDE_MS"]) / 1000)
    total = technique.draw(case)
    log = os.environ.get("OUTSIDE_LOG")
    if log:
        with open(log, "a") as file:
            file.write(f"{type(technique).__name__}|{case.name}|{case.repeat}\n")
    values: dict[str, object] = {"total": total, "price": 2 * total}
    return MOODS[technique.mood](values) if isinstance(technique, Moody) else values


def _make(case: Case, rng: np.random.Generator) -> np.ndarray:
    return rng.random(case.parameters["n"])


def _kill(values: dict[str, object]) -> None:
    print("about to die", file=sys.stderr, flush=True)
    os.write(2, b"last words\n")
    os.kill(os.getpid(), signal.SIGKILL)


def _raise(values: dict[str, object]) -> None:
    raise RuntimeError("a bad day\nwith two lines")


def _exit(values: dict[str, object]) -> None:
    raise SystemExit(0)


def _loud(values: dict[str, object]) -> dict[str, object]:
    for _ in range(160):
        print("x" * 65536, file=sys.stderr)
        print("y" * 65536)
    return values


def _decline(values: dict[str, object]) -> None:
    raise NotForThisCase("not today")


MOODS = {
    "fine": lambda values: values,
    "nan": lambda values: {**values, "total": float("nan")},
    "inf": lambda values: {**values, "total": float("inf")},
    "missing": lambda values: {"total": values["total"]},
    "extra": lambda values: {**values, "totl": 1.0},
    "text": lambda values: {**values, "total": "many"},
    "numpy": lambda values: {"total": np.float32(2.5), "price": np.int64(3)},
    "artifact": lambda values: Outcome(values, [Artifact("trace.json", "application/json", b"{}")]),  # type: ignore[arg-type]
    "huge": lambda values: Outcome(values, [Artifact("big", "application/octet-stream", bytes(17 * 2**20))]),  # type: ignore[arg-type]
    "kill": _kill,
    "raise": _raise,
    "exit": _exit,
    "loud": _loud,
    "decline": _decline,
    "return": lambda values: NotForThisCase("not today either"),
    "hang": lambda values: time.sleep(600),
}
