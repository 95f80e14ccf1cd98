"""Numbers with units: exact, never guessed, written back as they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.cluster.units import CURRENCIES, DIMENSIONS, Quantity, UnitError, read, write


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("400 Gb/s", "rate", 50e9),
        ("400Gb/s", "rate", 50e9),
        ("400 Gbps", "rate", 50e9),
        ("8 Mb/s", "rate", 1e6),
        ("3.35 TB/s", "rate", 3.35e12),
        ("1 GiB/s", "rate", 1073741824),
        ("1 GiB", "size", 1073741824),
        ("1 TiB", "size", 2**40),
        ("48 KiB", "size", 49152),
        ("80 GB", "size", 80e9),
        ("2 PB", "size", 2e15),
        ("0.5 us", "time", 5e-7),
        ("1 y", "time", 365.25 * 86400),
        ("6 h", "time", 21600),
        ("10.2 kW", "power", 10200),
        ("989.4 TFLOP/s", "compute rate", 989.4e12),
        ("989.4 TFLOPS", "compute rate", 989.4e12),
        ("1978.9 TOPS", "integer compute rate", 1978.9e12),
        ("2800 MIPS", "instruction rate", 2.8e9),
        ("2.25 GHz", "frequency", 2.25e9),
        ("180 g/kWh", "carbon intensity", 180),
        ("7320 t", "mass", 7.32e9),
        ("5 pJ/bit", "energy per bit", 5e-12),
    ],
)
def test_a_unit_means_what_it_says(text, dimension, value):
    assert read(text, dimension) == value


def test_a_bare_number_is_in_the_base_unit():
    assert read(12, "rate") == 12.0
    assert read(0.5, "time") == 0.5


def test_a_price_keeps_its_currency():
    price = read("0.18 EUR/kWh", "price per energy")
    assert (float(price), price.unit) == (0.18, "EUR/kWh")
    assert read("180 USD/MWh", "price per energy") == 0.18
    assert {"EUR", "USD", "JPY", "CHF"} <= CURRENCIES


@pytest.mark.parametrize(
    ("found", "dimension", "says"),
    [
        ("400 gb/s", "rate", 'unit not understood (did you mean "400 Gb/s" bits, or "400 GB/s" bytes?)'),
        ("400 W", "rate", "a power where"),
        ("400", "rate", "needs a unit"),
        ("4 kilo", "power", "unit not understood"),
        ("1,000 GB", "size", "not a number with a unit"),
        ("1  GB", "size", "not a number with a unit"),
        ("", "size", "not a number"),
        ("1e999 B", "size", "not a finite"),
        (float("nan"), "rate", "not a finite"),
        (float("inf"), "rate", "not a finite"),
        (10**400, "size", "not a finite"),
        (True, "rate", "true: expected"),
        ([], "rate", "an array: expected"),
        ("0.18 ABC/kWh", "price per energy", "ISO 4217"),
        (0.18, "price per energy", "without a currency"),
    ],
)
def test_what_is_not_understood_is_an_error_that_says_why(found, dimension, says):
    with pytest.raises(UnitError) as error:
        read(found, dimension)
    assert says in str(error.value)


@given(
    st.floats(min_value=1e-18, max_value=1e24, allow_nan=False),
    st.sampled_from([d.base for d in DIMENSIONS.values() if not d.priced] + ["EUR/kWh", "USD", "GBP/GB", "CHF/GiB"]),
)
def test_written_and_read_again_is_the_same_number(value, unit):
    dimension = next(d.name for d in DIMENSIONS.values() if unit == d.base or (d.priced and unit[3:] == d.base and unit[:3].isupper()))
    back = read(write(value, unit), dimension)
    assert back == value
    assert back.unit == unit


@given(st.integers(min_value=1, max_value=10**6), st.sampled_from(["GB/s", "Gb/s", "TB", "ms", "kW", "TFLOP/s", "GiB"]))
def test_people_get_back_short_numbers(number, unit):
    dimension = next(d for d in DIMENSIONS.values() if unit in d.units)
    assert len(read(f"{number} {unit}", dimension.name).text) <= 16


def test_a_quantity_computes_like_a_float_and_remembers_its_source():
    rate = Quantity(3.35e12, "B/s", "data sheet", 3.0e12)
    assert rate / 2 == 1.675e12
    assert type(rate / 2) is float
    assert (rate.source, rate.measured, rate.text) == ("data sheet", 3.0e12, "3.35 TB/s")
