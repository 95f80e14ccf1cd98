"""YAML from strangers, without tags, with bounds on its size and on what its aliases expand to."""

from __future__ import annotations

from typing import Any

from armillary import extras
from armillary.errors import InputError, one_line

from .documents import DEPTH
from .opening import Name, read_text

#: Bytes of a YAML file, and values that it may hold once its aliases are expanded.
YAML_BYTES = 1 << 24
YAML_VALUES = 2_000_000


def read_yaml(path: Name, *, limit: int = YAML_BYTES, most: int = YAML_VALUES) -> list[Any]:
    """The documents of a YAML file of at most `limit` bytes as plain data; tags beyond those of plain values are refused."""
    return parse_yaml(read_text(path, limit=limit), str(path), limit=limit, most=most)


def parse_yaml(text: str, where: str, *, limit: int = YAML_BYTES, most: int = YAML_VALUES) -> list[Any]:
    """The documents of a YAML text of at most `limit` characters that is already there; `where` names it in errors."""
    if len(text) > limit:
        raise InputError(f"found {len(text):,} characters of YAML; expected at most {limit:,}", where=where)
    library = extras.need("yaml")
    loader = getattr(library, "CSafeLoader", library.SafeLoader)
    found = []
    try:
        for node in library.compose_all(text, Loader=loader):
            _values(node, {}, set(), most, where)
            found.append(None if node is None else library.SafeLoader("").construct_document(node))
    except library.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        at = f"{where}:{mark.line + 1}" if mark is not None else where
        raise InputError(f"not YAML: {one_line(str(getattr(problem, 'problem', None) or problem), 120)}", where=at) from None
    except (RecursionError, ValueError, TypeError, OverflowError) as problem:
        raise InputError(f"not YAML: {one_line(str(problem), 120)}", where=where) from None
    return found


def _values(node: Any, known: dict[int, int], above: set[int], most: int, where: str) -> int:
    """The number of values of a node with every alias expanded; refuses too many of them, and a node inside itself."""
    if node is None:
        return 0
    at = f"{where}:{node.start_mark.line + 1}"
    if id(node) in above:
        raise InputError("found an alias inside the node that it refers to", where=at)
    if len(above) > DEPTH:
        raise InputError(f"found YAML nested more than {DEPTH} levels deep; expected at most {DEPTH}", where=at)
    if id(node) in known:
        return known[id(node)]
    if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.endswith((":binary", ":set", ":omap", ":pairs")):
        raise InputError(f"found the tag {one_line(node.tag, 60)}; expected plain values", where=at)
    total = 1
    if not isinstance(node.value, str):
        above.add(id(node))
        children = [x for pair in node.value for x in pair] if node.id == "mapping" else node.value
        for child in children:
            total += _values(child, known, above, most, where)
            if total > most:
                raise InputError(f"found more than {most:,} values, aliases expanded; expected at most as many", where=where)
        above.discard(id(node))
    known[id(node)] = total
    return total
