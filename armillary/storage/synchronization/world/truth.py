"""What really happened: which operation was done in view of which, and what of it the replicas still show.

The simulator, not the protocol, keeps this. An operation's *past* is what the acting replica showed of the file when its user acted, with
everything that led to it. A write that a replica once showed and the protocol then replaced by itself is in nobody's past, because no user
decided against it. Seeing one file's newest version is not seeing a replica's other work, so no vector over replicas can stand for a past;
only the operations directly in view are kept, and the closure is walked where it is asked for, back to the older operation's number and no
further. What a write or delete replaced is marked once, when it is replaced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from .protocol import Act, Content, Node, Shown, Tracked

_WRITES = ("write", "append")
_ENDS = (*_WRITES, "delete")
Tree = Mapping[str, tuple[Content, ...]]


class _Visible:
    """The lines that a replica shows, kept up with its changes."""

    def __init__(self) -> None:
        self._at: dict[str, Iterable[Content]] = {}
        self._many: dict[int, int] = {}

    def lines(self, node: Tracked) -> Container[int]:
        """Returns all of them now."""
        many = self._many
        for place in node.changed:
            now = node.contents(place)
            for content in self._at.get(place, ()):
                for line in content.lines:
                    many[line] -= 1
                    if not many[line]:
                        del many[line]
            for content in now:
                for line in content.lines:
                    many[line] = many.get(line, 0) + 1
            self._at[place] = now
        node.changed.clear()
        return many


class Truth:
    """The causal history of one simulated run, and the counts over it. Operation numbers grow with time."""

    def __init__(self) -> None:
        self.acts: dict[int, Act] = {}
        #: The operations whose versions the user had in view.
        self.direct: dict[int, tuple[int, ...]] = {}
        #: The deletes and renames of which the user knew that they had emptied the path, for operations where nothing lay.
        self.aware: dict[int, tuple[int, ...]] = {}
        self.groups: dict[str, list[int]] = defaultdict(list)
        self.torn = 0
        self.conflicts = 0
        self.spurious = 0
        #: The operations that a later one acted upon (renames do not count, because they keep the content); with one, its whole past.
        self.superseded: set[int] = set()
        self._raised: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
        self._renames: list[int] = []
        self._ended: set[str] = set()
        self._names: list[str] = []
        #: For each replica, the groups that it has not seen whole yet, and how many of `_names` it has taken into account.
        self._open: dict[str, dict[str, None]] = defaultdict(dict)
        self._taken: dict[str, int] = defaultdict(int)
        self._visible: dict[str, _Visible] = defaultdict(_Visible)

    def happened(self, act: Act, shown: Sequence[Shown], emptied: tuple[int, ...] = ()) -> None:
        """Stamps an accepted operation with what its user saw.

        `emptied` are the deletes and renames of which the user knows where nothing lies at the path. Not every protocol keeps them, but
        whoever writes in view of a delete is not concurrent with what was deleted.
        """
        n, op = act.number, act.operation
        direct = tuple(dict.fromkeys(other for version in shown for other in version.ops))
        self.acts[n], self.direct[n] = act, direct
        if emptied:
            self.aware[n] = emptied
        if op.op == "rename":
            self._renames.append(n)
        else:
            self._supersede(direct)
        if op.group:
            if op.group not in self.groups:
                self._names.append(op.group)
            self.groups[op.group].append(n)

    def _supersede(self, ops: Iterable[int]) -> None:
        todo = [n for n in ops if n not in self.superseded]
        while todo:
            n = todo.pop()
            if n not in self.superseded:
                self.superseded.add(n)
                todo.extend(self.direct[n])

    def ended(self, group: str) -> None:
        """Notes that the author of the group is through with it."""
        self._ended.add(group)

    def before(self, a: int, b: int) -> bool:
        """Returns whether `b` was done in view of `a`."""
        if a >= b or (a not in self.superseded and self.acts[b].operation.op != "rename"):
            return False
        todo, met = [b], {b}
        while todo:
            for n in self.direct[todo.pop()]:
                if n == a:
                    return True
                if n > a and n not in met:
                    met.add(n)
                    todo.append(n)
        return False

    def past(self, n: int) -> set[int]:
        """Returns all operations in view of which `n` was done."""
        return set(_walk(self.direct[n], self.direct))

    def conflict(self, mine: tuple[int, ...], theirs: tuple[int, ...]) -> None:
        """Counts a conflict of two versions once, whoever raises it; spurious when one has seen all that the other has."""
        pair = (min(mine, theirs), max(mine, theirs))
        if mine != theirs and pair not in self._raised:
            self._raised.add(pair)
            # The rename of a file with two versions moves both, so that act does not order them.
            both = set(mine) & set(theirs)
            a, b = ([n for n in ops if n not in both] for ops in (mine, theirs))
            self.conflicts += 1
            self.spurious += self._within(a, b) or self._within(b, a)

    def _within(self, ops: Sequence[int], others: Sequence[int]) -> bool:
        return all(any(n == other or self.before(n, other) for other in others) for n in ops)

    def is_stale(self, shown: Iterable[Shown]) -> bool:
        """Returns whether someone has replaced or deleted, in view of it, one of the versions that are shown."""
        return any(
            version.content is not None and any(n in self.superseded and self.acts[n].operation.op in _WRITES for n in version.ops)
            for version in shown
        )

    def read(self, replica: str, node: Node) -> None:
        """Counts the groups of others that are there in part when a user of `replica` looks around.

        A group that was seen whole here is not asked for again before the end.
        """
        waiting = self._open[replica]
        for name in self._names[self._taken[replica] :]:
            if self.acts[self.groups[name][0]].operation.replica != replica:
                waiting[name] = None
        self._taken[replica] = len(self._names)
        if not waiting:
            return
        lines: Container[int] = self._visible[replica].lines(node) if isinstance(node, Tracked) else _lines(node.tree())
        for name in list(waiting):
            live = self._living(name)
            seen = sum([n in lines for n in live])
            if seen == len(live) and name in self._ended:
                del waiting[name]
            else:
                self.torn += seen > 0

    def at_the_end(self, replica: str, tree: Tree) -> None:
        """Counts the torn groups of others on the tree that is left."""
        lines = _lines(tree)
        for name, members in self.groups.items():
            if self.acts[members[0]].operation.replica != replica:
                self.torn += self._is_torn(name, self._living(name), lines)

    def _living(self, group: str) -> list[int]:
        return [n for n in self.groups[group] if self.acts[n].operation.op in _WRITES and n not in self.superseded]

    def _is_torn(self, group: str, live: list[int], lines: set[int]) -> bool:
        seen = sum(n in lines for n in live)
        return seen > 0 and (seen < len(live) or group not in self._ended)

    def concurrent_pairs(self) -> int:
        """Counts unordered pairs of writes and deletes on two replicas that set out from a common version, or from none on one path."""
        families: dict[int | str, list[int]] = defaultdict(list)
        for n, act in self.acts.items():
            if act.operation.op in _ENDS:
                for parent in self.direct[n] or (act.operation.path,):
                    families[parent].append(n)
        found: set[tuple[int, int]] = set()
        for numbers in families.values():
            if len(numbers) > 1:
                found.update((a, b) for i, a in enumerate(numbers) for b in numbers[i + 1 :] if self._are_apart(a, b))
        return len(found)

    def _are_apart(self, a: int, b: int) -> bool:
        if self.acts[a].operation.replica == self.acts[b].operation.replica or self.before(a, b):
            return False
        return not any(n == a or self.before(a, n) for n in self.aware.get(b, ()))

    def lost_updates(self, trees: Iterable[Tree]) -> int:
        """Writes that nobody shows and nobody replaced or deleted in view of them."""
        return len(self.lost(trees))

    def lost(self, trees: Iterable[Tree]) -> list[int]:
        """Returns their numbers."""
        shown: set[int] = set().union(*(_lines(tree) for tree in trees))
        gone = (n for n in self.acts if n not in shown and n not in self.superseded)
        return [n for n in gone if self.acts[n].operation.op in _WRITES]

    def resurrected(self, trees: Iterable[Tree]) -> int:
        """Counts contents shown somewhere whose every line was deleted in view of it, and that no other operation kept alive.

        A delete at a path from which the content had been renamed away is one of another file.
        """
        return len(self.revenants(trees))

    def revenants(self, trees: Iterable[Tree]) -> list[tuple[int, ...]]:
        """Returns their lines."""
        shown = {content.lines for tree in trees for versions in tree.values() for content in versions}
        doubtful = sorted(lines for lines in shown if lines and self.superseded.issuperset(lines))
        if not doubtful:
            return []
        children, at_path = self._children(), self._at_path()
        return [lines for lines in doubtful if self._came_back(lines, children, at_path)]

    def _children(self) -> dict[int, list[int]]:
        children: dict[int, list[int]] = defaultdict(list)
        for n, direct in self.direct.items():
            for parent in direct:
                children[parent].append(n)
        return children

    def _at_path(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for n, act in self.acts.items():
            for path in {act.operation.path, act.operation.to}:
                found[path].append(n)
        return found

    def _came_back(self, lines: tuple[int, ...], children: Mapping[int, list[int]], at_path: Mapping[str, list[int]]) -> bool:
        """Returns whether some delete saw all of `lines` while nothing of its file was written or renamed beside or after it."""
        for d in sorted(_walk([max(lines)], children)):
            if self.acts[d].operation.op == "delete":
                past = self.past(d)
                if not past.issuperset(lines) or self._was_moved_away(max(lines), d, past):
                    continue
                kin = {*_walk(past, children), *at_path[self.acts[d].operation.path]} - past - {d}
                if not any(self.acts[n].operation.op in (*_WRITES, "rename") for n in kin):
                    return True
        return False

    def _was_moved_away(self, tip: int, d: int, past: set[int]) -> bool:
        """Returns whether in the view of delete `d` the content had been renamed to another path than the one deleted."""
        renames = [n for n in past if self.acts[n].operation.op == "rename" and self.before(tip, n)]
        names = {self.acts[n].operation.to for n in renames if not any(self.before(n, m) for m in renames)}
        return bool(names) and self.acts[d].operation.path not in names

    @staticmethod
    def divergence(trees: Sequence[Tree]) -> int:
        """Returns the bytes of versions that some replicas show under a path and others do not, once for each that does not."""
        holders: dict[tuple[str, Content], int] = defaultdict(int)
        for tree in trees:
            for path, versions in tree.items():
                for content in set(versions):
                    holders[path, content] += 1
        return sum(max(content.size, 1) * (len(trees) - many) for (_, content), many in holders.items())

    def duplicates(self, trees: Iterable[Tree]) -> int:
        """Returns the most extra names in one tree under which it shows one and the same content, and that no user chose last."""
        most = 0
        chosen: dict[tuple[int, ...], set[str]] = {}
        children: dict[int, list[int]] = {}
        for tree in trees:
            names: dict[tuple[int, ...], list[str]] = defaultdict(list)
            for path, versions in tree.items():
                for content in versions:
                    names[content.lines].append(path)
            extra = 0
            for lines, paths in names.items():
                if len(paths) > 1 and lines:
                    if lines not in chosen:
                        children = children or self._children()
                        chosen[lines] = self._chosen_names(max(lines), children)
                    extra += len(paths) - max(1, len(chosen[lines].intersection(paths)))
            most = max(most, extra)
        return most

    def _chosen_names(self, tip: int, children: Mapping[int, list[int]]) -> set[str]:
        """Returns where users put this file last; concurrent renames give it two names, and that is nobody's mistake."""
        kin = set(_walk({*self.past(tip), tip}, children))
        renames = [n for n in self._renames if n in kin]
        last = {self.acts[n].operation.to for n in renames if not any(self.before(n, m) for m in renames)}
        return last or {self.acts[tip].operation.path}


def _walk(start: Iterable[int], edges: Mapping[int, Iterable[int]]) -> Iterator[int]:
    """Returns all that can be reached, the start too."""
    met = set(start)
    todo = list(met)
    while todo:
        n = todo.pop()
        yield n
        for other in edges.get(n, ()):
            if other not in met:
                met.add(other)
                todo.append(other)


def _lines(tree: Tree) -> set[int]:
    return {line for versions in tree.values() for content in versions for line in content.lines}


def copies(nodes: Iterable[Node]) -> int:
    """Returns the most versions beyond the first that one replica shows side by side, or under names of conflicted copies."""
    most = 0
    for node in nodes:
        tree = node.tree()
        beside = sum(len(versions) - 1 for versions in tree.values())
        most = max(most, beside + sum("(conflicted copy" in path for path in tree))
    return most
