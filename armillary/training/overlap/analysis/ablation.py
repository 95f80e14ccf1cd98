"""What mechanism and placement bring, each fixed in turn on the same operator and device."""

from __future__ import annotations

from collections.abc import Iterable

from armillary.training.overlap.machine.mechanisms import Gpu
from armillary.training.overlap.planning.plan import fastest, fused, seconds
from armillary.training.overlap.programs.catalogue import REDUCING, program_for
from armillary.training.overlap.programs.template import Tile, TileProgram
from armillary.training.overlap.simulation.tracing import trace
from armillary.training.overlap.workload import Operator

COMM_SMS = (4, 8, 16, 20, 32, 64)


def ablation(operator: Operator, device: str | Gpu = "h100-80", comm_sms: Iterable[int] = COMM_SMS) -> dict[str, float]:
    """Simulated seconds of an operator by mechanism and placement; dedicated SMs have the best number of `comm_sms`.

    `gemm_ar` has five rows, because it can add in the fabric, at the owner (two-shot) or everywhere (one-shot); others have two or three.
    """
    gpu = device if isinstance(device, Gpu) else Gpu.of(device)
    found: dict[str, float] = {}
    styles = ("two-shot", "one-shot") if operator.op == "gemm_ar" else ("",)
    for style in styles:
        said = f", {style}" if style else ""
        inside = program_for(operator, Tile(), inter=False, fabric=False, style=style)
        found[f"TMA inside compute SMs{said}"] = seconds(fused(inside, gpu, 0))
        if style != "one-shot":
            found[f"TMA on SMs of its own{said}"] = _best(
                program_for(operator, Tile(), inter=True, fabric=False, style=style), gpu, comm_sms
            )
    if operator.op in REDUCING and gpu.in_fabric and operator.devices > 1:
        found["registers in the fabric on SMs of its own"] = _best(program_for(operator, Tile(), inter=True, fabric=True), gpu, comm_sms)
    return found


def _best(program: TileProgram, gpu: Gpu, comm_sms: Iterable[int]) -> float:
    traced = trace(program, gpu, in_sm=False)
    return seconds(fastest(fused(program, gpu, c, traced) for c in comm_sms))
