"""What messages and copies cost on a machine: the constants of the cluster, as virtual ranks use them, in one flat record."""

from __future__ import annotations

from typing import Any, NamedTuple

from .problem import Problem

#: Seconds to look up one piece of memory that is copied on its own, beside the copy itself.
PIECE_S = 60e-9


class Prices(NamedTuple):
    """Seconds, seconds per byte, and bytes. `latency` and `byte_gap` are those of two nodes half the machine apart."""

    latency: float
    send_overhead: float
    receive_overhead: float
    gap: float
    byte_gap: float
    #: Seconds per byte that one core copies.
    copy: float
    eager_limit: int
    near_latency: float
    near_overhead: float
    near_eager_limit: int
    #: The bytes of a cell of a long message inside a node.
    cell: int
    #: Seconds per byte that the memory of a node copies, all cores together.
    memory: float
    #: Seconds per piece that is copied.
    piece: float = PIECE_S


def prices_of(cluster: Any, problem: Problem | None = None) -> Prices:
    """The prices on a cluster, given by name, by file or as a `Cluster`."""
    from armillary.comm.virtual import costs
    from armillary.comm.virtual.placement import machine

    made = machine(cluster, problem.ranks if problem is not None else 2)
    far = made.nodes if problem is None else min(problem.nodes, made.nodes)
    near = costs.shared_memory(made, 0, "two-copy")
    tiers = made.node(0).memories
    rate = float(tiers[0].bandwidth) * tiers[0].count if tiers and tiers[0].bandwidth is not None else float("inf")
    if far > 1:
        wire = costs.Prices(made, 0, "two-copy")[far // 2]
    else:
        wire = costs.near_price(near)
    return Prices(
        wire.latency, wire.send_overhead, wire.receive_overhead, wire.gap, wire.byte_gap, near.copy, wire.eager_limit,
        near.latency, near.overhead, near.eager_limit, near.cell, 1 / rate,
    )  # fmt: skip
