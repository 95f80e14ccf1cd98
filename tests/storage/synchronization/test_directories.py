"""Two real directories: what each kind of change becomes on the other side, by hand."""

from __future__ import annotations

import os
import shutil

import pytest
from directory_trees import STATE, both, contents, tree

from armillary.storage.synchronization.directories import Replica, sync
from armillary.storage.synchronization.directories.entries import Entry, Stat, entry_version, is_racy


def clash(pair):
    """Writes f differently on both sides, synchronises, and returns the name of the copy."""
    for root, data in zip(pair, (b"left", b"right")):
        (root / "f").write_bytes(data)
    (copy,) = both(pair).conflicts
    return copy


def test_each_gets_what_the_other_has(pair, a, b):
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


def test_an_edit_a_delete_and_permissions_travel(pair, a, b):
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
    """No time stamp tells the two contents apart for certain, because the file was as young as the clock when it was read."""
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
    # A file system that counts whole seconds counts no finer.
    assert is_racy(Stat(1, 5 * second, 0, 0), 6 * second)
    assert not is_racy(Stat(1, 5 * second, 0, 0), 8 * second)


def test_an_unchanged_tree_is_not_read_again(a):
    (a / "f").write_bytes(b"content")
    os.utime(a / "f", (1e9, 1e9))
    with Replica(a, durable=False) as replica:
        assert replica.scan().hashed_bytes == 7
        assert replica.scan().hashed_bytes == 0
        os.utime(a / "f", (1e9, 1e9 + 1))
        assert replica.scan().hashed_bytes == 7
        assert replica.scanned.changes == 0


@pytest.mark.parametrize("twins", [False, True], ids=["sent", "had by both before they knew each other"])
def test_a_rename_on_one_side_and_an_edit_on_the_other_are_one_file(pair, a, b, twins):
    for root in pair if twins else [a]:
        (root / "old").write_bytes(b"content")
    both(pair)
    (a / "old").rename(a / "new")
    (b / "old").write_bytes(b"new content")
    assert both(pair).status == "in sync"
    assert [(p, t[2]) for p, t in tree(a).items()] == [(b"new", b"new content")]


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


def test_two_edits_are_both_shown_and_one_write_merges(pair, a, b):
    (a / "f").write_bytes(b"base")
    both(pair)
    copy = clash(pair)
    assert contents(a) == [b"left", b"right"]
    assert copy.startswith("f~conflict-")
    assert len(copy) == len("f~conflict-") + 8
    (b / "f").write_bytes(b"merged")
    assert both(pair).status == "in sync"
    assert [(p, t[2]) for p, t in tree(a).items()] == [(b"f", b"merged")]
    kept = [p.read_bytes() for root in pair for p in (root / STATE / "superseded").iterdir()]
    assert len(kept) == 2
    assert kept[0] in (b"left", b"right")


@pytest.mark.parametrize("which", ["copy", "name"])
def test_removing_one_of_two_heads_keeps_the_other(pair, a, b, which):
    copy = clash(pair)
    stays = (a / ("f" if which == "copy" else copy)).read_bytes()
    (a / (copy if which == "copy" else "f")).unlink()
    assert both(pair).status == "in sync"
    assert [(p, t[2]) for p, t in tree(b).items()] == [(b"f", stays)]


def test_a_copy_that_is_given_a_name_is_a_file_of_its_own(pair, a, b):
    copy = clash(pair)
    (b / copy).rename(b / "mine")
    assert both(pair).status == "in sync"
    assert set(tree(a)) == {b"f", b"mine"}
    assert contents(a) == [b"left", b"right"]


def test_editing_both_heads_keeps_both(pair, a, b):
    copy = clash(pair)
    (a / "f").write_bytes(b"one")
    (a / copy).write_bytes(b"two")
    assert both(pair).status == "conflict"
    assert contents(b) == [b"one", b"two"]


def test_removing_both_heads_removes_the_file(pair, a, b):
    copy = clash(pair)
    (a / "f").unlink()
    (a / copy).unlink()
    assert both(pair).status == "in sync"
    assert tree(b) == {}


def test_texts_are_merged_line_by_line_when_asked_for(pair, a, b):
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


def test_an_edit_outlives_a_delete(pair, a, b):
    (a / "f").write_bytes(b"base")
    both(pair)
    (a / "f").unlink()
    (b / "f").write_bytes(b"edited")
    report = both(pair)
    assert report.kept == ("f",)
    assert contents(a) == [b"edited"]


def test_a_file_that_was_given_two_names_is_shown_under_both(pair, a, b):
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


def test_a_name_used_again_after_a_delete_is_a_new_file(pair, a, b):
    for _ in range(3):
        (a / "f").write_bytes(b"same")
        both(pair)
        assert contents(b) == [b"same"]
        (b / "f").unlink()
        both(pair)
        assert tree(a) == {}


def test_awkward_names_and_kinds(pair, a, b):
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
    for root, data in zip(pair, (b"left", b"right")):
        (root / ("x" * 255)).write_bytes(data)
    assert [len(os.fsencode(c)) for c in both(pair).conflicts] == [255]


def test_case_only_rename(pair, a, b):
    (a / "readme").write_bytes(b"text")
    both(pair)
    (a / "readme").rename(a / "README")
    assert both(pair).status == "in sync"
    assert set(tree(b)) == {b"README"}


def test_swap_of_directory_and_file(pair, a, b):
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


def test_two_names_exchanged(pair, a, b):
    (a / "x").write_bytes(b"one")
    (a / "y").write_bytes(b"two")
    both(pair)
    (a / "x").rename(a / "t")
    (a / "y").rename(a / "x")
    (a / "t").rename(a / "y")
    both(pair)
    assert ((b / "x").read_bytes(), (b / "y").read_bytes()) == (b"two", b"one")


def test_a_file_here_and_a_directory_there_of_one_name(pair, a, b):
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


def test_a_directory_became_a_file_here_and_got_a_file_there(pair, a, b):
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


def test_a_file_put_into_a_directory_that_was_removed_elsewhere(pair, a, b):
    (a / "d").mkdir()
    both(pair)
    (a / "d").rmdir()
    (b / "d/new").write_bytes(b"kept")
    sync(*pair, durable=False)
    both(pair)
    assert (a / "d/new").read_bytes() == b"kept"


def test_a_directory_with_everything_in_it_is_renamed_and_removed(pair, a, b):
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


def test_permissions_of_directories_are_set_last(pair, a, b):
    (a / "d").mkdir()
    (a / "d/f").write_bytes(b"x")
    (a / "d").chmod(0o500)
    both(pair)
    assert tree(b)[b"d"] == ("dir", 0o500, b"")
    for root in pair:
        (root / "d").chmod(0o700)


def test_a_history_thousands_deep(pair, a, b):
    (a / "f").write_bytes(b"0")
    with Replica(a, durable=False) as replica:
        replica.scan()
        store = replica.store
        (head,) = store.heads_at("f")
        with store.transaction():
            for k in range(1500):
                made = entry_version((head.id,), head.file, "f", Entry("file", 0o644, k, f"{k:064x}"))
                store.create(made)
                head = made
            store.run("UPDATE shown SET id = ?, data = ? WHERE path = ?", [(head.id, b"%064x" % 1499, b"f")])
    (a / "f").write_bytes(b"the last")
    both(pair)
    assert contents(b) == [b"the last"]
    (a / "f").rename(a / "g")
    (b / "f").write_bytes(b"edited")
    assert both(pair).status == "in sync"
    assert [(p, t[2]) for p, t in tree(a).items()] == [(b"g", b"edited")]
