"""Protocols that grow: a ring of k roles in a loop, a fan-out to k roles, d mixed choices inside each other, b tentative messages in a row.

Each family has a broken sister in which one condition is broken at its far end, so that nothing is accepted because it is large.
"""

from __future__ import annotations

from armillary.errors import InputError

from ..language.protocol import Protocol, loads

FAMILIES = ("ring", "fanout", "nest", "loop")


def family(name: str, size: int, *, broken: bool = False) -> Protocol:
    """A member of a family: `ring` and `fanout` of 3 to 64 roles, `nest` up to 8 deep, `loop` up to 64 messages."""
    least, most = {"ring": (3, 64), "fanout": (3, 64), "nest": (1, 8), "loop": (1, 64)}.get(name, (0, 0))
    if not least <= size <= most:
        raise InputError(f"found {name}({size}); expected one of {', '.join(FAMILIES)}, of a size from {least} to {most}")
    text = {"ring": _ring, "fanout": _fanout, "nest": _nest, "loop": _loop}[name](size, broken)
    return loads(text, file=f"{name}({size})")


def _roles(names: list[str]) -> str:
    return ", ".join(f"role {name}" for name in names)


def _ring(k: int, broken: bool) -> str:
    names = [f"R{i}" for i in range(k)]
    left = "put(int v) from R0 to R1; got() from R1 to R0; "
    left += (
        "".join(f"pass{i}(int v) from R{i} to R{i + 1}; " for i in range(1, k - 1)) + f"back(int v) from R{k - 1} to R0; continue Round;"
    )
    last = "" if broken else f"stop{k - 2}() from R{k - 2} to R{k - 1}; "
    right = "halt() from R1 to R0; halted() from R0 to R1; " + "".join(f"stop{i}() from R{i} to R{i + 1}; " for i in range(1, k - 2)) + last
    return f"protocol Ring({_roles(names)}) {{\n rec Round {{ mixed (R0 |> R1) {{\n left {{ {left} }}\n right {{ {right} }}\n }} }}\n}}\n"


def _fanout(k: int, broken: bool) -> str:
    names = ["P", "O", *(f"W{i}" for i in range(k - 2))]
    left = "go(int v) from P to O; going() from O to P; " + "".join(f"work{i}(int v) from O to W{i}; " for i in range(k - 2))
    right = "no() from O to P; fine() from P to O; " + "".join(
        f"{'work' if broken and i == k - 3 else 'rest'}{i}({'int v' if broken and i == k - 3 else ''}) from O to W{i}; "
        for i in range(k - 2)
    )
    return f"protocol Fanout({_roles(names)}) {{\n mixed (P |> O) {{\n left {{ {left} }}\n right {{ {right} }}\n }}\n}}\n"


def _nest(d: int, broken: bool) -> str:
    body = "all() from P to O; done() from O to P; "
    for i in reversed(range(d)):
        ack = "all() from P to O; " if broken and i == d - 1 else f"ack{i}() from P to O; "
        body = f"mixed (P |> O) {{ left {{ go{i}(int v) from P to O; {body} }}\n right {{ no{i}() from O to P; {ack} }} }}"
    return f"protocol Nest(role P, role O) {{\n {body}\n}}\n"


def _loop(b: int, broken: bool) -> str:
    items = "".join(f"item{i}(int v) from P to O; " for i in range(b))
    ack = f"item{b - 1}(int v) from P to O; " if broken else "ended() from P to O; "
    left = f"{items}enough(int n) from O to P; noted(int n) from O to L; continue More;"
    right = f"stop() from O to P; {ack}over() from O to L;"
    return (
        f"protocol Loop(role P, role O, role L) {{\n rec More {{ mixed (P |> O) {{\n left {{ {left} }}\n right {{ {right} }}\n }} }}\n}}\n"
    )
