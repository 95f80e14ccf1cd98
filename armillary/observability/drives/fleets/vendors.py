"""Six models of solid-state drives for drawn fleets: what each reports, in which units, and how often it fails. **Our design.**

The rates lie in the range of 0.3 to 2.5 % a year that large operators publish. Vendors differ in what they report and in how they write
it: power-on time in hours or minutes, written data in blocks, in units of 32 MiB or in GiB, temperatures alone or packed with their range.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Attributes of drawn fleets.
ATTRIBUTES = (1, 5, 9, 12, 170, 171, 172, 173, 174, 183, 184, 187, 188, 194, 195, 197, 199, 206, 233, 241, 242)


@dataclass(frozen=True)
class Vendor:
    """One model of drive."""

    name: str
    #: Failures per year and drive.
    annual: float
    #: Attributes that it does not report.
    silent: frozenset[int]
    #: Factors on the raw values of single attributes.
    units: dict[int, float]
    #: Whether the raw temperature carries its least and greatest value in its upper bytes.
    packed: bool = False
    #: The rated number of erase cycles.
    cycles: float = 3000.0
    #: Whether a drifting fleet moves this model's media decline from attribute 187 to 5 and 172.
    drifts: bool = False


VENDORS = (
    Vendor("MA1", 0.010, frozenset({195, 206, 233, 170}), {241: 1.0, 242: 1.0}, drifts=True),
    Vendor("MA2", 0.004, frozenset({195, 206, 233}), {241: 1.0, 242: 1.0}),
    Vendor("MB1", 0.007, frozenset({1, 183, 206}), {9: 60.0, 241: 1 / 65536, 242: 1 / 65536}, packed=True, cycles=1500.0),
    Vendor("MB2", 0.025, frozenset({1, 183}), {9: 60.0, 241: 1 / 65536, 242: 1 / 65536}, packed=True, cycles=1000.0, drifts=True),
    Vendor("MC1", 0.006, frozenset({170, 195, 188}), {241: 1 / 2097152, 242: 1 / 2097152}, cycles=5000.0, drifts=True),
    Vendor("MC2", 0.003, frozenset({170, 195}), {241: 1 / 2097152, 242: 1 / 2097152}, cycles=5000.0),
)
