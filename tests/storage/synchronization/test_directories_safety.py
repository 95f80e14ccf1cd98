"""Two real directories: lost state, changes in the middle of a round, what cannot be read, and what is refused."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat

import pytest
from directory_trees import STATE, both, contents, tree

from armillary.errors import InputError
from armillary.storage.synchronization.directories import Replica, connect, scanning, sync
from armillary.storage.synchronization.directories.__main__ import main
from armillary.storage.synchronization.directories.entries import check_entry_path, conflict_name


def connect_while(pair, change):
    """Synchronises two directories; `change` happens on the right after the scan, before anything is placed there."""
    with Replica(pair[0], durable=False) as left, Replica(pair[1], durable=False) as right, pytest.MonkeyPatch.context() as patch:
        take = right.take

        def change_then_take(items):
            change()
            return take(items)

        patch.setattr(right, "take", change_then_take)
        return connect(left, right)


def test_state_lost_deletes_nothing(pair, a, b):
    for name in ("both", "gone-here", "gone-there"):
        (a / name).write_bytes(name.encode())
    both(pair)
    shutil.rmtree(b / STATE)
    (b / "gone-here").unlink()
    (a / "gone-there").unlink()
    report = both(pair)
    assert report.status == "in sync"
    assert set(tree(a)) == {b"both", b"gone-here", b"gone-there"}


def test_a_replica_that_was_away_brings_nothing_back(a, b, tmp_path):
    c = tmp_path / "c"
    c.mkdir()
    (a / "f").write_bytes(b"old")
    sync(a, b, durable=False)
    sync(b, c, durable=False)
    (a / "f").unlink()
    for _ in range(3):
        sync(a, b, durable=False)
    sync(b, c, durable=False)
    sync(c, a, durable=False)
    assert tree(a) == tree(b) == tree(c) == {}
    with Replica(b, durable=False) as replica:
        assert replica.store.rows("SELECT COUNT(*) FROM heads")[0][0] == 0


@pytest.mark.parametrize("age", ["young", "old"])
def test_an_edit_between_scan_and_placing_is_never_overwritten(pair, a, b, age):
    (a / "f").write_bytes(b"base")
    both(pair)
    if age == "old":
        os.utime(b / "f", (1e9, 1e9))
    (a / "f").write_bytes(b"from the left")

    def edit():
        (b / "f").write_bytes(b"typed meanwhile")
        (b / "new").write_bytes(b"also new")

    assert connect_while(pair, edit).status == "conflict"
    assert contents(b) == contents(a) == sorted([b"from the left", b"typed meanwhile", b"also new"])


def test_a_file_made_between_scan_and_placing_is_never_overwritten(pair, a, b):
    (a / "f").write_bytes(b"from the left")
    assert connect_while(pair, lambda: (b / "f").write_bytes(b"made meanwhile")).status == "conflict"
    assert contents(b) == contents(a) == [b"from the left", b"made meanwhile"]


def test_a_delete_does_not_remove_what_was_edited_meanwhile(pair, a, b):
    (a / "f").write_bytes(b"base")
    both(pair)
    (a / "f").unlink()
    connect_while(pair, lambda: (b / "f").write_bytes(b"edited"))
    assert contents(b) == contents(a) == [b"edited"]


def test_a_file_that_changes_before_it_is_sent_is_looked_at_again(a, b, monkeypatch):
    (a / "log").write_bytes(b"line\n")
    with Replica(a, durable=False) as left, Replica(b, durable=False) as right:
        content = left.content
        times = []

        def append_then_give(data):
            if len(times) < 3:
                times.append(data)
                with open(a / "log", "ab") as file:
                    file.write(b"line\n")
            return content(data)

        monkeypatch.setattr(left, "content", append_then_give)
        report = connect(left, right)
    assert len(times) > 1
    assert report.status in ("in sync", "waiting")
    sync(a, b, durable=False)
    assert (b / "log").read_bytes() == (a / "log").read_bytes()


def test_what_cannot_be_read_is_not_deleted_elsewhere(pair, a, b, monkeypatch):
    (a / "d").mkdir()
    (a / "d/f").write_bytes(b"x")
    (a / "g").write_bytes(b"y")
    both(pair)
    scandir = os.scandir

    def refuse(path):
        if path == os.fsencode(a / "d") + b"/":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(scanning.os, "scandir", refuse)
    # Nor can one look at what lies in it.
    monkeypatch.setattr(os.path, "lexists", lambda path: False)
    report = sync(a, b, durable=False)
    monkeypatch.undo()
    assert report.status == "waiting"
    assert "Permission denied" in report.waiting[0]
    assert set(tree(b)) == {b"d", b"d/f", b"g"}


def test_pipes_are_left_alone(a, b):
    os.mkfifo(a / "pipe")
    report = sync(a, b, durable=False)
    assert report.status == "in sync"
    assert "pipe" in report.ignored[0]
    (b / "pipe").write_bytes(b"in the way")
    report = sync(a, b, durable=False)
    assert report.status == "waiting"
    assert stat.S_ISFIFO(os.lstat(a / "pipe").st_mode)


def test_nothing_is_written_through_a_link(a, b, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (a / "d").mkdir()
    (a / "d/f").write_bytes(b"x")
    os.symlink(outside, b / "d")
    report = sync(a, b, durable=False)
    assert list(outside.iterdir()) == []
    assert report.status == "conflict"


def test_nothing_is_written_through_a_link_that_appears_meanwhile(pair, a, b, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (a / "d").mkdir()
    both(pair)
    (a / "d/f").write_bytes(b"x")

    def link():
        if not (b / "d").is_symlink():
            (b / "d").rmdir()
            os.symlink(outside, b / "d")

    connect_while(pair, link)
    assert list(outside.iterdir()) == []
    assert sync(a, b, durable=False).status == "conflict"
    assert (b / "d/f").read_bytes() == b"x"


def test_a_dry_run_writes_nothing(pair, a, b):
    (a / "f").write_bytes(b"x")
    report = sync(a, b, dry_run=True)
    assert report.to_right == (("create", "f"),)
    assert report.dry_run
    assert not (a / STATE).exists()
    both(pair)
    (b / "f").write_bytes(b"y")
    (a / "g").mkdir()
    report = sync(a, b, dry_run=True)
    assert (report.to_left, report.to_right) == ((("update", "f"),), (("directory", "g"),))
    assert (a / "f").read_bytes() == b"x"
    assert both(pair).to_left == (("update", "f"),)


def test_state_outside_both(a, b, tmp_path):
    (a / "f").write_bytes(b"x")
    sync(a, b, state=tmp_path / "state", durable=False)
    assert os.listdir(b) == ["f"]
    other = tmp_path / "c"
    other.mkdir()
    with pytest.raises(InputError, match="state of another directory"):
        sync(a, other, state=tmp_path / "state", durable=False)


def test_state_of_another_directory_or_version(a, b, tmp_path):
    sync(a, b, durable=False)
    shutil.copytree(a, tmp_path / "c")
    with pytest.raises(InputError, match="state of another directory"):
        sync(tmp_path / "c", b)
    with contextlib.closing(sqlite3.connect(a / STATE / "state.sqlite")) as database, database:
        database.execute("UPDATE meta SET value = 99 WHERE key = 'format'")
    with pytest.raises(InputError, match="found state of version 99; expected version 1"):
        sync(a, b)
    (b / STATE / "state.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(InputError, match="expected the state of a replica"):
        Replica(b)


def test_an_old_copy_of_a_state_is_refused(a, b):
    (a / "f").write_bytes(b"1")
    sync(a, b, durable=False)
    old = (a / STATE / "state.sqlite").read_bytes()
    (a / "f").write_bytes(b"2")
    sync(a, b, durable=False)
    (a / "f").write_bytes(b"1")
    (a / STATE / "state.sqlite").write_bytes(old)
    with pytest.raises(InputError, match="forgot versions of its own"):
        sync(a, b, durable=False)
    assert (b / "f").read_bytes() == b"2"


def test_bad_calls(a, b, tmp_path):
    inner = a / "inner"
    inner.mkdir()
    for other, how, said in (
        (b, {"protocol": "lww-cloud"}, "unknown protocol"), (a, {}, "neither in the other"), (inner, {}, "neither in the other"),
        (tmp_path / "none", {}, "found no directory"), (b, {"state": inner / "state"}, "expected a name in the directory"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            sync(a, other, **how)
    for bad in ("", ".", ".."):
        with pytest.raises(InputError, match="state"):
            Replica(a, bad)
    with Replica(a, durable=False), pytest.raises(InputError, match="in use by another process"):
        Replica(a)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "", "a//b", ".", "a/.", "x\0y", STATE, STATE + "/lock", "y" * 256])
def test_paths_that_leave_the_root_are_refused(path):
    with pytest.raises(InputError):
        check_entry_path(path, STATE, "wire")


def test_conflict_names_fit():
    assert conflict_name("a/b", "0123456789") == "a/b~conflict-01234567"
    assert len(os.fsencode(conflict_name("é" * 127, "0123456789"))) <= 255


def test_the_command(a, b, capsys):
    (a / "f").write_bytes(b"x")
    assert main([str(a), str(b), "--verbose"]) == 0
    assert capsys.readouterr().out == "-> create 'f'\nin sync: 1 to the right, 0 to the left\n"
    (a / "f").write_bytes(b"left")
    (b / "f").write_bytes(b"right")
    assert main([str(a), str(b)]) == 1
    assert main([str(a), str(a)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
