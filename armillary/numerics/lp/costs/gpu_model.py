"""The time of a PDHG iteration on a GPU that is not here, modelled as bytes over bandwidth plus launches."""

from __future__ import annotations

from armillary.cluster import preset
from armillary.errors import InputError

from ..program.problem import LinearProgram

#: Kernels that one iteration launches, seconds per launch, and the share of the power limit that a memory-bound kernel draws.
LAUNCHES = 4
LAUNCH_SECONDS = 5e-6
POWER_SHARE = 0.6
#: Watts of one server core with its share of memory: a 280 W socket of 64 cores, and as much again for the rest. Our estimate.
CORE_WATTS = 10.0


def iteration_seconds(lp: LinearProgram, gpu: str = "h200") -> float:
    """Returns seconds of one iteration, which reads both matrices once (12 bytes per entry) and about ten vectors."""
    memory = preset(gpu).groups[0].node.devices[0].memory
    if memory is None or not memory.bandwidth:
        raise InputError(f"preset {gpu}: found no memory bandwidth; expected one")
    moved = 2 * 12 * lp.matrix.nnz + 10 * 8 * sum(lp.shape)
    return moved / memory.bandwidth + LAUNCHES * LAUNCH_SECONDS


def watts(gpu: str = "h200") -> float:
    """Returns the watts that the GPU draws meanwhile."""
    power = preset(gpu).groups[0].node.devices[0].power
    if power is None or not power.peak:
        raise InputError(f"preset {gpu}: found no power; expected its limit")
    return POWER_SHARE * power.peak
