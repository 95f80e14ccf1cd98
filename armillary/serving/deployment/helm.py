"""A Helm chart of the Kubernetes objects, whose values are what a site changes: image, replicas, port, size, exposure. Helm 3 (2019).

Templates keep to a small subset of Helm's language (`template.py`), so that a chart can be checked without Helm. The port is a single
value wherever it is used. The values have a JSON schema, so that Helm refuses a wrong one before anything is installed.
"""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from .description.service import Service
from .kubernetes import Object, dump, objects, plain_environment
from .rendering.shell import seal, stamp
from .rendering.target import Target


@dataclass(frozen=True)
class Helm(Target):
    """`Chart.yaml`, `values.yaml`, `values.schema.json` and `templates/`. Helm 3 (2019)."""

    platform: ClassVar[str] = "helm"

    def render(self, service: Service) -> dict[str, str]:
        """Returns the chart."""
        values = values_of(service)
        chart = {
            "apiVersion": "v2", "name": service.name, "version": "0.1.0", "type": "application", "appVersion": service.digest[:12],
            "description": f"{service.model.id} on {service.engine}",
        }  # fmt: skip
        out = {
            "Chart.yaml": seal(dump(chart), self.platform, service.digest),
            "values.yaml": seal(dump(values), self.platform, service.digest),
        }
        comment = f"Rendered by armillary deploy for helm; description sha256:{service.digest}; contents sha256:{'0' * 64}"
        schema = {"$comment": comment, "$schema": "http://json-schema.org/draft-07/schema#", **_schema(values)}
        out["values.schema.json"] = stamp(json.dumps(schema, indent=1) + "\n")
        for thing in objects(service):
            name = f"templates/{thing['kind'].lower()}-{thing['metadata']['name']}.yaml"
            out[name] = seal(_template(service, thing), self.platform, service.digest)
        return out


def values_of(service: Service) -> dict[str, Any]:
    """Returns the values that a site may change, as the description sets them."""
    out: dict[str, Any] = {"image": service.image, "port": service.network.port, "env": plain_environment(service)}
    engine = next(o for o in objects(service) if o["kind"] in ("Deployment", "StatefulSet"))["spec"]["template"]["spec"]["containers"][0]
    out["resources"] = engine["resources"]
    out["shm"] = f"{service.resources.shm_gib}Gi" if service.resources.shm_gib else ""
    health = service.health
    out["health"] = {"path": health.path, "period": health.period_s, "startFailures": engine["startupProbe"]["failureThreshold"]}
    if service.parallel.nodes == 1:
        out["replicas"] = service.scale.min
    if service.scale.max > 1:
        out["autoscaling"] = {"enabled": True, "min": service.scale.min, "max": service.scale.max}
    if service.network.expose == "ingress":
        out["ingress"] = {"enabled": True, "host": service.network.host}
    for thing in objects(service):
        if thing["kind"] == "PersistentVolumeClaim" and thing["metadata"]["labels"]["app.kubernetes.io/component"] == "models":
            out["cacheSize"] = thing["spec"]["resources"]["requests"]["storage"]
    return out


def _schema(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int):
        return {"type": "integer", "minimum": 0}
    if isinstance(value, str):
        return {"type": "string"}
    if isinstance(value, list):
        return {"type": "array", "items": _schema(value[0]) if value else {}}
    inside = {key: _schema(one) for key, one in sorted(value.items())}
    out: dict[str, Any] = {"type": "object", "properties": inside, "required": sorted(inside), "additionalProperties": False}
    if "port" in inside:
        inside["port"] |= {"minimum": 1, "maximum": 65535}
    if "limits" in inside:
        out["properties"] = {key: {"type": "object"} for key in inside}  # a site may ask for other resources
    return out


class _Marks:
    """Placeholder words that stand for template text until the YAML is written."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        mark = f"mark{len(self.known)}x{len(text)}kram"
        self.known[mark] = text
        return mark


def _template(service: Service, thing: Object) -> str:
    """Returns an object as a template: values become placeholders, the object becomes YAML, and the placeholders become actions."""
    marks = _Marks()
    out = _escaped(copy.deepcopy(thing), marks)
    kind, component = thing["kind"], thing["metadata"]["labels"]["app.kubernetes.io/component"]
    port = service.network.port
    if component in ("engine", "worker", "nodes") and kind in ("Service", "Ingress", "NetworkPolicy"):
        _replace(out, ("port", "targetPort", "number"), port, marks("{{ .Values.port }}"))
    if component in ("engine", "worker") and kind in ("Deployment", "StatefulSet"):
        _workload(service, out, thing, marks)
    if kind == "HorizontalPodAutoscaler":
        out["spec"]["minReplicas"], out["spec"]["maxReplicas"] = (
            marks("{{ .Values.autoscaling.min }}"),
            marks("{{ .Values.autoscaling.max }}"),
        )
    if kind == "Ingress":
        _replace(out, ("host",), service.network.host, marks("{{ .Values.ingress.host | quote }}"))
        for entry in out["spec"].get("tls", []):
            entry["hosts"] = [marks("{{ .Values.ingress.host | quote }}")]
    if kind == "PersistentVolumeClaim" and component == "models":
        out["spec"]["resources"]["requests"]["storage"] = marks("{{ .Values.cacheSize | quote }}")
    text = _written(out, marks)
    gate = {"HorizontalPodAutoscaler": "autoscaling", "Ingress": "ingress"}.get(kind)
    return f"{{{{- if .Values.{gate}.enabled }}}}\n{text}{{{{- end }}}}\n" if gate else text


def _workload(service: Service, out: Object, thing: Object, marks: _Marks) -> None:
    port, spec = service.network.port, out["spec"]["template"]["spec"]
    container, original = spec["containers"][0], thing["spec"]["template"]["spec"]["containers"][0]
    if "replicas" in out["spec"] and service.parallel.nodes == 1:
        out["spec"]["replicas"] = marks("{{ .Values.replicas }}")
    for one in (container, *spec.get("initContainers", [])):
        if one["image"] == service.image:
            one["image"] = marks("{{ .Values.image | quote }}")
    container["resources"] = marks("BLOCK .Values.resources")
    plain = plain_environment(service)
    first = original["env"].index(plain[0])
    container["env"] = [*container["env"][:first], marks("RANGE .Values.env"), *container["env"][first + len(plain) :]]
    command = container["command"]
    if "--port" in command:
        command[command.index("--port") + 1] = marks("{{ .Values.port | quote }}")
    else:
        command[-1] = command[-1].replace(f"--port {port}", f"--port {marks('{{ .Values.port }}')}")
    for entry in container.get("ports", []):
        entry["containerPort"] = marks("{{ .Values.port }}")
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        if name in container:
            container[name]["httpGet"] = {"path": marks("{{ .Values.health.path | quote }}"), "port": marks("{{ .Values.port }}")}
            container[name]["periodSeconds"] = marks("{{ .Values.health.period }}")
    if "startupProbe" in container:
        container["startupProbe"]["failureThreshold"] = marks("{{ .Values.health.startFailures }}")
    for volume in spec["volumes"]:
        if volume["name"] == "shm" and service.resources.shm_gib:
            volume["emptyDir"]["sizeLimit"] = marks('{{ .Values.shm | default "1Gi" | quote }}')


def _replace(thing: Any, keys: tuple[str, ...], old: Any, new: str) -> None:
    """Sets every entry with one of these keys and the value `old` to `new`."""
    for key, value in thing.items() if isinstance(thing, dict) else enumerate(thing) if isinstance(thing, list) else ():
        if key in keys and value == old and type(value) is type(old):
            thing[key] = new
        else:
            _replace(value, keys, old, new)


def _escaped(thing: Any, marks: _Marks) -> Any:
    """Escapes the user's own braces, so that Helm takes them as text."""
    if isinstance(thing, dict):
        return {key: _escaped(value, marks) for key, value in thing.items()}
    if isinstance(thing, list):
        return [_escaped(value, marks) for value in thing]
    return thing.replace("{{", marks('{{ "{{" }}')) if isinstance(thing, str) and "{{" in thing else thing


def _written(thing: Any, marks: _Marks) -> str:
    lines = []
    for line in dump(thing).splitlines():
        found = next((m for m in marks.known if m in line and marks.known[m].startswith(("BLOCK", "RANGE"))), None)
        if found is None:
            lines.append(line)
            continue
        how, _, path = marks.known[found].partition(" ")
        indent = len(line) - len(line.lstrip())
        if how == "BLOCK":
            lines += [line[: line.index(found)].rstrip(), f"{' ' * (indent + 2)}{{{{- toYaml {path} | nindent {indent + 2} }}}}"]
        else:
            pad = " " * indent
            lines += [
                f"{pad}{{{{- range {path} }}}}",
                f"{pad}- name: {{{{ .name | quote }}}}",
                f"{pad}  value: {{{{ .value | quote }}}}",
                f"{pad}{{{{- end }}}}",
            ]
    text = "\n".join(lines) + "\n"
    return re.sub(r"mark\d+x\d+kram", lambda m: marks.known[m[0]], text)
