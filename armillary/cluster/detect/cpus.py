"""Detects processors: packages, cores, hardware threads, caches, clocks and vector unit.

The sources are /sys/devices/system/cpu, and /proc/cpuinfo where the kernel shows no topology. Only one hardware thread per core is read,
and every cache only once, so a machine with 256 threads costs about two thousand small reads.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace

from armillary.cluster.detect.tree import Facts, Tree, cpu_list, label, numbered

CPUS = "/sys/devices/system/cpu"
CPUINFO = "/proc/cpuinfo"
#: The most hardware threads of one core; eight is the most that was ever built.
MOST_THREADS = 64

# Arm prints the numbers of implementer and part (as in the Main ID Register) where x86 prints names.
ARM_IMPLEMENTERS = {
    0x41: "Arm",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x50: "APM",
    0x51: "Qualcomm",
    0x61: "Apple",
    0xC0: "Ampere",
}
ARM_PARTS = {
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse N1",
    (0x41, 0xD40): "Neoverse V1",
    (0x41, 0xD42): "Cortex-A78AE",
    (0x41, 0xD49): "Neoverse N2",
    (0x41, 0xD4F): "Neoverse V2",
    (0x41, 0xD84): "Neoverse V3",
    (0x46, 0x001): "A64FX",
    (0x48, 0xD01): "Kunpeng 920",
    (0x4E, 0x004): "Carmel",
    (0xC0, 0xAC3): "Ampere-1",
}
# The widest unit comes first, because dense kernels use it.
SIMD = (
    ("avx512f", "avx512"),
    ("avx2", "avx2"),
    ("avx", "avx"),
    ("sse2", "sse2"),
    ("sve2", "sve2"),
    ("sve", "sve"),
    ("asimd", "neon"),
    ("neon", "neon"),
)


@dataclass(frozen=True)
class Cache:
    """One cache that holds data: its level, bytes, and the hardware threads that share it."""

    level: int
    size: int
    cpus: frozenset[int]


@dataclass(frozen=True)
class Core:
    """One core: its package, and its hardware threads in ascending order."""

    package: int
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class Processors:
    """All processors of one node; `model`, clocks (Hz) and `simd` are None where unknown."""

    cores: tuple[Core, ...] = ()
    caches: tuple[Cache, ...] = ()
    model: str | None = None
    simd: str | None = None
    base_hz: float | None = None
    max_hz: float | None = None
    #: The sustained power limit of each package in watts, from RAPL.
    tdp: dict[int, float] = field(default_factory=dict)

    def first_sockets(self) -> dict[int, int]:
        """For each package, the number of its first socket in the description, which has one socket per kind of core."""
        kinds: dict[int, set[int]] = defaultdict(set)
        for core in self.cores:
            kinds[core.package].add(len(core.cpus))
        found, total = {}, 0
        for package in sorted(kinds):
            found[package] = total
            total += len(kinds[package])
        return found

    def package_of(self, cpus: frozenset[int]) -> int | None:
        """The package that holds most of these hardware threads, or None if none holds any."""
        inside: dict[int, int] = defaultdict(int)
        for core in self.cores:
            inside[core.package] += len(cpus.intersection(core.cpus))
        best = max(inside, key=lambda package: (inside[package], -package), default=None)
        return best if best is not None and inside[best] else None


def read_processors(tree: Tree, facts: Facts) -> Processors:
    """The processors of the tree, or an empty `Processors` if nothing describes any."""
    online, online_source = _online(tree)
    facts.add("cpus.online", len(online) or None, online_source)
    present = cpu_list(tree.text(f"{CPUS}/present"))
    facts.add("cpus.present", len(present) if present else None, f"{CPUS}/present")
    records = _cpuinfo(tree)
    cores, core_source = _cores(tree, online, records)
    facts.add("cpus.cores", len(cores) or None, core_source)
    facts.add("cpus.packages", len({core.package for core in cores}) or None, core_source)
    dies = {
        (core.package, die)
        for core in cores[:4096]
        if (die := tree.number(f"{CPUS}/cpu{core.cpus[0]}/topology/die_id")) is not None and die >= 0
    }
    facts.add("cpus.dies", len(dies) or None, f"{CPUS}/cpu*/topology/die_id")
    model, model_source = _model(tree, records)
    facts.add("cpus.model", model, model_source)
    simd = _simd(records)
    facts.add("cpus.simd", simd, CPUINFO)
    first = cores[0].cpus[0] if cores else 0
    base, base_source = _base_clock(tree, first, model)
    facts.add("cpus.clock.base", base, base_source)
    fastest = tree.number(f"{CPUS}/cpu{first}/cpufreq/cpuinfo_max_freq")
    top = fastest * 1e3 if fastest and fastest > 0 else None
    facts.add("cpus.clock.max", top, f"{CPUS}/cpu{first}/cpufreq/cpuinfo_max_freq")
    return Processors(cores, _caches(tree, cores), model, simd, base, top)


def with_tdp(processors: Processors, tdp: dict[int, float]) -> Processors:
    """The same processors with the power limits of their packages."""
    return replace(processors, tdp=dict(tdp))


def _online(tree: Tree) -> tuple[tuple[int, ...], str]:
    listed = cpu_list(tree.text(f"{CPUS}/online"))
    if listed:
        return listed, f"{CPUS}/online"
    folders = tuple(number for name in tree.names(CPUS) if (number := numbered(name, "cpu")) is not None)
    if folders:
        return folders, f"{CPUS}/cpu*"
    text = tree.text(CPUINFO) or ""
    numbers = {int(n) for n in re.findall(r"(?m)^processor\s*:\s*([0-9]{1,6})\s*$", text)}
    return tuple(sorted(numbers)), CPUINFO


def _cpuinfo(tree: Tree) -> list[dict[str, str]]:
    records = []
    for block in re.split(r"\n\s*\n", tree.text(CPUINFO) or "")[:65_536]:
        record = {key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in block.splitlines()) if colon}
        if record:
            records.append(record)
    return records


def _cores(tree: Tree, online: tuple[int, ...], records: list[dict[str, str]]) -> tuple[tuple[Core, ...], str]:
    known = set(online)
    place: dict[int, tuple[int, int]] = {}
    together: dict[tuple[int, int], list[int]] = defaultdict(list)
    for record in records:
        number, package, core = (_digits(record.get(key)) for key in ("processor", "physical id", "core id"))
        if number is not None:
            place[number] = (package or 0, core if core is not None else number)
            together[place[number]].append(number)
    cores: list[Core] = []
    taken: set[int] = set()
    source = CPUINFO
    for cpu in online:
        if cpu in taken:
            continue
        folder = f"{CPUS}/cpu{cpu}/topology"
        siblings = cpu_list(tree.text(f"{folder}/core_cpus_list")) or cpu_list(tree.text(f"{folder}/thread_siblings_list"))
        package = tree.number(f"{folder}/physical_package_id")
        if siblings is not None or package is not None:
            source = f"{CPUS}/cpu*/topology"
        if siblings is None:
            siblings = tuple(together[place[cpu]]) if cpu in place else (cpu,)
        if package is None:
            package = place.get(cpu, (0, 0))[0]
        # Hypervisors leave lists that do not name the CPU itself, or name all CPUs as one core, and write −1 for an unknown number.
        believed = cpu in siblings and len(siblings) <= MOST_THREADS
        members = sorted(known.intersection(siblings) - taken) if believed else [cpu]
        taken.update(members)
        cores.append(Core(max(package, 0), tuple(members)))
    return tuple(cores), source


def _caches(tree: Tree, cores: tuple[Core, ...]) -> tuple[Cache, ...]:
    found: list[Cache] = []
    covered: dict[str, set[int]] = defaultdict(set)
    for core in cores:
        cpu = core.cpus[0]
        folder = f"{CPUS}/cpu{cpu}/cache"
        for index in tree.names(folder):
            if numbered(index, "index") is None or cpu in covered[index]:
                continue
            if tree.text(f"{folder}/{index}/type") not in ("Data", "Unified"):
                continue
            level, size = tree.number(f"{folder}/{index}/level"), cache_size(tree.text(f"{folder}/{index}/size"))
            shared = cpu_list(tree.text(f"{folder}/{index}/shared_cpu_list")) or core.cpus
            covered[index].update(shared)
            if level is not None and 1 <= level <= 5 and size:
                found.append(Cache(level, size, frozenset(shared)))
    return tuple(found)


def cache_size(text: str | None) -> int | None:
    """The bytes of a size such as "48K", "1024K" or "32M", as sysfs writes them; None for anything else."""
    match = re.fullmatch(r"([0-9]{1,9})([KMG]?)", text or "")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]] or None if match else None


def model_name(text: str) -> str:
    """The name of a processor without trademark signs and double blanks: "Intel Xeon Platinum 8480C"."""
    return label(re.sub(r"\s+", " ", re.sub(r"\((R|TM|C)\)", "", text, flags=re.IGNORECASE)))


def _digits(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 7 else None


def _model(tree: Tree, records: list[dict[str, str]]) -> tuple[str | None, str]:
    for record in records:
        for key in ("model name", "cpu model", "cpu", "uarch", "machine"):
            if record.get(key) and not record[key].isdecimal():
                return model_name(record[key]), CPUINFO
        implementer, part = _hexadecimal(record.get("CPU implementer")), _hexadecimal(record.get("CPU part"))
        if implementer is not None and part is not None:
            maker = ARM_IMPLEMENTERS.get(implementer, f"implementer {implementer:#x}")
            name = ARM_PARTS.get((implementer, part))
            return name or f"{maker} part {part:#x}", CPUINFO
    for base in ("/proc/device-tree", "/sys/firmware/devicetree/base"):
        for name in tree.names(f"{base}/cpus"):
            compatible = tree.text(f"{base}/cpus/{name}/compatible") if name.startswith("cpu@") else None
            if compatible:
                return label(compatible.split("\0")[0]), f"{base}/cpus/{name}/compatible"
    return None, CPUINFO


def _hexadecimal(text: str | None) -> int | None:
    return int(text, 16) if text and re.fullmatch(r"0x[0-9a-fA-F]{1,8}", text) else None


def _simd(records: list[dict[str, str]]) -> str | None:
    for record in records:
        flags = set((record.get("flags") or record.get("Features") or "").split())
        for flag, name in SIMD:
            if flag in flags:
                return name
    return None


def _base_clock(tree: Tree, cpu: int, model: str | None) -> tuple[float | None, str]:
    path = f"{CPUS}/cpu{cpu}/cpufreq/base_frequency"
    kilohertz = tree.number(path)
    if kilohertz and kilohertz > 0:
        return kilohertz * 1e3, path
    path = f"{CPUS}/cpu{cpu}/acpi_cppc/nominal_freq"
    megahertz = tree.number(path)
    if megahertz and megahertz > 0:
        return megahertz * 1e6, path
    named = re.search(r"@ ([0-9]{1,2}\.[0-9]{1,3})GHz", model or "")
    return (float(round(float(named[1]) * 1e9)), "the model's name in /proc/cpuinfo") if named and float(named[1]) > 0 else (None, "")
