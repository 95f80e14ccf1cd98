"""A graph consists of tasks and the order that their declared accesses to data imply.

The order of submission decides. A read comes after the last writes that overlap it, and a write comes after all accesses that overlap it;
two reads are independent. Two `commutes` of one part exclude each other but may run in any order. `reduces` accumulate privately and are
combined before the next other access.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from armillary.errors import InputError, unknown
from armillary.tasks.data import Data, Piece, Reduction, copy_of, piece_of
from armillary.tasks.regions import Box, Region, Regions, covers, is_scattered, meet

if TYPE_CHECKING:
    from armillary.tasks.measures import CriticalPath
    from armillary.tasks.run import Run

MODES = ("reads", "writes", "updates", "commutes", "reduces")


@dataclass(frozen=True)
class Work:
    """The work of a task for a machine model: it takes max(flops / peak, bytes / bandwidth) of the worker that runs it."""

    flops: float = 0.0
    bytes: float = 0.0
    precision: str = "fp64"

    def __post_init__(self) -> None:
        for name in ("flops", "bytes"):
            _check_number(getattr(self, name), f"Work.{name}")


Cost: TypeAlias = float | Mapping[str, float] | Work | None


@dataclass(frozen=True, slots=True)
class Access:
    """One declared access of a task: the data, the part, and the mode."""

    data: Data
    box: Box
    mode: str
    index: Any = None

    @property
    def piece(self) -> Piece:
        """The part of the data."""
        return Piece(self.data, self.box, self.index)


class Task:
    """A call with declared accesses, made by `Graph.add`. It describes the work, not its progress."""

    __slots__ = (
        "_key", "accesses", "after", "args", "before", "call", "cost", "excludes", "id", "kind", "kwargs", "name", "needs", "nodes", "on",
        "plain", "priority", "retries",
    )  # fmt: skip

    def __init__(self, id: int, call: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any] | None, name: str) -> None:
        self.id = id
        self.call = call
        self.args = args
        self.kwargs = kwargs
        self.name = name
        #: The program or category of a task from a file; tasks that do the same work on other data have the same kind.
        self.kind = ""
        self._key: str | None = None
        self.accesses: tuple[Access, ...] = ()
        #: The numbers of the tasks that must end before this one starts, and of those that wait for it.
        self.before: list[int] = []
        self.after: list[int] = []
        #: The tokens of the commuting accesses; two tasks with a common token do not run at the same time.
        self.excludes: tuple[int, ...] | None = None
        self.priority = 0.0
        self.needs: Mapping[str, float] | None = None
        self.on: tuple[str, ...] = ("cpu",)
        self.cost: Cost = None
        self.retries = 0
        self.nodes = 1
        #: Whether the arguments are passed as they are, because none of them is a handle, a part or a task.
        self.plain = True

    @property
    def key(self) -> str:
        """The key of the task, which is unique within the graph and the same in every process."""
        return self._key if self._key is not None else f"{self.name}#{self.id}"

    @property
    def cores(self) -> int:
        """The number of cores that it holds while it runs."""
        return int(self.needs.get("cores", 1)) if self.needs else 1

    def seconds(self, kind: str) -> float | None:
        """The stated seconds on a kind of worker, or None if it states none (or states `Work`, which needs a machine)."""
        if isinstance(self.cost, Mapping):
            return self.cost.get(kind)
        return None if isinstance(self.cost, Work) else self.cost

    def __repr__(self) -> str:
        return f"Task({self.key!r})"


class Graph:
    """Tasks plus the order that their accesses imply; iteration gives them in an order in which they may run.

    `g.data(name, value)` names data, `g.add(call, …)` submits a task, `g.run(executor)` runs it.
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.tasks: list[Task] = []
        self.handles: list[Data] = []
        self._names: dict[str, Data] = {}
        self._keys: dict[str, int] = {}
        self._regions: dict[int, Regions] = {}
        self._tokens = 0
        #: The open groups of reductions: (data, box) to the given reduction and the private copies so far.
        self._reductions: dict[tuple[int, Box], tuple[Reduction, Piece, list[Data]]] = {}

    # Building

    def data(
        self, name: str, value: Any = None, *, nbytes: int | None = None, shape: Sequence[int] | None = None, home: str | None = None
    ) -> Data:
        """A handle for a piece of data; a graph that only runs in simulated time needs `nbytes` instead of a value."""
        if name in self._names:
            raise InputError(f'data "{name}" already exists', where=self.name)
        handle = Data(len(self.handles), name, value, nbytes, tuple(shape) if shape is not None else None, home)
        self.handles.append(handle)
        self._names[name] = handle
        return handle

    def handle(self, name: str) -> Data:
        """The handle of that name."""
        if name not in self._names:
            raise unknown("data", name, self._names, where=self.name)
        return self._names[name]

    def add(
        self,
        call: Callable[..., Any] | None,
        *args: Any,
        reads: Iterable[Data | Piece] = (),
        writes: Iterable[Data | Piece] = (),
        updates: Iterable[Data | Piece] = (),
        commutes: Iterable[Data | Piece] = (),
        reduces: Iterable[Data | Piece | Reduction] = (),
        after: Iterable[Task] = (),
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        key: str | None = None,
        priority: float = 0,
        needs: Mapping[str, float] | None = None,
        on: Sequence[str] = ("cpu",),
        cost: Cost = None,
        retries: int = 0,
        nodes: int = 1,
    ) -> Task:
        """Submits `call(*args, **kwargs)`, which starts after the earlier tasks whose accesses conflict with its own.

        A handle among the arguments is passed as its value, and a task as its result (and becomes a predecessor); a handle that no access
        names is read. `needs` are resources that it holds while it runs ({"cores": 2, "licence": 1}), and `nodes` is the number of nodes of
        a gang. `cost` is what virtual workers charge: seconds, seconds per kind of worker, or `Work`. `after` adds predecessors without a
        data dependency.
        """
        if name is None:
            name = getattr(call, "__name__", None) or type(call).__name__
        task = Task(len(self.tasks), call, args, dict(kwargs) if kwargs else None, name)
        if key is not None:
            if key in self._keys:
                raise InputError(f'key "{key}" is already used by task {self._keys[key]}', where=self.name)
            task._key = key
        task.priority = priority
        if needs is not None or nodes != 1 or retries or cost is not None or on != ("cpu",):
            _check_terms(task, needs, on, cost, retries, nodes)
        accesses = self._declared(task, reads, writes, updates, commutes)
        given = [r if isinstance(r, Reduction) else Reduction(r) for r in reduces]
        before: dict[int, None] = {t.id: None for t in after}
        self._scan_arguments(task, accesses, {piece_of(r.piece, task.name).data.id for r in given}, before)
        # Combining earlier reductions submits tasks, which come before this one.
        for access in accesses:
            self._close(access.data, access.box)
        for reduction in given:
            self._reduce(task, reduction, accesses)
        task.id = len(self.tasks)
        if accesses:
            self._order(task, accesses, before)
            task.accesses = tuple(accesses)
        if before:
            task.before = list(before)
            for number in before:
                self.tasks[number].after.append(task.id)
        self.tasks.append(task)
        if key is not None:
            self._keys[key] = task.id
        return task

    def _declared(self, task: Task, reads: Any, writes: Any, updates: Any, commutes: Any) -> list[Access]:
        accesses = []
        for mode, things in (("reads", reads), ("writes", writes), ("updates", updates), ("commutes", commutes)):
            for thing in things:
                piece = piece_of(thing, f"task {task.name}: {mode}")
                accesses.append(Access(self._own(piece.data), piece.box, mode, piece.index))
        declared: Mapping[str, tuple[int, str]] | None = getattr(task.call, "__accesses__", None)
        if declared:
            for parameter, (at, mode) in declared.items():
                given = task.args[at] if at < len(task.args) else (task.kwargs or {}).get(parameter)
                if isinstance(given, Data | Piece):
                    piece = piece_of(given, task.name)
                    accesses.append(Access(self._own(piece.data), piece.box, mode, piece.index))
        return accesses

    def _own(self, data: Data) -> Data:
        if data.id >= len(self.handles) or self.handles[data.id] is not data:
            raise InputError(f"data {data.name} belongs to another graph", where=self.name)
        return data

    def _scan_arguments(self, task: Task, accesses: list[Access], reduced: set[int], before: dict[int, None]) -> None:
        for thing in _flat((*task.args, *(task.kwargs or {}).values())):
            if isinstance(thing, Task):
                if thing.id >= len(self.tasks) or self.tasks[thing.id] is not thing:
                    raise InputError(f"task {thing.key} belongs to another graph", where=self.name)
                before[thing.id] = None
                task.plain = False
            elif isinstance(thing, Data | Piece):
                task.plain = False
                piece = piece_of(thing, task.name)
                modes = {a.mode for a in accesses if a.data is piece.data and covers(a.box, piece.box)}
                if modes - {"reads"} and is_scattered(piece.index):
                    what = f"data {piece.data.name}: a part by a list of indices is a copy, which cannot be written"
                    raise InputError(f"{what}; expected slices, or the whole array", where=f"task {task.name}")
                if not modes and piece.data.id not in reduced:
                    accesses.append(Access(self._own(piece.data), piece.box, "reads", piece.index))

    def _order(self, task: Task, accesses: list[Access], before: dict[int, None]) -> None:
        tokens: list[int] = []
        for access in accesses:
            regions = self._regions.get(access.data.id)
            if regions is None:
                regions = self._regions[access.data.id] = Regions()
            mode = access.mode
            met = regions.meeting(access.box)
            for region in met:
                numbers = [*region.writers]
                if mode != "commutes":
                    numbers += region.commuters
                if mode != "reads":
                    numbers += region.readers
                before.update(dict.fromkeys(numbers))
            if mode == "reads":
                regions.exactly(access.box).readers.append(task.id)
            elif mode == "commutes":
                tokens += self._commute(task, regions.exactly(access.box), met)
            else:
                for region in met:
                    if covers(access.box, region.box):
                        regions.remove(region)
                regions.exactly(access.box).writers.append(task.id)
        before.pop(task.id, None)
        if tokens:
            task.excludes = tuple(dict.fromkeys(tokens))

    def _commute(self, task: Task, own: Region, met: list[Region]) -> list[int]:
        # A task holds its own token and those of the overlapping parts, so it excludes earlier and later tasks.
        if own.token is None:
            own.token = self._tokens
            self._tokens += 1
        own.commuters.append(task.id)
        return [own.token, *(r.token for r in met if r.token is not None)]

    # Reductions: private copies, and a task that combines them

    def _reduce(self, task: Task, reduction: Reduction, accesses: list[Access]) -> None:
        piece = piece_of(reduction.piece, f"task {task.name}: reduces")
        if piece.data.value is not None and not piece.data.in_place:
            raise InputError(f"data {piece.data.name} is not an array; reduces accumulates into arrays", where=f"task {task.name}")
        group = (piece.data.id, piece.box)
        open_group = self._reductions.get(group)
        if open_group is None or open_group[0].combine is not reduction.combine:
            self._close(piece.data, piece.box)
        _, _, copies = self._reductions.setdefault(group, (reduction, piece, []))
        value = None
        if piece.data.value is not None:
            value = copy_of(piece.of(piece.data.value))
            value[...] = reduction.neutral
        private = self.data(f"{piece.data.name}+{len(self.handles)}", value, nbytes=None if value is not None else piece.nbytes)
        copies.append(private)
        task.args = tuple(private if _is_part(a, piece) else a for a in task.args)
        task.plain = False
        accesses.append(Access(private, (), "writes"))

    def _close(self, data: Data, box: Box) -> None:
        """Combines the open reductions that overlap `box`."""
        for group in [g for g in self._reductions if g[0] == data.id and meet(g[1], box)]:
            reduction, piece, copies = self._reductions.pop(group)
            self.add(combine_parts, piece, reduction.combine, *copies, updates=[piece], name="combine", cost=0.0)

    def seal(self) -> None:
        """Combines every open reduction, as a run does before it starts."""
        for number, box in list(self._reductions):
            self._close(self.handles[number], box)

    # Queries

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        from armillary.tasks.measures import in_order

        return in_order(self)

    @property
    def edges(self) -> int:
        """The number of distinct pairs (task, predecessor)."""
        return sum(len(task.before) for task in self.tasks)

    def task(self, key: str) -> Task:
        """The task of that key."""
        if key in self._keys:
            return self.tasks[self._keys[key]]
        name, _, number = key.rpartition("#")
        if number.isdecimal() and int(number) < len(self.tasks) and self.tasks[int(number)].name == name:
            return self.tasks[int(number)]
        raise unknown("task", key, self._keys, where=self.name)

    @staticmethod
    def from_dask(dsk: Any) -> Graph:
        """The graph of a Dask graph (`{key: (call, argument…)}` or `{key: node}`) or of a Dask collection."""
        from armillary.tasks.formats.dask_graph import from_dask

        return from_dask(dsk)

    def critical_path(self, kind: str = "cpu") -> CriticalPath:
        """The longest chain of stated seconds on one kind of worker, and its tasks."""
        from armillary.tasks.measures import critical_path

        return critical_path(self, kind)

    def total_work(self, kind: str = "cpu") -> float:
        """The sum of the stated seconds of all tasks on one kind of worker, times their nodes."""
        from armillary.tasks.measures import total_work

        return total_work(self, kind)

    def width(self) -> int:
        """The most tasks at one depth, which is a lower bound on the number of workers that can be useful."""
        from armillary.tasks.measures import width

        return width(self)

    def validate(self) -> None:
        """Raises an `InputError` if there is a cycle (which it names) or an edge to a task that does not exist."""
        from armillary.tasks.measures import validate

        validate(self)

    def to_dot(self) -> str:
        """The graph in the DOT language, with `cost` if it is stated."""
        from armillary.tasks.formats.dot import to_dot

        return to_dot(self)

    def run(self, executor: Any, *, policy: Any = None, on_error: str = "stop", seed: int = 0) -> Run:
        """Runs every task on `executor` (`Threads`, `Processes`, `OnDask`, `Virtual`) and returns the `Run`.

        `policy` decides which ready task goes first; it is a name, or an object with `push`, `pop` and `on_finish`. With `on_error="stop"`
        nothing starts after a failure; with `"continue"` only the tasks that depend on it are cancelled.
        """
        if on_error not in ("stop", "continue"):
            raise unknown("on_error", str(on_error), ("stop", "continue"))
        self.seal()
        result: Run = executor.run(self, policy=policy, on_error=on_error, seed=seed)
        return result


def combine_parts(target: Any, combine: Callable[[Any, Any], Any], *parts: Any) -> None:
    """Folds private copies into `target`, in the order of submission."""
    for part in parts:
        target[...] = combine(target, part)


def task(**modes: Sequence[str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares the accesses of a function by its parameters, as in `@task(reads=("a",), writes=("b",))`; it stays an ordinary function."""
    for mode in modes:
        if mode not in MODES[:4]:
            raise unknown("access", mode, MODES[:4])

    def mark(call: Callable[..., Any]) -> Callable[..., Any]:
        import inspect

        names = list(inspect.signature(call).parameters)
        found = {}
        for mode, parameters in modes.items():
            for parameter in parameters:
                if parameter not in names:
                    raise unknown("parameter", parameter, names, where=getattr(call, "__qualname__", "task"))
                found[parameter] = (names.index(parameter), mode)
        call.__accesses__ = found  # type: ignore[attr-defined]
        return call

    return mark


def _flat(things: Iterable[Any]) -> Iterator[Any]:
    for thing in things:
        if isinstance(thing, list | tuple):
            yield from _flat(thing)
        else:
            yield thing


def _is_part(argument: Any, piece: Piece) -> bool:
    if not isinstance(argument, Data | Piece):
        return False
    mine = piece_of(argument, "argument")
    return mine.data is piece.data and mine.box == piece.box


def _check_number(value: Any, where: str) -> None:
    if not isinstance(value, int | float | np.number) or not math.isfinite(value) or value < 0:
        raise InputError(f"found {value!r}; expected a finite number that is not negative", where=where)


def _check_terms(task: Task, needs: Mapping[str, float] | None, on: Sequence[str], cost: Cost, retries: int, nodes: int) -> None:
    where = f"task {task.key}"
    for resource, amount in (needs or {}).items():
        _check_number(amount, f"{where}: needs.{resource}")
    if isinstance(cost, Mapping):
        for kind, seconds in cost.items():
            _check_number(seconds, f"{where}: cost.{kind}")
    elif cost is not None and not isinstance(cost, Work):
        _check_number(cost, f"{where}: cost")
    if isinstance(on, str) or not on:
        raise InputError(f"on: found {on!r}; expected worker kinds, such as ('cpu',)", where=where)
    for what, value, least in (("retries", retries, 0), ("nodes", nodes, 1)):
        if not isinstance(value, int) or not least <= value <= 1_000_000:
            raise InputError(f"{what}: found {value!r}; expected a whole number from {least}", where=where)
    task.needs = dict(needs) if needs else None
    task.on, task.cost, task.retries, task.nodes = tuple(on), cost, retries, nodes
