"""Reads the PCI bus: the address, vendor, device, class and NUMA domain of every function."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.cluster.detect.tree import Tree

DEVICES = "/sys/bus/pci/devices"
NVIDIA, AMD, INTEL = 0x10DE, 0x1002, 0x8086
VENDORS = {
    NVIDIA: "NVIDIA",
    AMD: "AMD",
    INTEL: "Intel",
    0x15B3: "Mellanox",
    0x17DB: "HPE",
    0x14E4: "Broadcom",
    0x1D0F: "Amazon",
    0x1AF4: "virtio",
}
# The usual names of the parts that clusters contain; any other part is shown by its numbers.
NAMES = {
    (AMD, 0x738C): "MI100",
    (AMD, 0x7408): "MI250X GCD",
    (AMD, 0x740C): "MI250X GCD",
    (AMD, 0x740F): "MI210",
    (AMD, 0x74A0): "MI300A",
    (AMD, 0x74A1): "MI300X",
    (AMD, 0x74A5): "MI325X",
    (NVIDIA, 0x1DB6): "V100 PCIe 32GB",
    (NVIDIA, 0x1EB8): "T4",
    (NVIDIA, 0x20B0): "A100 SXM4 40GB",
    (NVIDIA, 0x20B2): "A100 SXM4 80GB",
    (NVIDIA, 0x20B5): "A100 PCIe 80GB",
    (NVIDIA, 0x26B9): "L40S",
    (NVIDIA, 0x2330): "H100 SXM5",
    (NVIDIA, 0x2331): "H100 PCIe",
    (NVIDIA, 0x2335): "H200 SXM5",
    (0x15B3, 0x1017): "ConnectX-5",
    (0x15B3, 0x101B): "ConnectX-6",
    (0x15B3, 0x101D): "ConnectX-6 Dx",
    (0x15B3, 0x1021): "ConnectX-7",
    (0x15B3, 0x1023): "ConnectX-8",
    (0x15B3, 0xA2DC): "BlueField-3",
    (0x17DB, 0x0501): "Cassini",
    (INTEL, 0x1592): "E810",
}


@dataclass(frozen=True)
class Function:
    """One PCI function; `kind` is the upper 16 bits of its class code (0x0302: 3D controller), `domain` its NUMA domain or None."""

    address: str
    vendor: int
    device: int
    kind: int
    domain: int | None

    @property
    def name(self) -> str:
        """The name of the part, or its vendor and device numbers if the name is unknown."""
        known = NAMES.get((self.vendor, self.device))
        return known or f"{VENDORS.get(self.vendor, f'{self.vendor:04x}')} {self.device:04x}"


def read_function(tree: Tree, folder: str) -> Function | None:
    """The function of this sysfs folder, or None if it is not one."""
    vendor, device, code = (tree.number(f"{folder}/{name}") for name in ("vendor", "device", "class"))
    if vendor is None or device is None or code is None or not 0 <= vendor <= 0xFFFF or not 0 <= device <= 0xFFFF:
        return None
    domain = tree.number(f"{folder}/numa_node")
    return Function(folder.rsplit("/", 1)[1], vendor, device, code >> 8 & 0xFFFF, domain if domain is not None and domain >= 0 else None)


def read_functions(tree: Tree) -> tuple[Function, ...]:
    """Every function on the bus, by address."""
    found = (read_function(tree, f"{DEVICES}/{name}") for name in sorted(tree.names(DEVICES)))
    return tuple(function for function in found if function)
