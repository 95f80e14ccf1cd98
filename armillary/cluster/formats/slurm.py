"""Reads `slurm.conf`, with `topology.conf` and `gres.conf` beside it, into groups of nodes and a tree of switches.

Every NodeName line becomes a group. Slurm counts memory in MiB and processors as hardware threads; a line with only `CPUs` becomes one
socket with that many cores. The switches of `topology.conf` become a fat tree with one uplink per switch; these files have no rates, so
rates stay unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from armillary.cluster.formats import hostlist
from armillary.cluster.formats.files import as_text, distinct, fact, group, label, read_bytes, whole
from armillary.errors import InputError, one_line

MOST_BYTES = 16 << 20
MOST_LINES = 500_000
#: The most groups of a description, and the most switches (or facts) of a file.
MOST_GROUPS = 10_000
MOST_TABLES = 100_000
MOST_INCLUDES = 10

_PAIR = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)\s*(\+?=)\s*("[^"]*"|[^\s"]*)\s*')
_GRES = re.compile(r"gpu(?::([A-Za-z0-9_.\-]{1,100}))?(?::([0-9]{1,7}))?(?:\((.*)\))?", re.IGNORECASE)


@dataclass(frozen=True)
class Line:
    """One line after joining continuations: its position, and its keys in lower case and in order, of which the first tells the kind."""

    where: str
    keys: dict[str, str]

    @property
    def kind(self) -> str:
        """The first key."""
        return next(iter(self.keys))

    def number(self, key: str, default: int | None = None, high: int = 10_000_000) -> int | None:
        """A whole number of at least one, or the default if the key is absent."""
        return whole(self.keys[key], key, self.where, 1, high) if key in self.keys else default


@dataclass
class Switches:
    """The switches of one `topology.conf`, with the hosts and the lower switches of each, by name."""

    hosts: dict[str, list[str]] = field(default_factory=dict)
    below: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Budget:
    """Counts the host lists of one file together, because many lines with a million hosts each are as bad as one with more."""

    left: int = hostlist.MOST_HOSTS

    def expand(self, text: str, where: str) -> list[str]:
        """The hosts of one list; more than 1,000,000 in all lists so far raise an `InputError`."""
        self.left -= hostlist.count(text, where)
        if self.left < 0:
            raise InputError(f"the lists of this file make more than {hostlist.MOST_HOSTS:,} names", where=where)
        return hostlist.expand(text, where)


def looks_like(text: str) -> bool:
    """Whether some line defines nodes or switches as Slurm does."""
    return re.search(r"(?im)^[ \t]*(NodeName|SwitchName)[ \t]*=[ \t]*[^\s=]", text) is not None


def read(path: Path, follow: bool = False) -> dict[str, Any]:
    """The cluster that the file (and its neighbours) describes; `follow` allows `Include`."""
    lines = list(_lines(path, follow))
    if not any(line.kind == "nodename" for line in lines):
        raise InputError("no NodeName line; expected slurm.conf (topology.conf and gres.conf are read beside it)", where=str(path))
    beside = [*lines]
    for name in ("topology.conf", "gres.conf"):
        other = path.parent / name
        if other.name != path.name and other.is_file():
            beside += _lines(other, follow)
    hosts: dict[str, int] = {}
    nodes = _nodes(lines, hosts)
    if not nodes:
        raise InputError("found only defaults (NodeName=DEFAULT); expected nodes", where=str(path))
    _types_of_gpus(nodes, hosts, [line for line in beside if line.kind in ("name", "nodename") and "name" in line.keys])
    data: dict[str, Any] = {"armillary": 1, "name": "slurm"}
    facts = []
    for line in lines:
        if line.kind == "clustername" and line.keys["clustername"]:
            data["name"] = label(line.keys["clustername"])
        elif line.kind == "partitionname":
            name = line.keys["partitionname"]
            facts.append(fact(f"slurm.partition.{name}", line.keys.get("nodes", ""), line.where))
    taken: dict[str, int] = {}
    groups = []
    for made in nodes:
        name = distinct(re.sub(r"[^A-Za-z0-9_.]+", "-", re.sub(r"\[[^\]]*\]", "", made.hosts_text)).strip("-.") or "nodes", taken)
        groups.append(group(name, made.count, made.node))
        facts += [fact(f"group.{name}.{key}", value, made.where) for key, value in made.facts]
    network = _network(beside, hosts, facts)
    if network:
        data["network"] = {"tree": network}
        for table in groups:
            table["node"]["nic"] = [{"count": 1, "network": "tree"}]
    data["group"] = groups
    data["facts"] = facts[:MOST_TABLES]
    return data


def _lines(path: Path, follow: bool, depth: int = 0) -> Iterator[Line]:
    text = as_text(read_bytes(path, MOST_BYTES), path)
    number, start, joined = 0, 0, ""
    for raw in text.split("\n"):
        number += 1
        if number > MOST_LINES:
            raise InputError(f"more than {MOST_LINES:,} lines", where=str(path))
        start = start or number
        line = re.sub(r"(?<!\\)#.*", "", raw).rstrip()
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        joined, whole_line, where, start = "", (joined + line).strip(), f"{path}:{start}", 0
        if not whole_line:
            continue
        include = re.fullmatch(r"(?i)include\s+(\S+)", whole_line)
        if include:
            if not follow:
                raise InputError(f'Include "{one_line(include[1], 80)}" is not followed unless asked (--follow)', where=where)
            if depth >= MOST_INCLUDES:
                raise InputError(f"files include each other more than {MOST_INCLUDES} deep", where=where)
            yield from _lines(path.parent / include[1], follow, depth + 1)
            continue
        keys = _pairs(whole_line, where)
        if keys:
            yield Line(where, keys)


def _pairs(text: str, where: str) -> dict[str, str]:
    keys: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _PAIR.match(text, position)
        if not match:
            # Only the keys that this reader uses must be well formed; a site's scripts and other options are ignored.
            if keys and next(iter(keys)) in ("nodename", "switchname", "name"):
                raise InputError(f'found "{one_line(text[position:], 40)}"; expected Key=value', where=where)
            return keys
        key, value = match[1].lower(), match[3].strip('"')
        keys[key] = f"{keys[key]},{value}" if match[2] == "+=" and key in keys else value
        position = match.end()
    return keys


@dataclass
class Nodes:
    """The nodes of one line on their way to a group."""

    where: str
    hosts_text: str
    count: int
    node: dict[str, Any]
    facts: list[tuple[str, str]]


def _nodes(lines: list[Line], hosts: dict[str, int]) -> list[Nodes]:
    defaults: dict[str, str] = {}
    found: list[Nodes] = []
    for line in lines:
        if line.kind != "nodename" or "name" in line.keys:  # a gres.conf line also begins with NodeName
            continue
        text = line.keys["nodename"]
        if text.upper() == "DEFAULT":
            defaults.update({key: value for key, value in line.keys.items() if key != "nodename"})
            continue
        names = hostlist.expand(text, line.where)
        if not names:
            raise InputError("NodeName names no host", where=line.where)
        if len(hosts) + len(names) > hostlist.MOST_HOSTS:
            raise InputError(f"more than {hostlist.MOST_HOSTS:,} hosts in total", where=line.where)
        again = next((name for name in names if name in hosts), None)
        if again is not None:
            raise InputError(f'host "{one_line(again, 60)}" was defined before', where=line.where)
        hosts.update(dict.fromkeys(names, len(found)))
        filled = Line(line.where, {**defaults, **line.keys})
        facts = [(key, filled.keys[key]) for key in ("feature", "features", "weight", "tmpdisk", "state") if filled.keys.get(key)]
        found.append(Nodes(line.where, text, len(names), _node(filled), facts))
        if len(found) > MOST_GROUPS:
            raise InputError(f"more than {MOST_GROUPS:,} NodeName lines", where=line.where)
    return found


def _node(line: Line) -> dict[str, Any]:
    boards = line.number("boards", 1) or 1
    per_board = line.number("socketsperboard")
    sockets = line.number("sockets") or (boards * per_board if per_board else None)
    cores, threads = line.number("corespersocket"), line.number("threadspercore", 1, 64) or 1
    cpus = line.number("cpus") or line.number("procs")
    if cores is None:
        cores = (cpus or 1) // ((sockets or 1) * threads) or 1
    if sockets is None:
        sockets = max(1, (cpus or 1) // (cores * threads)) if cpus else 1
    known = cpus is not None or "corespersocket" in line.keys or sockets > 1
    # Slurm also accepts the number of cores here if a core has several threads.
    if cpus is not None and cpus not in (sockets * cores * threads, sockets * cores, sockets):
        raise InputError(
            f"CPUs={cpus}, but {sockets} sockets × {cores} cores × {threads} threads are {sockets * cores * threads}",
            where=line.where,
        )
    node: dict[str, Any] = {"socket": [{"count": sockets, "cores": cores, "threads_per_core": threads}] if known else []}
    mebibytes = line.number("realmemory", None, 10**12)
    if mebibytes:
        node["memory"] = [{"name": "dram", "kind": "dram", "size": mebibytes << 20, "attached": "socket"}]
    node["device"] = _gpus(line.keys.get("gres", ""), line.where)
    return node


def _gpus(gres: str, where: str) -> list[dict[str, Any]]:
    """Parses `gpu:h100:8`, `gpu:8` or `gpu:a100:4(S:0-1),gpu:a30:2`; other resources are left out."""
    devices = []
    for entry in re.split(r",(?![^()]*\))", gres):
        if not entry.strip().lower().startswith("gpu"):
            continue
        match = _GRES.fullmatch(entry.strip())
        if not match:
            raise InputError(f'Gres: found "{one_line(entry, 40)}"; expected gpu:type:count', where=where)
        model, number = match[1], match[2]
        if model and number is None and model.isdecimal():
            model, number = None, model
        count = whole(number, "Gres", where, 0, 1024) if number else 1
        if count:
            devices.append({"count": count, "kind": "gpu", **({"model": model} if model else {})})
    return devices[:1000]


def _types_of_gpus(nodes: list[Nodes], hosts: dict[str, int], lines: list[Line]) -> None:
    """Takes the kind of an untyped `gpu:8` from gres.conf, where a line without NodeName applies to every node."""
    budget = Budget()
    for line in lines:
        if line.keys["name"].lower() != "gpu" or not line.keys.get("type"):
            continue
        names = budget.expand(line.keys["nodename"], line.where) if "nodename" in line.keys else None
        for index in range(len(nodes)) if names is None else {hosts[name] for name in names if name in hosts}:
            for device in nodes[index].node["device"]:
                device.setdefault("model", label(line.keys["type"]))


def _network(lines: list[Line], hosts: dict[str, int], facts: list[dict[str, Any]]) -> dict[str, Any] | None:
    switches, budget = Switches(), Budget()
    for line in lines:
        if line.kind != "switchname":
            continue
        name = line.keys["switchname"]
        if not name or name in switches.below:
            raise InputError(f'switch "{one_line(name, 60)}" {"was defined before" if name else "has no name"}', where=line.where)
        switches.below[name] = budget.expand(line.keys.get("switches", ""), line.where)
        switches.hosts[name] = budget.expand(line.keys.get("nodes", ""), line.where)
        if len(switches.below) > MOST_TABLES:
            raise InputError(f"more than {MOST_TABLES:,} switches", where=line.where)
        if "linkspeed" in line.keys:
            facts.append(fact(f"network.tree.{name}.link_speed", line.keys["linkspeed"], line.where))
    if not switches.below:
        return None
    where = next(line.where for line in lines if line.kind == "switchname")
    for name, below in switches.below.items():
        for lower in below:
            if lower not in switches.below:
                raise InputError(f'switch "{one_line(name, 60)}" has "{one_line(lower, 60)}" below it, which is not defined', where=where)
    levels = _levels(switches, where)
    leaves = levels[0]
    behind = {name for leaf in leaves for name in switches.hosts[leaf]}
    outside = sum(1 for name in hosts if name not in behind)
    if outside:
        facts.append(fact("network.tree.hosts_without_switch", outside, where))
    # Hosts that no switch names still need a port, so the tree offers as many ports as there are hosts.
    widest = max(max((len(switches.hosts[leaf]) for leaf in leaves), default=1), -(-len(hosts) // len(leaves)), 1)
    return {"topology": "fat-tree", "levels": _fat_tree(levels, switches, widest, facts, where)}


def _levels(switches: Switches, where: str) -> list[list[str]]:
    """Switch names by height above the hosts, leaves first; a switch that lies below itself raises an `InputError`."""
    height: dict[str, int] = {}
    waiting = dict(switches.below)
    while waiting:
        ready = [name for name, below in waiting.items() if all(lower in height for lower in below)]
        if not ready:
            raise InputError(f'switch "{one_line(next(iter(waiting)), 60)}" lies below itself', where=where)
        for name in ready:
            height[name] = 1 + max((height[lower] for lower in waiting.pop(name)), default=-1)
        if max(height.values()) >= 8:
            raise InputError("more than 8 levels of switches", where=where)
    return [[name for name, at in height.items() if at == level] for level in range(max(height.values()) + 1)]


def _fat_tree(levels: list[list[str]], switches: Switches, widest: int, facts: list[dict[str, Any]], where: str) -> list[dict[str, int]]:
    sizes = [len(level) for level in levels]
    even = all(
        len({len(switches.below[name]) for name in upper}) == 1 and len(switches.below[upper[0]]) * len(upper) == len(lower)
        for lower, upper in pairwise(levels)
    )
    if even and sizes[-1] == 1:
        return [
            {"down": widest if k == 0 else sizes[k - 1] // sizes[k], "up": int(k + 1 < len(sizes)), "switches": sizes[k]}
            for k in range(len(sizes))
        ]
    if sizes[0] == 1:
        return [{"down": widest, "up": 0, "switches": 1}]
    facts.append(fact("network.tree.simplified", "switches above the leaves are uneven, so they are read as one", where))
    return [{"down": widest, "up": 1, "switches": sizes[0]}, {"down": sizes[0], "up": 0, "switches": 1}]
