"""Placement and bandwidth files: each format by hand, and the one line that says what is wrong with a bad file."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.storage.repair import Bandwidth, Placement, ReedSolomon, plan_repair, read_placement
from armillary.storage.repair.arena import repair

CSV = "# k=2 m=1\nstripe,index,node\ns0,0,a\ns0,1,b\ns0,2,c\ns1,0,b\ns1,1,c\n"
GROUPS = {"2.0": [3, 1, 2], "2.1": [1, 2147483647, 0], "1.0": [0, 1]}
CEPH = {"pg_ready": True, "pg_stats": [{"pgid": name, "acting": acting, "up": acting} for name, acting in GROUPS.items()]}
HDFS = """Connecting to namenode via http://nn:9870/fsck?ugi=hdfs&files=1&blocks=1&locations=1&path=%2F
FSCK started by hdfs (auth:SIMPLE) from /10.0.0.1 for path / at Mon Jan 01 00:00:00 UTC 2024

/ <dir>
/plain 1024 bytes, replicated: replication=3, 1 block(s):  OK
0. BP-1-10.0.0.1-1:blk_1073741825_1001 len=1024 Live_repl=3  [DatanodeInfoWithStorage[10.0.0.5:9866,DS-1,DISK]]

/ec/file 6291456 bytes, erasure-coded: policy=RS-3-2-1024k, 1 block(s):  OK
0. BP-1-10.0.0.1-1:blk_-9223372036854775792_1002 len=6291456 Live_repl=5  [blk_-9223372036854775792:DatanodeInfoWithStorage[10.0.0.5:9866,DS-a,DISK], \
blk_-9223372036854775791:DatanodeInfoWithStorage[10.0.0.6:9866,DS-b,DISK], blk_-9223372036854775789:DatanodeInfoWithStorage[10.0.0.8:9866,DS-d,DISK], \
blk_-9223372036854775788:DatanodeInfoWithStorage[10.0.0.9:9866,DS-e,DISK]]

Status: HEALTHY
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def refused(call: Callable[[], object]) -> str:
    """The one line with which a call is refused."""
    with pytest.raises(InputError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_csv(tmp_path: Path) -> None:
    found = read_placement(write(tmp_path, "p.csv", CSV))
    assert (found.code, found.nodes, found.stripes) == (ReedSolomon(2, 1), ("a", "b", "c"), ("s0", "s1"))
    assert found.holder.tolist() == [[0, 1, 2], [1, 2, -1]]
    bare = read_placement(write(tmp_path, "q.csv", CSV.partition("\n")[2]), k=2, m=1)
    assert bare.holder.tolist() == found.holder.tolist()
    in_header = read_placement(write(tmp_path, "r.csv", "stripe,index,node,k=2,m=1\ns0,0,a\n"))
    assert in_header.holder.tolist() == [[0, -1, -1]]


def test_ceph(tmp_path: Path) -> None:
    found = read_placement(write(tmp_path, "pg.json", json.dumps(CEPH)), k=2, m=1)
    assert found.stripes == ("2.0", "2.1")
    assert found.nodes == ("osd.3", "osd.1", "osd.2", "osd.0")
    assert found.holder.tolist() == [[0, 1, 2], [1, -1, 3]]
    wrapped = read_placement(write(tmp_path, "pg2.json", json.dumps({"pg_map": CEPH})), k=2, m=1)
    assert wrapped.holder.tolist() == found.holder.tolist()


def test_hdfs(tmp_path: Path) -> None:
    found = read_placement(write(tmp_path, "fsck.txt", HDFS))
    assert found.code == ReedSolomon(3, 2)
    assert found.nodes == ("10.0.0.5:9866", "10.0.0.6:9866", "10.0.0.8:9866", "10.0.0.9:9866")
    assert found.holder.tolist() == [[0, 1, -1, 2, 3]], "block 2 has no location"
    free = Bandwidth.constant([10] * 5, [10] * 5, [*found.nodes, "spare"])
    plan = plan_repair(found, None, free, block=300, slice=1)
    assert (plan.problem.index.tolist(), plan[0].destination) == ([2], 4)


def test_bandwidth_is_piecewise_constant(tmp_path: Path) -> None:
    text = "time_s,node,up_MBps,down_MBps\n0,a,10,20\n0,b,1,2\n5,a,30,40\n"
    free = Bandwidth.read(write(tmp_path, "b.csv", text))
    assert free.names == ("a", "b")
    for time, up, down in ((-1, [10, 1], [20, 2]), (4.9, [10, 1], [20, 2]), (5.0, [30, 1], [40, 2]), (99, [30, 1], [40, 2])):
        assert free.at(time)[0].tolist() == [1e6 * x for x in up]
        assert free.at(time)[1].tolist() == [1e6 * x for x in down]


def test_bandwidth_of_a_cluster() -> None:
    from armillary.cluster import preset

    ina = Bandwidth.of_cluster(preset("ina-6x2"))
    assert len(ina.names) == 6
    assert ina.up.tolist() == [[12.5e9] * 6]
    assert ina.aggregate.tolist() == [40e9]
    plain = Bandwidth.of_cluster(preset("ethernet-25"))
    assert (plain.aggregate == 0).all(), "ordinary switches cannot add up"


READERS = {
    "p.csv": read_placement,
    "pg.json": functools.partial(read_placement, k=2, m=1),
    "f.txt": functools.partial(read_placement, format="hdfs"),
    "b.csv": Bandwidth.read,
}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.csv", "", 'found header ""; expected "stripe,index,node"'),
        ("p.csv", "# k=2 m=1\nstripe,node\n", 'p.csv:2: found header "stripe,node"'),
        ("p.csv", "stripe,index,node\n", "found no k and m"),
        ("p.csv", "# k=200 m=56\nstripe,index,node\n", "k + m: found 200 + 56 = 256; expected at most 255"),
        ("p.csv", CSV + "s1,3,a\n", 'p.csv:8: column "index": found "3"; expected 0 to 2'),
        ("p.csv", CSV + "s1,-1,a\n", 'column "index": found "-1"'),
        ("p.csv", CSV + "s0,1,a\n", "p.csv:8: found block 1 of stripe s0 twice; expected once"),
        ("p.csv", CSV + "s2,0\n", "p.csv:8: found 2 columns; expected stripe,index,node"),
        ("p.csv", CSV + "s2,0,\n", 'column "node": found nothing'),
        ("p.csv", "# k=2 m=1\nstripe,index,node\n", "found no stripes"),
        ("p.csv", "{", "found no k and m"),
        ("pg.json", json.dumps({"pgs": []}), "found no list pg_stats; expected the output of ceph pg dump pgs -f json"),
        ("pg.json", json.dumps({"pg_stats": [{"pgid": "1.0"}]}), "pg_stats[0]: found no pgid and acting"),
        (
            "pg.json",
            json.dumps({"pg_stats": [{"pgid": "1.0", "acting": [1, 2, "x"]}]}),
            "acting: found [1, 2, 'x']; expected numbers of OSDs",
        ),
        ("pg.json", json.dumps({"pg_stats": [{"pgid": "1.0", "acting": [1, 2]}]}), "found no placement group with 3 shards"),
        ("pg.json", json.dumps([]), "found no list pg_stats"),
        ("f.txt", "FSCK started by hdfs\n", "found no block group of an erasure-coded file"),
        ("f.txt", HDFS.replace("RS-3-2", "XOR-3-2"), 'found policy "XOR-3-2"; expected a Reed-Solomon one'),
        ("f.txt", HDFS.replace("blk_-9223372036854775788", "blk_-9223372036854775708"), "expected one of the next 5"),
        ("b.csv", "node,up\n", "b.csv:1: found the columns node, up; expected time_s, node"),
        ("b.csv", "time_s,node,up_MBps,down_MBps\n0,a,-1,2\n", 'b.csv:2: column "up_MBps": found "-1"; expected MB/s of at least 0'),
        ("b.csv", "time_s,node,up_MBps,down_MBps\n0,a,1,1\n0,a,1,1\n", "b.csv:3: found time_s 0.0, node a again; expected it once"),
        ("b.csv", "time_s,node,up_MBps,down_MBps\n0,a,1,1\n5,b,1,1\n", 'found no row of node "b" at the first time'),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    assert message in refused(lambda: READERS[name](write(tmp_path, name, text)))


def test_what_cannot_be_repaired_says_so() -> None:
    code = ReedSolomon(2, 1)
    placement = Placement.make(code, [[0, 1, 2], [1, 2, 3]], nodes=list("abcd"))
    free = Bandwidth.constant([1] * 4, [1] * 4, list("abcd"))
    three = Bandwidth.constant([1] * 3, [1] * 3, list("abc"))
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: plan_repair(placement, ["a", "b"], free), "stripe 0: found 1 surviving blocks of 3; expected at least k = 2"),
        (lambda: plan_repair(placement, "e", free), 'unknown node "e"'),
        (lambda: plan_repair(placement, [("7", 0)], free), 'unknown stripe "7"'),
        (lambda: plan_repair(placement, [("0", 3)], free), "stripe 0: found block 3; expected 0 to 2"),
        (lambda: plan_repair(placement, None, free), "found no missing block"),
        (lambda: plan_repair(placement, [], free), "nothing is lost"),
        (lambda: plan_repair(placement, "a", free, destination="a"), 'destination "a" is lost itself'),
        (lambda: plan_repair(placement, "a", free, k=3), "found k = 3; expected 2 as in the placement"),
        (lambda: plan_repair(placement, "a", free, block=0), "block: found 0; expected a number of bytes from 1"),
        (lambda: plan_repair(placement, "a", free, technique="magic"), 'unknown technique "magic"'),
        (lambda: plan_repair(placement, "a", three), 'node "d" is in the placement and not in the bandwidth'),
        (lambda: Bandwidth.constant([1, -1], [1, 1]), "found -1 bytes/s; expected 0 or more"),
        (lambda: plan_repair(placement, "a", Bandwidth.constant([1] * 4, [0] * 4, list("abcd"))), "has no downlink free"),
    ]
    for call, message in calls:
        assert message in refused(call)


def test_two_blocks_on_one_node_are_a_warning_or_an_error() -> None:
    placement = Placement.make(ReedSolomon(2, 2), [[0, 1, 1, 2]], nodes=list("abcd"))
    free = Bandwidth.constant([1] * 4, [1] * 4, list("abcd"))
    with pytest.warns(UserWarning, match="stripe 0: two of its blocks stand on one node"):
        plan_repair(placement, "a", free, block=100, slice=1)
    with pytest.raises(InputError, match="two of its blocks stand on one node"):
        plan_repair(placement, "a", free, strict=True)


@settings(max_examples=100)
@given(st.binary(max_size=300), st.sampled_from(["csv", "ceph", "hdfs", "auto"]))
def test_any_bytes_give_a_placement_or_one_line(tmp_path_factory: pytest.TempPathFactory, data: bytes, format: str) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz"
    path.write_bytes(data)
    said = ""
    try:
        read_placement(path, k=2, m=1, format=format)
    except InputError as error:
        said = str(error)
    assert "\n" not in said


def test_the_arena_reads_a_placement_and_a_bandwidth(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = ["# k=4 m=2", "stripe,index,node"]
    rows += [f"{s},{i},n{node}" for s in range(10) for i, node in enumerate(rng.permutation(9)[:6])]
    placement = write(tmp_path, "p.csv", "\n".join(rows) + "\n")
    free = write(tmp_path, "b.csv", "time_s,node,up_MBps,down_MBps\n" + "".join(f"0,n{i},{5 + i},{9 + i}\n" for i in range(9)))
    cases = repair.from_file(placement, {"bandwidth": str(free), "lost": "n0,n3", "block": "65536"})
    assert [case.name for case in cases] == ["p.csv@n0", "p.csv@n3", "p.csv@n0+n3"]
    for case in cases:
        values = repair.execute(repair.make("ran"), case.at(0, 0)).values  # type: ignore[union-attr]
        assert values["correct"] == 1.0
        assert values["repair_throughput"] > 0
    with pytest.raises(InputError, match="found no bandwidth"):
        repair.from_file(placement, {})


def test_a_block_group_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    nodes = " ".join(f"blk_{-16 + i}:DatanodeInfoWithStorage[n{i}:1,a,b]" for i in range(3))
    group = f"0. BP-1:blk_-16_1 len=10 Live_repl=3  [{nodes}]\n"
    head = "/a 10 bytes, erasure-coded: policy=RS-2-1-1024k, 1 block(s):  OK\n"
    (tmp_path / "once.txt").write_text(head + group)
    assert read_placement(tmp_path / "once.txt", format="hdfs").code.n == 3
    (tmp_path / "twice.txt").write_text(head + group + head.replace("/a", "/b") + group)
    with pytest.raises(InputError, match=r"twice.txt:4: found block group blk_-16 twice"):
        read_placement(tmp_path / "twice.txt", format="hdfs")
