"""Writes a result as a record: what `results/` keeps of a study, so that nobody types it again."""

from __future__ import annotations

import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

from armillary.errors import InputError
from armillary.records import FORM, file_name, load
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
    """Writes or renews the arena's record in `folder`; verdicts on other techniques that stand there already are kept."""
    if not folder.is_dir():
        raise InputError("expected a folder that exists, for the records", where=str(folder))
    target = folder / file_name(result.arena.path)
    made = _record(result)
    found = {v.claim: {key: _rounded(value) for key, value in v.json().items() if key in VERDICT} for v in result.verdicts}
    # What this study judged only in part is not tried, unless an earlier one judged it whole.
    kept = {verdict["claim"]: dict(verdict) for verdict in load(target).verdicts} if target.exists() else {}
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
