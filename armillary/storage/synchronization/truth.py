"""What really happened: which operation was done in view of which, and what of it the replicas still show.

The simulator, not the protocol, keeps this. An operation's *past* is what the acting replica showed of the file when its user acted,
with everything that led to it: past(x) = union over shown versions v of past(v) + v, kept as bits of a whole number. A write that a replica
once showed and the protocol then replaced by itself is in nobody's past: no user decided against it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from .protocol import Act, Content, Node, Shown

_WRITES = ("write", "append")
Tree = Mapping[str, tuple[Content, ...]]


class Truth:
    """The causal history of one simulated run, and the counts over it."""

    def __init__(self) -> None:
        self.acts: dict[int, Act] = {}
        self.past: dict[int, int] = {}
        self.direct: dict[int, int] = {}
        self.groups: dict[str, list[int]] = defaultdict(list)
        self.torn = 0
        self.conflicts = 0
        self.spurious = 0
        self._raised: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
        #: Bits of the operations that a later one acted upon (renames do not count: they keep the content).
        self.superseded = 0

    def happened(self, act: Act, shown: Sequence[Shown]) -> None:
        """Stamps an accepted operation with what its user saw."""
        n, op = act.number, act.operation
        direct = past = 0
        for version in shown:
            for other in version.ops:
                direct |= 1 << other
                past |= self.past[other] | 1 << other
        self.acts[n], self.direct[n], self.past[n] = act, direct, past
        if op.op != "rename":
            self.superseded |= past
        if op.group:
            self.groups[op.group].append(n)

    def before(self, a: int, b: int) -> bool:
        """Whether `b` was done in view of `a`."""
        return bool(self.past[b] >> a & 1)

    def conflict(self, mine: tuple[int, ...], theirs: tuple[int, ...]) -> None:
        """Counts a conflict of two versions once, whoever raises it; spurious when one has seen all that the other has."""
        pair = (min(mine, theirs), max(mine, theirs))
        if mine != theirs and pair not in self._raised:
            self._raised.add(pair)
            # The rename of a file with two versions moves both: that act is no order between them.
            both = set(mine) & set(theirs)
            a, b = (self._seen(tuple(n for n in ops if n not in both)) for ops in (mine, theirs))
            self.conflicts += 1
            self.spurious += a & b in (a, b)

    def _seen(self, ops: tuple[int, ...]) -> int:
        seen = 0
        for n in ops:
            seen |= self.past[n] | 1 << n
        return seen

    def read(self, replica: str, tree: Tree) -> None:
        """A user of `replica` looks around: counts the groups of others that are there in part."""
        lines = _lines(tree)
        for members in self.groups.values():
            if self.acts[members[0]].operation.replica != replica:
                self.torn += self._is_torn(members, lines)

    def _is_torn(self, members: list[int], lines: set[int]) -> bool:
        live = [n for n in members if self.acts[n].operation.op in _WRITES and not self.superseded >> n & 1]
        seen = sum(n in lines for n in live)
        return 0 < seen < len(live)

    def concurrent_pairs(self) -> int:
        """Pairs of writes and deletes on two replicas that set out from a common version, neither in view of the other."""
        by_path: dict[str, list[int]] = defaultdict(list)
        for n, act in self.acts.items():
            if act.operation.op in (*_WRITES, "delete"):
                by_path[act.operation.path].append(n)
        return sum(self._forked(a, b) for numbers in by_path.values() for i, a in enumerate(numbers) for b in numbers[i + 1 :])

    def _forked(self, a: int, b: int) -> bool:
        common = bool(self.direct[a] & self.direct[b]) or self.direct[a] == self.direct[b] == 0
        different = self.acts[a].operation.replica != self.acts[b].operation.replica
        return common and different and not self.before(a, b) and not self.before(b, a)

    def lost_updates(self, trees: Iterable[Tree]) -> int:
        """Writes that nobody shows and nobody replaced or deleted in view of them."""
        shown = set().union(*(_lines(tree) for tree in trees))
        return sum(act.operation.op in _WRITES and n not in shown and not self.superseded >> n & 1 for n, act in self.acts.items())

    def resurrected(self, trees: Iterable[Tree]) -> int:
        """Contents shown somewhere whose every line was deleted in view of it, and that no other operation kept alive."""
        shown = {content.lines for tree in trees for versions in tree.values() for content in versions}
        deletes = [n for n, act in self.acts.items() if act.operation.op == "delete"]
        return sum(any(self._came_back(lines, d) for d in deletes) for lines in shown)

    def _came_back(self, lines: tuple[int, ...], d: int) -> bool:
        past = self.past[d]
        if not all(past >> line & 1 for line in lines):
            return False
        path = self.acts[d].operation.path
        for n, act in self.acts.items():
            op = act.operation
            if n != d and op.op in (*_WRITES, "rename") and not past >> n & 1 and (path in (op.path, op.to) or self.past[n] & past):
                return False
        return True

    @staticmethod
    def divergence(trees: Sequence[Tree]) -> int:
        """Bytes of the versions that some replicas show under a path and others do not, once for each that does not."""
        holders: dict[tuple[str, Content], int] = defaultdict(int)
        for tree in trees:
            for path, versions in tree.items():
                for content in set(versions):
                    holders[path, content] += 1
        return sum(max(content.size, 1) * (len(trees) - many) for (_, content), many in holders.items())

    @staticmethod
    def duplicates(trees: Iterable[Tree]) -> int:
        """The most extra names in one tree under which it shows one and the same content."""
        most = 0
        for tree in trees:
            names: dict[tuple[int, ...], int] = defaultdict(int)
            for versions in tree.values():
                for content in versions:
                    names[content.lines] += 1
            most = max(most, sum(many - 1 for many in names.values()))
        return most


def _lines(tree: Tree) -> set[int]:
    return {line for versions in tree.values() for content in versions for line in content.lines}


def copies(nodes: Iterable[Node]) -> int:
    """The most versions beyond the first that one replica shows beside each other, or under names of conflicted copies."""
    most = 0
    for node in nodes:
        tree = node.tree()
        beside = sum(len(versions) - 1 for versions in tree.values())
        most = max(most, beside + sum("(conflicted copy" in path for path in tree))
    return most
