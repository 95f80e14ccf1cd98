"""A bad trace file from a stranger ends in one line that names the file and the line, and in nothing else."""

from __future__ import annotations

import gzip
import struct
import warnings

import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.storage.eviction.readers import open_trace

MSR = b"128166372003061629,web,0,Read,4096,8192,100\n"
ALIBABA = b"3,R,0,4097,1577808000000000\n"
TENCENT = b"1538323200,8,8,0,1283\n"
TWITTER = b"0,k:1,3,97,1,get,0\n"


def record(one, size=1, following=-1):
    return struct.pack("<IQIq", 0, one, size, following)


def refused(path, **options):
    """The one line with which `path` is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(InputError) as error:
            open_trace(path, **options).load()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "options", "says"),
    [
        ("t.csv", b"", {}, "t.csv: found an empty file"),
        ("t.csv", b"\n\n  \n", {}, "t.csv: found only blank lines"),
        ("t.csv", b"id,size\n", {}, "t.csv: found no request"),
        ("t.oracleGeneral", record(1) + b"\0" * 23, {}, "t.oracleGeneral: found 47 bytes, 23 after record 1; expected a multiple of 24"),
        ("t.oracleGeneral", record(1), {"columns": "id=0"}, "expected them with csv only"),
        ("t.csv", b"1,2,3\n4,5\n", {"columns": "id=2"}, "t.csv:2: found 2 columns; expected at least 3"),
        ("t.csv", b"\n1,2,3\n\n4,5\n", {"columns": "id=2"}, "t.csv:4: found 2 columns"),
        ("t.csv", b"1\n" * 1500 + b"x\n", {}, 't.csv:1501: column "id": found "x"; expected a whole number from 0 to 2^63-1'),
        ("t.txt", b"5\n-1\n", {}, 't.txt:2: column "id": found "-1"'),
        ("t.txt", b"5\n9223372036854775808\n", {}, 'found "9223372036854775808"'),
        ("t.txt", b"5\n" + b"9" * 300 + b"\n", {}, 't.txt:2: column "id"'),
        ("t.txt", b"5\nNaN\n", {}, 't.txt:2: column "id": found "NaN"'),
        ("t.txt", b"5\n1e5\n", {}, 'found "1e5"'),
        ("t.csv", b"1,5\nnan,6\n", {"columns": "time=0,id=1"}, 't.csv:2: column "time": found "nan"; expected a number'),
        ("t.csv", b"1,5\n13:07,6\n", {"columns": "time=0,id=1"}, 'column "time": found "13:07"'),
        ("t.csv", b"1,5\n1e999,6\n", {"columns": "time=0,id=1"}, 'column "time": found "1e999"'),
        ("t.csv", b"1,5\n1,-6\n", {"columns": "id=0,size=1"}, 'column "size": found "-6"'),
        ("t.csv", b"1,5\n1,2.5\n", {"columns": "id=0,size=1"}, 'column "size": found "2.5"'),
        ("t.csv", b"1,5\n1,1099511627777\n", {"columns": "id=0,size=1"}, 'column "size": found "1099511627777"; expected a whole'),
        ("t.csv", b"1,5\n1,\n", {"columns": "id=0,size=1"}, 't.csv:2: column "size": found ""'),
        ("t.csv", b"a,5\n,6\n", {"columns": "id=0,size=1"}, 't.csv:2: column "id": found ""; expected an id'),
        ("t.csv", b"1,2\n3,4\n", {}, "found 2 columns and no header"),
        ("t.csv", b"a,b\n3,4\n", {}, "found the header a,b"),
        ("t.csv", b"a,b\n3,4\n", {"columns": "id=c"}, 'unknown column "c"'),
        ("t.csv", b"a,b\n3,4\n", {"columns": "id=a", "header": "no"}, 'found column "a" and no header'),
        ("t.csv", b"3,4\n", {"columns": "who=0"}, 'unknown role of a column "who"'),
        ("t.csv", b"3,4\n", {"columns": "size=0"}, "expected one column as id"),
        ("t.csv", b"3,4\n", {"columns": "id=0,key=1"}, "expected one column as id"),
        ("t.csv", b"3,4\n", {"columns": "id=0,id=1"}, 'role "id" twice'),
        ("t.csv", b"3,4\n", {"columns": "id"}, "expected role=column pairs"),
        ("t.csv", b"3,4\n", {"columns": "id=99999999999"}, 'unknown column "99999999999"'),
        ("t.csv", b"3,4\n", {"columns": "id=5000"}, "found 2 columns; expected at least 5001"),
        ("t.csv", b"3,4\n", {"columns": "id=0", "delimiter": "ab"}, 'delimiter "ab"'),
        ("t.csv", b"3,4\n", {"columns": "id=0", "header": "maybe"}, 'unknown header "maybe"'),
        ("t.csv", b"3,4\n", {"format": "tar"}, 'unknown trace format "tar"'),
        ("t.csv", b"3,4\n", {"block": 100}, "block=100"),
        ("t.csv", b'3,"4\n', {"columns": "id=0"}, 't.csv:1: found a " that is not closed'),
        ("t.csv", b'1,2\n3,"4"5\n', {"columns": "id=0"}, 't.csv:2: found a " that is not closed'),
        ("t.csv", b"1,2\n3,\x004\n", {"columns": "id=0"}, "t.csv:2: found the byte 0x00; expected text"),
        ("t.csv", b"\x7fELF\x02\x01\x01" + bytes(range(256)), {}, "t.csv:1: found the byte 0x02"),
        ("t.txt", "5\n7\n".encode("utf-16"), {}, "t.txt:1: found the byte 0x00"),
        ("t.txt", b"5\r7\r", {}, "t.txt:1: found the byte 0x0d"),
        ("t.txt", b"x" * 70_000, {}, "t.txt:1: found a line of more than 65536 bytes"),
        ("t.txt", b"5\n" + b"7" * 70_000 + b"\n", {}, "t.txt:2: found a line of more than 65536 bytes"),
        ("t.oracleGeneral.zst", zstandard.compress(record(1) + b"xyz"), {}, "found 27 bytes, 3 after record 1"),
        ("t.oracleGeneral.zst", zstandard.compress(b""), {}, "found no request"),
        ("t.txt.gz", b"5\n7\n", {}, "t.txt.gz: found no gzip data"),
        ("t.txt.zst", b"5\n7\n9\n11\n13\n", {}, "t.txt.zst: found no Zstandard data"),
        ("t.csv", TWITTER + b"0,k:1,3,9,1,steal,0\n", {"format": "twitter"}, 't.csv:2: column "op": found "steal"; expected one of'),
        ("t.csv", TWITTER * 30 + b"0,k:1,3,97,1,steal,0\n", {}, 't.csv:31: column "op": found "steal"'),
        ("t.csv", TWITTER + b"0,k:1,3,97,1,get\n", {"format": "twitter"}, "t.csv:2: found 6 columns; expected 7"),
        ("t.csv", TWITTER + b"0,,3,97,1,get,0\n", {"format": "twitter"}, 't.csv:2: column "key": found ""'),
        ("t.csv", TWITTER, {"format": "twitter", "columns": "id=1"}, "expected them with csv only"),
        ("t.csv", MSR + b"1,web,0,Trim,0,1,1\n", {"format": "msr"}, 't.csv:2: column "op": found "Trim"; expected one of read'),
        ("t.csv", MSR + b"1,web,0,Read,-4096,1,1\n", {"format": "msr"}, 't.csv:2: column "offset": found "-4096"'),
        ("t.csv", ALIBABA + b"3,R,0,x,1\n", {"format": "alibaba"}, 't.csv:2: column "length": found "x"'),
        ("t.csv", TENCENT + b"1,18014398509481984,8,0,3\n", {"format": "tencent"}, 't.csv:2: column "offset"'),
        ("t.csv", TENCENT + b"1,8,8,2,3\n", {"format": "tencent"}, 'column "op": found "2"; expected one of 0, 1'),
        ("t.dat", b"1\n", {}, "found an ending that does not tell the format"),
    ],
)
def test_refused_in_one_line(tmp_path, name, content, options, says):
    path = tmp_path / name
    path.write_bytes(content)
    line = refused(path, **options)
    assert says in line
    if "unknown" not in says and "block=" not in says and "delimiter" not in says:
        assert name in line


def test_no_path_at_all():
    assert "expected the path" in refused(7)


def test_names_with_control_characters_are_made_visible(tmp_path):
    (tmp_path / "a\nb.csv").write_text("x\x00")
    assert r"a\nb.csv:1: found the byte" in refused(tmp_path / "a\nb.csv")


SOUND = {
    "oracle": ("t.oracleGeneral", b"".join(record(i % 5, 10, i + 6 if i < 15 else -1) for i in range(20)), {}),
    "csv": ("t.csv", b"id,size,time\n" + b"".join(b"%d,%d,%d.5\n" % (i % 7, i + 1, i) for i in range(30)), {}),
    "csv-map": ("t.csv", b'"a b",set,10\nc,get,20\n"x,""y",delete,0\n' * 4, {"columns": "key=0,op=1,size=2"}),
    "text": ("t.txt", b"17\n4\n9223372036854775807\n17\r\n0\n", {}),
    "twitter": ("t.csv", TWITTER * 3 + b"5,abcdefghij,10,0,3,set,60\n", {}),
    "msr": ("t.csv", MSR * 3 + b"1,usr,1,Write,512,70000,5\n", {"block": 2**20}),
    "alibaba": ("t.csv", ALIBABA * 3, {"block": 2**20}),
    "tencent": ("t.csv", TENCENT * 3, {"block": 2**20, "format": "tencent"}),
    "gzip": ("t.csv.gz", gzip.compress(b"id,size\n" + b"5,10\n6,11\n" * 20, mtime=0), {}),
    "zstd": ("t.csv.zst", zstandard.compress(b"id,size\n" + b"5,10\n6,11\n" * 20), {}),
    "oracle-zstd": ("t.oracleGeneral.bin.zst", zstandard.compress(b"".join(record(i % 3, 9) for i in range(9))), {}),
}

AWKWARD = [b",", b"\n", b'"', b"\r\n", b"-", b"nan", b"99999999999999999999", b"\0", b"\xff\xfe", b"\t", b"1" * 25]
edit = st.tuples(
    st.sampled_from(["put", "insert", "cut", "end"]), st.integers(0, 2**16), st.one_of(st.binary(max_size=6), st.sampled_from(AWKWARD))
)
edits = st.lists(edit, min_size=1, max_size=6)


def edited(content, changes):
    data = bytearray(content)
    for what, where, new in changes:
        at = where % (len(data) + 1)
        if what == "end":
            del data[at:]
        else:
            data[at : at + {"put": len(new), "insert": 0, "cut": where % 7}[what]] = b"" if what == "cut" else new
    return bytes(data)


@pytest.mark.parametrize("kind", SOUND)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(changes=[])
@given(changes=edits)
def test_a_damaged_file_is_read_or_refused(tmp_path, kind, changes):
    name, content, options = SOUND[kind]
    path = tmp_path / name
    path.write_bytes(edited(content, changes))
    said = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            trace = open_trace(path, **options).load()
        except InputError as refusal:
            said = str(refusal)
        else:
            assert trace.objects.min() >= 0
            assert trace.objects.max() == trace.distinct - 1
            assert trace.sizes is None or trace.sizes.min() >= 1
    assert "\n" not in said
    assert changes or (not said and len(trace) >= 3), "the file without damage is sound"
