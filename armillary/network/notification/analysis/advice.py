"""Advice for one program: every way to be notified is played on its trace, and the fastest that this machine can have is named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary.errors import InputError
from armillary.network.notification.readers.traces import Trace, read_trace, scenario_of
from armillary.network.notification.simulation.notifier import _POLICIES, policy
from armillary.network.notification.simulation.play import play

#: What needs a card that posts user interrupts.
NEEDS_CARD = ("uintr", "adaptive")
#: A technique that is not this much faster than polling in waits is not worth a change.
WORTH = 0.01


@dataclass(frozen=True)
class Advice:
    """The technique to use, the one to use with a card that posts user interrupts, and the table behind both."""

    use: str
    with_card: str
    #: The per cent of the time that `use` saves over polling in waits.
    saves: float
    #: A row per technique: name, microseconds of the whole trace, share of the core that notification takes.
    table: list[dict[str, Any]]

    def __str__(self) -> str:
        said = f"use {self.use}" + (f", which saves {self.saves:.1f} % over polling in waits" if self.use != "poll-in-wait" else "")
        return said if self.with_card == self.use else f"{said}; with a card that posts user interrupts, use {self.with_card}"


def advise(trace: Trace | str | Path, cores: int = 4) -> Advice:
    """Return which technique serves a trace best if each rank has `cores` cores.

    With one core per rank a progress thread of its own is left out. Times are simulated on the network of `bxi2-100`.
    """
    if isinstance(cores, bool) or not isinstance(cores, int) or cores < 1:
        raise InputError(f"found {cores!r}; expected a whole number of cores per rank from 1", where="cores")
    found = trace if isinstance(trace, Trace) else read_trace(trace)
    scenario = scenario_of(found, cores, "trace")
    table: list[dict[str, Any]] = []
    for name in _POLICIES:
        if name == "thread-own-core" and cores < 2:
            continue
        played = play(scenario, policy(name, cores), found.compute_s or 1e-12)
        table.append({"technique": name, "time_us": 1e6 * played.seconds, "stolen": played.stolen})
    times: dict[str, float] = {row["technique"]: row["time_us"] for row in table}
    base = times["poll-in-wait"]

    def best(names: list[str]) -> str:
        fastest = min(names, key=times.__getitem__)
        return fastest if times[fastest] < (1 - WORTH) * base else "poll-in-wait"

    use = best([name for name in times if name not in NEEDS_CARD])
    with_card = best(list(times))
    return Advice(use, with_card, 100 * (1 - times[use] / base), table)
