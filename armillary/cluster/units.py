"""Reads numbers with units exactly, and writes them so that reading gives the same number.

A number in a cluster file is text such as `"3.35 TB/s"`, or a bare number in the base unit of its dimension. Decimal prefixes are powers of
1,000, and `Ki Mi Gi Ti` are powers of 1,024. `b` means bits and `B` means bytes, and a spelling that could be either is an error, not a
guess.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from armillary.errors import one_line


class UnitError(Exception):
    """Text that is not a number of the requested dimension; the message says what was found and what was expected."""


class Quantity(float):
    """A number in the base unit of its dimension that remembers where it came from.

    It computes like any float; results of arithmetic are plain floats.
    """

    __slots__ = ("derived", "measured", "source", "unit")

    #: Base unit: "B", "B/s", "s", "W", "FLOP/s", "EUR/kWh"…
    unit: str
    #: The source of the number, or None if the file does not state it.
    source: str | None
    #: The same quantity as measured on the machine, in the same unit, or None if only the nominal value is known.
    measured: float | None
    #: Whether Armillary computed it from other keys of the file.
    derived: bool

    def __new__(
        cls, value: float, unit: str = "", source: str | None = None, measured: float | None = None, derived: bool = False
    ) -> Quantity:
        self = super().__new__(cls, value)
        self.unit, self.source, self.measured, self.derived = unit, source, measured, derived
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Quantity, (float(self), self.unit, self.source, self.measured, self.derived)

    def __copy__(self) -> Quantity:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Quantity:
        return self

    @property
    def text(self) -> str:
        """The number with its unit, as a cluster file writes it."""
        return write(float(self), self.unit)


class Count(int):
    """A whole number that remembers where it came from."""

    source: str | None
    measured: None = None

    def __new__(cls, value: int, source: str | None = None) -> Count:
        self = super().__new__(cls, value)
        self.source = source
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Count, (int(self), self.source)


@dataclass(frozen=True)
class Dimension:
    """What a number measures, with its base unit and every unit that it may be written in, with exact factors."""

    name: str
    base: str
    units: dict[str, Decimal]
    example: str
    #: Whether a number needs a currency.
    priced: bool = False

    def __hash__(self) -> int:
        return hash(self.name)


def _scaled(prefixes: str, stem: str, factor: Decimal = Decimal(1)) -> dict[str, Decimal]:
    powers = {"": 0, "m": -1, "u": -2, "n": -3, "p": -4, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
    return {f"{p.strip('.')}{stem}": Decimal(1000) ** powers[p.strip(".")] * factor for p in prefixes.split()}


_SIZES = {**_scaled(". k M G T P", "B"), **{f"{p}iB": Decimal(1024) ** (n + 1) for n, p in enumerate("KMGT")}}
_BITS = Decimal(1) / 8
_RATES = {
    **{f"{unit}/s": factor for unit, factor in _SIZES.items()},
    **_scaled(". k M G T", "b/s", _BITS),
    **_scaled(". k M G T", "bps", _BITS),
}
_TIMES = {
    **_scaled(". m u n", "s"),
    "µs": Decimal("1e-6"),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
    "y": Decimal(31557600),
}
_FLOPS = {**_scaled(". M G T P E", "FLOP/s"), **_scaled(". M G T P E", "FLOPS")}

DIMENSIONS = {
    d.name: d
    for d in (
        Dimension("size", "B", _SIZES, "80 GB"),
        Dimension("rate", "B/s", _RATES, "400 Gb/s"),
        Dimension("time", "s", _TIMES, "0.5 us"),
        Dimension("power", "W", _scaled(". k M", "W"), "700 W"),
        Dimension("compute rate", "FLOP/s", _FLOPS, "67 TFLOP/s"),
        Dimension("integer compute rate", "OPS", _scaled(". M G T P", "OPS"), "1979 TOPS"),
        Dimension("instruction rate", "IPS", _scaled(". M G", "IPS"), "2800 MIPS"),
        Dimension("frequency", "Hz", _scaled(". k M G", "Hz"), "2.0 GHz"),
        Dimension("carbon intensity", "g/kWh", {"g/kWh": Decimal(1), "kg/kWh": Decimal(1000), "kg/MWh": Decimal(1)}, "180 g/kWh"),
        Dimension("mass", "g", {"g": Decimal(1), "kg": Decimal(1000), "t": Decimal(1000000)}, "7320 t"),
        Dimension("length", "m", {"m": Decimal(1), "km": Decimal(1000), "cm": Decimal("0.01")}, "3 m"),
        Dimension("energy per bit", "J/bit", _scaled(". m u n p", "J/bit"), "5 pJ/bit"),
        Dimension("energy per byte", "J/B", _scaled(". m u n p", "J/B"), "40 pJ/B"),
        Dimension("power per size", "W/GiB", {**_scaled(". m", "W/GiB"), "W/GB": Decimal(1024) ** 3 / 10**9}, "0.4 W/GiB"),
        Dimension("price", "", {"": Decimal(1)}, "25000 EUR", priced=True),
        Dimension("price per energy", "/kWh", {"/kWh": Decimal(1), "/MWh": Decimal("0.001")}, "0.18 EUR/kWh", priced=True),
        Dimension("price per transfer", "/GB", {"/GB": Decimal(1), "/TB": Decimal("0.001")}, "0.05 EUR/GB", priced=True),
        Dimension("price per size", "/GiB", {"/GiB": Decimal(1), "/TiB": Decimal(1) / 1024}, "4 EUR/GiB", priced=True),
    )
}

# ISO 4217, the codes of money in use.
_CODES = """AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP CNY
    COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR
    ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN
    MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD
    SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VES VND VUV WST XAF XCD XOF XPF YER ZAR ZMW ZWG"""
CURRENCIES = frozenset(_CODES.split())

_TEXT = re.compile(r"([+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?) ?([^\s0-9][^\s]{0,30})?")


def read(found: object, dimension: str, source: str | None = None, measured: float | None = None) -> Quantity:
    """The quantity that `found` states (as text with a unit, or as a bare number in the base unit); anything else raises a `UnitError`."""
    of = DIMENSIONS[dimension]
    if isinstance(found, str):
        value, unit = _read_text(found, of)
    elif isinstance(found, bool) or not isinstance(found, int | float):
        raise UnitError(f"{shown(found)}: expected {_expected(of)}")
    elif of.priced:
        raise UnitError(f"{shown(found)}: a price without a currency; expected {_expected(of)}")
    else:
        value, unit = _finite(found), of.base
    if not math.isfinite(value):
        raise UnitError(f"{shown(found)}: not a finite number")
    return Quantity(value, unit, source, measured)


def _finite(found: int | float) -> float:
    try:
        return float(found)
    except OverflowError:
        return math.inf


def _read_text(text: str, of: Dimension) -> tuple[float, str]:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise UnitError(f"{shown(text)}: not a number with a unit; expected {_expected(of)}")
    number, unit = match.group(1), match.group(2) or ""
    if not of.priced:
        if not unit:
            raise UnitError(f"{shown(text)}: a number in quotes needs a unit; expected {_expected(of)}")
        factor = of.units.get(unit)
        if factor is None:
            raise UnitError(f"{shown(text)}: {_why(number, unit, of)}")
        return float(Decimal(number) * factor), of.base
    currency, per = unit[:3], unit[3:]
    if currency not in CURRENCIES or per not in of.units:
        raise UnitError(f"{shown(text)}: unit not understood; expected {_expected(of)} (an ISO 4217 currency)")
    return float(Decimal(number) * of.units[per]), currency + of.base


def _why(number: str, unit: str, of: Dimension) -> str:
    """Why `unit` is not a unit of `of`, with the units that the writer may have meant."""
    alike = [known for known in of.units if known.lower() == unit.lower()]
    if alike:
        words = {"b": " bits", "B": " bytes"}
        named = [f'"{number} {u}"{_bits_or_bytes(u, words) if of.name == "rate" else ""}' for u in sorted(alike, reverse=True)]
        return f"unit not understood (did you mean {', or '.join(named)}?)"
    for other in DIMENSIONS.values():
        if unit in other.units and not other.priced:
            return f"{_named(other)} where {_expected(of)} is expected"
    near = difflib.get_close_matches(unit, of.units, n=1, cutoff=0.5)
    hint = f'did you mean "{number} {near[0]}"?' if near else "known: " + ", ".join(u for u in of.units if u)
    return f"unit not understood ({hint})"


def _bits_or_bytes(unit: str, words: dict[str, str]) -> str:
    return words["B"] if "B" in unit else words["b"]


def _expected(of: Dimension) -> str:
    return f'{_named(of)} such as "{of.example}"'


def _named(of: Dimension) -> str:
    return f"{'an' if of.name[0] in 'aeiou' else 'a'} {of.name}"


def shown(found: object) -> str:
    """`found` as a person wrote it, short and printable."""
    if isinstance(found, str):
        return f'"{one_line(found, 60)}"'
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, dict):
        return "a table"
    if isinstance(found, list | tuple):
        return "an array"
    if isinstance(found, int):
        # Very long integers cannot be written in decimal by Python's own rules.
        return str(found) if abs(found) < 10**30 else "a number of more than 30 digits"
    return one_line(str(found), 60)


@lru_cache(maxsize=8192)
def write(value: float, unit: str) -> str:
    """`value` (base unit `unit`) as the shortest text that `read` turns into exactly the same number."""
    of, currency = _dimension_of(unit)
    if of.priced:
        return f"{_digits(value)} {currency}{of.base}"
    best, least = f"{_digits(value)} {of.base}", _length(_digits(value), value)
    for name, factor in of.units.items():
        scaled = value / float(factor)
        digits = _digits(scaled)
        if name in _ODD or scaled == 0 or float(Decimal(digits) * factor) != value:
            continue
        if _length(digits, scaled) < least:
            best, least = f"{digits} {name}", _length(digits, scaled)
    return best


def _length(digits: str, value: float) -> int:
    """The length of a number for a reader; one that is not between 1 and 1,000 counts as longer."""
    return len(digits) + (0 if 1 <= abs(value) < 1000 else 2)


#: Units that are read but not written: alternative spellings, and bits, so that a rate is always written in bytes.
_ODD = {u for u in (*_RATES, *_FLOPS) if "b" in u or u.endswith("FLOPS")} | {"µs", "kg/MWh", "cm", "EFLOP/s", "W/GB"}


def _digits(value: float) -> str:
    text = repr(float(value))
    return text[:-2] if text.endswith(".0") else text


@lru_cache(maxsize=256)
def _dimension_of(unit: str) -> tuple[Dimension, str]:
    for of in DIMENSIONS.values():
        if of.priced and unit[:3] in CURRENCIES and unit[3:] == of.base:
            return of, unit[:3]
        if not of.priced and unit == of.base:
            return of, ""
    raise KeyError(unit)
