"""Detects accelerators: their memory, where they are attached, and the links between them.

The sources are, in order, the vendor's library (NVML) on the running machine, the driver's files, AMD's compute topology, an integrated GPU
in the device tree, and the PCI bus, which knows little more than that a GPU exists. A GPU that an earlier source described is not counted
again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from armillary.cluster.detect.links import pair_tables
from armillary.cluster.detect.nvml import read_nvml
from armillary.cluster.detect.pci import AMD, INTEL, NVIDIA, Function, read_functions
from armillary.cluster.detect.tree import Facts, Tree, label, numbered, whole

DRIVER = "/proc/driver/nvidia/gpus"
KFD = "/sys/class/kfd/kfd/topology/nodes"
# The display and processing-accelerator classes, from vendors who make accelerators; the VGA of a baseboard controller is not one.
ACCELERATORS = {0x0300, 0x0302, 0x0380, 0x1200}


@dataclass(frozen=True)
class Gpu:
    """One accelerator: `table` is its entry in the description, `domain` its NUMA domain, and `address` its PCI address."""

    table: dict[str, Any]
    address: str | None = None
    domain: int | None = None


def read_gpus(tree: Tree, facts: Facts) -> tuple[list[Gpu], list[dict[str, Any]]]:
    """The accelerators and the `link` tables between them."""
    functions = [f for f in read_functions(tree) if f.kind in ACCELERATORS and f.vendor in (NVIDIA, AMD, INTEL)]
    domains = {function.address: function.domain for function in functions}
    found, links = _from_nvml(tree, domains, facts)
    if not found:
        found = _from_driver(tree, domains, facts)
    amd, amd_links = _from_kfd(tree, functions, facts)
    found += amd
    links += amd_links
    if not found:
        found = _from_device_tree(tree, facts)
    taken = {gpu.address for gpu in found}
    amd_known = bool(amd)
    for function in functions:
        if function.address in taken or (function.vendor == AMD and amd_known):
            continue
        found.append(Gpu({"kind": "gpu", "model": function.name}, function.address, function.domain))
        facts.add(f"gpu.{function.address}.model", function.name, f"/sys/bus/pci/devices/{function.address}")
    if not found and tree.exists("/dev/dxg"):
        facts.add("gpu.paravirtual", True, "/dev/dxg")
    facts.add("gpus", len(found) or None, "all sources of GPUs")
    return found, links


def devices(gpus: list[Gpu], places: Mapping[int, str]) -> list[dict[str, Any]]:
    """The `device` tables, in which equal accelerators are counted together; `places` names the place near each NUMA domain."""
    tables: list[dict[str, Any]] = []
    near: list[list[str | None]] = []
    for gpu in gpus:
        place = places.get(gpu.domain) if gpu.domain is not None else None
        for table, others in zip(tables, near):
            if {**table, "count": 1} == {"count": 1, **gpu.table}:
                table["count"] += 1
                others.append(place)
                break
        else:
            tables.append({"count": 1, **gpu.table})
            near.append([place])
    for table, others in zip(tables, near):
        if None not in others:
            table["near"] = others[0] if len(set(others)) == 1 else others
    return tables


def _from_nvml(tree: Tree, domains: dict[str, int | None], facts: Facts) -> tuple[list[Gpu], list[dict[str, Any]]]:
    if not tree.live:
        return [], []
    tables, links = read_nvml()
    for address, table in tables.items():
        facts.add(f"gpu.{address}.model", table.get("model"), "NVML")
    return [Gpu(table, address, domains.get(address)) for address, table in tables.items()], links


def _from_driver(tree: Tree, domains: dict[str, int | None], facts: Facts) -> list[Gpu]:
    found = []
    for address in sorted(tree.names(DRIVER))[:1024]:  # hexadecimal, so 9d comes after 1b
        path = f"{DRIVER}/{address}/information"
        match = re.search(r"(?m)^Model:\s*(\S.*?)\s*$", tree.text(path) or "")
        if match:
            facts.add(f"gpu.{address}.model", match[1], path)
            found.append(Gpu({"kind": "gpu", "model": label(match[1])}, address.lower(), domains.get(address.lower())))
    return found


def _from_kfd(tree: Tree, functions: list[Function], facts: Facts) -> tuple[list[Gpu], list[dict[str, Any]]]:
    """Reads AMD's topology, which has one node per processor and per GPU; a package of two dies counts as two GPUs."""
    names = {function.address: function for function in functions if function.vendor == AMD}
    gpus: dict[int, Gpu] = {}
    for name in tree.names(KFD)[:4096]:
        index, properties = numbered(name, ""), _properties(tree.text(f"{KFD}/{name}/properties"))
        if index is None or properties.get("simd_count", 0) <= 0:
            continue
        where = properties.get("location_id", 0)
        address = f"{properties.get('domain', 0):04x}:{where >> 8 & 0xFF:02x}:{where >> 3 & 0x1F:02x}.{where & 7}"
        function = names.get(address) or Function(address, AMD, properties.get("device_id", 0) & 0xFFFF, 0, None)
        table: dict[str, Any] = {"kind": "gpu", "model": function.name}
        size = _device_memory(tree, f"{KFD}/{name}/mem_banks")
        if size:
            table["memory"] = {"kind": "hbm", "size": size}
        if 1 <= properties.get("wave_front_size", 0) <= 128:
            table["warp_size"] = properties["wave_front_size"]
        units = properties["simd_count"] // max(properties.get("simd_per_cu", 4), 1)
        if 0 < units < 100_000:
            table["sms"] = units
        facts.add(f"gpu.{address}.model", function.name, f"{KFD}/{name}/properties")
        facts.add(f"gpu.{address}.memory", size, f"{KFD}/{name}/mem_banks")
        gpus[index] = Gpu(table, address, function.domain)
    return list(gpus.values()), _xgmi(tree, list(gpus), facts)


def _xgmi(tree: Tree, gpus: list[int], facts: Facts) -> list[dict[str, Any]]:
    """The links between AMD dies, with the rate that the driver states for each pair (type 11 is xGMI; MB/s)."""
    position = {node: k for k, node in enumerate(gpus)}
    rates: dict[tuple[int, int], float] = {}
    for node in gpus:
        for link in tree.names(f"{KFD}/{node}/io_links")[:4096]:
            properties = _properties(tree.text(f"{KFD}/{node}/io_links/{link}/properties"))
            other, rate = properties.get("node_to", -1), properties.get("max_bandwidth", 0)
            if properties.get("type") == 11 and other in position and position[node] < position[other] and 0 < rate < 10**8:
                rates[position[node], position[other]] = rate * 1e6
    facts.add("gpu.xgmi.pairs", len(rates) or None, f"{KFD}/*/io_links")
    return pair_tables("xgmi", rates, len(gpus))


def _device_memory(tree: Tree, folder: str) -> int | None:
    banks = (_properties(tree.text(f"{folder}/{bank}/properties")) for bank in tree.names(folder)[:64])
    # Heap types 1 and 2 are frame buffer, visible to the host or not; the others are apertures.
    return sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in (1, 2)) or None


def _properties(text: str | None) -> dict[str, int]:
    found = {}
    for line in (text or "").splitlines()[:1000]:
        name, _, value = line.strip().partition(" ")
        number = whole(value.strip())
        if number is not None and number >= 0:
            found[name] = number
    return found


def _from_device_tree(tree: Tree, facts: Facts) -> list[Gpu]:
    """A GPU that shares the memory of its processors and has none of its own, as on Jetson boards."""
    for base in ("/proc/device-tree", "/sys/firmware/devicetree/base"):
        for folder in (base, f"{base}/bus@0", f"{base}/host1x"):
            for name in tree.names(folder):
                path = f"{folder}/{name}/compatible"
                compatible = (tree.text(path) or "") if name.startswith("gpu") else ""
                if compatible.startswith("nvidia,"):
                    model = label(compatible.split("\0")[0])
                    facts.add("gpu.integrated", model, path)
                    return [Gpu({"kind": "gpu", "model": model, "memory": {"kind": "dram", "shared": True}})]
    return []
