"""Parameters: text and objects become checked fields, or one clear line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.arena import Technique
from armillary.errors import InputError, one_line, unknown
from armillary.parameters import canonical, canonical_json, parameters, with_parameters


@dataclass(frozen=True)
class Tool(Technique):
    """A tool. 2024."""

    share: float = field(default=0.5, metadata={"doc": "a share", "range": (0.0, 1.0)})
    points: tuple[float, ...] = field(default=(0.1, 0.2), metadata={"doc": "points", "range": (0.0, 1.0)})
    count: int = field(default=3, metadata={"doc": "a count", "range": (1, None)})
    mode: Literal["fast", "slow"] = field(default="fast", metadata={"doc": "how"})
    limit: int | None = field(default=None, metadata={"doc": "a limit"})
    name: str = field(default="x", metadata={"doc": "a name"})
    on: bool = field(default=True, metadata={"doc": "a switch"})

    def validate(self) -> None:
        if self.points and self.share < self.points[0]:
            raise InputError("share below the first point")


def test_text_becomes_the_fields_type() -> None:
    made = with_parameters(
        Tool, {"share": "0.25", "points": "0.1,0.3", "count": "7", "mode": "slow", "limit": "none", "name": "12", "on": "false"}
    )
    assert made == Tool(0.25, (0.1, 0.3), 7, "slow", None, "12", False)
    assert with_parameters(Tool, {"points": "[0.2]"}).points == (0.2,)
    assert with_parameters(Tool, {"points": "0.2"}).points == (0.2,)
    assert with_parameters(Tool, {"points": "[]"}).points == ()
    assert with_parameters(Tool, {"limit": "4"}).limit == 4


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("share", "1.5", "from 0.0 to 1.0"),
        ("share", "nan", "finite"),
        ("share", float("inf"), "finite"),
        ("share", "much", "expected float"),
        ("points", "0.1,2", "from 0.0 to 1.0"),
        ("count", "0", "from 1"),
        ("count", "2.5", "expected int"),
        ("mode", "medium", "'fast' or 'slow'"),
        ("shre", "1", 'did you mean "share"'),
        ("share", "[" * 100_000, "expected float"),
        ("share", "0.05", "below the first point"),
    ],
)
def test_bad_values_say_what_was_expected(name: str, value: object, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        with_parameters(Tool, {name: value}, where="tool")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_names_are_canonical() -> None:
    assert canonical(Tool()) == '{"count":3,"limit":null,"mode":"fast","name":"x","on":true,"points":[0.1,0.2],"share":0.5}'
    assert canonical(Tool(points=(0.1,))) != canonical(Tool())
    assert list(parameters(Tool)) == ["share", "points", "count", "mode", "limit", "name", "on"]


@given(
    st.dictionaries(
        st.text(), st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(), st.booleans(), st.none())
    )
)
def test_canonical_json_does_not_depend_on_order(values: dict[str, object]) -> None:
    assert canonical_json(values) == canonical_json(dict(reversed(values.items())))


def test_errors_are_one_safe_line() -> None:
    assert one_line("a\nb\x1b[31m") == "a\\nb\\x1b[31m"
    assert len(one_line("x" * 10_000)) == 400
    assert (
        str(unknown("arena", "storage/evicton", ["storage/eviction"]))
        == 'unknown arena "storage/evicton" (did you mean "storage/eviction"?)'
    )
    several = InputError.several([f"fault {i}" for i in range(30)])
    assert len(several.faults) == 21
    assert several.faults[-1] == "and 10 more"
