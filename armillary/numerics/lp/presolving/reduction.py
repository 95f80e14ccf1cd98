"""A program made smaller, and the way back to the one that was given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from armillary.errors import unknown

from ..program.problem import Array, LinearProgram

#: HiGHS where highspy is installed and the light presolve elsewhere; one of the two; or none.
CHOICES = ("auto", "highs", "light", "off")

Finding = Literal["smaller", "infeasible", "unbounded", "no optimum", "nothing"]


@dataclass(frozen=True)
class Reduction:
    """What a presolve found.

    `finding` is "smaller" (`program` is to be solved, and `restore` takes its x and y back to the original program), "infeasible",
    "unbounded", "no optimum" (one of the two), or "nothing" (the program cannot be made smaller).
    """

    finding: Finding
    program: LinearProgram | None = None
    restore: Callable[[Array, Array], tuple[Array, Array]] = lambda x, y: (x, y)


def reduced(lp: LinearProgram, how: str = "auto") -> Reduction:
    """Makes a program smaller with HiGHS's presolve ("highs"), with the light one ("light"), or with the better that is here ("auto")."""
    if how not in CHOICES:
        raise unknown("presolve", how, CHOICES)
    if how == "off":
        return Reduction("nothing")
    if how == "highs" or (how == "auto" and find_spec("highspy") is not None):
        from .highs import reduced_by_highs

        return reduced_by_highs(lp)
    from .light import reduced_lightly

    return reduced_lightly(lp)
