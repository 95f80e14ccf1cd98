"""EPLB gives hot experts copies and packs the copies so that all devices get equally many tokens.

This is DeepSeek's expert-parallelism load balancer, 2025 (DeepSeek-V3 Technical Report, arXiv 2412.19437, 2024). It packs groups of
experts to nodes; within a node the expert with the most tokens per copy repeatedly gets one more; and copies are packed to devices. With
one node this is its global policy. It sees only loads, neither tokens nor affinity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.parameters import parameter

from .planning.placement import ExpertPlacement
from .planning.technique import ExpertTechnique
from .routing.trace import RoutingTrace

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def pack(weight: Floats, packs: int) -> Ints:
    """Returns the pack of each item: the heaviest come first, each into the lightest pack with room; packs have equally many."""
    room = np.full(packs, len(weight) // packs)
    load = np.zeros(packs)
    found = np.empty(len(weight), np.int64)
    for item in np.argsort(-weight, kind="stable"):
        at = int(np.argmin(np.where(room > 0, load, np.inf)))
        found[item] = at
        load[at] += weight[item]
        room[at] -= 1
    return found


def replicate(weight: Floats, slots: int) -> Ints:
    """Returns the item in each slot: every item once, and then whichever has most weight per copy."""
    copies = np.ones(len(weight), np.int64)
    slot = list(range(len(weight)))
    while len(slot) < slots:
        hot = int(np.argmax(weight / copies))
        slot.append(hot)
        copies[hot] += 1
    return np.array(slot)


def balance(load: npt.ArrayLike, devices: int, slots: int, *, groups: int = 1, nodes: int = 1) -> ExpertPlacement:
    """Returns a placement from load [layers, experts] with `slots` per device; a group of experts should stay in one node."""
    weight = np.atleast_2d(np.asarray(load, float))
    experts = weight.shape[1]
    if devices < 1 or devices * slots < experts:
        raise InputError(f"slots: found {slots} on each of {devices} devices; expected room for {experts} experts")
    if nodes < 1 or devices % nodes or groups < 1 or experts % groups or groups % nodes:
        # As in the original, all devices count as one node if groups do not fit nodes.
        groups = nodes = 1
    return ExpertPlacement(np.array([_balance_layer(row, devices, slots, groups, nodes) for row in weight]), experts)


def _balance_layer(weight: Floats, devices: int, slots: int, groups: int, nodes: int) -> npt.NDArray[np.int16]:
    node_of = pack(weight.reshape(groups, -1).sum(axis=1), nodes) if nodes > 1 else np.zeros(groups, np.int64)
    here = devices // nodes
    physical = np.empty((devices, slots), np.int16)
    for node in range(nodes):
        mine = np.flatnonzero(np.repeat(node_of, len(weight) // groups) == node)
        copy = replicate(weight[mine], here * slots)
        each = weight[mine] / np.bincount(copy)
        device = pack(each[copy], here)
        for d in range(here):
            physical[node * here + d] = np.sort(mine[copy[device == d]])
    return physical


@dataclass(frozen=True)
class Eplb(ExpertTechnique):
    """Copies hot experts and packs them by load."""

    extra: int = parameter(1, "slots for copies on every device, beyond an equal part of the experts", range=(0, 64))
    nodes: int = parameter(1, "the number of nodes; a group of experts should stay in one", range=(1, 1024))
    groups: int = parameter(1, "groups of experts in a layer", range=(1, 1024))

    def place(self, trace: RoutingTrace, devices: int) -> ExpertPlacement:
        """Places experts by the loads that were seen."""
        return self.place_load(trace.expert_load(), devices)

    def place_load(self, load: npt.ArrayLike, devices: int) -> ExpertPlacement:
        """Places experts by load [layers, experts], as `read_counts` returns it."""
        experts = np.atleast_2d(np.asarray(load)).shape[1]
        return balance(load, devices, -(-experts // max(devices, 1)) + self.extra, groups=self.groups, nodes=self.nodes)
