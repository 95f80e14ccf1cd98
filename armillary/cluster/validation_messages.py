"""Turns the errors of pydantic into messages about a cluster file, with the key path, what was found and what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from armillary.cluster.units import shown
from armillary.errors import one_line

_EXPECTED = {
    "model_type": "a table",
    "model_attributes_type": "a table",
    "dict_type": "a table",
    "tuple_type": "an array",
    "list_type": "an array",
    "string_type": "a text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_too_short": "a text that is not empty",
    "string_too_long": "a shorter text",
    "string_pattern_mismatch": "a text without control characters",
    "too_long": "fewer entries",
    "too_short": "more entries",
}


def faults_of(error: ValidationError, data: Mapping[str, Any], model: type[BaseModel]) -> list[str]:
    """One line per fault that pydantic found, in the words of the file."""
    lines = []
    found_faults = error.errors(include_url=False)
    for fault in found_faults:
        if fault["type"] == "too_short" and any(f["loc"][: len(fault["loc"])] == fault["loc"] != f["loc"] for f in found_faults):
            continue  # the array is too short only because some of its entries are faulty
        path, key = key_path(data, fault["loc"])
        kind, found = fault["type"], fault.get("input")
        if kind == "armillary":
            text = str(fault["msg"])
        elif kind == "extra_forbidden":
            text = "unknown key" + _nearest(key, _keys_at(model, fault["loc"][:-1]))
        elif kind == "missing":
            text = "missing"
        elif kind == "literal_error":
            options = str(fault["ctx"]["expected"]).replace("'", '"').replace(" or ", ", ")
            text = f"found {shown(found)}; expected {options}"
        elif kind == "union_tag_invalid":
            path += ".topology"
            tags = [tag.strip(" '") for tag in str(fault["ctx"]["expected_tags"]).split(",")]
            text = f"found {shown(fault['ctx']['tag'])}; expected {', '.join(tags)}" + _nearest(str(fault["ctx"]["tag"]), tags)
        elif kind == "union_tag_not_found":
            path, text = f"{path}.topology", "missing"
        else:
            text = f"found {shown(found)}; expected {_EXPECTED.get(kind, one_line(str(fault['msg']), 120))}"
        lines.append(f"{path}: {text}" if path else text)
    return list(dict.fromkeys(lines))


def key_path(data: Any, loc: Iterable[str | int]) -> tuple[str, str]:
    """(`group.gpu.node.nic.rate`, last key): entries of arrays appear by name, or by number if they have no name and there are several."""
    path, key = "", ""
    for step in loc:
        if isinstance(data, list | tuple) and isinstance(step, int):
            entry = data[step] if step < len(data) else None
            name = entry.get("name") if isinstance(entry, dict) else None
            if isinstance(name, str) and name:
                path += "." + one_line(name, 60)
            elif len(data) > 1:
                path += f"[{step}]"
            data = entry
        elif isinstance(data, dict) and step not in data and data.get("topology") == step:
            continue
        elif str(step) != "[key]":
            key = str(step)
            path += "." + one_line(key, 60)
            data = data.get(step) if isinstance(data, dict) else None
    return path.lstrip("."), key


def _nearest(key: str, known: Iterable[str]) -> str:
    options = sorted(known)
    near = difflib.get_close_matches(key[:100], options, n=1, cutoff=0.6)
    if near:
        return f' (did you mean "{near[0]}"?)'
    return f" (known: {', '.join(options[:12])}{'…' if len(options) > 12 else ''})" if options else ""


def _keys_at(model: type[BaseModel], loc: Iterable[str | int]) -> set[str]:
    """The keys that are allowed in the table at `loc`."""
    here: list[Any] = [model]
    for step in loc:
        if isinstance(step, int):
            continue
        tagged = [m for m in here if _is_model(m) and step in get_args(_annotation(m, "topology"))]
        if tagged:
            here = tagged
            continue
        fields = [_annotation(m, step) for m in here if _is_model(m)]
        here = [m for a in fields if a is not None for m in _inside(a)] or [m for m in here if not _is_model(m) for m in _inside(m.of)]
    return {(field.alias or name) for m in here if _is_model(m) for name, field in m.model_fields.items()}


class _ByName:
    """Stands for a table whose keys are names, so that the next step of a path is a name."""

    def __init__(self, of: Any) -> None:
        self.of = of


def _is_model(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseModel)


def _annotation(model: type[BaseModel], key: str) -> Any:
    for name, field in model.model_fields.items():
        if (field.alias or name) == key:
            return field.annotation
    return None


def _inside(annotation: Any) -> list[Any]:
    """The models inside an annotation such as `tuple[Socket, ...] | None`."""
    if _is_model(annotation):
        return [annotation]
    if get_origin(annotation) is dict:
        return [_ByName(get_args(annotation)[1])]
    if get_origin(annotation) in (Literal, None) and not isinstance(annotation, UnionType):
        return []
    if get_origin(annotation) is Union or get_args(annotation):
        return [m for inner in get_args(annotation) for m in _inside(inner)]
    return []
