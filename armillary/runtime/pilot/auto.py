"""`auto`: predicts what each way would take and takes the best one, before the allocation is spent.

In simulated cases it puts the work into the formula makespan(k) = bootstrap(k) + max over stations of load / rate, for every launcher and
every number of partitions k. On a real machine `measure_backends` times what is present for two seconds each, and the same formula decides.

Our design, 2026.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import Claim, Gain, Kind, parameter

from .running.technique import EXECUTABLES, FUNCTIONS, Launcher

if TYPE_CHECKING:
    from .running.real import Ran, RealWork
    from .simulation.plan import Plan
    from .workload import Work

RIVALS = ("srun", "srun-pool", "srun-unlimited", "flux", "flux-n", "dragon", "hybrid")
WHY = "the formula knows no order of tasks, so that some percent are left to chance"


@dataclass(frozen=True)
class Auto(Launcher):
    """The technique, and the number of partitions, with the least predicted makespan."""

    probe_s: float = parameter(2.0, "seconds for which each present backend is measured in a real case", range=(0.05, 60))

    starts: ClassVar[frozenset[str]] = frozenset({EXECUTABLES, FUNCTIONS})
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "makespan", over=tuple(name for name in RIVALS if name != "srun-unlimited"), by=Gain(ratio=(1.0, None)), on=Kind("simulated"),
            honest=(0.95, None), why=WHY, source="our design", says="it ends as soon as the best of those that a site with a ceiling has",
        ),
    )  # fmt: skip

    def plan(self, work: Work) -> Plan:
        """The best by the formula."""
        from .simulation.predict import choose_plan

        return choose_plan(work).plan

    def run(self, work: RealWork) -> Ran:
        """Measures the backends that are here, once per process, and runs the pilot that is predicted to be fastest."""
        from .running.pilots import run_chosen

        return run_chosen(work, self.probe_s)
