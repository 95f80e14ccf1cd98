"""Results made by hand, for tests of what is computed from them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from armillary.arena import Arena, Metric, Technique
from armillary.study.result import Result

Cells = Mapping[str, Mapping[str, list[float]]]

METRICS = [
    Metric("cost", better="lower"),
    Metric("rate", better="higher", kind="measured"),
    Metric("lines", better="lower", kind="measured", steady=True),
    Metric("accuracy", better="higher", scale="difference"),
    Metric("mixed", better="lower", kind="by case"),
]


class Seer(Technique):
    """Knows the future. 1966."""

    oracle = True


class Made(Result):
    """A result made by hand: metric to technique to case to repeats."""

    def __init__(self, values: Mapping[str, Cells], kinds: Mapping[str, set[str]] | None = None, numbers: Mapping[str, float] | None = None,
                 states: Mapping[tuple[str, str], str] | None = None, stale: set[str] | None = None) -> None:  # fmt: skip
        techniques = dict.fromkeys(t for cells in values.values() for t in cells)
        cases = dict.fromkeys(c for cells in values.values() for row in cells.values() for c in row)
        facts = {c: {"kinds": sorted((kinds or {}).get(c, set())), "parameters": {"n": (numbers or {}).get(c, "none")}} for c in cases}
        units: dict[tuple[str, str, int], dict[str, Any]] = {}
        found: dict[int, dict[str, tuple[str, float]]] = {}
        counter = itertools.count()
        for metric, cells in values.items():
            for t, row in cells.items():
                for c, numbers_of in row.items():
                    for repeat, value in enumerate(numbers_of):
                        state = (states or {}).get((t, c), "done")
                        unit = units.setdefault((t, c, repeat), {
                            "key": next(counter), "technique": t, "case": c, "repeat": repeat, "state": state, "noisy": 0, "reason": "",
                            "error": "", "stale": t in (stale or ()),
                        })  # fmt: skip
                        kind = "measured" if metric in ("rate", "lines") or ("measured" in facts[c]["kinds"] and metric == "mixed") else "simulated"
                        if state == "done":
                            found.setdefault(unit["key"], {})[metric] = (kind, value)
        plan = {
            "techniques": dict.fromkeys(techniques, {}),
            "cases": facts,
            "metrics": list(values),
            "seed": 0,
            "recipe": {"arena": "by/hand", "scale": "small"},
        }
        super().__init__(study=1, created=0.0, command="", plan=plan, units=list(units.values()), values=found, environments={})

    @property
    def arena(self) -> Arena:
        made = Arena("by/hand", question="Which?", metrics=METRICS, techniques=dict.fromkeys(self.techniques, f"{__name__}:Technique"))
        made.cases(lambda scale: [])
        made.technique = lambda name: Seer if name == "seer" else Technique  # type: ignore[method-assign,assignment,return-value]
        return made
