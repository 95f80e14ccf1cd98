"""Trace files: every format gives the requests that a person would read in it, plain or compressed, in blocks or whole."""

from __future__ import annotations

import csv
import gzip
import io
import struct

import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.storage.eviction.readers import open_trace, stream, trace_file
from armillary.storage.eviction.readers.fields import NO_DELIMITER, split
from armillary.storage.eviction.workload import from_ids


def save(folder, name, content):
    path = folder / name
    data = content.encode() if isinstance(content, str) else content
    if name.endswith(".gz"):
        data = gzip.compress(data)
    elif name.endswith(".zst"):
        data = zstandard.compress(data)
    path.write_bytes(data)
    return path


def records(rows):
    return b"".join(struct.pack("<IQIq", *row) for row in rows)


def oracle_bytes(ids, sizes, counts_from=1):
    following = from_ids(np.array(ids, np.uint64)).next_access()
    return records((i, one, size, -1 if j == len(ids) else j + counts_from) for i, (one, size, j) in enumerate(zip(ids, sizes, following)))


def seen(trace):
    return trace.objects.tolist(), None if trace.sizes is None else trace.sizes.tolist()


TWITTER = """0,k:1,3,97,1,get,0\n0,k:2,3,0,1,set,600\n1,k:1,3,97,2,gets,0\n2,k:2,3,0,1,delete,0
2,K:1,3,7,1,add,5\n2,k:1,3,7,1,replace,5\n2,k:1,3,7,1,incr,5\n"""
MSR = """128166372003061629,web,0,Read,4096,8192,100\n128166372003061630,web,1,Write,4096,1,100
128166372003061631,web,0,read,8191,2,9\n"""
ALIBABA = "3,R,0,4097,1577808000000000\n3,W,4096,4096,1577808000000001\n4,R,0,512,1577808000000002\n"
TENCENT = "1538323200,8,8,0,1283\n1538323200,15,2,1,1283\n1538323201,0,1,0,7\n"


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
@pytest.mark.parametrize(
    ("name", "content", "options", "format", "objects", "sizes"),
    [
        ("t.csv", "0.5,77,100\n1e1,5,200\n-3,77,100\n", {"columns": "time=0,id=1,size=2"}, "csv", [0, 1, 0], [100, 200, 100]),
        ("n.txt", "77\n5\n77", {}, "text", [0, 1, 0], None), ("w.txt", "/a,b\n/c d\n/a,b\n", {}, "text", [0, 1, 0], None),
        ("t.csv", TWITTER, {}, "twitter", [0, 1, 0, 1, 2, 0, 0], [100, 3, 100, 3, 10, 10, 10]), ("t.csv", MSR, {}, "msr", [0, 1, 2, 0, 1], None),
        ("t.csv", ALIBABA, {}, "alibaba", [0, 1, 1, 2], None), ("t.csv", TENCENT, {"format": "tencent"}, "tencent", [0, 0, 1, 2], None),
    ],
)  # fmt: skip
def test_text_by_hand(tmp_path, name, content, options, format, objects, sizes, ending):
    file = open_trace(save(tmp_path, name + ending, content), **options)
    trace = file.load()
    assert file.format == format
    assert seen(trace) == (objects, sizes)
    assert trace.keys is None or trace.keys.tolist() == [77, 5]
    assert (None if trace.operations is None else trace.operations.tolist()) == ([0, 1, 0, 2, 1, 1, 1] if format == "twitter" else None)


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
@pytest.mark.parametrize("name", ["t.oracleGeneral", "t.oracleGeneral.bin"])
def test_records_by_hand(tmp_path, name, ending):
    data = oracle_bytes([9, 2**64 - 1, 9, 4], [10, 20, 10, 2**32 - 1])  # hashed ids use all 64 bits
    file = open_trace(save(tmp_path, name + ending, data))
    trace = file.load()
    assert file.requests == (None if ending else 4)
    assert seen(trace) == ([0, 1, 0, 2], [10, 20, 10, 2**32 - 1])
    assert trace.keys.tolist() == [9, 2**64 - 1, 4]
    assert trace.next_access().tolist() == [2, 4, 4, 4]


@pytest.mark.parametrize(
    ("content", "options"),
    [
        ("id,size\n5,10\n7,20\n5,10\n", {}),
        ("size,time,Obj_ID\n10,1,5\n20,2,7\n10,3,5\n", {}),
        ("a,b\n10,5\n20,7\n10,5\n", {"columns": "id=b,size=a"}),
        ("a,b\n10,5\n20,7\n10,5\n", {"columns": "id=1,size=0"}),
        ("10,5\n20,7\n10,5\n", {"columns": "id=1,size=0", "header": "no"}),
        ("1,2\n10,5\n20,7\n10,5\n", {"columns": "id=1,size=0", "header": "yes"}),
        ("10\t5\n20\t7\n10\t5\n", {"columns": "id=1,size=0"}),
        ("10;5\n20;7\n10;5\n", {"columns": "id=1,size=0", "delimiter": ";"}),
        ("10  5\n20 7\n10 5\n", {"columns": "id=1,size=0", "delimiter": "space"}),
        ("10,5\r\n20,7\r\n10,5\r\n", {"columns": "id=1,size=0"}),
        ("\ufeff10,5\n\n20,7\n  \n10,5", {"columns": "id=1,size=0"}),
        (' 10 ," 5"\n"20",7\n10," 5"\n', {"columns": "key=1,size=0"}),
        ('10,"a,""b"\n20,b\n10,"a,""b"\n', {"columns": "id=1,size=0"}),
        ("10,x5,more\n20,7\n10,x5\n", {"columns": "id=1,size=0"}),
        ("10,set,5\n20,GET,7\n10,Delete,5\n", {"columns": "id=2,size=0,op=1"}),
    ],
)
def test_tables_written_in_many_ways(tmp_path, content, options):
    assert seen(open_trace(save(tmp_path, "t.csv", content), **options).load()) == ([0, 1, 0], [10, 20, 10])


@pytest.mark.parametrize(
    ("name", "content", "options", "objects", "sizes"),
    [
        ("t.csv", "5,1\n7,1\n5,1\n", {"columns": "id=0,size=0"}, [0, 1, 0], [5, 7, 5]),  # one column may have two roles
        ("t.txt", "7\n007\n", {}, [0, 0], None),  # ids are numbers or text by the look of the first ones
        ("t.txt", "7\n007\nx\n", {}, [0, 1, 2], None),
        ("t.csv", "7,1\n007,1\n", {"columns": "key=0"}, [0, 1], None),
        ("t.csv", "1,ab,c,Read,0,1,0\n1,a,bc,Read,0,1,0\n1,ab,c,Read,0,1,0\n", {}, [0, 1, 0], None),  # the volume is part of an id
    ],
)
def test_which_requests_are_for_the_same_object(tmp_path, name, content, options, objects, sizes):
    assert seen(open_trace(save(tmp_path, name, content), **options).load()) == (objects, sizes)


def test_block_size_and_the_longest_request(tmp_path):
    path = save(tmp_path, "t.csv", f"0,R,0,{2**33},5\n0,R,0,9,5\n")
    with pytest.warns(UserWarning, match=r"t.csv:1: requests of more than 1 GiB"):
        trace = open_trace(path, block=2**20).load()
    assert seen(trace) == ([*range(1024), 0], None)
    with pytest.warns(UserWarning, match=r"z.csv:2: requests of 0 bytes are counted as 1"):
        assert len(open_trace(save(tmp_path, "z.csv", "0,R,0,4096,5\n0,R,0,0,5\n")).load()) == 2
    assert len(open_trace(save(tmp_path, "u.csv", "0,R,511,2,5\n"), block=512).load()) == 2


@pytest.mark.parametrize("text", ["{}", "{:09}the-same-end-of-many-bytes", "the-same-beginning-of-many-bytes{}"])
def test_each_of_the_two_hashes_tells_texts_apart_by_itself(tmp_path, text):
    content = "".join(text.format(i) + "\n" for i in range(20_000)).encode()
    fields = split(tmp_path, np.frombuffer(content, np.uint8), 1, NO_DELIMITER, (0,))
    one, two = fields.hashes((0,), (np.uint64(1), np.uint64(2)))
    again, other = fields.hashes((0,), (np.uint64(1), np.uint64(1)))
    assert len(set(one.tolist())) == len(set(two.tolist())) == 20_000
    assert np.array_equal(one, again)
    assert not np.intersect1d(one, two).size
    assert not np.intersect1d(again, other).size  # even with one seed the two have nothing in common


def test_sizes_of_zero_are_one_and_said_once(tmp_path):
    file = open_trace(save(tmp_path, "t.csv", "id,size\n1,0\n2,5\n3,0\n4,0\n"))
    with pytest.warns(UserWarning, match="counted as 1") as said:
        sizes = [block.sizes.tolist() for block in file.blocks(1)]
    assert (sizes, len(said)) == ([[1], [5], [1], [1]], 1)


def test_many_pieces_and_many_blocks_make_one_trace(tmp_path, monkeypatch):
    """Small pieces cut lines, records and fields everywhere."""
    rng = np.random.default_rng(5)
    ids, sizes = rng.integers(0, 400, 3000), rng.integers(1, 9999, 3000)
    expected = from_ids(ids, sizes)
    csv_path = save(tmp_path, "t.csv", "id,size\n" + "".join(f"{i},{s}\n" for i, s in zip(ids, sizes)))
    bin_path = save(tmp_path, "t.oracleGeneral", oracle_bytes(ids, sizes))
    for piece in (37, 1000):
        monkeypatch.setattr(stream, "PIECE_BYTES", piece)
        for path in (csv_path, bin_path):
            blocks = list(open_trace(path).blocks(701))
            assert [len(block) for block in blocks] == [701] * 4 + [196]
            assert np.array_equal(np.concatenate([block.objects for block in blocks]), expected.objects)
            assert np.array_equal(np.concatenate([block.sizes for block in blocks]), expected.sizes)
            assert [block.distinct for block in blocks] == [len(set(ids[: b.start + len(b)].tolist())) for b in blocks]
            assert seen(open_trace(path).load()) == seen(expected)


@pytest.mark.parametrize("counts_from", [0, 1])
def test_a_stored_next_access_is_used_in_a_stream_when_it_is_true(tmp_path, counts_from):
    ids = np.random.default_rng(2).integers(0, 50, 500)
    path = save(tmp_path, "t.oracleGeneral", oracle_bytes(ids, np.ones(500, int), counts_from))
    stored = np.concatenate([block.next_access() for block in open_trace(path).blocks(64)])
    assert np.array_equal(np.minimum(stored, 500), from_ids(ids).next_access())


def test_a_stored_next_access_that_is_false_is_not_believed(tmp_path):
    ids = [1, 2, 1, 2, 1]
    path = save(tmp_path, "t.oracleGeneral", records((0, one, 1, -1) for one in ids))
    file = open_trace(path)
    assert file.load().next_access().tolist() == [2, 3, 4, 5, 5]
    with pytest.raises(InputError, match="no next accesses to rely on"):
        next(file.blocks()).next_access()


def test_a_next_access_that_turns_false_after_the_prefix_is_found_out(tmp_path, monkeypatch):
    from armillary.storage.eviction.readers import oracle_general

    monkeypatch.setattr(oracle_general, "PREFIX", 4)
    monkeypatch.setattr(stream, "PIECE_BYTES", 5 * 24)
    rows = [(0, 1, 1, 3), (0, 2, 1, 4), (0, 1, 1, -1), (0, 2, 1, 9), (0, 3, 1, -1), (0, 2, 1, -1)]
    path = save(tmp_path, "t.oracleGeneral", records(rows))
    file = open_trace(path)
    first, second = file.blocks(5)
    assert first.next_access()[:3].tolist() == [2, 3, 2**63 - 1]
    with pytest.raises(InputError, match="no next accesses to rely on"):
        second.next_access()
    assert file.load().next_access().tolist() == [2, 3, 6, 5, 6, 6]


def test_a_csv_has_no_future_in_a_stream(tmp_path):
    with pytest.raises(InputError, match="no next accesses to rely on"):
        next(open_trace(save(tmp_path, "t.txt", "1\n1\n")).blocks()).next_access()


def test_a_bomb_is_read_in_small_pieces(tmp_path):
    path = save(tmp_path, "t.txt.zst", b"1\n" * 2**25 + b"x")
    largest = max(len(text) for text, _ in stream.whole_lines(path))
    assert path.stat().st_size < 10_000
    assert largest <= stream.PIECE_BYTES + stream.LINE_BYTES
    assert max(len(piece) for piece in stream.pieces(path)) <= 65 * 2**20


def test_loading_stops_at_its_limit(tmp_path):
    path = save(tmp_path, "t.csv", f"0,R,0,{2**30},5\n" * 100)
    with pytest.raises(InputError, match="more than 100000 requests"):
        open_trace(path).load(most=100_000)


FUZZ = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
cells = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp")), min_size=1, max_size=12)


@FUZZ
@given(rows=st.lists(st.tuples(cells, st.integers(1, 2**40), cells), min_size=1, max_size=30), delimiter=st.sampled_from(",\t;|"))
def test_like_pythons_own_csv_reader(tmp_path, rows, delimiter):
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    path = save(tmp_path, "t.csv", text.getvalue())
    text.seek(0)
    read = list(csv.reader(text, delimiter=delimiter))
    expected = from_ids([row[2] for row in read], [int(row[1]) for row in read])
    trace = open_trace(path, columns="key=2,size=1", delimiter=delimiter, header="no").load()
    assert seen(trace) == seen(expected)


@FUZZ
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40_000), st.integers(1, 20_000)), min_size=1, max_size=20),
    block=st.sampled_from([512, 4096, 5000]),
)
def test_blocks_touched_by_brute_force(tmp_path, rows, block):
    path = save(tmp_path, "t.csv", "".join(f"{d},R,{o},{n},1\n" for d, o, n in rows))
    touched = [f"{d} {b}" for d, o, n in rows for b in range(o // block, (o + n - 1) // block + 1)]
    assert seen(open_trace(path, format="alibaba", block=block).load()) == seen(from_ids(touched))


@pytest.mark.shared_data
@pytest.mark.parametrize("columns", ["", "time=1,id=4,size=3", "time=time,id=lbn,size=size"])
def test_cloudphysics_as_csv_and_as_records_is_one_trace(columns, shared_data):
    binary = open_trace(shared_data / "cache" / "cloudPhysicsIO.oracleGeneral.bin")
    table = open_trace(shared_data / "cache" / "cloudPhysicsIO.csv", columns=columns).load()
    trace = binary.load()
    assert (len(trace), trace.distinct) == (113_872, 48_974)
    assert np.array_equal(trace.objects, table.objects)
    assert np.array_equal(trace.keys, table.keys)
    promised = np.concatenate([block.next_access() for block in binary.blocks(10_000)])
    assert np.array_equal(np.minimum(promised, len(trace)), trace.next_access())


def test_the_formats_are_listed_once():
    assert len({name.lower() for name in trace_file.FORMATS}) == 7
