"""Reads hwloc's XML (version 2, `lstopo machine.xml`) as one node with its packages, memories, caches and devices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.cluster.detect.cpus import Cache, Core, Processors, model_name
from armillary.cluster.detect.gpus import ACCELERATORS, Gpu, devices
from armillary.cluster.detect.network import Port, nics
from armillary.cluster.detect.numa import Domain, tiers_of
from armillary.cluster.detect.pci import AMD, INTEL, NVIDIA, Function
from armillary.cluster.detect.sockets import sockets
from armillary.cluster.detect.storage import drive_tables
from armillary.cluster.detect.tree import Facts
from armillary.cluster.formats.files import group, label, whole
from armillary.cluster.formats.xml import Element
from armillary.errors import InputError

MOST_DOMAINS = 1024
MOST_PUS = 16_384
MOST_PACKAGES = 1024
#: The most characters of all cpusets together: 64 domains of 16,384 hardware threads, as groups of eight hexadecimal digits.
MOST_CPUSETS = 64 * MOST_PUS // 32 * 11
#: The largest plausible size of a tier in bytes.
MOST_SIZE = 1 << 60

_PCI = re.compile(r"([0-9a-fA-F]{4}) \[([0-9a-fA-F]{4}):([0-9a-fA-F]{4})\].*")
_CACHE = re.compile(r"L([1-5])(i?)Cache")


@dataclass
class Found:
    """What a walk over the objects collects."""

    path: Path
    cores: list[Core] = field(default_factory=list)
    caches: list[Cache] = field(default_factory=list)
    domains: list[Domain] = field(default_factory=list)
    devices: list[tuple[Element, int | None]] = field(default_factory=list)
    drives: list[Element] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    pus: set[int] = field(default_factory=set)
    packages: int = 0
    cpusets: int = 0
    seen: set[frozenset[int]] = field(default_factory=set)

    def place(self, element: Element) -> str:
        """The position of an element, for errors."""
        return f"{self.path}:{element.line}"


def read(root: Element, path: Path) -> dict[str, Any]:
    """The machine of a `<topology>` as a cluster of one node."""
    version = root.get("version")
    if not version.startswith("2."):
        raise InputError(f'found topology version "{label(version, "none")}"; expected 2.x (lstopo of hwloc 2)', where=str(path))
    machines = [child for child in root.children if child.name == "object" and child.get("type") == "Machine"]
    if len(machines) != 1:
        raise InputError(f'found {len(machines)} objects of type "Machine" at the top; expected one', where=str(path))
    found, facts = Found(path), Facts()
    _walk(found, machines[0], None)
    if not found.pus:
        raise InputError("the machine has no hardware thread (object of type PU)", where=str(path))
    processors = Processors(tuple(found.cores), tuple(found.caches), found.models[0] if found.models else None)
    # Here the domain of a device is the package above it.
    places = {package: f"socket:{socket}" for package, socket in processors.first_sockets().items()}
    gpus = [gpu for element, socket in found.devices if (gpu := _gpu(element, socket))]
    ports = [port for element, socket in found.devices if (port := _port(element, socket))]
    for key, value in _infos(machines[0]).items():
        facts.add(f"hwloc.{key}", value, str(path))
    node = {
        "socket": sockets(processors, [domain.cpus for domain in found.domains if domain.cpus], facts),
        "memory": tiers_of(tuple(found.domains), None, facts) + _drives(found),
        "device": devices(gpus, places),
        "nic": nics(ports, places),
    }
    name = label(_infos(machines[0]).get("HostName", path.stem), "machine")
    return {"armillary": 1, "name": name, "group": [group("node", 1, node)], "facts": facts.found}


def _objects(element: Element) -> Iterator[Element]:
    return (child for child in element.children if child.name == "object")


def _infos(element: Element) -> dict[str, str]:
    return {child.get("name"): child.get("value") for child in element.children if child.name == "info" and child.get("name")}


def _walk(found: Found, element: Element, package: int | None) -> tuple[int, ...]:
    """Collects the parts below one object and returns its hardware threads. The parser bounds the depth."""
    kind = element.get("type")
    if kind == "PU":
        index = whole(element.get("os_index"), "os_index", found.place(element), 0, MOST_PUS)
        if index in found.pus:
            raise InputError(f"hardware thread {index} appears twice", where=found.place(element))
        found.pus.add(index)
        return (index,)
    if kind == "PCIDev":
        found.devices.append((element, package))
    elif kind == "OSDev":
        found.drives.append(element)
    elif kind == "NUMANode":
        _domain(found, element)
    elif kind == "Package":
        if found.packages >= MOST_PACKAGES:
            raise InputError(f"more than {MOST_PACKAGES} packages", where=found.place(element))
        package = found.packages
        found.packages += 1
        model = _infos(element).get("CPUModel")
        if model:
            found.models.append(model_name(model))
    cpus = tuple(cpu for child in _objects(element) for cpu in _walk(found, child, package))
    cache = _CACHE.fullmatch(kind)
    if kind == "Core":
        if not cpus:
            raise InputError("a core without hardware threads", where=found.place(element))
        found.cores.append(Core(package or 0, tuple(sorted(cpus))))
    elif cache and not cache[2] and cpus and element.get("cache_size", "0") != "0":
        size = whole(element.get("cache_size"), "cache_size", found.place(element), 1, MOST_SIZE)
        found.caches.append(Cache(int(cache[1]), size, frozenset(cpus)))
    return cpus


def _domain(found: Found, element: Element) -> None:
    if len(found.domains) >= MOST_DOMAINS:
        raise InputError(f"more than {MOST_DOMAINS} NUMA domains", where=found.place(element))
    cpuset = element.get("cpuset")
    found.cpusets += len(cpuset)
    if found.cpusets > MOST_CPUSETS or not re.fullmatch(r"(0xf\.\.\.f,)?(0x[0-9a-fA-F]{1,8}|)(,(0x[0-9a-fA-F]{1,8})?)*", cpuset):
        raise InputError(f'cpuset: found "{label(cpuset[:40])}"; expected 0x… in groups of 32 bits', where=found.place(element))
    bits = 0
    for part in cpuset.split(","):
        bits = bits << 32 | (int(part, 16) if part.startswith("0x") and "." not in part else 0)
    cpus = frozenset(position for position, bit in enumerate(reversed(f"{bits:b}")) if bit == "1")
    size = whole(element.get("local_memory", "0") or "0", "local_memory", found.place(element), 0, MOST_SIZE)
    index = whole(element.get("os_index", "0") or "0", "os_index", found.place(element), 0, 1 << 20)
    # A second memory of the same processors is not a domain of its own, but a tier.
    second = cpus in found.seen
    found.seen.add(cpus)
    kind = "hbm" if re.search("HBM|MCDRAM", element.get("subtype")) else "cxl"
    found.domains.append(Domain(index, frozenset() if second else cpus, size or None, kind=kind if second or not cpus else None))


def _function(element: Element) -> Function | None:
    match = _PCI.fullmatch(element.get("pci_type"))
    return Function(element.get("pci_busid"), int(match[2], 16), int(match[3], 16), int(match[1], 16), None) if match else None


def _gpu(element: Element, socket: int | None) -> Gpu | None:
    function = _function(element)
    if function is None or function.kind not in ACCELERATORS or function.vendor not in (NVIDIA, AMD, INTEL):
        return None
    table: dict[str, Any] = {"kind": "gpu", "model": function.name}
    for child in _objects(element):
        infos = _infos(child)
        if infos.get("GPUModel"):
            table["model"] = label(infos["GPUModel"])
        kibibytes = infos.get("CUDAGlobalMemorySize", "")
        if kibibytes.isascii() and kibibytes.isdecimal() and 0 < len(kibibytes) < 15 and int(kibibytes):
            table["memory"] = {"kind": "hbm", "size": int(kibibytes) << 10}
    return Gpu(table, function.address, socket)


def _port(element: Element, socket: int | None) -> Port | None:
    function = _function(element)
    if function is None or function.kind >> 8 != 0x02:
        return None
    return Port(function.address, function.address, function.name, None, socket)


def _drives(found: Found) -> list[dict[str, Any]]:
    """Only drives whose name shows their kind, because hwloc does not distinguish rotating disks from others."""
    drives: dict[tuple[str, int], int] = {}
    for element in found.drives:
        kibibytes = _infos(element).get("Size", "")
        name = element.get("name")
        kind = "nvme" if re.fullmatch(r"nvme[0-9]+n[0-9]+", name) else "pmem" if name.startswith("pmem") else None
        if kind and kibibytes.isascii() and kibibytes.isdecimal() and len(kibibytes) < 15 and int(kibibytes):
            size = int(kibibytes) << 10
            drives[kind, size] = drives.get((kind, size), 0) + 1
    return drive_tables(drives)
