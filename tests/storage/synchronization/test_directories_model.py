"""Random edits of two directories against a plain model.

Edits of different names give the union of both, and edits of the same names lose nothing of either.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from directory_trees import contents, tree
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.storage.synchronization.directories import sync

NAMES = ("a", "b", "d/a", "d/b", "e/f/a", "d", "e")
Edit = tuple[str, str, str]
kinds = st.sampled_from(("write", "write", "delete", "rename", "mode"))
edits = st.lists(st.tuples(kinds, st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=5)
rounds = st.lists(st.tuples(edits, edits), min_size=1, max_size=4)
few = settings(max_examples=8)


class User:
    """A user who edits below a root and whose every write is a new content; a prefix keeps names apart."""

    def __init__(self, root: Path, mark: str, prefix: str = "") -> None:
        self.root, self.mark, self.prefix, self.count = root, mark, prefix, 0
        #: What the tree should be, where nobody else has a hand in it: path to content.
        self.files: dict[str, bytes] = {}

    def edit_all(self, edits: list[Edit]) -> None:
        for edit in edits:
            self.edit(*edit)

    def edit(self, what: str, name: str, to: str) -> None:
        path, target = self.root / (self.prefix + name), self.root / (self.prefix + to)
        if what == "write":
            if path.is_dir() or not self._room(path):
                return
            self.count += 1
            path.write_bytes(f"{self.mark}{self.count}".encode())
            self.files[self.prefix + name] = path.read_bytes()
        elif not path.is_file():
            return
        elif what == "delete":
            path.unlink()
            self.files.pop(self.prefix + name, None)
        elif what == "mode":
            path.chmod(0o600 if path.stat().st_mode & 0o77 else 0o644)
        elif not os.path.lexists(target) and self._room(target):
            path.rename(target)
            if self.prefix + name in self.files:
                self.files[self.prefix + to] = self.files.pop(self.prefix + name)

    def _room(self, path: Path) -> bool:
        folders = [p for p in path.parents if self.root in p.parents]
        if any(os.path.lexists(p) and not p.is_dir() for p in folders):
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        return True


def in_sync(a: Path, b: Path) -> str:
    """Synchronises until there is nothing to do, which takes two rounds at most."""
    sync(a, b, durable=False)
    sync(a, b, durable=False)
    report = sync(a, b, durable=False)
    assert (report.to_left, report.to_right, report.transactions) == ((), (), 0)
    assert tree(a) == tree(b)
    return report.status


@contextmanager
def two_users(left: str = "", right: str = "") -> Iterator[tuple[User, User]]:
    """Gives a user of each of two new directories, whose names begin with these prefixes."""
    with tempfile.TemporaryDirectory() as folder:
        a, b = Path(folder) / "a", Path(folder) / "b"
        a.mkdir()
        b.mkdir()
        yield User(a, "l", left), User(b, "r", right)


@few
@given(rounds)
def test_edits_of_different_files_give_the_union(plan: list[tuple[list[Edit], list[Edit]]]) -> None:
    with two_users("x/", "y/") as (left, right):
        a, b = left.root, right.root
        for mine, theirs in plan:
            left.edit_all(mine)
            right.edit_all(theirs)
            assert in_sync(a, b) == "in sync"
            found = {os.fsdecode(p): data for p, (kind, _, data) in tree(a).items() if kind == "file"}
            assert found == left.files | right.files


@few
@given(rounds)
def test_edits_of_the_same_names_lose_nothing(plan: list[tuple[list[Edit], list[Edit]]]) -> None:
    with two_users() as (left, right):
        a, b = left.root, right.root
        for mine, theirs in plan:
            before = set(contents(a))
            conflict = any(b"~conflict-" in path for path in tree(a))
            left.edit_all(mine)
            right.edit_all(theirs)
            written = (set(contents(a)) | set(contents(b))) - before
            untouched = before & set(contents(a)) & set(contents(b))
            in_sync(a, b)
            shown = set(contents(a))
            # What anyone wrote since is there. What is there was written since, or stood on one side at least.
            assert written <= shown
            assert shown <= written | before
            # Where no conflict stood that a write could have merged, what nobody touched is still there.
            if not conflict:
                assert untouched <= shown
