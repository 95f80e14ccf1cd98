"""The arena: every kind of file, what a bad one says, the answer, and the example from the command line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from armillary import catalogue, compare
from armillary.errors import InputError
from armillary.training.prefetch import Graph, Machine, read_graph, read_partition

EDGES = [(0, 1), (1, 2), (2, 0), (3, 2), (3, 4)]
NEAR = ["2 3", "1 3", "1 2 4", "3 5", "4"]


@pytest.fixture(scope="module")
def wanted() -> Graph:
    """Five vertices and five edges."""
    return Graph.of(*np.array(EDGES).T)


def same(found: Graph, wanted: Graph) -> bool:
    """Whether two graphs have the same edges."""
    return np.array_equal(found.indptr, wanted.indptr) and np.array_equal(found.indices, wanted.indices)


# Files


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("g.csv", "src,dst\n" + "\n".join(f"{u},{v}" for u, v in EDGES)),
        ("g.csv", "weight,dst,src\n" + "\n".join(f"1.5,{u},{v}" for u, v in EDGES)),
        ("g.csv", "\n".join(f"{u},{v}" for u, v in EDGES)),
        ("g.csv", "\n".join(f"{v},{u}" for u, v in EDGES + EDGES) + "\n2,2\n"),
        ("g.tsv", "source\ttarget\n" + "\n".join(f"{u}\t{v}" for u, v in EDGES)),
        ("g.graph", "5 5\n" + "\n".join(NEAR)),
        ("g.graph", "% made by hand\n5 5 000\n" + "\n".join(NEAR) + "\n\n% the end\n"),
        ("g.graph", "5 5 001\n" + "\n".join(" ".join(f"{v} 7" for v in near.split()) for near in NEAR)),
        ("g.graph", "5 5 010 2\n" + "\n".join(f"8 9 {near}" for near in NEAR)),
        ("g.graph", "5 5 111\n" + "\n".join("4 6 " + " ".join(f"{v} 7" for v in near.split()) for near in NEAR)),
        ("g.mtx", "%%MatrixMarket matrix coordinate pattern general\n5 5 5\n" + "\n".join(f"{u + 1} {v + 1}" for u, v in EDGES)),
    ],
)
def test_every_format_gives_the_same_graph(tmp_path: Path, wanted: Graph, name: str, text: str) -> None:
    (tmp_path / name).write_text(text + "\n")
    assert same(read_graph(tmp_path / name), wanted)


def test_packed_edges_and_sparse_arrays_are_read(tmp_path: Path, wanted: Graph) -> None:
    from scipy.sparse import csr_array, save_npz

    packed = tmp_path / "edge.csv.gz"
    packed.write_bytes(gzip.compress("\n".join(f"{u},{v}" for u, v in EDGES).encode()))
    assert same(read_graph(packed), wanted)
    u, v = np.array(EDGES).T
    save_npz(tmp_path / "g.npz", csr_array((np.ones(5), (u, v)), shape=(5, 5)))
    assert same(read_graph(tmp_path / "g.npz"), wanted)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("g.csv", "time,bytes\n1,2\n", r"g.csv:1: .*the columns src and dst, or two columns of numbers"),
        ("g.csv", "a trace of something\n", "edge list"),
        ("g.csv", "src,dst\n0,1\n1,x\n", r"g.csv:3: column \"dst\": found \"x\""),
        ("g.csv", "0,1\n1,-2\n", "g.csv:2"),
        ("g.csv", "0,1\n1,99999999999\n", "16,777,215"),
        ("g.csv", "src,dst\n", "no rows"),
        ("g.txt", "0 1\n", "expected .csv"),
        ("g.graph", "", "vertices"),
        ("g.graph", "5\n", "number of edges"),
        ("g.graph", "99999999999 3\n", "vertices"),
        ("g.graph", "2 1\n2\n", "found 1 lines"),
        ("g.graph", "2 1\n2\n1\n1\n", "more than 2 lines"),
        ("g.graph", "2 1\n3\n1\n", "outside 1 to 2"),
        ("g.graph", "2 1\n0\n1\n", "outside 1 to 2"),
        ("g.graph", "2 1\nx\n1\n", r"g.graph:2: found \"x\""),
        ("g.graph", "2 3\n2\n1\n", "found 2 neighbours; expected 6"),
        ("g.graph", "2 1 002\n2\n1\n", "digits"),
        ("g.graph", "2 1 001\n2\n1\n", "pairs"),
        ("g.graph", "2 1 010 5000\n2\n1\n", "1,000"),
        ("g.mtx", "%%MatrixMarket matrix coordinate pattern general\n2 3 1\n1 3\n", "square"),
    ],
)
def test_a_bad_graph_is_refused_in_one_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said) as error:
        read_graph(tmp_path / name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0\n1\n", "expected 3"),
        ("0\n1\nx\n", ":3: "),
        ("0\n1\n5000\n", "0 to 1023"),
        ("0\n2\n2\n", "part 1 has no vertex"),
        ("0\n-1\n1\n", ":2: "),
    ],
)
def test_a_bad_partition_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p").write_text(text)
    with pytest.raises(InputError, match=said):
        read_partition(tmp_path / "p", 3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"buffer": "0"}, "--buffer"),
        ({"buffer": "1.5"}, "--buffer"),
        ({"fan_outs": "10,0"}, "--fan-outs"),
        ({"fan_outs": "1,2,3,4,5,6,7,8,9"}, "--fan-outs"),
        ({"partition": "no-such-file"}, "no such file"),
        ({"machine": "no-such-preset"}, "no-such-preset"),
        ({"partition": "", "parts": "1000"}, "parts"),
    ],
)
def test_a_bad_option_is_refused(tmp_path: Path, options: dict[str, str], said: str) -> None:
    arena = catalogue.arena("training/prefetch")
    path, good = arena.write_example(tmp_path)
    with pytest.raises(InputError, match=said):
        arena.from_file(path, {**good, **options})


def test_one_part_has_nothing_remote(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("0,1\n1,2\n")
    (tmp_path / "p.txt").write_text("0\n0\n0\n")
    with pytest.raises(InputError, match="at least two"):
        catalogue.arena("training/prefetch").from_file(tmp_path / "g.csv", {"partition": str(tmp_path / "p.txt")})


# Machines


def test_a_machine_is_that_of_a_cluster() -> None:
    machine = Machine.of("perlmutter-gpu")
    assert machine.flops == pytest.approx(0.05 * 19.5e12)
    assert machine.bytes_per_s == 0.25e9, "what remote procedure calls carry, which is less than the port"
    assert machine.given(2e-3, 1e9).fetch_s(3, 5e8) == pytest.approx(6e-3 + 0.5)
    assert machine.given() == machine
    with pytest.raises(InputError, match="no GPU"):
        Machine.of("cpu-2core")


# The whole


def test_the_example_is_answered(tmp_path: Path) -> None:
    arena = catalogue.arena("training/prefetch")
    path, options = arena.write_example(tmp_path)
    result = compare("training/prefetch", work=path, options=options, store=tmp_path / "s.db")
    assert "has the shortest epochs on edges.csv" in result.answer()
    case = next(iter(result.cases))
    values = {metric: result.on(case, metric) for metric in ("comm_nodes", "hit_rate", "epoch_s")}
    assert values["hit_rate"]["none"] == 0
    assert values["comm_nodes"]["oracle"] <= min(values["comm_nodes"][t] for t in ("static-degree", "periodic", "classifier", "rudder"))


def test_decisions_are_left_as_a_table(tmp_path: Path) -> None:
    arena = catalogue.arena("training/prefetch")
    path, options = arena.write_example(tmp_path)
    (case,) = arena.from_file(path, options)
    outcome = arena.execute(arena.make("rudder", {"latency_s": 0}), case.at(0, 0))
    tables = [artifact for artifact in outcome.artifacts if artifact.name == "decisions.csv"]
    assert b"trainer,minibatch,asked_at,latency_s,kind,moved,expected_comm,saving,regret,reason" in tables[0].data


def test_there_are_four_cases_of_each_kind() -> None:
    cases = catalogue.arena("training/prefetch").built_in("small")
    for kind in ("drift", "stationary", "shuffled"):
        of_kind = [case.parameters for case in cases if kind in case.kinds]
        assert {(p["parts"], p["buffer"]) for p in of_kind} == {(4, 0.25), (4, 0.05), (8, 0.25), (8, 0.05)}
    for scale in ("tiny", "small", "large"):
        for case in catalogue.arena("training/prefetch").built_in(scale):
            p = case.parameters
            assert p["batch"] * p["stands_for"] == 2048
            assert (p["stands_for"] << p["exponent"]) == 1 << 21
