"""Reads SimGrid's platform XML (version 4.1): zones with hosts, and clusters with a torus, fat tree, dragonfly or one switch.

Each `<cluster>` becomes a group and a network; the hosts of a zone become groups of equal hosts. Routes that are written link by link are
not read; only their hosts are, and a fact says how many routes were left out. The speed of a host is the flop/s of one core.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from armillary.cluster.formats.files import distinct, fact, group, label
from armillary.cluster.formats.files import whole as whole_number
from armillary.cluster.formats.hostlist import MOST_HOSTS
from armillary.cluster.formats.xml import Element
from armillary.errors import InputError, one_line, unknown

_NUMBER = r"([0-9]{1,20}(?:\.[0-9]{0,20})?(?:[eE][+-]?[0-9]{1,2})?|\.[0-9]{1,20})"
DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
SPEEDS = {f"{prefix}f": factor for prefix, factor in DECIMAL.items()} | {"": 1.0}
RATES = (
    {f"{prefix}Bps": factor for prefix, factor in (DECIMAL | BINARY).items()}
    | {f"{prefix}bps": factor / 8 for prefix, factor in (DECIMAL | BINARY).items()}
    | {"": 1.0}
)
TIMES = {"": 1.0, "w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12}
VERSIONS = ("4", "4.0", "4.1")


def read(root: Element, path: Path) -> dict[str, Any]:
    """The cluster of a `<platform>`."""
    if root.get("version") not in VERSIONS:
        raise InputError(f'found platform version "{label(root.get("version"), "none")}"; expected 4.1', where=str(path))
    reader = _Reader(path)
    for child in root.children:
        reader.element(child)
    reader.count_left_out(root)
    groups = reader.groups + reader.plain_hosts()
    if not groups:
        raise InputError("no host and no cluster in the platform", where=str(path))
    data: dict[str, Any] = {"armillary": 1, "name": reader.name or label(path.stem, "platform"), "group": groups}
    if reader.networks:
        data["network"] = reader.networks
    for what, count in reader.left_out.items():
        reader.facts.append(fact(f"simgrid.not_read.{what}", count, str(path)))
    data["facts"] = reader.facts
    return data


class _Reader:
    """Collects groups and networks during a walk over the zones."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = ""
        self.groups: list[dict[str, Any]] = []
        self.networks: dict[str, dict[str, Any]] = {}
        self.facts: list[dict[str, Any]] = []
        self.left_out: dict[str, int] = {}
        self.hosts: dict[tuple[float, int], int] = {}
        self.endpoints = 0
        self._taken: dict[str, int] = {}

    def element(self, element: Element) -> None:
        """One zone, host or cluster; anything else is counted as left out."""
        if element.name in ("zone", "AS"):
            self.name = self.name or label(element.get("id"), "")
            for child in element.children:
                self.element(child)
            self.count_left_out(element)
        elif element.name == "cluster":
            self.cluster(element)
        elif element.name == "host":
            key = (self._speed(element), self._whole(element, "core", 1))
            self._count(element, 1)
            self.hosts[key] = self.hosts.get(key, 0) + 1
        elif element.name not in ("prop", "config"):
            self.left_out[element.name] = self.left_out.get(element.name, 0) + 1

    def count_left_out(self, element: Element) -> None:
        """Remembers the elements that the parser only counted."""
        for name, count in element.counted.items():
            self.left_out[name] = self.left_out.get(name, 0) + count

    def plain_hosts(self) -> list[dict[str, Any]]:
        """The hosts that stand alone in zones, with equal ones together."""
        found = []
        for (speed, cores), count in self.hosts.items():
            found.append(group(distinct("hosts", self._taken), count, {"socket": [self._socket(speed, cores)]}))
        return found

    def cluster(self, element: Element) -> None:
        """One `<cluster>`: its nodes, and the network of its topology."""
        name = distinct(element.get("id") or "cluster", self._taken)
        nodes = self._radical(element)
        self._count(element, nodes)
        network = self._network(element, nodes)
        network["rate"] = self._quantity(element, "bw", RATES)
        network["latency"] = self._latency(element, network)
        if network["latency"] is None:
            del network["latency"]
        self.networks[name] = network
        socket = self._socket(self._speed(element), self._whole(element, "core", 1))
        self.groups.append(group(name, nodes, {"socket": [socket], "nic": [{"count": 1, "network": name}]}))
        if element.get("bb_bw"):
            self.facts.append(fact(f"network.{name}.backbone", self._quantity(element, "bb_bw", RATES), self._where(element)))

    def _network(self, element: Element, nodes: int) -> dict[str, Any]:
        kind = element.get("topology", "FLAT").upper()
        text = element.get("topo_parameters")
        if kind == "FLAT":
            return {"topology": "star"}
        if kind == "TORUS":
            dims = self._numbers(element, text, 1, 8)
            return self._offering(element, {"topology": "torus", "dims": dims}, _product(dims), nodes)
        if kind == "FAT_TREE":
            return self._fat_tree(element, text, nodes)
        if kind == "DRAGONFLY":
            return self._dragonfly(element, text, nodes)
        raise unknown("topology", kind, ("FLAT", "TORUS", "FAT_TREE", "DRAGONFLY"), where=self._where(element))

    def _fat_tree(self, element: Element, text: str, nodes: int) -> dict[str, Any]:
        """`levels;children,…;parents,…;links,…`, from the leaves up: the children of a switch, the parents of each child, and the links
        between them.
        """
        parts = text.split(";")
        count = self._numbers(element, parts[0], 1, 1)[0]
        if count > 8 or len(parts) != 4:
            raise self._wrong(element, text, "levels;children,…;parents,…;links,… with at most 8 levels")
        children, parents, links = (self._numbers(element, part, count, count) for part in parts[1:])
        if parents[0] != 1 or links[0] != 1:
            self.facts.append(fact("simgrid.simplified", "hosts with several uplinks are read with one", self._where(element)))
        levels = []
        for k in range(count):
            switches = _product(children[k + 1 :]) * _product([1, *parents[1 : k + 1]])
            up = parents[k + 1] * links[k + 1] if k + 1 < count else 0
            levels.append({"down": children[k] * (links[k] if k else 1), "up": up, "switches": switches})
        if any(value > 10_000_000 for level in levels for value in level.values()):
            raise self._wrong(element, text, "at most 10,000,000 switches or ports per level")
        return self._offering(element, {"topology": "fat-tree", "levels": levels}, _product(children), nodes)

    def _dragonfly(self, element: Element, text: str, nodes: int) -> dict[str, Any]:
        """`groups,links;chassis,links;routers,links;nodes`: SimGrid joins the routers of a group in rows and columns."""
        parts = text.split(";")
        if len(parts) != 4:
            raise self._wrong(element, text, "groups,links;chassis,links;routers,links;nodes")
        groups, between = self._numbers(element, parts[0], 2, 2)
        chassis, _ = self._numbers(element, parts[1], 2, 2)
        routers, inside = self._numbers(element, parts[2], 2, 2)
        hosts = self._numbers(element, parts[3], 1, 1)[0]
        if chassis > 1:
            self.facts.append(
                fact(
                    "simgrid.simplified",
                    f"{chassis} chassis of {routers} routers are read as joined all to all",
                    self._where(element),
                )
            )
        network = {
            "topology": "dragonfly",
            "groups": groups,
            "switches_per_group": chassis * routers,
            "endpoints_per_switch": hosts,
            "links_between_groups": between,
            "links_in_group": inside,
        }
        return self._offering(element, network, groups * chassis * routers * hosts, nodes)

    def _offering(self, element: Element, network: dict[str, Any], offers: int, nodes: int) -> dict[str, Any]:
        if offers != nodes:
            raise InputError(
                f"topo_parameters make {offers:,} hosts, radical names {nodes:,}; expected the same number",
                where=self._where(element),
            )
        return network

    def _latency(self, element: Element, network: dict[str, Any]) -> dict[str, float] | None:
        if not element.get("lat"):
            return None
        link = self._quantity(element, "lat", TIMES, zero=True)
        # SimGrid gives a latency to each link, while the description gives it to the switch at the end of the link. A torus has no
        # switches.
        return {"nic": link} if network["topology"] == "torus" else {"switch": link}

    def _radical(self, element: Element) -> int:
        """The number of hosts in a range such as "0-15,20", which is counted without listing them."""
        text = element.get("radical")
        total = 0
        for part in text.split(",", 100_000):
            match = re.fullmatch(r"\s*([0-9]{1,15})(?:-([0-9]{1,15}))?\s*", part)
            if not match or int(match[2] or match[1]) < int(match[1]):
                raise InputError(
                    f'radical: found "{one_line(text, 40)}"; expected numbers and ranges such as 0-15', where=self._where(element)
                )
            total += int(match[2] or match[1]) - int(match[1]) + 1
        return total

    def _count(self, element: Element, hosts: int) -> None:
        self.endpoints += hosts
        if self.endpoints > MOST_HOSTS:
            raise InputError(f"{self.endpoints:,} hosts; expected at most {MOST_HOSTS:,}", where=self._where(element))

    def _socket(self, speed: float, cores: int) -> dict[str, Any]:
        return {"count": 1, "cores": cores, "flops": {"fp64": speed * cores}}

    def _speed(self, element: Element) -> float:
        return self._quantity(element, "speed", SPEEDS, first=True)

    def _where(self, element: Element) -> str:
        return f"{self.path}:{element.line}"

    def _wrong(self, element: Element, text: str, expected: str) -> InputError:
        return InputError(f'topo_parameters: found "{one_line(text, 60)}"; expected {expected}', where=self._where(element))

    def _whole(self, element: Element, key: str, default: int) -> int:
        return whole_number(element.get(key), key, self._where(element), 1, 1_000_000) if element.get(key) else default

    def _numbers(self, element: Element, text: str, least: int, most: int) -> list[int]:
        parts = [part.strip() for part in text.split(",")]
        if not least <= len(parts) <= most or not all(re.fullmatch(r"[0-9]{1,7}", part) and int(part) for part in parts):
            expected = f"{least} numbers" if least == most else f"{least} to {most} numbers"
            raise self._wrong(element, text, f"{expected} of at least 1, separated by commas")
        return [int(part) for part in parts]

    def _quantity(self, element: Element, key: str, units: dict[str, float], zero: bool = False, first: bool = False) -> float:
        text = element.get(key).strip()
        # A host may list one speed per power state; it starts in the first.
        match = re.fullmatch(_NUMBER + r"\s*([A-Za-z]*)", text.split(",", 1)[0].strip() if first else text)
        if not match or match[2] not in units:
            example = next(unit for unit in units if len(unit) > 1)
            raise InputError(
                f'{key}: found "{one_line(text, 40)}"; expected a number with a unit such as {example}', where=self._where(element)
            )
        value = float(match[1]) * units[match[2]]
        if not (0 < value <= 1e30 or (zero and value == 0)):
            raise InputError(f'{key}: found "{one_line(text, 40)}"; expected more than 0', where=self._where(element))
        return value


def _product(numbers: list[int]) -> int:
    total = 1
    for number in numbers:
        total *= number
    return total
