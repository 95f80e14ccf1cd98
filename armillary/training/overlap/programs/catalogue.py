"""Which program computes an operator."""

from __future__ import annotations

from armillary.errors import InputError
from armillary.training.overlap.machine.mechanisms import Gpu
from armillary.training.overlap.workload import PLAIN, Operator

from .ag_gemm import AgGemm
from .collectives import AllGather, AllReduce, AllToAll, ReduceScatter
from .gemm_ar import GemmAr
from .gemm_rs import GemmRs
from .moe_dispatch_gemm import MoeDispatchGemm
from .ring_attention import RingAttention
from .template import Tile, TileProgram
from .ulysses_attention import UlyssesAttention

PROGRAMS: dict[str, type[TileProgram]] = {
    program.op: program
    for program in (
        GemmRs, AgGemm, GemmAr, RingAttention, UlyssesAttention, MoeDispatchGemm, AllGather, ReduceScatter, AllReduce, AllToAll,
    )
}  # fmt: skip
#: Operators whose reduction the fabric can do.
REDUCING = ("gemm_ar", "reduce_scatter", "all_reduce")


def program_for(operator: Operator, tile: Tile, *, inter: bool, fabric: bool, style: str = "") -> TileProgram:
    """The program of an operator; `fabric` lets the switch reduce, which needs communicator SMs (`inter`).

    `style` is that of `gemm_ar` without the fabric: two-shot (the default) or one-shot.
    """
    if fabric and operator.op in REDUCING and not inter:
        raise InputError(f"{operator.op}: the fabric's reduction needs SMs of its own")
    if operator.op == "gemm_ar":
        # One device has nobody to wait for.
        chosen = "one-shot" if operator.devices == 1 else "in-fabric" if fabric else style or "two-shot"
        return GemmAr(operator, tile, inter, chosen)  # type: ignore[arg-type]
    if operator.op in PLAIN:
        return PROGRAMS[operator.op](operator, tile, inter, fabric)  # type: ignore[call-arg]
    return PROGRAMS[operator.op](operator, tile, inter)


def has_communicators(operator: Operator, gpu: Gpu) -> bool:
    """Whether an operator can use SMs that only communicate: on one device there is nothing to do for them."""
    return operator.devices > 1 and gpu.sms > 1
