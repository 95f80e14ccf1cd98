"""`pool`: functions on warm interpreters, in chunks that grow while the function proves to be short.

An interpreter is started once per core and then fed over a socket of its own. A worker gets one task until it is known how long such a
function takes; then as many as fit a few milliseconds. What a busy worker has not begun is called back as soon as another one is idle.

Our design, 2026.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.arena import Claim, Gain, Kind

from .running.technique import FUNCTIONS, Launcher

if TYPE_CHECKING:
    from .running.real import Ran, RealWork


@dataclass(frozen=True)
class Pool(Launcher):
    """Our warm interpreters on this machine."""

    starts: ClassVar[frozenset[str]] = frozenset({FUNCTIONS})
    quick: ClassVar[bool] = True
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "makespan_here", over=("ray", "dragon", "parsl", "dask"), by=Gain(ratio=(1.0, None)), on=Kind("null-functions"),
            source="our design",
            says="null functions, each with a result of its own, run at least at the rate of the best of Ray, Dragon, Parsl and Dask",
        ),
        Claim(
            "makespan_here", over=("ray", "dragon", "parsl", "dask"), by=Gain(ratio=(1.0, None)), on=Kind("batched-functions"),
            source="our design", says="and so do null functions in batches",
        ),
    )  # fmt: skip

    def run(self, work: RealWork) -> Ran:
        """A pilot with one backend."""
        from .running.pilots import run_pilot

        return run_pilot(work, ["pool"])
