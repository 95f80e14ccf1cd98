"""The same units in two stores: two machines, or two versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from armillary import catalogue
from armillary.study.gains import gains
from armillary.study.store import Store

Key = tuple[str, str, str, str, str]
Values = dict[str, dict[int, float]]


def differences(before: Path, after: Path) -> dict[str, Any]:
    """Gains of `after` over `before` by arena, technique and metric, with intervals, and the verdicts that changed."""
    old, new = _values(before), _values(after)
    rows = []
    for key in sorted(old.keys() & new.keys()):
        arena, technique, _, metric, kind = key
        facts = catalogue.arenas()[arena].metrics.get(metric) if arena in catalogue.arenas() else None
        if facts is None or facts.better is None:
            continue
        found = gains(new[key], old[key], facts.better, facts.scale)
        spread = found.interval()
        if spread:
            pairs = sum(len(values) for values in found.by_case.values())
            rows.append({"arena": arena, "technique": technique, "metric": metric, "kind": kind, "gain": spread.figure, "low": spread.low,
                         "high": spread.high, "pairs": pairs})  # fmt: skip
    return {"gains": rows, "verdicts": _changed(before, after)}


def _values(path: Path) -> dict[Key, Values]:
    """(arena, technique, parameters, metric, kind) to case to repeat to value; studies of other seeds are other cases."""
    query = (
        "SELECT arena, technique, parameters, metric.name, metric.kind, case_name, hex(case_digest), seed, repeat, value"
        " FROM unit JOIN value ON value.unit = unit.key JOIN metric ON metric.key = value.metric WHERE state = 'done'"
    )
    found: dict[Key, Values] = {}
    with Store.read(path) as store:
        for arena, technique, parameters, metric, kind, case, digest, seed, repeat, value in store.db.execute(query):
            cases = found.setdefault((arena, technique, parameters, metric, kind), {})
            cases.setdefault(f"{case}/{digest}/{seed}", {})[repeat] = value
    return found


def _changed(before: Path, after: Path) -> list[dict[str, str]]:
    with Store.read(before) as a, Store.read(after) as b:
        old, new = a.last_verdicts(), b.last_verdicts()
    return [{"claim": c, "before": old[c][0], "after": new[c][0]} for c in sorted(old.keys() & new.keys()) if old[c][0] != new[c][0]]
