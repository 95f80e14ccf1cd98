"""The arena: its cases, files of the user's own, clusters of the user's own, and what the command line says of bad ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from armillary import catalogue, compare
from armillary.claim import Kind
from armillary.cli import app, main
from armillary.cluster import loads
from armillary.errors import InputError
from armillary.network.routing import Auto, Par, Piar, preset, simulate

ARENA = catalogue.arena("network/routing")
CLUSTER = """
armillary = 1
name = "mine"
[[group]]
name = "n"
count = 36
[[group.node.nic]]
count = 1
rate = "25 GB/s"
network = "net"
[network.net]
topology = "dragonfly"
groups = 5
switches_per_group = 4
endpoints_per_switch = 2
global = "palmtree"
rate = "25 GB/s"
latency = {nic = "1 us", switch = "25.6 ns", metre = "5 ns"}
length = {local = "0 m", global = "5.12 m"}
"""


@pytest.mark.parametrize("scale", ["tiny", "small", "large"])
def test_every_kind_that_claims_need_has_four_cases(scale: str) -> None:
    cases = ARENA.built_in(scale)
    network = "df-1056" if scale == "large" else "df-72"
    assert all(network in case.kinds for case in cases if "measured" not in case.kinds)
    if scale == "tiny":
        return
    for _, _, claim in ARENA.claims():
        for kind in claim.kinds:
            found = [case for case in cases if kind.takes(case.kinds)]
            assert len(found) >= 4, kind
            assert claim.scale == "large"
    assert sum(Kind("application").takes(case.kinds) for case in cases) == 12, "six skeletons, two placements"
    assert sum(Kind("misfit").takes(case.kinds) for case in cases) == 6


def test_the_default_cases_are_five_traffics_at_two_loads_and_a_halo() -> None:
    names = ARENA.telling_cases("small")
    assert names is not None
    assert len(names) == 11
    assert {case.parameters["load"] for case in ARENA.built_in("small") if case.name == "uniform-medium"} == {0.5}


def test_unsaturated_cases_are_carried_by_the_oblivious_routing_that_suits_them() -> None:
    from armillary.network.routing import Min, Valiant

    for case in ARENA.built_in("small"):
        if {"unsaturated"} <= case.kinds and case.name.endswith("medium"):
            work = case.at(0, 0).workload
            played = work.play(Min() if work.traffic == "uniform" else Valiant())
            assert played.accepted >= 0.95 * work.load, case.name


def test_misfits_are_what_they_say() -> None:
    cases = {case.name: case.at(0, 0) for case in ARENA.built_in("small")}
    net = cases["failed-uniform"].workload.net
    assert net.dead.sum() == round(0.2 * net.is_global.sum())
    assert cases["old-status-uniform"].workload.status_cycles == 100
    fresh, old = (simulate(preset("df-72"), Piar(), "uniform", 0.6, cycles=400, status_cycles=cycles) for cycles in (0, 100))
    assert [int(run.state.n[20]) >= 0 for run in (fresh, old)] == [True, True]
    assert fresh.packet_hops != old.packet_hops, "old status changes decisions"


def test_a_cluster_of_ones_own_takes_every_built_in_case(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(CLUSTER)
    cases = ARENA.built_in("small", loads(CLUSTER))
    work = cases[0].at(0, 0).workload
    assert (work.net.groups, work.net.nodes, work.net.routers) == (5, 36, 20)
    assert work.cycle_ns == pytest.approx(2.56)
    assert not any("df-72" in case.kinds for case in cases)
    result = compare("network/routing", techniques=["min", "piar"], cases=["adversarial:1-full", "crystal-router-block"], cluster=str(file))
    gain = result.ratio("adversarial:1-full", "accepted_load", "piar", "min")
    assert gain is not None
    assert gain > 1.2
    run = CliRunner().invoke(
        app,
        [
            "compare",
            "network/routing",
            "--cluster",
            str(file),
            "--techniques",
            "min,piar",
            "--cases",
            "uniform-medium",
            "--store",
            str(tmp_path / "s.db"),
        ],
    )
    assert run.exit_code == 0, run.output


def test_a_cluster_without_a_dragonfly_is_refused() -> None:
    case = ARENA.built_in(
        "small",
        loads(
            CLUSTER.replace('"dragonfly"', '"star"').replace(
                'groups = 5\nswitches_per_group = 4\nendpoints_per_switch = 2\nglobal = "palmtree"\n', "ports = 64\n"
            )
        ),
    )[0]
    with pytest.raises(InputError, match="found 0 dragonflies"):
        _ = case.at(0, 0).workload


def test_a_cluster_without_latencies_is_refused() -> None:
    text = CLUSTER.replace('latency = {nic = "1 us", switch = "25.6 ns", metre = "5 ns"}\n', "")
    with pytest.raises(InputError, match="the latency of its links is unknown"):
        _ = ARENA.built_in("small", loads(text))[0].at(0, 0).workload


EDGES = "router_a,group_a,router_b,group_b,latency,width\n0,0,1,0,4,1\n2,1,3,1,4,1\n4,2,5,2,4,1\n0,0,3,1,9,1\n2,1,5,2,9,1\n4,2,1,0,9,1\n"


def test_a_network_of_ones_own_is_compared_under_each_traffic_and_load(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text(EDGES)
    (tmp_path / "nodes.csv").write_text("node,router\n" + "".join(f"{i},{i // 2}\n" for i in range(12)))
    options = {"nodes": str(tmp_path / "nodes.csv"), "traffic": "uniform,adversarial:1", "load": "0.2,0.9", "cycles": "900"}
    cases = ARENA.from_file(tmp_path / "edges.csv", options)
    assert [case.name for case in cases] == [f"edges.csv:{t}-{x}" for t in ("uniform", "adversarial:1") for x in ("0.2", "0.9")]
    for technique in ("min", "auto"):
        values = ARENA.execute(ARENA.make(technique), cases[3].at(0, 0)).values  # type: ignore[union-attr]
        assert 0.2 < values["accepted_load"] <= 0.9
        assert np.isfinite(values["packet_latency"])


def test_messages_run_on_a_network_of_ones_own(tmp_path: Path) -> None:
    path, _ = ARENA.write_example(tmp_path)
    (tmp_path / "mine.toml").write_text(CLUSTER)
    for network in ("df-72", "2,4,2", str(tmp_path / "mine.toml")):
        if network.endswith("toml"):
            path.write_text("time_ns,source,destination,bytes\n0,0,35,64\n")
        (case,) = ARENA.from_file(path, {"network": network})
        outcome: Any = ARENA.execute(ARENA.make("piar"), case.at(0, 0))
        assert outcome.values["message_completion"] > 0


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (EDGES, ["--traffic", "adversarial:7"], "from 0 to 2"), (EDGES, ["--load", "1.5"], "--load"), (EDGES, ["--nodes", "none.csv"], "none.csv"),
        (EDGES.replace("4,2,1,0,9,1\n", "").replace("2,1,5,2,9,1\n", ""), [], "not connected"),
        ("time_ns,source,destination,bytes\n0,0,99,1\n", [], "found destination 99; expected a node from 0 to 71"),
        ("time_ns,source,destination,bytes\n9,0,1,1\n8,0,1,1\n", [], "own.csv:3"),
        ("time_ns,source,destination,bytes\n9,0,1,1\n", ["--network", "9,9,9,99"], "expected 1 to a·h + 1"),
        ("time_ns,source,destination,bytes\n0,0,1,1\n50,0,1,1\n", ["--max-cycles", "10"], "max_cycles"),
        ("time_ns,source,destination,bytes\n0,0,1,1\n", ["--nodes", "own.csv"], "without a table of edges"),
        ("a,b\n1,2\n", [], "time_ns"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_line_and_status_2(
    tmp_path: Path, monkeypatch: Any, capsys: Any, text: str, options: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.csv").write_text(text)
    monkeypatch.setattr("sys.argv", ["armillary", "compare", "network/routing", "--work", "own.csv", "--store", "s.db", *options])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr()
    assert end.value.code == 2, said
    assert message in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert said.out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.csv"]


def test_auto_is_hardly_worse_than_the_best_of_the_three_and_says_what_it_used() -> None:
    net = preset("df-72")
    for traffic in ("uniform", "adversarial:1"):
        runs = [simulate(net, routing, traffic, 1.0, cycles=6000, until_arrived=False) for routing in (Auto(), Piar(), Par())]
        assert runs[0].accepted >= 0.95 * max(run.accepted for run in runs[1:]), traffic
        used = Auto().used(runs[0].state)
        assert sum(used.values()) == 6000 // 400
        assert used["min"] == 0 or traffic == "uniform", "minimal routing is not tried where most packets go around"
