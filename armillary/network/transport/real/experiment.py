"""Real runs with two processes, the calibration of this machine by another program, and the prediction of the runs."""

from __future__ import annotations

import functools
import json
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary import extras
from armillary.cluster import Cluster, from_dict
from armillary.errors import InputError
from armillary.network.transport.simulation.platform import Extras

from .programs import PROGRAMS, STEPS, workflow_of
from .rank import PATIENCE_S

ENGINES = ("BP5", "SST")
#: ADIOS2's engine as the layer knows it.
AS_TRANSPORT = {"BP5": "file-local", "SST": "staging-colocated"}
#: Sizes of the calibration, which no case has.
CALIBRATED = (40, 56, 72, 104)
#: Rounds are noisy if their quartiles are further apart than this share of the median.
NOISY = 0.3


class Pair:
    """The two processes, which take orders until they are closed."""

    def __init__(self) -> None:
        extras.need("adios2")
        self._folder = tempfile.TemporaryDirectory(prefix="armillary-transport-")
        self._runs = 0
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "armillary.network.transport.real.rank", role],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=self._folder.name,
            )
            for role in ("publish", "subscribe")
        ]
        for process in self._processes:
            self._answer(process)

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        self._folder.cleanup()

    def run(self, program: str, size: int, engine: str, steps: int = STEPS, *, apart: bool = False) -> list[dict[str, float]]:
        """What both processes measured. With `apart` the subscriber starts when the publisher has closed."""
        self._runs += 1
        path = Path(self._folder.name) / f"run{self._runs}.bp"
        order = json.dumps({"program": program, "size": size, "engine": engine, "steps": steps, "path": str(path)}) + "\n"
        publisher, subscriber = self._processes
        self._tell(publisher, order)
        found = [self._answer(publisher)] if apart else []
        self._tell(subscriber, order)
        found += [self._answer(process) for process in self._processes[len(found) :]]
        _remove(path)
        return found

    def _tell(self, process: subprocess.Popen[str], order: str) -> None:
        assert process.stdin is not None
        process.stdin.write(order)
        process.stdin.flush()

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, float]:
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], 2 * PATIENCE_S)[0]:
            raise InputError(f"found no answer of a real run within {2 * PATIENCE_S} s", where="adios2")
        line = process.stdout.readline()
        if not line:
            raise InputError(f"found that a real run ended with status {process.wait()}; expected measurements", where="adios2")
        found: dict[str, float] = json.loads(line)
        return found


def makespan(found: list[dict[str, float]]) -> float:
    """Seconds from the first start to the last end; both processes read one clock."""
    return max(f["ended"] for f in found) - min(f["began"] for f in found)


@dataclass(frozen=True)
class Calibration:
    """This machine: seconds per flop of a simulation and of an analysis, and (seconds per operation, bytes/s) of moves."""

    flop: float
    analysis_flop: float
    write: tuple[float, float]
    read: tuple[float, float]
    staging: tuple[float, float]
    #: Seconds that a run takes beside its steps, by engine: to open, to find each other, and to close.
    start: Mapping[str, float]

    def cluster(self) -> Cluster:
        """This machine as a cluster of one node."""
        return from_dict({
            "armillary": 1, "name": "calibrated",
            "group": [{"name": "here", "count": 1, "node": {
                "socket": [{"count": 1, "cores": 2, "flops": {"fp64": 2.0 / self.flop}}],
                "memory": [{"name": "disk", "kind": "ssd", "size": "1 TB", "bandwidth": self.read[1], "attached": "node",
                            "write_bandwidth": self.write[1]}],
            }}],
        })  # fmt: skip

    def extras(self) -> Extras:
        """Latencies of its transports."""
        return Extras(self.staging[1], self.staging[0], file_latency=self.write[0], read_latency=self.read[0])

    def predict(self, program: str, size: int, transport: str) -> float:
        """The simulated makespan of a program's run."""
        workflow = workflow_of(program, size, reader_factor=self.analysis_flop / self.flop)
        found = workflow.simulate(self.cluster(), transport, placement="" if transport == "ideal" else "colocated", extras=self.extras())
        starts = {AS_TRANSPORT[engine]: seconds for engine, seconds in self.start.items()}
        return found.makespan + starts.get(transport, 0.0)

    def row(self) -> dict[str, float]:
        """For a table."""
        return {
            "flop_s": self.flop, "analysis_flop_s": self.analysis_flop, "write_s": self.write[0], "write_bytes_per_s": self.write[1],
            "read_s": self.read[0], "read_bytes_per_s": self.read[1], "staging_s": self.staging[0], "staging_bytes_per_s": self.staging[1],
            **{f"start_{engine}_s": seconds for engine, seconds in self.start.items()},
        }  # fmt: skip


@functools.lru_cache(maxsize=2)
def calibration(sizes: tuple[int, ...] = CALIBRATED, rounds: int = 3) -> Calibration:
    """Calibrates this machine once per process, in about ten seconds, with heat conduction and with plain moves."""
    flops, analyses, writes, reads, moves = [], [], [], [], []
    starts: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    with Pair() as pair:
        for engine in ENGINES:
            pair.run("plain", 16, engine)
        for size in sizes:
            cells = float(size**3)
            for _ in range(rounds):
                giving, taking = pair.run("heat", size, "BP5")
                flops.append(giving["compute"] / STEPS / (PROGRAMS["heat"][1] * cells))
                analyses.append(taking["compute"] / STEPS / (PROGRAMS["heat"][2] * cells))
                apart = pair.run("plain", size, "BP5", apart=True)
                writes.append((8.0 * cells, apart[0]["move"] / STEPS))
                reads.append((8.0 * cells, apart[1]["move"] / STEPS))
                together = pair.run("plain", size, "SST")
                moves.append((8.0 * cells, (together[0]["move"] + together[1]["move"]) / STEPS))
                starts["SST"].append(makespan(together) - together[0]["move"] - together[1]["move"])
                starts["BP5"].append(makespan(pair.run("plain", size, "BP5")) - apart[0]["move"] - apart[1]["move"])
    start = {engine: max(0.0, statistics.median(found)) for engine, found in starts.items()}
    return Calibration(statistics.median(flops), statistics.median(analyses), line(writes), line(reads), line(moves), start)


def line(points: list[tuple[float, float]]) -> tuple[float, float]:
    """(seconds per operation, bytes/s) through the medians by size, by the median of slopes; neither is negative."""
    sizes = sorted({x for x, _ in points})
    at = {x: statistics.median(y for size, y in points if size == x) for x in sizes}
    slopes = [(at[b] - at[a]) / (b - a) for i, a in enumerate(sizes) for b in sizes[i + 1 :]]
    slope = max(statistics.median(slopes), 1e-13)
    return max(0.0, statistics.median(at[x] - slope * x for x in sizes)), 1.0 / slope


@dataclass(frozen=True)
class Compared:
    """Seconds by engine: measured (medians) and predicted; whether rounds were too far apart; the ideal makespan."""

    real: dict[str, float]
    predicted: dict[str, float]
    ideal: float
    noisy: bool
    constants: dict[str, float]


def compared(work: Mapping[str, Any], rounds: int) -> Compared:
    """Runs a program over both engines in turns, and predicts both. Rounds that differ too much are followed by as many more at most."""
    program, size = work["program"], work["size"]
    found = calibration(CALIBRATED[:2], 1) if work.get("quick") else calibration()
    rounds = 1 if work.get("quick") else rounds
    predicted = {engine: found.predict(program, size, AS_TRANSPORT[engine]) for engine in ENGINES}
    with Pair() as pair:
        for engine in ENGINES:
            pair.run("plain", 16, engine)
        seconds = in_turns(lambda engine: makespan(pair.run(program, size, engine)), rounds)
    real = {engine: statistics.median(times) for engine, times in seconds.items()}
    return Compared(real, predicted, found.predict(program, size, "ideal"), any(map(differ, seconds.values())), found.row())


def in_turns(run: Callable[[str], float], rounds: int) -> dict[str, list[float]]:
    """The seconds of both engines by round: so many rounds, and as long as those of one differ, up to as many again."""
    seconds: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for turn in range(2 * rounds):
        if turn >= rounds and not any(map(differ, seconds.values())):
            break
        for engine in ENGINES:
            seconds[engine].append(run(engine))
    return seconds


def differ(times: Sequence[float]) -> bool:
    """Whether rounds are too far apart: their quartiles, by more than a share of the median. One round differs from nothing."""
    if len(times) < 2:
        return False
    low, middle, high = statistics.quantiles(times, n=4)
    return high - low > NOISY * middle


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    for left in path.parent.glob(path.name + "*"):
        left.unlink(missing_ok=True)
