"""People at work: a seeded model of users, and the named cases built on it.

Of a user's acts 70 % edit a file seen lately, 10 % create, 8 % delete, 7 % rename, 5 % change a group of files together; now and then
somebody reads. The think time is log-normal. A user knows the files of others once they are a minute old and the user is on line. What a
protocol does with it is no part of the model: an operation on a file that is not there is refused and counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from armillary.errors import unknown

from .world.schedule import Operation, Outage, Schedule, Spans

#: Shares of the acts (edit, create, delete, rename, group), which are ours, and of the reads beside them.
ACTS = ("edit", "create", "delete", "rename", "group")
SHARES = (0.70, 0.10, 0.08, 0.07, 0.05)
READS = 0.10
NOTICE_S = 60.0
#: From this many paths on, a choice among all is made by trying.
MANY = 8192
HOUR, DAY = 3600.0, 86400.0


@dataclass(frozen=True)
class Habits:
    """How the users of a case work: how many, how many acts and files, the mean think time, the size of a group."""

    replicas: int
    edits: int
    files: int
    think_s: float = 60.0
    group: tuple[int, int] = (2, 4)
    shares: tuple[float, ...] = SHARES
    bursts: bool = False
    reads: float = READS


class _Users:
    """Makes the operations, one user after the other in time."""

    def __init__(self, habits: Habits, outages: tuple[Outage, ...], rng: np.random.Generator) -> None:
        self.habits, self.outages, self.rng = habits, outages, rng
        self.names = tuple(f"r{i}" for i in range(habits.replicas))
        self.made: list[Operation] = []
        self.born: dict[str, tuple[float, str]] = {}
        #: Paths in the order of birth; those that are gone are thrown out now and then.
        self.ranks: list[str] = []
        self.away = {name: Spans((o.t0, o.t1) for o in outages if name in (o.a, o.b)) for name in self.names}
        self.recent: dict[str, list[str]] = {name: [] for name in self.names}
        self.counter = 0
        self.edges = np.cumsum(habits.shares)[:-1]

    def operations(self) -> tuple[Operation, ...]:
        rng, habits = self.rng, self.habits
        ready = dict.fromkeys(self.names, 100.0)
        for name in self.names:
            ready[name] += float(rng.exponential(habits.think_s))
        for i in range(habits.files):
            self._write(0.001 * i, self.names[i % len(self.names)], self._new())
        spread = 1.0
        for _ in range(habits.edits):
            who = min(self.names, key=lambda name: ready[name])
            t = ready[who]
            ready[who] = self._act(t, who)
            if habits.bursts:
                spread = 0.1 if rng.random() < 0.8 else 4.0
            ready[who] += spread * habits.think_s * float(rng.lognormal(-0.5, 1.0))
        return tuple(sorted(self.made, key=lambda op: op.t))

    def _act(self, t: float, who: str) -> float:
        rng = self.rng
        pick = self._pick(t, who)
        what = ACTS[int(np.searchsorted(self.edges, rng.random(), side="right"))] if pick else "create"
        if rng.random() < self.habits.reads and pick:
            self.made.append(Operation(t, who, "read", self._pick(t, who)))
            t += 1.0
        if what == "create":
            self._write(t, who, self._new())
        elif what == "edit":
            self._write(t, who, pick, "append" if rng.random() < 0.3 else "write")
        elif what == "delete":
            self.born.pop(pick, None)
            self.made.append(Operation(t, who, "delete", pick))
        elif what == "rename":
            to = self._new()
            self.born.pop(pick, None)
            self._bear(t, who, to)
            self.made.append(Operation(t, who, "rename", pick, to))
        else:
            return self._group(t, who)
        return t

    def _group(self, t: float, who: str) -> float:
        """Draws a commit of some known and some new files, a tenth of a second each."""
        low, high = self.habits.group
        many = int(self.rng.integers(low, high + 1))
        self.counter += 1
        name = f"g{self.counter}"
        self.made.append(Operation(t, who, "begin", group=name))
        paths = {(self._pick(t, who) if self.rng.random() < 0.5 else "") or self._new() for _ in range(many)}
        for path in sorted(paths):
            t += 0.1
            self._write(t, who, path, group=name)
        t += 0.1
        self.made.append(Operation(t, who, "end", group=name))
        return t

    def _new(self) -> str:
        self.counter += 1
        return f"d{self.counter % 7}/f{self.counter}"

    def _write(self, t: float, who: str, path: str, op: str = "write", group: str = "") -> None:
        size = max(1, int(self.rng.lognormal(math.log(8000.0), 1.0)))
        self._bear(t, who, path)
        self.made.append(Operation(t, who, op, path, size=size, group=group))
        mine = self.recent[who]
        if path in mine:
            mine.remove(path)
        mine.append(path)
        del mine[:-50]

    def _bear(self, t: float, who: str, path: str) -> None:
        if path not in self.born:
            self.born[path] = (t, who)
            self.ranks.append(path)
            if len(self.ranks) > 2 * len(self.born) + 64:
                self.ranks = list(self.born)

    def _is_known(self, path: str, who: str, until: float) -> bool:
        born, by = self.born.get(path, (float("inf"), ""))
        return by == who or born <= until

    def _pick(self, t: float, who: str) -> str:
        """Picks a file that this user had lately half the time, else one by Zipf(1.0) of all it knows; nothing when it knows none."""
        until = min(t, self.away[who].begun(t)) - NOTICE_S
        rng, born = self.rng, self.born
        mine = [path for path in self.recent[who] if path in born and (born[path][1] == who or born[path][0] <= until)]
        if mine and rng.random() < 0.5:
            return mine[-1 - min(int(rng.geometric(0.3)) - 1, len(mine) - 1)]
        for u in rng.random(32):
            path = self.ranks[max(int(len(self.ranks) ** u) - 1, 0)] if self.ranks else ""
            if self._is_known(path, who, until):
                return path
        if len(self.ranks) > MANY:
            # At least a third of them live, so this is uniform over those that are known without a look at each.
            for u in rng.random(1000):
                path = self.ranks[int(len(self.ranks) * u)]
                if self._is_known(path, who, until):
                    return path
        known = [path for path in self.ranks if self._is_known(path, who, until)]
        return known[int(rng.integers(len(known)))] if known else ""


#: Acts of a case by scale; a year has its own, and its replicas.
EDITS = {"tiny": 120, "small": 600, "large": 2000}
YEARS = {"tiny": (2, 400), "small": (3, 10_000), "large": (10, 1_000_000)}
CASES = (
    "pair", "team", "laptop", "long-offline", "skewed-clocks", "flapping", "lossy", "git-tree", "rename-storm", "evicting", "year",
    "team-of-3", "team-of-8", "team-of-days", "flapping-slowly", "very-lossy",
)  # fmt: skip
#: People of the other teams, and their mean think time in seconds.
TEAMS = {"team-of-3": (3, 60.0), "team-of-8": (8, 60.0), "team-of-days": (5, 3600.0)}


def generate(name: str, rng: np.random.Generator, edits: int, replicas: int = 3) -> Schedule:
    """Draws the schedule of a built-in case with this many acts; `replicas` counts for `year` alone."""
    if name not in CASES:
        raise unknown("case", name, CASES)
    files = max(10, min(300, edits // 7))
    three = Habits(3, edits, files)
    if name == "pair":
        # A tenth of a team's acts at the large scale.
        habits = Habits(2, max(60, edits // 10) if edits > 600 else edits // 2, 20, think_s=60.0)
        span = habits.edits * habits.think_s / 2
        return _schedule(habits, rng, tuple(Outage(f * span, (f + 0.15) * span, "r0") for f in (0.2, 0.6)))
    if name == "team":
        return _schedule(Habits(5, edits, files, bursts=True), rng)
    if name in TEAMS:
        people, think_s = TEAMS[name]
        return _schedule(Habits(people, edits, files, think_s=think_s, bursts=name != "team-of-days"), rng)
    if name in ("laptop", "evicting"):
        habits = replace(three, think_s=3 * DAY * 3 / edits)
        nights = _days(3, 9 * HOUR, 8 * HOUR)
        if name == "laptop":
            return _schedule(habits, rng, nights)
        return replace(_schedule(replace(habits, reads=0.5), rng, nights), evicts={"r0": 2 * HOUR})
    if name == "long-offline":
        habits = replace(three, think_s=50 * DAY * 3 / edits)
        return _schedule(habits, rng, (Outage(5 * DAY, 40 * DAY, "r0"),))
    if name == "skewed-clocks":
        clocks = {f"r{i}": (float(rng.normal(0.0, 30.0)), 0.0) for i in range(3)} | {"r1": (-HOUR, 0.0)}
        span = edits * three.think_s / 3
        return replace(_schedule(three, rng, (Outage(0.3 * span, 0.5 * span, "r1"),)), clocks=clocks)
    if name == "flapping":
        return _schedule(replace(three, think_s=6.0), rng, _flaps(rng, 2.0 * edits + 100.0))
    if name == "flapping-slowly":
        return _schedule(replace(three, think_s=60.0), rng, _flaps(rng, 20.0 * edits + 100.0, 30.0))
    if name in ("lossy", "very-lossy"):
        loss, duplication = (0.10, 0.05) if name == "lossy" else (0.30, 0.15)
        return replace(_schedule(three, rng), loss=loss, duplication=duplication)
    if name == "rename-storm":
        span = edits * three.think_s / 3
        storm = replace(three, shares=(0.30, 0.08, 0.05, 0.55, 0.02))
        return _schedule(storm, rng, tuple(Outage(f * span, (f + 0.1) * span, "r0") for f in (0.2, 0.5, 0.8)))
    if name == "year":
        habits = Habits(replicas, edits, max(10, min(1000, edits // 10)), think_s=365 * DAY * replicas / edits)
        return _schedule(habits, rng, _days(365, 9 * HOUR, 8 * HOUR))
    return _schedule(Habits(3, edits // 4, files, group=(3, 40), shares=(0.5, 0.1, 0.05, 0.05, 0.3)), rng)


def _days(many: int, start: float, length: float) -> tuple[Outage, ...]:
    return tuple(Outage(d * DAY + start, d * DAY + start + length, "r0") for d in range(many))


def _schedule(habits: Habits, rng: np.random.Generator, outages: tuple[Outage, ...] = ()) -> Schedule:
    users = _Users(habits, outages, rng)
    return Schedule(users.names, users.operations(), outages, seed=int(rng.integers(1 << 31)))


def _flaps(rng: np.random.Generator, span: float, mean_s: float = 2.0) -> tuple[Outage, ...]:
    out, t = [], float(rng.exponential(mean_s))
    while t < span:
        down = 0.01 + float(rng.exponential(mean_s))
        out.append(Outage(t, t + down, "r0"))
        t += down + 0.01 + float(rng.exponential(mean_s))
    return tuple(out)
