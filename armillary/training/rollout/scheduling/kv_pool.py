"""The global KV pool, which consists of the host memory of all nodes and then of SSDs, and is reached over each instance's ports.

A request's KV is written while it decodes, and what its last chunk added must be written before it can be read. Reads come through the
ports of the instance that takes the request, one after another.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from armillary.errors import InputError


@dataclass
class KvPool:
    """Bytes in two tiers, and seconds of writes and reads, at `rate` bytes/s through an instance's ports and `ssd_rate` of the SSDs."""

    host_bytes: float
    ssd_bytes: float
    rate: float
    ssd_rate: float
    token_bytes: float
    #: When each instance's ports are free again.
    _free: dict[int, float] = field(default_factory=dict, init=False)
    #: The bytes of each request in host memory and on SSD.
    _host: dict[int, float] = field(default_factory=dict, init=False)
    _ssd: dict[int, float] = field(default_factory=dict, init=False)
    held: float = field(default=0.0, init=False)
    spilled: float = field(default=0.0, init=False)
    moved_bytes: float = field(default=0.0, init=False)
    #: The most bytes that neither tier had room for.
    beyond: float = field(default=0.0, init=False)

    def check(self, tokens: int) -> None:
        """Raises an `InputError` unless the pool holds at least one chunk of `tokens`."""
        if not self.host_bytes + self.ssd_bytes >= tokens * self.token_bytes:
            raise InputError(
                f"pool: {self.host_bytes + self.ssd_bytes:.3g} bytes; expected at least one chunk, {tokens * self.token_bytes:.3g} bytes"
            )
        if min(self.rate, self.ssd_rate) <= 0:
            raise InputError("pool: expected rates above 0")

    def put(self, request: int, tokens: float, new_tokens: float, now: float) -> float:
        """Parks a request's KV, whose new part is written last; returns when it can be read."""
        size = tokens * self.token_bytes
        host = min(size, max(0.0, self.host_bytes - self.held))
        ssd = size - host
        # The model puts what exceeds both tiers on disks of the same rate elsewhere, and counts it.
        self.beyond = max(self.beyond, self.spilled + ssd - self.ssd_bytes)
        self._host[request], self._ssd[request] = host, ssd
        self.held, self.spilled = self.held + host, self.spilled + ssd
        share = ssd / size if size else 0.0
        written = new_tokens * self.token_bytes
        return now + written * ((1 - share) / self.rate + share / self.ssd_rate)

    def drop(self, request: int) -> tuple[float, float]:
        """Takes a request's KV out; returns its bytes in host memory and on SSD."""
        host, ssd = self._host.pop(request, 0.0), self._ssd.pop(request, 0.0)
        self.held, self.spilled = self.held - host, self.spilled - ssd
        return host, ssd

    def get(self, request: int, instance: int, now: float) -> float:
        """Reads a request's KV into an instance; returns when it is there."""
        host, ssd = self.drop(request)
        start = max(now, self._free.get(instance, 0.0))
        self._free[instance] = end = start + host / self.rate + ssd / self.ssd_rate
        self.moved_bytes += host + ssd
        return end
