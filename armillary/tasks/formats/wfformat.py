"""Reads WfCommons WfFormat JSON, which records workflows as they ran, in versions 1.3 and 1.4 (`workflow.tasks`), and 1.5 and 1.6
(`workflow.specification.tasks`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from armillary.errors import InputError, unknown
from armillary.files import read_json
from armillary.tasks.formats.listing import MOST_FILE_BYTES, MOST_TASKS, Entry, graph_of, number, size
from armillary.tasks.graph import Graph

VERSIONS = ("1.3", "1.4", "1.5", "1.6")
#: What `type` says of most tasks, which tells nothing about their program.
PLAIN_TYPES = ("compute", "auxiliary", "transfer")


def from_wfformat(path: str | Path, *, max_tasks: int = MOST_TASKS) -> Graph:
    """The graph of a WfFormat file: costs are `runtimeInSeconds`, cores are `coreCount`, and data are the files with their sizes.

    The `kind` of a task is its `command.program`, or in older versions its `category`, or its `type` if that is not a general one.
    """
    where = str(path)
    document = read_json(path, limit=MOST_FILE_BYTES)
    version = str(_get(document, "schemaVersion", str, where))
    if version not in VERSIONS:
        raise unknown("schema version", version, VERSIONS, where=where)
    workflow = _get(document, "workflow", dict, where)
    if version in ("1.5", "1.6"):
        return graph_of(_newer(workflow, where), str(document.get("name", "workflow")), max_tasks)
    return graph_of(_older(workflow, where), str(document.get("name", "workflow")), max_tasks)


def _get(table: Any, key: str, kind: type, where: str, default: Any = None) -> Any:
    if not isinstance(table, dict):
        raise InputError(f"found {type(table).__name__}; expected an object", where=where)
    if key not in table:
        if default is not None:
            return default
        raise InputError(f'"{key}" is missing', where=where)
    if not isinstance(table[key], kind):
        raise InputError(f"{key}: found {type(table[key]).__name__}; expected {kind.__name__}", where=where)
    return table[key]


def _texts(table: Any, key: str, where: str) -> list[str]:
    found = _get(table, key, list, where, [])
    if not all(isinstance(item, str) for item in found):
        raise InputError(f"{key}: expected a list of texts", where=where)
    return list(found)


def _newer(workflow: Any, where: str) -> list[Entry]:
    specification = _get(workflow, "specification", dict, f"{where}: workflow")
    sizes = {}
    for i, file in enumerate(_get(specification, "files", list, where, [])):
        at = f"{where}: workflow.specification.files[{i}]"
        sizes[_get(file, "id", str, at)] = size(_get(file, "sizeInBytes", object, at), f"{at}.sizeInBytes")
    ran = {}
    for i, task in enumerate(_get(_get(workflow, "execution", dict, where, {"tasks": []}), "tasks", list, where, [])):
        ran[_get(task, "id", str, f"{where}: workflow.execution.tasks[{i}]")] = (i, task)
    entries = []
    children: dict[str, list[str]] = {}
    for i, task in enumerate(_get(specification, "tasks", list, where)):
        at = f"{where}: workflow.specification.tasks[{i}]"
        entry = Entry(_get(task, "id", str, at), _get(task, "name", str, at), at, _texts(task, "parents", at))
        children[entry.key] = _texts(task, "children", at)
        for key, kept in (("inputFiles", entry.reads), ("outputFiles", entry.writes)):
            for file in _texts(task, key, at):
                if file not in sizes:
                    raise unknown("file", file, sizes, where=f"{at}.{key}")
                kept.append((file, sizes[file]))
        if entry.key in ran:
            j, execution = ran[entry.key]
            _timed(entry, execution, f"{where}: workflow.execution.tasks[{j}]")
        entries.append(entry)
    return _with_children(entries, children)


def _with_children(entries: list[Entry], children: dict[str, list[str]]) -> list[Entry]:
    """Adds edges that are stated only at the parent, because an edge may be stated at either end or at both."""
    by_key = {entry.key: entry for entry in entries}
    if len(by_key) < len(entries):
        return entries  # the code that makes the graph refuses it with its own message
    for entry in entries:
        for child in children[entry.key]:
            if child not in by_key:
                raise unknown("child", child, by_key, where=entry.where)
            by_key[child].before.append(entry.key)
    return entries


def _older(workflow: Any, where: str) -> list[Entry]:
    entries = []
    children: dict[str, list[str]] = {}
    for i, task in enumerate(_get(workflow, "tasks", list, f"{where}: workflow")):
        at = f"{where}: workflow.tasks[{i}]"
        key = task.get("id") if isinstance(task, dict) and isinstance(task.get("id"), str) else _get(task, "name", str, at)
        entry = Entry(str(key), _get(task, "name", str, at), at, _texts(task, "parents", at))
        for j, file in enumerate(_get(task, "files", list, at, [])):
            spot = f"{at}.files[{j}]"
            nbytes = size(file.get("sizeInBytes", file.get("size", 0)) if isinstance(file, dict) else None, f"{spot}.size")
            link = _get(file, "link", str, spot)
            if link not in ("input", "output"):
                raise unknown("link", link, ("input", "output"), where=spot)
            (entry.reads if link == "input" else entry.writes).append((str(file.get("id") or _get(file, "name", str, spot)), nbytes))
        _timed(entry, task, at)
        children[entry.key] = _texts(task, "children", at)
        entries.append(entry)
    # Parents and children may be given by name even if tasks have ids.
    ids = {entry.key for entry in entries}
    by_name = {entry.name: entry.key for entry in entries}
    for entry in entries:
        for relatives in (entry.before, children[entry.key]):
            relatives[:] = [other if other in ids else by_name.get(other, other) for other in relatives]
    return _with_children(entries, children)


def _timed(entry: Entry, table: Any, at: str) -> None:
    entry.seconds = number(table.get("runtimeInSeconds", table.get("runtime", 0.0)), f"{at}.runtimeInSeconds")
    entry.kind = _kind(table, at)
    entry.cores = max(1, int(number(table.get("coreCount", table.get("cores", 1)) or 1, f"{at}.coreCount", 1e6)))


def _kind(table: Any, at: str) -> str:
    command = table.get("command")
    program = _get(command, "program", object, f"{at}.command", "") if command is not None else ""
    for key, found in (("command.program", program), ("category", table.get("category")), ("type", table.get("type"))):
        if found is not None and not isinstance(found, str):
            raise InputError(f"{key}: found {type(found).__name__}; expected str", where=at)
        if found and not (key == "type" and found in PLAIN_TYPES):
            return found
    return ""
