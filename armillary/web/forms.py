"""What an arena's form says, as a study that may be asked for: nothing that it names lies outside the uploads and `--root`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.datastructures import FormData, UploadFile

from armillary import catalogue, cluster
from armillary.errors import InputError
from armillary.web.asked import HERE, Asked

if TYPE_CHECKING:
    from armillary.web.application import Explorer


async def asked_of(form: FormData, facts: Mapping[str, Any], explorer: Explorer) -> Asked:
    """The study that a filled form of an arena asks for; uploads are stored."""
    if "asked" in form:
        return permitted(Asked.from_json(_word(form, "asked")), explorer)
    work = [str(path) for path in await _files(form, "work", explorer)]
    if named := _word(form, "work_path"):
        work.append(str(_under_root(named, explorer)))
    options = {}
    for option in facts["options"]:
        name = option["name"]
        paths = await _files(form, f"optionfile:{name}", explorer)
        value = ",".join(map(str, paths)) if paths else _word(form, f"option:{name}")
        if value and value != _shown(option["default"]):
            options[name] = value
    settings: dict[str, dict[str, str]] = {}
    for technique in facts["techniques"]:
        for parameter in technique["parameters"]:
            value = _word(form, f"set:{technique['name']}:{parameter['name']}")
            if value and value != _shown(parameter["default"]):
                settings.setdefault(technique["name"], {})[parameter["name"]] = value
    techniques, cases = _words(form, "technique"), _words(form, "case")
    chosen = {name: values for name, values in settings.items() if not techniques or name in techniques}
    found = Asked(
        facts["arena"], techniques if len(techniques) < len(facts["techniques"]) else (), () if work else cases, chosen,
        _word(form, "scale") or "small", _word(form, "cluster_text").replace("\r\n", "\n").strip() or _word(form, "cluster"),
        _whole(form, "repeats"), _whole(form, "seed") or 0, tuple(work), options if work else {},
    )  # fmt: skip
    return permitted(found, explorer)


def permitted(asked: Asked, explorer: Explorer) -> Asked:
    """The same, if it may be asked: files are uploads or lie under the root, and a cluster is a preset or a text that names no file."""
    arena = catalogue.arena(asked.arena)
    named = [*asked.work]
    known = arena.options()
    for name, value in asked.options.items():
        facts = known.get(name.replace("-", "_"))
        if facts is not None and facts.file and value:
            named += [one for one in value.split(",") if "/" in one or Path(one).exists()]
    for one in named:
        if not explorer.uploads.holds(Path(one)):
            _under_root(one, explorer)
    if asked.cluster and asked.cluster != HERE:
        if "\n" in asked.cluster or "=" in asked.cluster:
            cluster.loads(asked.cluster, files=False)
        elif asked.cluster not in cluster.presets():
            raise InputError("expected the name of a preset, or a cluster file's text", where=f"cluster {asked.cluster[:60]}")
    return asked


def _under_root(named: str, explorer: Explorer) -> Path:
    """A file or folder under the root that the server was started with."""
    if explorer.root is None:
        raise InputError("expected an upload, because the server was started without --root", where=named[:100])
    path = (explorer.root / named).resolve()
    if not path.is_relative_to(explorer.root) or not path.exists():
        raise InputError("expected a file under the folder that the server was started with", where=named[:100])
    return path


async def _files(form: FormData, name: str, explorer: Explorer) -> list[Path]:
    given = [one for one in form.getlist(name) if isinstance(one, UploadFile) and one.filename]
    return [await explorer.uploads.keep(one, explorer.uploads_in_use()) for one in given]


def _word(form: FormData, name: str) -> str:
    found = form.get(name, "")
    return found.strip() if isinstance(found, str) else ""


def _words(form: FormData, name: str) -> tuple[str, ...]:
    return tuple(one for one in form.getlist(name) if isinstance(one, str) and one)


def _whole(form: FormData, name: str) -> int | None:
    text = _word(form, name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InputError(f'found "{text[:40]}"; expected a whole number', where=name)
    return int(text)


def _shown(value: Any) -> str:
    """A default as the form shows it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(_shown, value))
    return "" if value is None else str(value)
