"""RAPL's counters of energy, through the kernel's powercap tree.

A zone `intel-rapl:0` is a package; `intel-rapl:0:0` is a part inside it (core, uncore, dram) and is never added to it. AMD's processors
have the same names. The same package may appear again through memory-mapped registers (`intel-rapl-mmio:0`), and `psys` holds the whole
platform; both are left out. A counter starts anew after `max_energy_range_uj`. Since 2020 kernels let only root read `energy_uj`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from armillary.errors import one_line

POWERCAP = "/sys/class/powercap"
_ZONE = re.compile(r"intel-rapl:[0-9]{1,4}(:[0-9]{1,4})?")
MOST_ZONES = 1024


class NoMeter(Exception):
    """There is no meter of this kind that this process may read, with the reason."""


@dataclass(frozen=True)
class Zone:
    """One counter: its domain (`package-0`, or `package-0/dram` inside it), its file, and the microjoules after which it starts anew."""

    domain: str
    path: Path
    wrap_uj: int


def zones(root: str | Path = POWERCAP, *, parts: bool = False) -> list[Zone]:
    """The packages' counters, and with `parts` those of their parts; raises `NoMeter` if there is none or if they may not be read."""
    folder = Path(root)
    try:
        names = sorted(name for name in os.listdir(folder) if _ZONE.fullmatch(name))[:MOST_ZONES]
    except OSError:
        raise NoMeter(f"{folder} does not exist: this kernel or virtual machine shows no RAPL counters") from None
    label = {name: _text(folder / name / "name") for name in names}
    packages = [name for name in names if name.count(":") == 1 and label[name].startswith("package")]
    if not packages:
        raise NoMeter(f"{folder} has no package of intel-rapl: this processor shows no RAPL counters")
    found = []
    for name in packages:
        found.append(_zone(folder / name, label[name]))
        inside = [other for other in names if parts and other.startswith(f"{name}:")]
        found += [_zone(folder / other, f"{label[name]}/{label[other] or other}") for other in inside]
    if len({one.domain for one in found}) < len(found):
        raise NoMeter(f"{folder} has two zones of one name: {', '.join(one.domain for one in found)}")
    return found


def _zone(path: Path, domain: str) -> Zone:
    counter = path / "energy_uj"
    try:
        text = counter.read_text()
    except PermissionError:
        raise NoMeter(f"{counter} may be read by root only") from None
    except OSError as error:
        raise NoMeter(f"{counter} cannot be read ({one_line(str(error.strerror), 60)})") from None
    wrap = _text(path / "max_energy_range_uj")
    if not (text.strip().isdigit() and wrap.isdigit() and 0 < int(wrap) < 1 << 62):
        raise NoMeter(f"{counter} does not hold microjoules with a range")
    return Zone(domain, counter, int(wrap))


def _text(path: Path) -> str:
    try:
        return path.read_text()[:200].strip()
    except (OSError, UnicodeDecodeError):
        return ""


class Rapl:
    """The counters as a source for `Meter`: files stay open, so a reading is one system call each."""

    form = "energy"

    def __init__(self, root: str | Path = POWERCAP, *, parts: bool = False) -> None:
        self.zones = zones(root, parts=parts)
        self.domains = tuple(zone.domain for zone in self.zones)
        self.wraps = tuple(zone.wrap_uj * 1e-6 for zone in self.zones)
        self._files = [os.open(zone.path, os.O_RDONLY | os.O_CLOEXEC) for zone in self.zones]

    def read(self, number: int) -> float:
        """Joules on the counter of a domain."""
        return int(os.pread(self._files[number], 64, 0)) * 1e-6

    def close(self) -> None:
        """Closes the counters."""
        while self._files:
            os.close(self._files.pop())
