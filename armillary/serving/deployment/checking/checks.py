"""Are the rendered files sound? Named checks cover schemas, shell syntax, and what must agree between files."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line, unknown
from armillary.extras import MissingPackage

from ..description.service import looks_secret
from ..description.yaml_files import load_all
from ..rendering import template
from ..rendering.shell import untouched
from ..rendering.targets import TARGETS

#: The Kubernetes releases whose schemas every manifest must pass.
RELEASES = ("1.27", "1.31", "1.34")


@dataclass(frozen=True)
class Checked:
    """One check on one file, or on all files together. `passed` is None if the check was not made, and `said` gives the reason."""

    what: str
    where: str
    passed: bool | None
    said: str = ""


def check(files: Mapping[str, str], target: str, *, rendered: bool = True) -> list[Checked]:
    """Makes every check that applies to a target's files; `rendered=False` is for files that a person wrote."""
    if target not in TARGETS:
        raise unknown("target", target, TARGETS)
    out = []
    for name, text in files.items():
        if rendered:
            whole = untouched(text) is True
            out.append(Checked("as rendered", name, whole, "" if whole else "edited, or not rendered by armillary"))
        out.append(no_secret(name, text))
        if name.endswith(".sh"):
            out += _shell(name, text)
    if not files:
        out.append(Checked("as rendered", target, False, "no file"))
    if target in ("kubernetes", "helm"):
        out += _kubernetes(files, target)
    elif target == "compose":
        out += _compose(files)
    elif rendered:
        missing = {"job.sh", "node.sh", "env.sh"} - set(files)
        out.append(Checked("complete", target, not missing, f"missing: {', '.join(sorted(missing))}" if missing else ""))
    return out


def check_folder(folder: Path) -> dict[str, list[Checked]]:
    """Checks every target's folder inside `folder`, or `folder` itself if it has the name of a target."""
    if not folder.is_dir():
        raise InputError("no such folder", where=str(folder))
    found = [folder] if folder.name in TARGETS else sorted(p for p in folder.iterdir() if p.is_dir() and p.name in TARGETS)
    if not found:
        raise InputError(f"found no folder of a target in it; expected one of {', '.join(TARGETS)}", where=str(folder))
    out = {}
    for place in found:
        files = {}
        for path in sorted(p for p in place.rglob("*") if p.is_file() and p.suffix in (".yaml", ".json", ".sh")):
            if path.name.startswith("endpoint."):
                continue
            try:
                if path.stat().st_size > 8 << 20:
                    raise InputError("more than 8 MiB; expected a rendered file", where=str(path))
                files[path.relative_to(place).as_posix()] = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as problem:
                raise InputError(one_line(str(problem), 120), where=str(path)) from None
        out[place.name] = check(files, place.name)
    return out


def share(checks: list[Checked]) -> float:
    """Returns the share of passed checks among those that were made."""
    made = [c for c in checks if c.passed is not None]
    return sum(bool(c.passed) for c in made) / len(made) if made else 0.0


def no_secret(name: str, text: str) -> Checked:
    """Checks that no secret of the environment and no word that looks like one is in the text, apart from the renderer's hashes."""
    for variable, value in os.environ.items():
        if len(value) >= 8 and re.search(r"TOKEN|SECRET|PASSWORD|API_?KEY", variable) and value in text:
            return Checked("no secret", name, False, f"holds the value of ${variable}")
    plain = re.sub(r"sha256:[0-9a-f]{64}", "", text)
    for word in re.findall(r"[A-Za-z0-9+/_-]{20,}", plain):
        if looks_secret(word):
            return Checked("no secret", name, False, f"looks like a secret: {word[:4]}…")
    return Checked("no secret", name, True)


def _shell(name: str, text: str) -> list[Checked]:
    out = [Checked("bash -n", name, *_said(text, "bash", "-n"))]
    program = shellcheck()
    if program is None:
        return [*out, Checked("shellcheck", name, None, "shellcheck is not installed")]
    return [*out, Checked("shellcheck", name, *_said(text, program, "--severity=warning", "--format=gcc", "-"))]


@functools.lru_cache(maxsize=256)
def _said(text: str, *command: str) -> tuple[bool, str]:
    """Returns whether a program accepts a script, and what it says about it; equal scripts are checked once."""
    run = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    return run.returncode == 0, one_line(run.stdout, 160)


@functools.cache
def shellcheck() -> str | None:
    """Returns the path of shellcheck, if it is here."""
    beside = Path(sys.executable).with_name("shellcheck")
    return str(beside) if beside.exists() else shutil.which("shellcheck")


def manifests(files: Mapping[str, str], target: str) -> dict[str, dict[str, Any]]:
    """Returns the Kubernetes objects in a target's files; charts are rendered with their values."""
    if target == "kubernetes":
        return {name: _one(text, name) for name, text in files.items() if name.endswith(".yaml")}
    values = _one(files.get("values.yaml", "{}"), "values.yaml")
    out = {}
    for name, text in files.items():
        if name.startswith("templates/"):
            shown = template.render(text, values)
            if _is_something(shown):
                out[name] = _one(shown, name)
    return out


def _is_something(text: str) -> bool:
    return any(line.strip() and not line.startswith("#") for line in text.splitlines())


def _one(text: str, where: str) -> dict[str, Any]:
    found = load_all(text, where)
    if len(found) != 1 or not isinstance(found[0], dict):
        raise InputError("expected one object", where=where)
    return found[0]


def _kubernetes(files: Mapping[str, str], target: str) -> Iterator[Checked]:
    try:
        things = manifests(files, target)
    except MissingPackage:
        raise
    except InputError as problem:
        yield Checked("YAML", target, False, str(problem))
        return
    try:
        import kubernetes_validate  # type: ignore[import-untyped]
    except ImportError:
        kubernetes_validate = None
        yield Checked("Kubernetes schema", target, None, "kubernetes-validate is not installed")
    for name, thing in things.items():
        for release in RELEASES if kubernetes_validate is not None else ():
            try:
                kubernetes_validate.validate(thing, release, strict=True)
                yield Checked(f"Kubernetes {release}", name, True)
            except Exception as problem:  # the package raises several kinds, and passes on those of jsonschema
                yield Checked(f"Kubernetes {release}", name, False, one_line(str(getattr(problem, "message", problem)), 160))
    yield from _agree(list(things.values()), target)
    if target == "helm":
        yield from _chart(files)


def _agree(things: list[dict[str, Any]], target: str) -> Iterator[Checked]:
    """Checks what must be the same in several places: selectors and labels, ports, names of claims and maps."""
    pods: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    try:
        for thing in things:
            if thing["kind"] in ("Deployment", "StatefulSet"):
                wanted, pod = thing["spec"]["selector"]["matchLabels"], thing["spec"]["template"]
                tags = pod["metadata"]["labels"]
                pods.append((thing["metadata"]["name"], tags, pod["spec"]))
                yield Checked("selector = labels", thing["metadata"]["name"], wanted.items() <= tags.items())
        names = {(thing["kind"], thing["metadata"]["name"]) for thing in things}
        for thing in things:
            if thing["kind"] == "Service" and thing["spec"].get("clusterIP") != "None":
                behind = [spec for _, tags, spec in pods if thing["spec"]["selector"].items() <= tags.items()]
                open_ = {p["containerPort"] for spec in behind for c in spec["containers"] for p in c.get("ports", [])}
                asked = {p["targetPort"] for p in thing["spec"]["ports"]}
                yield Checked("targetPort = containerPort", thing["metadata"]["name"], bool(behind) and asked <= open_)
        for name, _, spec in pods:
            for container in spec["containers"]:
                yield from _container_agrees(name, container)
            for volume in spec.get("volumes", []):
                kind, key = ("ConfigMap", "name") if "configMap" in volume else ("PersistentVolumeClaim", "claimName")
                source = volume.get("configMap") or volume.get("persistentVolumeClaim")
                if source is not None:
                    yield Checked("volume exists", f"{name}: {volume['name']}", (kind, source[key]) in names)
    except (KeyError, TypeError, AttributeError) as problem:
        yield Checked("objects agree", target, False, f"{type(problem).__name__}: {one_line(str(problem), 80)}")


def _container_agrees(name: str, container: dict[str, Any]) -> Iterator[Checked]:
    ports = {p["containerPort"] for p in container.get("ports", [])}
    asked = {
        container[p]["httpGet"]["port"] for p in ("startupProbe", "readinessProbe", "livenessProbe") if "httpGet" in container.get(p, {})
    }
    if asked:
        said = re.search(r"--port[ =]'?\"?(\d+)", " ".join(map(str, [*container.get("command", []), *container.get("args", [])])))
        engine = {int(said[1])} if said else ports
        yield Checked("probes = containerPort = --port", name, asked == ports == engine)


def _chart(files: Mapping[str, str]) -> Iterator[Checked]:
    try:
        import jsonschema  # type: ignore[import-untyped]
    except ImportError:
        yield Checked("values schema", "values.yaml", None, "jsonschema is not installed")
        return
    try:
        schema, values = json.loads(files["values.schema.json"]), _one(files["values.yaml"], "values.yaml")
        jsonschema.Draft7Validator.check_schema(schema)
        jsonschema.Draft7Validator(schema).validate(values)
        yield Checked("values schema", "values.yaml", True)
    except (KeyError, ValueError, InputError, jsonschema.ValidationError, jsonschema.SchemaError) as problem:
        yield Checked("values schema", "values.yaml", False, one_line(str(getattr(problem, "message", problem)), 160))
    chart = _one(files.get("Chart.yaml", "{}"), "Chart.yaml")
    yield Checked("chart", "Chart.yaml", {"apiVersion", "name", "version"} <= set(chart))


def _compose(files: Mapping[str, str]) -> Iterator[Checked]:
    name = "compose.yaml"
    try:
        content = _one(files.get(name, ""), name)
    except MissingPackage:
        raise
    except InputError as problem:
        yield Checked("YAML", name, False, str(problem))
        return
    try:
        import jsonschema

        found = sorted(jsonschema.Draft7Validator(COMPOSE).iter_errors(content), key=str)
        yield Checked("Compose schema", name, not found, one_line(found[0].message, 160) if found else "")
        if found:
            return
    except ImportError:
        yield Checked("Compose schema", name, None, "jsonschema is not installed")
    services = content.get("services", {})
    for service, one in services.items():
        for other in one.get("depends_on", {}):
            yield Checked("depends_on exists", service, other in services)
        for volume in one.get("volumes", []):
            if volume.get("type") == "volume":
                yield Checked("volume exists", service, volume["source"] in content.get("volumes", {}))
        test = " ".join(one.get("healthcheck", {}).get("test", []))
        said = re.search(r"--port \$*\"?'?(\d+)", " ".join(one.get("command", [])))
        if test and said:
            yield Checked("health check = --port", service, f":{said[1]}/" in test)


_TEXTS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
#: The part of the Compose Specification that rendered files may use; any other key is a fault.
COMPOSE: dict[str, Any] = {
    "type": "object", "additionalProperties": False, "required": ["name", "services"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "volumes": {"type": "object", "additionalProperties": {"type": "object", "maxProperties": 0}},
        "services": {"type": "object", "minProperties": 1, "additionalProperties": {
            "type": "object", "additionalProperties": False, "required": ["image"],
            "properties": {
                "image": {"type": "string"}, "entrypoint": _TEXTS, "command": _TEXTS,
                "restart": {"enum": ["no", "always", "on-failure", "unless-stopped"]},
                "environment": {"type": "object", "additionalProperties": {"type": "string"}}, "init": {"type": "boolean"},
                "stop_grace_period": {"type": "string", "pattern": "^[0-9]+s$"}, "security_opt": _TEXTS, "cap_drop": _TEXTS,
                "ports": {"type": "array", "items": {"type": "string", "pattern": r"^((\d{1,3}\.){3}\d{1,3}:)?(\d+:)?\d+$"}},
                "shm_size": {"type": "string", "pattern": "^[0-9]+(b|k|m|g|kb|mb|gb)$"}, "ipc": {"enum": ["host"]},
                "user": {"type": "string"},
                "network_mode": {"enum": ["host"]}, "devices": _TEXTS, "group_add": _TEXTS,
                "healthcheck": {"type": "object", "additionalProperties": False, "required": ["test"], "properties": {
                    "test": _TEXTS, "interval": {"type": "string"}, "timeout": {"type": "string"}, "retries": {"type": "integer"},
                    "start_period": {"type": "string"}}},
                "depends_on": {"type": "object", "additionalProperties": {"type": "object", "required": ["condition"], "properties": {
                    "condition": {"enum": ["service_started", "service_healthy", "service_completed_successfully"]}}}},
                "volumes": {"type": "array", "items": {
                    "type": "object", "additionalProperties": False, "required": ["type", "target"], "properties": {
                        "type": {"enum": ["bind", "volume"]}, "source": {"type": "string"}, "target": {"type": "string"},
                        "read_only": {"type": "boolean"}}}},
                "deploy": {"type": "object", "additionalProperties": False, "properties": {
                    "replicas": {"type": "integer", "minimum": 1},
                    "resources": {"type": "object", "additionalProperties": False, "properties": {
                        "limits": {"type": "object", "additionalProperties": False, "properties": {
                            "cpus": {"type": "string"}, "memory": {"type": "string"}}},
                        "reservations": {"type": "object", "additionalProperties": False, "properties": {"devices": {
                            "type": "array", "items": {"type": "object", "additionalProperties": False, "required": ["capabilities"],
                            "properties": {
                                "driver": {"type": "string"}, "count": {"type": "integer"}, "capabilities": _TEXTS}}}}}}}}},
            }}},
    },
}  # fmt: skip
