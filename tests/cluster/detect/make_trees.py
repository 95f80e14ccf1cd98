"""Writes the eight copied /sys and /proc trees that the tests of detection read, one small archive a machine.

Each machine is a function that says what the kernel shows there: the files that detection asks for, and a few traps beside them.
`python make_trees.py` writes all archives into `trees/`; the same content always gives the same bytes.
"""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).parent / "trees"
MOST_BYTES = 200 << 10
GIB = 1 << 30

X86_FLAGS = "fpu vme de pse tsc msr pae cx8 apic sep cmov mmx fxsr sse sse2 ht syscall nx rdtscp lm constant_tsc cpuid fma sse4_2 avx avx2"


class Machine(dict[str, bytes]):
    """The files of one machine by path; a value that begins with `LINK` is a symbolic link."""

    LINK = b"\0link:"

    def put(self, path: str, content: str | int | bytes) -> None:
        """A file; text gets the newline that the kernel writes."""
        self[path.lstrip("/")] = content if isinstance(content, bytes) else f"{content}\n".encode()

    def puts(self, folder: str, **files: str | int | bytes) -> None:
        """Several files of one folder."""
        for name, content in files.items():
            self.put(f"{folder}/{name}", content)

    def link(self, path: str, target: str) -> None:
        """A relative symbolic link from one place of the tree to another."""
        up = "../" * path.strip("/").count("/")
        self[path.lstrip("/")] = self.LINK + (up + target.lstrip("/")).encode()

    def archive(self) -> bytes:
        """The tree as a compressed tar file."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for path in sorted(self):
                info = tarfile.TarInfo(path)
                content = self[path]
                if content.startswith(self.LINK):
                    info.type, info.linkname = tarfile.SYMTYPE, content[len(self.LINK) :].decode()
                    tar.addfile(info)
                else:
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
        return lzma.compress(out.getvalue(), preset=9)


def ranges(numbers: Sequence[int]) -> str:
    """Numbers as the kernel lists them: 0-3,8."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def processors(
    machine: Machine,
    packages: int,
    cores: int,
    threads: int,
    caches: Sequence[tuple[int, str, str, int]],
    package_ids: Sequence[int] | None = None,
) -> dict[int, tuple[int, int]]:
    """CPU folders; second hardware threads are numbered after all first ones. A cache is (level, type, size, cores that share it).

    Gives the package and core of every CPU.
    """
    total = packages * cores
    place = {t * total + p * cores + c: (p, c) for t in range(threads) for p in range(packages) for c in range(cores)}
    machine.put("/sys/devices/system/cpu/online", ranges(list(place)))
    machine.put("/sys/devices/system/cpu/present", ranges(list(place)))
    machine.put("/sys/devices/system/cpu/possible", ranges(list(place)))
    for cpu, (package, core) in place.items():
        folder = f"/sys/devices/system/cpu/cpu{cpu}"
        siblings = ranges([other for other, where in place.items() if where == (package, core)])
        machine.puts(
            f"{folder}/topology",
            physical_package_id=(package_ids or range(packages))[package],
            core_id=core,
            die_id=0,
            core_cpus_list=siblings,
            thread_siblings_list=siblings,
        )
        for index, (level, kind, size, sharing) in enumerate(caches):
            shared = [other for other, (p, c) in place.items() if p == package and c // sharing == core // sharing]
            machine.puts(f"{folder}/cache/index{index}", level=level, type=kind, size=size, shared_cpu_list=ranges(shared))
    return place


def cpuinfo(machine: Machine, place: dict[int, tuple[int, int]], model: str, flags: str) -> None:
    """/proc/cpuinfo as x86 writes it."""
    blocks = [
        f"processor\t: {cpu}\nvendor_id\t: x\nmodel name\t: {model}\nphysical id\t: {p}\ncore id\t\t: {c}\nflags\t\t: {flags}\n"
        for cpu, (p, c) in sorted(place.items())
    ]
    machine.put("/proc/cpuinfo", "\n".join(blocks))


def arm_cpuinfo(machine: Machine, place: dict[int, tuple[int, int]], part: str, features: str) -> None:
    """/proc/cpuinfo as Arm writes it: numbers, no names."""
    blocks = [
        f"processor\t: {cpu}\nBogoMIPS\t: 2000.00\nFeatures\t: {features}\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
        f"CPU variant\t: 0x0\nCPU part\t: {part}\nCPU revision\t: 1\n"
        for cpu in sorted(place)
    ]
    machine.put("/proc/cpuinfo", "\n".join(blocks))


def numa(machine: Machine, domains: Sequence[tuple[str, int]], distance: Callable[[int, int], int]) -> None:
    """NUMA domains as (list of CPUs, kB of memory)."""
    for index, (cpus, kilobytes) in enumerate(domains):
        folder = f"/sys/devices/system/node/node{index}"
        row = " ".join(str(distance(index, other)) for other in range(len(domains)))
        meminfo = f"Node {index} MemTotal:       {kilobytes} kB\nNode {index} MemFree:        1024 kB"
        machine.puts(folder, cpulist=cpus, distance=row, meminfo=meminfo)


def memory(machine: Machine, kilobytes: int, hugepages: int = 0) -> None:
    """/proc/meminfo."""
    lines = f"MemTotal:       {kilobytes} kB\nMemFree:        1024 kB\nHugePages_Total:   {hugepages}\nHugepagesize:       2048 kB"
    machine.put("/proc/meminfo", lines)


def pci(machine: Machine, address: str, vendor: int, device: int, kind: int, domain: int) -> str:
    """A PCI function; gives its folder."""
    folder = f"/sys/devices/pci{address[:7]}/{address}"
    machine.puts(folder, vendor=f"0x{vendor:04x}", device=f"0x{device:04x}", numa_node=domain)
    machine.put(f"{folder}/class", f"0x{kind:04x}00")
    machine.link(f"/sys/bus/pci/devices/{address}", folder)
    return folder


def interface(machine: Machine, name: str, folder: str, speed: int, mtu: int = 1500) -> None:
    """A network interface of a PCI function."""
    machine.puts(f"{folder}/net/{name}", speed=speed, mtu=mtu)
    machine.link(f"{folder}/net/{name}/device", folder)
    machine.link(f"/sys/class/net/{name}", f"{folder}/net/{name}")


def virtual_interface(machine: Machine, name: str) -> None:
    """An interface with nothing behind it."""
    machine.puts(f"/sys/devices/virtual/net/{name}", mtu=65536)
    machine.link(f"/sys/class/net/{name}", f"/sys/devices/virtual/net/{name}")


def adapter(machine: Machine, name: str, folder: str, rate: str) -> None:
    """A host channel adapter of a PCI function, with the interface that the same card shows."""
    machine.put(f"{folder}/infiniband/{name}/ports/1/rate", rate)
    machine.link(f"{folder}/infiniband/{name}/device", folder)
    machine.link(f"/sys/class/infiniband/{name}", f"{folder}/infiniband/{name}")
    interface(machine, f"ib{name[-1]}", folder, -1, 4092)


def drive(machine: Machine, name: str, size: int, rotational: int) -> None:
    """A block device of so many bytes."""
    machine.put(f"/sys/block/{name}/size", size // 512)
    machine.put(f"/sys/block/{name}/queue/rotational", rotational)


def dmi(machine: Machine, vendor: str, product: str, family: str = "To be filled by O.E.M.") -> None:
    """The machine's name as firmware gives it."""
    machine.puts("/sys/class/dmi/id", sys_vendor=vendor, product_name=product, product_family=family, board_name=product, chassis_type=23)


def process(machine: Machine, cgroup: str, cpus: str, mounts: str = "", environ: Sequence[str] = ()) -> None:
    """What /proc/self says: the control groups, the affinity, the mounts, the environment."""
    machine.put("/proc/self/cgroup", cgroup)
    machine.put("/proc/self/status", f"Name:\tpython3\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0")
    machine.put("/proc/self/mounts", mounts or "sysfs /sys sysfs rw 0 0\nproc /proc proc rw 0 0")
    if environ:
        machine.put("/proc/self/environ", "\0".join(environ).encode() + b"\0")


def epyc_nps4() -> Machine:
    """Two 64-core processors with four NUMA domains each, L3 shared by four cores, in a job that was given 64 CPUs and 128 GiB."""
    m = Machine()
    caches = [(1, "Data", "32K", 1), (1, "Instruction", "32K", 1), (2, "Unified", "512K", 1), (3, "Unified", "16384K", 4)]
    place = processors(m, 2, 64, 2, caches)
    cpuinfo(m, place, "AMD EPYC 7742 64-Core Processor", X86_FLAGS)
    for cpu in place:
        m.put(f"/sys/devices/system/cpu/cpu{cpu}/acpi_cppc/nominal_freq", 2250)
        m.put(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq", 3400000)
    numa(
        m,
        [(ranges([c for c, (p, core) in place.items() if p == d // 4 and core // 16 == d % 4]), 65_536 << 10) for d in range(8)],
        lambda a, b: 10 if a == b else 12 if a // 4 == b // 4 else 32,
    )
    memory(m, 524_288 << 10, 512)
    for k, (address, domain) in enumerate((("0000:21:00.0", 1), ("0000:a1:00.0", 5))):
        adapter(m, f"mlx5_{k}", pci(m, address, 0x15B3, 0x101B, 0x0207, domain), "100 Gb/sec (2X HDR)")
    pci(m, "0000:c2:00.0", 0x1A03, 0x2000, 0x0300, 6)  # the baseboard controller's VGA is no accelerator
    virtual_interface(m, "lo")
    for package in range(2):
        m.puts(f"/sys/class/powercap/intel-rapl:{package}", name=f"package-{package}", constraint_0_max_power_uw=225_000_000)
        m.puts(f"/sys/class/powercap/intel-rapl:{package}:0", name="core", energy_uj=1)
    dmi(m, "HPE", "HPE Cray EX425", "Cray EX")
    mounts = "sysfs /sys sysfs rw 0 0\n10.0.0.1@o2ib:/work /mnt/lustre lustre rw 0 0\n10.0.0.1@o2ib:/work /home lustre rw 0 0"
    job = ["SLURM_JOB_ID=42", "SLURM_JOB_PARTITION=standard", "SLURM_CPUS_ON_NODE=64", "SLURM_MEM_PER_NODE=131072", "HOME=/home/x"]
    process(m, "0::/system.slice/slurmstepd.scope/job_42/step_0", ranges(list(place)), mounts, job)
    m.put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory")
    m.put("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_42/cpuset.cpus.effective", "0-31,128-159")
    m.put("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_42/memory.max", "max")
    return m


def vm_cgroup_v1() -> Machine:
    """A virtual machine of two processors without DMI, in a container of the old kind with 1.5 processors and 4 GiB."""
    m = Machine()
    place = processors(m, 1, 2, 1, [(1, "Data", "48K", 1), (2, "Unified", "1280K", 1), (3, "Unified", "49152K", 2)])
    cpuinfo(m, place, "Intel(R) Xeon(R) Processor @ 2.80GHz", X86_FLAGS + " avx512f hypervisor")
    numa(m, [("0-1", 8_000_000)], lambda a, b: 10)
    memory(m, 8_000_000)
    folder = pci(m, "0000:00:03.0", 0x1AF4, 0x1041, 0x0200, -1)
    interface(m, "eth0", f"{folder}/virtio2", -1)
    virtual_interface(m, "lo")
    drive(m, "vda", 64 * GIB, 1)
    drive(m, "loop0", 1 * GIB, 1)
    drive(m, "zram0", 1 * GIB, 0)
    group = "/docker/0123abcd"
    process(
        m,
        f"9:cpuset:{group}\n4:memory:{group}\n1:cpu,cpuacct:{group}\n0::{group}",
        "0-1",
        "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
        "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0",
    )
    for folder, quota in (("", -1), (group, 150_000)):
        m.puts(f"/sys/fs/cgroup/cpu,cpuacct{folder}", **{"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": 100_000})
    m.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", 9_223_372_036_854_771_712)
    m.put(f"/sys/fs/cgroup/memory{group}/memory.limit_in_bytes", 4 * GIB)
    m.put(f"/sys/fs/cgroup/cpuset{group}/cpuset.cpus", "0-1")
    return m


def arm_cxl() -> Machine:
    """One Arm server processor of 64 cores with an odd package number, and a memory domain without processors behind CXL."""
    m = Machine()
    caches = [(1, "Data", "64K", 1), (1, "Instruction", "64K", 1), (2, "Unified", "1024K", 1), (3, "Unified", "65536K", 64)]
    place = processors(m, 1, 64, 1, caches, package_ids=[36])
    arm_cpuinfo(m, place, "0xd49", "fp asimd evtstrm aes sha1 crc32 atomics sve sve2 bf16 i8mm")
    for cpu in place:
        m.put(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq", 2_800_000)
    numa(m, [("0-63", 262_144 << 10), ("", 131_072 << 10)], lambda a, b: 10 if a == b else 24)
    for index, (rate, latency) in enumerate(((292_968, 110), (54_688, 260))):
        folder = f"/sys/devices/system/node/node{index}/access0/initiators"
        m.puts(folder, read_bandwidth=rate, write_bandwidth=rate // 2, read_latency=latency, write_latency=latency)
    memory(m, 393_216 << 10)
    interface(m, "enp1s0", pci(m, "0001:01:00.0", 0x15B3, 0x1021, 0x0200, 0), 200_000, 9000)
    drive(m, "nvme0n1", 1_920_383_410_176, 0)
    drive(m, "nvme0c0n1", 1_920_383_410_176, 0)
    dmi(m, "Ampere(R)", "Mt. Mitchell")
    process(m, "0::/user.slice", "0-63")
    m.put("/sys/fs/cgroup/cgroup.controllers", "cpu memory")
    return m


def h100_8() -> Machine:
    """The usual training node: 2 × 56 cores, eight H100 with a NIC beside each, drives of two sizes."""
    m = Machine()
    caches = [(1, "Data", "48K", 1), (1, "Instruction", "32K", 1), (2, "Unified", "2048K", 1), (3, "Unified", "107520K", 56)]
    place = processors(m, 2, 56, 2, caches)
    cpuinfo(m, place, "Intel(R) Xeon(R) Platinum 8480C", X86_FLAGS + " avx512f avx512bw amx_tile")
    for cpu in place:
        m.puts(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq", base_frequency=2_000_000, cpuinfo_max_freq=3_800_000)
    numa(
        m,
        [(ranges([c for c, (p, _) in place.items() if p == d]), 1_007 << 20) for d in range(2)],
        lambda a, b: 10 if a == b else 21,
    )
    memory(m, 2_014 << 20)
    buses = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
    for k, bus in enumerate(buses):
        pci(m, f"0000:{bus}:00.0", 0x10DE, 0x2330, 0x0302, k // 4)
        text = f"Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t {300 + k}\nBus Location: \t 0000:{bus}:00.0"
        m.put(f"/proc/driver/nvidia/gpus/0000:{bus}:00.0/information", text)
        nic = f"{int(bus, 16) - 3:02x}"
        adapter(m, f"mlx5_{k}", pci(m, f"0000:{nic}:00.0", 0x15B3, 0x1021, 0x0207, k // 4), "400 Gb/sec (4X NDR)")
    for k, bus in enumerate(("29", "aa")):
        interface(m, f"ens{k}", pci(m, f"0000:{bus}:00.0", 0x15B3, 0x101D, 0x0200, k), 100_000, 9000)
    pci(m, "0000:02:00.0", 0x1A03, 0x2000, 0x0300, 0)
    for k in range(2):
        drive(m, f"nvme{k}n1", 1_920_383_410_176, 0)
    for k in range(2, 10):
        drive(m, f"nvme{k}n1", 3_840_755_982_336, 0)
    drive(m, "md0", 1_920_383_410_176, 0)
    for package in range(2):
        m.puts(
            f"/sys/class/powercap/intel-rapl:{package}",
            name=f"package-{package}",
            energy_uj=1,
            constraint_0_max_power_uw=350_000_000,
        )
    m.puts("/sys/class/powercap/intel-rapl-mmio:0", name="package-0", constraint_0_max_power_uw=350_000_000)
    m.puts("/sys/class/hwmon/hwmon4", name="power_meter", power1_average=2_417_000_000)
    dmi(m, "NVIDIA", "DGXH100", "DGX")
    process(m, "0::/user.slice/user-1000.slice", ranges(list(place)))
    m.put("/sys/fs/cgroup/cgroup.controllers", "cpu memory")
    return m


def mi250x() -> Machine:
    """One 64-core processor in four NUMA domains, eight dies of four MI250X, a NIC beside each package."""
    m = Machine()
    caches = [(1, "Data", "32K", 1), (1, "Instruction", "32K", 1), (2, "Unified", "512K", 1), (3, "Unified", "32768K", 8)]
    place = processors(m, 1, 64, 2, caches)
    cpuinfo(m, place, "AMD EPYC 7A53 64-Core Processor", X86_FLAGS)
    numa(
        m,
        [(ranges([c for c, (_, core) in place.items() if core // 16 == d]), 131_072 << 10) for d in range(4)],
        lambda a, b: 10 if a == b else 12,
    )
    memory(m, 524_288 << 10)
    buses = ("c1", "c6", "c9", "ce", "d1", "d6", "d9", "de")
    near = (3, 3, 1, 1, 0, 0, 2, 2)
    top = "/sys/class/kfd/kfd/topology/nodes"
    for cpu in range(4):
        m.put(f"{top}/{cpu}/properties", "cpu_cores_count 32\nsimd_count 0\nmem_banks_count 1\nwave_front_size 0\nlocation_id 0")
    for k, bus in enumerate(buses):
        pci(m, f"0000:{bus}:00.0", 0x1002, 0x7408, 0x0380, near[k])
        folder = f"{top}/{4 + k}"
        m.put(
            f"{folder}/properties",
            f"cpu_cores_count 0\nsimd_count 440\nsimd_per_cu 4\nwave_front_size 64\nlds_size_in_kb 64\nvendor_id 4098\n"
            f"device_id 29704\nlocation_id {int(bus, 16) << 8}\ndomain 0\ngfx_target_version 90010",
        )
        m.put(f"{folder}/mem_banks/0/properties", "heap_type 1\nsize_in_bytes 68702699520\nflags 0\nwidth 4096\nmem_clk_max 1600")
        m.put(f"{folder}/io_links/0/properties", f"type 2\nnode_from {4 + k}\nnode_to {near[k]}\nmax_bandwidth 36000")
        # Four links inside a package, one or two between packages.
        for link, (other, rate) in enumerate(((k ^ 1, 200_000), ((k + 2) % 8, 50_000), ((k - 2) % 8, 50_000)), 1):
            properties = f"type 11\nnode_from {4 + k}\nnode_to {4 + other}\nweight 15\nmin_bandwidth 50000\nmax_bandwidth {rate}"
            m.put(f"{folder}/io_links/{link}/properties", properties)
    for k, bus in enumerate(("d0", "d5", "d8", "dd")):
        interface(m, f"hsn{k}", pci(m, f"0000:{bus}:00.0", 0x17DB, 0x0501, 0x0200, k), 200_000, 9000)
    for k in range(2):
        drive(m, f"nvme{k}n1", 1_920_383_410_176, 0)
    dmi(m, "HPE", "HPE CRAY EX235A")
    process(m, "0::/system.slice", ranges(list(place)))
    m.put("/sys/fs/cgroup/cgroup.controllers", "cpu memory")
    return m


def jetson() -> Machine:
    """A board: six Arm cores in two clusters, a GPU that shares their memory and is on no PCI bus, an eMMC."""
    m = Machine()
    caches = [(1, "Data", "64K", 1), (1, "Instruction", "64K", 1), (2, "Unified", "256K", 1), (3, "Unified", "2048K", 3)]
    place = processors(m, 1, 6, 1, caches, package_ids=[-1])
    arm_cpuinfo(m, place, "0xd42", "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp")
    for cpu in place:
        m.put(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq", 1_510_400)
    memory(m, 7_802_000)
    base = "/sys/firmware/devicetree/base"
    m.put(f"{base}/model", b"NVIDIA Jetson Orin Nano Developer Kit\0")
    m.put(f"{base}/compatible", b"nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234\0")
    m.put(f"{base}/bus@0/gpu@17000000/compatible", b"nvidia,ga10b\0")
    m.link("/proc/device-tree", base)
    drive(m, "mmcblk0", 62_537_072_640, 0)
    drive(m, "mmcblk0boot0", 4 << 20, 0)
    interface(m, "enP8p1s0", pci(m, "0008:01:00.0", 0x10EC, 0x8168, 0x0200, -1), 1000)
    virtual_interface(m, "docker0")
    process(m, "0::/user.slice", "0-5")
    m.put("/sys/fs/cgroup/cgroup.controllers", "cpu memory")
    return m


def wsl() -> Machine:
    """A laptop's Linux inside Windows: no DMI, no clocks, a GPU that only shows as /dev/dxg."""
    m = Machine()
    caches = [(1, "Data", "48K", 1), (1, "Instruction", "32K", 1), (2, "Unified", "1280K", 1), (3, "Unified", "24576K", 8)]
    place = processors(m, 1, 8, 2, caches)
    cpuinfo(m, place, "11th Gen Intel(R) Core(TM) i7-11800H @ 2.30GHz", X86_FLAGS + " avx512f hypervisor")
    numa(m, [("0-15", 16_000_000)], lambda a, b: 10)
    memory(m, 16_000_000)
    m.put("/proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2")
    m.put("/dev/dxg", "")
    folder = "/sys/devices/LNXSYSTM:00/VMBUS:00/0f0e"
    interface(m, "eth0", folder, 10_000)
    virtual_interface(m, "lo")
    drive(m, "sda", 388 << 20, 1)
    drive(m, "sdb", 1 << 40, 1)
    process(m, "0::/init.scope", "0-15", "none /sys/fs/cgroup cgroup2 rw 0 0\ndrvfs /mnt/c 9p rw 0 0")
    m.put("/sys/fs/cgroup/init.scope/memory.max", "max")
    m.put("/sys/fs/cgroup/init.scope/cpu.max", "max 100000")
    return m


def kubernetes_pod() -> Machine:
    """A pod with half a core and 512 MiB on a host of 2 × 32 cores that it can see."""
    m = Machine()
    caches = [(1, "Data", "48K", 1), (1, "Instruction", "32K", 1), (2, "Unified", "1280K", 1), (3, "Unified", "55296K", 32)]
    place = processors(m, 2, 32, 2, caches)
    cpuinfo(m, place, "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz", X86_FLAGS + " avx512f")
    numa(
        m,
        [(ranges([c for c, (p, _) in place.items() if p == d]), 131_072 << 10) for d in range(2)],
        lambda a, b: 10 if a == b else 20,
    )
    memory(m, 262_144 << 10)
    virtual_interface(m, "lo")
    virtual_interface(m, "eth0")
    drive(m, "sda", 480_103_981_056, 0)
    dmi(m, "Dell Inc.", "PowerEdge R650")
    m.put("/var/run/secrets/kubernetes.io/serviceaccount/namespace", "default")
    process(m, "0::/", ranges(list(place)), "cgroup /sys/fs/cgroup cgroup2 ro 0 0\n10.1.2.3:/export /data nfs4 rw 0 0")
    m.put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory")
    m.put("/sys/fs/cgroup/cpu.max", "50000 100000")
    m.put("/sys/fs/cgroup/memory.max", 512 << 20)
    m.put("/sys/fs/cgroup/cpuset.cpus.effective", ranges(list(place)))
    return m


MACHINES: dict[str, Callable[[], Machine]] = {
    "epyc-nps4": epyc_nps4,
    "vm-cgroup-v1": vm_cgroup_v1,
    "arm-cxl": arm_cxl,
    "h100-8": h100_8,
    "mi250x": mi250x,
    "jetson": jetson,
    "wsl": wsl,
    "kubernetes-pod": kubernetes_pod,
}


def write_all() -> None:
    """Writes every archive; one over 200 KiB is a mistake."""
    HERE.mkdir(exist_ok=True)
    for name, machine in MACHINES.items():
        data = machine().archive()
        if len(data) > MOST_BYTES:
            raise SystemExit(f"{name}: {len(data):,} bytes; at most {MOST_BYTES:,}")
        (HERE / f"{name}.tar.xz").write_bytes(data)


if __name__ == "__main__":
    write_all()
