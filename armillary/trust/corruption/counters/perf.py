"""Hardware counters of this thread by `perf_event_open`, in groups of at most four.

A processor has few counters, so more events than that take turns: groups are enabled window by window and by the kernel, and a value is
scaled by the time for which it was enabled over that for which it ran. A reading whose group ran less than a tenth of the time is left out.
Only what runs in user space is counted. A virtual machine often has no such counters at all; the system call then says ENOENT.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from armillary.arena import NotForThisCase

HARDWARE, SOFTWARE, CACHE = 0, 1, 3
#: (type, number) by name; a cache event is level | operation << 8 | result << 16.
EVENTS = {
    "cycles": (HARDWARE, 0), "instructions": (HARDWARE, 1), "cache_references": (HARDWARE, 2), "cache_misses": (HARDWARE, 3),
    "branches": (HARDWARE, 4), "branch_misses": (HARDWARE, 5), "stalled_cycles": (HARDWARE, 8),
    "l1_loads": (CACHE, 0), "l1_misses": (CACHE, 1 << 16), "llc_loads": (CACHE, 2), "llc_misses": (CACHE, 2 | 1 << 16),
    "dtlb_loads": (CACHE, 3), "dtlb_misses": (CACHE, 3 | 1 << 16),
    "task_clock": (SOFTWARE, 1), "page_faults": (SOFTWARE, 2), "context_switches": (SOFTWARE, 3),
}  # fmt: skip
GROUP = 4
#: What windows of single iterations are counted by: one group, which needs no turns, and the kernel's own clock.
WINDOW_EVENTS = ("instructions", "branches", "branch_misses", "cache_misses", "task_clock")
LEAST_RUNNING = 0.1
_CALLS = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "riscv64": 241, "s390x": 331}
_SIZE = 112
_TOTAL_ENABLED, _TOTAL_RUNNING, _GROUP_FORMAT = 1, 2, 8
_EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 5, 1 << 6


class NoCounters(OSError):
    """The system has no such counter, or does not let this user read it."""


def open_event(kind: int, number: int, leader: int = -1) -> int:
    """A file descriptor that counts an event of this thread in user space; not inherited by its children."""
    if sys.platform != "linux" or platform.machine() not in _CALLS:
        raise NoCounters(errno.ENOSYS, f"perf_event_open is not known on {sys.platform} {platform.machine()}")
    user_space = _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
    # Software clocks and faults are the kernel's own work, which not every user may count.
    found, fault = _open(kind, number, leader, 0 if kind == SOFTWARE else user_space)
    if found < 0 and kind == SOFTWARE and fault in (errno.EACCES, errno.EPERM):
        found, fault = _open(kind, number, leader, user_space)
    if found < 0:
        raise NoCounters(fault, f"perf_event_open: {errno.errorcode.get(fault, fault)} ({os.strerror(fault)})")
    return found


def _open(kind: int, number: int, leader: int, flags: int) -> tuple[int, int]:
    """(descriptor or -1, errno)."""
    fields = struct.pack("<IIQQQQQ", kind, _SIZE, number, 0, 0, _TOTAL_ENABLED | _TOTAL_RUNNING | _GROUP_FORMAT, flags)
    attribute = ctypes.create_string_buffer(fields.ljust(_SIZE, b"\0"), _SIZE)
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    found = int(call(_CALLS[platform.machine()], attribute, 0, -1, leader, ctypes.c_ulong(1 << 3)))
    return found, ctypes.get_errno() if found < 0 else 0


def scaled(value: float, enabled: float, running: float) -> float | None:
    """What a raw count would be had it run all the time; None if it ran less than a tenth of it. 0 while the thread did not run."""
    if enabled <= 0:
        return 0.0
    if running < LEAST_RUNNING * enabled:
        return None
    return value * (enabled / running)


@dataclass
class _Group:
    names: tuple[str, ...]
    descriptors: list[int]
    last: tuple[int, ...]

    def read(self) -> tuple[int, ...]:
        """(enabled ns, running ns, value …) since the opening."""
        data = os.read(self.descriptors[0], 8 * (3 + len(self.names)))
        return struct.unpack(f"<{len(data) // 8}Q", data)[1:]


class Perf:
    """Counts of some events since the last sample, for the thread that made it."""

    def __init__(self, events: Sequence[str] = tuple(EVENTS), group: int = GROUP) -> None:
        self.names = tuple(events)
        self._groups: list[_Group] = []
        hardware = [one for one in events if EVENTS[one][0] != SOFTWARE]
        clocks = [one for one in events if EVENTS[one][0] == SOFTWARE]
        try:
            for kind in (hardware, clocks):
                for at in range(0, len(kind), group):
                    self._open(tuple(kind[at : at + group]))
        except BaseException:
            self.close()
            raise

    def _open(self, names: tuple[str, ...]) -> None:
        held = _Group(names, [], ())
        self._groups.append(held)
        for name in names:
            held.descriptors.append(open_event(*EVENTS[name], held.descriptors[0] if held.descriptors else -1))
        held.last = held.read()

    def sample(self) -> dict[str, float]:
        """Scaled counts since the last sample; events that ran too little are missing."""
        found = {}
        for group in self._groups:
            now = group.read()
            enabled, running, *values = (b - a for a, b in zip(group.last, now))
            group.last = now
            for name, value in zip(group.names, values):
                whole = scaled(value, enabled, running)
                if whole is not None:
                    found[name] = whole
        return found

    def close(self) -> None:
        """Gives the descriptors back."""
        for group in self._groups:
            for descriptor in group.descriptors:
                os.close(descriptor)
        self._groups = []


def reason() -> str:
    """Why hardware counters cannot be had here; empty if they can."""
    try:
        os.close(open_event(*EVENTS["instructions"]))
    except NoCounters as error:
        return str(error.strerror)
    return ""


def require() -> None:
    """Declines where this machine has no hardware counters."""
    why = reason()
    if why:
        raise NotForThisCase(f"this machine gives no hardware counters: {why}; a modelled core stands in for them (--counters model)")
