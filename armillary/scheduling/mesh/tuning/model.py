"""What a step is expected to take, from sums alone: the planner's model, which is coarser than the simulator that judges it."""

from __future__ import annotations

import numpy as np

from armillary.scheduling.mesh.octree.mesh import Floats, Graph, Ints
from armillary.scheduling.mesh.placement.policy import loads
from armillary.scheduling.mesh.simulation.machine import Machine


def modelled_step_us(costs: Floats, placement: Ints, graph: Graph, ranks: int, machine: Machine) -> float:
    """µs of one step: max over ranks (cost + overheads + the tail at its node's NIC), or a NIC's bytes if they take longer.

    The tail is what a node's ranks post after their last block, which no computation hides: their remote bytes divided by the blocks per
    rank. Order, queues and arrivals are not modelled.
    """
    source, target = placement[graph.source], placement[graph.target]
    away = source != target
    busy = loads(costs, placement, ranks)
    busy = busy + machine.send_us * np.bincount(source[away], minlength=ranks)
    busy = busy + machine.receive_us * np.bincount(target[away], minlength=ranks)
    nodes = -(-ranks // machine.per_node)
    far = source // machine.per_node != target // machine.per_node
    sent = np.bincount(source[far] // machine.per_node, graph.size[far], minlength=nodes) / machine.far_rate
    received = np.bincount(target[far] // machine.per_node, graph.size[far], minlength=nodes) / machine.far_rate
    tail = np.maximum(sent, received) * ranks / len(costs)
    of_rank = busy + tail[np.arange(ranks) // machine.per_node]
    return max(float(of_rank.max()), float(sent.max()), float(received.max())) + machine.far_us + machine.allreduce_us(ranks)
