"""The arena: files of both kinds, what a bad one says, the example from the command line, and the built-in cases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary import catalogue, compare
from armillary.errors import InputError
from armillary.scheduling.colocation import read_instances
from armillary.scheduling.colocation.arena import cases

LSCPU = "# CPU,Core,Socket,Node\n" + "".join(f"{cpu},{cpu % 4},0,0\n" for cpu in range(8))
HEADER = "instance,app,server,cpuset,cpu_cores,cpi,mpki,mem_gbps,rps\n"
TABLE = HEADER + "a-0,a,s0,0-1,0.8,0.9,5,1,100\nb-0,b,s0,\"2,4\",0.9,1.2,20,4,50\na-1,a,s1,0-1,0.7,0.9,5,1,90\n"


@pytest.fixture
def lscpu(tmp_path: Path) -> str:
    path = tmp_path / "lscpu.txt"
    path.write_text(LSCPU)
    return str(path)


def written(tmp_path: Path, text: str, name: str = "own.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_our_table_is_read_as_it_stands(tmp_path: Path, lscpu: str) -> None:
    found = read_instances(written(tmp_path, TABLE), topology=lscpu)
    assert found.names == ("a-0", "b-0", "a-1")
    assert found.server_names == ("s0", "s1")
    assert found.threads.tolist() == [2, 2, 2]
    m, rows = found.start[1] or (9, np.zeros(0))
    assert (m, rows.tolist()) == (0, [2, 4])
    assert found.readings[1, 2] == pytest.approx(4 / 0.9)


def test_threads_may_stand_for_cpusets_and_servers_for_those_of_the_file(tmp_path: Path, lscpu: str) -> None:
    text = "instance,app,cpu_cores,cpi,mpki,mem_gbps,rps,threads,net_mbps\nx,a,1,0.9,5,1,100,3,50\n"
    found = read_instances(written(tmp_path, text), topology=lscpu, servers=4)
    assert found.threads.tolist() == [3]
    assert len(found.fleet) == 4
    assert found.readings[0, 3] == 50
    with pytest.raises(InputError, match="found no server"):
        read_instances(written(tmp_path, text), topology=lscpu)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("0-1,0.8", "0-9,0.8", "found CPU 8; expected one of 0-7"), ('"2,4"', '"1,4"', "CPU 1 of s0, which a-0 has too"),
        ("90\n", "-5\n", "rps"), ("0-1,0.8", "1-0,0.8", "expected a list of CPUs"), ("a-1,a", "a-0,a", "a-0 again"),
        ("s1,0-1", ",0-1", "a cpuset without a server"), ("s1,0-1", "s1,", "found no cpuset"), ("0.7,0.9", "0,0.9", "cpu_cores"),
        ("0.7,0.9", "0.7,nan", "cpi"), (",rps", ",rpm", "rps"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_in_one_line(tmp_path: Path, lscpu: str, old: str, new: str, said: str) -> None:
    path = written(tmp_path, TABLE.replace(old, new, 1))
    with pytest.raises(InputError) as raised:
        catalogue.arena("scheduling/colocation").from_file(path, {"topology": lscpu})
    assert said in str(raised.value)
    assert "own.csv" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_the_command_line_says_it_in_one_line_with_status_2(tmp_path: Path, lscpu: str) -> None:
    bad = written(tmp_path, TABLE.replace("0-1,0.8", "0-9,0.8"))
    command = [sys.executable, "-m", "armillary.cli", "compare", "scheduling/colocation", "--work", str(bad), "--topology", lscpu]
    done = subprocess.run([*command, "--store", str(tmp_path / "s.db")], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert 'own.csv:2: column "cpuset": found CPU 8' in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


META = """c_1,m_1,0,app_1,started,400,400,1.5
c_2,m_1,0,app_2,started,200,200,1.5
c_2,m_2,50,app_2,started,300,300,1.5
c_3,m_2,0,app_1,stopped,400,400,1
c_4,m_2,9,app_1,started,400,400,1
"""
USAGE = """c_1,m_1,10,50,20,1.2,30.5,4,1.0,3.0,5
c_1,m_1,20,70,20,,10.5,6,1.0,3.0,101
c_2,m_2,60,10,20,0.8,,2,0.5,0.5,-1
c_9,m_2,60,10,20,0.8,1,2,0.5,0.5,3
"""


def test_alibabas_files(tmp_path: Path, lscpu: str) -> None:
    written(tmp_path, META, "container_meta.csv")
    written(tmp_path, USAGE, "container_usage.csv")
    for path in (tmp_path, tmp_path / "container_meta.csv"):
        found = read_instances(path, topology=lscpu)
        assert found.names == ("c_1", "c_2"), "c_3 was stopped, and nothing was read of c_4"
        assert found.skipped == 1
        assert found.threads.tolist() == [4, 3], "the last line of a container counts"
        assert found.cpu == pytest.approx([0.6 * 4, 0.1 * 3])
        assert found.readings[:, 0] == pytest.approx([1.2, 0.8])
        assert found.readings[:, 1] == pytest.approx([5, 2])
        # Nothing was read of c_2's bandwidth, so it gets the mean over all lines.
        assert found.readings[:, 2] == pytest.approx([0.2 + 8 * 0.205] * 2)
    written(tmp_path, META, "else.csv")
    assert read_instances(tmp_path / "else.csv", usage=str(tmp_path / "container_usage.csv"), topology=lscpu).names == ("c_1", "c_2")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("container_meta.csv", META.replace("started", "gone"), "no container that was started"),
        ("container_meta.csv", META.replace("400,400,1.5", "2000,400,1.5"), "found c_1 with 20 cores"),
        ("container_meta.csv", META.replace(",0,app_1", ",x,app_1", 1), "time_stamp"),
        ("container_usage.csv", USAGE.replace("c_", "d_"), "no line about any"), ("container_usage.csv", "c_1,m_1\n", "container_usage.csv"),
        ("container_usage.csv", USAGE.replace("1.2", "1e99"), "cpi"),
    ],
)  # fmt: skip
def test_faults_of_alibabas_files(tmp_path: Path, lscpu: str, name: str, text: str, said: str) -> None:
    written(tmp_path, META, "container_meta.csv")
    written(tmp_path, USAGE, "container_usage.csv")
    written(tmp_path, text, name)
    with pytest.raises(InputError, match=said):
        read_instances(tmp_path, topology=lscpu)


def test_a_folder_without_the_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"container_meta\.csv"):
        read_instances(tmp_path)


def test_the_example_compares_the_files_own_places_too(tmp_path: Path) -> None:
    arena = catalogue.arena("scheduling/colocation")
    path, options = arena.write_example(tmp_path)
    names = ["as-is", "least-loaded", "hestia"]
    found = compare("scheduling/colocation", work=path, options=options, techniques=names, store=tmp_path / "s.db")
    (case,) = found.cases
    stretch = found.on(case, "p95_stretch")
    assert set(stretch) == set(names)
    assert stretch["hestia"] <= stretch["as-is"]


def test_the_cases_are_enough_to_judge() -> None:
    drawn = list(cases("small"))
    kinds: dict[str, int] = {}
    for case in drawn:
        (kind,) = case.kinds
        kinds[kind] = kinds.get(kind, 0) + 1
    assert min(kinds.values()) >= 4
    assert {case.name for case in drawn} >= {"sc-heavy", "ss-heavy", "mixed", "calm", "fleet"}


def test_a_built_in_case_fills_three_quarters_of_the_threads() -> None:
    (case,) = (case for case in cases("tiny") if case.name == "mixed")
    work: Any = case.at(0, 0).workload
    assert work.threads.sum() == pytest.approx(0.75 * work.fleet.total_threads, abs=2)
    assert set(work.threads.tolist()) <= {2, 4, 6, 8}
    share = work.cpu / work.threads
    assert 0.35 <= share.min() <= share.max() <= 0.6
