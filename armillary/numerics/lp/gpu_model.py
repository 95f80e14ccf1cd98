"""What an iteration of PDHG takes on a GPU that is not here: bytes over bandwidth, and launches."""

from __future__ import annotations

from armillary.cluster import preset
from armillary.errors import InputError

from .problem import LinearProgram

#: Kernels an iteration launches, seconds each, and the share of its power limit that a memory-bound kernel draws.
LAUNCHES = 4
LAUNCH_SECONDS = 5e-6
POWER_SHARE = 0.6
#: W of one core of a server with its share of memory: a 280 W socket of 64 cores, and as much again for the rest. Ours.
CORE_WATTS = 10.0


def iteration_seconds(lp: LinearProgram, gpu: str = "h200") -> float:
    """Seconds: both matrices once (12 bytes an entry), and about ten vectors."""
    memory = preset(gpu).groups[0].node.devices[0].memory
    if memory is None or not memory.bandwidth:
        raise InputError(f"preset {gpu}: found no memory bandwidth; expected one")
    moved = 2 * 12 * lp.matrix.nnz + 10 * 8 * sum(lp.shape)
    return moved / memory.bandwidth + LAUNCHES * LAUNCH_SECONDS


def watts(gpu: str = "h200") -> float:
    """What it draws meanwhile."""
    power = preset(gpu).groups[0].node.devices[0].power
    if power is None or not power.peak:
        raise InputError(f"preset {gpu}: found no power; expected its limit")
    return POWER_SHARE * power.peak
