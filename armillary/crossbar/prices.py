"""The cost of writing and reading, as energies in joules and times in seconds, counted from the work done.

Every figure is a parameter. An ADC takes 2 mW at 1.2 GS/s and 8 bits, and twice as much for each further bit; a DAC takes a tenth of that.
Digital updates take 10 pJ and 1 ns per element on 32 lanes. These are the constants of MELISO+ (arXiv 2509.21137) and of the source of its
ADC.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Prices:
    """The prices of the parts around the cells."""

    adc_joules: float = 1.67e-12
    adc_seconds: float = 0.83e-9
    adcs_per_tile: int = 8
    dac_share: float = 0.1
    digital_joules: float = 10e-12
    digital_seconds: float = 1e-9
    digital_lanes: int = 32

    def conversion(self, bits: int) -> float:
        """Joules of one conversion with `bits` bits."""
        return self.adc_joules * 2.0 ** (bits - 8)


@dataclass
class Bill:
    """The cost so far, separately for writes, reads and the digital part."""

    write_joules: float = 0.0
    write_seconds: float = 0.0
    read_joules: float = 0.0
    read_seconds: float = 0.0
    digital_joules: float = 0.0
    digital_seconds: float = 0.0
    #: The pulses of all cells, the cells programmed, the reads of whole arrays, and the conversions.
    pulses: int = 0
    cells: int = 0
    reads: int = 0
    conversions: int = 0
    prices: Prices = field(default_factory=Prices)

    @property
    def joules(self) -> float:
        """The total energy in joules."""
        return self.write_joules + self.read_joules + self.digital_joules

    @property
    def seconds(self) -> float:
        """The total time in seconds, if everything happens one after another."""
        return self.write_seconds + self.read_seconds + self.digital_seconds

    def digital(self, elements: int) -> None:
        """Adds the cost of digital updates of `elements` numbers."""
        self.digital_joules += elements * self.prices.digital_joules
        self.digital_seconds += -(-elements // self.prices.digital_lanes) * self.prices.digital_seconds
