"""Runs one unit, in whatever process this is, and reports how it ended."""

from __future__ import annotations

import contextlib
import io
import json
import math
import numbers
import os
import random
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from armillary import catalogue
from armillary.arena import Arena, Artifact, Case, NotForThisCase, Outcome, Technique
from armillary.errors import one_line
from armillary.streams import stream
from armillary.study import environment, quiet
from armillary.study.plan import Recipe, cases_of
from armillary.study.store import Report
from armillary.study.unit import Unit

TAIL = 4096
ARTIFACT_LIMIT = 16 * 2**20
ATTEMPTS_WHEN_NOISY = 3
_warmed: set[tuple[str, str, str, str]] = set()


def execute(unit: Unit, recipe: Recipe, say: quiet.Say = quiet.silent) -> Report:
    """The unit's report; whatever the technique does, this returns (short of the process being killed).

    `say` is told when the unit has to wait for the machine.
    """
    started, said = time.time(), _Tail()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            arena, technique, case = _prepare(unit, recipe)
            report = _alone(unit, arena, technique, case, say) if unit.exclusive else _once(unit, arena, technique, case)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        trace = "".join(traceback.format_exception(error))[-TAIL:]
        report = _failure(f"{type(error).__name__}: {one_line(str(error))}", trace, said.text())
    worker, seconds = f"{socket.gethostname()}:{os.getpid()}", report.seconds or time.time() - started
    return replace(report, started=started, seconds=seconds, worker=worker, environment=environment.here())


def _prepare(unit: Unit, recipe: Recipe) -> tuple[Arena, Technique, Case]:
    arena = catalogue.arena(unit.arena)
    if unit.target and unit.technique not in arena.techniques:
        arena.add(unit.technique, unit.target)
    case = cases_of(recipe)[unit.case]
    if case.digest != unit.case_digest:
        where = f"the file {case.files[0].name}" if case.files else "the case"
        raise RuntimeError(f"{where} is not what the study was planned with")
    return arena, arena.make(unit.technique, json.loads(unit.parameters)), case


def _alone(unit: Unit, arena: Arena, technique: Technique, case: Case, say: quiet.Say) -> Report:
    """Runs a unit that measures, with the machine to itself; a disturbed one is tried again, and flagged if it stays so."""
    with quiet.exclusive(say):
        warm = (unit.arena, unit.technique, unit.parameters, unit.case)
        if arena.warmup and warm not in _warmed:
            _warmed.add(warm)
            _once(unit, arena, technique, case)
        for _ in range(ATTEMPTS_WHEN_NOISY):
            slow, load = quiet.slowdown(), os.getloadavg()[0]
            report = _once(unit, arena, technique, case)
            if report.state != "done" or (slow <= quiet.NOISY and not report.noisy):
                break
    return replace(report, slowdown=slow, load=load, noisy=report.noisy or slow > quiet.NOISY)


def _once(unit: Unit, arena: Arena, technique: Technique, case: Case) -> Report:
    technique = technique.with_rng(stream(unit.seed, "unit", unit.name))
    case = case.at(unit.seed, unit.repeat)
    begin = time.perf_counter()
    with _global_random(unit):
        outcome = arena.execute(technique, case)
    seconds = time.perf_counter() - begin
    if isinstance(outcome, NotForThisCase):
        return Report("declined", {}, reason=one_line(str(outcome)), seconds=seconds)
    fault, values = _values(arena, case, outcome)
    fault = fault or _artifact_fault(outcome)
    if fault:
        return _failure(fault, "", "")
    kept = {m: v for m, v in values.items() if unit.exclusive or not (v[0] == "measured" or arena.metrics[m].clocked)}
    return Report("done", kept, tuple(outcome.artifacts), seconds=seconds, noisy=outcome.noisy)


def _values(arena: Arena, case: Case, outcome: Outcome) -> tuple[str, dict[str, tuple[str, float]]]:
    """(what is wrong with the metrics or an empty string, metric to (kind, value))."""
    values: dict[str, tuple[str, float]] = {}
    given: Mapping[str, Any] = outcome.values
    expected = {name: metric for name, metric in arena.metrics.items() if metric.applies(case)}
    for name, value in given.items():
        if name not in expected:
            return f'metric "{one_line(str(name))}" is not declared for this case; declared: {", ".join(expected)}', {}
        if not isinstance(value, numbers.Real) and not hasattr(value, "__float__"):
            return f'metric "{name}": found {type(value).__name__}, expected a number', {}
        number = float(value)
        if math.isnan(number) or (math.isinf(number) and not expected[name].unbounded):
            return f'metric "{name}": found {number}', {}
        values[name] = (outcome.kinds.get(name, expected[name].kind_on(case)), number)
    missing = [name for name in expected if name not in given]
    return (f"metric {', '.join(missing)}: missing", {}) if missing else ("", values)


def _artifact_fault(outcome: Outcome) -> str:
    for artifact in outcome.artifacts:
        if not isinstance(artifact, Artifact) or len(artifact.data) > ARTIFACT_LIMIT:
            return f'artifact "{getattr(artifact, "name", "?")}": expected at most 16 MiB of bytes'
    return ""


def _failure(error: str, trace: str, said: str) -> Report:
    return Report("failed", {}, error=error, traceback="\n".join(part for part in (trace, said) if part)[-2 * TAIL :])


@contextlib.contextmanager
def _global_random(unit: Unit) -> Iterator[None]:
    """Seeds the generators that third-party code may use behind our back, and restores them afterwards."""
    numpy = sys.modules.get("numpy")
    before = random.getstate(), numpy.random.get_state() if numpy else None
    random.seed(unit.seed32("python"))
    if numpy:
        numpy.random.seed(unit.seed32("numpy"))
    try:
        yield
    finally:
        random.setstate(before[0])
        if numpy:
            numpy.random.set_state(before[1])


class _Tail(io.TextIOBase):
    """Keeps the last few kilobytes of what is printed: a technique must not flood the terminal or the memory."""

    def __init__(self) -> None:
        self._text = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._text = (self._text + text[-TAIL:])[-TAIL:]
        return len(text)

    def text(self) -> str:
        return self._text
