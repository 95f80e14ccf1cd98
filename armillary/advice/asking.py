"""Asks the arenas whose questions arise, the nearest and shortest first, until the time is over, and puts their answers in order."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary import catalogue
from armillary.advice.advice import Advice, Answered
from armillary.advice.finding import Table, findings
from armillary.advice.questions import BUILT_IN, NEARNESS, Machine, NotAsked, Question, ask, chosen, how_to_adopt, no_answers
from armillary.advice.together import together
from armillary.arena import Arena, Case
from armillary.errors import InputError, one_line, unknown
from armillary.records import Record, records
from armillary.study import checks
from armillary.study.engines import Engine, Event, Here, Processes
from armillary.study.expectation import Expectation
from armillary.study.plan import Plan, Recipe
from armillary.study.store import StoreError, default_store
from armillary.study.study import FIRST_REPEATS, conduct, known_seconds, planned, runner_of
from armillary.study.unit import Unit, code_digest
from armillary.wording import counted, listed

if TYPE_CHECKING:
    from armillary.cluster import Cluster

#: What an arena is expected to take where nothing is known.
UNKNOWN_S = 30.0
#: The share of the time that is kept for trying two techniques together.
FOR_PAIRS = 0.05
Say = Callable[[str], Any]


def advise(
    cluster: Cluster | str = "here",
    *,
    work: str | Path | Sequence[str | Path] = (),
    runs: Sequence[str] = (),
    today: Mapping[str, str] | None = None,
    seconds: float = 300.0,
    engine: str = "auto",
    store: str | Path | None = None,
    seed: int = 0,
    say: Say | None = None,
) -> Advice:
    """Asks every arena what would change most on a machine and with some files, over what people do today.

    cluster: `here`, a preset, a cluster file, or a Cluster. work: the user's files; an arena that reads one is asked about it. runs: fields
    and arenas to ask; all by default, or with files those that read one. today: arena to the technique in use there, instead of the arena's
    baseline. seconds: how long new comparisons may take together; what is stored or recorded costs next to nothing. An arena whose work
    does not depend on the machine is answered from its record where the code is still the recorded one. Where one simulator can hold
    the best techniques of two arenas, they are tried together.
    """
    checks.seconds("--seconds", seconds)
    checks.whole("--seed", seed, 0, 2**63 - 1)
    tell = say or (lambda text: None)
    files = [Path(work)] if isinstance(work, str | Path) else [Path(file) for file in work]
    for file in files:
        if not file.exists():
            raise InputError("found no such file", where=f"--work {file}")
    arenas = chosen(runs)
    in_use = _in_use(arenas, today or {})
    where = Path(store) if store is not None else default_store()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        machine = _machine(cluster, Path(folder))
        questions, not_judged = ask(arenas, machine, files, only_files=bool(files) and not runs)
        answers: list[Answered] = []
        for question, plan, expected in _in_order(questions, where, seed, not_judged, in_use):
            left = (1 - FOR_PAIRS) * seconds - (time.monotonic() - started)
            try:
                found = _answer(question, plan, expected, in_use, left, engine, where, tell)
            except (InputError, StoreError) as error:
                not_judged.append(NotAsked(question.arena.path, one_line(str(error))))
                continue
            if isinstance(found, NotAsked):
                not_judged.append(found)
            else:
                answers += found
        asked = {question.arena.path: question for question in questions}

        def cases(arena: Arena) -> list[Case]:
            return list(_short(asked[arena.path], seed).cases.values()) if arena.path in asked else []

        both = together([a.finding for a in answers], cases, machine, seed, started + seconds)
    name = machine.cluster.name or str(cluster)
    unjudged = tuple(sorted(not_judged, key=lambda n: n.arena))
    return Advice(name, tuple(f.name for f in files), seed, seconds, tuple(answers), unjudged, tuple(both))


def _machine(cluster: Cluster | str, folder: Path) -> Machine:
    from armillary import cluster as clusters

    here = cluster == "here"
    found = clusters.here() if here else clusters.find(cluster) if isinstance(cluster, str) else cluster
    file = folder / f"{'here' if here else 'cluster'}.toml"
    file.write_text(found.to_toml(), encoding="utf-8")
    return Machine(found, here, file)


def _in_use(arenas: Sequence[Arena], today: Mapping[str, str]) -> dict[str, str]:
    """Arena to the technique that people use today."""
    found = {arena.path: arena.baseline for arena in arenas if arena.baseline}
    for name, technique in today.items():
        home = catalogue.arena(name)
        if technique not in home.techniques:
            raise unknown("technique", technique, home.techniques, where=f"--today {name}")
        if home.path not in {arena.path for arena in arenas}:
            raise InputError("this arena is not asked; name it in --runs", where=f"--today {name}")
        found[home.path] = technique
    return found


def _in_order(
    questions: Sequence[Question], store: Path, seed: int, not_judged: list[NotAsked], in_use: Mapping[str, str]
) -> Iterator[tuple[Question, Plan | None, float]]:
    """(question, its plan unless a record answers it, the seconds that are expected), the nearest work first, then the shortest."""
    found: list[tuple[Question, Plan | None, float]] = []
    for question in questions:
        arena = question.arena
        if arena.path not in in_use:
            not_judged.append(NotAsked(arena.path, "it names no technique that people use today; name one with --today"))
        elif question.near == BUILT_IN and _recorded(arena, older=False) is not None:
            found.append((question, None, 0.0))
        else:
            try:
                plan = _short(question, seed)
            except InputError as error:
                not_judged.append(NotAsked(arena.path, error.message))
                continue
            total = Expectation(known_seconds(arena.path, store, plan.recipe.scale)).total((u.technique, u.case) for u in plan.units)
            found.append((question, plan, UNKNOWN_S if total is None else total))
    yield from sorted(found, key=lambda one: (NEARNESS.index(one[0].near), one[2], one[0].arena.path))


def _short(question: Question, seed: int) -> Plan:
    """The shortest plan that answers: what is measured beside a leading metric that is not stays out, and so does most of the repeating."""
    arena = question.arena
    whole = planned(arena.path, **question.words, seed=seed, repeats=1)
    compared = [m for m in arena.metrics.values() if m.better]
    leading = {next((m.name for m in compared if m.applies(case)), "") for case in whole.cases.values()}
    quiet = {m.name for m in compared if not any(m.applies(c) and m.needs_quiet(c) for c in whole.cases.values())}
    if leading <= quiet:
        return planned(arena.path, **question.words, seed=seed, repeats=1, metrics=sorted(quiet, key=list(arena.metrics).index))
    return planned(arena.path, **question.words, seed=seed, repeats=FIRST_REPEATS)


def _recorded(arena: Arena, *, older: bool) -> Record | None:
    """The arena's record, if it was made with the code that is here now, or with `older` code."""
    record = records().get(arena.path)
    if record is None or older:
        return record
    same = all(name in arena.techniques and facts["code"] == code_digest(arena, name)[:32] for name, facts in record.techniques.items())
    return record if same and set(record.techniques) == set(arena.techniques) else None


def _answer(
    question: Question, plan: Plan | None, expected: float, in_use: Mapping[str, str], left: float, engine: str, store: Path, say: Say
) -> list[Answered] | NotAsked:
    arena = question.arena
    today = in_use[arena.path]
    late = plan is not None and (expected > left or left <= 0)
    if plan is None or (late and question.near == BUILT_IN):
        record = _recorded(arena, older=late)
        if record is not None:
            source = f"recorded {record.date}" + (", with older code" if late and _recorded(arena, older=False) is None else "")
            say(f"{arena.path}: {source}")
            return _weighed(question, Table.of_record(arena, record), today, source)
    assert plan is not None
    if late:
        return NotAsked(arena.path, f"it is expected to take {expected:.0f} s, and {max(0.0, left):.0f} s were left; raise --seconds")
    say(f"{arena.path}: {counted(len(plan.units), 'unit')}, about {expected:.0f} s")
    result = conduct(plan, _until(time.monotonic() + left, engine, plan, store), store, command=f"advise {arena.path}")
    if any(unit["state"] not in ("done", "declined", "failed") for unit in result.units):
        return NotAsked(arena.path, f"the time was over before its {counted(len(plan.units), 'unit')} had run; ask again to go on")
    found = _weighed(question, Table.of_result(result), today, "run now")
    if isinstance(found, NotAsked) and result.failed:
        return replace(found, reason=f"{found.reason} ({one_line(str(result.failed[0]['error'] or result.failed[0]['reason']), 120)})")
    return found


def _weighed(question: Question, table: Table, today: str, source: str) -> list[Answered] | NotAsked:
    arena = question.arena
    found = findings(table.without([name for name in no_answers(arena) if name != today]), today)
    if not found:
        return NotAsked(arena.path, f"no technique can be compared with {today} on this work")
    adopt = how_to_adopt(arena)
    return [Answered(f, question.near, source, adopt, _assumes(question, f.kind, table.cases)) for f in found]


def _assumes(question: Question, kind: str, cases: Sequence[str]) -> str:
    """What an answer rests on, in a sentence."""
    work = f"the cases {listed(list(cases), 4)}" if question.near != BUILT_IN else "built-in work on the arena's own machine, not yours"
    constants = question.arena.constants
    model = f"; the model has {counted(len(constants), 'stated constant')}" if constants and kind != "measured" else ""
    return f"{kind} on {work}{model}"


def _until(end: float, name: str, plan: Plan, store: Path) -> Engine:
    """The engine of this name, which stops at a moment of the monotonic clock."""
    found = runner_of(name, plan, store, None, None)
    if isinstance(found, Here):
        return Processes(1, until=end)  # A unit that runs in this process cannot be ended.
    return replace(found, until=end) if isinstance(found, Processes) else _Stopping(found, end)


@dataclass
class _Stopping:
    """An engine whose units cannot be ended, but which starts nothing after a moment of the monotonic clock."""

    inside: Engine
    end: float

    def run(self, units: Sequence[Unit], recipe: Recipe) -> Iterator[Event]:
        """The events of the engine inside, until the time is over."""
        events = self.inside.run(units, recipe)
        try:
            for event in events:
                yield event
                if time.monotonic() > self.end:
                    return
        finally:
            events.close()  # type: ignore[attr-defined]
