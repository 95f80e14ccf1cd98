"""Executables as steps of a Slurm allocation, one `srun` per task: the backend `srun`."""

from __future__ import annotations

import os
from typing import ClassVar

from armillary.runtime.pilot.agent.task import Live

from .slurm import Allocation
from .spawner import Spawner


class Srun(Spawner):
    """An `srun` on this machine for each task, followed like any child process; it lives as long as the task and passes on its end."""

    name: ClassVar[str] = "srun"

    def __init__(self, names: list[str], keep: int, allocation: Allocation) -> None:
        super().__init__(names, keep)
        self._allocation = allocation

    def commands(self, live: Live) -> list[tuple[list[str], set[int] | None, str]]:
        """One `srun` for all ranks."""
        task = live.task
        assert task is not None
        nodes = [self._names[node] for node, _, _ in live.place]
        words = self._allocation.step(nodes, task.ranks, task.cores_per_rank)
        if task.gpus_per_rank:
            words.append(f"--gpus-per-task={task.gpus_per_rank}")
        if task.cwd is not None:
            words.append(f"--chdir={os.fspath(task.cwd)}")
        return [([*words, *map(os.fspath, task.command)], None, "")]

    def environment(self, live: Live, rank: int, devices: str) -> dict[str, str]:
        """That of the allocation, and the task's own. Ranks are told apart by Slurm's variables, such as SLURM_PROCID."""
        task = live.task
        assert task is not None
        return {**self._allocation.environment, "ARMILLARY_TASK": str(live.id), **task.env}
