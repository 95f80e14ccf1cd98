"""Fault traces say when GPUs go down, come back and slow down; they are read from files, scripted, or drawn from failure rates.

419 unexpected interruptions in 54 days on 16,384 GPUs (The Llama 3 herd of models, 2024) are one in 50,700 GPU hours. An hour of
eight GPUs would see none, so failures are `acceleration` times as frequent.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import Column, Table, column_names, read_table
from armillary.workloads import failures

MTBF_GPU_H, ACCELERATION, REPAIR_MEDIAN_S, REPAIR_SIGMA = 50_000.0, 1e4, 1800.0, 0.8
#: The most lines of a trace, and the most bytes of its file.
MOST_EVENTS, MOST_BYTES = 1_000_000, 64 << 20
#: The columns of a fault trace and of an availability log.
_EVENT, _SPAN = {"time_s", "device", "event"}, {"start", "end", "gpu"}


@dataclass(frozen=True)
class Fault:
    """At `time_s` a device goes down or up, or becomes slower by `factor` (1 restores its speed)."""

    time_s: float
    device: int
    event: Literal["down", "up", "slow"]
    factor: float = 1.0


@dataclass(frozen=True)
class FaultTrace:
    """Faults in the order of time, in which no device that is down goes down and none that is up comes up."""

    faults: tuple[Fault, ...] = ()

    @classmethod
    def of(cls, faults: Iterable[Fault], gpus: int, where: str = "faults") -> FaultTrace:
        """Sorts and checks faults for a node of `gpus` GPUs."""
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
        """Returns the spans (begin, end) in which at least one GPU is gone, up to `until_s`."""
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


def is_fault_file(path: str | Path) -> bool:
    """Returns whether the first line has the columns of a fault trace or of an availability log."""
    try:
        columns = set(column_names(path, format="csv"))
    except InputError:
        return False
    return columns >= _EVENT or columns >= _SPAN


def read_faults(
    path: str | Path, gpus: int = 8, *, log: Literal["available", "down"] = "available", until_s: float = math.inf
) -> FaultTrace:
    """Reads faults from CSV: `time_s,device,event` (event down, up or slow:<factor>), or an availability log `start,end,gpu`.

    The spans of a log, in seconds, are those in which a GPU was available, or with log="down" those in which it was not. The log ends
    at `until_s`.
    """
    where = str(path)
    columns = column_names(path, format="csv")
    if set(columns) >= _EVENT:
        table = _table(path, [Column("time_s", unit="seconds", least=0), Column("device", "int"), Column("event", "str")])
        rows = zip(table["time_s"].tolist(), table["device"].tolist(), table["event"].tolist(), strict=True)
        return FaultTrace.of([_fault(table, row, *values) for row, values in enumerate(rows)], gpus, where)
    if set(columns) >= _SPAN:
        table = _table(path, [Column("start", unit="seconds", least=0), Column("end"), Column("gpu", "int", least=0, most=gpus - 1)])
        spans = list(zip(table["start"].tolist(), table["end"].tolist(), table["gpu"].tolist(), strict=True))
        for row, (start, end, _) in enumerate(spans):
            if end <= start:
                raise table.error(row, f"found a span from {start:g} to {end:g} s; expected it to end after it begins")
        return FaultTrace.of(_from_log(spans, gpus, log, until_s, where), gpus, where)
    found = one_line(",".join(columns), 80)
    raise InputError(f'found columns "{found}"; expected time_s,device,event or start,end,gpu', where=f"{where}:1")


def _table(path: str | Path, columns: list[Column]) -> Table:
    return read_table(path, columns, format="csv", row_limit=MOST_EVENTS, limit=MOST_BYTES, may_be_empty=True)


def _fault(table: Table, row: int, time_s: float, device: int, event: str) -> Fault:
    name, _, said = event.partition(":")
    if name == "slow" and said:
        try:
            return Fault(time_s, device, "slow", float(said))
        except ValueError:
            raise table.error(row, f'found "{one_line(said, 40)}"; expected a number after slow:', "event") from None
    if name not in ("down", "up") or said:
        raise table.error(row, f'found "{one_line(event, 40)}"; expected down, up or slow:<factor>', "event")
    return Fault(time_s, device, "down" if name == "down" else "up")


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
    """Returns `losses` failures at quarters of the window, each repaired after `repair_s` if that is given."""
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
    """Draws failures of each GPU at exponential times with mean `mtbf_gpu_h`/`acceleration` hours, and lognormal repairs."""
    for name, value in (("mtbf_gpu_h", mtbf_gpu_h), ("acceleration", acceleration), ("repair_median_s", repair_median_s)):
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name}: found {value}; expected more than 0")
    mean_s = mtbf_gpu_h * 3600.0 / acceleration
    expected = window_s / mean_s * gpus
    if expected > MOST_EVENTS / 4:
        raise InputError(f"acceleration: {acceleration:g} gives {expected:,.0f} failures; expected at most {MOST_EVENTS // 4:,}")
    drawn = failures(rng, gpus, window_s, mtbf_s=mean_s, repair_median_s=repair_median_s, repair_sigma=repair_sigma)
    found = []
    for device, start_s, repair_s in zip(drawn.part.tolist(), drawn.start_s.tolist(), drawn.repair_s.tolist(), strict=True):
        found.append(Fault(start_s, device, "down"))
        if start_s + repair_s < window_s:
            found.append(Fault(start_s + repair_s, device, "up"))
    return FaultTrace.of(found, gpus)
