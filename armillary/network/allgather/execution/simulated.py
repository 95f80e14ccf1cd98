"""The simulated time of a schedule: virtual ranks of `armillary.comm` carry it out, with messages as flows and blocks without contents."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from armillary.comm import Communicator, Ghost, run

from ..planning.prices import prices_of
from ..planning.schedule import Schedule
from .ranks import Allgather


def simulated(schedule: Schedule, cluster: Any, *, model: str = "flow", timeline: bool = False) -> tuple[float, Any]:
    """The seconds of one call that all ranks begin at 0, and the timeline if it is asked for."""
    problem = schedule.problem
    prices = prices_of(cluster, problem)
    ends = np.zeros(problem.ranks)

    def program(comm: Communicator) -> None:
        call = _Unshared(comm, schedule, prices)
        call(Ghost(call.send_bytes), Ghost(call.recv_bytes))
        ends[comm.rank] = comm.now()

    result = run(
        program, ranks=problem.ranks, backend="virtual", cluster=cluster, placement=problem.node_of.tolist(), model=model,
        payload="ghost", timeline=timeline,
    )  # fmt: skip
    return float(ends.max()), result.timeline


def chrome(timeline: Any) -> bytes:
    """A timeline as Chrome and Perfetto read it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "timeline.json"
        timeline.to_chrome(file)
        return file.read_bytes()


class _Unshared(Allgather):
    """A call whose blocks have no contents, and so need no stages and none of the time that making a window takes."""

    def _stages(self, comm: Communicator, schedule: Schedule, rank: int) -> list[Any]:
        return [None]
