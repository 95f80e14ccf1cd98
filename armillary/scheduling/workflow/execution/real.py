"""Workflows that really run on this machine, with tiers as directories.

Files have their sizes times a scale, computation spins for its seconds times a scale, and copies between tiers are copies between
directories. The planner gets a profile that is measured on the same directories.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line, unknown
from armillary.scheduling.workflow.planning.configurations import Configurations
from armillary.scheduling.workflow.stages.workflow import Floats, Workflow
from armillary.scheduling.workflow.storage.profile import Profile, profile_storage
from armillary.scheduling.workflow.storage.tiers import Machine, Tier
from armillary.tasks import Graph, Task, run_on_files

MOST_TASKS = 200
MOST_BYTES = 1 << 30
#: Seconds of computation over all configurations.
MOST_SECONDS = 60.0


def graph_of(workflow: Workflow) -> Graph:
    """The workflow as a task graph whose tasks have their numbers as keys."""
    graph = Graph(workflow.name)
    files = [graph.data(str(n), nbytes=int(size)) for n, size in enumerate(workflow.size)]
    outputs: list[list[int]] = [[] for _ in range(workflow.tasks)]
    for f, t in enumerate(workflow.producer.tolist()):
        if t >= 0:
            outputs[t].append(f)
    made: list[Task] = []
    for t in range(workflow.tasks):
        reads = workflow.read[workflow.first_read[t] : workflow.first_read[t + 1]].tolist()
        parents = workflow.parent[workflow.first_parent[t] : workflow.first_parent[t + 1]].tolist()
        made.append(graph.add(
            None, name=workflow.stages[workflow.stage[t]], key=str(t), reads=[files[f] for f in reads],
            writes=[files[f] for f in outputs[t]], after=[made[p] for p in parents], cost=float(workflow.compute_s[t]),
        ))  # fmt: skip
    return graph


def check_size(workflow: Workflow, configurations: int, tiers: int, bytes_scale: float, seconds_scale: float) -> None:
    """Raises an InputError if a workflow is too large to run here."""
    seconds = float(workflow.compute_s.sum()) * seconds_scale * configurations
    size = float(workflow.size.sum()) * bytes_scale * tiers
    if workflow.tasks > MOST_TASKS or seconds > MOST_SECONDS or size > MOST_BYTES:
        raise InputError(
            f"found {workflow.tasks} tasks, {seconds:.3g} s of computation and up to {size:.3g} bytes for {configurations} configurations; "
            f"expected at most {MOST_TASKS}, {MOST_SECONDS:g} s and {MOST_BYTES:,} bytes; use --bytes-scale and --seconds-scale",
            where=workflow.name,
        )  # fmt: skip


def folders_of(said: str, tiers: tuple[str, ...]) -> dict[str, Path]:
    """Directories by tier, `beegfs=/data,tmpfs=/dev/shm`; the rest are the system's temporary directory, and memory for tmpfs."""
    found = {}
    for part in filter(None, said.split(",")):
        tier, _, folder = part.partition("=")
        if tier not in tiers:
            raise unknown("tier", tier, tiers, where="--directories")
        if not Path(folder).is_dir() or not os.access(folder, os.W_OK):
            raise InputError(f'found "{one_line(folder, 80)}"; expected a directory that can be written', where="--directories")
        found[tier] = Path(folder)
    memory = Path("/dev/shm")
    for tier in tiers:
        if tier not in found:
            found[tier] = memory if tier == "tmpfs" and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    return found


@contextmanager
def _inside(folders: Mapping[str, Path]) -> Iterator[dict[str, Path]]:
    """A temporary directory in each of the folders."""
    made: dict[str, tempfile.TemporaryDirectory[str]] = {}
    try:
        for tier, folder in folders.items():
            made[tier] = tempfile.TemporaryDirectory(dir=folder, prefix="armillary-tier-", ignore_cleanup_errors=True)
        yield {tier: Path(one.name) for tier, one in made.items()}
    finally:
        for one in made.values():
            one.cleanup()


def measured_machine(machine: Machine, folders: Mapping[str, Path]) -> tuple[Machine, Profile]:
    """This machine as one node with the tiers of another one, and the measured profile of their directories."""
    grids = {tier: profile_storage(folder, transfers=(1 << 16, 1 << 20), workers=(1, 2), file_bytes=4 << 20)
             for tier, folder in folders.items()}  # fmt: skip
    tiers = []
    for tier in machine.tiers:
        rate = grids[tier.name].rate
        read, write = float(rate[0].max()), float(rate[1].max())
        shared = (read, write) if tier.shared else (float("inf"), float("inf"))
        tiers.append(Tier(tier.name, tier.shared, read, write, read, write, 0.0, 0.0, *shared, tier.capacity))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return replace(machine, name="here", nodes=1, cores=max(1, min(cores, 64)), tiers=tuple(tiers)), Profile(grids)


def scaled(workflow: Workflow, bytes_scale: float, seconds_scale: float) -> Workflow:
    """The workflow as it runs here."""
    return replace(workflow, size=np.floor(workflow.size * bytes_scale), compute_s=workflow.compute_s * seconds_scale)


def _by_name(folder: Mapping[str, Path]) -> Callable[[Task], Path]:
    return lambda task: folder[task.name]


def run_all(workflow: Workflow, machine: Machine, configurations: Configurations, folders: Mapping[str, Path]) -> Floats:
    """Measured makespans in seconds of a workflow in its own size; the files of a run are removed before the next one starts."""
    graph = graph_of(workflow)
    found = np.empty(len(configurations))
    home = machine.names[machine.shared]
    for n, tier in enumerate(configurations.tier.tolist()):
        by_stage = {stage: machine.names[t] for stage, t in zip(workflow.stages, tier)}
        with _inside(folders) as here:
            folder = {stage: here[name] for stage, name in by_stage.items()}
            ran = run_on_files(graph, _by_name(folder), here[home], workers=machine.cores, most_bytes=MOST_BYTES)
        found[n] = float(ran["end"].max())  # type: ignore[arg-type]
    return found
