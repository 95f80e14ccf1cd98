"""Whether writing a program into analogue memory pays, estimated before it is solved."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.crossbar.cells import device as find_device
from armillary.crossbar.prices import Prices

from ..program.problem import LinearProgram
from .gpu_model import iteration_seconds


@dataclass(frozen=True)
class Advice:
    """Seconds to program, seconds of an iteration in memory and on a GPU, and the iterations after which memory is ahead."""

    program_s: float
    memory_iteration_s: float
    gpu_iteration_s: float

    @property
    def pays_after(self) -> float:
        """Iterations; infinite where an iteration in memory is not faster."""
        gain = self.gpu_iteration_s - self.memory_iteration_s
        return self.program_s / gain if gain > 0 else float("inf")


def advise(lp: LinearProgram, device: str = "EpiRAM", tile: int = 256, gpu: str = "h200") -> Advice:
    """Estimates what writing and reading would take from the program's size alone, with half of the levels for each row of cells."""
    kind, prices = find_device(device), Prices()
    m, n = lp.shape
    rows = 2 * tile * max(1, -(-(m + n) // tile))
    program = rows * 0.5 * kind.levels * kind.pulse
    bits = 8
    read = bits * (kind.read_time + -(-tile // prices.adcs_per_tile) * prices.adc_seconds)
    return Advice(program, 2 * read + 2 * (m + n) / prices.digital_lanes * prices.digital_seconds, iteration_seconds(lp, gpu))
