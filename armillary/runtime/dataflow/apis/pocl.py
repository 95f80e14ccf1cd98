"""The name of the processor in PoCL, which older releases do not know for newer processors.

PoCL asks its built-in LLVM for the processor's name. For one that is newer than that LLVM the answer is "generic", which its own compiler
then refuses ("unknown target CPU 'generic'"), so that no program can be built. `repair` writes the name of the plain architecture, which
every LLVM knows, over those seven letters in the description of the device in this process. It touches nothing unless it finds exactly
one pointer to exactly that text, right behind the pointer to the target triple, in memory that the process may write.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from typing import Any

GENERIC, PLAIN, TRIPLE = b"generic\0", b"x86-64\0\0", b"x86_64-"
#: Bytes of a device's description that are looked through.
DESCRIPTION = 2048


def repair(device: Any) -> bool:
    """Names the processor of a PoCL device "x86-64" if PoCL calls it "generic"; returns whether it did."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY)
    except OSError:
        return False
    try:
        words = memoryview(_read(memory, device.int_ptr, DESCRIPTION)).cast("Q")
        found = [
            name
            for triple, name in itertools.pairwise(words)
            if _read(memory, name, 8) == GENERIC and _read(memory, triple, 7) == TRIPLE
        ]  # fmt: skip
    finally:
        os.close(memory)
    if len(found) != 1 or not _writable(found[0]):
        return False
    ctypes.memmove(found[0], PLAIN, len(PLAIN))
    return True


def _writable(address: int) -> bool:
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            span, rights = line.split(maxsplit=2)[:2]
            low, high = (int(end, 16) for end in span.split("-"))
            if low <= address <= high - len(PLAIN):
                return rights.startswith("rw")
    return False


def _read(memory: int, address: int, count: int) -> bytes:
    """Bytes of this process, or zeros where nothing is mapped."""
    try:
        return os.pread(memory, count, address).ljust(count, b"\0")
    except (OSError, OverflowError):
        return bytes(count)
