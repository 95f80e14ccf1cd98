"""Parts of a run: an NVTX range by its name, or all of it.

Devices run later than the host asks for it. So a region has two kinds of windows: on the host, each occurrence lasts from its first start
to its last end over all processes; on the devices, from the start of the first to the end of the last activity that was launched in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown
from armillary.kernels import loop

from ..run.model import CALL, GRAPH, KERNEL, MEMORY, NVTX, Run, Spans, per_group
from .intervals import Intervals, union


@dataclass(frozen=True)
class Region:
    """The windows of a region: on the host and on the devices; `occurrences` is how often it came, at most, in any process."""

    host: Intervals
    device: Intervals
    occurrences: int = 1


def region_of(run: Run, name: str | None) -> Region:
    """The windows of the ranges called `name` ("domain:name" where two domains have one), or of the whole run without a name."""
    activities = [run.of(kind) for kind in (KERNEL, MEMORY, GRAPH) if len(run.of(kind))]
    if name is None:
        if not activities:
            whole = Intervals(np.array([run.start]), np.array([run.end]))
            return Region(whole, whole)
        first = min(int(one.start[0]) for one in activities)
        last = max(int(one.end.max()) for one in activities)
        hosts = [one for kind, one in run.spans.items() if kind in (CALL, NVTX, "mpi") and len(one)]
        start = min([first, *(int(one.start[0]) for one in hosts)])
        end = max([last, *(int(one.end.max()) for one in hosts)])
        return Region(Intervals(np.array([start]), np.array([end])), Intervals(np.array([first]), np.array([last])))
    ranges = _ranges(run, name)
    host, number = _windows(run, ranges)
    device = _launched(run, ranges, number, len(host[0]))
    return Region(union(*host), union(*device), len(host[0]))


def _ranges(run: Run, name: str) -> Spans:
    spans = run.of(NVTX)
    domain, colon, own = name.partition(":")
    texts = list(run.names)
    chosen = np.zeros(len(spans), np.bool_)
    if name in texts:
        chosen = spans.name == texts.index(name)
        if chosen.any() and len(found := np.unique(spans.more["domain"][chosen])) > 1:
            names = " or ".join(f'"{run.domains[k]}:{name}"' for k in found.tolist())
            raise InputError(f'found the region "{name}" in several domains of NVTX; expected {names}')
    if not chosen.any() and colon and own in texts and domain in run.domains:
        chosen = (spans.name == texts.index(own)) & (spans.more["domain"] == run.domains.index(domain))
    if not chosen.any():
        used = {run.names[k] for k in np.unique(spans.name).tolist()} if len(spans) else set()
        raise unknown("region", name, used)
    return spans.of(chosen)


def _windows(run: Run, ranges: Spans) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """(starts, ends) of the occurrences over all processes, and for each range the number of its occurrence in its process."""
    number = np.empty(len(ranges), np.int64)
    for place in per_group(run.process_of_thread()[ranges.thread], len(run.processes)):
        number[place] = np.arange(len(place))
    many = int(number.max()) + 1
    start = np.full(many, np.iinfo(np.int64).max)
    end = np.full(many, np.iinfo(np.int64).min)
    np.minimum.at(start, number, ranges.start)
    np.maximum.at(end, number, ranges.end)
    return (start, end), number


def _launched(run: Run, ranges: Spans, number: np.ndarray, many: int) -> tuple[np.ndarray, np.ndarray]:
    """The windows on the devices of what was launched in each occurrence; occurrences that launched nothing have none."""
    start = np.full(many, np.iinfo(np.int64).max)
    end = np.full(many, np.iinfo(np.int64).min)
    calls = run.of(CALL)
    occurrence = np.full(len(calls), -1, np.int64)
    by_thread = list(per_group(ranges.thread.astype(np.int64), len(run.threads)))
    for thread, place in enumerate(per_group(calls.thread.astype(np.int64), len(run.threads))):
        mine = by_thread[thread]
        if len(mine) and len(place):
            at = np.searchsorted(ranges.start[mine], calls.start[place], side="right") - 1
            inside = (at >= 0) & (calls.start[place] < ranges.end[mine][np.maximum(at, 0)])
            occurrence[place[inside]] = number[mine[at[inside]]]
    for kind in (KERNEL, MEMORY, GRAPH):
        spans = run.of(kind)
        source = launching(run, spans)
        found = np.where(source >= 0, occurrence[np.maximum(source, 0)], -1) if len(calls) else np.full(len(spans), -1)
        some = found >= 0
        np.minimum.at(start, found[some], spans.start[some])
        np.maximum.at(end, found[some], spans.end[some])
    lasting = end > start
    return start[lasting], end[lasting]


def launching(run: Run, spans: Spans) -> npt.NDArray[np.int32]:
    """For each activity, the number of the call that launched it, by process and correlation; -1 where there is none.

    Where several calls of a process have one correlation, the first of them counts.
    """
    calls = run.of(CALL)
    if not len(calls) or not len(spans):
        return np.full(len(spans), -1, np.int32)
    owner = run.process_of_thread().astype(np.int32)
    largest = np.full(len(run.processes), -1, np.int64)
    _largest(owner, calls.thread, calls.correlation, largest)
    columns = (owner, calls.thread, calls.correlation, spans.thread, spans.correlation)
    # Correlations count up from 1 in a process, so that a table by correlation is small; where it would not be, they are hashed.
    if int((largest + 1).sum()) <= len(calls) + len(spans) + 1024:
        return _by_table(*columns, np.cumsum(largest + 1) - largest - 1, largest)
    return _by_hash(*columns, 1 << int(2 * len(calls)).bit_length())


@loop
def _largest(owner: np.ndarray, thread: np.ndarray, correlation: np.ndarray, largest: np.ndarray) -> None:
    for k in range(len(thread)):
        p = owner[thread[k]]
        largest[p] = max(largest[p], np.int64(correlation[k]))


@loop
def _by_table(
    owner: np.ndarray, thread: np.ndarray, correlation: np.ndarray, of_thread: np.ndarray, of_correlation: np.ndarray, first: np.ndarray,
    largest: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Invariant: a process's part of the table begins at its `first` and has room for correlations up to its `largest`."""
    table = np.full(first[-1] + largest[-1] + 1, -1, np.int32)
    for k in range(len(thread)):
        place = first[owner[thread[k]]] + np.int64(correlation[k])
        if table[place] < 0:
            table[place] = k
    out = np.full(len(of_thread), -1, np.int32)
    for k in range(len(of_thread)):
        p = owner[of_thread[k]]
        wanted = np.int64(of_correlation[k])
        if 0 < wanted <= largest[p]:
            out[k] = table[first[p] + wanted]
    return out


@loop
def _slot(process: int, correlation: int) -> Any:
    value = (np.uint64(process) << np.uint64(32)) ^ np.uint64(correlation)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@loop
def _by_hash(
    owner: np.ndarray, thread: np.ndarray, correlation: np.ndarray, of_thread: np.ndarray, of_correlation: np.ndarray, size: int
) -> np.ndarray:
    """Invariant: `size` is a power of two above twice the number of calls, so that every probe meets an empty slot."""
    slots = np.full(size, -1, np.int32)
    mask = np.uint64(size - 1)
    for k in range(len(thread)):
        p, c = owner[thread[k]], correlation[k]
        at = _slot(p, c) & mask
        while slots[at] >= 0 and (correlation[slots[at]] != c or owner[thread[slots[at]]] != p):
            at = (at + np.uint64(1)) & mask
        if slots[at] < 0:
            slots[at] = k
    out = np.full(len(of_thread), -1, np.int32)
    for k in range(len(of_thread)):
        p, c = owner[of_thread[k]], of_correlation[k]
        at = _slot(p, c) & mask
        while c > 0 and slots[at] >= 0:
            if correlation[slots[at]] == c and owner[thread[slots[at]]] == p:
                out[k] = slots[at]
                break
            at = (at + np.uint64(1)) & mask
    return out
