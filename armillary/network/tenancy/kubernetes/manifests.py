"""The manifests with which the VNI service is installed, and an example job for each tenant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary import extras
from armillary.errors import InputError, one_line

from ..service.database import QUARANTINE_S
from ..service.hooks import DECORATED, LABEL
from ..service.server import PORT

NAMESPACE, ENDPOINT, SERVICE = "vni-management", "vni-endpoint", "vni-endpoint-service"
GROUP = "horizon-opencube.eu"
#: The plural of each kind that may be decorated.
PLURALS = {"Deployment": "deployments", "DaemonSet": "daemonsets", "ReplicaSet": "replicasets", "Job": "jobs"}
#: A pod names an owner that may have a VNI only if a controller says so, or if it named the same owners before.
_OWNERS = (
    "!has(object.metadata.ownerReferences) || "
    f"!object.metadata.ownerReferences.exists(o, o.kind in {sorted(PLURALS)}) || "
    "(request.operation == 'UPDATE' && has(oldObject.metadata.ownerReferences) && "
    "oldObject.metadata.ownerReferences == object.metadata.ownerReferences) || "
    "request.userInfo.username == 'system:kube-controller-manager' || "
    "request.userInfo.groups.exists(g, g == 'system:masters' || "
    "g in ['system:serviceaccounts:kube-system', 'system:serviceaccounts:volcano-system'])"
)
CONTROLLER = "system:serviceaccount:metacontroller:metacontroller"


def manifests(
    tenants: Sequence[str], *, image: str = "armillary:latest", quarantine_s: float = QUARANTINE_S, token: str = "", cards: int = 200
) -> str:
    """YAML with everything that the service needs, and for each tenant (a Kubernetes namespace) a claim and an example job.

    image: a container image with Armillary and its `serve` and `deploy` extras. token: the first part of the webhooks' path; without one,
    the network policy alone keeps others away. cards: how many pods of a node may have a card.
    """
    for tenant in tenants:
        if not LABEL.fullmatch(tenant):
            raise InputError(f'found "{one_line(tenant, 60)}"; expected a DNS label', where="tenants")
    if len(set(tenants)) < len(tenants):
        raise InputError("found a name twice; expected each once", where="tenants")
    if not 1 <= cards <= 10_000 or not 0 <= quarantine_s <= 86_400:
        raise InputError(f"found {cards} cards and a rest of {quarantine_s:g} s; expected 1 to 10,000 and 0 to 86,400 s")
    objects = [*_definitions(), _named("v1", "Namespace", NAMESPACE, None), _controller(token), *_endpoint(image, quarantine_s, token)]
    objects += [*_policies(), *_device_plugin(cards)]
    for tenant in tenants:
        objects += [_named("v1", "Namespace", tenant, None), _claim(tenant), _job(tenant)]
    library = extras.need("yaml")
    written: str = library.safe_dump_all(objects, sort_keys=False, width=120)
    return written


def _definitions() -> list[dict[str, Any]]:
    name = {"type": "string", "maxLength": 63, "pattern": f"^{LABEL.pattern}$"}
    claim = {"type": "object", "required": ["name"], "properties": {"name": name}}
    vni = {"type": "object", "required": ["vni"], "properties": {"vni": {"type": "integer", "minimum": 1, "maximum": 65535}}}
    return [_definition("Vni", "vnis", ["vni"], vni), _definition("VniClaim", "vniclaims", ["vnic"], claim)]


def _definition(kind: str, plural: str, short: list[str], spec: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "shortNames": short}
    body = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
    return _named("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{plural}.{GROUP}", None, spec=body)


def _controller(token: str) -> dict[str, Any]:
    annotated = {"matchExpressions": [{"key": "vni", "operator": "Exists"}]}
    resources = [{"apiVersion": version, "resource": PLURALS[kind], "annotationSelector": annotated} for version, kind in sorted(DECORATED)]
    resources.append({"apiVersion": f"{GROUP}/v1", "resource": "vniclaims"})
    base = f"http://{SERVICE}.{NAMESPACE}:{PORT}" + (f"/{token}" if token else "")
    hooks = {hook: {"webhook": {"url": f"{base}/{hook}"}} for hook in ("sync", "finalize")}
    spec = {"resources": resources, "attachments": [{"apiVersion": f"{GROUP}/v1", "resource": "vnis"}], "hooks": hooks}
    return _named("metacontroller.k8s.io/v1alpha1", "DecoratorController", "vni-autovni-controller", None, spec=spec)


def _endpoint(image: str, quarantine_s: float, token: str) -> list[dict[str, Any]]:
    labels = {"app": ENDPOINT}
    command = ["armillary", "vni", "serve", "--path", "/opt/db/vni.db", "--host", "0.0.0.0", "--quarantine", f"{quarantine_s:g}"]
    command += ["--token-file", "/run/vni/token"] if token else ["--open"]
    mounts = [{"name": "db", "mountPath": "/opt/db"}] + ([{"name": "token", "mountPath": "/run/vni", "readOnly": True}] if token else [])
    volumes: list[dict[str, Any]] = [{"name": "db", "persistentVolumeClaim": {"claimName": f"{ENDPOINT}-pvc"}}]
    volumes += [{"name": "token", "secret": {"secretName": f"{ENDPOINT}-token"}}] if token else []
    alive = {"httpGet": {"path": "/healthz", "port": PORT}}
    security = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "endpoint", "image": image, "command": command, "ports": [{"containerPort": PORT}], "volumeMounts": mounts,
        "readinessProbe": alive, "livenessProbe": alive, "securityContext": security,
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
    }  # fmt: skip
    pod = {
        "containers": [container], "volumes": volumes, "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
    }  # fmt: skip
    # Recreate: two endpoints must never write one database at once from two nodes.
    deployment = {"replicas": 1, "strategy": {"type": "Recreate"}, "selector": {"matchLabels": labels},
                  "template": {"metadata": {"labels": labels}, "spec": pod}}  # fmt: skip
    storage = {"accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "1Gi"}}}
    from_controller = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "metacontroller"}}}
    policy = {
        "podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress", "Egress"], "egress": [],
        "ingress": [{"from": [from_controller], "ports": [{"protocol": "TCP", "port": PORT}]}],
    }  # fmt: skip
    found = [
        _named("v1", "PersistentVolumeClaim", f"{ENDPOINT}-pvc", NAMESPACE, spec=storage),
        _named("apps/v1", "Deployment", ENDPOINT, NAMESPACE, spec=deployment),
        _named("v1", "Service", SERVICE, NAMESPACE, spec={"selector": labels, "ports": [{"port": PORT, "protocol": "TCP"}]}),
        _named("networking.k8s.io/v1", "NetworkPolicy", ENDPOINT, NAMESPACE, spec=policy),
    ]
    if token:
        found.append(_named("v1", "Secret", f"{ENDPOINT}-token", NAMESPACE, type="Opaque", stringData={"token": token}))
    return found


def _policies() -> list[dict[str, Any]]:
    """Only the controller writes Vni objects, and only controllers make pods that name an owner: the plugin believes both."""
    found: list[dict[str, Any]] = []
    nobody_else = [
        ("vnis-by-the-controller", GROUP, "v1", ["vnis"], ["CREATE", "UPDATE"], f"request.userInfo.username == '{CONTROLLER}'",
         "only the controller writes Vni objects"),
        ("owners-by-controllers", "", "v1", ["pods"], ["CREATE", "UPDATE"], _OWNERS, "only controllers name a job as the owner of a pod"),
    ]  # fmt: skip
    for name, group, version, resources, operations, expression, said in nobody_else:
        rule = {"apiGroups": [group], "apiVersions": [version], "operations": operations, "resources": resources}
        validation = {"expression": expression, "message": said}
        spec = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
        found.append(_named("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", name, None, spec=spec))
        binding = {"policyName": name, "validationActions": ["Deny"]}
        found.append(_named("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", name, None, spec=binding))
    return found


def _device_plugin(cards: int) -> list[dict[str, Any]]:
    config = f"- devicematch: ^cxi[0-9]+$\n  nummaxdevices: {cards}\n"
    return [
        _named("v1", "Namespace", "device-manager", None),
        _named("v1", "ConfigMap", "smarter-device-manager", "device-manager", data={"conf.yaml": config}),
    ]


def _claim(tenant: str) -> dict[str, Any]:
    return _named(f"{GROUP}/v1", "VniClaim", "workflow", tenant, spec={"name": "workflow"})


def _job(tenant: str) -> dict[str, Any]:
    card = {"smarter-devices/cxi0": "1"}
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "rank", "image": "busybox:stable", "command": ["env"], "resources": {"requests": card, "limits": card},
                 "securityContext": security}  # fmt: skip
    template = {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 30, "containers": [container]}}
    made = _named("batch/v1", "Job", "example", tenant, spec={"completions": 2, "parallelism": 2, "template": template})
    made["metadata"]["annotations"] = {"vni": "true"}
    return made


def _named(version: str, kind: str, name: str, namespace: str | None, **rest: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": meta, **rest}
