"""The store: what is committed stays, whatever happens to the process or the disk."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from armillary.arena import Artifact
from armillary.errors import InputError
from armillary.study import store as stores
from armillary.study.store import Report, Store, StoreError
from armillary.study.unit import Unit


def unit(number: int, **how: object) -> Unit:
    return Unit("outside/draws", "plain", "{}", f"case-{number}", "ab" * 32, 0, 0, "cd" * 32, **how)  # type: ignore[arg-type]


def filled(path: Path, count: int = 3) -> Store:
    store = Store.open(path)
    study = store.begin("identity", 0, "armillary compare", '{"recipe": {}}')
    store.enrol(study, [unit(i) for i in range(count)])
    return store


def test_what_is_finished_is_there(tmp_path: Path) -> None:
    with filled(tmp_path / "s.db") as store:
        store.start(unit(0), "w")
        store.finish(unit(0), Report("done", {"total": ("simulated", 1.5)}, [Artifact("a.json", "application/json", b"{}")]))
        store.finish(unit(1), Report("failed", {}, error="bad"))
    with Store.read(tmp_path / "s.db") as store:
        states = store.states([unit(i) for i in range(4)])
        assert states[unit(0).id] == ("done", "cd" * 16, frozenset({"total"}))
        assert states[unit(1).id][0] == "failed"
        assert states[unit(2).id][0] == "planned"
        assert unit(3).id not in states
        assert [a.data for a in store.artifacts(unit(0).id)] == [b"{}"]
        assert store.results(1)[1] == [(1, "total", "simulated", 1.5)]


def test_a_rerun_replaces_values(tmp_path: Path) -> None:
    with filled(tmp_path / "s.db") as store:
        store.finish(unit(0), Report("done", {"total": ("simulated", 1.0), "old": ("simulated", 2.0)}))
        store.finish(unit(0), Report("done", {"total": ("simulated", 3.0)}))
        assert store.results(1)[1] == [(1, "total", "simulated", 3.0)]


def test_values_of_a_unit_that_is_being_rerun_do_not_count(tmp_path: Path) -> None:
    with filled(tmp_path / "s.db") as store:
        store.finish(unit(0), Report("done", {"total": ("simulated", 1.0)}))
        store.start(unit(0), "w")
        assert store.results(1)[1] == []


def test_a_dead_coordinators_units_go_back(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[2])\n"
        "from test_store import *\n"
        "s = filled(Path(sys.argv[1])); s.start(unit(0), 'w'); s.finish(unit(1), Report('done', {'total': ('simulated', 1.0)}))\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path), str(Path(__file__).parent)]).returncode == -9
    with Store.open(path) as store:
        states = store.states([unit(0), unit(1)])
        assert states[unit(0).id][0] == "planned"
        assert states[unit(1).id][0] == "done"


def test_a_second_coordinator_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with filled(path), pytest.raises(StoreError, match=f"process {os.getpid()} on .* is writing"):
        Store.open(path)
    Store.open(path).close()


def test_readers_do_not_wait_for_a_writer(tmp_path: Path) -> None:
    with filled(tmp_path / "s.db") as store, store._transaction(), Store.read(tmp_path / "s.db") as reader:
        assert len(reader.studies()) == 1


def test_a_full_disk_stops_with_one_line_and_an_intact_file(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = Store.open(path, max_pages=60)
    study = store.begin("identity", 0, "", "{}")
    kept = 0
    with pytest.raises(StoreError, match="full") as caught:
        for i in range(10_000):
            store.enrol(study, [unit(i)])
            store.finish(unit(i), Report("done", {"total": ("simulated", float(i))}))
            kept += 1
    assert "\n" not in str(caught.value)
    store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert connection.execute("SELECT count(*) FROM unit WHERE state = 'done'").fetchone() == (kept,)
    assert kept > 10


def test_strange_files_are_refused_untouched(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("not a database, but long enough to look at" * 100)
    other = tmp_path / "other.db"
    sqlite3.connect(other).executescript("CREATE TABLE t (x); INSERT INTO t VALUES (1);")
    for path in (text, other):
        before = path.read_bytes()
        for opener in (Store.open, Store.read):
            with pytest.raises(InputError, match="store of Armillary"):
                opener(path)
        assert path.read_bytes() == before
    with pytest.raises(InputError, match="no file"):
        Store.open(tmp_path)
    with pytest.raises(InputError, match="no such store"):
        Store.read(tmp_path / "absent.db")


def test_a_damaged_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with filled(path, 2000):
        pass
    data = bytearray(path.read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 200] = b"\xff" * 200
    path.write_bytes(data)
    with pytest.raises((StoreError, InputError)):
        Store.open(path)
    assert path.read_bytes() == bytes(data)


def test_a_newer_schema_is_refused_with_both_numbers(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    filled(path).close()
    sqlite3.connect(path).execute(f"PRAGMA user_version = {stores.SCHEMA + 1}").connection.commit()
    with pytest.raises(InputError, match=f"schema {stores.SCHEMA + 1}; this one knows {stores.SCHEMA}"):
        Store.open(path)


def test_an_older_schema_is_migrated_after_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    with filled(path) as store:
        store.finish(unit(0), Report("done", {"total": ("simulated", 1.0)}))
    monkeypatch.setattr(stores, "SCHEMA", stores.SCHEMA + 1)
    monkeypatch.setattr(stores, "MIGRATIONS", {stores.SCHEMA - 1: "ALTER TABLE study ADD COLUMN mood TEXT;"})
    with Store.open(path) as store:
        assert store.db.execute("PRAGMA user_version").fetchone() == (stores.SCHEMA,)
        assert store.db.execute("SELECT mood FROM study").fetchall() == [(None,)]
        assert store.states([unit(0)])[unit(0).id][0] == "done"
    assert path.with_name("s.db.bak").exists()


def test_listing_uses_indices(tmp_path: Path) -> None:
    with filled(tmp_path / "s.db") as store:
        for query in (
            "SELECT claim, state, figure, max(judged) FROM verdict GROUP BY claim",
            "SELECT * FROM unit WHERE arena = 'a' AND technique = 't'",
            "SELECT key FROM unit WHERE id = x'00'",
        ):
            steps = " ".join(str(row[3]) for row in store.db.execute("EXPLAIN QUERY PLAN " + query))
            assert "INDEX" in steps, (query, steps)


@pytest.mark.slow
def test_two_hundred_thousand_units_fit(tmp_path: Path) -> None:
    path = tmp_path / "big.db"
    units = [
        Unit("storage/eviction", f"technique-{i % 14}", '{"points":[0.1,0.2]}', f"case-{i // 14}@large", "ab" * 32, 0, 0, "cd" * 32)
        for i in range(200_000)
    ]
    with Store.open(path) as store:
        store.enrol(store.begin("big", 0, "", "{}"), units)
        metrics = [store._metric(f"metric_{m}", "simulated") for m in range(10)]
        store.db.execute("BEGIN")
        store.db.executemany("INSERT INTO value VALUES (?,?,?)", ((u + 1, m, u * 0.37 + m) for u in range(len(units)) for m in metrics))
        store.db.execute("COMMIT")
        store.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert path.stat().st_size < 120e6
