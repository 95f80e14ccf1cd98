"""The arena: files of every kind, what a bad one says, and the example from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary import catalogue, compare
from armillary.errors import InputError
from armillary.scheduling.functions import read_functions


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    """The example's JSON."""
    path, _ = catalogue.arena("scheduling/functions").write_example(tmp_path)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def written(tmp_path: Path, content: object, name: str = "own.json") -> Path:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def cases(path: Path, **options: str) -> Any:
    return catalogue.arena("scheduling/functions").from_file(path, options)


def test_the_example_is_read_as_it_stands(tmp_path, document):
    found = read_functions(written(tmp_path, document))
    assert [kind.name for kind in found.fleet.types] == ["small", "fast"]
    assert found.fleet.counts == (2, 1)
    assert found.profiles[2].affinity == (("fast", 0.7),)
    assert len(found.calls.function) == 240
    (case,) = cases(written(tmp_path, document))
    work = case.at(0, 0).workload
    assert work.sizes[work.user].tolist() == [1, 1, 4, 1], "owners' sizes are those of the file"
    assert (np.diff(work.calls.arrival_s) >= 0).all()


def test_calls_are_drawn_and_nodes_are_built_in_where_a_file_has_none(tmp_path, document):
    del document["calls"], document["nodes"], document["standard"]
    document["functions"] = document["functions"][:2]
    (case,) = cases(written(tmp_path, document), calls="50", load="0.5", tight="2", loose="2")
    work = case.at(0, 0).workload
    assert len(work.calls) == 50
    assert sum(work.fleet.counts) == 10
    assert len(set(np.round(work.relative_s[work.calls.function == 0], 9))) == 1, "all deadlines are twice the p50 alone"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["functions"][0].update(parallel_fraction=1.2), "parallel_fraction: found 1.2; expected 0 to 1"),
        (lambda d: d["functions"][0].update(parallel_fraction="x"), "expected a number"),
        (lambda d: d["functions"][0].update(work_gflop=10**400), "expected a number"),
        (lambda d: d["functions"][0].update(affinity={"gpu": 2.0}), 'found the node type "gpu"; expected one of small, fast'),
        (lambda d: d["functions"][0].update(affinity={"fast": 0}), "affinity.fast: found 0"),
        (lambda d: d["functions"][0].update(affinity=[1]), "expected factors by node type"),
        (lambda d: d["functions"][0].update(memory_mb=9000), "at most a quarter of the largest node"),
        (lambda d: d["functions"][0].update(work_gflop=0), "less than 0.1 ms of work"),
        (lambda d: d["functions"][0].update(colour=1), "found 'colour'; expected affinity, cold_s"),
        (lambda d: d["functions"][0].update(memory_bound=1), "expected true or false"),
        (lambda d: d["functions"][0].pop("name"), "functions[0].name: found None"),
        (lambda d: d["functions"][0].update(name="report"), '"report" twice'),
        (lambda d: d.update(functions=[]), "functions: found 0; expected 1 to"),
        (lambda d: d.update(functions=3), "expected a list of objects"),
        (lambda d: d["calls"][3].update(deadline_s=-1), "calls[3].deadline_s: found -1"),
        (lambda d: d["calls"][3].update(function="no"), "expected one of the functions"),
        (lambda d: d["calls"][3].update(size=0), "calls[3].size: found 0"),
        (lambda d: d["calls"][3].update(arrival_s=float("nan")), "number"),
        (lambda d: d.update(calls=[]), "calls: found none"),
        (lambda d: d.update(standard="huge"), "expected one of the node types"),
        (lambda d: d["nodes"][0].update(count=2.5), "expected a whole number"),
        (lambda d: d["nodes"][0].update(count=10**6), "expected 1 to 10,000"),
        (lambda d: d["nodes"][0].update(count=9000, cores=4096), "cores in all"),
        (lambda d: d["nodes"][0].update(speed=0), "speed: found 0"),
        (lambda d: d["nodes"][0].update(type="fast"), "found a type twice"),
        (lambda d: [n.update(count=0) for n in d["nodes"]], "found 0 nodes"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(tmp_path, document, change, message):
    change(document)
    with pytest.raises(InputError) as raised:
        cases(written(tmp_path, document))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "own.json" in str(raised.value)


@pytest.mark.parametrize("content", ["[]", "{}", '{"nodes": []}', "null", '"functions"', "{"])
def test_what_is_no_document_is_refused(tmp_path, content):
    with pytest.raises(InputError, match=r"own\.json"):
        cases(written(tmp_path, content))


def test_nodes_may_come_from_a_file_of_their_own(tmp_path, document):
    nodes = written(tmp_path, {"nodes": [{"type": "fast", "cores": 4}]}, "nodes.json")
    for function in document["functions"]:
        function.pop("affinity", None)
    (case,) = cases(written(tmp_path, document), nodes=str(nodes))
    assert case.at(0, 0).workload.sizes.tolist() == [0.5, 1, 2, 4]


TABLE = "function,arrival_s,duration_s,memory_mb,vcpu\n" + "".join(
    f"{'ab'[i % 2]},{0.5 * i},{0.4 + 0.1 * (i % 3)},256,{1 + i % 2}\n" for i in range(40)
)


def test_a_trace_becomes_functions_of_their_median_durations(tmp_path):
    (case,) = cases(written(tmp_path, TABLE, "t.csv"), tight="3", loose="3")
    work = case.at(0, 0).workload
    assert [profile.work_gflop for profile in work.profiles] == pytest.approx([5.0, 5.0])
    assert sorted(set(np.round(work.calls.size, 6))) == pytest.approx([0.8, 1.0, 1.2])
    assert work.relative_s == pytest.approx(np.full(40, 1.5))
    assert not work.sizes_known
    assert work.sizes[work.user].tolist() == [1, 2]


def test_a_table_may_have_deadlines_of_its_own(tmp_path):
    rows = TABLE.splitlines()
    own = [rows[0] + ",deadline_s", *(f"{row},{float(row.split(',')[1]) + 2.5}" for row in rows[1:])]
    (case,) = cases(written(tmp_path, "\n".join(own) + "\n", "t.csv"))
    assert case.at(0, 0).workload.relative_s == pytest.approx(np.full(40, 2.5))
    own[7] = own[7].rpartition(",")[0] + ",0.1"
    with pytest.raises(InputError, match=r't\.csv:8: column "deadline_s": found 0\.1 with the arrival 3'):
        cases(written(tmp_path, "\n".join(own) + "\n", "t.csv"))


def test_azure_2021_is_read(tmp_path):
    rows = "app,func,end_timestamp,duration\n" + "".join(f"a,f{i % 3},{10 + i},{1 + i % 4}\n" for i in range(30))
    (case,) = cases(written(tmp_path, rows, "azure.csv"))
    assert len(case.at(0, 0).workload.profiles) == 3


def test_a_foreign_table_names_the_kinds_that_are_read(tmp_path):
    with pytest.raises(InputError, match="Azure 2019") as raised:
        cases(written(tmp_path, "x,y\n1,2\n", "foreign.csv"))
    assert "Huawei" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_options_that_do_not_go_together_are_refused(tmp_path, document):
    with pytest.raises(InputError, match="--loose"):
        cases(written(tmp_path, document), tight="3", loose="2")
    with pytest.raises(InputError):
        cases(written(tmp_path, document), load="0")


def test_a_function_that_no_node_can_hold_with_its_size_is_declined(tmp_path):
    """The node with the cores lacks the memory, and the other one the cores."""
    content = {
        "nodes": [{"type": "wide", "cores": 16, "memory_mb": 128}, {"type": "tall", "cores": 1, "memory_mb": 65536}],
        "functions": [{"name": "f", "work_gflop": 10, "parallel_fraction": 0.9, "memory_mb": 512, "vcpu": 16}],
        "calls": [{"function": "f", "arrival_s": 0, "deadline_s": 5}],
    }
    (case,) = cases(written(tmp_path, content))
    arena = catalogue.arena("scheduling/functions")
    outcome = arena.execute(arena.make("fixed-least-loaded"), case.at(0, 0))
    assert "more cores and memory than any node has" in str(outcome)


def test_the_example_runs_from_its_file(tmp_path, document):
    techniques = ["fixed-least-loaded", "edf-tuned", "dhrt"]
    found = compare("scheduling/functions", work=written(tmp_path, document), techniques=techniques, store=tmp_path / "s.db")
    missed = found.on(next(iter(found.cases)), "deadline_missed")
    assert set(missed) == set(techniques)
    assert missed["dhrt"] < missed["fixed-least-loaded"]
    assert " misses the fewest deadlines on own.json (" in found.answer()
