"""Kubernetes objects in YAML files, as far as VNIs are concerned: who wants one, who gets the card, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary import extras
from armillary.errors import InputError, one_line
from armillary.files import parse_yaml, read_text

#: Bytes, aliases and values (aliases expanded) of one file, and objects in it.
MOST_BYTES, MOST_ALIASES, MOST_VALUES, MOST_OBJECTS = 1 << 20, 1_000, 200_000, 20_000


@dataclass(frozen=True)
class Manifest:
    """One object, and the file that it came from."""

    body: Mapping[str, Any]
    where: str

    @property
    def kind(self) -> str:
        """Its kind, such as Job."""
        return text(self.body, "kind")

    @property
    def version(self) -> str:
        """Its API version."""
        return text(self.body, "apiVersion")

    @property
    def name(self) -> str:
        """Its name, or the one that is generated."""
        return text(self.meta, "name") or text(self.meta, "generateName") + "…"

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return text(self.meta, "namespace") or "default"

    @property
    def meta(self) -> Mapping[str, Any]:
        """Its metadata."""
        return part(self.body, "metadata")

    @property
    def annotation(self) -> str | None:
        """The annotation `vni` as it is written."""
        found = part(self.meta, "annotations").get("vni")
        return None if found is None else str(found)

    @property
    def pods(self) -> list[Mapping[str, Any]]:
        """The specifications of its pods."""
        spec = part(self.body, "spec")
        if self.kind == "Pod":
            return [spec]
        if self.kind == "CronJob":
            spec = part(part(spec, "jobTemplate"), "spec")
        templates = [spec.get("template"), *(task.get("template") for task in parts(spec, "tasks"))]
        return [part(one, "spec") for one in templates if isinstance(one, dict)]

    @property
    def count(self) -> int:
        """How many pods it has at once."""
        spec = part(self.body, "spec")
        tasks = parts(spec, "tasks")
        if tasks:
            return sum(whole(task.get("replicas", 1)) for task in tasks)
        for name in ("parallelism", "replicas", "completions"):
            if name in spec:
                return whole(spec[name])
        return 1

    def __str__(self) -> str:
        return one_line(f"{self.kind} {self.namespace}/{self.name}", 120)


def read_manifests(path: Path) -> list[Manifest]:
    """The objects of a YAML file; lists of objects are taken apart."""
    return parse_manifests(read_text(path, limit=MOST_BYTES), str(path))


def parse_manifests(content: str, where: str) -> list[Manifest]:
    """The objects of a YAML text."""
    found: list[Manifest] = []
    for document in parse_documents(content, where):
        for one in _taken_apart(document, where):
            if len(found) == MOST_OBJECTS:
                raise InputError(f"found more than {MOST_OBJECTS:,} objects; expected at most as many", where=where)
            found.append(Manifest(one, where))
    return found


def parse_documents(content: str, where: str) -> list[Any]:
    """The YAML documents of a text, within the limits on bytes, values and aliases."""
    if len(content.encode("utf-8", "replace")) > MOST_BYTES:
        raise InputError(f"found more than {MOST_BYTES:,} bytes; expected at most as many", where=where)
    documents = parse_yaml(content, where, limit=MOST_BYTES, most=MOST_VALUES)
    library = extras.need("yaml")
    loader = getattr(library, "CSafeLoader", library.SafeLoader)
    aliases = sum(1 for event in library.parse(content, Loader=loader) if isinstance(event, library.AliasEvent))
    if aliases > MOST_ALIASES:
        raise InputError(f"found {aliases:,} aliases; expected at most {MOST_ALIASES:,}", where=where)
    return documents


def _taken_apart(document: object, where: str) -> Iterator[Mapping[str, Any]]:
    if document is None:
        return
    if not isinstance(document, dict):
        raise InputError(f"found {one_line(repr(document), 40)}; expected an object", where=where)
    if str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            if isinstance(item, dict):
                yield item
    else:
        yield document


def part(found: object, name: str) -> Mapping[str, Any]:
    """An object within an object, empty where there is none."""
    inside = found.get(name) if isinstance(found, Mapping) else None
    return inside if isinstance(inside, Mapping) else {}


def parts(found: object, name: str) -> list[Mapping[str, Any]]:
    """The objects of a list within an object."""
    inside = found.get(name) if isinstance(found, Mapping) else None
    return [one for one in inside if isinstance(one, Mapping)] if isinstance(inside, list) else []


def text(found: Mapping[str, Any], name: str) -> str:
    """A text within an object, empty where there is none."""
    inside = found.get(name)
    return inside if isinstance(inside, str) else ""


def whole(found: object) -> int:
    """A count, 1 where it is none."""
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= 100_000 else 1
