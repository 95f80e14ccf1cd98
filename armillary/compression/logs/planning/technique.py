"""The methods that every technique of this arena has: it plans for a log, turns it into bytes, and turns the bytes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armillary.arena import NotForThisCase, Technique

from ..records.formats import Format
from ..streams.compressors import compressor
from .plan import EMBED, Plan, unwritten, written


@dataclass(frozen=True)
class Log:
    """A whole log in memory, and its format (None for free text).

    `search` lowers the limits of a technique's search: bytes of the sample, orders, seconds. `lenient` leaves alone any number of lines
    that do not fit.
    """

    data: bytes
    format: Format | None
    search: tuple[int, int, float] = (1 << 30, 1 << 30, 86400.0)
    lenient: bool = False


class LogTechnique(Technique):
    """Compresses logs. `plan` may look at a sample first, `pack` includes the transform, and `decode` and `restore` undo it together."""

    compressor: str

    @property
    def alone(self) -> str:
        """The compressor on the original order that `gain` compares with."""
        return self.compressor

    def plan(self, log: Log) -> Plan | None:
        """Returns the order in which the fields are written, or None if they keep their order."""
        return None

    def pack(self, log: Log, plan: Plan | None) -> bytes:
        """Returns all bytes that are needed to restore the log."""
        return compressor(self.compressor).compress(written(plan, log.data))

    def decode(self, data: bytes) -> Any:
        """Undoes the compressor alone, which gives the reordered log; it is still a log."""
        return compressor(self.compressor).decompress(data)

    def restore(self, decoded: Any, plan: Plan | None) -> bytes:
        """Restores the original bytes; the plan is read from the log itself."""
        return bytes(decoded) if plan is None else unwritten(decoded)[1]


__all__ = ["EMBED", "Log", "LogTechnique", "NotForThisCase"]
