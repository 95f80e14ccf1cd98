"""Two runs of a program: which differences explain the change of its elapsed time, in microseconds per device.

A change of the elapsed time is a change of what the devices spent it on: kernels by name, and lost time by cause. Both are means over
devices, so that all rows add up to the change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..run.model import KERNEL, Run, per_group
from .lost import CAUSES, lost

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class Comparison:
    """What the change from one run to another is made of; microseconds, positive where the second run takes longer."""

    elapsed_us: tuple[float, float]
    table: polars.DataFrame

    @property
    def change_us(self) -> float:
        """How much longer the second run takes."""
        return self.elapsed_us[1] - self.elapsed_us[0]

    def __str__(self) -> str:
        rows = self.table.head(5).iter_rows(named=True)
        most = "; ".join(f"{row['what']} {row['change_us']:+,.0f} µs (most on {row['device']})" for row in rows)
        return f"The second run takes {self.change_us:+,.0f} µs. What changed most: {most}."


def compare_runs(first: Run, second: Run, *, region: str | None = None) -> Comparison:
    """Explains the difference of two runs, of as many devices, by kernels and by causes of lost time."""
    import polars

    found = [(lost(run, region=region), _kernels(run)) for run in (first, second)]
    rows = []
    devices = [len(one.devices) for one, _ in found]
    for k, cause in enumerate(CAUSES):
        each = [one.table[:, k] / 1e3 for one, _ in found]
        rows.append((f"lost to {cause}", "", *_change(each, found[1][0].devices, devices)))
    names = sorted(found[0][1].keys() | found[1][1].keys())
    # Kernels that run beside one another count with the share of the computing time that they have among all.
    scale = [one.useful / np.maximum(1.0, sum(kernels.values(), np.zeros(len(one.devices)))) for one, kernels in found]
    for name in names:
        each = [kernels.get(name, np.zeros(len(one.devices))) * s / 1e3 for (one, kernels), s in zip(found, scale)]
        note = _note(*(_durations(run, name) for run in (first, second)))
        rows.append((name, note, *_change(each, found[1][0].devices, devices)))
    rows.sort(key=lambda row: (-abs(row[4]), row[0]))
    columns = ("what", "note", "first_us", "second_us", "change_us", "device")
    table = polars.DataFrame(rows, schema=list(columns), orient="row", infer_schema_length=None)
    return Comparison((found[0][0].elapsed_ns / 1e3, found[1][0].elapsed_ns / 1e3), table)


def _change(each: list[np.ndarray], names: tuple[str, ...], devices: list[int]) -> tuple[float, float, float, str]:
    """Means over devices, their difference, and the device on which most changed."""
    means = [float(one.mean()) if len(one) else 0.0 for one in each]
    device = names[int(np.abs(each[1] - each[0]).argmax())] if devices[0] == devices[1] and devices[0] else ""
    return means[0], means[1], means[1] - means[0], device


def _kernels(run: Run) -> dict[str, np.ndarray]:
    """Nanoseconds of each computing kernel, by name and device."""
    spans, device = run.of(KERNEL), run.device_of_thread()
    many = len(run.devices())
    chosen = ~run.communicates()
    mine = spans.of(chosen)
    place = mine.name.astype(np.int64) * many + device[mine.thread] if len(mine) else np.empty(0, np.int64)
    total = np.bincount(place, (mine.end - mine.start).astype(float), minlength=len(run.names) * many).reshape(-1, many)
    return {run.names[k]: total[k] for k in np.flatnonzero(total.sum(axis=1)).tolist()}


def _durations(run: Run, name: str) -> list[np.ndarray]:
    """How long each call of a kernel took, in the order of the calls, for each device."""
    spans = run.of(KERNEL)
    mine = spans.of(spans.name == run.names.index(name)) if name in run.names else spans.of(slice(0, 0))
    device = run.device_of_thread()[mine.thread] if len(mine) else np.empty(0, np.int64)
    return [(mine.end - mine.start)[place] for place in per_group(device, len(run.devices()))]


def _note(first: list[np.ndarray], second: list[np.ndarray]) -> str:
    """Which calls changed: those between which 90 % of the change lies on all devices, unless that is most of them."""
    many = [sum(map(len, one)) for one in (first, second)]
    if [len(one) for one in first] != [len(one) for one in second]:
        return f"{many[0]} and {many[1]} launches" if many[0] != many[1] else ""
    calls = max((len(one) for one in first), default=0)
    change = np.zeros(calls)
    for one, two in zip(first, second):
        change[: len(one)] += np.abs(two - one)
    total = np.cumsum(change)
    if not calls or not total[-1]:
        return ""
    begin, end = (int(np.searchsorted(total, share * total[-1], side="right" if share < 0.5 else "left")) for share in (0.05, 0.95))
    return f"calls {begin + 1} to {end + 1} of {calls}" if end - begin + 1 < 0.7 * calls else ""
