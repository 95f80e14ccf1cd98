"""The header of a safetensors file: names and shapes, without reading a weight.

A file begins with the length of its header (8 bytes, little-endian), followed by JSON `{name: {"dtype", "shape", "data_offsets"}}` and the
data. The length is at most 100,000,000 and fits into the file, data lie inside the file and do not overlap, and each has the bytes that
its shape and type need.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line
from armillary.files import open_file, parse_json

from ..ragged.granularity import MOST_ELEMENTS, MOST_WEIGHTS

#: The longest header that the format allows.
LONGEST = 100_000_000
#: Bits of each type of number.
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32,
    "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block|layer)\.(\d+)\.")


def read_header(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every floating-point tensor in a safetensors file, in the order of the file."""
    where = str(path)
    with open_file(path, limit=None, unpack=False) as file:
        size = path.stat().st_size
        head = file.read(8)
        if len(head) < 8:
            raise InputError(f"found {len(head)} bytes; expected the 8 bytes with which a safetensors file begins", where=where)
        length = int.from_bytes(head, "little")
        if length > min(LONGEST, size - 8):
            said = f"found a header of {length:,} bytes in a file of {size:,}; expected at most {LONGEST:,} and at most the file"
            raise InputError(said, where=where)
        text = file.read(length)
    said = parse_json(text, where)
    if not isinstance(said, dict):
        raise InputError("found no object in the header; expected one with the name of each tensor", where=where)
    return _shapes(said, size - 8 - length, where)


def _shapes(said: Mapping[str, Any], room: int, where: str) -> dict[str, tuple[int, ...]]:
    found, spans = {}, []
    for name, facts in said.items():
        if name == "__metadata__":
            continue
        place = f'tensor "{one_line(name, 60)}"'
        if not isinstance(facts, dict) or facts.get("dtype") not in BITS:
            raise InputError(f"{place}: expected dtype, shape and data_offsets, with a known dtype", where=where)
        shape, offsets = facts.get("shape"), facts.get("data_offsets")
        if not isinstance(shape, list) or not all(type(x) is int and 0 <= x <= MOST_ELEMENTS for x in shape) or len(shape) > 16:
            raise InputError(f"{place}: found shape {one_line(repr(shape), 60)}; expected sizes from 0", where=where)
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(x) is int for x in offsets):
            raise InputError(f"{place}: found data_offsets {one_line(repr(offsets), 60)}; expected two numbers", where=where)
        start, stop = offsets
        if not 0 <= start <= stop <= room or (stop - start) * 8 != -(-math.prod(shape) * BITS[facts["dtype"]] // 8) * 8:
            raise InputError(f"{place}: found data from {start} to {stop}; expected those of its shape, inside {room:,} bytes", where=where)
        spans.append((start, stop, name))
        if "F" in facts["dtype"] and math.prod(shape):
            found[name] = tuple(shape)
    if len(found) > MOST_WEIGHTS:
        raise InputError(f"found {len(found):,} tensors; expected at most {MOST_WEIGHTS:,}", where=where)
    spans.sort()
    for (_, stop, one), (start, _, other) in itertools.pairwise(spans):
        if start < stop:
            raise InputError(f'found that "{one_line(one, 40)}" and "{one_line(other, 40)}" overlap', where=where)
    if not found:
        raise InputError("found no tensor of floating-point numbers; expected weights", where=where)
    return found


def by_module(shapes: Mapping[str, tuple[int, ...]]) -> list[dict[str, tuple[int, ...]]]:
    """The tensors by module: those of each numbered layer together, and the rest before and after them as their names stand."""
    layers: dict[int, dict[str, tuple[int, ...]]] = {}
    before: dict[str, tuple[int, ...]] = {}
    after: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        number = _LAYER.search(name)
        if number is not None:
            layers.setdefault(int(number[1][:9]), {})[name] = shape
        elif "embed" in name or "wte" in name or "wpe" in name:
            before[name] = shape
        else:
            after[name] = shape
    return [module for module in (before, *(layers[i] for i in sorted(layers)), after) if module]
