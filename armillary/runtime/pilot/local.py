"""`local`: the pilot's own spawner. A task is one `posix_spawn`, and its end is an event of its pidfd in one epoll loop.

`posix_spawn` does not copy the address space of a big interpreter, no shell or launcher stands between the pilot and the task, nothing
polls, and no thread waits per task. Every task is bound to the cores that the scheduler gave it.

Our design, 2026. Linux has pidfds since 5.3 (2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import Claim, Gain, Kind

from .running.technique import EXECUTABLES, Launcher

if TYPE_CHECKING:
    from .running.real import Ran, RealWork

RIVALS = ("srun", "sbatch", "sbatch-array", "dragon", "dask", "parsl", "ray")


@dataclass(frozen=True)
class Local(Launcher):
    """Our spawner on this machine."""

    starts: ClassVar[frozenset[str]] = frozenset({EXECUTABLES})
    quick: ClassVar[bool] = True
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "makespan_here", over="radical-pilot", by=Gain(ratio=(20, None)), on=Kind("null-executables"), source="our design",
            says="null executables run at 20 times the rate of RADICAL-Pilot, whose start is not counted",
        ),
        Claim(
            "makespan_here", over=RIVALS, by=Gain(ratio=(1.0, None)), on=Kind("null-executables"), source="our design",
            says="and no other launcher on this machine is faster",
        ),
    )  # fmt: skip

    def run(self, work: RealWork) -> Ran:
        """A pilot with one backend."""
        from .running.pilots import run_pilot

        return run_pilot(work, ["local"])
