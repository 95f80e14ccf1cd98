"""This machine as detection sees it and as the system's own tools do; they share no code with ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from armillary.cluster import Cluster, formats, here
from armillary.cluster.detect import describe

LSTOPO = shutil.which("lstopo-no-graphics") or shutil.which("lstopo")


def lscpu() -> dict[str, str]:
    if not shutil.which("lscpu"):
        pytest.skip("no lscpu here")
    done = subprocess.run(["lscpu", "-J"], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False)
    if done.returncode:
        pytest.skip("lscpu cannot describe this machine")

    def flat(entries: list[dict[str, Any]]) -> dict[str, str]:
        found = {}
        for entry in entries:
            found[entry["field"].rstrip(":")] = entry["data"]
            found.update(flat(entry.get("children", [])))
        return found

    return flat(json.loads(done.stdout)["lscpu"])


def test_processors_agree_with_lscpu() -> None:
    theirs = lscpu()
    cluster = here()
    sockets = cluster.groups[0].node.sockets
    assert cluster.threads == int(theirs["CPU(s)"])
    if theirs.get("Socket(s)", "-").isdecimal():
        assert sum(socket.count for socket in sockets) == int(theirs["Socket(s)"])
        assert sockets[0].cores == int(theirs["Core(s) per socket"])
        assert sockets[0].threads_per_core == int(theirs["Thread(s) per core"])
    if theirs.get("Model name", "-") != "-":
        assert sockets[0].model == " ".join(theirs["Model name"].replace("(R)", "").replace("(TM)", "").split())[:100]


def test_caches_agree_with_lscpu() -> None:
    theirs = lscpu()
    (group,) = describe()["group"]
    for socket in group["node"]["socket"]:
        for cache in socket.get("caches", []):
            text = theirs.get(f"L{cache['level']}d cache") or theirs.get(f"L{cache['level']} cache")
            if not text or "instance" not in text:
                continue
            amount, unit, instances = text.split()[0], text.split()[1], int(text.split("(")[1].split()[0])
            total = float(amount) * {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]
            ours = cache["size"] * socket["count"] * socket["cores"] // cache["shared_by"]
            assert ours == pytest.approx(total, rel=0.05)  # lscpu rounds
            assert instances == socket["count"] * socket["cores"] // cache["shared_by"]


def lstopo(*arguments: str) -> str:
    if LSTOPO is None:
        pytest.skip("no lstopo here")
    return subprocess.run([LSTOPO, *arguments, "--of", "xml"], capture_output=True, text=True, check=True).stdout


def test_processors_agree_with_hwloc(tmp_path: Path) -> None:
    file = tmp_path / "here.xml"
    file.write_text(lstopo())
    data = formats.read(file)
    assert data is not None
    theirs, ours = Cluster.from_dict(data), here()
    assert (theirs.cores, theirs.threads, theirs.devices("gpu")) == (ours.cores, ours.threads, ours.devices("gpu"))
    mine, other = ours.groups[0].node.sockets, theirs.groups[0].node.sockets
    assert [(s.count, s.cores, s.threads_per_core, s.numa, s.caches) for s in mine] == [
        (s.count, s.cores, s.threads_per_core, s.numa, s.caches) for s in other
    ]


@pytest.mark.parametrize(
    ("synthetic", "sockets", "numa", "cores", "threads", "shared_by"),
    [
        ("pack:2 numa:4 l3:4 l2:4 core:1 pu:2", 2, 4, 64, 2, 4),
        ("pack:1 l3:2 core:8 pu:1", 1, 1, 16, 1, 8),
        ("pack:4 numa:2 l3:1 core:6 pu:4", 4, 2, 12, 4, 6),
    ],
)
def test_synthetic_machines_of_hwloc_are_read(
    tmp_path: Path, synthetic: str, sockets: int, numa: int, cores: int, threads: int, shared_by: int
) -> None:
    file = tmp_path / "machine.xml"
    file.write_text(lstopo("-i", synthetic))
    data = formats.read(file)
    assert data is not None
    (socket,) = data["group"][0]["node"]["socket"]
    assert (socket["count"], socket.get("numa", 1), socket["cores"], socket["threads_per_core"]) == (sockets, numa, cores, threads)
    assert next(cache for cache in socket["caches"] if cache["level"] == 3)["shared_by"] == shared_by
