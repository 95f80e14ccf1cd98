"""The three ways in which data leaves a GPU, and the GPU as schedules see it.

A mechanism reaches `peak · min(1, SMs / sms) · message / (message + half)` bytes/s, where `half` is a ninth of the message that saturates
it. A copy engine needs no SMs, and its loss at small sizes is its launch: bytes / (launch + bytes / peak). SMs, peaks, shared memory and
links come from `armillary.cluster`, the share of the peak that products reach from the calibrations of `armillary.llm`; only the table
of mechanisms is the arena's own.

ParallelKittens, arXiv 2511.13940, publishes the table for H100 and B200 (transfers of 1 GB over NVLink).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from armillary.errors import InputError

#: Seconds: a barrier inside an SM, a flag through device memory, a signal to another device, the launch of a kernel, the launch of a copy.
BARRIER_S, FLAG_S, SIGNAL_S, LAUNCH_S, COPY_LAUNCH_S = 64e-9, 0.83e-6, 1.5e-6, 4e-6, 7e-6
#: Seconds between dependent kernels of a stream whose host runs ahead (ours).
STREAM_S = 1e-6
#: A library's call: seconds, the SMs that it holds (NCCL's channels on NVLink), the size under which a piece of a rank is fine-grained
#: (NCCL's buffer), and what its staging copies then divide the bandwidth by.
CALL_S, CALL_SMS, FINE_BYTES, STAGING = 12.5e-6, 24, 4 << 20, 1.7
#: Slowdown of computation by a communicator that runs in the same SM.
EPSILON = 0.02
#: Bytes of shared memory that a block cannot have.
RESERVED = 1024


@dataclass(frozen=True)
class Mechanism:
    """`peak` in bytes/s, `message` in bytes that saturate it, and the SMs that do (0 for a copy engine)."""

    name: str
    peak: float
    message: float
    sms: int
    launch_s: float = 0.0
    multicast: bool = True
    reduces: bool = False
    #: Whether one thread can drive it beside computation; registers need warps of their own, and so SMs of their own.
    in_sm: bool = True

    def efficiency(self, message: float) -> float:
        """The share of the peak that messages of this many bytes reach."""
        if self.launch_s or not math.isfinite(self.peak):
            return 1.0
        return message / (message + self.message / 9)

    def rate(self, message: float, sms: float = math.inf) -> float:
        """Bytes/s of one direction of a device, with this many SMs at work."""
        if self.launch_s:
            return message / (self.launch_s + message / self.peak)
        return self.peak * min(1.0, sms / self.sms) * self.efficiency(message)


#: By device: shares of the link's rate, (copy engine, TMA, registers), and the SMs that saturate (TMA, registers).
_SHARES = {"h100-80": ((369 / 450, 350 / 450, 342 / 450), (15, 76)), "b200-180": ((726 / 900, 669 / 900, 628 / 900), (15, 76))}
#: Devices with the SMs of another one, whose shares they take.
_LIKE = {"h100-80": "h100-80", "h200-141": "h100-80", "h800": "h100-80", "b200-180": "b200-180"}


@dataclass(frozen=True)
class Gpu:
    """One of equal devices behind a switch; rates in bytes/s and flop/s, `shared` in bytes per SM."""

    name: str
    sms: int
    peaks: tuple[tuple[str, float], ...]
    #: Shares of the peak that products and attention reach.
    eta: float
    eta_attention: float
    memory: float
    shared: int
    link: float
    in_fabric: bool
    engines: int
    copy_engine: Mechanism
    tma: Mechanism
    registers: Mechanism
    calibrated: bool

    @staticmethod
    def of(name: str) -> Gpu:
        """The device with this name in the catalogue: h100-80, h200-141, h800, b200-180 or another of their names."""
        return _found(name)

    def peak(self, dtype: str) -> float:
        """Dense flop/s."""
        known = dict(self.peaks)
        if dtype not in known:
            raise InputError(f"{self.name} states no peak for {dtype}; it has {', '.join(known)}")
        return known[dtype]

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The three mechanisms."""
        return self.copy_engine, self.tma, self.registers

    def tile_seconds(self, flops: float, moved: float, dtype: str, attention: bool = False) -> float:
        """Seconds of a tile on one SM: its flops, or its bytes at an SM's share of the memory's rate, whichever takes longer."""
        eta = self.eta * (self.eta_attention if attention else 1.0)
        return max(flops * self.sms / (self.peak(dtype) * eta), moved * self.sms / self.memory)

    def with_links(self, factor: float) -> Gpu:
        """This device with links and mechanisms that are `factor` times as fast."""
        copy_engine, tma, registers = (replace(m, peak=m.peak * factor) for m in self.mechanisms)
        return replace(self, link=self.link * factor, copy_engine=copy_engine, tma=tma, registers=registers)

    def with_compute(self, factor: float) -> Gpu:
        """This device with SMs and memory that are `factor` times as fast."""
        return replace(self, peaks=tuple((d, p * factor) for d, p in self.peaks), memory=self.memory * factor)


@lru_cache(maxsize=32)
def _found(name: str) -> Gpu:
    from armillary.cluster import from_dict
    from armillary.errors import unknown
    from armillary.llm import chip

    try:
        node = {"device": [{"kind": "gpu", "model": name}]}
        part = from_dict({"armillary": 1, "name": "one", "group": [{"name": "g", "count": 1, "node": node}]}, where=f"device {name}")
    except InputError:
        raise unknown("device", name, _LIKE) from None
    device = part.groups[0].node.devices[0]
    known = next((like for like in _LIKE if _same(like, name)), None)
    if known is None or device.link is None or device.memory is None or device.memory.bandwidth is None or device.shared is None:
        raise InputError(f'device "{name}": its transfer mechanisms are not published; expected {", ".join(_LIKE)}')
    on, link = chip(known), float(device.link.rate)
    (engine, tma, registers), (tma_sms, register_sms) = _SHARES[_LIKE[known]]
    return Gpu(
        known, int(device.sms or 0), on.peaks, on.calibration.eta_c, on.calibration.eta_attn,
        float(device.memory.bandwidth) * on.calibration.eta_m,
        int(device.shared.size or 0) - RESERVED, link, device.link.reduces, int(device.copy_engines or 3),
        Mechanism("copy engine", engine * link, 256e6, 0, COPY_LAUNCH_S),
        Mechanism("TMA", tma * link, 2048, tma_sms, reduces=True),
        Mechanism("registers", registers * link, 128, register_sms, reduces=True, in_sm=False),
        on.calibration.calibrated,
    )  # fmt: skip


def _same(known: str, name: str) -> bool:
    """Whether both names mean one part of the catalogue."""
    from armillary.cluster import from_dict

    def facts(model: str) -> object:
        node = {"device": [{"kind": "gpu", "model": model}]}
        found = from_dict({"armillary": 1, "name": "one", "group": [{"name": "g", "count": 1, "node": node}]}, where="device")
        return found.groups[0].node.devices[0].model_copy(update={"model": None, "name": None})

    return facts(known) == facts(name)
