"""TT-Edge: an engine on the accelerator's scratchpad makes and applies the reflections, sorts and truncates.

TT-Edge: A Hardware-Software Co-Design for Energy-Efficient Tensor-Train Decomposition on Edge AI. arXiv 2511.13738, 2025. The paper gives
the split, what the engine does, and its share of the power; every other constant of the model is ours.
"""

from __future__ import annotations

from armillary.arena import Claim, Gain, Kind

from .processor.method import OnProcessor


class TtEdge(OnProcessor):
    """The accelerator with TT-Edge's engine on its scratchpad."""

    kind = "tt-edge"
    claims = (
        Claim(
            "edge_ms", over="gemm-only", by=Gain(ratio=(1.7, None)), on=Kind("edge", "resnet32"), honest=(1.4, 2.1), part=1.15,
            says="1.7 times faster on ResNet-32's weights", why="a model of another chip; above 2.1 it would flatter the engine",
        ),
        Claim(
            "edge_mJ", over="gemm-only", by=Gain(percent=(40.2, None)), on=Kind("edge", "resnet32"), honest=(30.0, 50.0), part=15.0,
            says="40.2 % less energy on ResNet-32's weights (derived: the engine's power is an input)",
            why="it follows from the times and the powers that go in, and a waiting core is charged alike on both processors",
        ),
        Claim(
            "edge_mW", over="gemm-only", by=Gain(percent=(-4.0, None)), on=Kind("edge", "resnet32"),
            says="4 % more power", circular="the engine adds 4 % by assumption",
        ),
    )  # fmt: skip
