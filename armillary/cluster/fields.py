"""The kinds of value in a cluster file (quantities with units, counts, names), each of which is checked as it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Strict, StringConstraints
from pydantic_core import PydanticCustomError, core_schema

from armillary.cluster import units
from armillary.cluster.units import Count, Quantity, shown
from armillary.errors import one_line

#: The largest count in a file.
MOST = 10_000_000


class Table(BaseModel):
    """A table of a cluster file. It is frozen, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, hide_input_in_errors=True, protected_namespaces=())


def bad(message: str) -> PydanticCustomError:
    """The error that a field raises, which is collected with all others of the file."""
    return PydanticCustomError("armillary", "{text}", {"text": message})


@dataclass(frozen=True)
class Reads:
    """Reads a quantity of one dimension, bare or as `{value, source, measured}`, between `low` and `high` (base units)."""

    dimension: str
    low: float = 0.0
    #: Whether `low` itself is allowed.
    or_equal: bool = False
    high: float | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.value)

    def value(self, found: object) -> Quantity:
        """Returns the quantity, or raises an error that says what is wrong with it."""
        if isinstance(found, Quantity):
            return found
        given, source, measured = _sourced(found)
        return self._number(given, source, None if measured is None else float(self._number(measured)))

    def _number(self, given: object, source: str | None = None, measured: float | None = None) -> Quantity:
        try:
            number = units.read(given, self.dimension, source, measured)
        except units.UnitError as error:
            raise bad(str(error)) from None
        if number < self.low or (number == self.low and not self.or_equal):
            raise bad(f"{shown(given)}: expected {self._range()}")
        if self.high is not None and number > self.high:
            raise bad(f"{shown(given)}: expected {self._range()}")
        return number

    def _range(self) -> str:
        low = "0" if self.low == 0 else units.write(self.low, units.DIMENSIONS[self.dimension].base)
        text = f"{low} or more" if self.or_equal else f"more than {low}"
        return text if self.high is None else f"{text}, at most {units.write(self.high, units.DIMENSIONS[self.dimension].base)}"


def _sourced(found: object) -> tuple[object, str | None, object]:
    """(value, source, measured) of a plain value or of a `{value, source, measured}` table."""
    if not isinstance(found, dict):
        return found, None, None
    for key in found:
        if key not in ("value", "source", "measured"):
            raise bad(f'unknown key "{one_line(str(key), 40)}"; expected value, source, measured')
    if "value" not in found:
        raise bad("found a table without value; expected {value = …, source = …}")
    source = found.get("source")
    if source is not None and (not isinstance(source, str) or len(source) > 2000):
        raise bad(f"source: found {shown(source)}; expected a text of at most 2000 characters")
    return found["value"], source, found.get("measured")


@dataclass(frozen=True)
class Counts:
    """Reads a whole number between `low` and `high`, bare or as `{value, source}`."""

    low: int = 1
    high: int = MOST

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.value)

    def value(self, found: object) -> Count:
        """Returns the count, or raises an error that says what is wrong with it."""
        if isinstance(found, Count):
            return found
        given, source, measured = _sourced(found)
        if measured is not None:
            raise bad("a count is not measured; expected value and source only")
        if isinstance(given, bool) or not isinstance(given, int) or not self.low <= given <= self.high:
            raise bad(f"found {shown(given)}; expected a whole number from {self.low:,} to {self.high:,}")
        return Count(given, source)


@dataclass(frozen=True)
class Shares:
    """Reads a plain number without unit between `low` and `high`, bare or as `{value, source}`."""

    low: float
    high: float

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.value)

    def value(self, found: object) -> Quantity:
        """Returns the number, or raises an error that says what is wrong with it."""
        if isinstance(found, Quantity):
            return found
        given, source, _ = _sourced(found)
        ok = isinstance(given, int | float) and not isinstance(given, bool) and self.low <= given <= self.high
        if not ok:
            raise bad(f"found {shown(given)}; expected a number from {self.low:g} to {self.high:g}")
        return Quantity(float(given), "", source)  # type: ignore[arg-type]


@dataclass(frozen=True)
class NameOrNames:
    """Reads one name, or an array of `low` to `high` names."""

    low: int = 1
    high: int = 100_000

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.value)

    def value(self, found: object) -> str | tuple[str, ...]:
        """Returns the name or names, or raises an error that says what is wrong."""
        if isinstance(found, str) and 0 < len(found) <= 100:
            return found
        if isinstance(found, list | tuple) and self.low <= len(found) <= self.high and all(isinstance(x, str) and x for x in found):
            return tuple(found)
        raise bad(f"found {shown(found)}; expected a name or an array of names")


Name: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")]
Text: TypeAlias = Annotated[str, StringConstraints(max_length=4000)]

Names: TypeAlias = Annotated[str | tuple[str, ...], NameOrNames()]
Pair: TypeAlias = Annotated[str | tuple[str, ...], NameOrNames(2, 2)]
Flag: TypeAlias = Annotated[bool, Strict()]

Size = Annotated[Quantity, Reads("size")]
Rate = Annotated[Quantity, Reads("rate")]
RateOrNone = Annotated[Quantity, Reads("rate", or_equal=True)]
Time = Annotated[Quantity, Reads("time")]
Delay = Annotated[Quantity, Reads("time", or_equal=True)]
Power = Annotated[Quantity, Reads("power", or_equal=True)]
Compute = Annotated[Quantity, Reads("compute rate", or_equal=True)]
IntegerCompute = Annotated[Quantity, Reads("integer compute rate", or_equal=True)]
Instructions = Annotated[Quantity, Reads("instruction rate")]
Frequency = Annotated[Quantity, Reads("frequency")]
Intensity = Annotated[Quantity, Reads("carbon intensity", or_equal=True)]
Mass = Annotated[Quantity, Reads("mass", or_equal=True)]
Length = Annotated[Quantity, Reads("length", or_equal=True)]
EnergyPerBit = Annotated[Quantity, Reads("energy per bit", or_equal=True)]
EnergyPerByte = Annotated[Quantity, Reads("energy per byte", or_equal=True)]
PowerPerSize = Annotated[Quantity, Reads("power per size", or_equal=True)]
Price = Annotated[Quantity, Reads("price", or_equal=True)]
PricePerEnergy = Annotated[Quantity, Reads("price per energy", low=-1e6, or_equal=True)]
PricePerTransfer = Annotated[Quantity, Reads("price per transfer", or_equal=True)]
PricePerSize = Annotated[Quantity, Reads("price per size", or_equal=True)]
Number = Annotated[Count, Counts()]
NumberOrNone = Annotated[Count, Counts(low=0)]
Factor = Annotated[Quantity, Shares(0.0, 1e9)]
