"""Histories, networks and clocks from files, and the auditor: what they give, and one line for each fault."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.storage.synchronization import LwwCloud, TransactionalLink, VersionVector, audit, generate, record, simulate
from armillary.storage.synchronization.world.histories import read_clocks, read_git_log, read_inotify, read_network
from armillary.storage.synchronization.world.schedule import Operation, Outage, Schedule, Weather

GIT = 'commit 1234567 100 Ann Lee\n\nA\tf\nA\td/g\n\ncommit 2234567 200 Bo\n\nM\tf\nR100\td/g\td/h\nR080\tf\t"\\303\\274\\n"\n\ncommit 3234567 150 Bo\n\nD\td/h\n'


def test_a_git_log_is_a_schedule(tmp_path: Path) -> None:
    log = tmp_path / "h.gitlog"
    log.write_text(GIT)
    schedule = read_git_log(log)
    assert schedule.replicas == ("Ann Lee", "Bo")
    words = [(op.op, op.path, op.to) for op in schedule.operations if op.op not in ("begin", "end")]
    assert words == [
        ("write", "f", ""), ("write", "d/g", ""), ("write", "f", ""), ("rename", "d/g", "d/h"), ("rename", "f", "ü\n"), ("write", "ü\n", ""),
        ("delete", "d/h", ""),
    ]  # fmt: skip
    assert [op.group for op in schedule.operations if op.op == "begin"] == ["1234567", "2234567", "3234567"]
    assert simulate(schedule, TransactionalLink()).counts["refused_ops"] == 0


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
def test_the_log_of_a_real_repository(tmp_path: Path) -> None:
    def git(*words: str, author: str = "Ann") -> str:
        who = ["-c", f"user.name={author}", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *who, *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    git("init", "-q")
    (tmp_path / "a b").write_text("1\n2\n3\n")
    for change, author in ((("add", "-A"), "Ann"), (("mv", "a b", "c"), "Bo"), (("rm", "-q", "c"), "Ann")):
        git(*change)
        git("commit", "-qm", change[0], author=author)
    text = git("log", "--all", "--reverse", "--date=unix", "--name-status", "--pretty=commit %H %ad %an")
    log = tmp_path / "log"
    log.write_text(text)
    words = [(op.replica, op.op, op.path) for op in read_git_log(log).operations if not op.op.startswith(("begin", "end"))]
    assert words == [("Ann", "write", "a b"), ("Bo", "rename", "a b"), ("Ann", "delete", "c")]


def test_inotify_logs_are_a_schedule(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    events = ("10|%sf|CREATE", "10|%sf|CLOSE_WRITE,CLOSE", "12|%sf|MOVED_FROM", "12|%sg|h|MOVED_TO", "13|%sd|CREATE,ISDIR")
    a.write_text("".join(event % "/home/x/" + "\n" for event in events))
    b.write_text("11|./f|CLOSE_WRITE,CLOSE\n14|./f|MOVED_FROM\n15|./k|DELETE\n16|./m|MOVED_TO\n")
    schedule = read_inotify({"A": a, "B": b}, {"A": "/home/x"})
    assert [(op.t, op.replica, op.op, op.path, op.to) for op in schedule.operations] == [
        (0, "A", "write", "f", ""), (1, "B", "write", "f", ""), (2, "A", "rename", "f", "g|h"), (3, "A", "mkdir", "d", ""),
        (4, "B", "delete", "f", ""), (5, "B", "delete", "k", ""), (6, "B", "write", "m", ""),
    ]  # fmt: skip


def test_networks_and_clocks(tmp_path: Path) -> None:
    net, clocks = tmp_path / "net.csv", tmp_path / "clocks.csv"
    net.write_text("t0,t1,a,b,down,delay_ms,loss,dup\n50,200,A,*,1,,,\n0,10,A,B,,500,1,\n")
    clocks.write_text("replica,offset_s,drift_ppm\nB,-3600,\nA,0.5,20\n")
    found = read_network(net)
    assert found == {"outages": (Outage(50, 200, "A"),), "weather": (Weather(0, 10, "A", "B", 0.5, 1.0, None),)}
    assert read_clocks(clocks) == {"B": (-3600.0, 0.0), "A": (0.5, 20.0)}
    ops = (Operation(1, "A", "write", "f"), Operation(100, "A", "write", "f"), Operation(101, "B", "write", "f"))
    outcome = simulate(Schedule(("A", "B"), ops, clocks=read_clocks(clocks), **found), LwwCloud())  # type: ignore[arg-type]
    assert outcome.counts["lost_updates"] == 1


def test_weather_delays_loses_and_doubles() -> None:
    def delay(*weather: Weather) -> float:
        schedule = Schedule(("A", "B"), (Operation(1, "A", "write", "f"),), weather=weather)
        return simulate(schedule, VersionVector()).counts["visible_delay_s"]

    assert delay() < 0.4 < delay(Weather(0, 100, "A", "B", delay_s=4.0)) < 60
    assert 90 < delay(Weather(0, 95, loss=1.0)) < 105
    assert delay(Weather(0, 95, duplication=1.0)) < 0.4


#: A line of the auditor's log with this event and these further keys.
AUDIT = '{"t": 2, "replica": "A", "event": "%s", "path": "f"%s}\n'


def read_two(path: Path) -> Schedule:
    return read_inotify({"A": path, "B": path})


@pytest.mark.parametrize(
    ("reader", "text", "says"),
    [
        (read_git_log, "A\tf\n", 'bad:1: found "A\\tf"; expected "commit'),
        (read_git_log, "commit 1234567 1 A\nX\tf\n", "bad:2: found"),
        (read_git_log, "commit 1234567 1 A\nA\t../f\n", "bad:2: path: found"),
        (read_git_log, 'commit 1234567 1 A\nA\t"\\q"\n', "bad:2: path: found the escape"),
        (read_git_log, "commit 1234567 1 A\nA\tf\n", "replicas: found ['A']"),
        (read_two, "10 f CREATE\n", "bad:1: found"),
        (read_two, "x|./f|CLOSE_WRITE\n", 'bad:1: time: found "x"'),
        (read_two, "10|./f|CLOSE_WRITE\n9|./f|DELETE\n", "bad:2: time: found 9 after 10"),
        (read_two, "10|/etc/f|CLOSE_WRITE\n", "bad:1: path: found"),
        (read_network, "t0,t1,a,b,down\n5,1,A,B,1\n", "bad:2: found 5 to 1"),
        (read_network, "t0,t1,a,b,loss\n0,1,A,B,1.5\n", 'bad:2: column "loss": found "1.5"'),
        (read_clocks, "replica,offset_s\nA,1\nA,2\n", "bad:3: found replica A again"),
        (audit, AUDIT % ("wirte", ""), 'did you mean "write"'),
        (audit, AUDIT % ("delete", "") + (AUDIT % ("delete", "")).replace("2", "1"), "bad:2: t"),
        (audit, (AUDIT % ("delete", "")).replace("2", "true"), "bad:1: t: found True"),
        (audit, AUDIT % ("write", ""), "bad:1: content: found"),
        (audit, (AUDIT % ("write", ', "content": "x"')).replace('"f"', '"/f"'), "bad:1: path: found"),
        (audit, AUDIT % ("put", ', "contents": "x"'), "bad:1: contents, from: found"),
    ],
)
def test_bad_files(tmp_path: Path, reader: Any, text: str, says: str) -> None:
    bad = tmp_path / "bad"
    bad.write_text(text)
    with pytest.raises(InputError) as error:
        reader(bad)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("world", "says"),
    [({"weather": (Weather(5, 5),)}, "weather: found 5 to 5"), ({"weather": (Weather(0, 5, "Q"),)}, 'unknown replica "Q"'),
     ({"weather": (Weather(0, 5, delay_s=-1),)}, "delay: found -1"), ({"weather": (Weather(0, 5, loss=2),)}, "loss: found 2"),
     ({"evicts": {"Q": 1.0}}, 'unknown replica "Q"'), ({"evicts": {"A": -1.0}}, "evicts of A: found -1.0")],
)  # fmt: skip
def test_bad_worlds(world: dict[str, object], says: str) -> None:
    with pytest.raises(InputError) as error:
        Schedule(("A", "B"), (), **world)  # type: ignore[arg-type]
    assert says in str(error.value)


def log(path: Path, *rows: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_an_audit_by_hand(tmp_path: Path) -> None:
    """A and B write f apart, the tool keeps A's; it brings the deleted g back; of a group it shows one file without the other."""
    found = audit(log(
        tmp_path / "log",
        {"t": 1, "replica": "A", "event": "write", "path": "f", "content": "f0"},
        {"t": 2, "replica": "B", "event": "put", "path": "f", "contents": ["f0"]},
        {"t": 3, "replica": "A", "event": "write", "path": "f", "content": "fA"},
        {"t": 4, "replica": "B", "event": "write", "path": "f", "content": "fB"},
        {"t": 5, "replica": "B", "event": "put", "path": "f", "contents": ["fA"]},
        {"t": 6, "replica": "A", "event": "write", "path": "g", "content": "g0"},
        {"t": 7, "replica": "A", "event": "delete", "path": "g"},
        {"t": 8, "replica": "B", "event": "put", "path": "g", "contents": ["g0"]},
        {"t": 10, "replica": "A", "event": "write", "path": "x", "content": "x0", "group": "G"},
        {"t": 10, "replica": "A", "event": "write", "path": "y", "content": "y0", "group": "G"},
        {"t": 10, "replica": "A", "event": "end", "group": "G"},
        {"t": 11, "replica": "B", "event": "put", "path": "x", "contents": ["x0"]},
        {"t": 12, "replica": "B", "event": "put", "path": "y", "contents": ["y0"]},
    ))  # fmt: skip
    assert found.rows() == [
        ("lost update", 4.0, "B", "f", "fB", "", 4),
        ("resurrection", 6.0, "B", "g", "g0", "", 6),
        ("torn group", 11.0, "B", "x", "x0", "G", 13),
    ]
    clean = audit(log(tmp_path / "clean", {"t": 1, "replica": "B", "event": "put", "path": "f", "contents": ["old"]}))
    assert clean.is_empty()
    assert clean.columns == found.columns


@pytest.mark.parametrize("name", ["pair", "skewed-clocks", "long-offline", "flapping"])
def test_an_audit_of_a_recorded_run_finds_what_the_simulator_counted(tmp_path: Path, name: str) -> None:
    schedule = generate(name, np.random.default_rng(3), 40)
    for protocol in (LwwCloud(), TransactionalLink()):
        outcome = record(schedule, protocol, tmp_path / "log")
        found = audit(tmp_path / "log")["finding"].to_list()
        assert found.count("lost update") == outcome.counts["lost_updates"]
        assert found.count("resurrection") == outcome.counts["resurrected"]
        # The auditor looks at every moment, the simulator only when somebody reads.
        if isinstance(protocol, TransactionalLink):
            assert found == []
