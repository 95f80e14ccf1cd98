"""The arena: its cases, what a unit gives, files of every kind, and what a bad one says."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from armillary import catalogue, comm, compare
from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.network.allgather.arena import every_case

ARENA = catalogue.arena("network/allgather")
TINY = {case.name: case for case in every_case("tiny")}
SMALL = {case.name: case for case in every_case("small")}
LARGE = {case.name: case for case in every_case("large")}
BANNER = "%%MatrixMarket matrix coordinate pattern general\n"


def values(technique, case, **parameters):
    return ARENA.execute(ARENA.make(technique, parameters), case).values


def written(tmp_path, text, name):
    path = tmp_path / name
    if isinstance(text, dict):
        np.savez(path, **text)
    else:
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def cases(path, **options):
    return ARENA.from_file(path, options)


def test_every_kind_of_case_has_four_cases_at_least_and_the_paper_its_own_size():
    for kind in ("default", "shuffled", "stress", "short", "one-rank", "mpi"):
        assert sum(kind in case.kinds for case in SMALL.values()) >= 4, kind
    paper = [case for case in LARGE.values() if "paper" in case.kinds]
    assert {(case.parameters["nodes"], case.parameters["per_node"]) for case in paper} == {(32, 32), (64, 64)}
    assert all(sum({"paper", kind} <= case.kinds for case in paper) >= 4 for kind in ("random", "moore", "spmm"))
    assert {SMALL[case.name].parameters["nodes"] for case in paper} == {8}


def test_shuffled_cases_are_the_same_graph_with_other_ranks():
    case = SMALL["shuffled-moore:2,1-64B"]
    shuffled, ordered = case.workload.problem, SMALL["moore:2,1-64B"].workload.problem
    assert shuffled.graph.edges == ordered.graph.edges
    assert np.diff(shuffled.graph.in_start).tolist() == np.diff(ordered.graph.in_start).tolist()
    assert shuffled.needed_on.sum() > 1.5 * ordered.needed_on.sum(), "neighbours are spread over more nodes"


def test_what_a_unit_gives_fits_the_plan():
    case = TINY["random:0.5-4KiB"]
    found = {name: values(name, case) for name in ARENA.techniques}
    problem = case.workload.problem
    outside = (problem.node_of[problem.graph.sources] != problem.node_of[problem.graph.receiver])[problem.graph.in_start[0] :]
    sent = np.bincount(problem.node_of[problem.graph.sources][outside], minlength=4)
    assert found["direct"]["inter_node_messages"] == sent.max()
    assert found["direct"]["inter_node_bytes"] == 4096 * sent.max()
    assert found["node-aware"]["inter_node_messages"] == 3
    assert min(one["regret"] for one in found.values()) == 0
    best = min(one["time"] for one in found.values())
    assert all(one["regret"] == pytest.approx(100 * (one["time"] / best - 1), abs=1e-9) for one in found.values())
    assert values("cascade", case, paths=1)["paths"] == 1


def test_a_sparse_product_takes_longer_than_its_gather():
    found = values("cascade", TINY["spmm-banded-64B"])
    assert found["spmm_time"] > found["time"] > 0


def test_no_worse_compares_with_the_better_simple_technique():
    case = TINY["shuffled-random:0.5-4KiB"]
    times = {name: values(name, case)["time"] for name in ("direct", "node-aware", "distance-halving")}
    assert values("distance-halving", case)["no_worse"] == float(times["distance-halving"] <= min(times["direct"], times["node-aware"]) / 0.95)
    assert max(values(name, case)["no_worse"] for name in ("direct", "node-aware")) == 1


def test_large_graphs_go_through_the_compiled_loop():
    assert values("node-aware", SMALL["paper-hdr100-random:0.1-8B"])["time"] > 0
    assert set(values("node-aware", TINY["plan-random:0.1"])) == {"setup"}


def test_a_machine_of_your_own():
    from armillary.cluster import preset

    slow = preset("ethernet-25")
    [case] = [case for case in every_case("tiny", slow) if case.name == "random:0.5-4KiB"]
    assert values("direct", case)["time"] > values("direct", TINY["random:0.5-4KiB"])["time"]


def test_without_mpi_the_measured_cases_are_declined(monkeypatch):
    monkeypatch.setattr(comm, "backends", lambda: {"mpi": "mpi4py is not installed"})
    declined = ARENA.execute(ARENA.make("direct"), SMALL["mpi-2-64B"])
    assert isinstance(declined, NotForThisCase)
    assert "mpi4py is not installed" in str(declined)


@pytest.mark.slow
def test_mpi_measures_all_techniques_in_one_job():
    if comm.backends()["mpi"]:
        pytest.skip(comm.backends()["mpi"])
    case = SMALL["mpi-2-64B"]
    found = [values(name, case) for name in ARENA.techniques]
    assert all(set(one) == {"time_measured", "over_native"} and min(one.values()) > 0 for one in found)


def test_the_answer_names_the_fastest():
    result = compare("network/allgather", scale="tiny", cases="random:0.5-4KiB", techniques=["direct", "cascade", "auto"])
    assert "direct is fastest on 1 of 1 cases." in result.answer()
    assert "Auto is at most" in result.answer()


def test_one_graph_in_every_form(tmp_path):
    pairs = [(0, 1), (0, 2), (1, 2), (2, 0), (3, 3), (0, 1)]
    table = written(tmp_path, "source,destination\n" + "".join(f"{a},{b}\n" for a, b in pairs), "graph.csv")
    arrays = {"indptr": np.array([0, 3, 4, 5, 6]), "indices": np.array([1, 2, 1, 2, 0, 3])}
    compressed = written(tmp_path, arrays, "graph.npz")
    for path in (table, compressed):
        found = cases(path, bytes="8,16", per_node="2")
        assert [case.name for case in found] == [f"{path.name}-8B", f"{path.name}-16B"]
        graph = found[0].workload.problem.graph
        assert [graph.into(rank).tolist() for rank in range(4)] == [[2], [0, 0], [0, 1], [3]]
        assert values("cascade", found[0], paths=1)["time"] > 0
    [case] = cases(table, bytes="8", ranks="7")
    assert case.workload.problem.ranks == 7


def test_a_matrix_is_dealt_to_ranks_by_rows(tmp_path):
    # Rows 1 and 2 belong to rank 0, row 3 to rank 1: rank 0 needs from rank 1, and not the other way round.
    path = written(tmp_path, f"{BANNER}3 3 3\n1 1\n2 3\n3 3\n", "small.mtx.gz")
    [case] = cases(path, ranks="2", columns="4", per_node="1")
    problem = case.workload.problem
    assert [problem.graph.into(rank).tolist() for rank in range(2)] == [[1], []]
    assert problem.block_bytes.tolist() == [2 * 8 * 4, 1 * 8 * 4]
    # 2 entries, the rows of the dense block that they need (1 and 3) and 2 rows of the result.
    assert case.workload.multiply_bytes.tolist() == [2 * 12 + 4 * 8 * 4, 12 + 2 * 8 * 4]
    symmetric = written(tmp_path, "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 1\n3 1\n", "both.mtx")
    [case] = cases(symmetric, ranks="3", columns="1", per_node="1")
    assert case.workload.problem.graph.edges == 2


def test_the_example_runs(tmp_path):
    path, options = ARENA.write_example(tmp_path)
    found = ARENA.from_file(path, options)
    assert [case.workload.problem.ranks for case in found] == [16, 16]
    outcome = ARENA.execute(ARENA.make("auto"), found[0])
    assert {artifact.name for artifact in outcome.artifacts} == {"plan.csv", "timeline.json"}


@pytest.mark.parametrize(
    ("name", "text", "options", "said"),
    [
        ("a.mtx", f"{BANNER}3 4 1\n1 1\n", {}, "a.mtx: found 3 rows and 4 columns; expected a square matrix"),
        ("a.mtx", f"{BANNER}3 3 2\n1 1\n", {}, "a.mtx: "),
        ("a.mtx", f"{BANNER}3 3 1\n1 9\n", {}, "a.mtx: "),
        ("a.mtx", "%%MatrixMarket matrix array real general\n", {}, "a.mtx: found no size line"),
        ("a.mtx", f"{BANNER}3 3 1\n1 1\n", {"ranks": "4"}, "--ranks: found 4 ranks for 3 rows"),
        ("a.csv", "source,destination\n0,5\n", {"ranks": "4"}, 'a.csv:2: column "destination": found 5; expected a rank below 4'),
        ("a.csv", "source,destination\n0,-1\n", {}, "a.csv:2: "),
        ("a.csv", "source,target\n0,1\n", {}, "destination"),
        ("a.csv", "source,destination\n", {}, "a.csv: found no rows"),
        ("a.csv", "source,destination\n0,99999\n", {}, "a.csv:2: "),
        ("a.npz", {"indptr": np.array([0, 2]), "indices": np.array([0, 1])}, {}, "indices: found 1 at 1; expected ranks from 0 to 0"),
        ("a.npz", {"indptr": np.array([0, 2, 1]), "indices": np.array([0])}, {}, "indptr: expected numbers from 0 to 1 that do not decrease"),
        ("a.npz", {"indptr": np.array([0.0, 1.0]), "indices": np.array([0])}, {}, "indptr: found float64"),
        ("a.npz", {"indptr": np.array([0, 1]), "indices": np.array([0])}, {"ranks": "3"}, "indptr: found 1 rows; expected 3 (--ranks)"),
        ("a.npz", {"other": np.array([0])}, {}, "found the arrays other; expected indptr, indices"),
        ("a.csv", "source,destination\n0,1\n", {"bytes": "-1"}, "--bytes: found -1"),
        ("a.csv", "source,destination\n0,1\n", {"bytes": ""}, "--bytes: found nothing"),
        ("a.csv", "source,destination\n0,1\n", {"machine": "no-such"}, "no-such"),
        ("a.csv", "source,destination\n0,900\n", {"per_node": "1"}, "expected at least 901, or more ranks per node"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, name, text, options, said):
    with pytest.raises(InputError) as error:
        cases(written(tmp_path, text, name), **options)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_the_command_line_ends_with_status_2_and_writes_nothing(tmp_path, armillary_here):
    path = written(tmp_path, f"{BANNER}3 4 1\n1 1\n", "oblong.mtx")
    before = set(tmp_path.iterdir())
    ended = armillary_here("compare", "network/allgather", "--work", str(path), "--html", "out.html")
    assert ended.returncode == 2
    assert ended.stderr.strip().count("\n") == 0
    assert "expected a square matrix" in ended.stderr
    assert set(tmp_path.iterdir()) == before
