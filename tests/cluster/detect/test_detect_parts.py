"""The small readers of detection, by hand and by property, and trees that are odd on purpose."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import make_trees
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.cluster import Cluster
from armillary.cluster.detect import describe
from armillary.cluster.detect.cpus import Cache, Core, Processors, cache_size, read_processors
from armillary.cluster.detect.limits import usable
from armillary.cluster.detect.links import pair_tables
from armillary.cluster.detect.nvml import read_nvml
from armillary.cluster.detect.power import read_power
from armillary.cluster.detect.sockets import sockets
from armillary.cluster.detect.tree import Facts, Tree, cpu_list, natural, numbered, whole


def tree(root: Path, files: dict[str, str | bytes]) -> Tree:
    for path, content in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Tree(root)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0", (0,)),
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("0-7:2/4", (0, 1, 4, 5)),
        ("3,1", (1, 3)),
        ("", None),
        (None, None),
        ("5-3", None),
        ("0-999999999", None),
        ("0-3,", None),
        ("٣", None),
        ("a", None),
    ],
)
def test_cpu_lists(text: str | None, numbers: tuple[int, ...] | None) -> None:
    assert cpu_list(text) == numbers


@given(st.sets(st.integers(0, 5000), min_size=1, max_size=200))
def test_a_written_list_is_read_back(numbers: set[int]) -> None:
    assert cpu_list(make_trees.ranges(list(numbers))) == tuple(sorted(numbers))


@given(st.text(max_size=30))
def test_any_text_is_a_number_or_nothing(text: str) -> None:
    assert whole(text) is None or isinstance(whole(text), int)
    assert cpu_list(text) is None or isinstance(cpu_list(text), tuple)
    assert cache_size(text) is None or isinstance(cache_size(text), int)
    assert isinstance(natural(text), list)
    assert numbered("cpu" + text, "cpu") is None or text.isdecimal()


def test_sizes_of_caches() -> None:
    assert [cache_size(t) for t in ("48K", "32M", "512", "1G", "0K", "48KB", "")] == [
        49152,
        32 << 20,
        512,
        1 << 30,
        None,
        None,
        None,
    ]


def test_natural_order_puts_2_before_10() -> None:
    assert sorted(["cpu10", "cpu2", "cpu"], key=natural) == ["cpu", "cpu2", "cpu10"]


def test_without_sysfs_the_topology_comes_from_cpuinfo(tmp_path: Path) -> None:
    blocks = [f"processor\t: {cpu}\nphysical id\t: {cpu // 4}\ncore id\t: {cpu % 4 // 2}\nmodel name\t: Test  CPU\n" for cpu in range(8)]
    facts = Facts()
    found = read_processors(tree(tmp_path, {"/proc/cpuinfo": "\n".join(blocks)}), facts)
    assert found.cores == (Core(0, (0, 1)), Core(0, (2, 3)), Core(1, (4, 5)), Core(1, (6, 7)))
    assert found.model == "Test CPU"
    assert sockets(found, [], facts) == [{"count": 2, "cores": 2, "threads_per_core": 2, "model": "Test CPU"}]


def test_a_package_of_two_kinds_of_core_keeps_its_cores_and_threads() -> None:
    cores = tuple(Core(0, (2 * k, 2 * k + 1)) for k in range(4)) + tuple(Core(0, (8 + k,)) for k in range(8))
    tables = sockets(Processors(cores), [], Facts())
    assert [(t["cores"], t["threads_per_core"]) for t in tables] == [(4, 2), (8, 1)]
    assert sum(t["cores"] * t["threads_per_core"] for t in tables) == 16


def test_domains_that_do_not_divide_the_cores_are_a_fact_not_a_claim() -> None:
    cores = tuple(Core(0, (k,)) for k in range(5))
    facts = Facts()
    (table,) = sockets(Processors(cores), [frozenset({0, 1}), frozenset({2, 3, 4})], facts)
    assert "numa" not in table
    assert facts.value("cpus.package0.numa") == 2


def test_a_level_of_which_only_some_caches_show_is_a_fact_not_a_claim() -> None:
    cores = tuple(Core(0, (k,)) for k in range(8))
    facts = Facts()
    (table,) = sockets(Processors(cores, (Cache(3, 1 << 20, frozenset(range(4))),)), [], facts)
    assert "caches" not in table
    assert facts.value("cpus.package0.l3") == 1 << 20


def test_siblings_that_overlap_give_every_thread_to_one_core(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"/sys/devices/system/cpu/online": "0-3"}
    for cpu, siblings in enumerate(("0-1", "0-1", "1-3", "3")):
        files[f"/sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"] = siblings
    assert read_processors(tree(tmp_path, files), Facts()).cores == (Core(0, (0, 1)), Core(0, (2, 3)))


def test_siblings_that_name_half_the_machine_as_one_core_are_not_believed(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"/sys/devices/system/cpu/online": "0-127"}
    for cpu in range(128):
        files[f"/sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"] = "0-127"
    assert len(read_processors(tree(tmp_path, files), Facts()).cores) == 128


def processors(count: int) -> Processors:
    return Processors(tuple(Core(0, (k,)) for k in range(count)))


def limits(root: Path, files: dict[str, str | bytes], cores: int = 8, memory: int | None = 1 << 40, **environ: str) -> dict[str, Any]:
    return usable(tree(root, files), processors(cores), memory, environ, Facts())


def test_the_tightest_group_along_the_path_counts(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "/proc/self/cgroup": "0::/a/b/c\n",
        "/sys/fs/cgroup/cgroup.controllers": "cpu memory",
        "/sys/fs/cgroup/a/cpu.max": "250000 100000",
        "/sys/fs/cgroup/a/b/cpu.max": "max 100000",
        "/sys/fs/cgroup/a/b/c/cpu.max": "400000 100000",
        "/sys/fs/cgroup/a/memory.max": "2147483648",
        "/sys/fs/cgroup/a/b/c/memory.max": "max",
    }
    assert limits(tmp_path, files) == {"cores": 2.5, "memory": 1 << 31}


def test_a_path_that_is_not_mounted_here_falls_back_to_the_mount(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "/proc/self/cgroup": "3:memory:/docker/xyz\n2:cpu,cpuacct:/../docker/xyz\n",
        "/proc/self/mounts": "c /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\nc /sys/fs/cgroup/memory cgroup rw,memory 0 0\n",
        "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000",
        "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "1048576",
    }
    assert limits(tmp_path, files) == {"cores": 0.5, "memory": 1 << 20}


@pytest.mark.parametrize("text", ["9223372036854771712", str(1 << 60), "max", "-1", "", "much"])
def test_no_limit_is_no_limit(tmp_path: Path, text: str) -> None:
    files: dict[str, str | bytes] = {
        "/proc/self/cgroup": "1:memory:/\n",
        "/proc/self/mounts": "c /sys/fs/cgroup/memory cgroup rw,memory 0 0\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": text,
    }
    assert limits(tmp_path, files, memory=None) == {"cores": 8.0}


@pytest.mark.parametrize("text", ["0 100000", "50000 0", "max", "max 100000", "50000", "-1 100000", "a b"])
def test_odd_quotas_grant_everything(tmp_path: Path, text: str) -> None:
    files: dict[str, str | bytes] = {
        "/proc/self/cgroup": "0::/",
        "/sys/fs/cgroup/cgroup.controllers": "",
        "/sys/fs/cgroup/cpu.max": text,
    }
    assert limits(tmp_path, files)["cores"] == 8.0


def test_affinity_cpusets_and_the_job_each_limit_the_cores(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "/proc/self/status": "Cpus_allowed_list:\t0-5\n",
        "/proc/self/cgroup": "0::/job\n",
        "/sys/fs/cgroup/cgroup.controllers": "cpuset",
        "/sys/fs/cgroup/job/cpuset.cpus.effective": "2-7",
    }
    assert limits(tmp_path, files)["cores"] == 4.0
    assert limits(tmp_path, files, SLURM_CPUS_ON_NODE="3", SLURM_MEM_PER_NODE="1024") == {"cores": 3.0, "memory": 1 << 30}


def test_the_dies_of_a_package_add_up_and_a_package_shown_twice_does_not(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {}
    for zone, name, watts in (
        ("a:0", "package-0-die-0", 100),
        ("a:1", "package-0-die-1", 150),
        ("a:2", "package-1", 90),
        ("b:0", "package-1", 90),
    ):
        files[f"/sys/class/powercap/{zone}/name"] = name
        files[f"/sys/class/powercap/{zone}/constraint_0_max_power_uw"] = str(watts * 10**6)
    assert read_power(tree(tmp_path, files), Facts()) == {0: 250.0, 1: 90.0}


def test_pairs_of_one_rate_that_join_everybody_are_all_to_all() -> None:
    rates = {(a, b): 25e9 for a in range(3) for b in range(a + 1, 3)}
    assert pair_tables("nvlink", rates, 3) == [{"kind": "nvlink", "topology": "all-to-all", "between": "device", "rate": 25e9}]
    del rates[0, 2]
    assert pair_tables("nvlink", rates, 3)[0]["pairs"] == [[0, 1], [1, 2]]
    assert pair_tables("nvlink", {}, 3) == []


def fake_nvml(gpus: int, switched: bool) -> ModuleType:
    """A management library with so many GPUs, wired in a ring where there is no switch."""
    library = ModuleType("pynvml")

    class NVMLError(Exception):
        pass

    def link_remote(handle: int, link: int) -> Any:
        if switched:
            raise NVMLError
        other = (handle + 1) % gpus if link % 2 == 0 else (handle - 1) % gpus
        return SimpleNamespace(busId=f"00000000:{16 + other:02X}:00.0".encode())

    answers: dict[str, Any] = {
        "NVMLError": NVMLError,
        "NVML_CLOCK_MEM": 2,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: gpus,
        "nvmlDeviceGetHandleByIndex": lambda k: k,
        "nvmlDeviceGetName": lambda h: b"NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetPciInfo": lambda h: SimpleNamespace(busId=f"00000000:{16 + h:02X}:00.0"),
        "nvmlDeviceGetMemoryInfo": lambda h: SimpleNamespace(total=85_520_809_984),
        "nvmlDeviceGetMaxClockInfo": lambda h, kind: 2619,
        "nvmlDeviceGetMemoryBusWidth": lambda h: 5120,
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda h: 700_000,
        "nvmlDeviceGetNumGpuCores": lambda h: 16_896,
        "nvmlDeviceGetCudaComputeCapability": lambda h: (9, 0),
        "nvmlDeviceGetNvLinkState": lambda h, link: 1 if link < (18 if switched else 4) else 0,
        "nvmlDeviceGetNvLinkVersion": lambda h, link: 4,
        "nvmlDeviceGetNvLinkRemoteDeviceType": lambda h, link: 2 if switched else 0,
        "nvmlDeviceGetNvLinkRemotePciInfo_v2": link_remote,
    }
    for name, answer in answers.items():
        setattr(library, name, answer)
    return library


def test_the_management_library_gives_peak_bandwidth_and_switched_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(8, switched=True))
    tables, links = read_nvml()
    assert list(tables) == [f"0000:{16 + k:02x}:00.0" for k in range(8)]
    table = tables["0000:10:00.0"]
    assert table["memory"]["bandwidth"]["value"] == pytest.approx(3.352e12, rel=1e-3)
    assert (table["memory"]["size"], table["power"], table["sms"]) == (85_520_809_984, {"peak": 700.0}, 132)
    assert links == [{"kind": "nvlink", "topology": "switch", "between": "device", "rate": 450e9}]


def test_links_between_gpus_without_a_switch_are_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(4, switched=False))
    _, (link,) = read_nvml()
    assert (link["topology"], link["rate"], link["pairs"]) == ("pairs", 50e9, [[0, 1], [0, 3], [1, 2], [2, 3]])


def test_a_library_that_fails_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    library = fake_nvml(8, switched=True)

    def fail() -> None:
        raise library.NVMLError

    library.nvmlInit = fail  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert read_nvml() == ({}, [])


SMALL = ("vm-cgroup-v1", "jetson", "wsl", "mi250x")
NOISE = (
    b"",
    b"\0",
    b"-1\n",
    b"999999999999999999999999\n",
    b"0-99999999\n",
    b"\xff\xfe\xfd",
    b"x" * 5000,
    b": : :\n\n:\n",
    b"0x\n",
    b"max\n",
    b"0\n",
    b"18446744073709551615\n",
)


def spoil(root: Path, machine: make_trees.Machine, random_: random.Random) -> None:
    """Writes a machine below `root` with a few of its files replaced by noise, cut short, left out, or made folders."""
    for path, content in machine.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        fate = random_.random()
        if content.startswith(make_trees.Machine.LINK):
            place.symlink_to(content[len(make_trees.Machine.LINK) :].decode())
        elif fate < 0.05:
            place.write_bytes(random_.choice(NOISE))
        elif fate < 0.08:
            place.write_bytes(content[: random_.randrange(len(content) + 1)])
        elif fate < 0.10:
            place.mkdir()
        elif fate < 0.12:
            place.write_bytes(bytes(random_.randrange(256) for _ in range(random_.randrange(50))))
        elif fate > 0.14:
            place.write_bytes(content)


@pytest.mark.parametrize("seed", range(24))
def test_a_spoiled_tree_never_raises_and_always_makes_a_cluster(tmp_path: Path, seed: int) -> None:
    machine = make_trees.MACHINES[SMALL[seed % len(SMALL)]]()
    for path in list(machine):  # a few processors are enough
        if (number := path.removeprefix("sys/devices/system/cpu/cpu").split("/")[0]).isdecimal() and int(number) > 9:
            del machine[path]
    spoil(tmp_path, machine, random.Random(seed))
    data = describe(tmp_path)
    assert Cluster.from_dict(data).nodes == 1


def test_a_pipe_and_a_loop_of_links_are_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    os.mkfifo(tmp_path / "proc" / "meminfo")
    (tmp_path / "proc" / "cpuinfo").symlink_to("cpuinfo")
    assert describe(tmp_path)["group"][0]["node"] == {}
