"""What each part of 10Cache brings: the cache alone, with prefetching, and with reused buffers, beside the published systems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.training.offload.layer_to_layer import LayerToLayer
from armillary.training.offload.simulation.timing import Timed, simulate
from armillary.training.offload.tencache import TenCache
from armillary.training.offload.zero_infinity import ZeroInfinity

if TYPE_CHECKING:
    from armillary.training.offload.workload import OffloadWork

#: The bars of the published ablation, by name.
PARTS: dict[str, Any] = {
    "layer-to-layer": LayerToLayer(),
    "zero-infinity": ZeroInfinity(),
    "cache": TenCache(prefetch=False, reuse=False),
    "cache + prefetch": TenCache(reuse=False),
    "cache + prefetch + reused buffers": TenCache(),
}


def ablation(work: OffloadWork) -> dict[str, Timed]:
    """The simulated iteration of each part, in the published order."""
    return {name: simulate(work, technique.schedule(work)) for name, technique in PARTS.items()}
