"""TRACE behind other schedulers: Kubernetes over HTTP, and Nova's weigher."""

from __future__ import annotations

import json
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest
from vm_works import cloud, metrics

from armillary.errors import InputError
from armillary.scheduling.kubernetes import Extender, ExtenderServer, Node, Pod
from armillary.scheduling.vm import Trace, Weigher, judge
from armillary.scheduling.vm.recommender import Host
from armillary.scheduling.vm.sockets.extender import METRICS


def pod(name: str = "new", **changes) -> dict:
    own = {key: value for key, value in (metrics() | changes).items() if key not in ("vcpu", "memory_gb")}
    requests = {"requests": {"cpu": "4", "memory": "8G"}}
    return {
        "metadata": {"name": name, "annotations": {METRICS: json.dumps(own)}},
        "spec": {"containers": [{"name": "vm", "resources": requests}]},
    }  # fmt: skip


def asked(document: dict, nodes: list[str], *, lower: bool = False) -> dict:
    keys = ("pod", "nodenames") if lower else ("Pod", "NodeNames")
    return dict(zip(keys, (document, nodes)))


def post(url: str, body: dict) -> object:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


@pytest.mark.parametrize("lower", [False, True])
def test_the_scheduler_gets_scores_over_http(lower):
    hosts = cloud([12, 1, 6])
    with ExtenderServer(Extender(judge(Trace.load(), lambda: hosts))) as server:
        body = asked(pod(), ["h0", "h1", "h2"], lower=lower)
        found = post(f"{server.url}/prioritize", body)
        host, score = ("host", "score") if lower else ("Host", "Score")
        scores = {one[host]: one[score] for one in found}
        assert scores["h1"] == 10
        assert scores["h0"] == 0
        assert 0 < scores["h2"] < 10
        assert all(isinstance(value, int) for value in scores.values())
        kept = post(f"{server.url}/filter", body)
        assert kept["nodenames" if lower else "NodeNames"] == ["h0", "h1", "h2"]


def test_a_move_that_is_not_worth_it_is_refused_unless_nothing_is_left():
    crowd = cloud([20, 1, 19])
    decide = judge(Trace.load(budget=1.0), lambda: crowd)
    nodes = [Node(name) for name in ("h1", "h2", "h0")]
    found = decide(Pod.of(pod("h0-3")), nodes)
    assert list(found.refused) == ["h2"]
    alone = decide(Pod.of(pod("h1-0")), nodes)
    assert not alone.refused, "every move would be refused, so none is"
    assert set(alone.scores) == {"h0", "h2"}


def test_pods_and_nodes_that_are_unknown_get_no_opinion():
    decide = judge(Trace.load(), lambda: cloud([1, 2]))
    plain = pod()
    del plain["metadata"]["annotations"]
    assert not decide(Pod.of(plain), [Node("h0")]).scores
    assert not decide(Pod.of(pod()), [Node("elsewhere")]).scores


@pytest.mark.parametrize("text", ["[]", "{", '{"cpi": "x"}', '{"cpi": true}', '{"cpi": 1}'])
def test_bad_annotations_are_refused(text):
    document = pod()
    document["metadata"]["annotations"][METRICS] = text
    with pytest.raises(InputError):
        judge(Trace.load(), lambda: cloud([1]))(Pod.of(document), [Node("h0")])


def state(name: str, instances: list[str], vcpus: int = 64) -> SimpleNamespace:
    return SimpleNamespace(host=name, vcpus_total=vcpus, vcpus_used=0, total_usable_ram_mb=256_000, instances=dict.fromkeys(instances))


def test_nova_gets_the_predicted_quality():
    known = {f"u{i}": metrics() for i in range(20)}
    spec = SimpleNamespace(instance_uuid="new", flavor=SimpleNamespace(vcpus=4, memory_mb=8000))
    weigher = Weigher(Trace.load(), known.get, usual=metrics(), hour=lambda: 12.0)
    full, empty = state("a", [f"u{i}" for i in range(14)]), state("b", [])
    one, two = weigher.weigh(full, spec), weigher.weigh(empty, spec)
    assert 0 <= one < two <= 1
    assert weigher.weigh_all([full, empty], spec) == pytest.approx([one, two], abs=1e-6)
    hosts = [Host("a", cloud([14])[0].vms, {"sockets": 2, "cores": 32, "threads": 64, "memory_gb": 256.0})]
    assert np.isfinite(Trace.load().predict([], hosts)).all()
    blind = Weigher(Trace.load(), known.get)
    assert blind.weigh(full, spec) == 0.0, "nothing is known about the instance"
    assert 0 < blind.weigh(state("odd", ["u1", "stranger"], vcpus=13), SimpleNamespace(instance_uuid="u0", flavor=spec.flavor)) <= 1
    own = Weigher(Trace.load(), known.get, usual=metrics(), hardware=lambda name: {"sockets": 1, "cores": 8, "threads": 16})
    assert 0 < own.weigh(empty, spec) <= 1
