"""Whether a study is the whole evidence for a claim.

A verdict must not be had by choosing. So a claim is judged only when every case of its kind at the scale that it is made for was run, by
every technique that it names (every competitor of the arena for "best on …"), all with their default parameters. Anything less shows
its figure and no state.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

from armillary.arena import SCALES, Arena, canonical
from armillary.claim import Claim, Wins
from armillary.wording import listed

if TYPE_CHECKING:
    from armillary.study.result import Result


#: How a technique that lacks an optional dependency names what to install.
MISSING_EXTRA = "armillary["


def rivals(technique: str, claim: Claim, result: Result) -> tuple[str, ...]:
    """The technique and everything that the claim compares it with, oracles aside."""
    if not isinstance(claim.by, Wins):
        return (technique, *claim.baselines)
    arena = result.arena
    # What a notebook or another package added does not belong to the published comparison.
    own = [name for name in arena.techniques if arena.techniques[name].startswith(".") or name in result.techniques]
    return tuple(dict.fromkeys((technique, *(name for name in own if not arena.technique(name).oracle))))


def impossible(technique: str, claim: Claim, result: Result) -> str:
    """Why not even a figure can be given from this study, or an empty string."""
    needed = rivals(technique, claim, result)
    for name in needed:
        if name not in result.techniques and not isinstance(claim.by, Wins):
            return f"{name} was not run"
    cases = {case for kind in claim.kinds for case in result.cases_of(kind)}
    if not cases:
        return "no case of kind " + ", ".join(str(kind) for kind in claim.kinds) + " was run"
    for unit in result.units:
        if unit["technique"] in needed and unit["case"] in cases:
            why = unit["reason"] or unit["error"] or ""
            declined = unit["state"] == "declined" and isinstance(claim.by, Wins) and unit["technique"] != technique
            if declined and MISSING_EXTRA not in why:  # It does not take the case, so it is no competitor there.
                continue
            if unit["state"] != "done":
                return f"{unit['technique']} on {unit['case']} {unit['state']}{': ' + why if why else ''}"
            if unit["stale"]:
                return f"{unit['technique']} on {unit['case']} is stale, because its code changed since"
    return ""


def partial(technique: str, claim: Claim, result: Result) -> str:
    """What is missing for a judgement although a figure can be given, or an empty string when the study is whole."""
    recipe = result.plan["recipe"]
    if recipe.get("work"):
        return "the work came from your own file, and the claim is made for the built-in cases"
    if recipe.get("cluster"):
        return "the work was put on another cluster than the claim's"
    scale = recipe.get("scale", "small")
    if SCALES.index(scale) < SCALES.index(claim.scale):
        return f"the claim is made for scale {claim.scale}, and this is {scale}"
    missing = [name for name in rivals(technique, claim, result) if name not in result.techniques]
    if missing:
        return f"{listed(missing)} {'was' if len(missing) == 1 else 'were'} not run"
    for name in rivals(technique, claim, result):
        usual = _usual(result.arena, name)
        if usual is not None and result.techniques[name] != usual:
            return f"{name} was run with other parameters than its own"
    whole = _whole(result.arena, scale)
    wanted = {name: digest for name, (kinds, digest) in whole.items() if any(kind.takes(kinds) for kind in claim.kinds)}
    run = sum(result.cases.get(name, {}).get("digest") == digest for name, digest in wanted.items())
    if run < len(wanted):
        return f"only {run} of the {len(wanted)} cases that the claim is made for {'was' if run == 1 else 'were'} run"
    return ""


@functools.lru_cache(maxsize=64)
def _whole(arena: Arena, scale: str) -> dict[str, tuple[frozenset[str], str]]:
    """Every built-in case of an arena at a scale: its kinds and digest by name."""
    return {case.name: (case.kinds, case.digest) for case in arena.built_in(scale)}


def _usual(home: Arena, technique: str) -> dict[str, object] | None:
    """A technique's parameters as the arena makes it; None for a class of a notebook."""
    if not home.techniques[technique].startswith("."):
        return None
    found: dict[str, object] = json.loads(canonical(home.make(technique)))
    return found
