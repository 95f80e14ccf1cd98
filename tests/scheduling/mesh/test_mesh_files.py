"""Block tables, profiles and Parthenon's files in; placements and METIS graphs out; a running job."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from armillary import catalogue, comm
from armillary.errors import InputError
from armillary.scheduling.mesh import Cplx, Graph, place, read_steps, rebalance, to_metis, write_placement
from armillary.scheduling.mesh.octree.scenes import face_bytes

HEAD = "step,block,level,i,j,k,cost_us\n"
EIGHT = "".join(f"0,{n},0,{n & 1},{n >> 1 & 1},{n >> 2},{10 + n}\n" for n in range(8))
FIFTEEN = "".join(f"1,{n},0,{n & 1},{n >> 1 & 1},{n >> 2},{10 + n}\n" for n in range(1, 8)) + "".join(
    f"1,{20 + n},1,{n & 1},{n >> 1 & 1},{n >> 2},7\n" for n in range(8)
)


def written(folder: Path, text: str, name: str = "blocks.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_table_of_blocks_is_put_in_the_order_of_the_curve(tmp_path: Path) -> None:
    rows = EIGHT.splitlines(keepends=True)
    found = read_steps(written(tmp_path, HEAD + "".join(rows[::-1])))
    assert found.costs[0].tolist() == [10.0 + n for n in range(8)]
    assert np.diff(found.graphs[0].first).tolist() == [3] * 8
    assert set(found.graphs[0].size) == {face_bytes(3)}
    assert found.ranks == 0
    assert found.dimensions == 3


def test_a_refined_mesh_is_followed_from_step_to_step(tmp_path: Path) -> None:
    found = read_steps(written(tmp_path, HEAD + EIGHT + FIFTEEN + FIFTEEN.replace("1,", "2,", 1).replace("\n1,", "\n2,")), face=64.0)
    assert found.mesh_of == (0, 1, 1)
    assert [graph.blocks for graph in found.graphs] == [8, 15]
    assert found.changes[0].mapped(found.costs[0]).tolist() == [10.0] * 8 + [10.0 + n for n in range(1, 8)]
    assert sorted(set(found.graphs[1].size)) == [16.0, 64.0]


def test_a_plane_and_a_periodic_domain(tmp_path: Path) -> None:
    plane = "step,block,level,i,j,cost_us,rank\n" + "".join(f"0,{n},0,{n % 3},{n // 3},1,{n % 2}\n" for n in range(9))
    path = written(tmp_path, plane)
    assert read_steps(path).dimensions == 2
    assert read_steps(path).ranks == 2
    assert np.diff(read_steps(path).graphs[0].first).tolist().count(4) == 1
    assert np.diff(read_steps(path, periodic=True).graphs[0].first).tolist() == [4] * 9


def test_messages_replace_the_neighbours(tmp_path: Path) -> None:
    messages = written(tmp_path, "src_block,dst_block,bytes\n0,7,100\n3,4,50\n", "messages.csv")
    graph = read_steps(written(tmp_path, HEAD + EIGHT), messages=str(messages)).graphs[0]
    assert (graph.source.tolist(), graph.target.tolist(), graph.size.tolist()) == ([0, 3], [7, 4], [100.0, 50.0])
    both = read_steps(written(tmp_path, HEAD + EIGHT + FIFTEEN), messages=str(
        written(tmp_path, "step,src_block,dst_block,bytes\n0,0,7,100\n1,27,1,8\n", "by_step.csv")
    ))  # fmt: skip
    assert (both.graphs[1].source.tolist(), both.graphs[1].target.tolist()) == ([7], [8])


def test_a_profile_adds_the_lines_of_a_block(tmp_path: Path) -> None:
    text = (
        "ts,sub_ts,rank,block_id,time_us\n"
        "0,0,0,0,5\n0,0,0,0,6\n0,0,1,1,7\n0,1,0,0,1\n0,1,1,1,2\n1,2,1,2,9\n1,2,0,0,4\n1,2,1,1,5\n1,2,2,3,6\n"
    )
    found = read_steps(written(tmp_path, text, "prof.aggr.evt0.csv"))
    assert [cost.tolist() for cost in found.costs] == [[11, 7], [1, 2], [4, 5, 9, 6]]
    assert found.mesh_of == (0, 0, 1)
    assert found.ranks == 3
    assert found.changes[0].mapped(np.array([1.0, 2.0])).tolist() == [1, 1, 2, 2]
    other = text.replace("ts,sub_ts,rank,block_id,time_us", "timestep,sub,proc,blk,t", 1)
    assert read_steps(written(tmp_path, other, "prof.aggr.evt7.csv")).ranks == 3
    with pytest.raises(InputError, match=r"expected blocks .* a profile .* or Parthenon"):
        read_steps(written(tmp_path, other, "table.csv"))


def parthenon(path: Path, level: object, place: object, per_rank: object = None) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["Levels"], file["LogicalLocations"] = level, place
        info = file.create_group("Info")
        if per_rank is not None:
            info.attrs["BlocksPerPE"] = per_rank
    return path


def test_a_parthenon_file_gives_mesh_and_ranks(tmp_path: Path) -> None:
    place_of = np.array([[n & 1, n >> 1 & 1, n >> 2] for n in range(8)])
    path = parthenon(tmp_path / "out.phdf", np.zeros(8, int), place_of, [4, 4])
    found = read_steps(path)
    assert found.ranks == 2
    assert found.graphs[0].blocks == 8
    assert len(set(found.costs[0])) == 1
    profile = written(tmp_path, "ts,sub_ts,rank,block_id,time_us\n" + "".join(f"0,0,0,{n},{n + 1}\n" for n in range(8)), "prof.csv")
    assert read_steps(path, profile=str(profile)).costs[0].tolist() == list(range(1, 9))
    for name, wrong, match in (
        ("a", (np.zeros(8, int), place_of[:7], [8]), "n × 3"),
        ("b", (np.zeros(8, int), place_of, [4, 5]), "expected 8"),
        ("c", (np.zeros(8), place_of, [8]), "whole numbers"),
        ("d", (np.zeros(8, int), np.zeros((8, 3), int), [8]), "twice"),
        ("e", (np.full(8, 40), place_of, [8]), "levels or places"),
    ):
        with pytest.raises(InputError, match=match):
            read_steps(parthenon(tmp_path / f"{name}.rhdf", *wrong))
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "elsewhere.phdf", "w") as file:
        file["Levels"] = h5py.ExternalLink(str(path), "Levels")
        file["LogicalLocations"] = place_of
    with pytest.raises(InputError, match="/Levels"):
        read_steps(tmp_path / "elsewhere.phdf")
    with pytest.raises(InputError, match="Parthenon"):
        read_steps(written(tmp_path, "no HDF5 at all", "x.phdf"))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (HEAD + EIGHT + "0,0,0,5,5,5,1\n", "again"),
        (HEAD + EIGHT + "0,9,0,0,0,0,1\n", "twice in its step or lies in another"),
        (HEAD + EIGHT + "0,9,1,0,0,0,1\n", "lies in another one"),
        (HEAD + "0,0,0,0,0,0,-4\n", "cost_us"),
        (HEAD + "0,0,0,0,0,0,nan\n", "cost_us"),
        (HEAD + "0,0,99,0,0,0,1\n", "level"),
        (HEAD + "0,0,0,524288,0,0,1\n", 'column "i"'),
        (HEAD + "0,0,0,500000,0,0,1\n0,1,9,0,0,0,1\n", "finest blocks"),
        (HEAD, "no rows"),
        ("time,host,value\n1,2,3\n", "expected blocks"),
    ],
)  # fmt: skip
def test_a_bad_table_is_one_line_with_its_place(tmp_path: Path, text: str, match: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=match) as error:
        read_steps(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_what_else_is_refused(tmp_path: Path) -> None:
    blocks = written(tmp_path, HEAD + EIGHT)
    unknown = written(tmp_path, "src_block,dst_block,bytes\n0,99,100\n", "messages.csv")
    with pytest.raises(InputError, match=r"messages.csv:2.*found 99"):
        read_steps(blocks, messages=str(unknown))
    with pytest.raises(InputError, match="ending"):
        read_steps(written(tmp_path, "x", "mesh.bin"))
    with pytest.raises(InputError, match="--profile"):
        read_steps(blocks, profile=str(blocks))
    arena = catalogue.arena("scheduling/mesh")
    for options, match in (({}, "--ranks"), ({"ranks": "9"}, "8 blocks for 9 ranks"), ({"ranks": "2", "machine": "laptop"}, "expected"),
                           ({"ranks": "2", "real": "true", "block_bytes": "1e11"}, "real run")):  # fmt: skip
        with pytest.raises(InputError, match=match):
            arena.from_file(blocks, options)


def test_placements_and_graphs_leave_as_text(tmp_path: Path) -> None:
    write_placement(tmp_path / "out.csv", [0, 0, 1], [5, 6, 9])
    assert (tmp_path / "out.csv").read_text() == "block,rank\n5,0\n6,0\n9,1\n"
    text = to_metis(Graph.of([0, 1, 1, 2], [1, 0, 2, 1], [10.0, 20.0, 5.0, 6.0], 3), [1.0, 2.0, 3.0])
    assert text == "3 2 011\n500 2 30\n1000 1 30 3 11\n1500 2 11\n"


def balance(ranks: comm.Communicator, costs: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    mine = costs[bounds[ranks.rank] : bounds[ranks.rank + 1]]
    return rebalance(ranks, mine, Cplx(chunk=2))


def test_a_running_job_gets_the_answer_of_place() -> None:
    costs = np.random.default_rng(0).exponential(size=30)
    bounds = np.array([0, 3, 3, 10, 24, 30])
    wanted = place(costs, 5, "cplx", chunk=2)
    for found in comm.run(balance, costs, bounds, ranks=5).values:
        assert np.array_equal(found, wanted)


@pytest.mark.slow
def test_an_mpi_job_gets_the_answer_of_place() -> None:
    pytest.importorskip("mpi4py")
    costs = np.random.default_rng(0).exponential(size=30)
    found = comm.run("armillary.scheduling.mesh.sockets.rebalance:rebalance", costs[:10], ranks=2, backend="mpi", library="mpich").values
    assert np.array_equal(found[0], place(np.r_[costs[:10], costs[:10]], 2, "cplx"))
