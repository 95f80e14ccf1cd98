"""One arena put through what every arena promises.

Every technique runs on every tiny case, and gives complete metrics of the declared kinds. A second pass over a few cases, in the
opposite order and (unless a shorter battery is asked for) in other processes, gives the same simulated and modelled values: so the same
seed gives the same numbers, no technique changes the work that the next one meets, and it does not matter where a unit runs. The arena's
example of a user's file can be read and run, its content decides the case's digest, and every wrong option or file ends in one line.
"""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from armillary import catalogue
from armillary.arena import Arena
from armillary.case import Case
from armillary.errors import InputError
from armillary.parameters import Parameter, option_name
from armillary.study.engines import Processes
from armillary.study.execute import execute
from armillary.study.plan import Plan, Recipe, plan
from armillary.study.store import Report
from armillary.study.unit import Unit

#: Cases of the second pass, unless every one is asked for; one of those that were chosen.
SAMPLED_CASES = 3
TINY_CPU_S = 10.0
#: CPU seconds of `_slowness`'s loop on the machine that such bounds are meant for; slower machines get more, up to twice as much.
REFERENCE_LOOP_S, MOST_SLOWNESS = 0.08, 2.0
JUNK = {"an empty file": b"", "binary junk": bytes(range(256)) * 4, "half a line": b'{"a": [1, 2', "one word": b"nothing\n"}


@dataclass(frozen=True)
class Checked:
    """What the battery saw: the tiny scale's simulated and modelled values, and what one pass costs."""

    #: `technique|case` to metric to value; a technique that declines a case is not in it.
    values: Mapping[str, Mapping[str, float]]
    #: CPU seconds of the units of the first pass in this process, compilation included where nothing was cached.
    cpu_s: float


def check_arena(
    path: str | Arena,
    *,
    cases: Iterable[str] | None = None,
    everything: bool = False,
    processes: bool = True,
    most_cpu_s: float = TINY_CPU_S,
) -> Checked:
    """Runs the battery; raises AssertionError with one line for each fault.

    `cases` are names or patterns of the tiny cases to run, all by default. `everything` takes every one of them through the second pass
    rather than a few. Without `processes` the second pass stays in this process, which spares the start of two others. `most_cpu_s`
    bounds one unit-by-unit pass over the tiny scale, in CPU seconds with compiled loops in the cache; slow machines get more.
    """
    arena = path if isinstance(path, Arena) else catalogue.arena(path)
    # A class that a notebook put beside the others in this process cannot be found by another one.
    lasting = [name for name in arena.techniques if not arena.target(name).startswith("__main__:")]
    planned = plan(Recipe(arena.path, "tiny"), techniques=lasting, cases=cases, repeats=1)
    faults: list[str] = []
    began = _cpu_s()
    first = {unit.id: execute(unit, planned.recipe) for unit in _shared(planned.units)}
    cpu_s = _cpu_s() - began
    faults += _failures(planned.units, first)
    if cases is None:
        faults += _idle(planned.units, first)
    again = _second_pass(planned, everything, SAMPLED_CASES if cases is None else 1, processes)
    faults += _differences(again, first)
    if cpu_s > most_cpu_s and not faults:
        # Once more on one thread: those of a library that wait for a busy core burn time without working.
        with threadpool_limits(1):
            began = _cpu_s()
            for unit in _shared(planned.units):
                execute(unit, planned.recipe)
            cpu_s = _cpu_s() - began
        allowed = most_cpu_s * _slowness()
        if cpu_s > allowed:
            faults.append(f"the tiny scale takes {cpu_s:.1f} CPU seconds; expected at most {allowed:.3g} on this machine")
    faults += own_file_faults(arena)
    assert not faults, "\n".join([f"{arena.path}: {len(faults)} fault{'s' if len(faults) != 1 else ''}", *faults])
    values = {f"{u.technique}|{u.case}": {m: v for m, (_, v) in first[u.id].values.items()} for u in planned.units}
    return Checked({name: row for name, row in values.items() if row}, cpu_s)


def _slowness() -> float:
    """How many times the CPU seconds of the reference machine this one takes for the same work, between 1 and `MOST_SLOWNESS`."""
    took = []
    for _ in range(5):
        began = _cpu_s()
        sum(i * i % 7 for i in range(2_000_000))
        took.append(_cpu_s() - began)
    return min(MOST_SLOWNESS, max(1.0, min(took) / REFERENCE_LOOP_S))


def _shared(units: Iterable[Unit]) -> list[Unit]:
    """The units without their right to the whole machine: nothing that is measured is looked at here."""
    return [replace(unit, exclusive=False) for unit in units]


def _second_pass(planned: Plan, everything: bool, most: int, processes: bool) -> list[tuple[Unit, Report]]:
    names = list(planned.cases)
    step = 1 if everything else max(1, -(-len(names) // most))
    chosen = set(names[::step])
    units = [unit for unit in _shared(planned.units) if unit.case in chosen]
    if not processes:
        return [(unit, execute(unit, planned.recipe)) for unit in units[::-1]]
    events = Processes(2).run(units[::-1], planned.recipe)
    return [(unit, report) for unit, report in events if isinstance(report, Report)]


def _failures(units: Sequence[Unit], reports: Mapping[str, Report]) -> Iterator[str]:
    for unit in units:
        report = reports[unit.id]
        if report.state == "failed":
            yield f"{unit.technique} on {unit.case} failed: {report.error}"


def _idle(units: Sequence[Unit], reports: Mapping[str, Report]) -> Iterator[str]:
    for name in {unit.technique for unit in units}:
        mine = [reports[unit.id] for unit in units if unit.technique == name]
        # One that lacks hardware declines with another reason.
        if all(report.state == "declined" and (report.reason or "").startswith("takes ") for report in mine):
            yield f"{name} finds none of its kinds of case at the tiny scale: it {mine[0].reason}"


def _differences(again: Iterable[tuple[Unit, Report]], first: Mapping[str, Report]) -> Iterator[str]:
    for unit, report in again:
        before = first[unit.id]
        if report.state != before.state:
            why = report.error or report.reason
            yield f"{unit.technique} on {unit.case}: {before.state} first, {report.state} in another order or process ({why})"
        elif report.values != before.values:
            metric = next(m for m in {**before.values, **report.values} if before.values.get(m) != report.values.get(m))
            was, now = (found.values.get(metric, ("", None))[1] for found in (before, report))
            yield f"{unit.technique} on {unit.case}: {metric} was {was!r}, and {now!r} in another order or process"


def own_file_faults(arena: Arena) -> Iterator[str]:
    """What is wrong with the arena's reader: its example, its options, and what it says of files that are wrong."""
    if arena._reading is None:
        return
    if arena._example is None:
        yield "it reads files and has no example of one"
        return
    with tempfile.TemporaryDirectory(prefix="armillary-check-") as name:
        written = Path(name) / "written"
        written.mkdir()
        file, options = arena.write_example(written)
        cases = arena.from_file(file, options)
        # What was read is kept by its content, so a path in it would lead to where an equal file once was.
        moved = written.rename(Path(name) / "moved")
        file = moved / file.relative_to(written)
        options = {key: str(value).replace(str(written), str(moved)) for key, value in options.items()}
        yield from _example_faults(arena, cases, arena.from_file(file, options), file)
        yield from _option_faults(arena, file, options)
        if file.is_file():
            yield from _file_faults(arena, file, options)


def _example_faults(arena: Arena, cases: Sequence[Case], moved: Sequence[Case], file: Path) -> Iterator[str]:
    if not cases:
        yield "the example holds no case"
        return
    if not any(_runs(arena, moved)):
        yield "no technique takes the example"
    if file.is_file() and [case.digest for case in moved] != [case.digest for case in cases]:
        yield "the example in another folder gives other cases: a path is part of a digest"


def _runs(arena: Arena, cases: Sequence[Case]) -> Iterator[bool]:
    for name in arena.techniques:
        technique = arena.make(name)
        if not technique.takes or technique.takes & cases[0].kinds:
            yield not isinstance(arena.execute(technique, cases[0].at(0, 0)), Exception)


def _option_faults(arena: Arena, file: Path, options: Mapping[str, Any]) -> Iterator[str]:
    yield from _refusal(arena, file, {**options, "no-such-option": "1"}, "--no-such-option")
    for name, facts in arena.options().items():
        if not facts.doc:
            yield f"{option_name(name)} is not documented"
        for value in _wrong(facts):
            yield from _refusal(arena, file, {**options, name: value}, f"{option_name(name)} {value}")


def _wrong(facts: Parameter) -> Iterator[str]:
    """Values that the option cannot take, by its type and legal values."""
    kinds = {facts.type, *get_args(facts.type)}
    if facts.choices is not None or get_origin(facts.type) is Literal:
        yield "no-such-choice"
    elif facts.file:
        yield "no-such-file-or-preset"
    elif str not in kinds:
        yield "not-a-value"
    if facts.range is not None:
        low, high = facts.range
        if low is not None:
            yield str(low - 1)
        if high is not None:
            yield str(high * 2 + 1)


def _file_faults(arena: Arena, file: Path, options: Mapping[str, Any]) -> Iterator[str]:
    folder = file.parent
    for what, data in JUNK.items():
        wrong = folder / f"wrong-{file.name}"
        wrong.write_bytes(data)
        # Some formats take any bytes (a log, a raw field); they must not fail in another way.
        yield from _refusal(arena, wrong, options, what, may_pass=True)
    fifo = folder / f"fifo-{file.name}"
    os.mkfifo(fifo)
    yield from _refusal(arena, fifo, options, "a FIFO")
    yield from _refusal(arena, folder / "missing", options, "a missing file")


def _refusal(arena: Arena, file: Path, options: Mapping[str, Any], what: str, *, may_pass: bool = False) -> Iterator[str]:
    """A fault unless the reader refuses in one line."""
    try:
        arena.from_file(file, options)
    except InputError as error:
        if "\n" in str(error):
            yield f"{what}: refused in more than one line"
    except Exception as error:
        yield f"{what}: ended in {type(error).__name__} instead of one line ({error})"
    else:
        if not may_pass:
            yield f"{what}: taken without a word"


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
