"""ParallelKittens: three choices decide how fast a fused multi-GPU kernel is, and eight primitives express all of them.

How to transfer (copy engine, TMA, registers), where to communicate (in compute SMs or on SMs of its own), and how to avoid synchronisation
and staging. `planning.advise` makes the choices by rule and closed form; then the number of communicator SMs is tuned: the closed form's
number and its neighbours among 0, 4, 8, 16, 20, 32 and 64 are simulated on the planned costs, and the other placement too where its closed
form is near. The programs (`programs/`) are written in the template of loaders, consumers, storers and communicators, and the same
program runs on ranks of this machine (`execution.run`) and in simulated time (`simulation`).

Our design where the paper leaves it open: the order of tiles of each operator, one buffer per storer, 16 communicator warps where they
share compute SMs, and what "near" is (a fifth).

ParallelKittens: Systematic and Practical Simplification of Multi-GPU AI Kernels, arXiv 2511.13940.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from armillary.arena import Claim, Gain, Kind, Level, Technique
from armillary.errors import InputError
from armillary.parameters import parameter

from .planning import baselines
from .planning.advise import COMM_SMS, Choice, advise
from .planning.plan import Plan, fastest, fused
from .planning.promise import fused_seconds
from .programs.catalogue import REDUCING, program_for
from .programs.template import Tile, TileProgram
from .simulation.tracing import trace
from .workload import PLAIN, OverlapWork

_RIVALS = ("sequential", "stream-overlap", "copy-engine")
_WHY = "the abstract does not say which baseline the figure refers to, and the machine is a model: a fifth below and a quarter above count"
_NEAR = 1.2


@dataclass(frozen=True)
class ParallelKittens(Technique):
    """Chooses mechanism, placement and communicator SMs of a fused program. ParallelKittens, arXiv 2511.13940."""

    placement: Literal["auto", "intra", "inter"] = parameter("auto", "where communication runs: in compute SMs or on SMs of its own")
    comm_sms: int = parameter(0, "communicator SMs with placement inter; 0 tunes their number", range=(0, 128))
    fabric: bool = parameter(True, "whether the fabric may reduce")
    tune: bool = parameter(True, "simulate neighbours of the closed form's choice; otherwise the closed form alone decides")

    claims = (
        Claim(
            "op_s", over="sequential", by=Gain(ratio=(2.33, None)), on=Kind("tp"), aggregate="max", honest=(1.86, 2.9), why=_WHY,
            says="up to 2.33 times as fast on data- and tensor-parallel operators", source="abstract",
        ),
        Claim(
            "op_s", over=("sequential", "stream-overlap"), by=Gain(ratio=(4.08, None)), on=Kind("sp"), aggregate="max", honest=(3.26, 5.1),
            why=_WHY, says="up to 4.08 times as fast on sequence-parallel operators", source="abstract",
        ),
        Claim(
            "op_s", over=_RIVALS, by=Gain(ratio=(1.22, None)), on=Kind("ep"), aggregate="max", honest=(1.1, 1.5), why=_WHY,
            says="up to 1.22 times as fast on expert-parallel operators", source="abstract",
        ),
        *(
            Claim(
                "op_s", over=_RIVALS, by=Gain(ratio=(1.0, None)), on=Kind(kind), says=f"faster than the best tuned rival on {kind}",
                source="ours: whether tuned rivals are beaten too",
            )
            for kind in ("tp", "sp", "ep")
        ),
        *(
            Claim(
                "op_s", over=(*_RIVALS, "intra-sm-only", "inter-sm-only"), by=Gain(ratio=(1.0, None)), on=Kind(kind),
                says=f"faster on {kind} than all others, those that are fused with a fixed placement among them",
                source="ours: whether choosing pays beyond fusing",
            )
            for kind in ("tp", "sp", "ep")
        ),
        Claim("device_lines", by=Level(at_most=49), on=Kind("program"), says="fewer than 50 lines of device code", source="abstract"),
        Claim(
            "op_s", over=_RIVALS, by=Gain(ratio=(1.0, None)), on=Kind("tp"), says="the same on eight real GPUs", source="evaluation",
            needs="8 GPUs with NVLink",
        ),
    )  # fmt: skip

    def validate(self) -> None:
        """Checks that the number of SMs goes together with the placement."""
        if self.comm_sms and self.placement != "inter":
            raise InputError("comm_sms: expected 0 unless the placement is inter")

    def advice(self, work: OverlapWork) -> Choice:
        """The choice by rule and closed form."""
        return advise(work.operator, device=work.gpu)

    def plan(self, work: OverlapWork) -> Plan:
        """The fastest of the candidates by simulation; without tuning there is one."""
        choice = self.advice(work)
        plans = [plan for (inter, fabric), sms in self._candidates(work, choice) for plan in self._made(work, inter, fabric, sms)]
        if choice.mechanism == "copy engine" and self.placement == "auto":
            by_engine = baselines.copy_engine(work.operator, work.gpu, Tile())
            plans = [by_engine, *plans] if self.tune else [by_engine]
        found = fastest(plans)
        found.facts.update(advised=choice.placement, advised_sms=choice.comm_sms, mechanism=choice.mechanism)
        return found

    def _made(self, work: OverlapWork, inter: bool, fabric: bool, sms: list[int]) -> Iterator[Plan]:
        program = program_for(work.operator, Tile(), inter=inter, fabric=fabric)
        traced = trace(program, work.gpu, in_sm=not inter)
        return (fused(program, work.gpu, count, traced) for count in sms)

    def _candidates(self, work: OverlapWork, choice: Choice) -> list[tuple[tuple[bool, bool], list[int]]]:
        """(inter, fabric) with the communicator SMs to try."""
        o, gpu = work.operator, work.gpu
        reduces = o.op in REDUCING and gpu.in_fabric and self.fabric and o.devices > 1
        if o.devices == 1:
            return [((False, False), [0])]
        advised = choice.comm_sms if choice.fabric <= reduces else 0
        inter = advised > 0 if self.placement == "auto" else self.placement == "inter"
        found: list[tuple[tuple[bool, bool], list[int]]] = []
        if inter:
            found.append(((True, reduces), self._neighbours(advised or gpu.tma.sms + 1, work)))
        else:
            found.append(((False, False), [0]))
        if self.tune and self.placement == "auto":
            here = fused_seconds(program_for(o, Tile(), inter=inter, fabric=reduces and inter), gpu, advised if inter else 0)
            fabric = reduces and not inter
            sms = 0 if inter else gpu.registers.sms // 2 if fabric else gpu.tma.sms + 1
            there = fused_seconds(program_for(o, Tile(), inter=not inter, fabric=fabric), gpu, sms)
            if there < _NEAR * here:
                found.append(((not inter, fabric), self._neighbours(sms, work) if sms else [0]))
        return found

    def _neighbours(self, sms: int, work: OverlapWork) -> list[int]:
        """The number itself and the next smaller and larger ones of the list, and what lies halfway."""
        if self.comm_sms:
            return [self.comm_sms]
        if not self.tune:
            return [sms]
        most = work.gpu.sms - (0 if work.operator.op in PLAIN else 1)
        below = max((c for c in COMM_SMS if 0 < c < sms), default=sms)
        above = min((c for c in COMM_SMS if c > sms), default=min(most, sms + 16))
        return sorted({min(most, c) for c in (below, (below + sms) // 2, sms, (above + sms + 1) // 2, above) if c > 0})

    def real(self, work: OverlapWork, tile: Tile) -> TileProgram:
        """The program that runs on ranks of this machine, with the placement of the advice."""
        choice = self.advice(work)
        inter = choice.comm_sms > 0 if self.placement == "auto" else self.placement == "inter"
        return program_for(work.operator, tile, inter=inter, fabric=inter and self.fabric and work.operator.op in REDUCING)
