"""The identity of a machine, in one form for DMI, device tree, PCI, FRU memories and dumps of any of them.

Every source is presented as objects with interfaces and properties, the way a D-Bus inventory shows them, so that code that recognises
platforms asks the same question on every machine. The names of interfaces are those of the OpenBMC inventory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from armillary.cluster.detect.fru import read_fru
from armillary.cluster.detect.pci import read_functions
from armillary.cluster.detect.tree import Facts, Tree
from armillary.errors import InputError, one_line

DMI = "/sys/class/dmi/id"
ASSET = "xyz.openbmc_project.Inventory.Decorator.Asset"
FRU = "xyz.openbmc_project.FruDevice"
PCIE = "xyz.openbmc_project.Inventory.Item.PCIeDevice"
DMI_INTERFACE = "org.kernel.Dmi"
DEVICE_TREE = "org.kernel.DeviceTree"
#: The DMI fields that everybody may read; serial numbers and UUIDs are reserved for root and are not read.
DMI_FILES = (
    "sys_vendor",
    "product_name",
    "product_family",
    "product_version",
    "board_vendor",
    "board_name",
    "chassis_type",
    "chassis_vendor",
    "bios_vendor",
)
MOST_BYTES = 4 << 20
MOST_OBJECTS = 100_000
# Placeholders that firmware contains when its maker never filled in a field.
UNSET = {
    "",
    "none",
    "default string",
    "to be filled by o.e.m.",
    "not specified",
    "system product name",
    "system manufacturer",
    "unknown",
    "n/a",
}

Value = str | int | float | bool | list[Any]


@dataclass(frozen=True)
class Thing:
    """One object of an inventory: its path, and the properties of each interface; `source` says where they come from."""

    path: str
    interfaces: Mapping[str, Mapping[str, Value]]
    source: str

    def get(self, interface: str, name: str) -> Value | None:
        """One property, or None."""
        return self.interfaces.get(interface, {}).get(name)


def read_dmi(tree: Tree) -> tuple[Thing, ...]:
    """The machine as its firmware names it; empty where there is no DMI, as in many virtual machines."""
    found = {name: text for name in DMI_FILES if (text := tree.text(f"{DMI}/{name}")) and text.lower() not in UNSET}
    if not found:
        return ()
    asset = {key: found[name] for key, name in (("Manufacturer", "sys_vendor"), ("Model", "product_name")) if name in found}
    return (Thing("/dmi", {DMI_INTERFACE: dict(found), ASSET: dict(asset)}, DMI),)


def read_device_tree(tree: Tree) -> tuple[Thing, ...]:
    """The board as its device tree names it, with `model` and with `compatible` from the most to the least specific."""
    for base in ("/proc/device-tree", "/sys/firmware/devicetree/base"):
        model, compatible = tree.text(f"{base}/model"), tree.text(f"{base}/compatible")
        if model or compatible:
            names: list[Any] = [name for name in (compatible or "").split("\0") if name][:100]
            properties: dict[str, Value] = {"compatible": names}
            asset: dict[str, Value] = {}
            if model:
                properties["model"] = model.replace("\0", " ")
                asset["Model"] = properties["model"]
            return (Thing("/device-tree", {DEVICE_TREE: properties, ASSET: asset}, base),)
    return ()


def read_pci(tree: Tree) -> tuple[Thing, ...]:
    """Every PCI function, as four hexadecimal digits of vendor, device and class."""
    return tuple(
        Thing(
            f"/pci/{f.address}",
            {PCIE: {"VendorId": f"0x{f.vendor:04x}", "DeviceId": f"0x{f.device:04x}", "Class": f"0x{f.kind:04x}"}},
            "PCI",
        )
        for f in read_functions(tree)
    )


def read_fru_memory(data: bytes, path: str = "/fru/0", where: str = "FRU") -> Thing:
    """One FRU memory (IPMI platform management FRU information, version 1) as an object; damage raises an `InputError`."""
    areas = read_fru(data, where)
    properties: dict[str, Value] = {f"{area}_{name}".upper(): value for area, fields in areas.items() for name, value in fields.items()}
    source = areas.get("product") or areas.get("board") or {}
    pairs = (
        ("Manufacturer", "manufacturer"),
        ("Model", "product_name"),
        ("PartNumber", "part_number"),
        ("SerialNumber", "serial_number"),
    )
    return Thing(path, {FRU: properties, ASSET: {key: source[name] for key, name in pairs if name in source}}, where)


def read_dmidecode(text: str, where: str = "dmidecode") -> tuple[Thing, ...]:
    """The tables of a saved `dmidecode`: one object per handle, with its title as the interface and its lines as properties."""
    if len(text) > MOST_BYTES:
        raise InputError(f"{len(text):,} characters; expected at most {MOST_BYTES:,}", where=where)
    found: list[Thing] = []
    for block in re.split(r"(?m)^Handle ", text)[1:]:
        lines = block.splitlines()
        match = re.match(r"(0x[0-9A-Fa-f]{1,8}), DMI type ([0-9]{1,3})", lines[0])
        if not match:
            raise InputError(f'found "Handle {lines[0][:60]}"; expected "Handle 0x…, DMI type n, …"', where=where)
        properties: dict[str, Value] = {"Type": int(match[2])}
        name: str | None = None
        for line in lines[2:]:
            if re.match(r"\t[^\t]", line) and ":" in line:
                name, _, value = line.strip().partition(":")
                properties[name] = value.strip()
            elif line.startswith("\t\t") and name:
                before = properties[name]
                properties[name] = [*(before if isinstance(before, list) else [before] if before else []), line.strip()]
        title = lines[1].strip() if len(lines) > 1 else ""
        asset = {key: properties[name] for key, name in (("Manufacturer", "Manufacturer"), ("Model", "Product Name")) if name in properties}
        interface = f"{DMI_INTERFACE}.{title.replace(' ', '')}"
        found.append(Thing(f"/dmi/{match[1].lower()}", {interface: properties, ASSET: asset}, where))
        if len(found) > MOST_OBJECTS:
            raise InputError(f"more than {MOST_OBJECTS:,} handles", where=where)
    if not found:
        raise InputError('no "Handle 0x…" in the text; expected what dmidecode prints', where=where)
    return tuple(found)


def read_inventory(text: str, where: str = "inventory") -> tuple[Thing, ...]:
    """A dump of D-Bus objects as JSON: `{path: {interface: {property: value}}}`; a list of such objects is read as one.

    The flat form of FRU dumps, `{path: {property: value}}`, is read as properties of the FRU interface.
    """
    if len(text) > MOST_BYTES:
        raise InputError(f"{len(text):,} characters; expected at most {MOST_BYTES:,}", where=where)
    try:
        dump = json.loads(text, object_pairs_hook=lambda pairs: _once(pairs, where))
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}", where=where) from None
    parts = dump if isinstance(dump, list) else [dump]
    found = []
    for part in parts:
        if not isinstance(part, dict):
            raise InputError("expected an object with paths as keys", where=where)
        for path, content in part.items():
            if not re.fullmatch(r"/|(/[A-Za-z0-9_.:-]+)+", path):
                raise InputError(f'"{path}" is not an object path', where=where)
            if not isinstance(content, dict):
                raise InputError(f"{path}: expected interfaces with their properties", where=where)
            flat = not all(isinstance(value, dict) for value in content.values())
            interfaces = {FRU: content} if flat else content
            for interface, properties in interfaces.items():
                for name, value in properties.items():
                    if value is None or isinstance(value, dict):
                        raise InputError(f"{path}: {interface}.{name}: expected a string, number, truth value or list", where=where)
            found.append(Thing(path, interfaces, where))
    if len(found) > MOST_OBJECTS:
        raise InputError(f"{len(found):,} objects; expected at most {MOST_OBJECTS:,}", where=where)
    return tuple(found)


def _once(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise InputError(f'"{next(n for n in names if names.count(n) > 1)}" stands twice in one object', where=where)
    return found


def describe_identity(tree: Tree, environ: Mapping[str, str], facts: Facts) -> str | None:
    """One line that names the machine, and the facts behind it, or None if nothing names it."""
    things = (*read_dmi(tree), *read_device_tree(tree))
    for thing in things:
        for interface in (DMI_INTERFACE, DEVICE_TREE):
            for name, value in thing.interfaces.get(interface, {}).items():
                shown = ", ".join(map(str, value)) if isinstance(value, list) else value
                facts.add(f"identity.{name}", shown or None, f"{thing.source}/{name}")
    facts.add("identity.hostname", tree.text("/proc/sys/kernel/hostname"), "/proc/sys/kernel/hostname")
    release = tree.text("/proc/sys/kernel/osrelease") or tree.text("/proc/version") or ""
    facts.add(
        "identity.kernel",
        release or None,
        "/proc/sys/kernel/osrelease" if tree.exists("/proc/sys/kernel/osrelease") else "/proc/version",
    )
    where = _surroundings(tree, release)
    facts.add("identity.inside", where, "kernel release, cgroup, /proc/cpuinfo")
    for name in SLURM_NAMES:
        facts.add(f"slurm.{name[6:].lower()}", environ.get(name), name)
    names = [str(thing.get(ASSET, key)) for thing in things for key in ("Manufacturer", "Model") if thing.get(ASSET, key)]
    # Many makers repeat their name in the model.
    kept = [name for k, name in enumerate(names) if not any(other.lower().startswith(name.lower()) for other in names[k + 1 :])]
    return one_line(" ".join(kept), 200) or None


SLURM_NAMES = (
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ID",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_CPUS_ON_NODE",
    "SLURM_GPUS_ON_NODE",
    "SLURM_MEM_PER_NODE",
)


def _surroundings(tree: Tree, release: str) -> str | None:
    """The environment of the system: "wsl", "kubernetes", "container", "virtual machine", or None for bare metal or unknown."""
    groups = tree.text("/proc/self/cgroup") or ""
    if "microsoft" in release.lower() or "WSL" in release:
        return "wsl"
    if "kubepods" in groups or tree.exists("/var/run/secrets/kubernetes.io") or tree.exists("/run/secrets/kubernetes.io"):
        return "kubernetes"
    marks = ("/.dockerenv", "/run/.containerenv")
    if re.search(r"/(docker|lxc|podman|libpod|machine\.slice)", groups) or any(tree.exists(mark) for mark in marks):
        return "container"
    if re.search(r"(?m)^flags\s*:.*\bhypervisor\b", tree.text("/proc/cpuinfo") or ""):
        return "virtual machine"
    return None
