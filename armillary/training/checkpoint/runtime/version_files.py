"""Versions as files: safetensors, with the optimizer's settings in the metadata, so that other programs can open them too."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from armillary.errors import InputError
from armillary.files import crc32c, parse_json, read_bytes

from .state import DTYPES, Description

_MOST_HEADER, _MOST_DIMENSIONS = 64 << 20, 64
WIDTHS = {name: dtype.itemsize for dtype, name in DTYPES.items()}


def write_version(path: str | Path, description: Description, data: Tensor, version: int) -> Path:
    """Writes a version, which appears whole or not at all."""
    target = Path(path)
    raw = data.numpy().tobytes()
    facts = {"version": version, "scalars": description["scalars"], "groups": description["groups"], "extra": description["extra"]}
    header = {"__metadata__": {"armillary": json.dumps(facts), "crc32c": f"{crc32c(raw):08x}"}, **description["tensors"]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = target.with_name(target.name + ".part")
    with part.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + raw)
        file.flush()
        os.fsync(file.fileno())
    part.replace(target)
    return target


def read_version(path: str | Path) -> tuple[int, Description, Tensor]:
    """(version, description, bytes) of a file that `write_version` wrote; a damaged one is refused."""
    raw, where = read_bytes(path), str(path)
    size = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or size > min(_MOST_HEADER, len(raw) - 8):
        raise InputError("found no header; expected a version in safetensors' format", where=where)
    header = parse_json(raw[8 : 8 + size], where=where)
    body = raw[8 + size :]
    meta = header.pop("__metadata__", None) if isinstance(header, dict) else None
    if not isinstance(meta, dict) or "armillary" not in meta:
        raise InputError("found no description of a version; expected a file that this arena wrote", where=where)
    if meta.get("crc32c") != f"{crc32c(body):08x}":
        raise InputError("the checksum does not fit the data; the file was cut or changed", where=where)
    facts: Any = parse_json(str(meta["armillary"]).encode(), where=where)
    if not isinstance(facts, dict) or not isinstance(facts.get("version"), int):
        raise InputError("found a description without a version", where=where)
    for name, one in header.items():
        _check_tensor(name, one, len(body), where)
    parts = {key: facts.get(key) for key in ("scalars", "groups", "extra")}
    if not isinstance(parts["scalars"], dict) or not isinstance(parts["groups"], list) or not isinstance(parts["extra"], dict):
        raise InputError("found a description without scalars, groups or extra values", where=where)
    data = torch.frombuffer(bytearray(body), dtype=torch.uint8) if body else torch.empty(0, dtype=torch.uint8)
    return facts["version"], {"tensors": header, **parts}, data


def _check_tensor(name: str, facts: Any, total: int, where: str) -> None:
    """A tensor's type, shape and place, which must fit each other and the data."""
    one: dict[str, Any] = facts if isinstance(facts, dict) else {}
    width = WIDTHS.get(str(one.get("dtype")), 0)
    shape, place = ([*value] if isinstance(value, list) else [-1] for value in (one.get("shape"), one.get("data_offsets")))
    few = len(place) == 2 and len(shape) <= _MOST_DIMENSIONS
    good = width > 0 and few and all(type(x) is int and 0 <= x <= total for x in [*shape, *place])
    if not good or place[0] > place[1] or place[1] - place[0] != math.prod(shape) * width:
        raise InputError(f'"{name}": expected a type, a shape and offsets that fit the data', where=where)
