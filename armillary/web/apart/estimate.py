"""Plans a study without running it: how many units, how many of them are known, and about how many seconds the rest will take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from armillary.study.expectation import Expectation
from armillary.study.store import Store
from armillary.study.study import known_seconds, planned
from armillary.web.apart.calling import answer
from armillary.web.asked import Asked


def estimated(asked: Asked, store: Path) -> dict[str, Any]:
    """The size of the study that was asked for."""
    wanted = planned(**asked.words())
    done: set[str] = set()
    if store.exists():
        with Store.read(store) as opened:
            states = opened.states(wanted.units)
        done = {u.id for u in wanted.units if states.get(u.id, ("", "", ()))[:2] in {(s, u.code_digest[:32]) for s in ("done", "declined")}}
    left = [unit for unit in wanted.units if unit.id not in done]
    seconds = Expectation(known_seconds(wanted.arena.path, store)).total((unit.technique, unit.case) for unit in left) if left else 0.0
    alone = any(unit.exclusive for unit in left)
    return {"units": len(wanted.units), "known": len(done), "cases": len(wanted.cases), "seconds": seconds, "alone": alone}


if __name__ == "__main__":
    answer(lambda given: estimated(Asked.from_json(given["asked"]), Path(given["store"])))
