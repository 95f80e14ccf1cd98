"""Writes a result as a record: what `results/` keeps of a study, so that nobody types it again."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.records import FORM, Record, file_name, load
from armillary.study.gains import level
from armillary.study.result import Result
from armillary.study.unit import code_digest

#: What a record keeps of the machine.
FACTS = ("cpu", "usable_cores", "memory_bytes", "system", "python", "gpus", "versions")
#: What a record keeps of a verdict.
VERDICT = (
    "claim", "technique", "says", "published", "state", "figure", "low", "high", "unit", "kind", "n", "reason", "honest", "stand_in",
    "beyond",
)  # fmt: skip


def record(result: Result, folder: Path) -> Path:
    """Writes or renews the arena's record in `folder`.

    Verdicts on other techniques that stand there already are kept. So are the values of other cases, if they come from the same code,
    scale and seed: a record of many hours can be taken in pieces. A few cases at another scale or seed add their verdicts alone.
    """
    if not folder.is_dir():
        raise InputError("expected a folder that exists, for the records", where=str(folder))
    target = folder / file_name(result.arena.path)
    made = _record(result)
    earlier = load(target) if target.exists() else None
    if earlier is not None and (earlier.scale, earlier.seed) == (made["scale"], made["seed"]):
        try:
            _join(made, earlier, result)
        except (InputError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"not a record of Armillary ({type(error).__name__}: {error})", where=str(target)) from None
    elif earlier is not None and set(result.cases) < {case.name for case in result.arena.built_in(made["scale"])}:
        # A few cases at another scale, for the claims that are made for it, take no other value's place.
        made = {key: getattr(earlier, key, value) for key, value in made.items()}
    found = {v.claim: {key: _rounded(value) for key, value in v.json().items() if key in VERDICT} for v in result.verdicts}
    # What this study judged only in part is not tried, unless an earlier one judged it whole.
    kept = {verdict["claim"]: dict(verdict) for verdict in earlier.verdicts} if earlier is not None else {}
    partial = {v.claim for v in result.verdicts if not v.whole}
    found |= {claim: verdict for claim, verdict in kept.items() if claim not in found or claim in partial}
    made["verdicts"] = [found[claim] for claim, _, _ in result.arena.claims() if claim in found]
    part = target.with_suffix(".part")
    try:
        part.write_text(_spelled(made), encoding="utf-8")
        part.replace(target)
    except OSError as error:
        raise InputError(error.strerror or str(error), where=str(target)) from None
    return target


def _join(made: dict[str, Any], earlier: Record, result: Result) -> None:
    """Adds what an earlier record holds of cases that were not run now, technique by technique, where the code is the same."""
    here = _cases(made["techniques"])
    made["metrics"] = {**earlier.metrics, **made["metrics"]}
    for name, facts in made["techniques"].items():
        before = earlier.techniques.get(name, {})
        if any(before.get(key) != facts[key] for key in ("code", "parameters")):
            continue
        facts["seconds"] |= _elsewhere(before["seconds"], here)
        for metric, values in before["medians"].items():
            if others := _elsewhere(values, here):
                every = facts["medians"].setdefault(metric, {})
                every |= others
                spread = level([np.array([float(value)]) for value in every.values()], result.metric(metric).scale)
                facts["levels"][metric] = [_rounded(v) for v in (spread.figure, spread.low, spread.high)]
    if len(_cases(earlier.techniques)) > len(here):
        made["answer"] = earlier.answer


def _cases(techniques: Mapping[str, Any]) -> set[str]:
    return {case for facts in techniques.values() for case in facts["seconds"]}


def _elsewhere(values: Mapping[str, Any], here: set[str]) -> dict[str, Any]:
    return {case: value for case, value in values.items() if case not in here}


def _spelled(made: dict[str, Any]) -> str:
    """JSON with one line per verdict and technique, so that a change shows as the line that changed."""
    lines = []
    for key, value in made.items():
        entries = [json.dumps(v, ensure_ascii=False) for v in value] if isinstance(value, list) else None
        if isinstance(value, dict):
            entries = [f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items()]
        if entries:
            left, right = "[]" if isinstance(value, list) else "{}"
            lines.append(f"{json.dumps(key)}: {left}\n " + ",\n ".join(entries) + f"\n{right}")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _record(result: Result) -> dict[str, Any]:
    metrics = [m for m in result.metrics if any(result.medians(t, m) for t in result.techniques)]
    states, noisy = [unit["state"] for unit in result.units], sum(bool(unit["noisy"]) for unit in result.units)
    environment = result.environments[_machine(result)]
    return {
        "form": FORM,
        "arena": result.arena.path,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "scale": result.plan["recipe"]["scale"],
        "seed": result.seed,
        "answer": result.answer(),
        "verdicts": [],
        "metrics": {m: _metric(result, m) for m in metrics},
        "techniques": {t: _technique(result, t, metrics) for t in result.techniques},
        "units": {**{state: states.count(state) for state in ("done", "failed", "declined")}, "noisy": noisy},
        "environment": {key: environment[key] for key in FACTS if key in environment},
    }


def _machine(result: Result) -> int:
    """The machine on which most of the units ran."""
    ran = [unit["environment"] for unit in result.units if unit["environment"] is not None]
    return max(set(ran), key=ran.count) if ran else next(iter(result.environments))


def _metric(result: Result, name: str) -> dict[str, Any]:
    facts = result.metric(name)
    kinds = sorted({kind for technique in result.techniques for kind in result.kinds(technique, name)})
    return {"unit": facts.unit, "better": facts.better, "scale": facts.scale, "kinds": kinds}


def _technique(result: Result, name: str, metrics: list[str]) -> dict[str, Any]:
    spreads = {m: result.interval(name, m) for m in metrics}
    return {
        "code": code_digest(result.arena, name)[:32],
        "oracle": result.arena.technique(name).oracle,
        "parameters": result.techniques[name],
        "seconds": _seconds(result, name),
        "levels": {m: [_rounded(v) for v in (s.figure, s.low, s.high)] for m, s in spreads.items() if s is not None},
        "medians": {m: {case: _rounded(v) for case, v in found.items()} for m in metrics if (found := result.medians(name, m))},
    }


def _seconds(result: Result, technique: str) -> dict[str, float]:
    """Case to the median seconds of a unit, from which others are told how long the study takes."""
    found: dict[str, list[float]] = {}
    for unit in result.units:
        if unit["technique"] == technique and unit["seconds"] is not None and unit["state"] in ("done", "declined"):
            found.setdefault(unit["case"], []).append(unit["seconds"])
    return {case: float(f"{statistics.median(times):.2g}") for case, times in found.items()}


def _rounded(value: Any) -> Any:
    """Six significant digits; what is no finite number in JSON becomes text."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    return value
