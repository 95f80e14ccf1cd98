"""Shows how far a study is: a moving line where stderr is a terminal, a plain line every 30 s where it is not."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from armillary.study.expectation import Expectation
from armillary.study.plan import Plan
from armillary.study.quiet import TURN
from armillary.study.store import Report
from armillary.study.unit import Unit
from armillary.wording import counted

EVERY_S = 30.0


class Progress:
    """Says before the start how many units there are and how long they will take, and then how far they are and how long is left."""

    def __init__(self, planned: Plan, expected: Expectation, *, workers: int = 1, quiet: bool = False) -> None:
        self.done = self.failed = self.declined = self.known = self.failed_before = 0
        self._planned = planned
        self._expected = expected
        self._waiting: dict[str, tuple[str, str]] = {}
        self._since: dict[str, float] = {}
        self._workers = workers
        self._said = time.monotonic()
        self._bar: Any = None
        self._quiet = quiet
        self._rounds = 0

    def add(self, waiting: Sequence[Unit], *, known: int = 0, failed_before: int = 0) -> None:
        """More units to run, beside `known` that are in the store already and `failed_before` of those that failed."""
        self._waiting |= {unit.id: (unit.technique, unit.case) for unit in waiting}
        self.known += known
        self.failed_before += failed_before
        self._rounds += 1
        if self._quiet or not waiting:
            return
        further = f"{counted(len(waiting), 'unit')} more, on cases that are not settled yet"
        self.say(self.beginning(len(waiting)) if self._rounds == 1 else further)
        if sys.stderr.isatty():
            if self._bar is None:
                self._bar = _bar(self._planned.arena.path)
            self._bar.update(self._bar.task_ids[0], total=self.done + self.failed + self.declined + len(self._waiting))

    def beginning(self, units: int) -> str:
        """What is about to run, and how long it may take."""
        planned = self._planned
        chosen, known = len(planned.cases), planned.recipe.count
        few = f"{chosen} of {counted(known, 'case')}" if chosen < known else counted(chosen, "case")
        said = f"{planned.arena.path}: {counted(len(planned.techniques), 'technique')} on {few}, {counted(units, 'unit')} to run"
        left = self.left_s()
        return said if left is None else f"{said}, about {clock(left)}"

    def say(self, line: str) -> None:
        """A line for the user, above the moving one. What waited for the machine begins when it is free."""
        if line == TURN:
            self._since = dict.fromkeys(self._since, time.monotonic())
        if self._quiet:
            return
        if self._bar:
            self._bar.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=sys.__stderr__, flush=True)

    def started(self, unit: Unit) -> None:
        """A unit starts."""
        self._since[unit.id] = time.monotonic()
        if self._bar:
            self._bar.update(self._bar.task_ids[0], now=f"{unit.technique} on {unit.case}")

    def ended(self, unit: Unit, report: Report) -> None:
        """A unit ended."""
        self._waiting.pop(unit.id, None)
        self.done += report.state == "done"
        self.failed += report.state == "failed"
        self.declined += report.state == "declined"
        self._expected.saw(unit.technique, unit.case, time.monotonic() - self._since.pop(unit.id, time.monotonic() - report.seconds))
        if self._bar:
            left = self.left_s()
            self._bar.update(self._bar.task_ids[0], advance=1, failed=self.failed, left="?" if left is None else clock(left))
        elif not self._quiet and time.monotonic() - self._said > EVERY_S:
            self._said = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)  # noqa: T201

    def left_s(self) -> float | None:
        """Seconds that the rest may take; None when nothing is known yet."""
        total = self._expected.total(self._waiting.values())
        return None if total is None else total / min(self._workers, max(1, len(self._waiting)))

    def line(self) -> str:
        """The state in one line."""
        parts = [f"{self.done} done", f"{self.failed} failed", f"{len(self._waiting)} left"]
        if self.declined:
            parts.insert(2, f"{self.declined} declined")
        if self.known:
            parts.append(f"{self.known} known from before")
        if self.failed_before:
            parts.append(f"of which {self.failed_before} failed (--retry-failed runs them again)")
        left = self.left_s() if self._waiting and self.done else None
        return f"{self._planned.arena.path}: {', '.join(parts)}" + ("" if left is None else f"; about {clock(left)} to go")

    def close(self) -> None:
        """Ends the display, with a last line."""
        if self._bar:
            self._bar.stop()
        if not self._quiet:
            print(self.line(), file=sys.stderr, flush=True)  # noqa: T201


def _bar(arena: str) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[failed]} failed"))
    rest = (TextColumn("about {task.fields[left]} left"), TextColumn("[dim]{task.fields[now]}"))
    bar = RichProgress(*columns, *rest, console=Console(file=sys.stderr), transient=True)
    bar.add_task(arena, total=0, failed=0, left="?", now="")
    bar.start()
    return bar


def clock(seconds: float) -> str:
    """A rough time: `40 s`, `3 min`, `1.5 h`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
