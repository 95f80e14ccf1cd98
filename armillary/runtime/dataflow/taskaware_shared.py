"""`taskaware-shared`: task-aware libraries under one pool of tokens, as many as cores, which all libraries of the process share.

Before a kernel computes on this machine's cores it takes as many tokens as it uses threads, and the library is told to use so many; workers
without tokens sleep. OpenCL's CPU device is cut into parts of that width. So libraries do not fight for cores, however many pools there
are. A wide kernel is passed by narrower ones at most 8 times. What nOS-V does inside the threads of each library, tokens do from outside:
this is our reading for Python.

A task-based data-flow methodology for programming heterogeneous systems with multiple accelerator APIs, arXiv:2602.21897.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from armillary.arena import Claim, Gain, Kind, parameter

from .running.technique import cores
from .simulation.play import Rules
from .taskaware import APPLICATIONS, TaskAware

#: Judged on each application, so that one with a large gain does not cover another.
LIBRARIES = tuple(Kind("two-libraries", kind.tags[0]) for kind in APPLICATIONS)


@dataclass(frozen=True)
class TaskAwareShared(TaskAware):
    """Task-aware libraries with unified thread management."""

    tokens: int = parameter(0, "tokens of the process; 0 is as many as cores", range=(0, 4096))

    rules: ClassVar[Rules | None] = Rules(tokens=True)
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "makespan_p90", over="oversubscribed", by=Gain(ratio=(1.1, None)), on=LIBRARIES, source="our level",
            says="one pool for all libraries is 1.1 times faster at the 90th percentile than full pools side by side",
        ),
        Claim(
            "makespan_p90", over=("oversubscribed", "taskaware"), by=Gain(ratio=(1.0, None)), on=LIBRARIES, source="our design",
            says="and no slower than task-aware libraries that are merely kept to one thread each",
        ),
    )  # fmt: skip

    def how(self) -> dict[str, Any]:
        """How the APIs are opened: tokens, and parts of the OpenCL device of one unit."""
        return {**super().how(), "tokens": self.tokens or cores(), "width": 1}
