"""Pods and nodes as the Kubernetes API writes them in JSON, reduced to what a scheduling technique asks about them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from armillary.errors import InputError, one_line

_QUANTITY = re.compile(r"([+-]?(?:\d{1,30}\.?\d{0,30}|\.\d{1,30}))(?:([eE][+-]?\d{1,3})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?)")
_SUFFIX = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    **{f"{prefix}i": 1024.0 ** (power + 1) for power, prefix in enumerate("KMGTPE")},
}  # fmt: skip


def quantity(text: object, where: str = "quantity") -> float:
    """The value of a Kubernetes quantity such as 500m, 2, 1.5Gi or 1e3, in cores or bytes."""
    if isinstance(text, int | float) and not isinstance(text, bool) and math.isfinite(text) and 0 <= text <= 1e24:
        return float(text)
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) and len(text) <= 64 else None
    value = float(match[1] + (match[2] or "")) * _SUFFIX.get(match[3] or "", 1.0) if match else -1.0
    if not 0 <= value <= 1e24:
        raise InputError(f"found {one_line(repr(text), 40)}; expected a quantity such as 500m or 1.5Gi", where=where)
    return value


@dataclass(frozen=True)
class Pod:
    """A pod that waits for a node. `cpu` is its request in cores and `memory` in bytes, as the scheduler counts them."""

    name: str
    namespace: str = "default"
    uid: str = ""
    cpu: float = 0.0
    memory: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    #: The whole object, as it was sent.
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(document: object, where: str = "Pod") -> Pod:
        """The pod in a JSON object; raises InputError if it is none."""
        body = _object(document, where)
        meta, spec = _object(body.get("metadata", {}), f"{where}.metadata"), _object(body.get("spec", {}), f"{where}.spec")
        return Pod(
            _text(meta.get("name") or meta.get("generateName", ""), f"{where}.metadata.name"),
            _text(meta.get("namespace", "default"), f"{where}.metadata.namespace"),
            _text(meta.get("uid", ""), f"{where}.metadata.uid"),
            _request(spec, "cpu", f"{where}.spec"), _request(spec, "memory", f"{where}.spec"),
            _texts(meta.get("labels"), f"{where}.metadata.labels"), _texts(meta.get("annotations"), f"{where}.metadata.annotations"), body,
        )  # fmt: skip


@dataclass(frozen=True)
class Node:
    """A node that may take a pod. `cpu` is what it can allocate in cores and `memory` in bytes, infinite where that is not known."""

    name: str
    cpu: float = math.inf
    memory: float = math.inf
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    #: Whether more than the name is known.
    known: bool = False
    #: `resourceVersion`, which changes with every change of the object.
    version: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(document: object, where: str = "Node") -> Node:
        """The node in a JSON object; raises InputError if it is none."""
        body = _object(document.whole(where) if isinstance(document, UnreadNode) else document, where)
        meta, status = _object(body.get("metadata", {}), f"{where}.metadata"), _object(body.get("status", {}), f"{where}.status")
        name = _text(meta.get("name", ""), f"{where}.metadata.name")
        if not name:
            raise InputError("found no name; expected a text", where=f"{where}.metadata.name")
        can = _object(status.get("allocatable", status.get("capacity", {})), f"{where}.status.allocatable")
        at = f"{where}.status.allocatable"
        cpu, memory = (quantity(can[what], f"{at}.{what}") if what in can else math.inf for what in ("cpu", "memory"))
        return Node(
            name, cpu, memory, _texts(meta.get("labels"), f"{where}.metadata.labels"),
            _texts(meta.get("annotations"), f"{where}.metadata.annotations"), True, str(meta.get("resourceVersion", "")), body,
        )  # fmt: skip


class UnreadNode:
    """A Node object that was sent and is read only if somebody asks for it."""

    __slots__ = ()

    def head(self, where: str) -> tuple[str, str]:
        """Its name, and its version, which changes with every change of the object."""
        raise NotImplementedError

    def whole(self, where: str) -> Any:
        """The JSON object."""
        raise NotImplementedError


def head(sent: object, where: str = "Node") -> tuple[str, str]:
    """The name and the version of a Node object, empty where it has none."""
    if isinstance(sent, UnreadNode):
        return sent.head(where)
    meta = _object(_object(sent, where).get("metadata", {}), f"{where}.metadata")
    return _text(meta.get("name", ""), f"{where}.metadata.name"), str(meta.get("resourceVersion", ""))


def _request(spec: Mapping[str, Any], what: str, where: str) -> float:
    """What the scheduler reserves: the containers together with the sidecars, or the largest step of initialisation, plus the overhead."""

    def asked(container: object, at: str) -> float:
        resources = _object(_object(container, at).get("resources", {}), f"{at}.resources")
        requests = _object(resources.get("requests", {}), f"{at}.resources.requests")
        limits = _object(resources.get("limits", {}), f"{at}.resources.limits")
        found = requests.get(what, limits.get(what, 0))  # a limit without a request is also the request
        return quantity(found, f"{at}.resources.requests.{what}")

    running = sum(asked(one, f"{where}.containers[{i}]") for i, one in enumerate(_list(spec.get("containers"), f"{where}.containers")))
    sidecars, largest = 0.0, 0.0
    for i, one in enumerate(_list(spec.get("initContainers"), f"{where}.initContainers")):
        need = asked(one, f"{where}.initContainers[{i}]")
        if _object(one, f"{where}.initContainers[{i}]").get("restartPolicy") == "Always":
            sidecars += need
            largest = max(largest, sidecars)
        else:
            largest = max(largest, sidecars + need)
    overhead = _object(spec.get("overhead", {}), f"{where}.overhead")
    return max(running + sidecars, largest) + (quantity(overhead[what], f"{where}.overhead.{what}") if what in overhead else 0.0)


def _object(found: object, where: str) -> Mapping[str, Any]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InputError(f"found {one_line(repr(found), 40)}; expected an object", where=where)
    return found


def _list(found: object, where: str) -> list[Any]:
    if found is None:
        return []
    if not isinstance(found, list):
        raise InputError(f"found {one_line(repr(found), 40)}; expected a list", where=where)
    return found


def _text(found: object, where: str) -> str:
    if not isinstance(found, str):
        raise InputError(f"found {one_line(repr(found), 40)}; expected a text", where=where)
    return found


def _texts(found: object, where: str) -> Mapping[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise InputError(f"found {one_line(repr(found), 40)}; expected texts by name", where=where)
    return found
