"""Reads the small memory that identifies a replaceable part (IPMI platform management FRU information, version 1).

A common header of eight bytes gives the offsets (in units of eight bytes) of the chassis, board and product areas; every area
carries its length and a checksum that makes its bytes add up to zero. Fields begin with a byte that holds their encoding (two
bits) and length (six bits): binary, BCD plus, six-bit ASCII or eight-bit text; 0xC1 ends the list.
"""

from __future__ import annotations

import datetime

from armillary.errors import InputError

CHASSIS = ("part_number", "serial_number")
BOARD = ("manufacturer", "product_name", "serial_number", "part_number", "fru_file_id")
PRODUCT = ("manufacturer", "product_name", "part_number", "version", "serial_number", "asset_tag", "fru_file_id")
END = 0xC1
BCD_PLUS = "0123456789 -."
EPOCH = datetime.datetime(1996, 1, 1, tzinfo=datetime.UTC)


def read_fru(data: bytes, where: str = "FRU") -> dict[str, dict[str, str]]:
    """`{"chassis" | "board" | "product": {field: text}}` of the areas that are present; any damage raises an `InputError`."""
    if len(data) < 8:
        raise InputError(f"{len(data)} bytes; a FRU header has 8", where=where)
    if data[0] != 1:
        raise InputError(f"format version {data[0]}; expected 1", where=where)
    if sum(data[:8]) % 256:
        raise InputError("checksum of the common header is wrong", where=where)
    areas: dict[str, dict[str, str]] = {}
    for name, offset in (("chassis", data[2]), ("board", data[3]), ("product", data[4])):
        if offset:
            areas[name] = _area(_bytes_of(data, offset * 8, name, where), name, where)
    return areas


def _bytes_of(data: bytes, start: int, name: str, where: str) -> bytes:
    if start + 2 > len(data):
        raise InputError(f"{name} area begins at byte {start}; the memory has {len(data)}", where=where)
    length = data[start + 1] * 8
    if length == 0 or start + length > len(data):
        raise InputError(f"{name} area at byte {start} claims {length} bytes; {len(data) - start} are left", where=where)
    area = data[start : start + length]
    if area[0] & 0x0F != 1:
        raise InputError(f"{name} area has format version {area[0] & 0x0F}; expected 1", where=where)
    if sum(area) % 256:
        raise InputError(f"checksum of the {name} area is wrong", where=where)
    return area


def _area(area: bytes, name: str, where: str) -> dict[str, str]:
    found: dict[str, str] = {}
    names: tuple[str, ...]
    if name == "chassis":
        found["type"], position, names = str(area[2]), 3, CHASSIS
    elif name == "board":
        minutes = int.from_bytes(area[3:6], "little")
        if minutes:
            found["manufactured"] = (EPOCH + datetime.timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%MZ")
        position, names = 6, BOARD
    else:
        position, names = 3, PRODUCT
    last = len(area) - 1  # the checksum
    for index in range(last):
        if position >= last:
            raise InputError(f"{name} area: no end of fields", where=where)
        if area[position] == END:
            break
        kind, length = area[position] >> 6, area[position] & 0x3F
        if position + 1 + length > last:
            raise InputError(f"{name} area: field {index} of {length} bytes runs past the area's end", where=where)
        text = _text(area[position + 1 : position + 1 + length], kind)
        position += 1 + length
        if text:
            found[names[index] if index < len(names) else f"custom_{index - len(names) + 1}"] = text
    return found


def _text(raw: bytes, kind: int) -> str:
    if kind == 0:
        return raw.hex()
    if kind == 1:
        digits = (nibble for byte in raw for nibble in (byte >> 4, byte & 15))
        return "".join(BCD_PLUS[d] if d < len(BCD_PLUS) else "?" for d in digits).strip()
    if kind == 2:
        bits = int.from_bytes(raw, "little")
        return "".join(chr(32 + (bits >> 6 * k & 63)) for k in range(len(raw) * 8 // 6)).strip()
    return raw.decode("latin-1").strip(" \0")
