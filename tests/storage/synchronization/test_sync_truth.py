"""The truth against brute force: whole pasts as bits of a number, every pair compared."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.storage.synchronization import Crdt, DottedVersionVector, LwwCloud, TransactionalLink, Truth, VersionVector, World, generate
from armillary.storage.synchronization.world.protocol import Act, Content, Shown, SyncProtocol, Tracked
from armillary.storage.synchronization.world.schedule import Operation


class BruteForce:
    """The same counts by their definitions, in quadratic time; it shares nothing with the truth but what happened."""

    def __init__(self, truth: Truth) -> None:
        self.acts = {n: act.operation for n, act in truth.acts.items()}
        self.past: dict[int, int] = {}
        self.direct: dict[int, int] = {}
        self.aware = {n: sum(1 << o for o in known) for n, known in truth.aware.items()}
        for n, direct in truth.direct.items():
            self.direct[n] = sum(1 << o for o in direct)
            self.past[n] = 0
            for o in direct:
                self.past[n] |= self.past[o] | 1 << o

    def before(self, a: int, b: int) -> bool:
        return bool(self.past[b] >> a & 1)

    def lost(self, shown: set[int]) -> set[int]:
        replaced = 0
        for n, op in self.acts.items():
            if op.op != "rename":
                replaced |= self.past[n]
        return {n for n, op in self.acts.items() if op.op in ("write", "append") and n not in shown and not replaced >> n & 1}

    def resurrected(self, contents: set[tuple[int, ...]]) -> int:
        deletes = [n for n, op in self.acts.items() if op.op == "delete"]
        return sum(any(self._came_back(lines, d) for d in deletes) for lines in contents if lines)

    def _came_back(self, lines: tuple[int, ...], d: int) -> bool:
        past, path = self.past[d], self.acts[d].path
        if not all(past >> line & 1 for line in lines):
            return False
        moves = [n for n, op in self.acts.items() if op.op == "rename" and past >> n & 1 and self.before(max(lines), n)]
        last = {self.acts[n].to for n in moves if not any(self.before(n, m) for m in moves)}
        if last and path not in last:
            return False
        return not any(
            n != d and op.op in ("write", "append", "rename") and not past >> n & 1 and (path in (op.path, op.to) or self.past[n] & past)
            for n, op in self.acts.items()
        )

    def pairs(self) -> int:
        ends = [n for n, op in self.acts.items() if op.op in ("write", "append", "delete")]
        found = 0
        for i, a in enumerate(ends):
            for b in ends[i + 1 :]:
                x, y = self.acts[a], self.acts[b]
                common = self.direct[a] & self.direct[b] or (self.direct[a] == self.direct[b] == 0 and x.path == y.path)
                knew = any(k == a or self.before(a, k) for k in self.acts if self.aware.get(b, 0) >> k & 1)
                found += bool(common) and x.replica != y.replica and not self.before(a, b) and not self.before(b, a) and not knew
        return found


@pytest.mark.parametrize("name", ["pair", "skewed-clocks", "long-offline", "flapping", "rename-storm"])
@pytest.mark.parametrize("protocol", [LwwCloud(), VersionVector()], ids=["lww", "vv"])
def test_the_counts_of_a_run_are_those_of_brute_force(name: str, protocol: LwwCloud) -> None:
    outcome = World(generate(name, np.random.default_rng(2), 150), protocol).run()
    truth, brute = outcome.truth, BruteForce(outcome.truth)
    contents = {c.lines for tree in outcome.trees.values() for versions in tree.values() for c in versions}
    shown = {line for lines in contents for line in lines}
    assert set(truth.lost(outcome.trees.values())) == brute.lost(shown)
    assert truth.resurrected(outcome.trees.values()) == brute.resurrected(contents)
    assert truth.concurrent_pairs() == brute.pairs()


HISTORIES = st.lists(
    st.tuples(
        st.sampled_from("AB"), st.sampled_from(["write", "append", "delete", "rename"]), st.sampled_from("fg"),
        st.lists(st.integers(0, 30), max_size=3),
    ),
    min_size=1, max_size=25,
)  # fmt: skip


@settings(max_examples=50)
@given(HISTORIES, st.lists(st.lists(st.integers(0, 24), min_size=1, max_size=3), max_size=5))
def test_any_history_whatsoever(words: list[tuple[str, str, str, list[int]]], shown: list[list[int]]) -> None:
    truth = Truth()
    for n, (who, op, path, saw) in enumerate(words):
        versions = [Shown((o % n,), Content((o % n,), 1)) for o in saw] if n else []
        truth.happened(Act(n, Operation(float(n), who, op, path, "h" if op == "rename" else "")), versions)
    brute = BruteForce(truth)
    numbers = range(len(words))
    assert all(truth.before(a, b) == brute.before(a, b) for a in numbers for b in numbers)
    assert all(truth.past(n) == {a for a in numbers if brute.before(a, n)} for n in numbers)
    contents = {tuple(sorted({i % len(words) for i in lines})) for lines in shown}
    tree = {f"p{i}": (Content(lines, 1),) for i, lines in enumerate(sorted(contents))}
    lines = {line for one in contents for line in one}
    assert set(truth.lost([tree])) == brute.lost(lines)
    assert truth.resurrected([tree]) == brute.resurrected(contents)
    assert truth.concurrent_pairs() == brute.pairs()


def test_a_conflict_is_spurious_only_between_ordered_versions() -> None:
    """A rename that moves two siblings is in both and orders neither; a version beside one that contains it is spurious."""
    truth = Truth()
    saw: dict[int, tuple[int, ...]] = defaultdict(tuple, {1: (0,), 2: (0,), 3: (1, 2), 4: (1,)})
    for n in range(5):
        op = "rename" if n == 3 else "write"
        versions = [Shown((o,), Content((o,), 1)) for o in saw[n]]
        truth.happened(Act(n, Operation(float(n), "A", op, "f", "g" if n == 3 else "")), versions)
    for mine, theirs, spurious in [
        ((1, 3), (2, 3), 0),
        ((1,), (2,), 0),
        ((1, 3), (2,), 1),
        ((1,), (4,), 2),
        ((2,), (4,), 2),
        ((1,), (1, 2), 3),
    ]:
        truth.conflict(mine, theirs)
        assert truth.spurious == spurious, (mine, theirs)


def test_two_names_that_users_chose_are_no_duplicate_and_an_old_name_is_one() -> None:
    truth = Truth()
    saw = {0: (), 1: (0,), 2: (0,)}
    for n, (op, to) in enumerate([("write", ""), ("rename", "g"), ("rename", "h")]):
        truth.happened(Act(n, Operation(float(n), "AB"[n % 2], op, "f", to)), [Shown((o,), Content((o,), 1)) for o in saw[n]])
    content = (Content((0,), 1),)
    for names, duplicates in ((("g", "h"), 0), (("f", "g", "h"), 1), (("f", "f 2"), 1), (("f",), 0)):
        assert truth.duplicates([dict.fromkeys(names, content)]) == duplicates
    # A renames while B, who has not seen it, writes; a merge that brings B's content under A's name has made no copy.
    truth.happened(Act(3, Operation(3.0, "B", "write", "h")), [Shown((0, 2), content[0])])
    newer = (Content((3,), 1),)
    assert truth.duplicates([{"g": newer, "h": newer}]) == 0
    assert truth.duplicates([{"g": newer, "k": newer}]) == 1


@pytest.mark.parametrize(
    "protocol", [LwwCloud(), VersionVector(), DottedVersionVector(), Crdt(), TransactionalLink()], ids=lambda p: type(p).__name__
)
@pytest.mark.parametrize("name", ["skewed-clocks", "rename-storm"])
def test_the_lines_kept_up_with_changes_are_those_of_the_whole_tree(name: str, protocol: SyncProtocol) -> None:
    steps = looked = 0

    def look(world: World) -> None:
        nonlocal steps, looked
        steps += 1
        if steps % 7 == 0:
            for replica in world.schedule.replicas:
                node = world.nodes[replica]
                assert isinstance(node, Tracked)
                lines = {line for versions in node.tree().values() for content in versions for line in content.lines}
                assert set(world.truth._visible[replica].lines(node)) == lines  # type: ignore[call-overload]
                looked += len(lines)

    World(generate(name, np.random.default_rng(3), 60), protocol, look).run()
    assert looked > 1000
