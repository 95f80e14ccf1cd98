"""Two real directories: what each kind of change becomes on the other side, by hand; and what is refused."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from pathlib import Path

import pytest
from directory_trees import STATE, contents, tree

from armillary.errors import InputError
from armillary.storage.synchronization.directories import Replica, SyncReport, connect, scanning, sync
from armillary.storage.synchronization.directories.__main__ import main
from armillary.storage.synchronization.directories.entries import Entry, Stat, check_entry_path, conflict_name, entry_version, is_racy


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    return a, b


def both(pair: tuple[Path, Path], **how: object) -> SyncReport:
    """Synchronises; both trees must be equal afterwards, and a second time there must be nothing left to do."""
    report = sync(*pair, durable=False, **how)  # type: ignore[arg-type]
    assert tree(pair[0]) == tree(pair[1])
    sync(*pair, durable=False)
    again = sync(*pair, durable=False)
    assert (again.to_left, again.to_right, again.transactions) == ((), (), 0)
    assert again.status == report.status
    return report


def test_each_gets_what_the_other_has(pair):
    a, b = pair
    (a / "f").write_bytes(b"hello")
    (a / "deep/er").mkdir(parents=True)
    (a / "deep/er/g").write_bytes(b"")
    (b / "h").write_bytes(b"there")
    os.symlink("../h", b / "l")
    report = both(pair)
    assert report.status == "in sync"
    assert set(report.to_left) == {("create", "h"), ("create", "l")}
    assert set(report.to_right) == {("create", "f"), ("create", "deep/er/g"), ("directory", "deep"), ("directory", "deep/er")}
    assert tree(a)[b"l"] == ("link", 0, b"../h")


def test_equal_trees_of_strangers_are_no_conflict(pair):
    for root in pair:
        (root / "d").mkdir()
        (root / "d/f").write_bytes(b"same")
    report = both(pair)
    assert (report.status, report.to_left, report.to_right) == ("in sync", (), ())
    (pair[0] / "d/f").write_bytes(b"next")
    assert both(pair).to_right == (("update", "d/f"),)
    assert contents(pair[1]) == [b"next"]


def test_an_edit_a_delete_and_permissions_travel(pair):
    a, b = pair
    for name in ("edit", "delete", "mode"):
        (a / name).write_bytes(name.encode())
    both(pair)
    (b / "edit").write_bytes(b"edited")
    (a / "delete").unlink()
    (a / "mode").chmod(0o750)
    report = both(pair)
    assert report.status == "in sync"
    assert set(tree(b)) == {b"edit", b"mode"}
    assert tree(b)[b"mode"] == ("file", 0o750, b"mode")
    assert contents(a) == [b"edited", b"mode"]


def test_an_edit_of_the_same_size_within_one_tick_is_found(pair):
    """No time stamp tells the two contents apart for certain: the file was as young as the clock when it was read."""
    for k in range(20):
        (pair[0] / "f").write_bytes(b"%02d" % k)
        sync(*pair, durable=False)
        assert (pair[1] / "f").read_bytes() == b"%02d" % k


def test_a_file_as_young_as_the_clock_is_read_again(pair):
    (pair[0] / "f").write_bytes(b"content")
    os.utime(pair[0] / "f", (4e9, 4e9))
    with Replica(pair[0], durable=False) as replica:
        assert [replica.scan().hashed_bytes for _ in range(3)] == [7, 7, 7]
    second = 1_000_000_000
    assert is_racy(Stat(1, 5 * second + 1, 0, 0), 5 * second + 1)
    assert is_racy(Stat(1, 5 * second + 1, 0, 0), 5 * second + 19_000_000)
    assert not is_racy(Stat(1, 5 * second + 1, 0, 0), 5 * second + 21_000_000)
    # Whole seconds: a file system that counts no finer.
    assert is_racy(Stat(1, 5 * second, 0, 0), 6 * second)
    assert not is_racy(Stat(1, 5 * second, 0, 0), 8 * second)


def test_an_unchanged_tree_is_not_read_again(pair):
    a, _ = pair
    (a / "f").write_bytes(b"content")
    os.utime(a / "f", (1e9, 1e9))
    with Replica(a, durable=False) as replica:
        assert replica.scan().hashed_bytes == 7
        assert replica.scan().hashed_bytes == 0
        os.utime(a / "f", (1e9, 1e9 + 1))
        assert replica.scan().hashed_bytes == 7
        assert replica.scanned.changes == 0


def test_a_rename_on_one_side_and_an_edit_on_the_other_are_one_file(pair):
    a, b = pair
    (a / "old").write_bytes(b"content")
    both(pair)
    (a / "old").rename(a / "new")
    (b / "old").write_bytes(b"new content")
    report = both(pair)
    assert report.status == "in sync"
    assert tree(a) == {b"new": ("file", tree(a)[b"new"][1], b"new content")}


def test_a_rename_and_an_edit_of_twins_are_one_file(pair):
    """The same, where both had the file before they knew each other."""
    for root in pair:
        (root / "old").write_bytes(b"content")
    both(pair)
    (pair[0] / "old").rename(pair[0] / "new")
    (pair[1] / "old").write_bytes(b"new content")
    assert both(pair).status == "in sync"
    assert [(p, t[2]) for p, t in tree(pair[0]).items()] == [(b"new", b"new content")]


def test_a_rename_is_one_version_and_sends_no_content(pair):
    (pair[0] / "old").write_bytes(os.urandom(200_000))
    both(pair)
    (pair[0] / "old").rename(pair[0] / "new")
    with Replica(pair[0], durable=False) as replica:
        found = replica.scan()
        assert (found.renamed, found.created, found.deleted) == (1, 0, 0)
        assert [v.path for v in replica.history("new")] == ["new", "old"]
    assert sync(*pair, durable=False).sent_bytes < 2000


def test_a_move_across_file_systems_is_known_by_content(pair):
    (pair[0] / "old").write_bytes(b"content")
    both(pair)
    shutil.copy(pair[0] / "old", pair[0] / "new")
    (pair[0] / "old").unlink()
    with Replica(pair[0], durable=False) as replica:
        assert replica.scan().renamed == 1


def test_two_edits_are_both_shown_and_one_write_merges(pair):
    a, b = pair
    (a / "f").write_bytes(b"base")
    both(pair)
    (a / "f").write_bytes(b"left")
    (b / "f").write_bytes(b"right")
    report = both(pair)
    assert report.status == "conflict"
    assert contents(a) == [b"left", b"right"]
    (copy,) = report.conflicts
    assert copy.startswith("f~conflict-")
    assert len(copy) == len("f~conflict-") + 8
    (b / "f").write_bytes(b"merged")
    assert both(pair).status == "in sync"
    assert [(p, t[2]) for p, t in tree(a).items()] == [(b"f", b"merged")]
    kept = [p.read_bytes() for root in pair for p in (root / STATE / "superseded").iterdir()]
    assert len(kept) == 2
    assert kept[0] in (b"left", b"right")


@pytest.mark.parametrize("which", ["copy", "name"])
def test_removing_one_of_two_heads_keeps_the_other(pair, which):
    a, b = pair
    for root, data in ((a, b"left"), (b, b"right")):
        (root / "f").write_bytes(data)
    (copy,) = both(pair).conflicts
    stays = (a / ("f" if which == "copy" else copy)).read_bytes()
    (a / (copy if which == "copy" else "f")).unlink()
    assert both(pair).status == "in sync"
    assert [(p, t[2]) for p, t in tree(b).items()] == [(b"f", stays)]


def test_a_copy_that_is_given_a_name_is_a_file_of_its_own(pair):
    a, b = pair
    for root, data in ((a, b"left"), (b, b"right")):
        (root / "f").write_bytes(data)
    (copy,) = both(pair).conflicts
    (b / copy).rename(b / "mine")
    assert both(pair).status == "in sync"
    assert set(tree(a)) == {b"f", b"mine"}
    assert contents(a) == [b"left", b"right"]


def test_editing_both_heads_keeps_both(pair):
    a, b = pair
    for root, data in ((a, b"left"), (b, b"right")):
        (root / "f").write_bytes(data)
    (copy,) = both(pair).conflicts
    (a / "f").write_bytes(b"one")
    (a / copy).write_bytes(b"two")
    assert both(pair).status == "conflict"
    assert contents(b) == [b"one", b"two"]


def test_removing_both_heads_removes_the_file(pair):
    a, b = pair
    for root, data in ((a, b"left"), (b, b"right")):
        (root / "f").write_bytes(data)
    (copy,) = both(pair).conflicts
    (a / "f").unlink()
    (a / copy).unlink()
    assert both(pair).status == "in sync"
    assert tree(b) == {}


def test_texts_are_merged_line_by_line_when_asked_for(pair):
    a, b = pair
    (a / "f").write_bytes(b"one\ntwo\nthree\nfour\nfive\n")
    both(pair, automerge=True)
    (a / "f").write_bytes(b"ONE\ntwo\nthree\nfour\nfive\n")
    (b / "f").write_bytes(b"one\ntwo\nthree\nfour\nfive\nsix\n")
    assert sync(a, b, automerge=True, durable=False).status == "in sync"
    assert contents(a) == contents(b) == [b"ONE\ntwo\nthree\nfour\nfive\nsix\n"]
    (a / "f").write_bytes(b"left\n")
    (b / "f").write_bytes(b"right\n")
    assert sync(a, b, automerge=True, durable=False).status == "conflict"
    assert contents(a) == contents(b) == [b"left\n", b"right\n"]


def test_an_edit_outlives_a_delete(pair):
    a, b = pair
    (a / "f").write_bytes(b"base")
    both(pair)
    (a / "f").unlink()
    (b / "f").write_bytes(b"edited")
    report = both(pair)
    assert report.kept == ("f",)
    assert contents(a) == [b"edited"]


def test_a_file_that_was_given_two_names_is_shown_under_both(pair):
    a, b = pair
    (a / "f").write_bytes(b"base")
    both(pair)
    (a / "f").rename(a / "left")
    (b / "f").rename(b / "right")
    report = both(pair)
    assert report.status == "conflict"
    assert report.conflicts == ("left", "right")
    (a / "left").write_bytes(b"only this name's")
    assert both(pair).status == "conflict"
    assert (b / "right").read_bytes() == b"base"
    (a / "right").unlink()
    report = both(pair)
    assert (report.status, report.kept) == ("in sync", ())
    assert set(tree(b)) == {b"left"}


def test_the_same_change_on_both_sides_is_no_conflict(pair):
    (pair[0] / "f").write_bytes(b"base")
    both(pair)
    for root in pair:
        (root / "f").write_bytes(b"same edit")
    assert both(pair).status == "in sync"
    for root in pair:
        (root / "f").unlink()
    assert both(pair).status == "in sync"
    assert tree(pair[0]) == {}


def test_a_name_used_again_after_a_delete_is_a_new_file(pair):
    a, b = pair
    for _ in range(3):
        (a / "f").write_bytes(b"same")
        both(pair)
        assert contents(b) == [b"same"]
        (b / "f").unlink()
        both(pair)
        assert tree(a) == {}


def test_awkward_names_and_kinds(pair):
    a, b = pair
    base = os.fsencode(a)
    names = [
        b"new\nline",
        b"\xff\xfe not text",
        b" leading",
        b"-rf",
        b"\xc3\xa9",
        b"e\xcc\x81",
        b"x" * 255,
        b"tab\t",
        b"quote\"'",
        b"~conflict-",
    ]
    for name in names:
        with open(base + b"/" + name, "wb") as file:
            file.write(name)
    os.mkdir(base + b"/dir\xff")
    os.symlink(b"nowhere\xff", base + b"/dangling")
    os.symlink(b"/etc", base + b"/outside")
    both(pair)
    assert tree(b) == tree(a)
    assert len(tree(b)) == len(names) + 3
    with open(os.fsencode(b) + b"/" + b"x" * 255, "wb") as file:
        file.write(b"right")
    with open(base + b"/" + b"x" * 255, "wb") as file:
        file.write(b"left")
    report = both(pair)
    assert [len(os.fsencode(c)) for c in report.conflicts] == [255]


def test_case_only_rename(pair):
    a, b = pair
    (a / "readme").write_bytes(b"text")
    both(pair)
    (a / "readme").rename(a / "README")
    assert both(pair).status == "in sync"
    assert set(tree(b)) == {b"README"}


def test_swap_of_directory_and_file(pair):
    a, b = pair
    (a / "d").mkdir()
    (a / "d/x").write_bytes(b"inner")
    (a / "f").write_bytes(b"file")
    both(pair)
    shutil.rmtree(a / "d")
    (a / "d").write_bytes(b"now a file")
    (a / "f").unlink()
    (a / "f").mkdir()
    (a / "f/y").write_bytes(b"now inside")
    assert both(pair).status == "in sync"
    assert (b / "d").read_bytes() == b"now a file"
    assert (b / "f/y").read_bytes() == b"now inside"


def test_two_names_exchanged(pair):
    a, b = pair
    (a / "x").write_bytes(b"one")
    (a / "y").write_bytes(b"two")
    both(pair)
    (a / "x").rename(a / "t")
    (a / "y").rename(a / "x")
    (a / "t").rename(a / "y")
    both(pair)
    assert ((b / "x").read_bytes(), (b / "y").read_bytes()) == (b"two", b"one")


def test_a_file_here_and_a_directory_there_of_one_name(pair):
    a, b = pair
    (a / "n").write_bytes(b"file")
    (b / "n").mkdir()
    (b / "n/x").write_bytes(b"inner")
    report = both(pair)
    assert report.status == "conflict"
    assert (a / "n/x").read_bytes() == b"inner"
    assert (b / report.conflicts[0]).read_bytes() == b"file"
    (b / report.conflicts[0]).rename(b / "m")
    assert both(pair).status == "in sync"
    assert (a / "m").read_bytes() == b"file"


def test_a_directory_became_a_file_here_and_got_a_file_there(pair):
    a, b = pair
    (a / "n").mkdir()
    both(pair)
    (a / "n").rmdir()
    (a / "n").write_bytes(b"file")
    (b / "n/x").write_bytes(b"inner")
    report = sync(*pair, durable=False)
    assert report.status == "conflict"
    assert both(pair).status == "conflict"
    assert (a / "n/x").read_bytes() == b"inner"
    assert (b / report.conflicts[0]).read_bytes() == b"file"


def test_a_file_put_into_a_directory_that_was_removed_elsewhere(pair):
    a, b = pair
    (a / "d").mkdir()
    both(pair)
    (a / "d").rmdir()
    (b / "d/new").write_bytes(b"kept")
    sync(*pair, durable=False)
    both(pair)
    assert (a / "d/new").read_bytes() == b"kept"


def test_a_directory_with_everything_in_it_is_renamed_and_removed(pair):
    a, b = pair
    (a / "d/e").mkdir(parents=True)
    for k in range(5):
        (a / f"d/e/{k}").write_bytes(b"%d" % k)
    both(pair)
    (a / "d").rename(a / "z")
    both(pair)
    assert set(tree(b)) == {b"z", b"z/e", *(b"z/e/%d" % k for k in range(5))}
    shutil.rmtree(b / "z")
    both(pair)
    assert tree(a) == {}


def test_permissions_of_directories_are_set_last(pair):
    a, b = pair
    (a / "d").mkdir()
    (a / "d/f").write_bytes(b"x")
    (a / "d").chmod(0o500)
    both(pair)
    assert tree(b)[b"d"] == ("dir", 0o500, b"")
    for root in pair:
        (root / "d").chmod(0o700)


def test_a_history_ten_thousand_deep(pair):
    a, b = pair
    (a / "f").write_bytes(b"0")
    with Replica(a, durable=False) as replica:
        replica.scan()
        store = replica.store
        (head,) = store.heads_at("f")
        with store.transaction():
            for k in range(10_000):
                made = entry_version((head.id,), head.file, "f", Entry("file", 0o644, k, f"{k:064x}"))
                store.create(made)
                head = made
            store.run("UPDATE shown SET id = ?, data = ? WHERE path = ?", [(head.id, b"%064x" % 9999, b"f")])
    (a / "f").write_bytes(b"the last")
    both(pair)
    assert contents(b) == [b"the last"]
    (a / "f").rename(a / "g")
    (b / "f").write_bytes(b"edited")
    assert both(pair).status == "in sync"
    assert [(p, t[2]) for p, t in tree(a).items()] == [(b"g", b"edited")]


def test_state_lost_deletes_nothing(pair):
    a, b = pair
    for name in ("both", "gone-here", "gone-there"):
        (a / name).write_bytes(name.encode())
    both(pair)
    shutil.rmtree(b / STATE)
    (b / "gone-here").unlink()
    (a / "gone-there").unlink()
    report = both(pair)
    assert report.status == "in sync"
    assert set(tree(a)) == {b"both", b"gone-here", b"gone-there"}


def test_a_replica_that_was_away_brings_nothing_back(tmp_path):
    a, b, c = (tmp_path / name for name in "abc")
    for root in (a, b, c):
        root.mkdir()
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
def test_an_edit_between_scan_and_placing_is_never_overwritten(pair, monkeypatch, age):
    a, b = pair
    (a / "f").write_bytes(b"base")
    both(pair)
    if age == "old":
        os.utime(b / "f", (1e9, 1e9))
    (a / "f").write_bytes(b"from the left")
    with Replica(a, durable=False) as left, Replica(b, durable=False) as right:
        taken = right.take

        def edit_then_take(items):
            (b / "f").write_bytes(b"typed meanwhile")
            (b / "new").write_bytes(b"also new")
            return taken(items)

        monkeypatch.setattr(right, "take", edit_then_take)
        report = connect(left, right)
    assert report.status == "conflict"
    assert contents(b) == contents(a) == sorted([b"from the left", b"typed meanwhile", b"also new"])


def test_a_file_made_between_scan_and_placing_is_never_overwritten(pair, monkeypatch):
    a, b = pair
    (a / "f").write_bytes(b"from the left")
    with Replica(a, durable=False) as left, Replica(b, durable=False) as right:
        taken = right.take

        def make_then_take(items):
            (b / "f").write_bytes(b"made meanwhile")
            return taken(items)

        monkeypatch.setattr(right, "take", make_then_take)
        assert connect(left, right).status == "conflict"
    assert contents(b) == contents(a) == [b"from the left", b"made meanwhile"]


def test_a_delete_does_not_remove_what_was_edited_meanwhile(pair, monkeypatch):
    a, b = pair
    (a / "f").write_bytes(b"base")
    both(pair)
    (a / "f").unlink()
    with Replica(a, durable=False) as left, Replica(b, durable=False) as right:
        taken = right.take

        def edit_then_take(items):
            (b / "f").write_bytes(b"edited")
            return taken(items)

        monkeypatch.setattr(right, "take", edit_then_take)
        connect(left, right)
    assert contents(b) == contents(a) == [b"edited"]


def test_a_file_that_changes_before_it_is_sent_is_looked_at_again(pair, monkeypatch):
    a, b = pair
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


def test_what_cannot_be_read_is_not_deleted_elsewhere(pair, monkeypatch):
    a, b = pair
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


def test_pipes_are_left_alone(pair):
    a, b = pair
    os.mkfifo(a / "pipe")
    report = sync(a, b, durable=False)
    assert report.status == "in sync"
    assert "pipe" in report.ignored[0]
    (b / "pipe").write_bytes(b"in the way")
    report = sync(a, b, durable=False)
    assert report.status == "waiting"
    assert stat.S_ISFIFO(os.lstat(a / "pipe").st_mode)


def test_nothing_is_written_through_a_link(pair, tmp_path):
    a, b = pair
    outside = tmp_path / "outside"
    outside.mkdir()
    (a / "d").mkdir()
    (a / "d/f").write_bytes(b"x")
    os.symlink(outside, b / "d")
    report = sync(a, b, durable=False)
    assert list(outside.iterdir()) == []
    assert report.status == "conflict"


def test_nothing_is_written_through_a_link_that_appears_meanwhile(pair, tmp_path, monkeypatch):
    a, b = pair
    outside = tmp_path / "outside"
    outside.mkdir()
    (a / "d").mkdir()
    both(pair)
    (a / "d/f").write_bytes(b"x")
    with Replica(a, durable=False) as left, Replica(b, durable=False) as right:
        taken = right.take

        def link_then_take(items):
            if not (b / "d").is_symlink():
                (b / "d").rmdir()
                os.symlink(outside, b / "d")
            return taken(items)

        monkeypatch.setattr(right, "take", link_then_take)
        connect(left, right)
    assert list(outside.iterdir()) == []
    assert sync(a, b, durable=False).status == "conflict"
    assert (b / "d/f").read_bytes() == b"x"


def test_a_dry_run_writes_nothing(pair):
    a, b = pair
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


def test_state_outside_both(pair, tmp_path):
    a, b = pair
    (a / "f").write_bytes(b"x")
    sync(a, b, state=tmp_path / "state", durable=False)
    assert os.listdir(b) == ["f"]
    other = tmp_path / "c"
    other.mkdir()
    with pytest.raises(InputError, match="state of another directory"):
        sync(a, other, state=tmp_path / "state", durable=False)


# What is refused.


def test_state_of_another_directory_or_version(pair, tmp_path):
    a, b = pair
    sync(a, b, durable=False)
    shutil.copytree(a, tmp_path / "c")
    with pytest.raises(InputError, match="state of another directory"):
        sync(tmp_path / "c", b)
    database = sqlite3.connect(a / STATE / "state.sqlite")
    database.execute("UPDATE meta SET value = 99 WHERE key = 'format'")
    database.commit()
    database.close()
    with pytest.raises(InputError, match="found state of version 99; expected version 1"):
        sync(a, b)
    (b / STATE / "state.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(InputError, match="expected the state of a replica"):
        Replica(b)


def test_an_old_copy_of_a_state_is_refused(pair):
    a, b = pair
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


def test_bad_calls(pair, tmp_path):
    a, b = pair
    with pytest.raises(InputError, match="unknown protocol"):
        sync(a, b, protocol="lww-cloud")
    with pytest.raises(InputError, match="neither in the other"):
        sync(a, a)
    (a / "inner").mkdir()
    with pytest.raises(InputError, match="neither in the other"):
        sync(a, a / "inner")
    with pytest.raises(InputError, match="found no directory"):
        sync(a, tmp_path / "none")
    with pytest.raises(InputError, match="expected a name in the directory"):
        sync(a, b, state=a / "inner" / "state")
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


def test_the_command(pair, capsys):
    a, b = pair
    (a / "f").write_bytes(b"x")
    assert main([str(a), str(b), "--verbose"]) == 0
    assert capsys.readouterr().out == "-> create 'f'\nin sync: 1 to the right, 0 to the left\n"
    (a / "f").write_bytes(b"left")
    (b / "f").write_bytes(b"right")
    assert main([str(a), str(b)]) == 1
    assert main([str(a), str(a)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
