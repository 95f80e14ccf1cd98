"""Shows how far a study is: a moving line where stderr is a terminal, a plain line every 30 s where it is not."""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from armillary.study.store import Report
from armillary.study.unit import Unit

EVERY_S = 30.0


class Progress:
    """Told of every start and end; says how many are done, failed and left, and when the rest may be done."""

    def __init__(self, arena: str, waiting: Sequence[Unit], known: int, *, workers: int = 1, quiet: bool = False) -> None:
        self.done = self.failed = self.declined = 0
        self.known = known
        self._arena = arena
        self._waiting = {unit.id: (unit.technique, unit.case) for unit in waiting}
        self._seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._workers = workers
        self._said = time.monotonic()
        self._bar: Any = None
        if not quiet and waiting and sys.stderr.isatty():
            self._bar = _bar(arena, len(waiting))
        self._quiet = quiet

    def started(self, unit: Unit) -> None:
        """A unit starts."""
        if self._bar:
            self._bar.update(self._bar.task_ids[0], now=f"{unit.technique} on {unit.case}")

    def ended(self, unit: Unit, report: Report) -> None:
        """A unit ended."""
        self._waiting.pop(unit.id, None)
        self.done += report.state == "done"
        self.failed += report.state == "failed"
        self.declined += report.state == "declined"
        self._seconds[unit.technique, unit.case].append(report.seconds)
        if self._bar:
            self._bar.update(self._bar.task_ids[0], advance=1, failed=self.failed, left=_clock(self.left_s()))
        elif not self._quiet and time.monotonic() - self._said > EVERY_S:
            self._said = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)  # noqa: T201

    def left_s(self) -> float:
        """Seconds that the rest may take: the median for the same technique and case, or over all where there is none yet."""
        overall = statistics.median([s for times in self._seconds.values() for s in times] or [0.0])
        typical = {key: statistics.median(times) for key, times in self._seconds.items()}
        return sum(typical.get(key, overall) for key in self._waiting.values()) / self._workers

    def line(self) -> str:
        """The state in one line."""
        parts = [f"{self.done} done", f"{self.failed} failed", f"{len(self._waiting)} left"]
        if self.declined:
            parts.insert(2, f"{self.declined} declined")
        if self.known:
            parts.append(f"{self.known} known from before")
        return f"{self._arena}: {', '.join(parts)}" + (f"; about {_clock(self.left_s())} to go" if self._waiting and self.done else "")

    def close(self) -> None:
        """Ends the display, with a last line."""
        if self._bar:
            self._bar.stop()
        if not self._quiet:
            print(self.line(), file=sys.stderr, flush=True)  # noqa: T201


def _bar(arena: str, total: int) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[failed]} failed"))
    rest = (TextColumn("about {task.fields[left]} left"), TextColumn("[dim]{task.fields[now]}"))
    bar = RichProgress(*columns, *rest, console=Console(file=sys.stderr), transient=True)
    bar.add_task(arena, total=total, failed=0, left="?", now="")
    bar.start()
    return bar


def _clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
