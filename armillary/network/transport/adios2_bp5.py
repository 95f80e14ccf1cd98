"""The workflow really run on this machine over files in ADIOS2's BP5 format, beside its prediction by simulation.

W. F. Godoy, N. Podhorszki, R. Wang et al., ADIOS 2: the adaptable input output system, SoftwareX 12, 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Technique, parameter


@dataclass(frozen=True)
class Adios2Bp5(Technique):
    """Really executed with two processes; rounds of BP5 and SST take turns in the same processes."""

    rounds: int = parameter(6, "rounds of each engine, of which the median counts; twice as many if they differ much", range=(1, 100))

    #: ADIOS2's name of the engine.
    engine: ClassVar[str] = "BP5"
    takes = frozenset({"real"})
