"""The scheduler extender: its protocol, its answers in the client's own models, and clients that overfill, hang or stall it."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("uvicorn")

from armillary.errors import InputError
from armillary.scheduling.kubernetes import (
    Extender,
    ExtenderServer,
    Judged,
    Limits,
    Node,
    Pod,
    extender_config,
    quantity,
    serve,
    whole_scores,
)

POD = {
    "metadata": {"name": "thumb-1", "namespace": "web", "uid": "u-1", "annotations": {"deadline": "3"}},
    "spec": {
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}, {"name": "b", "resources": {"limits": {"cpu": 1}}}],
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2", "memory": "64Mi"}}}],
        "overhead": {"cpu": "250m"},
    },
}


def node(name: str, cpu: str = "4") -> dict[str, Any]:
    """A node as an API server writes it."""
    return {
        "metadata": {"name": name, "labels": {"node.kubernetes.io/instance-type": "fast"}},
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"}, "nodeInfo": {"kubeletVersion": "v1.34.0", "architecture": "amd64",
                   "bootID": "b", "containerRuntimeVersion": "c", "kernelVersion": "6", "kubeProxyVersion": "", "machineID": "m",
                   "operatingSystem": "linux", "osImage": "d", "systemUUID": "s"}},
    }  # fmt: skip


def by_cores(pod: Pod, nodes: list[Node]) -> Judged:
    """Refuses nodes with fewer cores than the pod asks for, and prefers large ones."""
    return Judged(
        refused={n.name: f"has {n.cpu:g} cores" for n in nodes if 0 < n.cpu < pod.cpu},
        hopeless={n.name: "is closed" for n in nodes if n.cpu == 0},
        scores={n.name: n.cpu for n in nodes},
    )


@contextlib.contextmanager
def served(judge: Any = by_cores, limits: Limits | None = None, **how: Any) -> Iterator[ExtenderServer]:
    with ExtenderServer(Extender(judge, **how), limits=limits) as server:
        yield server


@pytest.fixture(scope="module")
def server() -> Iterator[ExtenderServer]:
    with served(limits=Limits(read_s=0.4)) as one:
        yield one


def post(server: ExtenderServer, path: str, document: Any, **headers: str) -> tuple[int, Any]:
    line = http.client.HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), timeout=20)
    with contextlib.closing(line):
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        line.request("POST", path, body, {"content-type": "application/json"} | headers)
        reply = line.getresponse()
        return reply.status, json.loads(reply.read() or b"null")


def send(server: ExtenderServer, data: bytes) -> bytes:
    """Sends raw bytes and returns all that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=20) as line:
        line.sendall(data)
        return b"".join(iter(lambda: line.recv(1 << 16), b""))


# Objects


@pytest.mark.parametrize(
    ("text", "value"), [("500m", 0.5), ("2", 2), (3, 3), ("1.5Gi", 1.5 * 2**30), ("1e3", 1000), ("1E3", 1000), ("2E", 2e18), ("100n", 1e-7), (".5", 0.5)]
)
def test_quantities(text: Any, value: float) -> None:
    assert quantity(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("text", ["", "1X", "-1", "1 Gi", "Gi", None, True, "1e999", math.nan, math.inf, "9" * 70, [], "1Kii"])
def test_what_is_no_quantity_is_refused(text: Any) -> None:
    with pytest.raises(InputError, match="expected a quantity"):
        quantity(text)


def test_a_pods_request_counts_init_containers_and_overhead() -> None:
    pod = Pod.of(POD)
    assert pod.cpu == 2.25, "the init container needs more than both containers together"
    assert pod.memory == 256 * 2**20
    assert (pod.name, pod.namespace, pod.annotations["deadline"]) == ("thumb-1", "web", "3")
    spec = POD["spec"] | {"initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": 1}}}]}
    assert Pod.of({"metadata": {"name": "x"}, "spec": spec}).cpu == 2.75, "a sidecar runs on beside the containers"


# The protocol


def test_nodes_come_back_as_objects_if_they_were_sent_as_objects() -> None:
    nodes = [node("a", "1"), node("b", "8"), node("c", "0")]
    answer = Extender(by_cores).filter({"Pod": POD, "Nodes": {"metadata": {"resourceVersion": "7"}, "items": nodes}})
    assert answer["Nodes"] == {"metadata": {"resourceVersion": "7"}, "items": [nodes[1]]}
    assert answer["FailedNodes"] == {"a": "has 1 cores"}
    assert answer["FailedAndUnresolvableNodes"] == {"c": "is closed"}
    assert answer["Error"] == ""
    assert "NodeNames" not in answer


def test_names_are_answered_from_the_nodes_that_are_known() -> None:
    extender = Extender(by_cores, nodes=[node("a", "1"), node("b", "8")])
    answer = extender.filter({"Pod": POD, "NodeNames": ["a", "b", "new"]})
    assert answer["NodeNames"] == ["b", "new"], "nothing speaks against a node that is not known"
    assert "Nodes" not in answer
    extender.forget("a")
    assert extender.filter({"Pod": POD, "NodeNames": ["a"]})["NodeNames"] == ["a"]


def test_a_node_is_read_again_when_its_version_changes() -> None:
    extender = Extender(by_cores)
    for version, cpu, kept in (("1", "1", []), ("1", "8", []), ("2", "8", ["a"]), ("", "1", []), ("", "8", ["a"])):
        sent = node("a", cpu)
        sent["metadata"]["resourceVersion"] = version
        answer = extender.filter({"Pod": POD, "Nodes": {"items": [sent]}})
        assert [item["metadata"]["name"] for item in answer["Nodes"]["items"]] == kept


def test_answers_are_sent_without_delay() -> None:
    with served() as one:
        assert one._listener.proto == socket.IPPROTO_TCP, "asyncio leaves Nagle's algorithm on otherwise"


def test_the_answer_has_the_case_that_was_asked_in() -> None:
    extender = Extender(by_cores, nodes=[node("a", "1"), node("b", "8")])
    assert set(extender.filter({"pod": POD, "nodenames": ["a", "b"]})) == {
        "nodenames", "failedNodes", "failedAndUnresolvableNodes", "error"}  # fmt: skip
    assert extender.prioritize({"pod": POD, "nodenames": ["a", "b"]}) == [{"host": "a", "score": 0}, {"host": "b", "score": 10}]
    assert extender.prioritize({"Pod": POD, "NodeNames": ["a", "b"]}) == [{"Host": "a", "Score": 0}, {"Host": "b", "Score": 10}]
    assert extender.filter({"POD": POD, "nodeNames": ["b"]})["NodeNames"] == ["b"]


def test_a_refusal_of_all_nodes_is_no_error() -> None:
    answer = Extender(by_cores).filter({"Pod": POD, "Nodes": {"items": [node("a", "1")]}})
    assert answer["Nodes"]["items"] == []
    assert answer["Error"] == ""


def test_a_broken_technique_is_an_error_and_refuses_nothing() -> None:
    def broken(pod: Pod, nodes: list[Node]) -> Judged:
        raise ZeroDivisionError("no\nidea")

    answer = Extender(broken).filter({"Pod": POD, "NodeNames": ["a"]})
    assert answer["Error"] == "ZeroDivisionError: no\\nidea"
    assert answer["FailedNodes"] == {}


@given(st.lists(st.floats() | st.integers(-5, 5).map(float), min_size=1, max_size=40))
@settings(max_examples=200, deadline=None)
def test_scores_are_whole_and_keep_the_order(scores: list[float]) -> None:
    whole = whole_scores(scores)
    assert all(type(score) is int and 0 <= score <= 10 for score in whole)
    real = [-math.inf if math.isnan(score) else score for score in scores]
    for a, x in zip(real, whole):
        for b, y in zip(real, whole):
            assert (a == b and x == y) or (a < b and x <= y) or (a > b and x >= y)
    distinct = len(set(real))
    assert len(set(whole)) == min(distinct, 11)


def test_scores_that_would_round_to_one_number_are_spread() -> None:
    assert whole_scores([1.0, 1.001, 1.002, 100.0]) == [0, 3, 7, 10]
    assert whole_scores([0.0, 7.5, 10.0]) == [0, 8, 10]
    assert whole_scores([4.0, 4.0]) == [0, 0]


def test_every_node_in_an_answer_is_a_node_of_the_kubernetes_client() -> None:
    client = pytest.importorskip("kubernetes.client")
    answer = Extender(by_cores).filter({"Pod": POD, "Nodes": {"items": [node(f"n{i}", "8") for i in range(1000)]}})
    listed = client.ApiClient().deserialize(json.dumps(answer["Nodes"]), "V1NodeList", "application/json")
    assert len(listed.items) == 1000
    assert listed.items[7].metadata.name == "n7"
    assert listed.items[7].status.allocatable["cpu"] == "8"
    assert listed.items[7].status.node_info.kubelet_version == "v1.34.0"


def test_the_configuration_names_what_a_scheduler_wants() -> None:
    config = extender_config("http://127.0.0.1:8888/", weight=5, node_cache_capable=False, http_timeout_s=2)
    assert config["apiVersion"] == "kubescheduler.config.k8s.io/v1"
    assert config["extenders"] == [{
        "urlPrefix": "http://127.0.0.1:8888", "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 5, "nodeCacheCapable": False,
        "ignorable": True, "httpTimeout": "2000ms", "enableHTTPS": False,
    }]  # fmt: skip
    for url in ("127.0.0.1:1", "ftp://a", "http://", "http://a?b"):
        with pytest.raises(InputError, match="expected http"):
            extender_config(url)
    with pytest.raises(InputError, match="weight 0"):
        extender_config("http://a", weight=0)


# The server


@pytest.mark.parametrize("many", [1, 1000])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("cached", [False, True])
def test_filter_and_prioritize_over_http(server: ExtenderServer, many: int, lower: bool, cached: bool) -> None:
    nodes = [node(f"n{i}", "8" if i % 3 else "1") for i in range(many)]
    server.extender.remember(nodes)
    args: dict[str, Any] = {"Pod": POD} | ({"NodeNames": [n["metadata"]["name"] for n in nodes]} if cached else {"Nodes": {"items": nodes}})
    args = {key.lower(): value for key, value in args.items()} if lower else args
    status, answer = post(server, "/filter", args)
    assert status == 200
    low = {key.lower(): value for key, value in answer.items()}
    kept = low["nodenames"] if cached else [n["metadata"]["name"] for n in low["nodes"]["items"]]
    assert kept == [f"n{i}" for i in range(many) if i % 3]
    assert set(low["failednodes"]) == {f"n{i}" for i in range(0, many, 3)}
    status, scores = post(server, "/prioritize", args)
    assert status == 200
    assert {tuple(score) for score in scores} == {("host", "score") if lower else ("Host", "Score")}
    assert [next(iter(score.values())) for score in scores] == [f"n{i}" for i in range(many)]


def test_over_http_a_node_is_read_again_only_if_its_version_changed() -> None:
    asked: list[float] = []

    def noting(pod: Pod, nodes: list[Node]) -> Judged:
        asked.append(nodes[0].cpu)
        return Judged()

    with served(noting) as one:
        for cpu, version in (("4", "1"), ("8", "1"), ("16", "2"), ("2", ""), ("1", "")):
            sent = node("a", cpu)
            sent["metadata"]["resourceVersion"] = version
            sent["spec"]["note"] = "ä \\u00e4 1e3"
            status, answer = post(one, "/filter", {"Pod": POD, "Nodes": {"kind": "NodeList", "items": [sent]}})
            assert status == 200
            assert answer["Nodes"] == {"kind": "NodeList", "items": [sent]}, "it goes back as it came, whatever is remembered"
    assert asked == [4, 4, 16, 2, 1]


@pytest.mark.parametrize(
    "item", [b"\xff", b'{"metadata": {"name": "a"}, "x": "\xff"}', b'{"metadata": {"name": "a"}, "x": tru}', b'{"metadata": {"name": "a"}, "x": }',
             b'{"metadata": {"name": 3}}', b'{"metadata": []}', b"3", b"null", b'{"metadata": {"name": "a"}, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"]
)  # fmt: skip
def test_a_damaged_node_is_found_although_nodes_are_not_read(server: ExtenderServer, item: bytes) -> None:
    status, answer = post(server, "/filter", b'{"Pod": {}, "Nodes": {"items": [' + item + b"]}}")
    assert status == 400
    assert "\n" not in answer["Error"]
    assert post(server, "/filter", {"Pod": POD, "NodeNames": ["a"]})[0] == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1, 2]", b'"x"', b"{}", b'{"Pod": {}}', b'{"Pod": NaN, "NodeNames": []}', b"[" * 200_000, b"\xff\xfe", b"9" * 9000,
             b'{"Pod": {"spec": {"containers": 3}}, "NodeNames": []}', b'{"Pod": {}, "NodeNames": [1]}', b'{"Pod": {}, "Nodes": [1]}',
             b'{"Pod": {}, "Nodes": {"items": [{"metadata": {}}]}}', b'{"Pod": {}, "Nodes": {"items": [{"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "x"}}}]}}']
)  # fmt: skip
@pytest.mark.parametrize("verb", ["/filter", "/prioritize"])
def test_what_is_no_question_is_answered_with_400(server: ExtenderServer, body: bytes, verb: str) -> None:
    status, answer = post(server, verb, body)
    assert status == 400
    assert "\n" not in answer["Error"]
    assert len(answer["Error"]) < 400


def test_other_paths_methods_and_kinds_are_refused(server: ExtenderServer) -> None:
    assert post(server, "/bind", {})[0] == 404
    assert post(server, "/filter", {}, **{"content-type": "text/plain"})[0] == 415
    assert post(server, "/filter", {}, origin="http://evil.example")[0] == 403
    assert b" 405 " in send(server, b"GET /filter HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").splitlines()[0]
    assert b" 200 " in send(server, b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").splitlines()[0]


def test_a_technique_that_fails_is_told_by_the_protocol() -> None:
    def broken(pod: Pod, nodes: list[Node]) -> Judged:
        raise RuntimeError("out of order")

    with served(broken) as one:
        status, answer = post(one, "/filter", {"Pod": POD, "NodeNames": ["a"]})
        assert (status, answer["Error"]) == (200, "RuntimeError: out of order")
        status, answer = post(one, "/prioritize", {"Pod": POD, "NodeNames": ["a"]})
        assert (status, answer["Error"]) == (500, "RuntimeError: out of order")


def test_a_technique_that_hangs_is_not_waited_for() -> None:
    go_on = threading.Event()

    def hanging(pod: Pod, nodes: list[Node]) -> Judged:
        go_on.wait(30)
        return Judged()

    with served(hanging, Limits(answer_s=0.2)) as one:
        assert post(one, "/filter", {"Pod": POD, "NodeNames": ["a"]})[0] == 504
        assert b" 200 " in send(one, b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").splitlines()[0]
        go_on.set()
        assert any(post(one, "/filter", {"Pod": POD, "NodeNames": ["a"]})[0] == 200 for _ in range(50))


def test_requests_do_not_pile_up_behind_a_technique_that_hangs() -> None:
    go_on = threading.Event()

    def hanging(pod: Pod, nodes: list[Node]) -> Judged:
        go_on.wait(30)
        return Judged()

    ask = {"Pod": POD, "NodeNames": ["a" * 200] * 4}
    with served(hanging, Limits(answer_s=0.05, waiting_bytes=4 * len(json.dumps(ask)))) as one:
        found = [post(one, "/filter", ask)[0] for _ in range(8)]
        assert found[:3] == [504] * 3
        assert found[-3:] == [503] * 3
        go_on.set()
        assert any(post(one, "/filter", {"Pod": POD, "NodeNames": ["a"]})[0] == 200 for _ in range(50))


def test_there_may_be_5000_nodes_and_not_one_more(server: ExtenderServer) -> None:
    assert post(server, "/filter", {"Pod": POD, "NodeNames": [f"n{i}" for i in range(5000)]})[0] == 200
    status, answer = post(server, "/filter", {"Pod": POD, "NodeNames": [f"n{i}" for i in range(5001)]})
    assert (status, answer["Error"]) == (413, "found 5,001 nodes; expected at most 5,000")
    assert post(server, "/prioritize", {"Pod": POD, "Nodes": {"items": [{}] * 5001}})[0] == 413
    extender = Extender(by_cores, nodes=[node("old")], most_nodes=2)
    extender.remember([node("a"), node("b")])
    assert not extender._known.get("old"), "the nodes that are kept are bounded too"


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_of_more_than_16_mib_is_answered_although_it_is_still_being_sent(announced: bool) -> None:
    head = b"POST /filter HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
    body = b" " * ((16 << 20) + 1)
    with served(limits=Limits(read_s=10)) as one:
        if announced:
            reply = send(one, head + b"content-length: %d\r\n\r\n" % len(body) + body)
        else:
            reply = send(one, head + b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        assert b" 413 " in reply.splitlines()[0]
        fits = json.dumps({"Pod": POD, "NodeNames": ["a"]}).encode()
        assert post(one, "/filter", fits.ljust(16 << 20))[0] == 200


def test_a_client_that_waits_for_a_go_on_is_refused_before_its_body(server: ExtenderServer) -> None:
    head = b"POST /filter HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: 99999999\r\n\r\n"
    reply = send(server, head)
    assert b" 413 " in reply.splitlines()[0]
    assert b"100 Continue" not in reply


def test_headers_and_bodies_that_never_end_are_given_up(server: ExtenderServer) -> None:
    assert send(server, b"POST /filter HTTP/1.1\r\nhost: x\r\n").startswith(b"HTTP/1.1 408")
    assert send(server, b"").startswith(b"HTTP/1.1 408")
    head = b"POST /filter HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 90\r\n\r\n{"
    assert b" 408 " in send(server, head).splitlines()[0]


def test_a_65th_connection_is_turned_away() -> None:
    with served(limits=Limits(read_s=30)) as one, contextlib.ExitStack() as stack:
        place = ("127.0.0.1", int(one.url.rpartition(":")[2]))
        lines = [stack.enter_context(socket.create_connection(place, timeout=20)) for _ in range(65)]
        assert lines[64].recv(100).startswith(b"HTTP/1.1 503")
        for line in lines[:8]:
            line.close()
        assert any(_status(one) == 200 for _ in range(200))


def _status(server: ExtenderServer) -> int:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return post(server, "/filter", {"Pod": POD, "NodeNames": ["a"]})[0]
    return 0


def test_defaults_are_those_of_the_specification_and_the_loopback() -> None:
    limits = Limits()
    assert (limits.body_bytes, limits.nodes, limits.connections, limits.read_s) == (16 << 20, 5000, 64, 10.0)
    with served() as one:
        assert one.url.startswith("http://127.0.0.1:")
    with pytest.raises(InputError, match="0 to 65535"):
        ExtenderServer(Extender(by_cores), port=70000)
    with pytest.raises(InputError, match="cannot listen"):
        serve(Extender(by_cores), host="no.such.host.invalid")


def test_many_at_once_are_all_answered(server: ExtenderServer) -> None:
    found: list[int] = []
    ask = [threading.Thread(target=lambda: found.append(post(server, "/filter", {"Pod": POD, "NodeNames": ["a", "b"]})[0])) for _ in range(32)]
    for thread in ask:
        thread.start()
    for thread in ask:
        thread.join()
    assert found == [200] * 32
