"""What a person may set: the parameters of a technique and the options of an arena's reader.

Both are the fields of a frozen dataclass, each with a default, a sentence and, where it has one, a range:
`small: float = parameter(0.1, "share of the cache for newcomers", range=(0.01, 0.5))`. Values come from the command line as text and
from Python as objects, and both are checked against the field's type and its legal values.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from armillary.errors import InputError, one_line, unknown

T = TypeVar("T")


def parameter(
    default: Any,
    doc: str,
    *,
    range: tuple[float | None, float | None] | None = None,
    choices: Iterable[Any] | None = None,
    file: bool = False,
) -> Any:
    """A field of a dataclass: its default, one sentence about it, and its legal values.

    `range` includes both ends, and None leaves an end open. `file` marks an option that names a file, several files, or a preset: the
    content of every file that it names is part of the digest of the cases that are read with it.
    """
    legal = {"doc": doc, "range": range, "choices": None if choices is None else tuple(choices), "file": file}
    return dataclasses.field(default=default, metadata=legal)


@dataclass(frozen=True)
class Parameter:
    """One field of a technique or of a reader's options: its name, type, default, meaning and legal values."""

    name: str
    type: Any
    default: Any
    doc: str
    range: tuple[float | None, float | None] | None = None
    choices: tuple[Any, ...] | None = None
    file: bool = False

    @property
    def type_name(self) -> str:
        """The type as a person writes it."""
        if typing.get_origin(self.type) is typing.Literal:
            return "str" if all(isinstance(choice, str) for choice in typing.get_args(self.type)) else "one of several values"
        plain = None if typing.get_args(self.type) else getattr(self.type, "__name__", None)
        return plain or str(self.type).replace("typing.", "")

    @property
    def legal(self) -> str:
        """The legal values in words, or an empty string."""
        choices = typing.get_args(self.type) if typing.get_origin(self.type) is typing.Literal else self.choices
        if choices is not None:
            return "one of " + ", ".join(map(str, choices))
        if self.range is not None:
            low, high = self.range
            return f"from {'-inf' if low is None else low} to {'inf' if high is None else high}"
        return ""


def parameters(technique: type) -> dict[str, Parameter]:
    """The parameters of a technique class, by name, in the order of its fields."""
    return _parameters(technique)


@functools.cache
def _parameters(technique: Any) -> dict[str, Parameter]:
    if not dataclasses.is_dataclass(technique):
        return {}
    types = typing.get_type_hints(technique)
    found = {}
    for field in dataclasses.fields(technique):
        if field.init:
            default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
            legal = {name: field.metadata.get(name) for name in ("range", "choices")}
            doc, file = field.metadata.get("doc", ""), field.metadata.get("file", False)
            found[field.name] = Parameter(field.name, types[field.name], default, doc, **legal, file=file)
    return found


def with_parameters(technique: type[T], values: Mapping[str, Any], *, where: str = "") -> T:
    """A technique, or a reader's options, with these values, text or objects, each checked; the rest keep their defaults."""
    known = parameters(technique)
    checked = {}
    for name, value in values.items():
        if name not in known:
            raise unknown("parameter", name, known, where=where or None)
        checked[name] = check(known[name], value, where=f"{where}.{name}" if where else name)
    return made_valid(technique, checked)


def with_options(reading: type[T], values: Mapping[str, Any], *, where: str) -> T:
    """The options of a reader; `--search-s` and `search_s` are one name."""
    known = parameters(reading)
    checked = {}
    for given, value in values.items():
        name = given.replace("-", "_")
        if name not in known:
            raise unknown("option", option_name(given), map(option_name, known), where=where)
        checked[name] = check(known[name], value, where=option_name(name))
    return made_valid(reading, checked)


def option_name(name: str) -> str:
    """A parameter's name as an option of the command line: `--search-s`."""
    return "--" + name.replace("_", "-")


def made_valid(technique: type[T], values: Mapping[str, Any]) -> T:
    """The object made of values that were checked one by one, after its own check of how they go together."""
    made = technique(**values)
    validate = getattr(made, "validate", None)
    if validate is not None:
        validate()
    return made


def check(parameter: Parameter, value: Any, *, where: str) -> Any:
    """`value` as the parameter's type, or an InputError that says what was found and what was expected."""
    from pydantic import ValidationError

    if isinstance(value, str):
        value = _from_text(value, parameter.type)
    try:
        made = _adapter(parameter.type).validate_python(value)
    except ValidationError as error:
        found, reason = one_line(str(value), 60), error.errors()[0]["msg"]
        raise InputError(f'found "{found}"; expected {parameter.type_name} ({reason})', where=where) from None
    for item in made if isinstance(made, list | tuple) else (made,):
        _in_range(parameter, item, where)
    return made


def canonical(technique: Any) -> str:
    """All parameters of a technique, defaults included, as JSON with sorted keys and no spaces: part of a unit's name."""
    values = {name: getattr(technique, name) for name in parameters(type(technique))}
    return canonical_json(values)


def canonical_json(value: Any) -> str:
    """JSON that is equal for equal values in every process: sorted keys, floats by repr, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain, ensure_ascii=False)


@functools.cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _from_text(text: str, kind: Any) -> Any:
    """Command-line text as JSON where it is JSON, as a comma-separated list where the type is one, else as it stands."""
    if kind is str:
        return text
    if text in ("none", "None"):
        return None
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        value = text
    wants_list = any(typing.get_origin(t) in (tuple, list) for t in (kind, *typing.get_args(kind)))
    if wants_list and not isinstance(value, list):
        return [_from_text(item.strip(), Any) for item in text.split(",") if item.strip()]
    return value


def _in_range(parameter: Parameter, value: Any, where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"found {value}; expected a finite number", where=where)
    if parameter.choices is not None and value not in parameter.choices:
        raise unknown("value", str(value), map(str, parameter.choices), where=where)
    if parameter.range is not None and isinstance(value, int | float) and not isinstance(value, bool):
        low, high = parameter.range
        if (low is not None and value < low) or (high is not None and value > high):
            raise InputError(f"found {value}; expected a value {parameter.legal}", where=where)


def _plain(value: Any) -> Any:
    """NumPy scalars, tuples in odd places and enums as JSON values."""
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, set | frozenset):
        return sorted(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)
