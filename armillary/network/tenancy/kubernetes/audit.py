"""What in a cluster's manifests and in its cards' services would let a tenant's job use the VNI of another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from armillary.errors import InputError
from armillary.files import read_text

from ..cni.plugin import MOST_GRACE_S
from ..device.cxi import DEFAULT_VNIS, ServiceDescription
from ..readers.services import is_service, service_of
from ..service.database import QUARANTINE_S
from ..service.hooks import DECORATED, GROUP, LABEL, OWN, annotation, claim_name
from .objects import MOST_BYTES, Manifest, parse_manifests, part, parts, text

Severity = Literal["high", "medium", "note"]
#: The resource by which the device plugin hands out cards, and the device files.
RESOURCE, DEVICE = "smarter-devices/cxi", "/dev/cxi"
#: Groups of users that are not one person.
EVERYBODY = ("system:authenticated", "system:unauthenticated", "system:serviceaccounts")
WRITES = frozenset({"create", "update", "patch", "*"})


@dataclass(frozen=True)
class Finding:
    """Something to look at: how bad it is, the rule, the object, and what it means."""

    severity: Severity
    rule: str
    where: str
    said: str


def audit(manifests: str | Path | Iterable[str | Path]) -> list[Finding]:
    """The findings in YAML texts or files, the worst first. All files of a cluster belong in one call: some rules compare."""
    given = [manifests] if isinstance(manifests, str | Path) else list(manifests)
    objects: list[Manifest] = []
    services: list[tuple[str, ServiceDescription]] = []
    for number, one in enumerate(given, 1):
        where = str(one) if isinstance(one, Path) else f"text {number}"
        content = read_text(one, limit=MOST_BYTES) if isinstance(one, Path) else one
        for found in parse_manifests(content, where):
            if is_service(found.body):
                services.append((where, service_of(found.body, content, where)))
            else:
                objects.append(found)
    rules: list[Callable[[Sequence[Manifest]], Iterator[Finding]]] = [
        _annotations, _claims, _pods, _default_service, _endpoint, _roles, _rolling,
    ]  # fmt: skip
    findings = [finding for rule in rules for finding in rule(objects)]
    findings += [finding for where, service in services for finding in _service(where, service)]
    rank: dict[Severity, int] = {"high": 0, "medium": 1, "note": 2}
    return sorted(findings, key=lambda one: (rank[one.severity], one.rule, one.where))


def _annotations(objects: Sequence[Manifest]) -> Iterator[Finding]:
    """Annotations that do not do what they seem to."""
    for one in objects:
        wanted = one.annotation
        if wanted is not None and (one.version, one.kind) not in DECORATED and one.version != GROUP:
            yield Finding("medium", "annotation-without-effect", str(one), f"the controller passes over a {one.kind}, so it gets no VNI")
        elif wanted is not None:
            try:
                annotation(wanted, "vni")
            except InputError as problem:
                yield Finding("medium", "annotation-not-understood", str(one), f"vni: {problem.message}")
        inner = part(part(part(one.body, "spec"), "template"), "metadata")
        if wanted is None and "vni" in part(inner, "annotations"):
            yield Finding(
                "medium", "annotation-on-the-template", str(one), "the annotation is on the pods; expected it on the object itself"
            )


def _claims(objects: Sequence[Manifest]) -> Iterator[Finding]:
    """Jobs that share a VNI, claims that do not exist, and claims of one name."""
    there: dict[tuple[str, str], list[Manifest]] = defaultdict(list)
    for one in objects:
        if (one.version, one.kind) == (GROUP, "VniClaim"):
            try:
                there[one.namespace, claim_name(part(one.body, "spec").get("name"), "spec.name")].append(one)
            except InputError as problem:
                yield Finding("medium", "claim-not-understood", str(one), str(problem))
    for (namespace, name), same in there.items():
        if len(same) > 1:
            yield Finding("medium", "claims-of-one-name", str(same[1]), f'"{name}" belongs to {same[0]} in {namespace} already')
    users: dict[tuple[str, str], list[Manifest]] = defaultdict(list)
    for one in objects:
        wanted = (one.annotation or "").lower()
        if LABEL.fullmatch(wanted) and wanted not in OWN and (one.version, one.kind) in DECORATED:
            users[one.namespace, wanted].append(one)
    for (namespace, name), jobs in users.items():
        if (namespace, name) not in there:
            yield Finding("medium", "claim-missing", str(jobs[0]), f'there is no VniClaim "{name}" in {namespace} here, so its pods wait')
        if len(jobs) > 1:
            yield Finding("note", "shared-vni", str(jobs[0]), f'shares the VNI of the claim "{name}" with {", ".join(map(str, jobs[1:4]))}')


def _pods(objects: Sequence[Manifest]) -> Iterator[Finding]:
    """Pods with the card that could get around its services."""
    for one in objects:
        for pod in one.pods:
            containers = [*parts(pod, "containers"), *parts(pod, "initContainers")]
            card = _has_card(pod, containers)
            wants = one.annotation is not None
            if not card and not wants:
                continue
            privileged = [text(c, "name") for c in containers if _is_privileged(c)]
            if privileged:
                said = f"the container {privileged[0]} may make services itself, and so use every VNI"
                yield Finding("high", "privileged-with-card", str(one), said)
            if pod.get("hostNetwork") is True:
                said = "its pods are in the network namespace of the host: the plugin is not called, and what the host may use they may use"
                yield Finding("high", "host-network-with-card", str(one), said)
            if card and any(str(part(v, "hostPath").get("path", "")).startswith(DEVICE) for v in parts(pod, "volumes")):
                said = f"mounts {DEVICE} from the host; expected the device plugin's {RESOURCE}0, which counts the cards that are given out"
                yield Finding("medium", "card-from-the-host", str(one), said)
            if card and not wants and one.kind != "Pod" and (one.version, one.kind) in DECORATED:
                yield Finding("note", "card-without-vni", str(one), "has the card and no annotation, so it can use no VNI")
            grace = pod.get("terminationGracePeriodSeconds", MOST_GRACE_S)
            if wants and (not isinstance(grace, int) or isinstance(grace, bool) or grace > MOST_GRACE_S):
                said = (
                    f"terminationGracePeriodSeconds is {grace}: its pods could outlive the rest of their VNI, and the plugin refuses them"
                )
                yield Finding("high", "grace-beyond-quarantine", str(one), said)


def _has_card(pod: Any, containers: Sequence[Any]) -> bool:
    asked = [name for c in containers for how in ("limits", "requests") for name in part(part(c, "resources"), how)]
    mounted = [str(part(volume, "hostPath").get("path", "")) for volume in parts(pod, "volumes")]
    whole_dev = ("/dev", "/dev/", "/")
    return any(name.startswith(RESOURCE) for name in asked) or any(path.startswith(DEVICE) or path in whole_dev for path in mounted)


def _is_privileged(container: Any) -> bool:
    context = part(container, "securityContext")
    added = part(context, "capabilities").get("add")
    return context.get("privileged") is True or bool({"SYS_ADMIN", "CAP_SYS_ADMIN", "ALL"} & _set(added))


def _default_service(objects: Sequence[Manifest]) -> Iterator[Finding]:
    """A driver that is told to keep its default service."""
    for one in objects:
        for said in _texts(one.body):
            flat = said.replace(" ", "").replace('"', "")
            if any(f"disable_default_svc{sign}{off}" in flat for sign in "=:" for off in ("0", "N", "n", "false")):
                meant = "the driver keeps its default service: every process may use the VNIs 1 and 10"
                yield Finding("high", "default-service", str(one), meant)
                break


def _texts(found: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, dict) and depth < 60:
        for key, value in found.items():
            if isinstance(value, str | int | bool):
                yield f"{key}={value}"
            yield from _texts(value, depth + 1)
    elif isinstance(found, list) and depth < 60:
        for value in found:
            yield from _texts(value, depth + 1)


def _service(where: str, service: ServiceDescription) -> Iterator[Finding]:
    """Services of cards that are open to more than one job."""
    if not service.enabled:
        return
    if not service.members:
        shown = ", ".join(map(str, service.vnis)) or "all"
        yield Finding("high", "open-service", where, f"every process may use this service and its VNIs ({shown})")
    elif any(member.kind in ("uid", "gid") for member in service.members):
        yield Finding("high", "service-by-user", where, "its members are users or groups, which a container chooses for itself")
    if not service.vnis:
        yield Finding("high", "service-without-vnis", where, "it allows every VNI")
    elif set(service.vnis) & set(DEFAULT_VNIS):
        yield Finding("medium", "default-vni", where, "it has a VNI of the default service")


def _endpoint(objects: Sequence[Manifest]) -> Iterator[Finding]:
    """The VNI service: whether released VNIs rest long enough, whether it runs once, and who may call it."""
    controllers = [one for one in objects if one.kind == "DecoratorController" and "vni" in str(one.body)]
    hooks = [part(part(c.body, "spec"), "hooks") for c in controllers]
    urls = {str(part(part(one, name), "webhook").get("url", "")) for one in hooks for name in ("sync", "finalize")}
    for one in objects:
        if one.kind not in ("Deployment", "StatefulSet") or not any(f"//{one.name}" in url or one.name in url for url in urls):
            continue
        if part(one.body, "spec").get("replicas", 1) != 1:
            yield Finding("medium", "several-endpoints", str(one), "each replica would have a database, and give out the same VNIs")
        containers = [c for pod in one.pods for c in parts(pod, "containers")]
        words = [str(word) for c in containers for key in ("command", "args") for word in _list(c.get(key))]
        rest = _quarantine(words)
        if rest is None:
            said = "nothing says how long a released VNI rests; ours takes --quarantine"
            yield Finding("note", "quarantine-not-said", str(one), said)
        elif rest < 2 * MOST_GRACE_S:
            severity: Severity = "high" if rest <= MOST_GRACE_S else "medium"
            said = f"a released VNI rests for {rest:g} s, and pods take up to {MOST_GRACE_S} s to end; expected {QUARANTINE_S:g} s"
            yield Finding(severity, "quarantine-missing", str(one), said)
        guarded = any(p.kind == "NetworkPolicy" and p.namespace == one.namespace for p in objects)
        if not guarded and not any(word.startswith("--token") for word in words):
            said = "no network policy and no token: every pod could post to its webhooks, and take or give back any VNI"
            yield Finding("high", "endpoint-open", str(one), said)


def _quarantine(words: Sequence[str]) -> float | None:
    for place, word in enumerate(words):
        name, sign, value = word.partition("=")
        if name == "--quarantine":
            try:
                return float(value if sign else words[place + 1])
            except (ValueError, IndexError):
                return 0.0
    return None


def _roles(objects: Sequence[Manifest]) -> Iterator[Finding]:
    """Roles that let tenants write Vni objects, from which the plugin takes its number."""
    bound: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in objects:
        if one.kind in ("RoleBinding", "ClusterRoleBinding"):
            role = part(one.body, "roleRef")
            bound[text(role, "kind"), text(role, "name")] += [text(s, "name") for s in parts(one.body, "subjects")]
    protected = any(one.kind == "ValidatingAdmissionPolicy" and "vnis" in str(one.body) for one in objects)
    for one in objects:
        if one.kind not in ("Role", "ClusterRole"):
            continue
        labels = part(one.meta, "labels")
        shared = any(name.startswith("rbac.authorization.k8s.io/aggregate-to-") for name in labels)
        for rule in parts(one.body, "rules"):
            groups, resources, verbs = (_set(rule.get(name)) for name in ("apiGroups", "resources", "verbs"))
            if not ({"horizon-opencube.eu", "*"} & groups and {"vnis", "*"} & resources and WRITES & verbs):
                continue
            names = [name for name in bound[one.kind, one.name] if "metacontroller" not in name]
            if shared or names:
                who = names[0] if names else "users with the built-in roles"
                severity: Severity = "note" if protected else "high"
                yield Finding(severity, "vnis-can-be-written", str(one), f"{who} may write Vni objects, and so choose a VNI")
                break


def _rolling(objects: Sequence[Manifest]) -> Iterator[Finding]:
    """Deployments, whose replica sets have a VNI each."""
    for one in objects:
        if one.kind == "Deployment" and (one.annotation or "").lower() in OWN:
            said = "takes two VNIs, and during a roll-out old and new pods cannot talk over RDMA; expected a VniClaim"
            yield Finding("note", "deployment-with-own-vni", str(one), said)


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _set(found: Any) -> set[str]:
    return {str(one) for one in _list(found)}
