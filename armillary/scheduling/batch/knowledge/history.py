"""I/O of past runs: bytes and seconds per job, and what they say about the next run of the same executable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from armillary.scheduling.batch.workload import phases_of
from armillary.scheduling.swf import Jobs


@dataclass(frozen=True)
class Moved:
    """What one job moved: bytes, the seconds that it spent in I/O (per process), and its I/O phases (0 if they are unknown)."""

    bytes: float
    seconds: float
    phases: int = 0


@dataclass(frozen=True)
class JobIo:
    """What is known about the I/O of single jobs, by job number."""

    moved: Mapping[int, Moved] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.moved)

    def of(self, jobs: Jobs) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """(ι, c in bytes per second, phases) of each job of a log, 0 where nothing is known; ι is at most 1."""
        duty, bandwidth, phases = np.zeros(len(jobs)), np.zeros(len(jobs)), np.zeros(len(jobs), np.int64)
        for i, number in enumerate(jobs.job.tolist()):
            found = self.moved.get(number)
            if found is None or found.bytes <= 0 or found.seconds <= 0 or jobs.run_s[i] <= 0:
                continue
            duty[i] = min(found.seconds / jobs.run_s[i], 1.0)
            bandwidth[i] = found.bytes / (duty[i] * jobs.run_s[i])
            phases[i] = found.phases
        return duty, bandwidth, np.where((phases == 0) & (duty > 0), phases_of(jobs.run_s, duty), phases)


@dataclass
class History:
    """ι and c of the coming run of an executable: the means over its last `runs` runs on half to twice as many nodes."""

    runs: int = 5
    _past: dict[tuple[str, str], list[tuple[int, float, float]]] = field(default_factory=lambda: defaultdict(list), repr=False)

    @staticmethod
    def of(jobs: Jobs, io: JobIo, runs: int = 5) -> History:
        """The history in a log and the I/O of its jobs; runs count in the order of their ends, or of submissions if waits are unknown."""
        made = History(runs)
        duty, bandwidth, _ = io.of(jobs)
        ends = jobs.submit_s + np.nan_to_num(jobs.wait_s) + jobs.run_s
        users, names = jobs.names.get("user", ()), jobs.names.get("executable", ())
        for i in np.argsort(ends, kind="stable").tolist():
            if int(jobs.job[i]) in io.moved:
                user, name = int(jobs.user[i]), int(jobs.executable[i])
                user_text = users[user] if 0 <= user < len(users) else str(user)
                name_text = names[name] if 0 <= name < len(names) else str(name)
                made.add(user_text, name_text, int(jobs.nodes[i]), float(duty[i]), float(bandwidth[i]))
        return made

    def add(self, user: str, executable: str, nodes: int, duty: float, bandwidth: float) -> None:
        """Remembers a run that ended: its nodes, its ι, and its c in bytes per second."""
        self._past[user, executable].append((nodes, duty, bandwidth))

    def io(self, user: str, executable: str, nodes: int) -> tuple[float, float]:
        """(ι, c) of a coming run; (0, 0) where nothing is known, because a guessed mean makes every pair of jobs look guilty."""
        past = self._past.get((user, executable), [])
        alike = [(duty, c) for size, duty, c in reversed(past) if size <= 2 * nodes and nodes <= 2 * size][: self.runs]
        if not alike:
            return 0.0, 0.0
        return sum(duty for duty, _ in alike) / len(alike), sum(c for _, c in alike) / len(alike)
