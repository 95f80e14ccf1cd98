"""Detects network cards and the rates of their ports.

A card shows up as an interface (/sys/class/net), as a host channel adapter (/sys/class/infiniband) or as both; it is counted once, and the
rate of the adapter is preferred. Interfaces without a device behind them (loopback, bridges, virtual pairs) are not cards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from armillary.cluster.detect.pci import read_function
from armillary.cluster.detect.tree import Facts, Tree

NET = "/sys/class/net"
INFINIBAND = "/sys/class/infiniband"
#: The fastest plausible port, in bits per second; a driver that reports more does not know the rate.
MOST_BITS_PER_S = 10e12
MOST_CARDS = 4096


@dataclass(frozen=True)
class Port:
    """One port: the place of its card in the device tree, its kind, its bytes/s (None if unknown) and its NUMA domain."""

    card: str
    name: str
    model: str | None
    rate: float | None
    domain: int | None


def read_ports(tree: Tree, facts: Facts) -> list[Port]:
    """The ports of this node, with adapters first."""
    found = []
    for name in tree.names(INFINIBAND)[:MOST_CARDS]:
        card = tree.real(f"{INFINIBAND}/{name}/device") or f"{INFINIBAND}/{name}"
        for port in tree.names(f"{INFINIBAND}/{name}/ports")[:64]:
            path = f"{INFINIBAND}/{name}/ports/{port}/rate"
            match = re.match(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec", tree.text(path) or "")
            rate = _bytes_per_s(float(match[1]) * 1e9) if match else None
            facts.add(f"network.{name}.{port}.rate", rate, path)
            found.append(_port(tree, card, f"{name}:{port}", rate))
    adapters = {port.card for port in found}
    for name in tree.names(NET)[:MOST_CARDS]:
        behind = tree.real(f"{NET}/{name}/device")
        facts.add(f"network.{name}.mtu", tree.number(f"{NET}/{name}/mtu") if behind else None, f"{NET}/{name}/mtu")
        if behind is None or behind in adapters:
            continue
        megabits = tree.number(f"{NET}/{name}/speed")
        # −1 and 2³²−1 both mean that the driver does not know the rate, as with all virtual cards.
        rate = _bytes_per_s(megabits * 1e6) if megabits is not None else None
        facts.add(f"network.{name}.rate", rate, f"{NET}/{name}/speed")
        found.append(_port(tree, behind, name, rate))
    facts.add("network.ports", len(found) or None, f"{INFINIBAND}, {NET}")
    return found


def nics(ports: list[Port], places: Mapping[int, str]) -> list[dict[str, Any]]:
    """The `nic` tables, in which ports of equal model, rate and place are counted together; `places` names
    the place of each NUMA domain.
    """
    tables: list[dict[str, Any]] = []
    for port in ports:
        table: dict[str, Any] = {"count": 1}
        if port.model:
            table["model"] = port.model
        if port.rate:
            table["rate"] = port.rate
        if port.domain is not None and port.domain in places:
            table["near"] = places[port.domain]
        for known in tables:
            if {**known, "count": 1} == table:
                known["count"] += 1
                break
        else:
            tables.append(table)
    return tables


def _port(tree: Tree, card: str, name: str, rate: float | None) -> Port:
    # The PCI function of a virtio card is one folder above the device that the interface points to.
    function = read_function(tree, card) or read_function(tree, card.rsplit("/", 1)[0] or "/x")
    return Port(card, name, function.name if function else None, rate, function.domain if function else None)


def _bytes_per_s(bits_per_s: float) -> float | None:
    return bits_per_s / 8 if 0 < bits_per_s <= MOST_BITS_PER_S else None
