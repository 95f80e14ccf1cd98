"""The generated logs look as they should, gains are counted as they are defined, and the tools around the arena give back what they get."""

from __future__ import annotations

import gzip
import json
import struct
import tracemalloc
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.arena import NotForThisCase, Outcome
from armillary.compression.logs import ColumnOrder, best, columnar, generate, restore_rows, sort_rows
from armillary.compression.logs.arena import logs
from armillary.compression.logs.planning.technique import Log
from armillary.compression.logs.records.formats import PLAIN, QUOTED, Format
from armillary.compression.logs.streams.compressors import compressor
from armillary.compression.logs.workload import KINDS
from armillary.errors import InputError
from armillary.streams import stream

DATA = Path(__file__).parents[3] / ".." / "shared" / "data" / "logs"
CASES = {case.name: case for case in logs.built_in("tiny")}


@pytest.mark.parametrize("name", KINDS)
def test_a_generated_log_has_its_fields_in_every_order(name: str) -> None:
    texts = [generate(name, 30_000, stream(1, name), order=order) for order in (0, 1, 2)]
    again, _ = generate(name, 30_000, stream(1, name))
    assert again == texts[0][0]
    for data, form in texts:
        assert form.name == KINDS[name].format
        assert 20 <= form.fields <= 25
        assert 30_000 <= len(data) < 33_000
        body = [line for line in data.split(b"\n")[:-1] if not line.startswith(b"#")]
        assert all(len(line) > 50 for line in body[1:])
    # The rows are the same, and their fields stand elsewhere.
    assert [sorted(line) for line in texts[0][0].split(b"\n")] == [sorted(line) for line in texts[1][0].split(b"\n")]
    assert texts[0][0] != texts[1][0] != texts[2][0]
    names = [form.names for _, form in texts]
    if name != "access-log":
        assert sorted(names[0]) == sorted(names[1])
        assert names[0] != names[1]


def test_the_share_of_constants_is_a_parameter() -> None:
    def flags(share: float) -> float:
        data, form = generate("zeek-conn", 60_000, stream(1, "c"), constant_share=share)
        place = form.names.index("local_orig")
        rows = [line.split(b"\t")[place] for line in data.split(b"\n")[:-1] if not line.startswith(b"#")]
        return rows.count(b"T") / len(rows)

    assert flags(1.0) == 1.0
    assert 0.4 < flags(0.5) < 0.6
    for kind, size, share in (("x", 1, 0.9), ("dns", 0, 0.9), ("dns", 1, 2.0)):
        with pytest.raises(InputError):
            generate(kind, size, stream(0), constant_share=share)


def test_the_service_is_a_function_of_the_server() -> None:
    data, form = generate("zeek-conn", 100_000, stream(1, "z"))
    rows = [line.split(b"\t") for line in data.split(b"\n")[:-1] if not line.startswith(b"#")]
    server, service, when = (form.names.index(n) for n in ("id.resp_h", "service", "ts"))
    assert len({row[server] for row in rows}) == len({(row[server], row[service]) for row in rows})
    times = [float(row[when]) for row in rows]
    assert times == sorted(times)


def test_gains_are_over_the_same_compressor_alone() -> None:
    """The general compressors gain nothing over themselves; streams of numbers do."""
    found = {name: logs.execute(logs.make(name), CASES["zeek-conn~1"]) for name in ("gzip-6", "ppmd", "denum", "columnar+types")}
    gains = {name: outcome.values["gain"] for name, outcome in found.items() if isinstance(outcome, Outcome)}
    assert (gains["gzip-6"], gains["ppmd"], gains["denum"]) == (0.0, 0.0, 0.0)
    assert gains["columnar+types"] > 0.05


def test_a_wrong_byte_fails_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    technique = logs.make("zstd-3")
    monkeypatch.setattr(type(technique), "restore", lambda self, decoded, plan: decoded[:-1] + b"?")
    with pytest.raises(ArithmeticError, match="not the log"):
        logs.execute(technique, CASES["json-events"])


def test_compare_answers_in_a_sentence() -> None:
    result = armillary.compare("compression/logs", techniques=["zstd-3", "cfseq", "xz-6"], cases=["zeek-conn"], scale="tiny", repeats=1)
    assert set(result.medians("cfseq", "ratio")) == {"zeek-conn"}
    assert "Reordering the fields alone" in logs._answer(result)  # type: ignore[misc]
    assert logs._plots(result)  # type: ignore[misc]


def test_a_file_of_free_text_is_for_general_compressors_and_denum(tmp_path: Path) -> None:
    path = tmp_path / "sys.log"
    path.write_bytes(b"".join(b"Dec 10 06:55:%02d host sshd[%d]: Failed password for root\r\n" % (i % 60, 24200 + i) for i in range(300)))
    (case,) = logs.from_file(path)
    assert isinstance(logs.execute(logs.make("denum"), case), Outcome)
    for name in ("cfseq", "entropy-order", "random-order", "columnar"):
        assert isinstance(logs.execute(logs.make(name), case), NotForThisCase)
    packed = tmp_path / "packed.log.gz"
    packed.write_bytes(gzip.compress(b"".join(b"10.0.0.%d\t%d\tx\n" % (i % 7, i) for i in range(300))))
    (case,) = logs.from_file(packed)
    assert case.kinds == {"file", "fields"}, "what is read and what is sampled must be the same bytes"
    path.write_bytes(b"a\tb\tc\n" * 7 + b"odd\n" * 3)
    with pytest.raises(InputError, match="lines of the sample"):
        logs.from_file(path, {"format": "tsv"})
    assert logs.from_file(path, {"format": "tsv", "lenient": "true"})


@pytest.mark.shared_data
@pytest.mark.skipif(not DATA.exists(), reason="the shared logs are not here")
@pytest.mark.parametrize("file", ["Apache_2k.log", "OpenSSH_2k.log", "Proxifier_2k.log"])
def test_real_logs_come_back(file: str) -> None:
    (case,) = logs.from_file(DATA / file)
    sizes = {}
    for name in ("gzip-6", "bzip2", "zstd-3", "zstd-19", "xz-6", "brotli-9", "ppmd", "denum"):
        technique: Any = logs.make(name)
        packed = technique.pack(case.workload, None)
        assert technique.restore(technique.decode(packed), None) == case.workload.data
        sizes[name] = len(packed)
    assert sizes["denum"] < sizes["xz-6"]


FORM = Format("csv", QUOTED, ",", 3)
CELL = st.sampled_from([b"0", b"1", b"-5", b"007", b"1.50", b"2.25", b"-0.5", b"-", b"", b'"a,b"', b"x y", b"9" * 25, b"\xff", b"+3"])


LINE = st.one_of(st.tuples(CELL, CELL, CELL).map(b",".join), st.binary(max_size=5))


@settings(max_examples=80, deadline=None)
@given(st.lists(LINE, max_size=30), st.sampled_from([b"\n", b"\r\n"]), st.booleans(), st.booleans())
def test_columns_come_back(lines: list[bytes], end: bytes, last: bool, typed: bool) -> None:
    data = end.join(lines) + (end if last else b"")
    assert columnar.unpack(columnar.pack(Log(data, FORM), "zstd-1", typed)) == data


def test_a_damaged_columnar_archive_is_refused() -> None:
    data, form = generate("dns", 20_000, stream(1, "d"))
    packed = columnar.pack(Log(data, form), "gzip-6", True)
    rng = stream(1, "x")
    for size in rng.integers(len(packed), size=100).tolist():
        with pytest.raises(InputError):
            columnar.unpack(packed[:size])
    with pytest.raises(InputError, match="free text"):
        columnar.pack(Log(data, None), "gzip-6", True)


def bomb(facts: dict[str, Any], raw: bytes, rows: int) -> bytes:
    """An archive of one column, with the other streams as they should be."""
    own = compressor("zstd-3")
    streams = [b"\xff" * -(-rows // 8), b"", b"\x01" * rows, raw]
    bodies = [own.compress(one) for one in streams]
    form = Format("csv", QUOTED, ",", 1)
    told = [{"kind": "x", "bytes": len(body)} for body in bodies[:3]] + [{**facts, "bytes": len(bodies[3])}]
    head = {"lines": rows, "rows": rows, "compressor": "zstd-3", "format": form.to_json(), "streams": told}
    text = compressor("zstd-9").compress(json.dumps(head).encode())
    return columnar.MAGIC + struct.pack("<I", len(text)) + text + b"".join(bodies)


@pytest.mark.parametrize(
    ("facts", "raw", "says"),
    [
        ({"kind": "dictionary", "words": 10**6, "wide": False}, b"w" * 10**6 + b"\0" * 10**6, "set most_bytes"),
        ({"kind": "text", "key": "k" * 10**5}, b"\n" * (10**6 - 1), "set most_bytes"),
        ({"kind": "numbers", "decimals": 10**9, "differences": False}, b"\2" * 10**6, "decimals"),
        ({"kind": "dictionary", "words": 3, "wide": False}, b"abc" + b"\1" * 10**6, "found word 1"),
        ({"kind": "text"}, b"\n" * 10**8, "1000000"),
        ({"kind": "numbers", "decimals": float("inf"), "differences": False}, b"\2" * 10**6, "damaged"),
    ],
)
def test_a_small_archive_does_not_fill_the_memory(facts: dict[str, Any], raw: bytes, says: str) -> None:
    packed = bomb(facts, raw, 10**6)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=says):
            columnar.unpack(packed, most_bytes=1 << 28)
        assert tracemalloc.get_traced_memory()[1] < 600 << 20
    finally:
        tracemalloc.stop()


ROWS = st.lists(st.sampled_from([b"a\tb\tc", b"b\ta\tc", b"a\ta\t9", b"odd", b"", b"#x\ty\tz"]), max_size=40)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.booleans(), st.integers(1, 3))
def test_rows_are_sorted_and_come_back(lines: list[bytes], last: bool, fields: int) -> None:
    data = b"\n".join(lines) + (b"\n" if last else b"")
    form = Format("zeek", PLAIN, "\t", 3, True)
    moved, index = sort_rows(data, form, fields)
    assert sorted(moved.split(b"\n")) == sorted(data.split(b"\n"))
    assert restore_rows(moved, index) == data


def test_rows_sort_within_their_window_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from armillary.compression.logs.planning import rows

    monkeypatch.setattr(rows, "WINDOW", 4)
    form = Format("tsv", PLAIN, "\t", 2)
    moved, index = sort_rows(b"d\t1\nb\t2\nc\t3\na\t4\nz\t5\ny\t6\n", form, 1)
    assert moved == b"a\t4\nb\t2\nc\t3\nd\t1\ny\t6\nz\t5\n"
    assert np.frombuffer(index, "<u2").tolist() == [3, 1, 2, 0, 1, 0]
    assert restore_rows(moved, index) == b"d\t1\nb\t2\nc\t3\na\t4\nz\t5\ny\t6\n"
    with pytest.raises(InputError, match="index"):
        restore_rows(moved, index[:-2])
    with pytest.raises(InputError, match="repeats"):
        restore_rows(moved, index[:2] * 6)
    with pytest.raises(InputError, match="fields"):
        sort_rows(b"", form, 3)
    monkeypatch.setattr(rows, "WINDOW", (1 << 16) + 1)
    with pytest.raises(ValueError, match="16 bits"):
        sort_rows(b"d\t1\n", form, 1)


def test_best_names_a_combination_within_the_budget() -> None:
    data, _ = generate("netflow", 10_000, stream(1, "n"))
    chosen = best(data, 1e9, search_s=0.01)
    assert chosen.ratio == chosen.table["ratio"].max()
    assert chosen.name in chosen.table["combination"].to_list()
    assert "processor seconds" in str(chosen)
    with pytest.raises(InputError, match="fastest"):
        best(data, 1e-9, search_s=0.0)
    with pytest.raises(InputError, match="expected more than 0"):
        best(data, 0)


def test_columns_of_a_table_are_reordered_before_writing() -> None:
    rng = stream(1, "t")
    rows = 2000
    frame = pl.DataFrame(
        {"proto": ["tcp"] * rows, "id": rng.integers(10**9, size=rows), "action": ["accept"] * rows, "port": rng.integers(65536, size=rows)}
    )
    order = ColumnOrder(budget_s=5.0)
    moved = order.fit_transform(frame)
    assert abs(order.order_.index("proto") - order.order_.index("action")) == 1
    assert moved.select(frame.columns).equals(frame)
    if find_spec("pyarrow") is not None:
        assert order.transform(frame.to_arrow()).column_names == list(order.order_)
    assert order.get_params() == {"compressor": "zstd-3", "sample_rows": 40_000, "budget_s": 5.0}
    assert order.set_params(sample_rows=100).fit(frame).sample_rows == 100
    for bad in (lambda: order.transform(frame.drop("id")), lambda: order.fit(frame.clear()), lambda: order.set_params(x=1)):
        with pytest.raises(InputError):
            bad()


def test_arrays_of_lines_through_numcodecs() -> None:
    pytest.importorskip("numcodecs")
    from armillary.compression.logs.codecs.numcodecs_lines import LogLines

    data, _ = generate("firewall-kv", 30_000, stream(1, "f"))
    lines = np.array(data.split(b"\n")[:-1], dtype=object)
    codec = LogLines(budget_s=0.5)
    packed = codec.encode(lines)
    assert len(packed) < len(data) / 5
    assert codec.decode(packed).tolist() == lines.tolist()
    fixed = np.array([[b"a b", b"c"], [b"", b"d"]])
    again = LogLines.from_config(codec.get_config()).decode(codec.encode(fixed))
    assert again.dtype == fixed.dtype
    assert (again == fixed).all()
    for bad in (np.arange(3), np.array([b"a\nb"])):
        with pytest.raises(InputError):
            codec.encode(bad)
    with pytest.raises(InputError):
        codec.decode(packed[:20])
    for head, says in (({"dtype": "S2147483647", "shape": [1]}, "set most_bytes"), ({"dtype": "S5", "shape": [-1, -1]}, "expected")):
        text = json.dumps({**head, "planned": False}).encode()
        with pytest.raises(InputError, match=says):
            codec.decode(struct.pack("<I", len(text)) + text + compressor("zstd-3").compress(b"line\n"))
