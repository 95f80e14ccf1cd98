"""The same question in Promela, the language of SPIN, whose search is another program's.

One process per thread has a label for each instruction. A step on memory is one `atomic`, which may wait for its word; local
instructions are steps of their own, which SPIN's partial order reduction joins. Under TSO each thread has a store buffer, which a second
process empties, and reads look there first. Faults are assertions (two inside, or out of order) and invalid ends (nobody can go on).
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from armillary.errors import InputError
from armillary.runtime.locks.description.program import (
    ADD,
    BASE,
    CAS,
    CONSTANT,
    DONE,
    DOORWAY,
    ENTER,
    EQUAL,
    EXPECTED,
    INDEX,
    JUMP,
    LEAVE,
    LESS,
    LOAD,
    MINUS,
    MOVE,
    NOT_LESS,
    OPERATION,
    PLUS,
    REST,
    SLOT,
    STORE,
    TIMES,
    TO,
    UNEQUAL,
    UNLIKE,
    UNTIL,
    VALUE,
    XCHG,
    Program,
    program,
)  # fmt: skip
from armillary.runtime.locks.description.steps import Description, slot

from .check import checked_size

#: Stores that one buffer holds.
BUFFER = 3
#: Values whose slots are tabled.
TABLED = 64
_ARITHMETIC = {PLUS: "+", MINUS: "-", TIMES: "*"}
_RELATIONS = {EQUAL: "==", UNEQUAL: "!=", LESS: "<", NOT_LESS: ">="}
MOST_SECONDS = 120
#: Words of a model's memory; the numbers of slots are bytes, and a state of SPIN's search has two kilobytes.
MOST_MEMORY = 200


def promela(described: Description, threads: int, episodes: int, *, model: str = "sc") -> str:
    """A Promela model of so many threads that acquire and release so many times each, on one lock."""
    checked_size(threads, episodes, model)
    made = program(described.with_small_values(threads, episodes), threads, 1)
    tso = model == "tso"
    if len(made.memory) > MOST_MEMORY:
        raise InputError(f"found {len(made.memory):,} words of memory; expected at most {MOST_MEMORY}, for instance Hapax(slots=2)")
    lines = [
        f"#define T {threads}", f"#define EPISODES {episodes}", f"#define K {BUFFER}", f"short mem[{max(1, len(made.memory))}];",
        "byte inside; byte queue[T + 1]; byte waiting;",
    ]  # fmt: skip
    if tso:
        lines += ["short ba[T * K]; short bv[T * K]; byte bn[T];", f"#define SEEN(a) {_seen()}"]
    else:
        lines += ["#define SEEN(a) mem[a]"]
    slots = [slot(value, described.slots) for value in range(TABLED)]
    starts = [f"mem[{word}] = {int(value)};" for word, value in enumerate(made.memory) if value]
    if SLOT in made.code[:, OPERATION]:
        lines.append(f"byte slot_of[{TABLED}];")
        starts += [f"slot_of[{value}] = {place};" for value, place in enumerate(slots) if place]
    lines += ["proctype Lock(byte me) {", "  byte episode = 0; byte place = 0; short was = 0;"]
    lines += [f"  short r{register} = 0;  /* {name} */" for register, name in enumerate(made.registers)]
    lines += ["  r0 = me;"]
    for register in range(3, made.passing):
        lines += [f"  if :: me == {thread} -> r{register} = {made.own[thread, register]} :: else fi;" for thread in range(threads)]
    lines += [f"L{at}: {_instruction(made, at, tso)}" for at in range(len(made.code))]
    lines += ["finish: skip", "}"]
    if tso:
        shift = " ".join(f"ba[i * K + {k}] = ba[i * K + {k + 1}]; bv[i * K + {k}] = bv[i * K + {k + 1}];" for k in range(BUFFER - 1))
        clear = f"ba[i * K + {BUFFER - 1}] = 0; bv[i * K + {BUFFER - 1}] = 0; bn[i] = bn[i] - 1"
        emptied = f"atomic {{ bn[i] > 0 -> d_step {{ mem[ba[i * K]] = bv[i * K]; {shift} {clear} }} }}"
        lines += ["proctype Buffer(byte i) {", f"end: do :: {emptied} od", "}"]
    runs = [f"run Lock({thread});" for thread in range(threads)] + ([f"run Buffer({thread});" for thread in range(threads)] if tso else [])
    lines += ["init { atomic {", *(f"  {text}" for text in [*starts, *runs]), "} }"]
    return "\n".join(lines) + "\n"


def _seen() -> str:
    """What a thread reads at a word: the newest store of its own that is still in the buffer, or memory."""
    found = "mem[a]"
    for k in range(BUFFER):
        found = f"((bn[me] > {k} && ba[me * K + {k}] == (a)) -> bv[me * K + {k}] : {found})"
    return found


def _instruction(made: Program, at: int, tso: bool) -> str:
    row = made.code[at]
    operation = int(row[OPERATION])

    def operand(column: int) -> str:
        number = int(row[column])
        return str(int(made.constants[number - CONSTANT])) if number >= CONSTANT else f"r{number}"

    to = f"r{int(row[TO])}"
    if operation in (ENTER, LEAVE, DONE):
        return _boundary(made, operation)
    if operation == JUMP:
        return f"goto L{int(row[TO])};"
    if operation in _RELATIONS:
        return f"if :: ({operand(INDEX)} {_RELATIONS[operation]} {operand(VALUE)}) -> goto L{int(row[TO])} :: else fi;"
    if operation == MOVE:
        return f"{to} = {operand(INDEX)};"
    if operation in _ARITHMETIC:
        return f"{to} = {operand(INDEX)} {_ARITHMETIC[operation]} {operand(VALUE)};"
    if operation == SLOT:
        return f"assert({operand(INDEX)} < {TABLED}); {to} = slot_of[{operand(INDEX)}];"
    if operation == REST:
        return "skip;"
    word = f"{int(row[BASE])} + {operand(INDEX)}"
    keep = int(row[TO]) >= 0
    arrive = "queue[waiting] = me + 1; waiting = waiting + 1;" if row[DOORWAY] else ""
    drained = "bn[me] == 0 -> " if tso else ""
    if operation == LOAD:
        return f"atomic {{ {f'{to} = SEEN({word});' if keep else 'skip;'} {arrive} }};"
    if operation == STORE:
        if tso:
            put = f"ba[me * K + bn[me]] = {word}; bv[me * K + bn[me]] = {operand(VALUE)}; bn[me] = bn[me] + 1;"
            return f"atomic {{ bn[me] < K -> {put} {arrive} }};"
        return f"atomic {{ mem[{word}] = {operand(VALUE)}; {arrive} }};"
    if operation in (UNLIKE, UNTIL):
        relation = "!=" if operation == UNLIKE else "=="
        return f"atomic {{ (SEEN({word}) {relation} {operand(VALUE)}) -> {f'{to} = SEEN({word})' if keep else 'skip'} }};"
    # The old value may go to a register that the new one is made of.
    written = {
        XCHG: f"mem[where] = {operand(VALUE)};",
        ADD: f"mem[where] = mem[where] + {operand(VALUE)};",
        CAS: f"if :: mem[where] == {operand(EXPECTED)} -> mem[where] = {operand(VALUE)} :: else fi;",
    }[operation].replace("where", f"{word}")
    if keep:
        return f"atomic {{ {drained}was = mem[{word}]; {written} {to} = was; was = 0; {arrive} }};"
    return f"atomic {{ {drained}{written} {arrive} }};"


def _boundary(made: Program, operation: int) -> str:
    cleared = " ".join(f"r{register} = 0;" for register in range(made.passing, len(made.registers)))
    if operation == ENTER:
        order = "assert(queue[0] == me + 1);" if made.fifo else ""
        shift = (
            "place = 0; do :: queue[place] == me + 1 || place == waiting -> break :: else -> place = place + 1 od; "
            "do :: place < waiting -> queue[place] = queue[place + 1]; place = place + 1 :: else -> break od; "
            "if :: waiting > 0 -> waiting = waiting - 1 :: else fi; queue[waiting] = 0; place = 0;"
        )
        return f"atomic {{ inside = inside + 1; assert(inside == 1); {order} {shift} {cleared} }};"
    if operation == LEAVE:
        return "inside = inside - 1;"
    return f"atomic {{ {cleared} r2 = 0; episode = episode + 1 }}; if :: episode < EPISODES -> goto L0 :: else fi;"


def spin_answers(model: str, *, ends: bool = True) -> str:
    """What SPIN says of a model: "" if nothing can go wrong, else "assertion" or "invalid end"; needs `spin` and a C compiler.

    It stops at the first fault that it meets. Without `ends`, threads that wait for ever are none.
    """
    for needed in ("spin", "cc"):
        if shutil.which(needed) is None:
            raise InputError(f"found no program {needed}; expected it on the path")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "lock.pml").write_text(model)
        how = {"cwd": folder, "capture_output": True, "text": True, "timeout": MOST_SECONDS, "check": True}
        subprocess.run(["spin", "-a", "lock.pml"], **how)  # type: ignore[call-overload]
        subprocess.run(["cc", "-O1", "-w", "-DSAFETY", "-DVECTORSZ=2048", "-o", "pan", "pan.c"], **how)  # type: ignore[call-overload]
        said = subprocess.run(["./pan", "-m1000000", "-w24", *([] if ends else ["-E"])], **how).stdout  # type: ignore[call-overload]
    if "max search depth too small" in said or "out of memory" in said:
        raise InputError("SPIN's search did not end; expected fewer threads or episodes")
    if "errors: 0" in said:
        return ""
    fault = next((line for line in said.splitlines() if line.startswith("pan:")), "")
    for known, short in (("invalid end state", "invalid end"), ("assertion violated", "assertion")):
        if known in fault:
            return short
    raise InputError(f"SPIN said {said[:200]!r}")
