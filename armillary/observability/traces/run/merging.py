"""Reports of several nodes or processes as one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from armillary.errors import InputError

from .interning import Interner
from .model import HOST, KERNEL, KINDS, NVTX, Gathering, Process, Run, Spans, Thread

T = TypeVar("T")


def merge(runs: Sequence[Run], *, align: bool = True) -> Run:
    """One run out of several reports, in the order of ranks where all are known, else of nodes and processes.

    Times count from the start of the earliest recording. `align` removes what the nodes' clocks are wrong by, as far as collectives show
    it (`armillary.observability.traces.aligned`).
    """
    return merged(runs, align=align)


def merged(runs: Sequence[Run], *, align: bool = True, spare: bool = False) -> Run:
    """The same as `merge`; `spare` takes the spans out of the runs, which are of no use afterwards, so that memory holds them once."""
    if not runs:
        raise InputError("found no report to merge; expected at least one")
    if len(runs) == 1:
        joined = runs[0]
    else:
        joined = _joined(runs, spare)
    if not align:
        return joined
    from ..analysis.aligning import aligned

    return aligned(joined, in_place=joined is not runs[0])


def _joined(runs: Sequence[Run], spare: bool) -> Run:
    began = [start for run in runs for start in run.began_ns if start is not None]
    notes = [note for run in runs for note in run.notes]
    if 0 < len(began) < sum(len(run.began_ns) for run in runs):
        notes.append("Some reports do not say when they began; they are taken to begin with the earliest one.")
    earliest = min(began, default=0)
    everyone = [(run, k) for run in runs for k in range(len(run.processes))]
    ranked = all(run.processes[k].rank is not None for run, k in everyone)
    firsts = np.cumsum([0] + [len(run.began_ns) for run in runs])
    numbered = {id(run): int(first) for run, first in zip(runs, firsts)}
    owners = []
    for run, k in everyone:
        one = run.processes[k]
        owners.append((one.rank if ranked else 0, one.host, one.pid, numbered[id(run)] + one.report, run, k))
    owners.sort(key=lambda row: row[:4])
    _refuse_twice([(one[1], one[2], one[4].where) for one in owners])
    processes = tuple(Process(host, pid, run.processes[k].rank, report) for _, host, pid, report, run, k in owners)
    place = {(id(run), k): number for number, (*_, run, k) in enumerate(owners)}
    threads, thread_of = _threads(runs, place)
    names, name_of = _numbered([run.names for run in runs])
    domains, domain_of = _numbered([("",), *[run.domains for run in runs]])
    payloads, payload_of = _numbered([((),), *[run.payloads for run in runs]])
    launches = Interner(10)
    launch_of = [launches.codes(run.launches.T) if len(run.launches) else np.zeros(0, np.int32) for run in runs]

    def moved(number: int, run: Run, kind: str) -> Spans:
        """The spans of one run in the numbers of all, and in the time of the earliest recording."""
        one = run.spans[kind]
        more = dict(one.more)
        if kind == KERNEL:
            more["launch"] = launch_of[number][more["launch"]]
        if kind == NVTX:
            more["domain"] = domain_of[number + 1][more["domain"]]
            more["payload"] = payload_of[number + 1][more["payload"]]
        report = np.array([run.processes[thread.process].report for thread in run.threads], np.int64)
        delays = np.array([0 if start is None else start - earliest for start in run.began_ns], np.int64)
        delay = delays[report[one.thread]] if len(set(delays.tolist())) > 1 else int(delays[0])
        later = one.shifted(delay) if np.any(delay) else one
        return replace(later, thread=thread_of[number][one.thread], name=name_of[number][one.name], more=more)

    spans = {}
    for kind in KINDS:
        gathering = Gathering(kind)
        for number, run in enumerate(runs):
            if kind in run.spans:
                gathering.add(moved(number, run, kind))
                if spare and isinstance(run.spans, dict):
                    del run.spans[kind]
        spans[kind] = gathering.done()
    metrics = {number: name for run in runs for number, name in run.metrics.items()}
    return Run(
        processes, threads, names, {kind: one for kind, one in spans.items() if len(one)}, launches.rows.copy(), domains,
        payloads, metrics, tuple(start for run in runs for start in run.began_ns), tuple(dict.fromkeys(notes)),
        where=runs[0].where if len({run.where for run in runs}) == 1 else f"{len(runs)} reports",
    )  # fmt: skip


def _refuse_twice(owners: list[tuple[str, int, str]]) -> None:
    seen: dict[tuple[str, int], str] = {}
    for host, pid, where in owners:
        if (host, pid) in seen:
            what = f"found two reports of process {pid} on {host or 'a node without a name'}: {seen[host, pid]} and {where}"
            raise InputError(f"{what}; expected one report per process")
        seen[host, pid] = where


def _threads(runs: Sequence[Run], place: dict[tuple[int, int], int]) -> tuple[tuple[Thread, ...], list[np.ndarray]]:
    rows = [
        (place[id(run), one.process], one.device != HOST, k, number, replace(one, process=place[id(run), one.process]))
        for number, run in enumerate(runs) for k, one in enumerate(run.threads)
    ]  # fmt: skip
    rows.sort(key=lambda row: row[:4])
    found = [np.zeros(len(run.threads), np.int32) for run in runs]
    for new, (_, _, k, number, _) in enumerate(rows):
        found[number][k] = new
    return tuple(row[4] for row in rows), found


def _numbered(lists: Sequence[Sequence[T]]) -> tuple[tuple[T, ...], list[np.ndarray]]:
    """All distinct texts (or payloads) of several lists, and for each list the numbers of its own."""
    at: dict[T, int] = {}
    numbers = [np.array([at.setdefault(text, len(at)) for text in one], np.int32) for one in lists]
    return tuple(at), numbers
