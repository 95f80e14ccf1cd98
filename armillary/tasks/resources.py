"""Resources that tasks hold while they run: cores, devices, memory and licences of a group of workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.tasks.graph import Task


class Pool:
    """The consumable resources of one group of workers: the totals, and what is free."""

    def __init__(self, cores: int, others: Mapping[str, float] | None = None) -> None:
        self.has: dict[str, float] = {**(others or {}), "cores": cores}
        self.free = dict(self.has)

    def check(self, tasks: Iterable[Task], where: str) -> None:
        """Raises an `InputError` for the first task that could never start."""
        for task in tasks:
            if task.needs:
                for resource, amount in task.needs.items():
                    if amount > self.has.get(resource, 0):
                        has = self.has.get(resource, 0)
                        raise InputError(f"task {task.key} needs {amount:g} {resource}; no worker group has more than {has:g}", where=where)
            if task.nodes > 1:
                raise InputError(f"task {task.key} needs {task.nodes} nodes at once; gangs run on virtual workers", where=where)

    def take(self, task: Task) -> bool:
        """Takes what the task needs; returns False, and takes nothing, if it is not free."""
        if task.needs is None:
            if self.free["cores"] < 1:
                return False
            self.free["cores"] -= 1
            return True
        needs = task.needs if "cores" in task.needs else {**task.needs, "cores": 1}
        if any(amount > self.free[resource] for resource, amount in needs.items()):
            return False
        for resource, amount in needs.items():
            self.free[resource] -= amount
        return True

    def give(self, task: Task) -> None:
        """Releases what the task held."""
        if task.needs is None:
            self.free["cores"] += 1
            return
        for resource, amount in task.needs.items():
            self.free[resource] += amount
        if "cores" not in task.needs:
            self.free["cores"] += 1
