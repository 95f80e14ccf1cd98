"""RAPL's counters through the kernel's performance events, `power/energy-pkg/`: one per package, for readers without access to powercap.

It needs `perf_event_paranoid` of 0 or less, or the capability CAP_PERFMON.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from pathlib import Path

from .rapl import NoMeter

DEVICE = "/sys/bus/event_source/devices/power"
#: The number of the system call perf_event_open by the machine's name.
CALLS = {"x86_64": 298, "aarch64": 241}
_SIZE, _CLOEXEC = 112, 8


class Perf:
    """The counters as a source for `Meter`."""

    form = "energy"

    def __init__(self, root: str | Path = DEVICE) -> None:
        folder = Path(root)
        self._files: list[int] = []
        try:
            kind = int((folder / "type").read_text())
            event = re.fullmatch(r"event=(0x[0-9a-f]{1,4})", (folder / "events/energy-pkg").read_text().strip())
            self._scale = float((folder / "events/energy-pkg.scale").read_text())
            cpus = [int(one.split("-")[0]) for one in (folder / "cpumask").read_text().strip().split(",")]
        except (OSError, ValueError):
            raise NoMeter(f"{folder} has no event energy-pkg: this kernel or virtual machine shows no energy counters") from None
        call = CALLS.get(os.uname().machine)
        if event is None or call is None:
            raise NoMeter(f"{folder}: energy-pkg is not in a form that is known here")
        attributes = struct.pack("<IIQ", kind, _SIZE, int(event[1], 16)).ljust(_SIZE, b"\0")
        libc = ctypes.CDLL(None, use_errno=True)
        for cpu in cpus:
            file = libc.syscall(ctypes.c_long(call), attributes, -1, cpu, -1, ctypes.c_ulong(_CLOEXEC))
            if file < 0:
                why = os.strerror(ctypes.get_errno())
                self.close()
                raise NoMeter(f"power/energy-pkg/ may not be read ({why}); it needs perf_event_paranoid of 0 or less")
            self._files.append(file)
        self.domains = tuple(f"package-{i}" for i in range(len(cpus)))
        self.wraps = (0.0,) * len(cpus)

    def read(self, number: int) -> float:
        """Joules since the counter was opened."""
        count: int = struct.unpack("<Q", os.read(self._files[number], 8))[0]
        return count * self._scale

    def close(self) -> None:
        """Closes the counters."""
        while self._files:
            os.close(self._files.pop())
