"""When GPUs go down, come back and slow down: traces read from files, scripted, or drawn from failure rates.

419 unexpected interruptions in 54 days on 16,384 GPUs (The Llama 3 herd of models, 2024) are one in 50,700 GPU hours. An hour of
eight GPUs would see none, so `acceleration` makes failures as many times more frequent.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from armillary.errors import InputError, one_line

MTBF_GPU_H, ACCELERATION, REPAIR_MEDIAN_S, REPAIR_SIGMA = 50_000.0, 1e4, 1800.0, 0.8
#: Lines of a trace that are read, and bytes of its file.
MOST_EVENTS, MOST_BYTES = 1_000_000, 64 << 20


@dataclass(frozen=True)
class Fault:
    """At `time_s` a device goes down or up, or takes `factor` times as long from then on (1: as fast as before)."""

    time_s: float
    device: int
    event: Literal["down", "up", "slow"]
    factor: float = 1.0


@dataclass(frozen=True)
class FaultTrace:
    """Faults in the order of time, checked: a device that is down cannot go down, one that is up cannot come up."""

    faults: tuple[Fault, ...] = ()

    @classmethod
    def of(cls, faults: Iterable[Fault], gpus: int, where: str = "faults") -> FaultTrace:
        """Sorted and checked for a node of `gpus` GPUs."""
        found = sorted(faults, key=lambda f: f.time_s)
        down: set[int] = set()
        for f in found:
            if not (math.isfinite(f.time_s) and f.time_s >= 0):
                raise InputError(f"found a fault at {f.time_s} s; expected seconds of 0 or more", where=where)
            if not 0 <= f.device < gpus:
                raise InputError(f"unknown device {f.device}; expected 0 to {gpus - 1}", where=where)
            if f.event == "up" and f.device not in down:
                raise InputError(f"device {f.device} is up at {f.time_s:g} s before it was down", where=where)
            if f.event != "up" and f.device in down:
                raise InputError(f"device {f.device}: {f.event} at {f.time_s:g} s while it is down already", where=where)
            if f.event == "slow" and not 1.0 <= f.factor <= 1000.0:
                raise InputError(f"device {f.device}: slow by {f.factor:g}; expected a factor from 1 to 1000", where=where)
            if f.event == "down":
                down.add(f.device)
            elif f.event == "up":
                down.discard(f.device)
        return cls(tuple(found))

    def down_spans(self, until_s: float) -> list[tuple[float, float]]:
        """Spans (begin, end) in which at least one GPU is gone, up to `until_s`."""
        spans: list[tuple[float, float]] = []
        down: set[int] = set()
        begun = 0.0
        for f in self.faults:
            if f.time_s >= until_s:
                break
            if f.event == "down":
                begun = f.time_s if not down else begun
                down.add(f.device)
            elif f.event == "up":
                down.discard(f.device)
                if not down:
                    spans.append((begun, f.time_s))
        return [*spans, (begun, until_s)] if down else spans

    def write(self, path: str | Path) -> None:
        """Writes the trace as `time_s,device,event`."""
        lines = (f"{f.time_s!r},{f.device},{f.event}{f':{f.factor!r}' if f.event == 'slow' else ''}" for f in self.faults)
        Path(path).write_text("\n".join(["time_s,device,event", *lines]) + "\n")


def is_fault_file(path: Path) -> bool:
    """Whether the first line has a fault trace's or an availability log's columns."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            columns = {c.strip() for c in file.readline(4096).split(",")}
    except OSError as problem:
        raise InputError(f"cannot be read: {problem.strerror}", where=str(path)) from None
    return {"time_s", "device", "event"} <= columns or {"start", "end", "gpu"} <= columns


def read_faults(
    path: str | Path, gpus: int = 8, *, log: Literal["available", "down"] = "available", until_s: float = math.inf
) -> FaultTrace:
    """Faults from a CSV file: `time_s,device,event` (event down, up or slow:<factor>), or an availability log `start,end,gpu`.

    The log's spans, in seconds, are when a GPU was available, or with log="down" when it was not; `until_s` is where the log's time ends.
    """
    where = str(path)
    rows = list(_rows(Path(path)))
    if not rows:
        raise InputError("no lines; expected a header", where=where)
    columns = [c.strip() for c in rows[0][1]]
    if {"time_s", "device", "event"} <= set(columns):
        at = [columns.index(c) for c in ("time_s", "device", "event")]
        return FaultTrace.of([_fault(line, row, at, len(columns), where) for line, row in rows[1:]], gpus, where)
    if {"start", "end", "gpu"} <= set(columns):
        at = [columns.index(c) for c in ("start", "end", "gpu")]
        spans = [_span(line, row, at, len(columns), where, gpus) for line, row in rows[1:]]
        return FaultTrace.of(_from_log(spans, gpus, log, until_s, where), gpus, where)
    raise InputError(
        f'found columns "{one_line(",".join(columns), 80)}"; expected time_s,device,event or start,end,gpu', where=f"{where}:1"
    )


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"more than {MOST_BYTES >> 20} MiB; expected a fault trace", where=str(path))
        with path.open(encoding="utf-8-sig", newline="") as file:
            for count, row in enumerate(reader := csv.reader(file)):
                if count > MOST_EVENTS:
                    raise InputError(f"more than {MOST_EVENTS:,} events", where=f"{path}:{reader.line_num}")
                if row and any(cell.strip() for cell in row):
                    yield reader.line_num, row
    except OSError as problem:
        raise InputError(f"cannot be read: {problem.strerror}", where=str(path)) from None
    except (UnicodeDecodeError, csv.Error) as problem:
        raise InputError(f"not a CSV file: {one_line(str(problem), 100)}", where=str(path)) from None


def _number(text: str, what: str, where: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InputError(f'{what}: found "{one_line(text, 40)}"; expected a number', where=where)
    return found


def _device(text: str, where: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise InputError(f'unknown device "{one_line(text, 40)}"; expected its number', where=where) from None


def _fault(line: int, row: list[str], at: list[int], width: int, where: str) -> Fault:
    here = f"{where}:{line}"
    if len(row) != width:
        raise InputError(f"found {len(row)} columns; expected {width}", where=here)
    time, device, event = row[at[0]].strip(), row[at[1]], row[at[2]].strip()
    name, _, factor = event.partition(":")
    if name == "slow" and factor:
        return Fault(_number(time, "time_s", here), _device(device, here), "slow", _number(factor, "slow", here))
    if name not in ("down", "up") or factor:
        raise InputError(f'event "{one_line(event, 40)}"; expected down, up or slow:<factor>', where=here)
    return Fault(_number(time, "time_s", here), _device(device, here), "down" if name == "down" else "up")


def _span(line: int, row: list[str], at: list[int], width: int, where: str, gpus: int) -> tuple[float, float, int]:
    here = f"{where}:{line}"
    if len(row) != width:
        raise InputError(f"found {len(row)} columns; expected {width}", where=here)
    start, end = _number(row[at[0]], "start", here), _number(row[at[1]], "end", here)
    device = _device(row[at[2]], here)
    if not 0 <= start < end:
        raise InputError(f"found a span from {start:g} to {end:g} s; expected it to begin at 0 or later and before its end", where=here)
    if not 0 <= device < gpus:
        raise InputError(f"unknown device {device}; expected 0 to {gpus - 1}", where=here)
    return start, end, device


def _from_log(spans: list[tuple[float, float, int]], gpus: int, log: str, until_s: float, where: str) -> Iterator[Fault]:
    last = min(until_s, max((end for _, end, _ in spans), default=0.0))
    for device in range(gpus):
        own = sorted((a, b) for a, b, d in spans if d == device)
        for (_, b), (a, _) in itertools.pairwise(own):
            if a < b:
                raise InputError(f"device {device}: spans overlap at {a:g} s", where=where)
        if log == "available":
            edges = [0.0, *(x for span in own for x in span), last]
            own = [(edges[i], edges[i + 1]) for i in range(0, len(edges), 2) if edges[i + 1] > edges[i]]
        for a, b in own:
            if a >= last and log == "available":
                continue
            yield Fault(a, device, "down")
            if b < last or (log == "down" and b < until_s):
                yield Fault(b, device, "up")


def scripted(
    losses: int, window_s: float, gpus: int = 8, *, repair_s: float | None = None, devices: Iterable[int] | None = None
) -> FaultTrace:
    """`losses` failures at 25, 50, 75 % … of the window (quarters), each repaired after `repair_s` if that is given."""
    if not 0 <= losses <= min(3, gpus - 1):
        raise InputError(f"losses: found {losses}; expected 0 to {min(3, gpus - 1)}")
    which = list(devices) if devices is not None else [(3 * k + 2) % gpus for k in range(losses)]
    found = [Fault(0.25 * (k + 1) * window_s, which[k], "down") for k in range(losses)]
    if repair_s is not None:
        found += [Fault(f.time_s + repair_s, f.device, "up") for f in found]
    return FaultTrace.of(found, gpus)


def random_faults(
    window_s: float, rng: np.random.Generator, *, gpus: int = 8, mtbf_gpu_h: float = MTBF_GPU_H, acceleration: float = ACCELERATION,
    repair_median_s: float = REPAIR_MEDIAN_S, repair_sigma: float = REPAIR_SIGMA,
) -> FaultTrace:  # fmt: skip
    """Failures of each GPU at exponential times, mean `mtbf_gpu_h`/`acceleration` hours, and lognormal repairs."""
    for name, value in (("mtbf_gpu_h", mtbf_gpu_h), ("acceleration", acceleration), ("repair_median_s", repair_median_s)):
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name}: found {value}; expected more than 0")
    mean_s = mtbf_gpu_h * 3600.0 / acceleration
    if window_s / mean_s * gpus > MOST_EVENTS / 4:
        raise InputError(
            f"acceleration: {acceleration:g} gives {window_s / mean_s * gpus:,.0f} failures; expected at most {MOST_EVENTS // 4:,}"
        )
    found = []
    for device in range(gpus):
        t = float(rng.exponential(mean_s))
        while t < window_s:
            repair = float(repair_median_s * np.exp(repair_sigma * rng.standard_normal()))
            found.append(Fault(t, device, "down"))
            if t + repair < window_s:
                found.append(Fault(t + repair, device, "up"))
            t += repair + float(rng.exponential(mean_s))
    return FaultTrace.of(found, gpus)
