"""Reads YAML from strangers, without tags and with bounds on its size and on what its aliases expand to."""

from __future__ import annotations

from typing import Any

from armillary import extras
from armillary.errors import InputError, one_line

#: Bytes of a YAML file, and values that it may hold once its aliases are expanded.
MOST_BYTES = 4 << 20
MOST_VALUES = 100_000


def yaml() -> Any:
    """Imports PyYAML when it is needed."""
    return extras.need("yaml")


def load_all(text: str, where: str) -> list[Any]:
    """Returns the documents of a YAML text as plain data."""
    if len(text) > MOST_BYTES:
        raise InputError(f"{len(text):,} characters of YAML; expected at most {MOST_BYTES:,}", where=where)
    library = yaml()
    loader = getattr(library, "CSafeLoader", library.SafeLoader)
    out = []
    try:
        for node in library.compose_all(text, Loader=loader):
            _expanded(node, {}, set(), where)
            out.append(None if node is None else library.SafeLoader("").construct_document(node))
    except library.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        at = f"{where}:{mark.line + 1}" if mark is not None else where
        raise InputError(f"not YAML: {one_line(str(getattr(problem, 'problem', None) or problem), 120)}", where=at) from None
    except (RecursionError, ValueError, TypeError) as problem:
        raise InputError(f"not YAML: {one_line(str(problem), 120)}", where=where) from None
    return out


def _expanded(node: Any, known: dict[int, int], above: set[int], where: str) -> int:
    """Returns the number of values of a node with every alias expanded; refuses too many of them, and a node inside itself."""
    if node is None:
        return 0
    if id(node) in above:
        raise InputError("found an alias inside the node that it refers to", where=f"{where}:{node.start_mark.line + 1}")
    if id(node) in known:
        return known[id(node)]
    if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.endswith((":binary", ":set", ":omap", ":pairs")):
        raise InputError(f"tag {one_line(node.tag, 60)}: expected plain values", where=f"{where}:{node.start_mark.line + 1}")
    total = 1
    if not isinstance(node.value, str):
        above.add(id(node))
        children = [x for pair in node.value for x in pair] if node.id == "mapping" else node.value
        for child in children:
            total += _expanded(child, known, above, where)
            if total > MOST_VALUES:
                raise InputError(f"aliases expand to more than {MOST_VALUES:,} values", where=where)
        above.discard(id(node))
    known[id(node)] = total
    return total
