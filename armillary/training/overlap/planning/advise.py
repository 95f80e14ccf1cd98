"""The choice rule: how to transfer, where to communicate, and with how many SMs, with its reasons.

from armillary.training.overlap import advise
print(advise("gemm_rs", m=16384, n=16384, k=2048, devices=8, device="h100").recipe())
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from armillary.errors import InputError
from armillary.training.overlap.machine.mechanisms import Gpu
from armillary.training.overlap.programs.catalogue import REDUCING, program_for
from armillary.training.overlap.programs.template import Tile, TileProgram
from armillary.training.overlap.workload import PLAIN, WIDTH, Operator, sizes_of

from .promise import Work, fused_seconds, rate_of, work_of

#: The communicator SMs that are tried; 0 puts communicators into compute SMs.
COMM_SMS = (0, 4, 8, 16, 20, 32, 64)
#: Contiguous bytes from which on a copy engine is as good as anything.
LARGE = 256e6


@dataclass(frozen=True)
class Choice:
    """How an operator should run: the mechanism, `comm_sms` (0 is inside compute SMs), the tile, and the seconds that it promises."""

    operator: Operator
    gpu: Gpu
    mechanism: str
    comm_sms: int
    tile: Tile
    #: Whether the fabric reduces.
    fabric: bool
    predicted: float
    #: The inner dimension from which on a product hides the scatter of its tiles; 0 where that is not the question.
    k_threshold: int
    reasons: tuple[str, ...]

    @property
    def placement(self) -> str:
        """Where communication runs."""
        return "copy engine" if self.mechanism == "copy engine" else "inter-SM" if self.comm_sms else "intra-SM"

    def program(self) -> TileProgram:
        """The program of the choice; a copy engine needs none, and the program then does the same with TMA."""
        return program_for(self.operator, self.tile, inter=self.comm_sms > 0, fabric=self.fabric)

    def recipe(self) -> str:
        """The choice in lines for the author of a kernel."""
        sizes = ", ".join(f"{name} {value}" for name, value in self.operator.facts().items() if name != "op")
        lines = [
            f"{self.operator.op} ({sizes}) on {self.gpu.name}",
            f"  mechanism       {self.mechanism}",
            f"  placement       {self.placement}",
            f"  comm SMs        {self.comm_sms}",
            f"  tile            {self.tile.m} × {self.tile.n} × {self.tile.k}, {self.tile.stages} stages",
            f"  predicted       {1e6 * self.predicted:.1f} µs",
        ]
        if self.k_threshold:
            lines.append(f"  K threshold     {self.k_threshold}")
        return "\n".join([*lines, *(f"  because         {reason}" for reason in self.reasons)])


def k_threshold(gpu: Gpu, dtype: str = "bf16") -> int:
    """The least K with which a product takes as long as the scatter of its tiles: s·R / (2·B), rounded up."""
    return math.ceil(WIDTH[dtype] * gpu.peak(dtype) / (2 * gpu.link))


def advise(
    op: str | Operator, *ordered: int, device: str | Gpu = "h100-80", devices: int = 8, dtype: str = "bf16",
    tile: Tile = Tile(), **sizes: Any,  # noqa: B008
) -> Choice:  # fmt: skip
    """The choice for an operator, by name and sizes (M, N, K in this order, or by name), or as an `Operator`; nothing is simulated."""
    gpu = device if isinstance(device, Gpu) else Gpu.of(device)
    if isinstance(op, Operator):
        operator = op
    else:
        names = sizes_of(op)
        if len(ordered) > len(names) or not set(sizes) <= {*names, "causal", "counts"}:
            raise InputError(f"{op}: found {len(ordered)} sizes and {', '.join(sizes) or 'no names'}; expected {', '.join(names)}")
        given: dict[str, Any] = {**dict(zip(names, ordered, strict=False)), **sizes}
        operator = Operator(op, devices=devices, dtype=dtype, **given)
    tile.check(gpu, operator.bytes_per_element)
    rule = _Rule(operator, gpu, tile)
    return rule.choice()


class _Rule:
    """The principles, in their order."""

    def __init__(self, operator: Operator, gpu: Gpu, tile: Tile) -> None:
        self.operator, self.gpu, self.tile = operator, gpu, tile

    def choice(self) -> Choice:
        o, gpu = self.operator, self.gpu
        threshold = k_threshold(gpu, o.dtype) if o.op == "gemm_rs" else 0
        why: tuple[str, ...]
        if o.devices == 1:
            return self._made("none", 0, False, 0, ("there is one device, so nothing crosses a link",))
        if self._contiguous() >= LARGE:
            large = (f"{self._contiguous() / 1e6:.0f} MB are contiguous and nothing is reduced",)
            return self._made("copy engine", 0, False, 0, large)
        if o.op in REDUCING and gpu.in_fabric:
            why = (
                "all devices reduce, and the fabric moves each byte up and down about once",
                "registers drive it, so it needs SMs of its own",
            )
            return self._balanced("registers", True, why)
        if o.op in REDUCING:
            return self._made(
                "TMA", 0, False, 0, (f"{gpu.name} has no reduction in the fabric, so tiles are added to their owner and multicast",)
            )
        if o.op == "gemm_rs":
            tile_s, send_s = self._tile_and_send()
            if tile_s >= send_s:
                why = (f"a tile takes {1e6 * tile_s:.2f} µs to compute and {1e6 * send_s:.2f} µs to send, so the storer hides it",)
                return self._made("TMA", 0, False, threshold, why)
            why = (f"a tile takes {1e6 * send_s:.2f} µs to send and {1e6 * tile_s:.2f} µs to compute, so the link decides",)
            return self._balanced("TMA", False, why, threshold)
        if o.op in ("ag_gemm", "ring_attention"):
            return self._balanced("TMA", False, ("several SMs read what arrives, so communicators bring it once",))
        return self._balanced("TMA", False, ("tiles go where they are needed, as they are",))

    def _contiguous(self) -> float:
        """Contiguous bytes of one transfer, if nothing is reduced on the way."""
        o = self.operator
        parts = {"all_gather": o.devices, "ag_gemm": o.devices, "all_to_all": o.devices**2, "ring_attention": 1}
        return o.payload / parts[o.op] if o.op in parts else 0.0

    def _tile_and_send(self) -> tuple[float, float]:
        """Seconds in which all SMs compute a tile each, and in which the link carries these tiles."""
        work = work_of(program_for(self.operator, self.tile, inter=False, fabric=False), self.gpu)
        return work.tile_s, work.bytes / max(work.tiles, 1) * self.gpu.sms / rate_of(work, self.gpu, 0)

    def _balanced(self, mechanism: str, fabric: bool, why: tuple[str, ...], threshold: int = 0) -> Choice:
        """Dedicated SMs, as many as make communication and computation equally long; inside compute SMs where that promises more."""
        program = program_for(self.operator, self.tile, inter=True, fabric=fabric)
        sms, enough = self._balance(work_of(program, self.gpu))
        reasons = (*why, f"{sms} SMs {'saturate the link' if enough else 'make communication as long as computation'}")
        best = self._made(mechanism, sms, fabric, threshold, reasons)
        if fabric or self.operator.op in PLAIN:
            return best
        inside = self._made(mechanism, 0, fabric, threshold, (*why, "warps of the compute SMs are enough to drive the link"))
        return inside if inside.predicted <= best.predicted else best

    def _balance(self, work: Work) -> tuple[int, bool]:
        """The SMs at which communication is as long as computation, or fewer if they saturate the link, and whether they do."""
        by = self.gpu.registers if work.registers else self.gpu.tma
        most = self.gpu.sms if not work.tiles else self.gpu.sms - 1
        saturating = math.ceil(by.sms / work.fan)
        if not work.tiles:
            return min(most, saturating), True
        # bytes · sat / (peak · c) = work / (SMs − c)
        all_s = work.tiles * work.tile_s
        one = work.bytes / rate_of(work, self.gpu, 1)
        balanced = one * self.gpu.sms / (all_s + one)
        found = int(max(1, min(most, saturating, round(balanced))))
        return found, found >= saturating

    def _made(self, mechanism: str, comm_sms: int, fabric: bool, threshold: int, reasons: tuple[str, ...]) -> Choice:
        program = program_for(self.operator, self.tile, inter=comm_sms > 0, fabric=fabric)
        if mechanism == "copy engine":
            from .baselines import copy_promise

            predicted = copy_promise(self.operator, self.gpu, self.tile, 1)
        else:
            predicted = fused_seconds(program, self.gpu, comm_sms)
        return Choice(self.operator, self.gpu, mechanism, comm_sms, self.tile, fabric, float(predicted), threshold, reasons)
