"""What every technique of this arena does: look at a log, turn it into bytes, and turn the bytes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armillary.arena import NotForThisCase, Technique

from ..records.formats import Format
from ..streams.compressors import compressor
from .plan import EMBED, Plan, embedded_plan


@dataclass(frozen=True)
class Log:
    """A whole log in memory, and its format (None for free text).

    `search` bounds what a technique may use of its own limits: bytes of the sample, orders, seconds. `lenient` leaves alone any number of
    lines that do not fit.
    """

    data: bytes
    format: Format | None
    search: tuple[int, int, float] = (1 << 30, 1 << 30, 86400.0)
    lenient: bool = False


class LogTechnique(Technique):
    """Compresses logs. `plan` may look at a sample first; `pack` includes the transform; `decode` and `restore` together give the log
    back.
    """

    compressor: str

    @property
    def alone(self) -> str:
        """The compressor on the original order that `gain` compares with."""
        return self.compressor

    def plan(self, log: Log) -> Plan | None:
        """The order to write the fields in; None for the order as it is."""
        return None

    def pack(self, log: Log, plan: Plan | None) -> bytes:
        """All bytes needed to get the log back."""
        return compressor(self.compressor).compress(log.data if plan is None else plan.transform_bytes(log.data, embed=True))

    def decode(self, data: bytes) -> Any:
        """What the compressor alone gives back: the reordered log, still a log."""
        return compressor(self.compressor).decompress(data)

    def restore(self, decoded: Any, plan: Plan | None) -> bytes:
        """The original bytes; the plan is read from the log itself."""
        if plan is None:
            return bytes(decoded)
        line, _, rest = decoded.partition(b"\n")
        return embedded_plan(line).inverse_bytes(rest)


__all__ = ["EMBED", "Log", "LogTechnique", "NotForThisCase"]
