"""The objects of a Paraver trace: nodes, one application, tasks and threads, and the files `.row` and `.pcf` that give them names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..run.model import CALL, GRAPH, KERNEL, MEMORY, METRIC, MPI, NVTX, Run
from . import event_types as types
from .event_types import Values


@dataclass(frozen=True)
class Objects:
    """Nodes with the numbers of their CPUs, one CPU per thread; tasks are processes in their order."""

    run: Run

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes, in the order of their first process."""
        return list(dict.fromkeys(one.host for one in self.run.processes))

    @property
    def prefixes(self) -> list[str]:
        """For each thread `cpu:application:task:thread:`, all from 1 on."""
        found, within = [], dict.fromkeys(range(len(self.run.processes)), 0)
        for thread, cpu in zip(self.run.threads, self.cpus):
            within[thread.process] += 1
            found.append(f"{cpu}:1:{thread.process + 1}:{within[thread.process]}:")
        return found

    @property
    def cpus(self) -> list[int]:
        """For each thread its CPU: those of the first node come first."""
        nodes = {name: number for number, name in enumerate(self.nodes)}
        order = sorted(range(len(self.run.threads)), key=lambda k: nodes[self.run.processes[self.run.threads[k].process].host])
        found = [0] * len(order)
        for cpu, thread in enumerate(order, 1):
            found[thread] = cpu
        return found

    def header(self, date: str, end: int) -> str:
        """The first line of the `.prv`."""
        nodes = {name: number for number, name in enumerate(self.nodes)}
        cpus = [0] * len(nodes)
        threads = [0] * len(self.run.processes)
        for one in self.run.threads:
            cpus[nodes[self.run.processes[one.process].host]] += 1
            threads[one.process] += 1
        tasks = ",".join(f"{many}:{nodes[p.host] + 1}" for many, p in zip(threads, self.run.processes))
        return f"#Paraver ({date}):{end}_ns:{len(nodes)}({','.join(map(str, cpus))}):1:{len(threads)}({tasks})"

    def names(self) -> Iterator[str]:
        """The lines of the `.row`."""
        by_cpu = sorted(zip(self.cpus, self.run.threads), key=lambda pair: pair[0])
        within: dict[int, int] = {}
        labels = []
        for one in self.run.threads:
            within[one.process] = within.get(one.process, 0) + 1
            labels.append(one.label or f"THREAD 1.{one.process + 1}.{within[one.process]}")
        yield f"LEVEL CPU SIZE {len(by_cpu)}"
        yield from (f"CPU {cpu} {plain(one.label or str(one.number))}" for cpu, one in by_cpu)
        yield from ("", f"LEVEL NODE SIZE {len(self.nodes)}", *(plain(name or "node") for name in self.nodes))
        yield from ("", f"LEVEL TASK SIZE {len(self.run.processes)}")
        for p in self.run.processes:
            yield f"rank {p.rank}" if p.rank is not None else plain(f"{p.host} {p.pid}")
        yield from ("", f"LEVEL THREAD SIZE {len(labels)}", *labels)


def meanings(run: Run, values: Values, states: bool) -> Iterator[str]:
    """The lines of the `.pcf`: what types and values mean."""
    yield from ("DEFAULT_OPTIONS", "", "LEVEL               THREAD", "UNITS               NANOSEC", "")
    if states:
        yield from ("STATES", "0    Idle", f"{types.RUNNING}    Running", f"{types.WAITING}    Waiting for the device")
        yield from (f"{types.GROUP_COMMUNICATION}    Group communication", "", "STATES_COLOR", "0    {117,195,255}")
        yield from (f"{number}    {{{colour}}}" for number, colour in types.COLOURS.items())
        yield ""
    talking = run.named(lambda name: "nccl" in name)
    for kind, number, title, chosen in (
        (CALL, types.CALLS, "CUDA library call", None), (KERNEL, types.KERNELS, "CUDA kernel", ~talking),
        (KERNEL, types.NCCL, "NCCL kernel", talking), (MEMORY, types.COPIES, "CUDA memory operation", None),
        (GRAPH, types.GRAPHS, "CUDA graph", None),
    ):  # fmt: skip
        if len(run.of(kind)):
            yield from _type(number, title, _values(run, values.of_name[kind], chosen))
    if len(run.of(KERNEL)):
        for number, title in zip(types.LAUNCH, types.LAUNCH_TITLES):
            yield from _type(number, title, ())
    if len(run.of(MEMORY)):
        yield from _type(types.COPY_SIZE, "Bytes of a memory operation", ())
    if len(run.of(GRAPH)):
        yield from (*_type(types.GRAPH_ID, "Graph", ()), *_type(types.GRAPH_EXECUTION, "Execution of a graph", ()))
    yield from _type(types.CORRELATION, "Correlation", ())
    yield from _of_mpi(run, values)
    yield from _of_ranges(run, values)
    metrics = run.of(METRIC)
    for metric in np.unique(metrics.more["metric"]).tolist() if len(metrics) else ():
        yield from _type(types.METRICS + metric, plain(run.metrics.get(metric, f"GPU metric {metric}")), ())


def _of_mpi(run: Run, values: Values) -> Iterator[str]:
    spans = run.of(MPI)
    if len(spans):
        for number, title in types.MPI_TITLES.items():
            mine = spans.name[spans.more["type"] == number]
            if len(mine):
                used = np.zeros(len(run.names), np.bool_)
                used[mine] = True
                yield from _type(number, title, _values(run, values.of_name[MPI], used))
        yield from _type(types.MPI_SENT, "Bytes sent in a collective", ())
        yield from _type(types.MPI_RECEIVED, "Bytes received in a collective", ())


def _of_ranges(run: Run, values: Values) -> Iterator[str]:
    spans = run.of(NVTX)
    if not len(spans):
        return
    pushed = spans.more["pushed"]
    for number, domain in enumerate(run.domains):
        used = np.zeros(len(run.names), np.bool_)
        used[spans.name[pushed & (spans.more["domain"] == number)]] = True
        if used.any():
            yield from _type(values.domain_types[number], f"NVTX ranges of {plain(domain) if domain else 'the default domain'}",
                             _values(run, values.of_name[NVTX], used))  # fmt: skip
    for number, (field, texts) in enumerate(zip(values.fields, values.field_texts), types.NCCL_RANGES + 1):
        yield from _type(number, f"NCCL {plain(field)}", [(value, plain(text)) for text, value in texts.items()])
    used = np.zeros(len(run.names), np.bool_)
    used[spans.name[~pushed]] = True
    if used.any():
        yield from _type(types.START_END, "NVTX ranges that start and end", _values(run, values.of_name[NVTX], used))


def _values(run: Run, numbers: np.ndarray, chosen: np.ndarray | None) -> list[tuple[int, str]]:
    used = numbers > 0 if chosen is None else (numbers > 0) & chosen
    return sorted((int(numbers[k]), plain(run.names[k])) for k in np.flatnonzero(used).tolist())


def _type(number: int, title: str, values: list[tuple[int, str]] | tuple[()]) -> Iterator[str]:
    yield from ("EVENT_TYPE", f"0    {number}    {title}")
    if values:
        yield from ("VALUES", "0      End", *(f"{value}      {name}" for value, name in values))
    yield ""


def plain(text: str) -> str:
    """A text on one line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split()) or "-"
