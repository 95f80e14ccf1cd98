"""Timelines: columns, exports that others can read, and what took the time."""

from __future__ import annotations

import json
import re
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.engine import Timeline
from armillary.errors import InputError


def small() -> Timeline:
    line = Timeline([("node 0", "rank 0"), "node 0/rank 1", ("node 1", "rank 2")])
    line.span(0, "gemm", 0.0, 2e-6, "compute", {"flops": 12})
    line.span(0, "send", 2e-6, 3e-6, "comm")
    line.span(2, 'recv "x"', 1e-6, 4e-6, "comm")
    line.span(2, "gemm", 4e-6, 7.5e-6, "compute")
    line.instant(1, "mark", 5e-6, "note")
    line.counter(1, "bytes", 0.0, 10.0)
    line.counter(1, "bytes", 5e-6, 30.0)
    line.arrow(0, 2.5e-6, 2, 4e-6, "halo", size=4096, tag=7)
    return line


def test_a_span_takes_at_most_64_bytes():
    line = Timeline(["a/b"])
    for i in range(1000):
        line.span(0, f"step {i % 3}", i, i + 1.0, "compute")
    assert line.spans.nbytes <= 64 * 1000


def test_chrome_json_says_what_happened(tmp_path):
    small().to_chrome(tmp_path / "t.json")
    read = json.loads((tmp_path / "t.json").read_text())
    assert read["displayTimeUnit"] == "ns"
    by_kind = defaultdict(list)
    for event in read["traceEvents"]:
        by_kind[event["ph"]].append(event)
    assert [(e["name"], e["ts"], e["dur"], e["pid"], e["tid"]) for e in by_kind["X"]] == [
        ("gemm", 0.0, 2.0, 0, 0),
        ("send", 2.0, 1.0, 0, 0),
        ('recv "x"', 1.0, 3.0, 1, 2),
        ("gemm", 4.0, 3.5, 1, 2),
    ]
    assert by_kind["X"][0]["args"] == {"flops": 12}
    assert {e["name"] for e in by_kind["M"]} == {"process_name", "thread_name", "thread_sort_index"}
    assert [e["args"]["name"] for e in by_kind["M"] if e["name"] == "process_name"] == ["node 0", "node 1"]
    assert [e["args"]["value"] for e in by_kind["C"]] == [10.0, 30.0]
    start, finish = by_kind["s"][0], by_kind["f"][0]
    assert (start["id"], start["tid"], start["ts"]) == (0, 0, 2.5)
    assert (finish["id"], finish["tid"], finish["ts"]) == (0, 2, 4.0)
    assert len(by_kind["i"]) == 1
    assert re.search(r'"ts":2\.000,"dur":1\.000', (tmp_path / "t.json").read_text())


HEADER = re.compile(r"#Paraver \((\d\d/\d\d/\d\d at \d\d:\d\d)\):(\d+)_ns:(\d+)\(([\d,]+)\):1:(\d+)\(([\d:,]+)\)")


def parse_prv(text: str) -> list[tuple[int, ...]]:
    """A reader of the record grammar that knows nothing of the writer; raises on anything else."""
    lines = text.splitlines()
    header = HEADER.fullmatch(lines[0])
    assert header, lines[0]
    whole, nodes, tasks = int(header[2]), int(header[3]), int(header[5])
    cpus = [int(x) for x in header[4].split(",")]
    shape = [tuple(map(int, x.split(":"))) for x in header[6].split(",")]
    assert len(cpus) == nodes
    assert len(shape) == tasks
    fields = {1: 8, 2: None, 3: 15}
    records, last = [], 0

    def check(cpu, appl, task, thread):
        assert 1 <= cpu <= sum(cpus)
        assert appl == 1
        assert 1 <= task <= tasks
        assert 1 <= thread <= shape[task - 1][0]
        node = shape[task - 1][1]
        assert sum(cpus[: node - 1]) < cpu <= sum(cpus[:node])

    for line in lines[1:]:
        assert re.fullmatch(r"-?\d+(:-?\d+)+", line), line
        record = tuple(map(int, line.split(":")))
        assert record[0] in fields, line
        check(*record[1:5])
        if record[0] == 1:
            assert len(record) == 8
            assert 0 <= record[5] <= record[6] <= whole
        elif record[0] == 2:
            assert len(record) >= 8
            assert len(record) % 2 == 0
        else:
            assert len(record) == 15
            check(*record[7:11])
            logical_sent, physical_sent, logical_got, physical_got = record[5], record[6], record[11], record[12]
            assert logical_sent <= physical_sent <= physical_got
            assert logical_got <= whole
        assert last <= record[5] <= whole, "times never decrease"
        last = record[5]
        records.append(record)
    return records


def test_paraver_files_follow_the_grammar(tmp_path):
    small().to_paraver(tmp_path / "t.prv", date="15/11/26 at 04:00")
    text = (tmp_path / "t.prv").read_text()
    assert text.splitlines()[0] == "#Paraver (15/11/26 at 04:00):7500_ns:2(2,1):1:2(2:1,1:2)"
    records = parse_prv(text)
    assert [r[1:] for r in records if r[0] == 1] == [
        (1, 1, 1, 1, 0, 2000, 1),
        (3, 1, 2, 1, 1000, 4000, 2),
        (1, 1, 1, 1, 2000, 3000, 2),
        (3, 1, 2, 1, 4000, 7500, 1),
    ]
    assert [r for r in records if r[0] == 3] == [(3, 1, 1, 1, 1, 2500, 2500, 3, 1, 2, 1, 4000, 4000, 4096, 7)]
    meaning = (tmp_path / "t.pcf").read_text()
    states = dict(re.findall(r"^(\d+)    (\w+)$", meaning.split("STATES")[1].split("EVENT_TYPE")[0], re.MULTILINE))
    assert set(states.values()) == {"Idle", "compute", "comm"}
    for record in records:
        if record[0] == 1:
            assert str(record[7]) in states
        if record[0] == 2:
            assert f"0    {record[6]}    " in meaning
    names = (tmp_path / "t.row").read_text()
    assert re.findall(r"LEVEL (\w+) SIZE (\d+)", names) == [("CPU", "3"), ("NODE", "2"), ("TASK", "2"), ("THREAD", "3")]
    assert "node 1 rank 2" in names


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 10**7), st.integers(0, 10**6), st.sampled_from(["a", "b\nc", 'd"e'])), max_size=30
    ),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 10**7), st.integers(0, 10**6)), max_size=10),
)
def test_every_export_can_be_read(spans, arrows):
    import tempfile
    from pathlib import Path

    line = Timeline(["x/0", "y/0", "x/1", "z/\n"])
    for track, start, length, name in spans:
        line.span(track, name, start * 1e-9, (start + length) * 1e-9, name)
    for a, b, sent, took in arrows:
        line.arrow(a, sent * 1e-9, b, (sent + took) * 1e-9, size=took)
    with tempfile.TemporaryDirectory() as folder:
        line.to_chrome(Path(folder) / "t.json")
        line.to_paraver(Path(folder) / "t.prv")
        events = json.loads((Path(folder) / "t.json").read_text())["traceEvents"]
        records = parse_prv((Path(folder) / "t.prv").read_text())
    assert sum(e["ph"] == "X" for e in events) == sum(r[0] == 1 for r in records) == len(spans)
    assert sum(r[0] == 3 for r in records) == len(arrows)
    assert sorted(round(e["ts"] * 1000) for e in events if e["ph"] == "X") == sorted(start for _, start, _, _ in spans)


def test_use_and_overlap_by_hand():
    line = Timeline(["gpu/0", "gpu/1"])
    for start, end, category in (
        (0.0, 4.0, "compute"),
        (3.0, 6.0, "comm"),
        (5.0, 7.0, "compute"),
        (5.5, 6.5, "compute"),
        (9.0, 10.0, "comm"),
    ):
        line.span(0, "x", start, end, category)
    assert line.utilisation(0) == 0.8
    assert line.utilisation(0, 0.0, 5.0) == 1.0
    assert line.utilisation(1) == 0.0
    assert line.overlap(0, "compute", "comm") == 2.0
    assert line.overlap(0, "compute", "nothing") == 0.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15), st.booleans()), max_size=25))
def test_overlap_equals_counting_every_second(spans):
    line = Timeline(["a/b"])
    seconds: dict[bool, set[int]] = {True: set(), False: set()}
    for start, length, which in spans:
        line.span(0, "x", float(start), float(start + length), str(which))
        seconds[which] |= set(range(start, start + length))
    assert line.overlap(0, "True", "False") == len(seconds[True] & seconds[False])


def test_the_critical_path_follows_the_message_that_was_waited_for():
    line = Timeline(["n/0", "n/1"])
    line.span(0, "long", 0.0, 5.0)
    line.span(0, "send", 5.0, 6.0)
    line.span(0, "idle end", 6.0, 6.5)
    line.span(1, "short", 0.0, 1.0)
    line.span(1, "recv", 1.0, 8.0)
    line.span(1, "finish", 8.0, 10.0)
    line.arrow(0, 6.0, 1, 8.0)
    path = line.critical_path()
    assert [(s.name, s.start, s.end, s.by_arrow) for s in path] == [
        ("long", 0.0, 5.0, False),
        ("send", 5.0, 6.0, False),
        ("finish", 8.0, 10.0, True),
    ]


def test_a_receive_that_is_last_leads_back_to_the_sender():
    line = Timeline(["n/0", "n/1"])
    line.span(0, "send", 2.0, 3.0)
    line.span(1, "recv", 1.0, 8.0)
    line.arrow(0, 2.5, 1, 8.0)
    assert [(s.name, s.start, s.end) for s in line.critical_path()] == [("send", 2.0, 2.5), ("recv", 8.0, 8.0)]


def test_a_message_that_came_early_is_not_on_the_critical_path():
    line = Timeline(["n/0", "n/1"])
    line.span(0, "send", 0.0, 1.0)
    line.span(1, "work", 0.0, 5.0)
    line.span(1, "more", 5.0, 7.0)
    line.arrow(0, 1.0, 1, 2.0)
    assert [s.name for s in line.critical_path()] == ["work", "more"]


def test_a_frame_has_a_row_for_each_span():
    frame = small().frame()
    assert frame.columns == ["process", "thread", "name", "category", "start", "end", "args"]
    assert frame["thread"].to_list() == ["rank 0", "rank 0", "rank 2", "rank 2"]
    assert Timeline().frame().height == 0
    assert Timeline().critical_path() == []


@pytest.mark.parametrize(
    "call",
    [
        lambda line: line.span(9, "x", 0.0, 1.0),
        lambda line: line.span(0, "x", 2.0, 1.0),
        lambda line: line.span(0, "x", float("nan"), 1.0),
        lambda line: line.span(0, "x", -1.0, 1.0),
        lambda line: line.instant(0, "x", float("inf")),
        lambda line: line.counter(0, "x", 0.0, float("nan")),
        lambda line: line.arrow(0, 1.0, 1, 0.5),
        lambda line: line.to_paraver("t.prv", date="yesterday"),
        lambda line: line.to_chrome("/nowhere/at/all.json"),
    ],
)
def test_bad_entries_are_input_errors(call):
    with pytest.raises(InputError):
        call(small())
