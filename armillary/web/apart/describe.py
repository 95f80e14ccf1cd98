"""Describes an arena with all its techniques, which means importing them."""

from __future__ import annotations

from typing import Any

from armillary import catalogue, describe
from armillary.arena import SCALES
from armillary.parameters import parameters
from armillary.web.apart.calling import answer


def described(arena: str) -> dict[str, Any]:
    """The facts of `armillary show`, of the arena and of each technique, and the fields of its form."""
    home = catalogue.arena(arena)
    options = {} if home._reading is None else parameters(home._reading.options)
    facts = describe.arena(home)
    return {
        **facts,
        "techniques": [describe.technique(home, t["name"]) | {"about_short": t["about"]} for t in facts["techniques"]],
        "telling": home.telling_cases("small") or [],
        "scales": list(SCALES),
        "files": [name for name, option in options.items() if option.file],
        "takes_cluster": _takes_cluster(home),
    }


def _takes_cluster(home: Any) -> bool:
    import inspect

    return home._cases is not None and "cluster" in inspect.signature(home._cases).parameters


if __name__ == "__main__":
    answer(lambda given: described(given["arena"]))
