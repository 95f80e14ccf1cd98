"""Placements and block graphs as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from armillary.scheduling.mesh.metis import symmetric, whole_costs
from armillary.scheduling.mesh.octree.mesh import Graph
from armillary.scheduling.mesh.placement.policy import checked


def write_placement(path: str | Path, placement: npt.ArrayLike, blocks: npt.ArrayLike | None = None) -> None:
    """Writes `block,rank` as CSV; `blocks` are the blocks' own numbers, by default their positions on the curve."""
    import polars as pl

    ranks = np.asarray(placement, np.int64)
    numbers = np.arange(len(ranks)) if blocks is None else np.asarray(blocks, np.int64)
    Path(path).write_text(pl.DataFrame({"block": numbers, "rank": ranks}).write_csv())


def to_metis(graph: Graph, costs: npt.ArrayLike) -> str:
    """The graph of blocks in METIS's format 011: vertices weighted by cost (mean 1,000), edges by the bytes of both directions."""
    weights = whole_costs(checked(costs, 1))
    starts, neighbours, size = symmetric(graph)
    lines = [f"{graph.blocks} {len(neighbours) // 2} 011"]
    for b in range(graph.blocks):
        pairs = (f"{neighbours[m] + 1} {size[m]}" for m in range(starts[b], starts[b + 1]))
        lines.append(" ".join([str(weights[b]), *pairs]))
    return "\n".join(lines) + "\n"
