"""Runs compiled loops one machine instruction at a time, and says which instructions they executed, in order.

    python tests/trust/outsourcing/stepped.py LOOP SCALAR

A child asks to be traced, stops before and after one call, and is stepped by its parent in between (ptrace, Linux on x86-64). Only code that
was compiled in the process counts, which stands in memory that belongs to no file; so the interpreter's own steps drop out. Places are counted
from the first of them, since every process has its code elsewhere.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

TRACEME, STEP, CONTINUE, REGISTERS = 0, 9, 7, 12
#: The instruction pointer among the words of `struct user_regs_struct`, and their number.
POINTER, WORDS = 16, 27
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def ptrace(request: int, process: int, data: Any = None) -> None:
    if _libc.ptrace(request, process, None, data) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def compiled_code(process: int) -> list[tuple[int, int]]:
    """Executable memory that belongs to no file."""
    found = []
    with open(f"/proc/{process}/maps") as maps:
        for line in maps:
            parts = line.split()
            if "x" in parts[1] and len(parts) < 6:
                found.append(tuple(int(one, 16) for one in parts[0].split("-")))
    return found  # type: ignore[return-value]


def stepped(call: Callable[[], object]) -> tuple[int, str]:
    """(instructions, a digest over their places in order) of the compiled code that `call` runs; it has run once before."""
    call()
    child = os.fork()
    if child == 0:
        ptrace(TRACEME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        call()
        os._exit(0)
    os.waitpid(child, 0)
    code = compiled_code(child)
    lowest, digest, count = min(low for low, _ in code), hashlib.sha256(), 0
    registers = (ctypes.c_ulonglong * WORDS)()
    while True:
        ptrace(STEP, child)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            return count, digest.hexdigest()
        ptrace(REGISTERS, child, ctypes.byref(registers))
        at = registers[POINTER]
        if any(low <= at < high for low, high in code):
            digest.update((at - lowest).to_bytes(8, "little"))
            count += 1


def traces(loop: str, secrets: list[int]) -> list[tuple[int, str]]:
    """What one loop executes for each of several secrets, in children of one process, so that the code stands at one place."""
    from armillary.trust.outsourcing import Element, times_generator
    from armillary.trust.outsourcing.delegation.shifts import hashed
    from armillary.trust.outsourcing.group.bases import as_scalars
    from armillary.trust.outsourcing.group.element import linear, scalar_words
    from armillary.trust.outsourcing.summing.inner import inner_product

    one, x = Element.generator() * 5, as_scalars([3, 4])

    def made(secret: int) -> Callable[[], object]:
        words = scalar_words(secret)[0]
        if loop == "multiple":
            return lambda: one * words
        if loop == "base":
            return lambda: times_generator(words)
        if loop == "linear":
            return lambda: linear(words, one, words)
        if loop == "inner":
            both = as_scalars([secret, secret])
            return lambda: inner_product(x, both)
        if loop == "hash":
            return lambda: hashed(secret.to_bytes(32, "little"), 0, 2)
        if loop == "sum":  # This one is not constant in time, and shows that a difference is seen.
            from armillary.trust.outsourcing import Bases, msm

            bases, scalars = Bases.from_elements([one]), as_scalars([secret])
            return lambda: msm(bases, scalars)
        raise SystemExit(f"no such loop: {loop}")

    calls = [made(secret) for secret in secrets]
    for call in calls:
        call()
    return [stepped(call) for call in calls]


if __name__ == "__main__":
    for instructions, digest in traces(sys.argv[1], [int(one) for one in sys.argv[2:]]):
        print(instructions, digest[:16])
