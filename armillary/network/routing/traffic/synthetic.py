"""Synthetic traffic by name: where nodes send, and when.

| name | each packet goes to |
|---|---|
| `uniform` | any other node |
| `adversarial:i` | a node of the group i further on; `adversarial:h` takes the network's h |
| `permutation` | the node's partner in a random permutation without fixed points |
| `shift:n` | the node n further on |
| `hotspot:k` | with probability 0.1 one of k random nodes, otherwise any |
| `mixed:beta` | any node with probability beta, otherwise a node of the next group |
| `phases:cycles` | any node and a node of the next group in turn, for so many cycles each (5,000 by default) |
| `bursts:cycles` | a node of the group that its burst has drawn; bursts last so many cycles in the mean (200) and fill the link |

All but bursts are Bernoulli trials per node and cycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown

from ..fabric.network import Network
from ..simulation.sources import (
    ADVERSARIAL,
    BURST_BEGINS,
    BURST_ENDS,
    BURSTS,
    DISTANCE,
    HOTSPOT,
    LOAD,
    MIXED,
    PACKET_FLITS,
    PATTERN,
    PHASE,
    PHASES,
    SHARE,
    TABLE,
    TRAFFIC_NUMBERS,
    UNIFORM,
)

PATTERNS = {
    "uniform": UNIFORM, "adversarial": ADVERSARIAL, "permutation": TABLE, "shift": TABLE, "hotspot": HOTSPOT, "mixed": MIXED,
    "phases": PHASES, "bursts": BURSTS,
}  # fmt: skip
DEFAULTS = {"adversarial": 1.0, "shift": 1.0, "hotspot": 4.0, "mixed": 0.5, "phases": 5000.0, "bursts": 200.0}
#: The share of packets for hot nodes.
HOT = 0.1
_ONE = 1 << 53


@dataclass(frozen=True)
class Traffic:
    """A pattern and its number: groups on, nodes on, hot nodes, share of uniform packets, or cycles."""

    pattern: str
    value: float = 0.0

    def drawn(self, net: Network, load: float, flits: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """The numbers and the table of nodes that the simulation reads."""
        numbers = np.zeros(TRAFFIC_NUMBERS, np.int64)
        numbers[PATTERN], numbers[PACKET_FLITS] = PATTERNS[self.pattern], flits
        numbers[LOAD], numbers[DISTANCE], numbers[PHASE] = int(load / flits * _ONE), 1, int(self.value)
        table = np.zeros(1, np.int32)
        if self.pattern == "adversarial":
            numbers[DISTANCE] = int(self.value)
        elif self.pattern == "permutation":
            table = _derangement(net.nodes, rng).astype(np.int32)
        elif self.pattern == "shift":
            table = ((np.arange(net.nodes) + int(self.value)) % net.nodes).astype(np.int32)
        elif self.pattern == "hotspot":
            table = np.sort(rng.choice(net.nodes, int(self.value), replace=False)).astype(np.int32)
            numbers[SHARE] = int(HOT * _ONE)
        elif self.pattern == "mixed":
            numbers[SHARE] = int(self.value * _ONE)
        elif self.pattern == "bursts":
            numbers[LOAD] = int(_ONE / flits)
            numbers[BURST_ENDS] = int(_ONE / self.value)
            numbers[BURST_BEGINS] = _ONE if load >= 1 else min(_ONE, int(_ONE / self.value * load / (1 - load)))
        return numbers, table

    def matrix(self, net: Network, rng: np.random.Generator | None = None) -> npt.NDArray[np.float64]:
        """The share of each router's packets that go to each router; only for patterns that do not change in time."""
        routers, groups = net.routers, net.groups
        nodes = np.bincount(net.node_router, minlength=routers)
        uniform = np.outer(nodes, nodes).astype(float)
        np.fill_diagonal(uniform, nodes * (nodes - 1))
        uniform /= max(1, net.nodes - 1)
        if self.pattern == "uniform":
            return uniform
        if self.pattern in ("adversarial", "mixed"):
            distance = int(self.value) if self.pattern == "adversarial" else 1
            towards = (net.group[:, None] + distance) % groups == net.group[None, :]
            per_group = np.bincount(net.group, nodes, groups)
            share = towards * nodes[None, :] / np.maximum(per_group[net.group], 1)[None, :] * nodes[:, None]
            beta = self.value if self.pattern == "mixed" else 0.0
            return beta * uniform + (1 - beta) * share
        if self.pattern in ("permutation", "shift"):
            _, table = self.drawn(net, 1.0, 1, rng or np.random.default_rng(0))
            found = np.zeros((routers, routers))
            np.add.at(found, (net.node_router, net.node_router[table]), 1.0)
            return found
        raise InputError(f'traffic "{self.pattern}" has no fixed matrix')


def traffic_of(name: str | Traffic, net: Network) -> Traffic:
    """The traffic of a name such as `adversarial:1`, checked against the network."""
    if isinstance(name, Traffic):
        return name
    pattern, _, text = name.partition(":")
    if pattern not in PATTERNS:
        raise unknown("traffic", pattern, PATTERNS)
    if text and pattern in ("uniform", "permutation"):
        raise InputError(f'found "{name}"; expected "{pattern}" without a number', where="traffic")
    value = _number(name, text, net) if text else DEFAULTS.get(pattern, 0.0)
    legal: dict[str, tuple[float, float, Any]] = {
        "adversarial": (0, net.groups - 1, int), "shift": (1, net.nodes - 1, int), "hotspot": (1, net.nodes, int), "mixed": (0, 1, float),
        "phases": (1, 1 << 30, int), "bursts": (1, 1 << 30, float),
    }  # fmt: skip
    if pattern in legal:
        low, high, kind = legal[pattern]
        if not low <= value <= high or (kind is int and value != int(value)):
            noun = "a whole number" if kind is int else "a number"
            raise InputError(f'found "{name}"; expected {noun} from {low:g} to {high:,g} after the colon', where="traffic")
    return Traffic(pattern, value)


def _number(name: str, text: str, net: Network) -> float:
    if text == "h" and name.startswith("adversarial"):
        return float(net.global_per_router)
    try:
        return float(text)
    except ValueError:
        raise InputError(f'found "{name}"; expected a number after the colon', where="traffic") from None


def _derangement(nodes: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """A random permutation; nodes that would send to themselves exchange partners with the next one."""
    found = rng.permutation(nodes)
    for i in np.flatnonzero(found == np.arange(nodes)).tolist():
        j = (i + 1) % nodes
        found[i], found[j] = found[j], found[i]
    return found
