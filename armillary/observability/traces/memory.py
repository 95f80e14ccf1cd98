"""How much memory a piece of work takes beyond what the process had before it."""

from __future__ import annotations

import resource
from pathlib import Path
from types import TracebackType

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Peak:
    """`with Peak() as peak: ...` and then `peak.bytes`.

    Linux can forget the highest resident size so far; elsewhere only growth beyond the process's earlier peak is seen.
    """

    def __enter__(self) -> Peak:
        self._resets = True
        try:
            _RESET.write_text("5")
        except OSError:
            self._resets = False
        self.bytes = 0
        self._before = self._resident("VmRSS") if self._resets else self._highest()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.bytes = max(0, (self._resident("VmHWM") if self._resets else self._highest()) - self._before)

    @staticmethod
    def _resident(name: str) -> int:
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name))
        return int(line.split()[1]) << 10

    @staticmethod
    def _highest() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
