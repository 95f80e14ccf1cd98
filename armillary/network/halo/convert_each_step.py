"""Convert each step: every kernel converts its arrays, every exchange slices, packs field by field and waits. The naive Python code.

Arrays belong to one library, kernels to another, and a program that asks for a conversion wherever it needs one is right and slow. The six
sources of overhead are parameters, so that the cost of each shows: conversions per access, fresh slices, packing in a Python loop,
synchronisation around MPI, staging through the memory of the host, and launch arguments that are put together each time.
That the interpreter slows such codes down: Analysis and optimization of data transfer in Multi-GPU Python applications, P2S2 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.arena import parameter

from .accessing import Accessing

if TYPE_CHECKING:
    from .views.ladder import Access


@dataclass(frozen=True)
class ConvertEachStep(Accessing):
    """All six sources of overhead; each can be switched off."""

    convert: bool = parameter(True, "convert arrays at each access")
    slices: bool = parameter(True, "slice halos anew in each exchange")
    loops: bool = parameter(True, "pack fields one by one")
    sync: bool = parameter(True, "wait before and after each exchange, with messages posted anew")
    stage: bool = parameter(True, "copy packed halos through a further buffer on the host")
    rebuild: bool = parameter(True, "put launch arguments together at each launch")

    def access(self, on_gpu: bool) -> Access:
        """The switches."""
        from .views.ladder import Access

        return Access(self.convert, self.slices, self.loops, self.sync, self.stage, self.rebuild)
