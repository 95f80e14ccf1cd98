"""A directory that came from a stranger with its state folder: rows that lead out of the root, links in place of parts, triggers."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sqlite3

import pytest
from directory_trees import STATE

from armillary.errors import InputError
from armillary.storage.synchronization.directories import Replica, beneath, sync

ID = "ab" * 16
HASH = "cd" * 32


@pytest.fixture
def known(a, b):
    """Two directories that were synchronised, and a place outside both with a secret."""
    (a / "d").mkdir()
    (a / "d/f").write_bytes(b"content")
    sync(a, b, durable=False)
    outside = a.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    return a, b, outside


def _change(root, *statements):
    with sqlite3.connect(root / STATE / "state.sqlite") as state:
        for statement, *values in statements:
            state.execute(statement, values)
    state.close()


def _version(path, kind, data):
    return ("INSERT INTO versions VALUES (?, 'x', '', ?, ?, 420, 3, ?, '')", ID, path, kind, data)


PATHS = [b"../outside/evil", b"/etc/evil", b"d/../../outside/evil", b"d//evil", b"", b".", b"d/./evil", STATE.encode() + b"/evil", b"d/\0", "d/text"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("kind", "data"), [(3, b"/etc/passwd"), (1, HASH.encode()), (2, b"")])
def test_a_row_that_leads_out_of_the_root_is_refused(known, path, kind, data):
    a, b, outside = known
    (a / STATE / "staging" / HASH).write_bytes(b"abc")
    _change(a, _version(b"fine", kind, data), ("INSERT INTO want VALUES (?, ?)", path, ID))
    with pytest.raises(InputError, match=r"path|state of a replica"):
        sync(a, b, durable=False)
    assert os.listdir(outside) == ["secret"]
    assert not os.path.lexists("/etc/evil")


@pytest.mark.parametrize("path", PATHS)
def test_a_version_whose_path_leads_out_is_refused(known, path):
    a, b, outside = known
    _change(a, _version(path, 3, b"/etc/passwd"), ("INSERT INTO heads VALUES (?, 'x', ?, 1)", ID, path), ("INSERT INTO want VALUES (?, ?)", b"fine", ID),
            ("INSERT INTO log (author, number, id) VALUES (?, 1, ?)", ID, ID))  # fmt: skip
    with pytest.raises(InputError, match=r"path|state of a replica"):
        sync(a, b, durable=False)
    assert os.listdir(outside) == ["secret"]
    assert not (a / "fine").exists()


@pytest.mark.parametrize(
    ("kind", "data"), [(1, b"../../../outside/secret"), (1, b"short"), (2, b"something"), (3, b""), (3, b"a\0b"), (4, b""), (-1, b""), (1, "text")]
)
def test_a_content_that_is_no_name_of_one_is_refused(known, kind, data):
    a, b, outside = known
    _change(a, _version(b"stolen", kind, data), ("INSERT INTO want VALUES (?, ?)", b"stolen", ID))
    with pytest.raises(InputError, match="state of a replica"):
        sync(a, b, durable=False)
    assert (outside / "secret").read_bytes() == b"secret"
    assert not (a / "stolen").exists()


@pytest.mark.parametrize("change", [
    "INSERT INTO copies VALUES ('text', x'61')", "INSERT INTO copies VALUES (x'61', 1.5)", "UPDATE shown SET path = 1.5 WHERE path = x'642f66'",
    "UPDATE links SET digest = 'xyz'", "UPDATE links SET finished_digest = 1.5", "UPDATE links SET epoch = -1", "UPDATE links SET n = 9223372036854775807",
    "UPDATE links SET summary = 'text'", "UPDATE log SET number = 'x' WHERE number = 1",
])  # fmt: skip
def test_a_row_of_another_type_is_refused(known, change):
    """Rows of other tables than versions and wants; those that no change of the files asks for are never read."""
    a, b, _ = known
    _change(a, (change,))
    (a / "new").write_bytes(b"new")
    (b / "other").write_bytes(b"other")
    with pytest.raises(InputError):
        for _ in range(2):
            sync(a, b, durable=False)
            (a / "d/f").write_bytes(b"changed")
            (b / "d/f").write_bytes(b"changed otherwise")


@pytest.mark.parametrize("change", ["DELETE FROM log WHERE number = 1", "UPDATE want SET id = NULL", "DELETE FROM versions"])
def test_a_state_that_lacks_rows_is_refused_or_of_no_use(known, change):
    a, _, outside = known
    _change(a, ("INSERT INTO want VALUES (x'6e6577', ?)", ID), (change,))
    with contextlib.suppress(InputError):
        sync(a, outside, durable=False)
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_file_behind_a_link_is_neither_read_nor_given(known):
    """`shown` says that the secret lies in the directory, through a link in it, so whoever asks for it would get it."""
    a, _, outside = known
    (a / "way").symlink_to(outside)
    data = hashlib.blake2b(b"secret", digest_size=32).hexdigest()
    row = (b"way/secret", ID, 1, 0o644, data.encode(), 6, 0, 0, 0)
    _change(a, ("INSERT INTO shown VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *row))
    with Replica(a, durable=False) as replica:
        assert replica.content(data) is None
        assert data not in replica.store.ready


def test_triggers_and_views_are_refused(known):
    a, b, _ = known
    _change(a, ("CREATE TRIGGER t AFTER DELETE ON want BEGIN INSERT INTO want VALUES (x'2e2e2f65', 'x'); END",))
    with pytest.raises(InputError, match='trigger "t"'):
        sync(a, b, durable=False)


@pytest.mark.parametrize("name", ["staging", "texts", "superseded", "lock", "clock", "state.sqlite-wal"])
def test_links_in_the_state_folder_are_refused(known, name):
    a, b, outside = known
    part = a / STATE / name
    if part.is_dir():
        part.rmdir()
    else:
        part.unlink(missing_ok=True)
    part.symlink_to(outside if name in ("staging", "texts", "superseded") else outside / "secret")
    with pytest.raises(InputError, match="something else"):
        sync(a, b, durable=False, automerge=True)
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_link_in_staging_is_no_content(known):
    a, b, outside = known
    (outside / "secret").chmod(0o600)
    (a / STATE / "staging" / HASH).symlink_to(outside / "secret")
    _change(a, _version(b"stolen", 1, HASH.encode()), ("INSERT INTO want VALUES (?, ?)", b"stolen", ID))
    sync(a, b, durable=False)
    assert not os.path.lexists(a / "stolen")
    assert (outside / "secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("how", ["openat2", "walk"])
def test_nothing_is_opened_outside(tmp_path, monkeypatch, how):
    if how == "walk":
        monkeypatch.setattr(beneath, "_openat2", lambda: None)
    (tmp_path / "in/d").mkdir(parents=True)
    (tmp_path / "in/d/f").write_bytes(b"x")
    (tmp_path / "secret").write_bytes(b"s")
    (tmp_path / "in/out").symlink_to(tmp_path)
    (tmp_path / "in/link").symlink_to("d/f")
    root = os.open(tmp_path / "in", os.O_RDONLY)
    try:
        fd = beneath.open_beneath(root, b"d/f", os.O_RDONLY)
        assert os.read(fd, 9) == b"x"
        os.close(fd)
        for path in (b"../secret", b"out/secret", b"link", b"d/../../secret", b"/etc/passwd", b"", b"d//f"):
            with pytest.raises(OSError) as caught:
                beneath.open_beneath(root, path, os.O_RDONLY)
            assert caught.value.errno in (errno.ELOOP, errno.EXDEV, errno.ENOTDIR)
    finally:
        os.close(root)


def test_a_new_file_never_follows_what_had_its_name(tmp_path):
    (tmp_path / "target").write_bytes(b"kept")
    (tmp_path / "name").symlink_to(tmp_path / "target")
    fd = beneath.create_new(tmp_path / "name")
    os.write(fd, b"new")
    os.close(fd)
    assert (tmp_path / "target").read_bytes() == b"kept"
    assert (tmp_path / "name").read_bytes() == b"new"
