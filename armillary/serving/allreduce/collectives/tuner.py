"""A table of the best algorithm and share by size, as collective libraries' tuners read it, and the worth of more slots."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from armillary.errors import InputError

from .allreduce_time import SMALL_BYTES, best_share, hierarchical_seconds, hybrid_seconds, nvlink_seconds, ring_factor, switch_seconds
from .wires import Wires

if TYPE_CHECKING:
    from ..workload import ServingWork
    from .technique import Collective

#: Sizes from 1 KiB to 256 MiB.
SIZES = tuple(1 << k for k in range(10, 29))


@dataclass(frozen=True)
class Row:
    """The algorithm up to `nbytes` ("nvlink", "ring", "switch", "hybrid"), the share x through the switch, and the modelled seconds."""

    nbytes: int
    algorithm: str
    x: float
    seconds: float


@dataclass(frozen=True)
class TunerTable:
    """Rows by size, smallest first."""

    rows: tuple[Row, ...]

    def choose(self, nbytes: float) -> Row:
        """Returns the row for a message: the first that is at least as large, or the last."""
        return next((row for row in self.rows if nbytes <= row.nbytes), self.rows[-1])

    def to_csv(self) -> str:
        """Returns CSV with the columns bytes,algorithm,x,seconds."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("bytes", "algorithm", "x", "seconds"))
        writer.writerows((r.nbytes, r.algorithm, repr(r.x), repr(r.seconds)) for r in self.rows)
        return out.getvalue()

    def to_json(self) -> str:
        """Returns the same as a JSON list of objects."""
        return json.dumps([{"bytes": r.nbytes, "algorithm": r.algorithm, "x": r.x, "seconds": r.seconds} for r in self.rows], indent=1)

    def write(self, path: str | FilePath) -> None:
        """Writes CSV or JSON, depending on the ending of the file's name."""
        target = FilePath(path)
        if target.suffix not in (".csv", ".json"):
            raise InputError(f'found "{target.suffix}"; expected a name that ends in .csv or .json', where=str(target))
        target.write_text(self.to_csv() if target.suffix == ".csv" else self.to_json() + "\n", encoding="utf-8")


def tuner_table(wires: Wires, servers: int, *, jobs: int = 1, gpus: int | None = None, sizes: Sequence[int] = SIZES) -> TunerTable:
    """Returns the fastest way for each size over `servers` servers when `jobs` groups share a switch, modelled without other traffic."""
    if not sizes or min(sizes) < 1 or list(sizes) != sorted(set(sizes)):
        raise InputError("sizes: expected bytes above 0, each larger than the one before")
    at = wires.shape(servers, gpus)
    share = wires.share(servers, jobs) if wires.slots else 0.0
    rows = []
    for nbytes in sizes:
        if servers == 1:
            rows.append(Row(nbytes, "nvlink", 0.0, nvlink_seconds(nbytes, at)))
            continue
        found = [Row(nbytes, "ring", 0.0, hierarchical_seconds(nbytes, at))]
        if share > 0:
            found.append(Row(nbytes, "switch", 1.0, switch_seconds(nbytes, at, share)))
            x = best_share(ring_factor(servers), at.nic, share)
            if 0 < x < 1 and nbytes >= SMALL_BYTES:
                found.append(Row(nbytes, "hybrid", x, hybrid_seconds(nbytes, at, share, x)))
        rows.append(min(found, key=lambda r: r.seconds))
    return TunerTable(tuple(rows))


@dataclass(frozen=True)
class SlotsWorth:
    """The highest rate within the bounds (simulated) and the seconds of a large all-reduce (modelled) with this number of slots."""

    slots: int
    max_rate: float
    allreduce_s: float


def slots_worth(
    work: ServingWork, technique: Collective, slots: Sequence[int] = (0, 32, 64, 128, 256, 512, 1024), nbytes: float = 16 << 20
) -> list[SlotsWorth]:
    """Simulates the same work with switches of different size, to see how many slots are worth buying; 0 slots mean rings only.

    The placement is that of the work, or is planned for each number of slots.
    """
    from ..hierarchical import Hierarchical
    from ..planning.planner import planned_seconds

    if not slots or min(slots) < 0:
        raise InputError("slots: expected numbers of 0 or more")
    found = []
    for count in slots:
        wires = replace(work.wires, slots=count)
        here: Collective = technique if count else Hierarchical()
        changed = replace(work, wires=wires)
        plan = here.plan_work(changed)
        wide = max((len(g.servers) for g in plan.groups), default=1)
        found.append(SlotsWorth(count, here.max_rate(changed, plan).rate, planned_seconds(here.path, wires, wires.shape(wide), nbytes)))
    return found
