"""Files of other tools: BookSim's anynet read back, OTF2 archives written by its own library, clusters, and a routing of one's own."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.network.routing import Dragonfly, Min, Routing, preset, read_messages, replay, simulate


def test_a_booksim_file_names_every_node_and_both_directions_of_every_link(tmp_path: Path) -> None:
    net = preset("df-72")
    file, config = net.write_booksim(tmp_path / "dragonfly.anynet")
    nodes, channels = {}, {}
    for number, line in enumerate(Path(file).read_text().splitlines()):
        words = line.split()
        assert words[:2] == ["router", str(number)]
        at = 2
        while at < len(words):
            kind, other = words[at], int(words[at + 1])
            at += 2
            cycles = 1
            if at < len(words) and words[at].isdigit():
                cycles, at = int(words[at]), at + 1
            if kind == "node":
                nodes[other] = number
            else:
                channels[number, other] = cycles
    assert [nodes[i] for i in range(72)] == net.node_router.tolist()
    expected = {}
    for a, b, latency in zip(net.a.tolist(), net.b.tolist(), net.latency.tolist()):
        expected[a, b] = expected[b, a] = latency
    assert channels == expected
    text = Path(config).read_text()
    for line in ("topology = anynet;", "network_file = dragonfly.anynet;", "routing_function = min;"):
        assert line in text


def test_parallel_links_and_bad_names_cannot_be_written_for_booksim(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="parallel links"):
        Dragonfly(2, 2, 2, 2).write_booksim(tmp_path / "net")
    with pytest.raises(InputError, match="without spaces"):
        preset("df-72").write_booksim(tmp_path / "my net")
    with pytest.raises(InputError, match=r"not ending in \.cfg"):
        preset("df-72").write_booksim(tmp_path / "net.cfg")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Three messages of four ranks; one in a communicator of ranks 1 and 3."""
    otf2 = pytest.importorskip("otf2")
    folder = tmp_path / "archive"
    with otf2.writer.open(str(folder), timer_resolution=10**6) as trace:
        make = trace.definitions
        root = make.system_tree_node("root")
        kind = otf2.LocationGroupType.PROCESS
        groups = [make.location_group(f"Rank {i}", location_group_type=kind, system_tree_parent=root) for i in range(4)]
        places = [make.location("Main", group=group) for group in groups]
        make.group("MPI", otf2.GroupType.COMM_LOCATIONS, otf2.Paradigm.MPI, members=places)
        world = make.comm("world", group=make.group("world", otf2.GroupType.COMM_GROUP, otf2.Paradigm.MPI, members=[0, 1, 2, 3]))
        odd = make.comm("odd", group=make.group("odd", otf2.GroupType.COMM_GROUP, otf2.Paradigm.MPI, members=[1, 3]))
        write = [trace.event_writer_from_location(place) for place in places]
        write[0].mpi_send(1000, 2, world, 7, 4096)
        write[1].mpi_isend(1002, 1, odd, 7, 64, 1)
        write[3].mpi_send(1005, 0, world, 7, 10)
    return folder


def test_an_otf2_archive_gives_ranks_bytes_and_nanoseconds(archive: Path) -> None:
    for path in (archive, archive / "traces.otf2"):
        read = read_messages(path, cycle_ns=10.0, flit_bytes=64)
        assert list(zip(read.source.tolist(), read.target.tolist(), read.flits.tolist())) == [(0, 2, 64), (1, 3, 1), (3, 0, 1)]
        assert read.pause.tolist() == [0, 200, 500], "a tick is a microsecond"
    assert replay(preset("df-72"), Min(), archive, cycle_ns=10.0).messages_left == 0


def test_a_damaged_otf2_archive_is_refused_in_one_line(archive: Path) -> None:
    for name, data in (("traces.otf2", b"\x00" * 100), ("traces.def", b"nothing"), ("traces/1.evt", b"\xff" * 50)):
        whole = (archive / name).read_bytes()
        (archive / name).write_bytes(data)
        with pytest.raises(InputError, match=r"cannot be read as OTF2|found no MPI_Send") as error:
            read_messages(archive)
        assert "\n" not in str(error.value)
        (archive / name).write_bytes(whole)
    (archive / "traces.otf2").unlink()
    with pytest.raises(InputError, match=r"found 0 files that end in \.otf2"):
        read_messages(archive)


def test_a_routing_of_ones_own_runs_like_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "eager_routing.py").write_text(
        "from dataclasses import dataclass\n"
        "from armillary.kernels import part\n"
        "from armillary.network.routing import Routing\n"
        "from armillary.network.routing.simulation.choices import drawn_detour\n"
        "from armillary.network.routing.simulation.paths import follow, go_minimal, queued, settled, undecided\n"
        "@part\n"
        "def decide(s, r, p):\n"
        "    if undecided(s, p):\n"
        "        done, channel = settled(s, r, p)\n"
        "        if not done:\n"
        "            if s.port[channel, 0] == r and queued(s, channel) > 4:\n"
        "                drawn_detour(s, r, p, channel)\n"
        "            else:\n"
        "                go_minimal(s, p, channel)\n"
        "    return follow(s, r, p)\n"
        "@dataclass(frozen=True)\n"
        "class Eager(Routing):\n"
        "    decide = decide\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    eager: Any = importlib.import_module("eager_routing").Eager()
    net = preset("df-72")
    ours, least = (simulate(net, routing, "adversarial:1", 0.3, cycles=2000, until_arrived=False) for routing in (eager, Min()))
    assert ours.accepted > 1.3 * least.accepted
    assert isinstance(eager, Routing)


def test_the_lines_of_the_documentation_run() -> None:
    from armillary.network.routing import Piar

    net = Dragonfly(p=2, a=4, h=2)
    r = simulate(net, Piar(theta=2), traffic="adversarial:1", load=0.3, cycles=2000, seed=1)
    assert len(r.channel_load) == net.channels.height
    assert np.isfinite([r.latency, r.accepted, r.hops]).all()
    graph: Any = net.to_networkx()
    assert graph.number_of_nodes() == 108
