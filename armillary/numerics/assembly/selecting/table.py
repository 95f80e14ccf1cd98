"""The measured table holds the seconds of every strategy on every mesh of a catalogue on one device. Selectors learn from it."""

from __future__ import annotations

import functools
import json
import platform
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import read_arrays

from ..assembling.strategy import STRATEGIES, Problem, strategy, structure
from ..workload import FAMILIES, Plan, build
from .features import NAMES, VERSION, Features, features

FOLDS = 5
T = TypeVar("T")
MOST_BYTES = 64 << 20


def fold_of(family: str) -> int:
    """Returns the fold in which this family is held out, or -1 if it is no family of ours."""
    return FAMILIES.index(family) % FOLDS if family in FAMILIES else -1


@dataclass(frozen=True)
class Table:
    """Rows are meshes: family names, features, and log-seconds [meshes, 10] as the network gives them; pictures may be left out."""

    families: tuple[str, ...]
    numbers: np.ndarray
    pictures: np.ndarray
    log_seconds: np.ndarray
    device: str
    facts: dict[str, Any]

    def where(self, chosen: np.ndarray) -> Table:
        """Returns some of the rows."""
        pictures = self.pictures[chosen] if len(self.pictures) else self.pictures
        names = tuple(np.array(self.families, object)[chosen])
        return Table(names, self.numbers[chosen], pictures, self.log_seconds[chosen], self.device, self.facts)

    def without(self, fold: int) -> Table:
        """Returns the table without the families that are held out in this fold, or all of it for fold -1."""
        return self.where(np.array([fold_of(name) != fold or fold < 0 for name in self.families]))

    def only(self, fold: int) -> Table:
        """Returns the families that are held out in this fold."""
        return self.where(np.array([fold_of(name) == fold for name in self.families]))

    def save(self, path: Path, with_pictures: bool = False) -> None:
        """Writes the table as plain arrays, without the pictures unless asked for."""
        tag = {"device": self.device, "features": VERSION, "strategies": list(STRATEGIES), "families": list(self.families), **self.facts}
        kept: dict[str, Any] = {"pictures": self.pictures.astype(np.float16)} if with_pictures else {}
        code = np.frombuffer(json.dumps(tag).encode(), np.uint8)
        np.savez_compressed(
            path, tag=code, numbers=self.numbers.astype(np.float32), log_seconds=self.log_seconds.astype(np.float32), **kept
        )


def load_table(path: Path, device: str) -> Table:
    """Reads a table from a file; it is refused unless it is for this device and these features."""
    found = read_arrays(path, limit=4 * MOST_BYTES)
    try:
        tag = json.loads(bytes(found["tag"]).decode())
        numbers, seconds = np.asarray(found["numbers"], np.float64), np.asarray(found["log_seconds"], np.float64)
        pictures = np.asarray(found.get("pictures", np.empty((0, 2, 64, 64))), np.float32)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"it is no table of strategies: {one_line(str(error), 120)}", where=str(path)) from None
    expected = {"features": VERSION, "device": device, "strategies": list(STRATEGIES)}
    if not isinstance(tag, dict) or {name: tag.get(name) for name in expected} != expected:
        raise InputError(f'expected a table of "{device}" with features {VERSION}', where=str(path))
    families = tuple(map(str, tag.get("families", ())))
    if numbers.shape != (len(families), len(NAMES)) or seconds.shape != (len(families), 2 * len(STRATEGIES)):
        raise InputError(f"found arrays of shapes {numbers.shape}, {seconds.shape} for {len(families)} meshes", where=str(path))
    facts = {key: value for key, value in tag.items() if key not in ("device", "features", "strategies", "families")}
    return Table(families, numbers, pictures, seconds, device, facts)


@dataclass(frozen=True)
class Seconds:
    """Seconds by strategy on one problem: medians over rounds in which every strategy had its turn, and preparation once."""

    numeric: dict[str, float]
    setup: dict[str, float]
    #: The slowest over the fastest round, the largest over all strategies.
    spread: float

    @property
    def best(self) -> str:
        """The strategy with the least numeric seconds."""
        return min(self.numeric, key=self.numeric.__getitem__)

    def right(self, name: str) -> bool:
        """Says whether this strategy is the best, or within 5 % of it."""
        return self.numeric[name] <= 1.05 * self.numeric[self.best]


def measured(problem: Problem, rounds: int = 3, min_seconds: float = 0.0, clock: str = "wall") -> Seconds:
    """Prepares and runs every strategy; rounds go on until `min_seconds` are spent. `clock` is one of CLOCKS."""
    coefficients = problem.work.coefficients
    symbolic, symbolic_s = _clocked(clock, lambda: structure(problem, None))
    setup, prepared = {}, {}
    for name in STRATEGIES:
        made = strategy(name)
        prepared[name], own_s = _clocked(clock, functools.partial(made.prepare, problem, symbolic))
        setup[name] = own_s + (symbolic_s if made.symbolic else 0.0)
        prepared[name].numeric(coefficients)
    seconds: dict[str, list[float]] = {name: [] for name in STRATEGIES}
    spent = 0.0
    while len(seconds["blocked"]) < rounds or spent < min_seconds:
        for name in STRATEGIES:
            _, taken_s = _clocked(clock, functools.partial(prepared[name].numeric, coefficients))
            seconds[name].append(taken_s)
            spent += taken_s
    spread = max(max(taken) / min(taken) for taken in seconds.values())
    return Seconds({name: float(np.median(taken)) for name, taken in seconds.items()}, setup, spread)


def _clocked(clock: str, work: Callable[[], T]) -> tuple[T, float]:
    before = CLOCKS[clock]()
    found = work()
    return found, max(seconds - before.get(thread, 0.0) for thread, seconds in CLOCKS[clock]().items())


def _thread_seconds() -> dict[int, float]:
    """Returns the CPU seconds of every thread of this process, as Linux counts them."""
    tasks = Path("/proc/self/task")
    others = {int(task.name): int((task / "schedstat").read_text().split()[0]) / 1e9 for task in tasks.iterdir()}
    return others | {threading.get_native_id(): time.thread_time()}


#: `cpu` counts the busiest thread's CPU seconds, which other programs hardly change. Threads that wait must sleep for that
#: (OMP_WAIT_POLICY=passive).
CLOCKS: dict[str, Callable[[], dict[int, float]]] = {"wall": lambda: {0: time.perf_counter()}, "cpu": _thread_seconds}


def measure_table(plans: Sequence[Plan], tell: Callable[[str], None] = lambda line: None, rounds: int = 3, clock: str = "wall") -> Table:
    """Builds and measures the meshes of these plans on this machine's CPU by one of CLOCKS."""
    import numba

    from ..assembling.assembler import problem_of

    numbers, pictures, seconds, families, spreads = [], [], [], [], []
    for count, plan in enumerate(plans, start=1):
        problem = problem_of(build(plan), plan.physics)
        if plan.cell + plan.physics not in [p.cell + p.physics for p in plans[: count - 1]]:
            measured(problem, rounds=1)  # This compiles.
        found = features(problem)
        took = measured(problem, rounds, min_seconds=0.1, clock=clock)
        numbers.append(found.numbers)
        pictures.append(found.pictures)
        seconds.append(np.log([*took.numeric.values(), *(max(s, 1e-6) for s in took.setup.values())]))
        families.append(plan.family)
        spreads.append(took.spread)
        tell(f"{count}/{len(plans)} {plan.name}: {took.best}")
    facts = {"machine": machine(), "threads": numba.get_num_threads(), "clock": clock}
    facts |= {"spread": round(float(np.median(spreads)), 3), "meshes": len(plans)}
    return Table(tuple(families), np.array(numbers), np.array(pictures), np.array(seconds), "cpu", facts)


def spread_out(plans: Sequence[Plan], count: int) -> list[Plan]:
    """Takes `count` plans from all over a catalogue, every family in turn."""
    if count < len(FAMILIES):
        raise InputError(f"found {count}; expected at least {len(FAMILIES)} meshes, one of each family", where="--meshes")
    if count >= len(plans):
        return list(plans)
    by_family = {family: [p for p in plans if p.family == family] for family in FAMILIES}
    chosen = []
    for k, own in enumerate(by_family.values()):
        share = count // len(FAMILIES) + (k < count % len(FAMILIES))
        chosen += [own[int(at)] for at in np.linspace(0, len(own) - 1, share)]
    return chosen


@functools.cache
def machine() -> str:
    """Returns the processor's name, as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return one_line(line.partition(":")[2].strip(), 80)
    except OSError:
        pass
    return platform.processor() or platform.machine()


def row(table: Table, k: int) -> Features:
    """Returns the features of one mesh in a table; pictures are blank where they were left out."""
    blank = np.zeros((2, 64, 64), np.float32)
    return Features(table.numbers[k], table.pictures[k] if len(table.pictures) else blank)
