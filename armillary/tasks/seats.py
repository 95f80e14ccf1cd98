"""The free virtual workers and the free named resources of each node, and where a task could run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappush
from typing import TYPE_CHECKING

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.tasks.graph import Task
    from armillary.tasks.site import Site


class Seats:
    """Free workers and free resources of every node of a site."""

    def __init__(self, site: Site, resources: Mapping[str, float]) -> None:
        self.site = site
        #: The heaps of workers by kind, which may contain workers that are no longer idle; the byte says which are.
        self.idle: dict[str, list[int]] = {kind: [] for kind in site.first}
        for worker, kind in enumerate(site.kinds):
            self.idle[kind].append(worker)
        self.is_idle = bytearray(b"\x01" * len(site.kinds))
        self.dead = bytearray(len(site.kinds))
        #: The free named resources of each node.
        self.free: list[dict[str, float]] = [{"memory": nbytes, **resources} for nbytes in site.node_memory]
        #: The most workers of each kind, and the most of each resource, in one node.
        self.most = {kind: max(sum(site.kinds[w] == kind for w in workers) for workers in site.workers_of) for kind in site.first}
        self.has = {name: max(free[name] for free in self.free) for name in self.free[0]}

    def check(self, tasks: Iterable[Task]) -> None:
        """Raises an `InputError` for the first task that needs more than any node has."""
        for task in tasks:
            if task.needs is None and task.nodes == 1:
                continue
            for resource, amount in (task.needs or {}).items():
                kind = _kind_of(resource)
                has = self.most[kind] if kind in self.most else self.has.get(resource, 0)
                if amount > has:
                    raise InputError(f"task {task.key} needs {amount:g} {resource}; no node has more than {has:g}", where="Virtual")
            if task.nodes > len(self.site.nodes):
                raise InputError(f"task {task.key} needs {task.nodes} nodes; there are {len(self.site.nodes)}", where="Virtual")
            if self.fits(task, self.site.workers_of, self.free) is None:
                each = ", ".join(f"{amount:g} {resource}" for resource, amount in (task.needs or {}).items())
                raise InputError(f"task {task.key} needs {each} on {task.nodes} nodes; there are no such nodes", where="Virtual")

    def take(self, workers: list[int], task: Task) -> None:
        """A task sits down."""
        for worker in workers:
            self.is_idle[worker] = 0
        if task.needs is not None:
            self.hold(self.free, workers, task, -1)

    def leave(self, workers: list[int], task: Task) -> None:
        """A task gets up."""
        for worker in workers:
            self.is_idle[worker] = 1
            heappush(self.idle[self.site.kinds[worker]], worker)
        if task.needs is not None:
            self.hold(self.free, workers, task, 1)

    def hold(self, free: list[dict[str, float]], workers: list[int], task: Task, sign: int) -> None:
        """Takes (-1) or releases (1) the named resources of a task on each of its nodes."""
        for node in {self.site.node_of[worker]: None for worker in workers}:
            for resource, amount in (task.needs or {}).items():
                if resource in free[node]:
                    free[node][resource] += sign * amount

    def empty(self) -> list[list[int]]:
        """The idle workers of each node."""
        return [[w for w in workers if self.is_idle[w] and not self.dead[w]] for workers in self.site.workers_of]

    def fits(self, task: Task, idle: list[list[int]], free: list[dict[str, float]]) -> list[int] | None:
        """The workers for a task that needs several: the cores, devices and resources of one rank on each of `nodes` nodes."""
        wanted = {"cpu": task.cores if "cpu" in task.on else 0}
        named: dict[str, float] = {}
        for resource, amount in (task.needs or {}).items():
            if resource != "cores":
                if _kind_of(resource) in self.most:
                    wanted[_kind_of(resource)] = int(amount)
                else:
                    named[resource] = amount
        if not any(wanted.values()):
            wanted[next((kind for kind in task.on if kind in self.most), task.on[0])] = 1
        chosen: list[int] = []
        nodes = 0
        for node, workers in enumerate(idle):
            if any(amount > free[node].get(resource, 0) for resource, amount in named.items()):
                continue
            mine: list[int] = []
            for kind, count in wanted.items():
                some = [w for w in workers if self.site.kinds[w] == kind][:count]
                mine += some
                if len(some) < count:
                    break
            else:
                chosen += mine
                nodes += 1
                if nodes == task.nodes:
                    return chosen
        return None


class Reservation:
    """The latest start of a waiting task, and what will be free then (EASY backfilling).

    Feitelson and Weil, Utilization and predictability in scheduling the IBM SP2 with backfilling, IPPS 1998.
    """

    def __init__(self, seats: Seats, head: Task, ends: Iterable[tuple[float, int, list[int], Task]], now: float) -> None:
        self._seats, self._head = seats, head
        self._idle, self._free = seats.empty(), [dict(free) for free in seats.free]
        self.when = now
        for until, _, workers, task in sorted(ends, key=lambda end: end[:2]):
            if seats.fits(head, self._idle, self._free) is not None:
                break
            for worker in workers:
                self._idle[seats.site.node_of[worker]].append(worker)
            seats.hold(self._free, workers, task, 1)
            self.when = until

    def spare(self, workers: list[int], task: Task) -> bool:
        """Whether the waiting task can start in time even if these workers are still busy with another task; if so, they count as busy."""
        idle = [[w for w in all_workers if w not in workers] for all_workers in self._idle]
        free = [dict(free) for free in self._free]
        self._seats.hold(free, workers, task, -1)
        if self._seats.fits(self._head, idle, free) is None:
            return False
        self._idle, self._free = idle, free
        return True


def _kind_of(resource: str) -> str:
    """The kind of worker that a need names: cores are cpu workers, and gpus are gpu workers."""
    return "cpu" if resource == "cores" else resource.removesuffix("s")
