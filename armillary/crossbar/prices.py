"""What writing and reading cost: energies in joules, times in seconds, counted from what was done.

Every figure is a parameter. ADC: 2 mW at 1.2 GS/s and 8 bits, twice as much for each bit more; DAC a tenth of that; digital updates 10 pJ
and 1 ns for each element of 32 lanes (the constants of MELISO+, arXiv 2509.21137, and of its ADC's source).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Prices:
    """Prices of the parts around the cells."""

    adc_joules: float = 1.67e-12
    adc_seconds: float = 0.83e-9
    adcs_per_tile: int = 8
    dac_share: float = 0.1
    digital_joules: float = 10e-12
    digital_seconds: float = 1e-9
    digital_lanes: int = 32

    def conversion(self, bits: int) -> float:
        """Joules of one conversion to `bits`."""
        return self.adc_joules * 2.0 ** (bits - 8)


@dataclass
class Bill:
    """What was spent: writes apart from reads, and the digital part apart from both."""

    write_joules: float = 0.0
    write_seconds: float = 0.0
    read_joules: float = 0.0
    read_seconds: float = 0.0
    digital_joules: float = 0.0
    digital_seconds: float = 0.0
    #: Pulses of all cells, cells programmed, reads of whole arrays, conversions.
    pulses: int = 0
    cells: int = 0
    reads: int = 0
    conversions: int = 0
    prices: Prices = field(default_factory=Prices)

    @property
    def joules(self) -> float:
        """All of it."""
        return self.write_joules + self.read_joules + self.digital_joules

    @property
    def seconds(self) -> float:
        """All of it, one after the other."""
        return self.write_seconds + self.read_seconds + self.digital_seconds

    def digital(self, elements: int) -> None:
        """Charges updates of `elements` numbers."""
        self.digital_joules += elements * self.prices.digital_joules
        self.digital_seconds += -(-elements // self.prices.digital_lanes) * self.prices.digital_seconds
