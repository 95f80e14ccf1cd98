"""Every interleaving of two replicas under link transactions: what users do, what is delivered, and at most a fault or two, in any order.

A state is both replicas and what is on the link. From each, every step that could come next is tried: a user's next operation, the
delivery of the oldest message either way, a repetition (when nothing is on the link), and, while the budget lasts, a fault: a message
lost, doubled or overtaken (the copy or the late one arrives at any later step, whatever has happened since), a repetition before its
time, the link cut (what is on it is lost; it may come back at any later step), or a replica that crashes and keeps its store and
registers only. Each state is looked at once. In each must hold:

- conservation: no version that was there is nowhere now, and what is staged at one end is in the other's store;
- both ends have a transaction or neither: what one has committed or finished, the other holds staged or shows, both directions; a commit
  is never taken back, and no end leaves one before the other shows its part;
- no version is applied twice, none of a group without the rest;
- the table of resumption never meets a pair that cannot be;
- both replicas say "in sync" only with equal trees;
- where messages cannot be lost, nothing is open when nothing is on the way: no end needs a timer to go on;

and where nothing is left to do, both have all versions, and after one more round say the same (a last message that was lost leaves its
receiver "waiting" until then). From every state such an end can be reached.
"""

from __future__ import annotations

import hashlib
import marshal
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, NamedTuple

from ..replicas.link_register import LinkEnd, Phase, Word
from ..replicas.versions import Item, VersionStore
from ..transactional_link import LinkNode, TransactionalLink
from .protocol import Act, Message
from .schedule import Operation

NAMES = ("a", "b")
FAULTS = ("loss", "duplication", "delay", "haste", "partition", "crash")
#: Violations after which the search ends.
ENOUGH = 10
Script = tuple[tuple[Operation, ...], tuple[Operation, ...]]


@dataclass(frozen=True)
class Violation:
    """What did not hold, and the steps that led there."""

    what: str
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Explored:
    """How many states there were, how many of them were ends, and what did not hold; `complete` unless `most` states were not enough."""

    states: int
    steps: int
    ends: int
    complete: bool
    violations: tuple[Violation, ...]


class _Desk:
    """A replica's host; whoever asked the replica to act puts what it sends on the link."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.peers: tuple[str, ...] = (NAMES[1 - NAMES.index(name)],)
        self.out: list[Message] = []

    def now(self) -> float:
        return 0.0

    def clock(self) -> float:
        return 0.0

    def send(self, peer: str, message: Message) -> None:
        self.out.append(message)

    def after(self, delay_s: float, call: Callable[..., object], *args: Any) -> None:
        """Ignores timers, because repetitions are steps of their own and the node's own flag says that one is due."""

    def shows(self, ops: tuple[int, ...]) -> None: ...

    def conflict(self, mine: tuple[int, ...], theirs: tuple[int, ...]) -> None: ...


class _State(NamedTuple):
    """Both replicas, the messages on the way to each, how far each user is, whether the link is up, the faults left, and strays.

    A stray is a message that arrives out of order, with the replica it is for.
    """

    nodes: tuple[LinkNode, LinkNode]
    wires: tuple[tuple[Message, ...], tuple[Message, ...]]
    done: tuple[int, int]
    up: bool
    left: int
    strays: tuple[tuple[int, Message], ...] = ()


def scripts(paths: Iterable[str] = ("f",), most: int = 3) -> Iterator[Script]:
    """Yields all ways in which two users do up to `most` writes, appends, deletes and renames to a free name on these files."""
    alphabet = [(op, path) for path in paths for op in ("write", "append", "delete", "rename")]
    for total in range(1, most + 1):
        for word in product(alphabet, repeat=total):
            for size in range(total // 2, total + 1):
                for mine in combinations(range(total), size):
                    yield _script(word, set(mine))


def _script(word: tuple[tuple[str, str], ...], mine: set[int]) -> Script:
    users: tuple[list[Operation], list[Operation]] = ([], [])
    for i, (op, path) in enumerate(word):
        who = 0 if i in mine else 1
        users[who].append(Operation(0.0, NAMES[who], op, path, f"{path}{NAMES[who]}{i}" if op == "rename" else "", 10))
    return tuple(users[0]), tuple(users[1])


def explore_links(
    script: Script, how: TransactionalLink | None = None, *, faults: Iterable[str] = FAULTS, budget: int = 1, most: int = 1_000_000
) -> Explored:
    """Explores a script: the operations of each of two replicas, in each one's order."""
    return _Explorer(script, how or TransactionalLink(), tuple(faults), budget, most).run()


class _Explorer:
    def __init__(self, script: Script, how: TransactionalLink, faults: tuple[str, ...], budget: int, most: int) -> None:
        self.script, self.how, self.faults, self.most = script, how, faults, most
        self.violations: list[Violation] = []
        start = _State((LinkNode(_Desk("a"), how), LinkNode(_Desk("b"), how)), ((), ()), (0, 0), True, budget)
        self.start = _linked(start, up=True)
        #: States by the digest of what matters in them, with the number and step that led there; and who leads where.
        self.known: dict[bytes, int] = {}
        self.came: list[tuple[int, str]] = []
        self.backward: list[list[int]] = []

    def run(self) -> Explored:
        todo = deque([(self._number(self.start, -1, "start"), self.start)])
        ends: list[int] = []
        steps = 0
        while todo and len(self.came) <= self.most and len(self.violations) < ENOUGH:
            number, state = todo.pop()
            before = _versions(state)
            last = True
            for name, after in self._steps(state):
                last, steps = False, steps + 1
                seen = len(self.came)
                following = self._number(after, number, name)
                if before - _versions(after):
                    self._report(following, "conservation: a version is nowhere")
                for what in _commits_taken_back(state, after):
                    self._report(following, what)
                if following == seen:
                    for what in self._faults_of(after):
                        self._report(following, what)
                    todo.append((following, after))
            if last:
                ends.append(number)
                for what in _faults_at_the_end(state):
                    self._report(number, what)
        complete = not todo
        if complete:
            self._check_ways_out(ends)
        return Explored(len(self.came), steps, len(ends), complete, tuple(self.violations))

    def _number(self, state: _State, before: int, step: str) -> int:
        key = hashlib.blake2b(marshal.dumps(_key(state), 2), digest_size=16).digest()
        number = self.known.get(key)
        if number is None:
            number = self.known[key] = len(self.came)
            self.came.append((before, step))
            self.backward.append([])
        if before >= 0:
            self.backward[number].append(before)
        return number

    def _report(self, number: int, what: str) -> None:
        steps = []
        while number >= 0:
            number, step = self.came[number]
            steps.append(step)
        if len(self.violations) < ENOUGH:
            self.violations.append(Violation(what, tuple(reversed(steps))))

    def _check_ways_out(self, ends: list[int]) -> None:
        met = set(ends)
        todo = list(ends)
        while todo:
            for number in self.backward[todo.pop()]:
                if number not in met:
                    met.add(number)
                    todo.append(number)
        for number in range(len(self.came)):
            if number not in met:
                self._report(number, "no end can be reached from here")
                return

    def _steps(self, state: _State) -> Iterator[tuple[str, _State]]:
        for i in (0, 1):
            if state.done[i] < len(self.script[i]):
                yield f"{NAMES[i]} {_says(self.script[i][state.done[i]])}", self._acted(state, i)
            if state.wires[i]:
                yield f"{NAMES[i]} receives {state.wires[i][0].kind}", _delivered(state, i)
        for k, (i, message) in enumerate(state.strays):
            yield f"{NAMES[i]} receives {message.kind}, late", _strayed(state, k)
        for i in (0, 1):
            if state.up and state.nodes[i]._retrying[NAMES[1 - i]]:
                if not any(state.wires) and not state.strays:
                    yield f"{NAMES[i]} repeats", _repeated(state, i)
                elif state.left and "haste" in self.faults:
                    yield f"{NAMES[i]} repeats before its time", _repeated(state._replace(left=state.left - 1), i)
        if not state.up:
            yield "link up", _linked(state, up=True)
        if state.left:
            yield from self._with_a_fault(state._replace(left=state.left - 1))

    def _with_a_fault(self, state: _State) -> Iterator[tuple[str, _State]]:
        for i in (0, 1):
            wire = state.wires[i]
            if wire and "loss" in self.faults:
                yield f"{wire[0].kind} to {NAMES[i]} is lost", _with_wire(state, i, wire[1:])
            if wire and "duplication" in self.faults:
                yield f"{wire[0].kind} to {NAMES[i]} is doubled", state._replace(strays=(*state.strays, (i, wire[0])))
            if len(wire) > 1 and "delay" in self.faults:
                late = state._replace(strays=(*state.strays, (i, wire[0])))
                yield f"{wire[0].kind} to {NAMES[i]} is overtaken", _with_wire(late, i, wire[1:])
            if "crash" in self.faults:
                yield f"{NAMES[i]} crashes", _crashed(state, i)
        if state.up and "partition" in self.faults:
            yield "link down", _linked(state, up=False)

    def _acted(self, state: _State, i: int) -> _State:
        op = self.script[i][state.done[i]]
        nodes = _copied(state.nodes, i)
        number = sum(map(len, self.script[:i])) + state.done[i]
        node = nodes[i]
        if _is_possible(node, op):
            node.local(Act(number, op))
        done = (state.done[0] + (i == 0), state.done[1] + (i == 1))
        return _sent(state._replace(nodes=nodes, done=done), i)

    def _faults_of(self, state: _State) -> Iterator[str]:
        a, b = state.nodes
        if any(link.errors for node in state.nodes for link in node.links.values()):
            yield "resumption met a pair of phases that cannot be"
        for node, other in ((a, b), (b, a)):
            dots = [dot for dot, _ in node.store.log]
            if len(set(dots)) < len(dots):
                yield "a version was applied twice"
            yield from _halves(node, other)
            for group in self._torn(node):
                yield f"group {group} is there in part"
        if a.status() == b.status() == "in sync" and a.tree() != b.tree():
            yield "both say in sync, and their trees differ"
        if "loss" not in self.faults and state.up and not any(state.wires) and not state.strays:
            for node in state.nodes:
                if any(link.is_open for link in node.links.values()):
                    yield "nothing is on the way, and a transaction is open"

    def _torn(self, node: LinkNode) -> Iterator[str]:
        for i in (0, 1):
            sizes: dict[str, int] = {}
            for op in self.script[i]:
                if op.group and op.op not in ("begin", "end") and NAMES[i] != node.host.name:
                    sizes[op.group] = sizes.get(op.group, 0) + 1
            for group, many in sizes.items():
                here = sum(one.group == group for one in node.store.versions.values())
                if 0 < here < many:
                    yield group


def _says(op: Operation) -> str:
    return f"{op.op}s {op.path}{op.group}{f' to {op.to}' if op.to else ''}"


def _is_possible(node: LinkNode, op: Operation) -> bool:
    live = any(v.content is not None for v in node.look(op.path))
    free = not any(v.content is not None for v in node.look(op.to))
    return op.op not in ("delete", "rename") or (live and (op.op == "delete" or free))


def _halves(node: LinkNode, other: LinkNode) -> Iterator[str]:
    """Yields what one end of a transaction has and the other has not."""
    (here,), (there,) = node.links.values(), other.links.values()
    mine, theirs = here.register, there.register
    held = {one.id for _, one in theirs.staged} | other.store.versions.keys()
    if mine.phase in (Phase.HELD, Phase.COMMITTING) and not _are_in(mine.staged, other.store.versions):
        yield "conservation: staged here, and not there"
    if mine.phase in (Phase.COMMITTING, Phase.DONE) and not _are_in(mine.outgoing, held):
        yield f"half a transaction: {mine.phase.value} here, and what it gave is neither staged nor shown there"
    if mine.phase is Phase.DONE and not _are_in(mine.staged, node.store.versions):
        yield "half a transaction: done here, and what it brought is not shown"


def _are_in(items: Iterable[Item], ids: Container[str]) -> bool:
    return all(one.id in ids for _, one in items)


def _commits_taken_back(state: _State, after: _State) -> Iterator[str]:
    """Checks that after COMMIT both go forward: the end that leaves it shows what it staged, and the other what it was given."""
    for i in (0, 1):
        (old,), (new,) = state.nodes[i].links.values(), after.nodes[i].links.values()
        r = old.register
        if r.phase is Phase.COMMITTING and (new.register.phase, new.register.n) != (r.phase, r.n):
            if not _are_in(r.staged, after.nodes[i].store.versions):
                yield "half a transaction: a commit was taken back"
            if not _are_in(r.outgoing, after.nodes[1 - i].store.versions):
                yield "half a transaction: over for the committer before the other shows it"


def _versions(state: _State) -> set[str]:
    return state.nodes[0].store.versions.keys() | state.nodes[1].store.versions.keys()


def _faults_at_the_end(state: _State) -> Iterator[str]:
    a, b = (node.store for node in state.nodes)
    if a.versions.keys() != b.versions.keys():
        yield "the end: one has a version that the other lacks"
    if state.nodes[0].tree() != state.nodes[1].tree():
        yield "the end: trees differ"
    made = _State(_copied(_copied(state.nodes, 0), 1), ((), ()), state.done, up=True, left=0)
    for i in (0, 1):
        made.nodes[i].round()
        made = _sent(made, i)
    while any(made.wires):
        made = _delivered(made, 0 if made.wires[0] else 1)
    said = {node.status() for node in made.nodes}
    if len(said) > 1 or not said <= {"in sync", "conflict"}:
        yield f"the end: they say {' and '.join(sorted(said))}"


def _sent(state: _State, i: int) -> _State:
    """Puts what replica `i` has sent on the link."""
    desk: Any = state.nodes[i].host
    out, desk.out = tuple(desk.out), []
    return _with_wire(state, 1 - i, state.wires[1 - i] + (out if state.up else ()))


def _with_wire(state: _State, i: int, wire: tuple[Message, ...]) -> _State:
    return state._replace(wires=(wire, state.wires[1]) if i == 0 else (state.wires[0], wire))


def _delivered(state: _State, i: int) -> _State:
    return _taken(_with_wire(state, i, state.wires[i][1:]), i, state.wires[i][0])


def _strayed(state: _State, k: int) -> _State:
    return _taken(state._replace(strays=state.strays[:k] + state.strays[k + 1 :]), *state.strays[k])


def _taken(state: _State, i: int, message: Message) -> _State:
    nodes = _copied(state.nodes, i)
    nodes[i].receive(NAMES[1 - i], message)
    return _sent(state._replace(nodes=nodes), i)


def _repeated(state: _State, i: int) -> _State:
    nodes = _copied(state.nodes, i)
    nodes[i]._retry(NAMES[1 - i])
    return _sent(state._replace(nodes=nodes), i)


def _linked(state: _State, *, up: bool) -> _State:
    """Takes the link down, with the loss of all that is on it, or brings it up, of which both ends hear."""
    nodes = _copied(_copied(state.nodes, 0), 1)
    made = _State(nodes, ((), ()), state.done, up, state.left)
    for i in (0, 1):
        nodes[i].link(NAMES[1 - i], up)
        made = _sent(made, i)
    return made


def _crashed(state: _State, i: int) -> _State:
    """Restarts a replica from its store and its register. What is on the link stays there; the other end notices nothing."""
    nodes = _copied(state.nodes, i)
    old, peer = nodes[i], NAMES[1 - i]
    node = LinkNode(_Desk(NAMES[i]), old.how)
    _keep(old.store, node.store)
    node._made = old._made
    node.links[peer].register = old.links[peer].register
    node.links[peer].errors = old.links[peer].errors
    both = (node, nodes[1]) if i == 0 else (nodes[0], node)
    made = state._replace(nodes=both)
    if state.up:
        node.link(peer, True)
    return _sent(made, i)


def _copied(nodes: tuple[LinkNode, LinkNode], i: int) -> tuple[LinkNode, LinkNode]:
    """Returns both, replica `i` as a copy that may be changed."""
    old = nodes[i]
    node = LinkNode(_Desk(old.host.name), old.how)
    _keep(old.store, node.store)
    node._up, node._retrying = dict(old._up), dict(old._retrying)
    node._made, node._deletes, node._looked = old._made, list(old._deletes), old._looked
    for peer, link in old.links.items():
        _copy_link(link, node.links[peer])
    return (node, nodes[1]) if i == 0 else (nodes[0], node)


def _copy_link(link: LinkEnd, copy: LinkEnd) -> None:
    copy.register, copy.theirs, copy.errors = link.register, dict(link.theirs), link.errors
    copy._resuming, copy._deferred = link._resuming, list(link._deferred)


def _keep(store: VersionStore, copy: VersionStore) -> None:
    copy.versions, copy.log, copy.counts = dict(store.versions), list(store.log), dict(store.counts)
    copy.heads = {file: set(ids) for file, ids in store.heads.items()}
    copy.at_path = {path: set(ids) for path, ids in store.at_path.items()}
    copy.places = {author: list(places) for author, places in store.places.items()}
    copy.depth, copy.dots, copy.limit, copy._children = dict(store.depth), dict(store.dots), store.limit, set(store._children)


def _key(state: _State) -> Any:
    """Returns what tells two states apart; transaction numbers and the counts of questions count only by their differences."""
    links = [next(iter(node.links.values())) for node in state.nodes]
    base = min(link.register.n for link in links)
    asked = [link.register.asked for link in links]
    nodes = tuple(_node_key(node, link, base, asked) for node, link in zip(state.nodes, links, strict=True))
    wires = tuple(tuple(_word_key(message, base, asked, 1 - i) for message in wire) for i, wire in enumerate(state.wires))
    strays = tuple(sorted((i, _word_key(message, base, asked, 1 - i)) for i, message in state.strays))
    return nodes, wires, strays, state.done, state.up, state.left


def _node_key(node: LinkNode, link: LinkEnd, base: int, asked: list[int]) -> Any:
    r, peer = link.register, NAMES.index(node.host.peers[0])
    register = (
        r.epoch, r.n - base, r.phase.value, r.digest, tuple(v.id for _, v in r.staged), tuple(v.id for _, v in r.outgoing),
        r.finished[0] - base if r.finished[1] else -1, r.finished[1],
    )  # fmt: skip
    waiting = tuple(_word_key(message, base, asked, peer) for message in link._deferred)
    link_key = (register, tuple(sorted(link.theirs.items())), link._resuming, waiting, link.errors)
    heads = tuple(sorted(i for ids in node.store.heads.values() for i in ids))
    log = tuple((*dot, one.id) for dot, one in node.store.log)
    volatile = (tuple(node._up.values()), tuple(node._retrying.values()), node._made, node._looked)
    return link_key, log, heads, node.store.limit, volatile, tuple(one.id for _, one in node._deletes)


def _word_key(message: Message, base: int, asked: list[int], sender: int) -> Any:
    word: Word = message.body
    asker = sender if message.kind == "resume" else 1 - sender
    nonce = asked[asker] - word.nonce if message.kind in ("resume", "register") else 0
    items = tuple(v.id for _, v in word.items)
    return message.kind, word.epoch, word.n - base, tuple(sorted(word.summary.items())), items, word.digest, word.phase.value, nonce
