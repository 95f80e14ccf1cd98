"""GreenK8s behind the Kubernetes scheduler, and what it writes for Kubernetes."""

from __future__ import annotations

import http.client
import json
import re
import urllib.parse
from typing import Any

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.scheduling.green import GreenK8s, Power, resized, suspended_job
from armillary.scheduling.green.sockets.files import FedScheduler, powers_of
from armillary.scheduling.green.sockets.scheduler import TYPE_LABEL
from armillary.scheduling.kubernetes import Extender, ExtenderServer, Node, Pod

MORNING = 1718953200.0  # 2024-06-21 07:00 UTC
NODES = [
    {"metadata": {"name": name, "labels": {TYPE_LABEL: kind}}, "status": {"allocatable": {"cpu": cpu, "memory": "64Gi"}}}
    for name, kind, cpu in (("s1", "small", "4"), ("l1", "large", "32"), ("l2", "large", "32"))
]  # fmt: skip


def pod(slack_h: float = 6.0, cpu: str = "2", name: str = "train", **meta: Any) -> dict:
    annotations = {"armillary.dev/duration-seconds": "3600", "armillary.dev/deadline-seconds": str(3600 * (slack_h + 1.1))}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "train"}, "annotations": annotations, **meta},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]},
    }  # fmt: skip


@pytest.fixture
def scheduler() -> Any:
    """At 51.5° N on a clear June morning, with panels of 1 kW at noon and a cluster that takes 650 W."""
    made = GreenK8s().scheduler(51.5, 0.0, powers=powers_of("k8s-20"), clock=lambda: MORNING)
    times = MORNING - 86400 * 2 + 900 * np.arange(2 * 96 + 1)
    made.observe_sun(times, 1000 * np.maximum(0.0, np.sin(np.pi * (times % 86400 / 3600 - 4) / 16)))
    made.observe_usage({"l1": 4.0}, cluster_w=650.0)
    return made


def test_a_pod_with_slack_waits_for_the_sun_and_one_without_is_placed(scheduler: Any) -> None:
    nodes = [Node.of(node) for node in NODES]
    later = scheduler.start(Pod.of(pod(6.0)), MORNING)
    assert MORNING < later <= MORNING + 6.1 * 3600
    assert scheduler.start(Pod.of(pod(0.0)), MORNING) == MORNING
    waits = scheduler.judge(Pod.of(pod(6.0)), nodes)
    assert set(waits.hopeless) == {"s1", "l1", "l2"}
    assert re.fullmatch(r"deferred until 2024-06-21T\d\d:\d\d:00Z", waits.hopeless["s1"])
    placed = scheduler.judge(Pod.of(pod(0.0)), nodes)
    assert not placed.hopeless
    assert not placed.refused
    assert max(placed.scores, key=placed.scores.get) == "l1"  # it is awake
    assert all(0 <= score <= 10 for score in placed.scores.values())
    # A pod that was submitted six hours ago has waited long enough.
    old = pod(6.0, creationTimestamp="2024-06-21T00:55:00Z")
    assert scheduler.start(Pod.of(old), MORNING) == MORNING


def test_usage_and_not_requests_decides_what_fits(scheduler: Any) -> None:
    crowd, node = Pod.of(pod(cpu="3", name="web")), Node.of(NODES[0])
    scheduler.observe_usage({"s1": 2.5})
    assert not scheduler.fits(crowd, node)
    for _ in range(10):
        scheduler.observe_pod(crowd, 0.9)
    assert scheduler.guess(crowd) == pytest.approx(0.9)
    assert scheduler.fits(crowd, node)
    assert Pod.of(resized(pod(cpu="3"), 0.9)).cpu == pytest.approx(0.9)


def test_the_extender_answers_over_http_with_metrics(scheduler: Any) -> None:
    with ExtenderServer(Extender(scheduler.judge, metrics=scheduler.metrics)) as server:
        address = urllib.parse.urlsplit(server.url)

        def asked(verb: str, document: dict | None = None) -> Any:
            link = http.client.HTTPConnection(str(address.hostname), address.port, timeout=20)
            method, body = ("GET", None) if document is None else ("POST", json.dumps(document))
            link.request(method, f"/{verb}", body, {"content-type": "application/json"})
            answer = link.getresponse()
            return answer.status, answer.getheader("content-type"), answer.read().decode()

        status, _, body = asked("filter", {"Pod": pod(6.0), "Nodes": {"items": NODES}})
        found = json.loads(body)
        assert status == 200
        assert found["Error"] == ""
        assert found["Nodes"]["items"] == []
        assert len(found["FailedAndUnresolvableNodes"]) == 3
        status, _, body = asked("filter", {"pod": pod(0.0), "nodes": {"items": NODES}})
        assert len(json.loads(body)["nodes"]["items"]) == 3
        _, _, body = asked("prioritize", {"Pod": pod(0.0), "Nodes": {"items": NODES}})
        scores = {row["Host"]: row["Score"] for row in json.loads(body)}
        assert max(scores, key=lambda name: scores[name]) == "l1"
        assert set(map(type, scores.values())) == {int}
        status, kind, body = asked("metrics")
        assert status == 200
        assert kind.startswith("text/plain; version=0.0.4")
        lines = [line for line in body.splitlines() if not line.startswith("#")]
        assert all(re.fullmatch(r'armillary_green_\w+(\{\w+="[^"]*"\})? -?[\d.e+-]+', line) for line in lines)
        assert "armillary_green_deferred_total 1" in lines
        assert 'armillary_green_node_usage_cores{node="l1"} 4' in lines


def test_files_feed_the_scheduler_and_are_read_again(tmp_path: Any) -> None:
    usage, sun = tmp_path / "usage.json", tmp_path / "sun.csv"

    def write(cores: str) -> None:
        row = {"metric": {"node": "l1"}, "value": [0, cores]}
        usage.write_text(json.dumps({"status": "success", "data": {"resultType": "vector", "result": [row]}}))

    write("3")
    sun.write_text("timestamp,watts\n2024-06-20T12:00Z,900\n2024-06-20T12:15Z,880\n")
    fed = FedScheduler(GreenK8s(), (51.5, 0.0), "k8s-20", sun, usage)
    fed.scheduler.clock = lambda: MORNING
    assert 'node="l1"} 3' in fed.metrics()
    write("12.5")
    assert 'node="l1"} 12.5' in fed.metrics()
    usage.write_text("gone")
    assert 'node="l1"} 12.5' in fed.metrics()
    with pytest.raises(InputError):
        FedScheduler(GreenK8s(), (51.5, 0.0), "k8s-20", sun, usage)
    with pytest.raises(InputError):
        GreenK8s().scheduler(95.0)
    with pytest.raises(InputError, match="rising order"):
        Power(100.0, 50.0)


def test_manifests_are_those_that_kubernetes_reads() -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"template": {"spec": pod()["spec"]}}}
    waits = suspended_job(job, MORNING + 3600)
    assert waits["spec"]["suspend"] is True
    assert "suspend" not in job["spec"]
    assert waits["metadata"]["annotations"] == {"armillary.dev/unsuspend-at": "2024-06-21T08:00:00Z"}
    with pytest.raises(InputError, match="Job"):
        suspended_job(pod(), 0.0)
    with pytest.raises(InputError, match="at most the request"):
        resized(pod(cpu="1"), 2.0)
    client = pytest.importorskip("kubernetes").client

    api = client.ApiClient()
    read = api.deserialize(json.dumps(waits), "V1Job", "application/json")
    assert read.spec.suspend is True
    read = api.deserialize(json.dumps(resized(pod(cpu="2"), 0.75)), "V1Pod", "application/json")
    assert read.spec.containers[0].resources.requests["cpu"] == "750m"
