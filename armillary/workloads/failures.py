"""When parts fail and for how long: alone (exponential or Weibull, with an age), whole racks at once, or as a log has it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.files import Column, column_names, read_table
from armillary.files.opening import Name

from .checks import Floats, Ints, count, positive

#: The most failures that are drawn or read.
MOST = 10_000_000
_PART = ("device", "node", "gpu", "disk")


@dataclass(frozen=True, eq=False)
class Failures:
    """Failures in the order of their start; no two of one part overlap."""

    #: float64[n]: seconds.
    start_s: Floats
    #: int64[n]: the part that fails, from 0.
    part: Ints
    #: float64[n]: seconds until it works again; infinite where it never does.
    repair_s: Floats

    def __len__(self) -> int:
        return len(self.start_s)


def failures(
    rng: np.random.Generator, parts: int, window_s: float, *, mtbf_s: float, repair_median_s: float, repair_sigma: float = 0.0,
    shape: float = 1.0, age_s: npt.ArrayLike = 0.0,
) -> Failures:  # fmt: skip
    """The failures of `parts` equal parts that start within `window_s` seconds, each part on its own.

    A new part lives for a Weibull time of mean `mtbf_s` seconds: P(T > t) = exp(−(t/scale)^shape), scale = mtbf/Γ(1 + 1/shape). A
    shape of 1 is exponential; below 1, young parts fail more often. A part of age a lives on for scale·((a/scale)^shape + E)^(1/shape)
    − a, E ~ Exp(1). A repair takes median·exp(sigma·Z) seconds and leaves a part as new. Part by part, the draws are a life, then by
    turns a repair (`rng.standard_normal()`) and a life: `rng.exponential(mtbf_s)` for a shape of 1, else `rng.standard_exponential()`.

    Schroeder and Gibson, A large-scale study of failures in high-performance computing systems, 2010, found shapes of 0.7 to 0.8 and
    lognormal repairs.
    """
    mean, k = positive("mtbf_s", mtbf_s), positive("shape", shape)
    median, ages = positive("repair_median_s", repair_median_s), np.broadcast_to(np.asarray(age_s, float), (count("parts", parts),))
    if not (ages >= 0).all() or not repair_sigma >= 0 or not 0 <= window_s < math.inf:
        raise InputError("age_s, repair_sigma, window_s: expected numbers of at least 0")
    if window_s / mean * parts > MOST / 4:
        raise InputError(f"mtbf_s: {mean:g} s give {window_s / mean * parts:,.0f} failures; expected at most {MOST // 4:,}")
    scale = mean / math.gamma(1 + 1 / k)

    def life(age: float) -> float:
        if k == 1.0:
            return float(rng.exponential(mean))
        return float(scale * ((age / scale) ** k + rng.standard_exponential()) ** (1 / k) - age)

    found: list[tuple[float, int, float]] = []
    for part in range(parts):
        t = life(float(ages[part]))
        while t < window_s:
            repair = float(median * np.exp(repair_sigma * rng.standard_normal()))
            found.append((t, part, repair))
            t += repair + life(0.0)
    return _sorted(found)


def rack_failures(
    rng: np.random.Generator, rack_of: npt.ArrayLike, window_s: float, *, mtbf_s: float, repair_median_s: float,
    repair_sigma: float = 0.0, hit: float = 1.0,
) -> Failures:  # fmt: skip
    """Failures that racks share: power, a switch, cooling. All parts that one hits fail and return at the same times.

    rack_of: the rack of each part, whole numbers from 0. Each rack fails at exponential times of mean `mtbf_s` seconds while it works;
    each of its parts is hit with probability `hit`. Rack by rack, the draws are those of `failures` with a shape of 1, then one
    `rng.random(parts of the rack)` for each failure.

    Ford and others, Availability in globally distributed storage systems, 2010, found more than a third of all node failures in
    such bursts.
    """
    racks = np.asarray(rack_of)
    if racks.ndim != 1 or racks.dtype.kind not in "iu" or not len(racks) or racks.min() < 0:
        raise InputError("rack_of: expected the number of a rack, from 0, for each part")
    if not 0 <= hit <= 1:
        raise InputError(f"hit: found {hit}; expected a probability")
    found: list[tuple[float, int, float]] = []
    order = np.argsort(racks, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(racks[order])) + 1):
        shared = failures(rng, 1, window_s, mtbf_s=mtbf_s, repair_median_s=repair_median_s, repair_sigma=repair_sigma)
        for start, repair in zip(shared.start_s.tolist(), shared.repair_s.tolist(), strict=True):
            found += [(start, int(part), repair) for part in members[rng.random(len(members)) < hit]]
            if len(found) > MOST:
                raise InputError(f"rack_of: more than {MOST:,} failures; expected fewer")
    return _sorted(found)


def together(*several: Failures) -> Failures:
    """The failures of several causes as one: where two of one part overlap, it is down from the first start to the last end."""
    start = np.concatenate([f.start_s for f in several])
    part = np.concatenate([f.part for f in several])
    end = np.concatenate([f.start_s + f.repair_s for f in several])
    found: list[tuple[float, int, float]] = []
    last: dict[int, int] = {}
    for i in np.lexsort((start, part)).tolist():
        p, begin, stop = int(part[i]), float(start[i]), float(end[i])
        if p in last and begin <= found[last[p]][2]:
            found[last[p]] = (found[last[p]][0], p, max(found[last[p]][2], stop))
        else:
            last[p] = len(found)
            found.append((begin, p, stop))
    return _sorted([(begin, p, stop - begin) for begin, p, stop in found])


def read_failures(path: Name, parts: int) -> Failures:
    """A log of failures of parts 0 to parts − 1: `start_s,end_s,part` per failure, or `time_s,part,event` with events down and up.

    Any table will do (CSV, TSV, JSON lines, Parquet); the part may be called device, node, gpu or disk. A part that goes down and never
    up is not repaired.
    """
    who = Column("part", "int", aliases=_PART, least=0, most=parts - 1)
    if {"start_s", "start"} & set(column_names(path)):
        spans = read_table(
            path, [Column("start_s", "time", aliases=("start",), least=0), Column("end_s", "time", aliases=("end",), least=0), who],
            row_limit=MOST,
        )  # fmt: skip
        wrong = np.flatnonzero(spans["end_s"] <= spans["start_s"])
        if len(wrong):
            raise spans.error(int(wrong[0]), f"found {spans['end_s'][wrong[0]]:g}; expected seconds after the start", "end_s")
        rows = list(zip(spans["start_s"].tolist(), spans["part"].tolist(), (spans["end_s"] - spans["start_s"]).tolist(), strict=True))
        return together(_sorted(rows))
    when = Column("time_s", "time", aliases=("time",), least=0, not_decreasing=True)
    table = read_table(path, [when, who, Column("event", "str", choices=("down", "up"))], row_limit=MOST)
    down: dict[int, float] = {}
    found: list[tuple[float, int, float]] = []
    events = table.frame["event"].to_list()
    for row, (t, part, event) in enumerate(zip(table["time_s"].tolist(), table["part"].tolist(), events, strict=True)):
        if (event == "down") == (part in down):
            raise table.error(row, f"found part {part} going {event}; expected the other, as it is {event} already", "event")
        if event == "down":
            down[part] = t
        else:
            found.append((down[part], part, t - down.pop(part)))
    return _sorted(found + [(t, part, math.inf) for part, t in down.items()])


def _sorted(found: list[tuple[float, int, float]]) -> Failures:
    found = sorted(found)
    columns = zip(*found, strict=True) if found else ((), (), ())
    start, part, repair = (list(column) for column in columns)
    return Failures(np.array(start, np.float64), np.array(part, np.int64), np.array(repair, np.float64))
