"""Files: the application as JSON, Jaeger's traces, Alibaba's call graph, Prometheus' range queries, and what is wrong with bad ones."""

from __future__ import annotations

import copy
import gzip
import io
import json
import random
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary import catalogue, compare
from armillary.errors import InputError
from armillary.scheduling.microservices import (
    Call,
    application_of,
    built_in,
    document_of,
    read_alibaba,
    read_application,
    read_jaeger,
    read_range,
)
from armillary.scheduling.microservices.readers.alibaba import read_call_rates, read_resources, read_traces
from armillary.scheduling.microservices.readers.prometheus import read_rates
from armillary.scheduling.microservices.readers.traces import Span, groups_of, self_time
from armillary.testing.fuzzing import damaged_bytes, damaged_value

ARENA = "scheduling/microservices"


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    path, _ = catalogue.arena(ARENA).write_example(tmp_path)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def written(tmp_path: Path, content: object, name: str = "own.json") -> Path:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def cases(path: Path, **options: str) -> Any:
    return catalogue.arena(ARENA).from_file(path, options)


@pytest.mark.parametrize("name", ["shop-8", "social-28", "hotel-17"])
def test_an_application_survives_its_own_json(name):
    app = built_in(name)
    again = application_of(json.loads(json.dumps(document_of(app))), "text")
    assert again == app
    assert len(app.services) == int(name.rpartition("-")[2])


def test_the_example_is_the_shop_under_other_names(tmp_path, document):
    app = read_application(written(tmp_path, document)).application
    assert [s.cpu_ms for s in app.services] == [s.cpu_ms for s in built_in("shop-8").services]
    assert app.names != built_in("shop-8").names
    (case,) = cases(written(tmp_path, document), load="flash", seconds="30", rate="80")
    work = case.at(0, 0).workload
    assert work.seconds == 30
    assert work.rates.mean() == pytest.approx(80)


def test_rates_may_stand_in_the_file_or_in_a_range_query(tmp_path, document):
    document["rates"] = [10, 20, 30]
    (case,) = cases(written(tmp_path, document))
    assert case.at(0, 0).workload.rates.tolist() == [10, 20, 30]
    query = {"status": "success", "data": {"resultType": "matrix", "result": [
        {"metric": {"job": "a"}, "values": [[100, "5"], [102, "7"]]}, {"metric": {"job": "b"}, "values": [[101, "1"], [103, "NaN"]]},
    ]}}  # fmt: skip
    path = written(tmp_path, query, "rates.json")
    assert read_rates(path).tolist() == [5, 6, 8, 7]
    (case,) = cases(written(tmp_path, document), rates=str(path))
    assert case.at(0, 0).workload.rates.tolist() == [5, 6, 8, 7]
    assert [one.labels for one in read_range(path)] == [{"job": "a"}, {"job": "b"}]


def first_tree(d: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = d["requests"][0]["tree"]
    return found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["services"][0].update(threads=0), "services[0].threads: found 0; expected a whole number from 1"),
        (lambda d: d["services"][0].update(threads=2.5), "services[0].threads: found 2.5"),
        (lambda d: d["services"][0].update(cpu_ms="x"), "services[0].cpu_ms: found 'x'"),
        (lambda d: d["services"][0].update(cpu_ms=10**400), "services[0].cpu_ms"),
        (lambda d: d["services"][0].update(quota=0), "found 0; expected a quota above 0"),
        (lambda d: d["services"][0].update(quota=-1), "expected a quota above 0"),
        (lambda d: d["services"][0].update(quota=99), "expected a number from 0.1 to 16"),
        (lambda d: d["services"][0].update(colour=1), "found 'colour'; expected cpu_ms, cv"),
        (lambda d: d["services"][0].pop("name"), "services[0].name: found None"),
        (lambda d: d["services"][1].update(name=d["services"][0]["name"]), "twice"),
        (lambda d: d["services"].clear(), "services: found 0; expected 1 to 10,000"),
        (lambda d: d["services"].extend(copy.deepcopy(d["services"]) * 1300), "services: found 10,408; expected 1 to 10,000"),
        (lambda d: d["requests"][0].update(share=0.5), "found shares that sum to 0.9; expected 1"),
        (lambda d: d["requests"][0].update(share=None), "requests[0].share: found None"),
        (lambda d: d["requests"][0].update(slo_ms=20), "expected at least 29 ms, the service times on its critical path"),
        (lambda d: first_tree(d).update(service="nobody"), 'found the service "nobody"; expected one that is declared'),
        (lambda d: first_tree(d)["calls"][0][0].update(service=first_tree(d)["service"]), "found a cycle, gateway → gateway"),
        (lambda d: first_tree(d).update(calls=[{}]), "expected a list of groups"),
        (lambda d: first_tree(d).update(calls=[[3]]), "expected an object with service and calls"),
        (lambda d: first_tree(d).update(calls=[[{"service": "ledger"}] * 1001]), "at most 1,000 calls"),
        (lambda d: d.update(rates=[]), "rates: found []"),
        (lambda d: d.update(rates=[1, -1]), "rates[1]: found -1"),
        (lambda d: d.update(rate=0), "rate: found 0"),
        (lambda d: d.update(requests=3), "requests: found 3; expected a list of objects"),
        (lambda d: d.update(more=3), "found 'more'"),
    ],
)
def test_what_is_wrong_with_an_application_is_said_in_one_line(tmp_path, document, change, message):
    change(document)
    with pytest.raises(InputError) as raised:
        cases(written(tmp_path, document))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "own.json" in str(raised.value)


@pytest.mark.parametrize("content", ["[]", "{}", "null", "{", '{"data": []}', '{"data": [1]}', '{"data": 3}'])
def test_what_is_no_document_is_refused(tmp_path, content):
    with pytest.raises(InputError, match=r"own\.json"):
        cases(written(tmp_path, content))


def test_an_objective_may_be_set_and_must_be_possible(tmp_path, document):
    (case,) = cases(written(tmp_path, document), slo_ms="500")
    assert case.at(0, 0).workload.application.slo_s.tolist() == [0.5] * 3
    with pytest.raises(InputError, match="critical path"):
        cases(written(tmp_path, document), slo_ms="40")


def test_self_time_is_the_duration_less_the_union_of_the_childrens():
    span = Span("a", 0.0, 10.0, [Span("b", 1.0, 3.0), Span("c", 2.0, 4.0), Span("d", 8.0, 5.0)])
    assert self_time(span) == pytest.approx(10 - 5 - 2)
    assert [[one.service for one in group] for group in groups_of(span.children)] == [["b", "c"], ["d"]]


def jaeger(many: int = 3) -> dict[str, Any]:
    """Traces of web → (search beside stock), then pay."""
    processes = {f"p{i}": {"serviceName": name, "tags": []} for i, name in enumerate(("web", "search", "stock", "pay"))}

    def span(key: str, process: str, start: int, length: int, parent: str | None, trace: str) -> dict[str, Any]:
        references = [] if parent is None else [{"refType": "CHILD_OF", "traceID": trace, "spanID": parent}]
        return {"traceID": trace, "spanID": key, "operationName": "op", "references": references, "startTime": start, "duration": length,
                "processID": process, "tags": [], "logs": []}  # fmt: skip

    data = []
    for k in range(many):
        t, at = f"t{k}", 1_700_000_000_000_000 + 500_000 * k
        spans = [
            span("1", "p0", at, 50_000, None, t), span("2", "p1", at + 5_000, 10_000, "1", t),
            span("3", "p2", at + 6_000, 12_000, "1", t), span("4", "p3", at + 20_000, 20_000, "1", t),
        ]  # fmt: skip
        data.append({"traceID": t, "spans": spans, "processes": processes})
    return {"data": data, "total": 0, "limit": 0, "offset": 0, "errors": None}


def test_jaegers_traces_become_an_application(tmp_path):
    document = jaeger()
    document["data"].append({"traceID": "x", "processes": document["data"][0]["processes"],
                             "spans": [s for s in copy.deepcopy(jaeger(1))["data"][0]["spans"] if s["spanID"] != "1"]})  # fmt: skip
    found = read_jaeger(written(tmp_path, document, "jaeger.json"))
    app = found.application
    assert found.dropped == 1, "a trace whose root is missing"
    assert app.requests[0].tree == Call("web", ((Call("search"), Call("stock")), (Call("pay"),)))
    times = dict(zip(app.names, (s.cpu_ms for s in app.services)))
    assert times == pytest.approx({"web": 50 - 13 - 20, "search": 10, "stock": 12, "pay": 20})
    assert app.rate == pytest.approx(3), "three traces within one second"
    assert app.slo_s[0] == pytest.approx(0.4), "eight times 17 + 12 + 20 ms, up to 10 ms"
    (case,) = cases(written(tmp_path, document, "jaeger.json"), threads="4", replicas="1", seconds="20")
    assert case.at(0, 0).workload.application.threads.tolist() == [4] * 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(processID="p9"), "expected a process with a serviceName"),
        (lambda s: s.update(processID=["p1"]), "expected a process with a serviceName"),
        (lambda s: s.update(duration=-1), "duration: found -1"),
        (lambda s: s.update(startTime="x"), "startTime: found 'x'"),
        (lambda s: s.update(spanID="1"), "twice in a trace"),
        (lambda s: s.update(spanID=7), "spanID: found 7"),
    ],
)
def test_bad_spans_are_named(tmp_path, change, message):
    document = jaeger()
    change(document["data"][0]["spans"][2])
    with pytest.raises(InputError, match=r"data\[0\]\.spans\[2\]") as raised:
        read_jaeger(written(tmp_path, document, "jaeger.json"))
    assert message in str(raised.value)


def test_a_trace_that_goes_in_a_circle_is_dropped(tmp_path):
    document = jaeger(2)
    spans = document["data"][0]["spans"]
    spans[1]["references"][0]["spanID"], spans[3]["references"][0]["spanID"] = "4", "2"
    assert read_jaeger(written(tmp_path, document, "jaeger.json")).dropped == 1
    document["data"][1]["processes"] = {f"p{i}": {"serviceName": "web"} for i in range(4)}
    with pytest.raises(InputError, match="no whole trace"):
        read_jaeger(written(tmp_path, document, "jaeger.json"))


HEADER = "traceid,timestamp,rpcid,um,rpctype,dm,interface,rt"
#: Both records of every remote call: the caller's time, and minus the callee's.
ROWS = [
    "t1,1000,0,(?),http,MS_A,i0,40", "t1,1000,0,(?),http,MS_A,i0,-38",
    "t1,1005,0.1,MS_A,rpc,MS_B,i1,12", "t1,1006,0.1,MS_A,rpc,MS_B,i1,-10",
    "t1,1007,0.1.1,MS_B,mc,MS_C,,3",
    "t1,1020,0.2,MS_A,db,MS_D,,8",
    "t2,3000,0,(?),http,MS_A,i0,41", "t2,3000,0.1,MS_A,rpc,MS_B,i1,13", "t2,3002,0.1.1,MS_B,mc,MS_C,,4", "t2,3019,0.2,MS_A,db,MS_D,,6",
    "t3,4000,0,(?),http,MS_A,i0,5", "t3,4001,0.1.1,MS_B,mc,MS_C,,2",
]  # fmt: skip


def call_graph(numbered: bool, both: bool) -> str:
    rows = [row for row in ROWS if both or not row.rpartition(",")[2].startswith("-")]
    if not both:
        # Without its own record the callee is known by the caller's time, so give that.
        rows = [row.replace(",http,MS_A,i0,40", ",http,MS_A,i0,38").replace("1005,0.1,MS_A,rpc,MS_B,i1,12", "1006,0.1,MS_A,rpc,MS_B,i1,10")
                for row in rows]  # fmt: skip
    return "\n".join([("," if numbered else "") + HEADER, *(f"{i},{row}" if numbered else row for i, row in enumerate(rows))]) + "\n"


def packed(tmp_path: Path, text: str, member: str = "MSCallGraph_0.csv", kind: bytes = tarfile.REGTYPE) -> Path:
    path = tmp_path / "MSCallGraph_0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo(member)
        info.size, info.type = len(text.encode()) if kind == tarfile.REGTYPE else 0, kind
        info.linkname = "/etc/hostname"
        archive.addfile(info, io.BytesIO(text.encode()))
    return path


@pytest.mark.parametrize("packing", ["csv", "csv.gz", "tar.gz"])
@pytest.mark.parametrize(("numbered", "both"), [(True, True), (False, True), (True, False), (False, False)])
def test_row_numbers_and_second_records_change_no_tree(tmp_path, packing, numbered, both):
    text = call_graph(numbered, both)
    if packing == "tar.gz":
        path = packed(tmp_path, text)
    else:
        path = tmp_path / f"MSCallGraph_0.{packing}"
        path.write_bytes(gzip.compress(text.encode()) if packing == "csv.gz" else text.encode())
    found = read_alibaba(path)
    app = found.application
    assert found.dropped == 1, "the caller 0.1 of 0.1.1 is missing in t3"
    assert [request.tree for request in app.requests] == [Call("MS_A", ((Call("MS_B", ((Call("MS_C"),),)),), (Call("MS_D"),)))]
    times = dict(zip(app.names, (s.cpu_ms for s in app.services)))
    assert times == pytest.approx({"MS_A": (38 - 18 + 41 - 19) / 2, "MS_B": (7 + 9) / 2, "MS_C": 3.5, "MS_D": 7.0})


def test_a_remote_call_is_one_call(tmp_path):
    traces, dropped = read_traces(written(tmp_path, call_graph(True, True), "g.csv"))
    assert dropped == 1
    first = traces[0]
    assert (first.service, first.duration_s) == ("MS_A", pytest.approx(0.038))
    assert [child.service for child in first.children] == ["MS_B", "MS_D"]


def test_the_other_tables_are_read_under_both_names(tmp_path):
    for cpu, memory in (("instance_cpu_usage", "instance_memory_usage"), ("cpu_utilization", "memory_utilization")):
        text = f",timestamp,msname,msinstanceid,nodeid,{cpu},{memory}\n0,60000,MS_A,i1,n1,0.13,0.6\n"
        table = read_resources(written(tmp_path, text, "MSResource_0.csv"))
        assert table["instance_cpu_usage"].tolist() == [0.13]
    for metric in ("metric", "metrics"):
        text = f",timestamp,msname,msinstanceid,{metric},value\n0,60000,MS_A,i1,providerRPC_MCR,12.5\n"
        assert read_call_rates(written(tmp_path, text, "MSRTQps_0.csv"))["value"].tolist() == [12.5]


def test_bad_call_graphs_say_what_is_wrong(tmp_path):
    with pytest.raises(InputError, match="expected traceid, timestamp, rpcid"):
        read_alibaba(written(tmp_path, "x,y\n1,2\n", "g.csv"))
    with pytest.raises(InputError, match=r'g\.csv:2: column "timestamp"'):
        read_alibaba(written(tmp_path, HEADER + "\nt,x,0,a,rpc,b,,1\n", "g.csv"))
    with pytest.raises(InputError, match="no whole trace"):
        read_alibaba(written(tmp_path, HEADER + "\nt,1,0.1,a,rpc,b,,1\n", "g.csv"))
    with pytest.raises(InputError, match=r"MSCallGraph_0\.tar\.gz.*column"):
        read_alibaba(packed(tmp_path, HEADER + "\nt,x,0,a,rpc,b,,1\n"))
    with pytest.raises(InputError, match=r"no \.csv inside"):
        read_alibaba(packed(tmp_path, "x", "read.me"))
    with pytest.raises(InputError, match=r"no \.csv inside"):
        read_alibaba(packed(tmp_path, "", "link.csv", tarfile.SYMTYPE))
    whole = packed(tmp_path, call_graph(True, True)).read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"cut\.tar\.gz"):
        read_alibaba(tmp_path / "cut.tar.gz")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"status": "error", "error": "bad query"}, "bad query"),
        ({"status": "success", "data": {"resultType": "vector", "result": []}}, "found 'vector'; expected matrix"),
        ({"status": "success", "data": {"resultType": "matrix", "result": [{}]}}, "expected metric and values"),
        ({"status": "success", "data": {"resultType": "matrix", "result": [{"values": [[1, 2]]}]}}, "a number as text"),
        ({"status": "success", "data": {"resultType": "matrix", "result": [{"values": [[2, "1"], [1, "1"]]}]}}, "do not increase"),
        ({"status": "success", "data": {"resultType": "matrix", "result": []}}, "no samples"),
        ({"status": "success", "data": {"resultType": "matrix", "result": [{"values": [[1, "-5"]]}]}}, "below 0"),
        ([], "expected a successful answer"),
    ],
)
def test_bad_range_queries_say_what_is_wrong(tmp_path, content, message):
    with pytest.raises(InputError) as raised:
        read_rates(written(tmp_path, content, "q.json"))
    assert message in str(raised.value)
    assert "q.json" in str(raised.value)


def test_the_example_runs_from_its_file(tmp_path, document):
    techniques = ["step-rule", "deepest-first", "ddrm"]
    found = compare(
        ARENA, work=written(tmp_path, document), techniques=techniques, store=tmp_path / "s.db", options={"seconds": "40", "load": "step"}
    )  # fmt: skip
    score = found.on(next(iter(found.cases)), "score")
    assert set(score) == set(techniques)
    assert np.isfinite(list(score.values())).all()
    assert "has the best score on own.json" in found.answer()


def mutants(kind: str) -> Any:
    """Damaged files of a kind, 120 of them."""
    rng = random.Random(kind)
    sound: Any = {"jaeger": jaeger(2), "prometheus": {"status": "success", "data": {"resultType": "matrix", "result": [
        {"metric": {"job": "a"}, "values": [[100, "5"], [102, "7"]]}]}}}.get(kind)  # fmt: skip
    for _ in range(120):
        if sound is None:
            yield damaged_bytes(call_graph(True, True).encode(), rng)
        else:
            text = json.dumps(sound).encode()
            yield damaged_bytes(text, rng) if rng.random() < 0.5 else json.dumps(damaged_value(copy.deepcopy(sound), rng)).encode()


@pytest.mark.parametrize("kind", ["jaeger", "alibaba", "prometheus"])
def test_damaged_traces_are_read_or_refused(tmp_path, kind):
    reader = {"jaeger": read_jaeger, "alibaba": read_alibaba, "prometheus": read_rates}[kind]
    path = tmp_path / ("damaged.csv" if kind == "alibaba" else "damaged.json")
    refused = 0
    for data in mutants(kind):
        path.write_bytes(data)
        try:
            reader(path)
        except InputError:
            refused += 1
    assert refused > 10
