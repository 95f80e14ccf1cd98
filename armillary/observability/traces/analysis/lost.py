"""Where devices lost time, by cause.

A device is useful while a kernel computes. While only copies run it loses time to *transfers*. While only kernels of NCCL run it loses
time to *imbalance* until the last device has arrived at the collective, and to *communication* from then on. While it is idle, the host
thread that launches what ends the gap says why: in a collective call of MPI it is imbalance or communication as before, in a call that
waits for the device it is *sync*, in one that launches it is *launch*, and in its own work it is *host*; but where less than 20 µs of a
gap are left to the host's own work, they are *launch*, or *sync* if the thread had been waiting. A device that has nothing more to do while
others have is imbalanced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..run.model import CALL, GRAPH, KERNEL, MEMORY, MPI, Run, Spans, per_group
from .aligning import devices_with_collectives, matched_calls, matched_kernels
from .intervals import Intervals, both, covered, either, union, without
from .regions import launching, region_of
from .waiting import launches, waits

if TYPE_CHECKING:
    import polars

CAUSES = ("imbalance", "transfers", "communication", "launch", "host", "sync")
#: A gap that leaves less than this to the host's own doing is the launch's fault (ns).
LAUNCH_GAP_NS = 20_000
#: The smallest share that is named as a cause.
NAMED = 0.03


@dataclass(frozen=True)
class Lost:
    """Nanoseconds that each device lost to each cause, array (device, cause), and nanoseconds in which it computed."""

    elapsed_ns: int
    devices: tuple[str, ...]
    table: npt.NDArray[np.float64]
    useful: npt.NDArray[np.float64]
    #: By how much imbalance and communication may be wrong because of clocks, as a share; None where clocks could not be compared.
    uncertainty: float | None = 0.0

    @property
    def shares(self) -> Mapping[str, float]:
        """The share of all device time that each cause took."""
        total = max(1.0, self.elapsed_ns * len(self.devices))
        return {cause: float(self.table[:, k].sum() / total) for k, cause in enumerate(CAUSES)}

    @property
    def named(self) -> tuple[str, ...]:
        """The causes that matter, largest first: above 3 % and above what the clocks leave open."""
        doubt = 1.0 if self.uncertainty is None else self.uncertainty
        least = {"imbalance": max(NAMED, doubt), "communication": max(NAMED, doubt)}
        found = [(share, cause) for cause, share in self.shares.items() if share >= least.get(cause, NAMED)]
        return tuple(cause for _, cause in sorted(found, reverse=True))

    def frame(self) -> polars.DataFrame:
        """A row per device: useful time and time lost to each cause, as shares of the elapsed time."""
        import polars

        whole = max(1, self.elapsed_ns)
        columns = {"device": list(self.devices), "useful": self.useful / whole}
        return polars.DataFrame(columns | {cause: self.table[:, k] / whole for k, cause in enumerate(CAUSES)})


@dataclass(frozen=True)
class Activity:
    """What one device did, as sets of moments: computing, communicating, copying; `next_thread` launches what starts at `next_start`."""

    computing: Intervals
    communicating: Intervals
    copying: Intervals
    next_start: npt.NDArray[np.int64]
    next_thread: npt.NDArray[np.int64]
    queued: npt.NDArray[np.int64]


def activities(run: Run, *, split: bool = True) -> list[Activity]:
    """The activity of each device; without `split`, kernels of NCCL count as computing."""
    kernels, copies, graphs = run.of(KERNEL), run.of(MEMORY), run.of(GRAPH)
    device = run.device_of_thread()
    communicates = run.communicates() if split else np.zeros(len(kernels), np.bool_)
    callers = run.of(CALL)
    many = len(run.devices())
    places = [list(per_group(device[one.thread] if len(one) else np.empty(0, np.int64), many)) for one in (kernels, copies, graphs)]
    sources = [launching(run, one) for one in (kernels, copies, graphs)]
    found = []
    for number in range(many):
        own = [place[number] for place in places]
        compute, talk = own[0][~communicates[own[0]]], own[0][communicates[own[0]]]
        computing = union(np.concatenate([kernels.start[compute], graphs.start[own[2]]]),
                          np.concatenate([kernels.end[compute], graphs.end[own[2]]]))  # fmt: skip
        start = np.concatenate([one.start[place] for one, place in zip((kernels, copies, graphs), own)])
        source = np.concatenate([one[place] for one, place in zip(sources, own)])
        order = np.argsort(start, kind="stable")
        source = source[order]
        thread = np.where(source >= 0, callers.thread[np.maximum(source, 0)], -1) if len(callers) else np.full(len(source), -1)
        asked = np.where(source >= 0, callers.end[np.maximum(source, 0)], -1) if len(callers) else np.full(len(source), -1)
        talking, moving = union(kernels.start[talk], kernels.end[talk]), union(copies.start[own[1]], copies.end[own[1]])
        found.append(Activity(computing, talking, moving, start[order], thread, asked))
    return found


def lost(run: Run, *, region: str | None = None, split: bool = True, unions: bool = True) -> Lost:
    """Where the devices of a run, or of one of its regions, lost time.

    Without `split` kernels of NCCL count as computing, and without `unions` durations are added up though they overlap: both are there to
    show what the parts bring.
    """
    windows = region_of(run, region).device
    waiting = _waiting_for_others(run)
    on_hosts = _hosts(run)
    table, useful = np.zeros((len(run.devices()), len(CAUSES))), np.zeros(len(run.devices()))
    for number, one in enumerate(activities(run, split=split)):
        row = _device(run, number, one, windows, waiting.get(number), on_hosts)
        useful[number] = both(one.computing, windows).length
        if not unions:
            row, useful[number] = _by_sums(run, number, row, windows.length, split)
        table[number] = row
    names = tuple(run.device_name(number) for number in range(len(table)))
    return Lost(windows.length, names, table, useful, _doubt(run, windows.length))


def _doubt(run: Run, elapsed: int) -> float | None:
    """How much of the elapsed time the clocks leave open between imbalance and communication."""
    clocks = run.alignment
    if clocks is None or clocks.uncertainty_ns is None:
        return None if len(run.began_ns) > 1 else 0.0
    return 2.0 * clocks.collectives * clocks.uncertainty_ns / max(1, elapsed)


def _waiting_for_others(run: Run) -> dict[int, Intervals]:
    """For each device, the moments at which it is in a collective at which not all have arrived."""
    found = matched_kernels(run)
    if found is None:
        return {}
    last = found.last_arrival
    devices = devices_with_collectives(run).tolist()
    return {device: union(found.start[k], np.minimum(last, found.end[k])) for k, device in enumerate(devices)}


@dataclass(frozen=True)
class _Hosts:
    """What host threads did, by thread (waits and launches) and by process (MPI)."""

    waits: Mapping[int, Intervals]
    launches: Mapping[int, Intervals]
    in_mpi: Mapping[int, Intervals]
    before_last: Mapping[int, Intervals]


def _hosts(run: Run) -> _Hosts:
    calls, mpi = run.of(CALL), run.of(MPI)
    waiting, launched = (_by_thread(run, calls.of(chosen)) for chosen in (waits(run), launches(run)))
    owner = run.process_of_thread()[mpi.thread] if len(mpi) else np.empty(0, np.int64)
    inside = {p: union(mpi.start[place], mpi.end[place]) for p, place in enumerate(per_group(owner, len(run.processes))) if len(place)}
    matched = matched_calls(run)
    early = {}
    if matched is not None:
        found, processes = matched
        early = {p: union(found.start[k], np.minimum(found.last_arrival, found.end[k])) for k, p in enumerate(processes)}
    return _Hosts(waiting, launched, inside, early)


def _by_thread(run: Run, spans: Spans) -> dict[int, Intervals]:
    """The moments at which each thread is in any of the spans."""
    places = enumerate(per_group(spans.thread.astype(np.int64), len(run.threads)))
    return {thread: union(spans.start[place], spans.end[place]) for thread, place in places if len(place)}


_NOTHING = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def _device(
    run: Run, number: int, one: Activity, windows: Intervals, waiting: Intervals | None, hosts: _Hosts
) -> npt.NDArray[np.float64]:
    """Nanoseconds that a device lost to each cause."""
    row = dict.fromkeys(CAUSES, 0)
    exposed = both(without(one.communicating, one.computing), windows)
    early = both(exposed, waiting).length if waiting is not None else 0
    row["imbalance"] += early
    row["communication"] += exposed.length - early
    busy = either(one.computing, one.communicating)
    row["transfers"] += both(without(one.copying, busy), windows).length
    gaps = without(windows, either(busy, one.copying))
    process = run.devices()[number][0]
    in_mpi, before = hosts.in_mpi.get(process, _NOTHING), hosts.before_last.get(process, _NOTHING)
    met = covered(gaps, in_mpi)
    ahead = covered(gaps, both(in_mpi, before))
    row["imbalance"] += int(ahead.sum())
    row["communication"] += int((met - ahead).sum())
    # The activity that ends a gap starts at its end; a gap at the end of a window is ended by none.
    at = np.searchsorted(one.next_start, gaps.end)
    ended = (at < len(one.next_start)) & (gaps.end < (windows.end.max() if len(windows.end) else 0))
    at = np.minimum(at, max(0, len(one.next_start) - 1))
    thread = np.where(ended, one.next_thread[at], -1) if len(one.next_start) else np.full(len(gaps.start), -1)
    last_thread = int(one.next_thread[-1]) if len(one.next_thread) else -1
    thread = np.where(thread < 0, last_thread, thread)
    waited, launched = np.zeros(len(gaps.start), np.int64), np.zeros(len(gaps.start), np.int64)
    for caller in np.unique(thread).tolist():
        mine = thread == caller
        awake = without(hosts.waits.get(caller, _NOTHING), in_mpi)
        waited[mine] = covered(Intervals(gaps.start[mine], gaps.end[mine]), awake)
        busy = without(without(hosts.launches.get(caller, _NOTHING), in_mpi), awake)
        launched[mine] = covered(Intervals(gaps.start[mine], gaps.end[mine]), busy)
    # What was asked for before the gap began waited for another stream, whatever the host launched meanwhile.
    queued = (one.queued[at] >= 0) & (one.queued[at] <= gaps.start) if len(one.next_start) else np.zeros(len(gaps.start), np.bool_)
    launched[queued | ~ended] = 0
    # After a wait, the call that launches the next kernel still belongs to the wait, unless it takes long.
    idle = gaps.end - gaps.start - met - waited
    launched[(waited > 0) & (idle < LAUNCH_GAP_NS)] = 0
    rest = idle - launched
    row["sync"] += int(waited.sum())
    row["launch"] += int(launched.sum())
    short = rest < LAUNCH_GAP_NS
    row["sync"] += int(rest[short & (waited > 0)].sum()) + int(rest[~short & queued & ended].sum())
    row["launch"] += int(rest[short & (waited == 0)].sum())
    row["imbalance"] += int(rest[~short & ~ended].sum())
    row["host"] += int(rest[~short & ended & ~queued].sum())
    return np.array([row[cause] for cause in CAUSES], np.float64)


def _by_sums(run: Run, number: int, row: npt.NDArray[np.float64], elapsed: int, split: bool) -> tuple[npt.NDArray[np.float64], float]:
    """The same with durations added up: what overlaps counts twice, and what is left of the time is what gaps are scaled to."""
    device = run.device_of_thread()
    parts = {}
    for kind in (KERNEL, MEMORY, GRAPH):
        spans = run.of(kind)
        mine = device[spans.thread] == number if len(spans) else np.zeros(0, np.bool_)
        talks = run.communicates() if split and kind == KERNEL else np.zeros(len(spans), np.bool_)
        parts[kind] = (spans.end - spans.start)[mine], talks[mine]
    talking = float(parts[KERNEL][0][parts[KERNEL][1]].sum())
    useful = float(parts[KERNEL][0].sum()) - talking + float(parts[GRAPH][0].sum())
    copying = float(parts[MEMORY][0].sum())
    idle = max(0.0, elapsed - useful - talking - copying)
    gaps = row[3:].sum()
    scale = idle / gaps if gaps else 0.0
    early = row[0] / (row[0] + row[2]) if row[0] + row[2] else 0.0
    return np.array([talking * early, copying, talking * (1 - early), *(row[3:] * scale)]), useful


def spans_of_device(run: Run, kind: str, number: int) -> Spans:
    """The spans of a kind on one device."""
    spans = run.of(kind)
    return spans.of(run.device_of_thread()[spans.thread] == number) if len(spans) else spans
