"""Plain Kubernetes manifests: a Deployment (or StatefulSets that span nodes), Service, Ingress, PVC, autoscaler, network policy.

Kubernetes shares nothing and restarts what looks dead. The pods therefore get a memory-backed /dev/shm, probes that wait while the
weights load, secrets by reference, and a user that is not root. Kubernetes API, 1.27 to 1.34 (2023 to 2025).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from .description.service import GIB, Part, Secret, Service
from .rendering.engine_command import HEAD_PORT, KEY_VARIABLE, MODELS, engine_words, needs_staging, node_script, staging_script
from .rendering.shell import Raw, seal
from .rendering.target import Target

GPU_RESOURCE = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "gpu.intel.com/i915"}
#: The image that fetches weights from S3; the engine's own image fetches weights from Hugging Face.
RCLONE = "docker.io/rclone/rclone:1.71.0"
Object = dict[str, Any]


@dataclass(frozen=True)
class Kubernetes(Target):
    """Plain manifests, one object per file. Kubernetes API, 1.27 to 1.34 (2023 to 2025)."""

    platform: ClassVar[str] = "kubernetes"

    def render(self, service: Service) -> dict[str, str]:
        """Returns one file per object."""
        out = {}
        for thing in objects(service):
            out[f"{thing['kind'].lower()}-{thing['metadata']['name']}.yaml"] = seal(dump(thing), "kubernetes", service.digest)
        return out


def dump(thing: Any) -> str:
    """Returns YAML with sorted keys."""
    from .description.yaml_files import yaml

    return str(yaml().safe_dump(thing, sort_keys=True, default_flow_style=False, width=10_000, allow_unicode=True))


def escaped(value: str) -> str:
    """Returns the value with the $ of each $( doubled, because Kubernetes would replace $(NAME)."""
    return value.replace("$(", "$$(")


def objects(service: Service) -> list[Object]:
    """Returns all Kubernetes objects of the service, in the order in which a person would read them."""
    out = [*_workloads(service), _service(service)]
    if service.parallel.nodes > 1:
        out.append(_headless(service))
    if service.cache.kubernetes.host_path is None and service.model.source != "built-in":
        out.append(_claim(service))
    if needs_staging(service):
        out.append(_object("ConfigMap", "v1", f"{service.name}-stage", service, data={"stage.sh": staging_script(service)}))
    if service.network.expose == "ingress":
        out.append(_ingress(service))
    if service.scale.max > 1:
        out.append(_autoscaler(service))
    out.append(_policy(service))
    for part in service.parts:
        out += _part(service, part)
    return out


def labels(service: Service, component: str) -> dict[str, str]:
    """Returns the labels that select the pods of a component."""
    return {"app.kubernetes.io/name": service.name, "app.kubernetes.io/component": component}


def _object(kind: str, version: str, name: str, service: Service, *, component: str = "engine", **content: Any) -> Object:
    tags = {**labels(service, component), "app.kubernetes.io/part-of": service.name}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": tags}, **content}


def _workloads(service: Service) -> list[Object]:
    nodes = service.parallel.nodes
    if nodes == 1:
        pod = _pod(service, "engine", worker=False)
        pick = {"matchLabels": labels(service, "engine")}
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}  # there is rarely a spare GPU
        spec = {"replicas": service.scale.min, "selector": pick, "template": pod, "strategy": strategy}
        return [_object("Deployment", "apps/v1", service.name, service, spec=spec)]
    out = []
    for name, component, replicas in ((service.name, "engine", 1), (f"{service.name}-worker", "worker", nodes - 1)):
        pod = _pod(service, component, worker=component == "worker")
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": labels(service, component)},
            "template": pod,
            "podManagementPolicy": "Parallel",
            "serviceName": f"{service.name}-nodes",
        }
        out.append(_object("StatefulSet", "apps/v1", name, service, component=component, spec=spec))
    return out


def _reference(variable: str, secret: Secret) -> Object:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}}}


def _environment(service: Service, *, worker: bool) -> list[Object]:
    """Returns the variables that the platform adds, then those of the description in order, then the secrets."""
    out: list[Object] = []
    if service.parallel.nodes > 1:
        out.append({"name": "HEAD_PORT", "value": str(HEAD_PORT)})
        if worker:
            out.append({"name": "HEAD_ADDRESS", "value": f"{service.name}-0.{service.name}-nodes"})
        else:
            out.append({"name": "HEAD_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
            out.append({"name": "NODE_RANK", "value": "0"})
    out += plain_environment(service)
    if service.api_key is not None:
        out.append(_reference(KEY_VARIABLE[service.engine], service.api_key))
    out += [_reference(name, Secret.of(secret)) for name, secret in sorted(service.secrets.items())]
    return out


def plain_environment(service: Service) -> list[Object]:
    """Returns the description's variables in a container's form, with a HOME to which any user can write."""
    plain = {"HOME": "/tmp", **service.environment()}
    return [{"name": name, "value": escaped(value)} for name, value in sorted(plain.items())]


def _pod(service: Service, component: str, *, worker: bool) -> Object:
    r, port = service.resources, service.network.port
    limits: Object = {"cpu": str(r.cpus), "memory": f"{r.memory_gib}Gi"}
    if r.gpus_per_node:
        limits[GPU_RESOURCE[r.gpu]] = str(r.gpus_per_node)
    if service.parallel.nodes == 1:
        command = engine_words(service, host="0.0.0.0", port=str(port))
        command = [word if isinstance(word, Raw) else escaped(word) for word in command]
        command = [str(word) for word in command]
    else:
        script = node_script(service, host="0.0.0.0", port=str(port))
        # Workers are numbered from 0 by their StatefulSet and from 1 in the replica.
        command = ["sh", "-c", ("NODE_RANK=$((${HOSTNAME##*-} + 1))\nexport NODE_RANK\n" if worker else "") + script]
    container: Object = {
        "name": "engine", "image": service.image, "command": command, "env": _environment(service, worker=worker),
        "resources": {"limits": limits, "requests": dict(limits)}, "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }  # fmt: skip
    if not worker:
        container["ports"] = [{"name": "http", "containerPort": port}]
        container |= _probes(service)
    memory: Object = {"medium": "Memory", "sizeLimit": f"{r.shm_gib}Gi"}
    volumes: list[Object] = [{"name": "shm", "emptyDir": memory if r.shm_gib else {"medium": "Memory"}}]
    spec: Object = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 60}
    spec["securityContext"] = _security(service)
    spec["automountServiceAccountToken"] = False
    if service.image_pull_secret is not None:
        spec["imagePullSecrets"] = [{"name": service.image_pull_secret}]
    if service.model.source != "built-in":
        cache = service.cache.kubernetes
        container["volumeMounts"].append({"name": "models", "mountPath": MODELS, "readOnly": True})
        if cache.host_path is not None:
            volumes.append({"name": "models", "hostPath": {"path": cache.host_path, "type": "Directory"}})
        else:
            volumes.append({"name": "models", "persistentVolumeClaim": {"claimName": claim_name(service)}})
    if needs_staging(service):
        spec["initContainers"] = [_staging(service)]
        volumes.append({"name": "stage", "configMap": {"name": f"{service.name}-stage"}})
    return {"metadata": {"labels": {**labels(service, component), "app.kubernetes.io/part-of": service.name}}, "spec": spec}


def _security(service: Service) -> Object:
    uid = service.user if isinstance(service.user, int) else 1000
    return {"runAsNonRoot": True, "runAsUser": uid, "runAsGroup": uid, "fsGroup": uid, "seccompProfile": {"type": "RuntimeDefault"}}


def _probes(service: Service) -> Object:
    health = service.health
    ask = {"httpGet": {"path": health.path, "port": service.network.port}, "periodSeconds": health.period_s, "timeoutSeconds": 5}
    return {
        # Weights take minutes to load. The other probes do not count until the startup probe has passed.
        "startupProbe": {**ask, "failureThreshold": math.ceil(health.start_s / health.period_s)},
        "readinessProbe": {**ask, "failureThreshold": 2},
        "livenessProbe": {**ask, "failureThreshold": 6},
    }


def _staging(service: Service) -> Object:
    return {
        "name": "stage", "image": RCLONE if service.model.source == "s3" else service.image, "command": ["sh", "/stage/stage.sh", MODELS],
        "env": [{"name": "HOME", "value": "/tmp"}, *(_reference(n, Secret.of(s)) for n, s in sorted(service.secrets.items()))],
        "volumeMounts": [{"name": "models", "mountPath": MODELS}, {"name": "stage", "mountPath": "/stage", "readOnly": True}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }  # fmt: skip


def _service(service: Service) -> Object:
    port = service.network.port
    kind = "NodePort" if service.network.expose == "login-node" else "ClusterIP"
    spec = {"type": kind, "selector": labels(service, "engine"), "ports": [{"name": "http", "port": port, "targetPort": port}]}
    return _object("Service", "v1", service.name, service, spec=spec)


def _headless(service: Service) -> Object:
    spec = {
        "clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app.kubernetes.io/name": service.name},
        "ports": [{"name": "nodes", "port": HEAD_PORT, "targetPort": HEAD_PORT}],
    }  # fmt: skip
    return _object("Service", "v1", f"{service.name}-nodes", service, component="nodes", spec=spec)


def claim_name(service: Service) -> str:
    """Returns the claim that holds the weights."""
    return service.cache.kubernetes.pvc or f"{service.name}-models"


def _claim(service: Service) -> Object:
    gib = max(10, math.ceil(1.2 * service.model.bytes / GIB))  # leaves room for an unfinished staging
    many = service.parallel.nodes > 1 or service.scale.max > 1
    spec: Object = {"accessModes": ["ReadWriteMany" if many else "ReadWriteOnce"], "resources": {"requests": {"storage": f"{gib}Gi"}}}
    if service.cache.kubernetes.storage_class is not None:
        spec["storageClassName"] = service.cache.kubernetes.storage_class
    return _object("PersistentVolumeClaim", "v1", claim_name(service), service, component="models", spec=spec)


def _ingress(service: Service) -> Object:
    net = service.network
    backend = {"service": {"name": service.name, "port": {"number": net.port}}}
    spec: Object = {"rules": [{"host": net.host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]}
    if net.tls_secret is not None:
        spec["tls"] = [{"hosts": [net.host], "secretName": net.tls_secret}]
    return _object("Ingress", "networking.k8s.io/v1", service.name, service, spec=spec)


def _autoscaler(service: Service) -> Object:
    s = service.scale
    if s.metric == "cpu":
        metric: Object = {
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": s.target}},
        }
    else:
        target = {"type": "AverageValue", "averageValue": str(s.target)}
        metric = {"type": "Pods", "pods": {"metric": {"name": s.metric}, "target": target}}
    spec = {
        "minReplicas": s.min, "maxReplicas": s.max, "metrics": [metric],
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": service.name},
    }  # fmt: skip
    return _object("HorizontalPodAutoscaler", "autoscaling/v2", service.name, service, spec=spec)


def _policy(service: Service) -> Object:
    """Lets in what the description exposes, and lets nodes and parts of the service talk to each other."""
    own = {"podSelector": {"matchLabels": {"app.kubernetes.io/part-of": service.name}}}
    web = {"ports": [{"port": service.network.port, "protocol": "TCP"}]}
    if service.network.expose == "cluster":
        web["from"] = [{"namespaceSelector": {}}]
    rules: list[Object] = [web, {"from": [own]}]
    spec: Object = {"podSelector": own["podSelector"], "policyTypes": ["Ingress"], "ingress": rules}
    if service.offline and not needs_staging(service):
        dns = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
        spec |= {"policyTypes": ["Ingress", "Egress"], "egress": [dns, {"to": [own]}]}
    return _object("NetworkPolicy", "networking.k8s.io/v1", service.name, service, spec=spec)


def part_name(service: Service, name: str) -> str:
    """Returns a part's name, which is unique in a namespace that it shares with other services."""
    return service.name if name == service.name else f"{service.name}-{name}"


def resolved(service: Service, value: str, urls: dict[str, str]) -> str:
    """Returns a value with every @url(name) replaced by the address on this platform."""
    return re.sub(r"@url\(([^)]*)\)", lambda found: urls[found[1]], value)


def _part(service: Service, part: Part) -> list[Object]:
    ports = {service.name: service.network.port, **{p.name: p.port for p in service.parts}}
    urls = {name: f"http://{part_name(service, name)}:{port}" for name, port in ports.items()}
    name, component = part_name(service, part.name), part.name
    env = [{"name": n, "value": escaped(resolved(service, v, urls))} for n, v in sorted(part.env.items())]
    env += [_reference(n, Secret.of(s)) for n, s in sorted(part.secrets.items())]
    container: Object = {
        "name": component, "image": part.image, "command": [escaped(w) for w in part.command], "env": env,
        "ports": [{"name": "http", "containerPort": part.port}],
        "readinessProbe": {"tcpSocket": {"port": part.port}, "periodSeconds": 10},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }  # fmt: skip
    spec: Object = {"containers": [container], "securityContext": _security(service), "automountServiceAccountToken": False}
    if part.data is not None:
        container["volumeMounts"] = [{"name": "data", "mountPath": part.data}]
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    tags = {**labels(service, component), "app.kubernetes.io/part-of": service.name}
    deployment = {
        "replicas": 1, "selector": {"matchLabels": labels(service, component)}, "strategy": {"type": "Recreate"},
        "template": {"metadata": {"labels": tags}, "spec": spec},
    }  # fmt: skip
    door = {"selector": labels(service, component), "ports": [{"name": "http", "port": part.port, "targetPort": part.port}]}
    out = [_object("Deployment", "apps/v1", name, service, component=component, spec=deployment)]
    out.append(_object("Service", "v1", name, service, component=component, spec=door))
    if part.data is not None:
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": f"{part.data_gib}Gi"}}}
        out.append(_object("PersistentVolumeClaim", "v1", name, service, component=component, spec=claim))
    return out
