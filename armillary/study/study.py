"""Runs a study from plan to verdict: `compare` puts techniques side by side, `reproduce` judges what a paper says."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary import catalogue
from armillary.arena import Arena, Technique
from armillary.claim import Wins
from armillary.errors import InputError
from armillary.records import records
from armillary.study import checks
from armillary.study.engines import Engine, Here
from armillary.study.engines import engine as engine_named
from armillary.study.expectation import Expectation
from armillary.study.plan import Plan, Recipe, cases_of, plan
from armillary.study.progress import Progress
from armillary.study.result import Result
from armillary.study.store import Store, default_store
from armillary.study.unit import Unit

if TYPE_CHECKING:
    from armillary.cluster import Cluster

#: Repeats of what is measured before it is asked which cases need more.
FIRST_REPEATS = 3
#: Values that differ by less than this share are a tie that more repeats would not settle.
TIE = 0.01
#: `auto` starts processes for work that is expected to take longer than this, or for so many units where nothing is known.
LONG_S, MANY_UNITS = 8.0, 16


def compare(
    arena: str,
    *,
    work: str | Path | Sequence[str | Path] = (),
    options: Mapping[str, str] | None = None,
    techniques: Iterable[str | Technique] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    cases: Iterable[str] | None = None,
    metrics: Iterable[str] | None = None,
    scale: str = "small",
    cluster: Cluster | str | None = None,
    repeats: int | None = None,
    seed: int = 0,
    engine: str = "here",
    store: str | Path | None = None,
    fresh: bool = False,
    keep_stale: bool = False,
    retry_failed: bool = False,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
    durable: bool = False,
    until: float | None = None,
    seconds: float | None = None,
    quiet: bool = True,
    command: str = "",
) -> Result:
    """Puts techniques to the same work and returns what came out.

    `work` names the user's files and `options` how to read them; without it the built-in cases run, at `scale` tiny, small or large.
    `techniques` are names or objects, `settings` their parameters, `cases` names or patterns; the arena's telling cases when there are
    none (`["*"]` is all of them). Results are kept in `store`: what is there already is not run again unless `fresh`, its code changed
    (`keep_stale` leaves it) or it failed (`retry_failed`). `until` (a share, 0.02) adds repeats until the interval of the leading gain is
    that narrow or `seconds` are spent. Without `repeats`, what is measured gets three repeats, and two more on cases where those do not
    tell the best technique from the next.
    """

    checks.seconds("--seconds", seconds)
    what: dict[str, Any] = {
        "work": work, "options": options, "techniques": checks.names(techniques), "settings": settings, "cases": checks.names(cases),
        "metrics": checks.names(metrics), "scale": scale, "cluster": cluster, "seed": seed,
    }  # fmt: skip
    wanted = planned(arena, repeats=repeats, **what)
    where = Path(store) if store is not None else default_store()
    runner = runner_of(engine, wanted, where, timeout_s, memory_bytes)
    keep: dict[str, Any] = {
        "fresh": fresh, "keep_stale": keep_stale, "retry_failed": retry_failed, "durable": durable, "quiet": quiet, "command": command,
    }  # fmt: skip
    result = conduct(wanted, runner, where, settling=repeats is None and until is None, **keep)
    started = time.monotonic()
    while until is not None and _width(result) > until and (seconds is None or time.monotonic() - started < seconds):
        wanted = planned(arena, repeats=wanted.repeats + max(1, wanted.repeats // 2), **what)
        result = conduct(wanted, runner, where, **{**keep, "fresh": False})
    return result


def planned(
    arena: str,
    *,
    work: str | Path | Sequence[str | Path] = (),
    options: Mapping[str, str] | None = None,
    techniques: Iterable[str | Technique] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    cases: Iterable[str] | None = None,
    metrics: Iterable[str] | None = None,
    scale: str = "small",
    cluster: Cluster | str | None = None,
    repeats: int | None = None,
    seed: int = 0,
) -> Plan:
    """The plan of the study that `compare` would run with these words; files are read and every name is checked, and nothing is run."""
    home = catalogue.arena(arena)
    files = [work] if isinstance(work, str | Path) else list(work)
    given = dict(options or {})
    if files and cluster is not None:
        given["cluster"], cluster = _named_cluster(home, cluster), None
    spelled = tuple(sorted(home.absolute(given).items()))
    recipe = Recipe(home.path, scale, tuple(str(Path(file).absolute()) for file in files), spelled, _toml(cluster))
    if cases is None and not files:
        known = cases_of(recipe)  # On another cluster an arena may have other cases.
        cases = [name for name in home.telling_cases(scale) or () if name in known] or None
    return plan(recipe, techniques=techniques, settings=settings, cases=cases, metrics=metrics, repeats=repeats, seed=seed)


def reproduce(technique: str, **how: Any) -> Result:
    """Judges every claim of one technique: runs it and what it is claimed to beat, on the cases that the claims name.

    Takes `scale`, `repeats`, `seed`, `engine`, `store` and the rest as `compare` does. `record` is a folder: the arena's record is written
    or renewed there, and then every technique of the arena runs and every claim is judged, because a record answers its whole question.
    With `cases` only claims whose every case is among them are judged; a record that takes hours can so be taken in pieces.
    """
    home, name = catalogue.technique(technique)
    if not home.claims_of(name):
        raise InputError(f"{home.path}/{name} makes no claim (a baseline?); try `armillary compare {home.path}`")
    return _reproduce(home, [name], **how)


def reproduce_all(field: str | None = None, **how: Any) -> list[Result]:
    """Judges every claim of a field, or of all fields, arena by arena."""
    known = catalogue.arenas()
    homes = [a for a in known.values() if field is None or a.field == field]
    if not homes:
        raise InputError(f'unknown field "{field}" (known: {", ".join(sorted({a.field for a in known.values()}))})')
    claiming = {a: [n for n in a.techniques if a.claims_of(n)] for a in homes}
    return [_reproduce(a, names, **how) for a, names in claiming.items() if names]


def _reproduce(home: Arena, names: Sequence[str], *, scale: str = "small", record: Path | None = None, **how: Any) -> Result:
    if record is not None:
        # A record answers the arena's whole question, so every technique and metric belongs to it, and every claim is judged.
        names = [n for n in home.techniques if home.claims_of(n)]
    needed, claimed = set(names), set[str]()
    for name in names:
        for claim in home.claims_of(name):
            needed |= set(claim.baselines)
            claimed.add(claim.metric)
            if isinstance(claim.by, Wins):
                needed |= {n for n in home.techniques if not home.technique(n).oracle}
    recipe = Recipe(home.path, scale, cluster=_toml(how.pop("cluster", None)))
    wanted = [n for n in home.techniques if n in needed or record is not None]
    spelled = {key: how.pop(key) for key in ("repeats", "seed", "metrics", "settings", "cases") if key in how}
    # Only the claimed metrics: if none of them is measured, units may run in parallel.
    metrics = spelled.pop("metrics", None) or [m for m in home.metrics if m in claimed or record is not None]
    planned = plan(recipe, techniques=wanted, judged=names, metrics=metrics, **spelled)
    store = how.pop("store", None)
    where = Path(store) if store is not None else default_store()
    runner = runner_of(how.pop("engine", "here"), planned, where, how.pop("timeout_s", None), how.pop("memory_bytes", None))
    result = conduct(planned, runner, where, **how)
    if record is not None:
        from armillary.study.recording import record as write

        write(result, record)
    return result


def runner_of(name: str, planned: Plan, store: Path, timeout_s: float | None, memory_bytes: int | None) -> Engine:
    """The engine of this name for a plan; `auto` starts worker processes only for units that may run in parallel and take a while."""
    known = known_seconds(planned.arena.path, store, planned.recipe.scale)
    total = Expectation(known).total((unit.technique, unit.case) for unit in planned.units)
    long = len(planned.units) >= MANY_UNITS if total is None else total > LONG_S
    shared = not any(unit.exclusive for unit in planned.units)
    return engine_named(name, timeout_s=timeout_s, memory_bytes=memory_bytes, parallel=shared and long)


def conduct(
    planned: Plan,
    runner: Engine,
    store: Path,
    *,
    fresh: bool = False,
    keep_stale: bool = False,
    retry_failed: bool = False,
    durable: bool = False,
    quiet: bool = True,
    command: str = "",
    settling: bool = False,
) -> Result:
    """Runs the units of a plan that are not in the store yet, judges, and returns the result. Each unit is stored as it ends.

    With `settling`, units that measure are first repeated `FIRST_REPEATS` times, and further only on cases that those do not settle.
    """
    expected = Expectation(known_seconds(planned.arena.path, store, planned.recipe.scale))
    measures = any(unit.exclusive for unit in planned.units)
    first = FIRST_REPEATS if settling and measures else planned.repeats
    with Store.open(store, durable=durable) as opened:
        study = opened.begin(planned.identity, planned.seed, command, planned.json)
        progress = Progress(planned, expected, workers=getattr(runner, "count", 1), quiet=quiet)
        if isinstance(runner, Here):
            runner.say = progress.say
        try:
            units = [unit for unit in planned.units if unit.repeat < first]
            _round(units, planned, runner, opened, study, progress, fresh, keep_stale, retry_failed)
            if first < planned.repeats:
                open_cases = unsettled(Result.load(store, study))
                units = [unit for unit in planned.units if unit.repeat >= first and unit.case in open_cases]
                _round(units, planned, runner, opened, study, progress, fresh, keep_stale, retry_failed)
        finally:
            progress.close()
        result = Result.load(store, study)
        opened.judge(study, [verdict.json() for verdict in result.verdicts if verdict.whole])
    return result


def _round(
    units: Sequence[Unit], planned: Plan, runner: Engine, opened: Store, study: int, progress: Progress,
    fresh: bool, keep_stale: bool, retry_failed: bool,
) -> None:  # fmt: skip
    """Runs those of the units that have to run."""
    opened.enrol(study, units)
    todo, failed_before = (list(units), 0) if fresh else _todo(units, planned, opened, keep_stale, retry_failed)
    progress.add(todo, known=len(units) - len(todo), failed_before=failed_before)
    events = runner.run(todo, planned.recipe)
    try:
        for unit, report in events:
            if report is None:
                opened.start(unit, "")
                progress.started(unit)
            elif isinstance(report, str):
                progress.say(report)
            else:
                opened.finish(unit, report)
                progress.ended(unit, report)
    finally:
        events.close()  # type: ignore[attr-defined]


def known_seconds(arena: str, store: Path, scale: str = "small") -> dict[tuple[str, str], float]:
    """Seconds that units of an arena took before, by technique and case: in this store, or else where it was recorded at this scale."""
    found: dict[tuple[str, str], float] = {}
    record = records().get(arena)
    for technique, facts in record.techniques.items() if record and record.scale == scale else ():
        found |= {(technique, case): float(s) for case, s in facts.get("seconds", {}).items()}
    if store.exists():
        with Store.read(store) as opened:
            found |= opened.seconds(arena)
    return found


def unsettled(result: Result) -> set[str]:
    """The cases on which the repeats so far do not tell the best technique from the next one by the first metric that is compared.

    A case is settled when every repeat of the best is better than every repeat of the next, or when they differ by less than a tie.
    """
    metric = next((m for m in result.metrics if result.metric(m).better), None)
    if metric is None:
        return set()
    lower = result.metric(metric).better == "lower"
    found = set()
    for case in result.cases:
        order = list(result.on(case, metric))[:2]
        if len(order) < 2:
            continue
        best, second = (list(result.values(name, metric, [case])[case].values()) for name in order)
        apart = max(best) < min(second) if lower else min(best) > max(second)
        spread = max(*best, *second) - min(*best, *second)
        if not apart and spread > TIE * max(abs(v) for v in (*best, *second)):
            found.add(case)
    return found


def _todo(units: Sequence[Unit], planned: Plan, store: Store, keep_stale: bool, retry_failed: bool) -> tuple[list[Unit], int]:
    """(the units that are not done, or done with other code, or without a metric that is wanted now; how many failed and stay so)."""
    states = store.states(units)
    todo, failed = [], 0
    for unit in units:
        state, code, metrics = states.get(unit.id, ("planned", "", frozenset()))
        stale = code != unit.code_digest[:32] and not keep_stale
        case = planned.cases[unit.case]
        lacking = state == "done" and any(m not in metrics for m in planned.metrics if planned.arena.metrics[m].applies(case))
        finished = state in ("done", "declined") or (state == "failed" and not retry_failed)
        if not finished or stale or lacking:
            todo.append(unit)
        else:
            failed += state == "failed"
    return todo, failed


def _width(result: Result) -> float:
    """The width of the leading gain's interval, as a share of the gain; 0 when there is none."""
    metric = next((m for m in result.metrics if result.metric(m).better), None)
    order = result.ranking(metric) if metric else []
    if len(order) < 2 or metric is None:
        return 0.0
    found = result.gains(order[0][0], order[1][0], metric)
    spread = found.interval() if found else None
    return 0.0 if spread is None else (spread.high - spread.low) / abs(spread.figure)


def _named_cluster(home: Arena, cluster: Cluster | str) -> str:
    """The cluster as the option of that name of the arena's reader."""
    if "cluster" not in home.options():
        raise InputError(f"{home.path}: a file of this arena is not put on a cluster; leave --cluster out")
    if not isinstance(cluster, str):
        raise InputError("cluster: expected the name of a preset or a file where the work is a file")
    return cluster


def _toml(cluster: Cluster | str | None) -> str | None:
    from armillary.cluster import find

    if cluster is None:
        return None
    return (find(cluster) if isinstance(cluster, str) else cluster).to_toml()
