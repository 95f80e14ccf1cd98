"""Three-way merges: by hand, against git merge-file, and what must hold of every merge."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.storage.synchronization import Conflict, merge_sequences, merge_text
from armillary.storage.synchronization.replicas.merge3 import diff

LINES = st.lists(st.integers(0, 6), max_size=14)


def test_by_hand() -> None:
    assert merge_text("a\nb\nc\n", "a\nX\nc\n", "a\nb\nc\nd\n") == ("a\nX\nc\nd\n", 0)
    text, conflicts = merge_text("a\nb\nc\n", "a\nX\nc\n", "a\nY\nc\n", ("A", "B"))
    assert (text, conflicts) == ("a\n<<<<<<< A\nX\n=======\nY\n>>>>>>> B\nc\n", 1)
    assert merge_sequences((1, 2, 3), (1, 3), (1, 2, 3)).lines == (1, 3)
    assert merge_sequences((1, 2), (1, 9), (1, 9)).lines == (1, 9)
    assert merge_sequences((1, 2), (1, 9), (8, 2)).chunks == (Conflict((1, 9), (8, 2)),), "changes that touch are a conflict"
    assert merge_sequences((), (), ()).lines == ()


def changed(rng: random.Random, lines: list[str], fresh: list[int], shared: list[str]) -> list[str]:
    out = list(lines)
    for _ in range(rng.randint(0, 5)):
        at, kind = rng.randint(0, len(out)), rng.random()
        new = []
        for _ in range(rng.randint(1, 3)):
            fresh[0] += 1
            new.append(f"new {fresh[0]}\n" if rng.random() < 0.8 else shared[rng.randrange(len(shared))])
        if kind < 0.4:
            out[at:at] = new
        elif kind < 0.7:
            del out[at : at + rng.randint(1, 4)]
        else:
            out[at : at + rng.randint(1, 4)] = new
    # A line that repeats within a file has several shortest scripts, which are the subject of another test.
    return list(dict.fromkeys(out))


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
@pytest.mark.parametrize("merges", [100, pytest.param(500, marks=pytest.mark.slow)])
def test_merges_are_those_of_git(tmp_path: Path, merges: int) -> None:
    rng, fresh = random.Random(7), [0]
    conflicted = 0
    for _ in range(merges):
        base = [f"line {i}\n" for i in range(rng.randint(0, 30))]
        shared = [f"both {rng.randint(0, 9)}\n" for _ in range(4)]
        ours, theirs = (changed(rng, base, fresh, shared) for _ in range(2))
        if rng.random() < 0.3 and ours:
            ours[-1] = ours[-1].rstrip("\n")
        for name, lines in (("o", base), ("a", ours), ("b", theirs)):
            (tmp_path / name).write_text("".join(lines))
        command = ["git", "merge-file", "-p", "-L", "ours", "-L", "base", "-L", "theirs", "a", "o", "b"]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        text, conflicts = merge_text("".join(base), "".join(ours), "".join(theirs))
        assert (text, conflicts) == (run.stdout, run.returncode), (base, ours, theirs)
        conflicted += conflicts > 0
    assert 0.2 * merges < conflicted < 0.9 * merges, "the sample has both kinds"


def test_clean_merges_are_those_of_libgit2(tmp_path: Path) -> None:
    pygit2 = pytest.importorskip("pygit2")
    repo = pygit2.init_repository(str(tmp_path), bare=True)
    rng, fresh = random.Random(8), [0]
    clean = 0
    for _ in range(100):
        base = [f"line {i}\n" for i in range(20)]
        sides = [base, *(changed(rng, base, fresh, ["both\n"]) for _ in range(2))]
        entries = [pygit2.IndexEntry("f", repo.create_blob("".join(lines).encode()), pygit2.enums.FileMode.BLOB) for lines in sides]
        merged = repo.merge_file_from_index(*entries)
        text, conflicts = merge_text("".join(sides[0]), "".join(sides[1]), "".join(sides[2]))
        assert (not conflicts) == merged.automergeable
        if not conflicts:
            clean += 1
            assert text == merged.contents
    assert clean > 20


@given(LINES, LINES)
def test_a_script_is_one_and_no_longer_than_needed(a: list[int], b: list[int]) -> None:
    out, at, kept = [], 0, 0
    for change in diff(a, b):
        out += [*a[at : change.a0], *b[change.b0 : change.b1]]
        kept += change.a0 - at
        at = change.a1
    assert out + a[at:] == b
    assert kept + len(a) - at == longest(a, b)


def longest(a: list[int], b: list[int]) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        before = row[:]
        for j, y in enumerate(b):
            row[j + 1] = before[j] + 1 if x == y else max(row[j], before[j + 1])
    return row[-1]


@settings(max_examples=100)
@given(LINES, LINES, LINES)
def test_sides_change_places_and_one_side_alone_wins(base: list[int], ours: list[int], theirs: list[int]) -> None:
    merged, swapped = merge_sequences(base, ours, theirs), merge_sequences(base, theirs, ours)
    assert merged.is_clean == swapped.is_clean
    if merged.is_clean:
        assert merged.lines == swapped.lines
    assert merge_sequences(base, ours, base).lines == tuple(ours)
    assert merge_sequences(base, base, theirs).lines == tuple(theirs)
    assert merge_sequences(base, ours, ours).lines == tuple(ours)
