"""A byte-addressable CXL device that works in granules inside, with a DRAM cache in front of slow media.

The host loads and stores lines of 64 B. A cached granule answers its first line after `line_us` and each further line of the same access
after `next_line_us`. A granule that is not cached is filled first, at most `fills` at a time. A dirty granule that leaves is written back
over a shared channel. The constants come from the cluster presets `cxl-hybrid` and `cxl-dram`, which give orders of magnitude of public
characterisations.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from armillary.errors import InputError, unknown

DEVICES = ("cxl-hybrid", "cxl-dram")


@dataclass(frozen=True)
class Device:
    """Sizes in bytes, times in microseconds, bandwidth in bytes per second; with `cache_bytes` 0 everything is in memory."""

    granule: int = 4096
    cache_bytes: int = 64 << 20
    line_us: float = 0.7
    next_line_us: float = 0.02
    miss_us: float = 25.0
    fills: int = 16
    write_back_bytes_per_s: float = 1.5e9
    fence_us: float = 0.3

    def __post_init__(self) -> None:
        if self.granule < 64 or self.granule & (self.granule - 1):
            raise InputError(f"granule: found {self.granule}; expected a power of two, 64 or more")
        if self.fills < 1 or self.write_back_bytes_per_s <= 0:
            raise InputError("fills and write_back_bytes_per_s: expected more than 0")

    def sized(self, cache_bytes: int, granule: int | None = None) -> Device:
        """Returns the same device with another cache (of at least 16 granules) and granule."""
        size = granule or self.granule
        return replace(self, granule=size, cache_bytes=max(cache_bytes, 16 * size) if self.cache_bytes else 0)


@functools.cache
def device(name: str = "cxl-hybrid") -> Device:
    """Returns the device of a cluster preset."""
    from armillary.cluster import preset

    if name not in DEVICES:
        raise unknown("device", name, DEVICES)
    memory = next(m for m in preset(name).groups[0].node.memories if m.kind == "cxl")

    def number(value: object, default: float) -> float:
        return float(getattr(value, "value", value)) if value is not None else default  # type: ignore[arg-type]

    latency_us = 1e6 * number(memory.latency, 25e-6)
    granule = int(number(memory.granule, 4096))
    if not getattr(memory, "cache", None):
        return Device(granule=granule, cache_bytes=0, line_us=latency_us, miss_us=0.0)
    return Device(
        granule=granule,
        cache_bytes=int(number(memory.cache, 64 << 20)),
        line_us=1e6 * number(memory.line_latency, 0.7e-6),
        next_line_us=1e6 * number(memory.next_line_latency, 0.02e-6),
        miss_us=latency_us,
        fills=int(number(memory.fills, 16)),
        write_back_bytes_per_s=number(memory.write_bandwidth, 1.5e9),
        fence_us=1e6 * number(memory.flush_latency, 0.3e-6),
    )
