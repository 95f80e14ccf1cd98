"""What the forward run has to compute if only the gradient is wanted: everything else is left out.

The gradient of a linear kernel needs no forward run at all, and that of a product needs its operands, not the product.
"""

from __future__ import annotations

from ..program.expressions import loads
from ..program.regions import Check, Program, Statement, While, bodies
from ..reversal.adjoint import Reversed
from .candidates import Forwarding, values_read
from .planning import Model, Plan


def needed(program: Program, reversed_: Reversed, forwarding: Forwarding, model: Model, plan: Plan) -> frozenset[str]:
    """The arrays whose content the reverse run, or a check of an index, depends on."""
    wanted: set[str] = set()
    for serial, needs in reversed_.needs.items():
        for load in needs:
            number = forwarding.source[serial, load]
            wanted.add(load.array if number is None else forwarding.candidates[number].array.name)
    for adjoint in reversed_.adjoints.values():
        wanted |= {load.array for _, part in adjoint.parts for load in loads(part) if load.after}
    for number in plan.stored:
        wanted.add(forwarding.candidates[number].array.name)
    for number in plan.recomputed:
        candidate = forwarding.candidates[number]
        for place in candidate.slice or ():
            wanted |= {load.array for one in _inside(candidate.body[place]) for load in values_read(one)}
    for serial in plan.options:
        wanted |= {*model.replays[serial].keep}
    for statement in program.statements():
        if isinstance(statement, Check):
            wanted |= {load.array for load in statement.loads()}
    return frozenset(_closure(program.root, wanted))


def _inside(statement: Statement) -> list[Statement]:
    return [statement, *(one for part in bodies(statement) for inner in part for one in _inside(inner))]


def _closure(root: list[Statement], wanted: set[str]) -> set[str]:
    """With everything that computes them: what their statements read, and what decides whether and how often they run."""
    around: list[tuple[Statement, tuple[Statement, ...]]] = []

    def note(body: list[Statement], outer: tuple[Statement, ...]) -> None:
        for statement in body:
            around.append((statement, outer))
            for part in bodies(statement):
                note(part, (*outer, statement))

    note(root, ())
    while True:
        before = len(wanted)
        for statement, outer in around:
            if {access.array for access in statement.writes()} & wanted or isinstance(statement, Check):
                for one in (statement, *outer):
                    wanted |= {load.array for load in values_read(one)}
                    if isinstance(one, While):
                        wanted |= {one.condition, one.trips}
        if len(wanted) == before:
            return wanted
