"""Reads and writes DOT: `a -> b;` and `a [cost=2, size=100];`. The attributes `cost` or `weight` are seconds, and `size` is the bytes that
a task produces.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from armillary.errors import InputError, one_line
from armillary.files import read_text
from armillary.tasks.formats.listing import MOST_FILE_BYTES, MOST_TASKS, Entry, graph_of, number, size
from armillary.tasks.graph import Graph

_TOKEN = re.compile(r'\s+|//[^\n]*|#[^\n]*|/\*.*?\*/|(?P<word>"(?:[^"\\]|\\.)*"|[\w.+-]*[\w.+]|-(?!>))|(?P<sign>->|[\[\]{};,=])', re.DOTALL)


_SIGNS = ("[", "]", "=", "->", "{", "}", ";", ",")


def _words(text: str, where: str) -> list[tuple[str, int]]:
    words, at, line = [], 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise InputError(f"found {one_line(text[at : at + 20])!r}; expected DOT", where=f"{where}:{line}")
        if match.lastgroup:
            word = match.group()
            words.append((re.sub(r"\\(.)", r"\1", word[1:-1]) if word[0] == '"' else word, line))
        line += match.group().count("\n")
        at = match.end()
    return words


def from_dot(path: str | Path, *, max_tasks: int = MOST_TASKS) -> Graph:
    """The graph of a DOT file (a digraph without subgraphs)."""
    where = str(path)
    words = _words(read_text(path, limit=MOST_FILE_BYTES), where)
    starts = [i for i, (word, _) in enumerate(words) if word == "{"]
    if len(starts) != 1 or words[-1][0] != "}" or "digraph" not in [w for w, _ in words[: starts[0]]]:
        raise InputError("expected one digraph { … } without subgraphs", where=where)
    entries: dict[str, Entry] = {}
    sizes: dict[str, int] = {}
    at, end = starts[0] + 1, len(words) - 1
    while at < end:
        word, line = words[at]
        spot = f"{where}:{line}"
        if word in (";", ","):
            at += 1
            continue
        if word in _SIGNS:
            raise InputError(f"found {word!r}; expected the name of a task", where=spot)
        names = [word]
        at += 1
        while at + 1 < end and words[at][0] == "->":
            if words[at + 1][0] in _SIGNS:
                raise InputError(f"found {words[at + 1][0]!r}; expected the name of a task", where=spot)
            names.append(words[at + 1][0])
            at += 2
        if at < end and words[at][0] == "=":
            at += 2  # an attribute of the graph
            continue
        attributes, at = _attributes(words, at, end, spot)
        if word in ("node", "edge", "graph") and len(names) == 1:
            continue
        for name in names:
            entries.setdefault(name, Entry(name, name, spot))
            if len(entries) > max_tasks:
                raise InputError(f"found more than {max_tasks} tasks", where=spot)
        for a, b in itertools.pairwise(names):
            entries[b].before.append(a)
        if len(names) == 1:
            for key in ("weight", "cost"):
                if key in attributes:
                    entries[word].seconds = number(attributes[key], f"{spot}: {key}")
            entries[word].name = attributes.get("label", entries[word].name)
        if "size" in attributes:
            sizes[names[0]] = size(attributes["size"], f"{spot}: size")
    for name, nbytes in sizes.items():
        entries[name].writes.append((name, nbytes))
    for entry in entries.values():
        entry.reads += [(parent, sizes[parent]) for parent in entry.before if parent in sizes]
    return graph_of(list(entries.values()), Path(path).stem, max_tasks)


def _attributes(words: list[tuple[str, int]], at: int, end: int, spot: str) -> tuple[dict[str, str], int]:
    found: dict[str, str] = {}
    if at >= end or words[at][0] != "[":
        return found, at
    at += 1
    while at < end and words[at][0] != "]":
        if words[at][0] in (",", ";"):
            at += 1
            continue
        if at + 2 >= end or words[at + 1][0] != "=":
            raise InputError(f"found {one_line(words[at][0], 40)!r}; expected attribute=value", where=spot)
        found[words[at][0]] = words[at + 2][0]
        at += 3
    if at >= end:
        raise InputError("the attribute list has no end", where=spot)
    return found, at + 1


def to_dot(graph: Graph) -> str:
    """The graph in the DOT language, with `cost` if it is stated in seconds."""
    lines = ["digraph {"]
    for task in graph.tasks:
        seconds = task.seconds("cpu")
        cost = f", cost={seconds!r}" if seconds is not None else ""
        lines.append(f"  {_quoted(task.key)} [label={_quoted(task.name)}{cost}];")
    lines += [f"  {_quoted(graph.tasks[n].key)} -> {_quoted(task.key)};" for task in graph.tasks for n in task.before]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
