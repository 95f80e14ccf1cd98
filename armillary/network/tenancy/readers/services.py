"""Services of cards as the vendor's tool reads them (YAML): limits, VNIs, members and traffic classes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line
from armillary.files import read_text

from ..device.cxi import TOTAL, Limit, Member, ServiceDescription, check_vni

#: Keys by which a document is known as a service.
KEYS = frozenset((
    "resource_limits", "restricted_members", "restricted_vnis", "restricted_tcs", "exclusive_cp", "limits", "vnis", "members", "tcs",
))  # fmt: skip
_VNI = re.compile(r"^\s+vni\s*:\s*(\S+)\s*(?:#.*)?$", re.MULTILINE)
_CLASS = re.compile(r"^\s+tc\s*:\s*\"?([A-Z_ ]+?)\"?\s*(?:#.*)?$", re.MULTILINE)
MOST_BYTES, MOST_VALUES = 1 << 20, 20_000


def read_service(path: Path) -> ServiceDescription:
    """The service in a file."""
    return parse_service(read_text(path, limit=MOST_BYTES), str(path))


def parse_service(text: str, where: str) -> ServiceDescription:
    """The service in a text, checked as the driver would."""
    from ..kubernetes.objects import parse_documents

    documents = [one for one in parse_documents(text, where) if one is not None]
    if len(documents) != 1 or not is_service(documents[0]):
        raise InputError("found no service of a card; expected one, with members, vnis or limits", where=where)
    return service_of(documents[0], text, where)


def is_service(document: object) -> bool:
    """Whether a YAML document is a service of a card."""
    return isinstance(document, dict) and bool(document) and set(document) <= KEYS


def service_of(document: Mapping[str, Any], text: str, where: str) -> ServiceDescription:
    """The service in a document; `text` is what it was read from, because the tool takes the keys `vni` and `tc` several times."""
    try:
        return _service(document, text, where)
    except InputError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError) as problem:
        raise InputError(f"found a service that cannot be read ({one_line(str(problem), 60)})", where=where) from None


def _service(document: Mapping[str, Any], text: str, where: str) -> ServiceDescription:
    members: tuple[Member, ...] = ()
    if _flag(document, "restricted_members", where):
        members = tuple(Member(str(one["type"]), _whole(one["id"], f"{where}: members")) for one in document.get("members") or [])  # type: ignore[arg-type]
        if not members:
            raise InputError("found restricted_members without members", where=where)
    vnis: tuple[int, ...] = ()
    listed = document.get("vnis")
    if isinstance(listed, dict) and "vni_min" in listed:
        low, high = (check_vni(listed.get(name), f"{where}: {name}") for name in ("vni_min", "vni_max"))
        size = high - low + 1
        if size < 1 or size & (size - 1) or low % size:
            raise InputError(f"found the VNIs {low} to {high}; expected a power of two of them from a multiple of it", where=where)
        vnis = tuple(range(low, low + min(size, 4)))
    elif listed is not None:
        found = _VNI.findall(text)
        vnis = tuple(check_vni(int(vni) if vni.isdigit() and len(vni) < 9 else vni, f"{where}: vnis") for vni in found)
    limits = None
    if _flag(document, "resource_limits", where):
        limits = {name: Limit(0) for name in TOTAL}
        for one in document.get("limits") or []:
            name = str(one["name"]).lower()
            if name not in TOTAL:
                raise InputError(f'found the resource "{one_line(name, 30)}"; expected one of {", ".join(TOTAL)}', where=where)
            limits[name] = Limit(_whole(one["max"], where), _whole(one["res"], where))
    classes = tuple(name.replace(" ", "_") for name in _CLASS.findall(text)) if _flag(document, "restricted_tcs", where) else ()
    what = ServiceDescription(members, vnis, classes, limits)
    try:
        what.check()
    except InputError as problem:
        raise InputError(problem.message, where=where) from None
    return what


def _flag(document: Mapping[str, Any], name: str, where: str) -> bool:
    found = document.get(name, 0)
    if found not in (0, 1):
        raise InputError(f"{name}: found {one_line(repr(found), 30)}; expected 0 or 1", where=where)
    return bool(found)


def _whole(found: object, where: str) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 1 << 32:
        raise InputError(f"found {one_line(repr(found), 30)}; expected a whole number", where=where)
    return found
