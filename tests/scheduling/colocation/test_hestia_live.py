"""Hestia by itself: placements for running servers, the Kubernetes scheduler, and the cgroup of a node."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from colocation_scenes import PRESET

from armillary.errors import InputError
from armillary.scheduling.colocation import Hestia, Instance, Live, Placement, Server, annotation, cpuset_line, judge, write_cpuset
from armillary.scheduling.contention import Topology, parse_cpu_list
from armillary.scheduling.kubernetes import Extender, ExtenderServer, Node, Pod

LOUD: dict[str, Any] = {"cpi": 0.45, "mpki": 1.0, "mem_gbps": 20.0, "net_mbps": 20.0}
FRAIL: dict[str, Any] = {"cpi": 1.9, "mpki": 28.0, "mem_gbps": 1.0, "net_mbps": 550.0}


def loud(i: int, cpuset: str) -> Instance:
    return Instance(f"loud-{i}", "loud", len(parse_cpu_list(cpuset)), cpu_cores=3.0, rps=100.0, cpuset=cpuset, **LOUD)


def frail(name: str = "new", cpuset: str = "") -> Instance:
    return Instance(name, "frail", 4, cpu_cores=2.0, rps=100.0, cpuset=cpuset, **FRAIL)


def servers() -> list[Server]:
    """One server whose cores are all taken by the loud, and one that is half empty."""
    full = tuple(loud(i, f"{4 * i}-{4 * i + 3}") for i in range(8))
    return [Server("busy", PRESET, full), Server("calm", PRESET, (frail("old", "0-3"),))]


def test_a_frail_instance_is_kept_away_from_the_loud() -> None:
    placement = Hestia.load().place(frail(), servers())
    assert placement.server == "calm"
    cpus = parse_cpu_list(placement.cpuset)
    assert len(cpus) == 4
    assert not {c % 32 for c in cpus} & {0, 1, 2, 3}, "beside nobody's siblings while cores are empty"
    assert any("shares no core" in said for said in placement.why)
    assert any("is expected to use" in said for said in placement.why)


def test_a_question_changes_nothing_and_a_start_does() -> None:
    live = Hestia.load(servers())
    first = live.place(frail())
    assert live.place(frail()) == first
    live.started(frail("one"), first)
    second = live.place(frail("two"))
    assert (second.server, second.cpuset) != (first.server, first.cpuset)
    live.stopped(first.server, "one")
    assert live.place(frail()).cpuset == first.cpuset
    # What was told step by step is what is told at once.
    live.started(frail("one"), first)
    again = Hestia.load(list(live.servers.values()))
    assert again.place(frail("two")).cpuset == live.place(frail("two")).cpuset


def test_hundreds_of_starts_fill_the_servers_without_a_thread_given_twice() -> None:
    topology = Topology.regular(2, 8, 2)
    live = Hestia.load([Server(f"s{m}", topology) for m in range(20)])
    for i in range(280):
        instance = Instance(f"i{i}", f"a{i % 3}", 2, cpi=0.6 + 0.3 * (i % 3), mpki=5.0 + 5 * (i % 3), mem_gbps=1.0)
        live.started(instance, live.place(instance))
    for server in live.servers.values():
        cpus = [c for i in server.instances for c in parse_cpu_list(i.cpuset)]
        assert len(cpus) == len(set(cpus)) <= 32
    assert sum(len(server.instances) for server in live.servers.values()) == 280
    with pytest.raises(InputError, match="free threads"):
        live.place(Instance("big", "a0", 32))


def test_scores_are_ordered_and_named() -> None:
    live = Hestia.load(servers())
    assert live.score("frail", "loud") > 2 * live.score("loud", "frail")
    assert live.score("frail", "loud", share="socket") > live.score("loud", "frail", share="socket")
    with pytest.raises(InputError, match=r'unknown application "flail" \(did you mean "frail"\?\)'):
        live.score("flail", "loud")
    with pytest.raises(InputError, match="unknown share"):
        live.score("frail", "loud", share="rack")  # type: ignore[arg-type]


def test_an_application_that_nobody_knows_needs_metrics() -> None:
    live = Hestia.load(servers())
    with pytest.raises(InputError, match="no metrics of the application stranger"):
        live.place(Instance("x", "stranger", 2))
    assert live.place(Instance("x", "stranger", 2, cpi=1.0, mpki=3.0, mem_gbps=0.5)).server in ("busy", "calm")
    assert live.place(Instance("x", "frail", 2)).cpuset, "a known one does not"


@pytest.mark.parametrize(
    ("instance", "said"),
    [
        (Instance("x", "frail", 0), "found 0 threads"), (Instance("x", "frail", 4, rps=-1.0), "found rps -1"),
        (Instance("x", "frail", 4, cpi=float("nan")), "found cpi nan"), (Instance("x", "frail", 5000), "found 5000 threads"),
    ],
)  # fmt: skip
def test_impossible_instances(instance: Instance, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Hestia.load(servers()).place(instance)


def test_impossible_servers() -> None:
    with pytest.raises(InputError, match="busy: b: found CPU 99"):
        Hestia.load([Server("busy", PRESET, (frail("b", "0-2,99"),))]).place(frail())
    with pytest.raises(InputError, match=r"calm: two: .*not free"):
        Hestia.load([Server("calm", PRESET, (frail("one", "0-3"), frail("two", "3-6")))]).place(frail())
    with pytest.raises(InputError, match="found no server"):
        Hestia.load().place(frail())
    with pytest.raises(InputError, match="unknown server"):
        Hestia.load(servers()).started(frail(), Placement("else", "0-3"))


def pod(app: str = "frail", cpu: str = "4", **annotations: str) -> dict[str, Any]:
    marks = {"armillary.dev/app": app} | {f"armillary.dev/{k.replace('_', '-')}": v for k, v in annotations.items()}
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return {"metadata": {"name": "p", "annotations": marks}, "spec": {"containers": containers}}


def test_the_scheduler_of_kubernetes_asks_over_http() -> None:
    tiny = Server("tiny", Topology.regular(1, 1, 2))
    extender = Extender(judge(Hestia.load([*servers(), tiny])))
    with ExtenderServer(extender) as server:

        def ask(verb: str, document: dict[str, Any]) -> Any:
            request = urllib.request.Request(f"{server.url}/{verb}", json.dumps(document).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.load(answer)

        asked = {"Pod": pod(), "NodeNames": ["busy", "calm", "tiny", "unknown"]}
        found = ask("filter", asked)
        assert found["NodeNames"] == ["busy", "calm", "unknown"]
        assert found["FailedNodes"] == {"tiny": "fewer than 4 free hardware threads"}
        ranks = {row["Host"]: row["Score"] for row in ask("prioritize", asked)}
        assert ranks["calm"] == 10
        assert ranks["calm"] > ranks["busy"]
        older = ask("filter", {"pod": pod(), "nodenames": ["calm"]})
        assert older["nodenames"] == ["calm"]
        bad = ask("filter", {"Pod": pod(cpi="high"), "NodeNames": ["calm"]})
        assert "expected a number" in bad["Error"]


def test_a_pod_without_an_application_is_left_to_others() -> None:
    found = judge(Hestia.load(servers()))(Pod("p", cpu=4.0), [Node("busy")])
    assert (found.refused, found.scores) == ({}, {})


def test_the_agent_of_a_node_writes_the_cpus(tmp_path: Path) -> None:
    placement = Placement("calm", "4-7")
    assert annotation(placement) == {"armillary/cpuset": "4-7"}
    assert cpuset_line(placement) == "4-7\n"
    (tmp_path / "cpuset.cpus").write_text("")
    write_cpuset(tmp_path, "32-35,0-3")
    assert (tmp_path / "cpuset.cpus").read_text() == "0-3,32-35\n"
    with pytest.raises(InputError, match="expected a list of CPUs"):
        write_cpuset(tmp_path, "0-3; rm")
    with pytest.raises(InputError, match="cgroup v2"):
        write_cpuset(tmp_path / "none", "0")


def test_placing_without_siblings_or_with_one_cpu() -> None:
    for topology in (Topology.regular(1, 4, 1), Topology.regular(1, 1, 1)):
        live = Live.of(Hestia(), Hestia().model(), [Server("s", topology)])
        found = live.place(Instance("x", "a", 1, cpi=1.0, mpki=3.0, mem_gbps=0.5))
        assert parse_cpu_list(found.cpuset)[0] in topology.cpu
        assert np.all(topology.members.shape[1] == 1)
