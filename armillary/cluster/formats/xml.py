"""Reads XML from strangers without the features that make XML dangerous.

A DOCTYPE that only names an external DTD is skipped and never fetched, because every file of hwloc and SimGrid begins with one. A DTD
inside the file, entities declared in it and external references are refused, so there is nothing to expand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from armillary.errors import InputError, one_line

MOST_ELEMENTS = 200_000
#: The most elements, including those that are only counted.
MOST_COUNTED = 2_000_000
#: Elements that no reader here uses but that large platforms contain in masses; they are counted and not kept.
COUNTED = frozenset(("link", "route", "link_ctn", "zoneRoute", "ASroute", "bypassRoute", "bypassZoneRoute", "router", "page_type"))
MOST_DEPTH = 200
MOST_ATTRIBUTES = 100


@dataclass
class Element:
    """One element: its name, attributes, children in order, and line."""

    name: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)
    #: The number of elements of each name that were counted and not kept.
    counted: dict[str, int] = field(default_factory=dict)

    def get(self, key: str, default: str = "") -> str:
        """One attribute, or the default."""
        return self.attributes.get(key, default)


def parse(data: bytes, path: Path) -> Element:
    """The root element; anything malformed, dangerous or too large raises an `InputError` that names the line."""
    parser = expat.ParserCreate()
    root: list[Element] = []
    open_elements: list[Element] = []
    count = kept = hidden = 0

    def fail(message: str) -> InputError:
        return InputError(message, where=f"{path}:{parser.CurrentLineNumber}")

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal count, kept, hidden
        count += 1
        if count > MOST_COUNTED:
            raise fail(f"more than {MOST_COUNTED:,} elements")
        if open_elements and (hidden or name in COUNTED):
            if not hidden:
                counted = open_elements[-1].counted
                counted[name] = counted.get(name, 0) + 1
            hidden += 1
            return
        kept += 1
        if kept > MOST_ELEMENTS:
            raise fail(f"more than {MOST_ELEMENTS:,} elements")
        if len(open_elements) >= MOST_DEPTH:
            raise fail(f"elements nest deeper than {MOST_DEPTH}")
        if len(attributes) > MOST_ATTRIBUTES:
            raise fail(f"<{one_line(name, 40)}> has {len(attributes)} attributes; expected at most {MOST_ATTRIBUTES}")
        element = Element(name, attributes, parser.CurrentLineNumber)
        (open_elements[-1].children if open_elements else root).append(element)
        open_elements.append(element)

    def end(_: str) -> None:
        nonlocal hidden
        if hidden:
            hidden -= 1
        else:
            open_elements.pop()

    def doctype(_name: str, _system: str | None, _public: str | None, inside: int) -> None:
        if inside:
            raise fail("a DTD inside the file is refused")

    def entity(*_: object) -> None:
        raise fail("declares an entity; entities are refused")

    def outside(*_: object) -> int:
        raise fail("refers to an outside entity; refused")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = doctype
    parser.EntityDeclHandler = entity
    parser.UnparsedEntityDeclHandler = entity
    parser.ExternalEntityRefHandler = outside
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise InputError(f"not well-formed XML: {expat.ErrorString(error.code)}", where=f"{path}:{error.lineno}") from None
    except (LookupError, ValueError) as error:  # an unknown encoding
        raise InputError(f"not readable XML: {error}", where=str(path)) from None
    return root[0]
