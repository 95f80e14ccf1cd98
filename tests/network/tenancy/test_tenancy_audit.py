"""Manifests that install the service, and an audit of these, of a deployment's, and of many that are wrong."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from armillary.errors import InputError
from armillary.network.tenancy import audit, manifests
from armillary.network.tenancy.kubernetes.objects import parse_manifests
from armillary.network.tenancy.service.hooks import DECORATED

yaml = pytest.importorskip("yaml")

JOB: dict[str, Any] = {
    "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "physics", "annotations": {"vni": "true"}},
    "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"smarter-devices/cxi0": "1"}}}]}}},
}  # fmt: skip


def with_pod(**change: Any) -> str:
    """The job with a changed pod."""
    made = copy.deepcopy(JOB)
    made["spec"]["template"]["spec"].update(change)
    return json.dumps(made)


def with_container(**change: Any) -> str:
    made = copy.deepcopy(JOB)
    made["spec"]["template"]["spec"]["containers"][0].update(change)
    return json.dumps(made)


def rules(*texts: str) -> list[tuple[str, str]]:
    return [(one.severity, one.rule) for one in audit(texts)]


def test_what_installs_the_service_passes_the_audit() -> None:
    for token in ("", "0123456789abcdef0123"):
        found = audit(manifests(["physics", "biology"], token=token))
        assert [one for one in found if one.severity != "note"] == []


def test_the_manifests_say_what_the_service_needs() -> None:
    objects = {(one.kind, one.name): one.body for one in parse_manifests(manifests(["physics"], quarantine_s=90, token="t" * 20), "x")}
    assert {name for kind, name in objects if kind == "CustomResourceDefinition"} == {
        "vnis.horizon-opencube.eu",
        "vniclaims.horizon-opencube.eu",
    }
    controller = objects["DecoratorController", "vni-autovni-controller"]["spec"]
    assert {(one["apiVersion"], one["resource"]) for one in controller["resources"]} == {
        ("apps/v1", "deployments"), ("apps/v1", "daemonsets"), ("apps/v1", "replicasets"), ("batch/v1", "jobs"), ("batch.volcano.sh/v1alpha1", "jobs"),
        ("horizon-opencube.eu/v1", "vniclaims")}  # fmt: skip
    assert len(controller["resources"]) == len(DECORATED) + 1
    assert controller["hooks"]["sync"]["webhook"]["url"] == f"http://vni-endpoint-service.vni-management:8842/{'t' * 20}/sync"
    command = objects["Deployment", "vni-endpoint"]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[:3] == ["armillary", "vni", "serve"]
    assert command[command.index("--quarantine") + 1] == "90"
    assert "--open" not in command
    assert objects["ConfigMap", "smarter-device-manager"]["data"]["conf.yaml"].startswith("- devicematch: ^cxi")
    assert objects["Job", "example"]["metadata"]["annotations"] == {"vni": "true"}
    for bad in (["A"], ["a", "a"], ["a/b"]):
        with pytest.raises(InputError, match="tenants"):
            manifests(bad)


def test_kubernetes_takes_the_built_in_kinds() -> None:
    validate = pytest.importorskip("kubernetes_validate")
    ours = ("DecoratorController", "VniClaim")
    checked = 0
    for document in yaml.safe_load_all(manifests(["physics"], token="t" * 20)):
        if document["kind"] not in ours:
            validate.validate(document, "1.34", strict=True)
            checked += 1
    assert checked > 10


def test_the_commands_of_the_manifests_exist(armillary_here: Any) -> None:
    done = armillary_here("vni", "manifests", "physics")
    assert done.returncode == 0
    assert done.stdout == manifests(["physics"])
    assert "--quarantine" in armillary_here("vni", "serve", "--help").stdout


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([json.dumps(JOB)], []),
        ([with_pod(hostNetwork=True)], [("high", "host-network-with-card")]),
        ([with_container(securityContext={"privileged": True})], [("high", "privileged-with-card")]),
        ([with_container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}})], [("high", "privileged-with-card")]),
        ([with_pod(terminationGracePeriodSeconds=31)], [("high", "grace-beyond-quarantine")]),
        ([with_pod(terminationGracePeriodSeconds="x")], [("high", "grace-beyond-quarantine")]),
        ([with_pod(volumes=[{"name": "d", "hostPath": {"path": "/dev/cxi0"}}])], [("medium", "card-from-the-host")]),
        ([json.dumps(JOB).replace('{"vni": "true"}', "{}")], [("note", "card-without-vni")]),
        ([json.dumps(JOB).replace('"true"', '"a/b"')], [("medium", "annotation-not-understood")]),
        ([json.dumps(JOB).replace('"true"', '"mesh"')], [("medium", "claim-missing")]),
        ([json.dumps(JOB).replace("Job", "StatefulSet").replace("batch/v1", "apps/v1")], [("medium", "annotation-without-effect")]),
        ([json.dumps(JOB).replace("Job", "Deployment").replace("batch/v1", "apps/v1")], [("note", "deployment-with-own-vni")]),
        (["restricted_members: 0\nvnis:\n  vni: 1\n  vni: 10\n"], [("high", "open-service"), ("medium", "default-vni")]),
        (["restricted_members: 1\nmembers:\n  - type: uid\n    id: 5\nvnis:\n  vni: 7\n"], [("high", "service-by-user")]),
        (["restricted_members: 1\nmembers:\n  - type: netns\n    id: 4026532000\n"], [("high", "service-without-vnis")]),
        (["restricted_members: 1\nmembers:\n  - type: netns\n    id: 4026532000\nvnis:\n  vni: 7\n"], []),
        (["kind: ConfigMap\ndata:\n  cxi.conf: options cxi-ss1 disable_default_svc=0\n"], [("high", "default-service")]),
        (["kind: ConfigMap\ndata:\n  cxi.conf: options cxi-ss1 disable_default_svc=1\n"], []),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(texts: list[str], expected: list[tuple[str, str]]) -> None:
    assert rules(*texts) == expected


def test_claims_are_compared_over_all_files() -> None:
    claim = "apiVersion: horizon-opencube.eu/v1\nkind: VniClaim\nmetadata: {name: %s, namespace: physics}\nspec: {name: mesh}\n"
    joins = json.dumps(JOB).replace('"true"', '"mesh"')
    other = joins.replace('"name": "j"', '"name": "k"')
    assert rules(claim % "a", joins, other) == [("note", "shared-vni")]
    assert rules(claim % "a", claim % "b", joins) == [("medium", "claims-of-one-name")]
    assert rules(claim.replace("mesh", "Me sh") % "a") == [("medium", "claim-not-understood")]


def test_the_service_itself_is_looked_at() -> None:
    good = manifests(["physics"])
    assert rules(good.replace("- '60'", "- '20'")) == [("high", "quarantine-missing")]
    assert rules(good.replace("- '60'", "- '45'")) == [("medium", "quarantine-missing")]
    assert ("medium", "several-endpoints") in rules(good.replace("replicas: 1", "replicas: 3"))
    documents = [one for one in yaml.safe_load_all(good) if one["kind"] != "NetworkPolicy"]
    assert rules(yaml.safe_dump_all(documents)) == [("high", "endpoint-open")]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r", "namespace": "physics"},
            "rules": [{"apiGroups": ["horizon-opencube.eu"], "resources": ["vnis"], "verbs": ["get", "create"]}]}  # fmt: skip
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "b", "namespace": "physics"},
               "roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "ada"}]}  # fmt: skip
    assert rules(json.dumps(role), json.dumps(binding)) == [("high", "vnis-can-be-written")]
    assert rules(json.dumps(role), json.dumps(binding), good) == [("note", "vnis-can-be-written")], "the admission policy keeps her away"
    assert rules(json.dumps(role)) == []


PUBLISHED = """
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: vni-management, name: vni-endpoint}
spec:
  replicas: 1
  selector: {matchLabels: {app: vni-endpoint}}
  template:
    metadata: {labels: {app: vni-endpoint}}
    spec: {containers: [{name: vni-service-endpoint, image: "vni_service_endpoint:1.0"}]}
---
apiVersion: metacontroller.k8s.io/v1alpha1
kind: DecoratorController
metadata: {name: vni-autovni-controller}
spec:
  attachments: [{apiVersion: horizon-opencube.eu/v1, resource: vnis}]
  hooks:
    sync: {webhook: {url: "http://vni-endpoint-service.vni-management:8842/sync"}}
    finalize: {webhook: {url: "http://vni-endpoint-service.vni-management:8842/finalize"}}
"""


def test_an_installation_as_the_public_one_is_open_to_every_pod() -> None:
    assert rules(PUBLISHED) == [("high", "endpoint-open"), ("note", "quarantine-not-said")]


def test_a_deployments_manifests_go_through() -> None:
    """Those that `armillary deploy` renders, as they are and with RDMA added by hand."""
    from armillary.serving.deployment.description.service import Service
    from armillary.serving.deployment.rendering.targets import render

    files = render(Service.read("llama-3.1-8b-1gpu"), "kubernetes")
    texts = [content for name, content in files.items() if str(name).endswith((".yaml", ".yml"))]
    assert texts
    assert rules(*texts) == []
    documents = [one for text in texts for one in yaml.safe_load_all(text) if one]
    deployment = next(one for one in documents if one["kind"] in ("Deployment", "StatefulSet"))
    deployment["kind"] = "Deployment"
    deployment["metadata"].setdefault("annotations", {})["vni"] = "true"
    pod = deployment["spec"]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = 120
    pod["containers"][0].setdefault("resources", {}).setdefault("limits", {})["smarter-devices/cxi0"] = "1"
    pod["hostNetwork"] = True
    found = rules(yaml.safe_dump_all(documents))
    assert found == [("high", "grace-beyond-quarantine"), ("high", "host-network-with-card"), ("note", "deployment-with-own-vni")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !!python/object/apply:os.system [ls]", "the tag"),
        ("kind: !Job x", "found the tag"),
        ("x: &a [1]\ny: [" + ", ".join(["*a"] * 1001) + "]", "found 1,001 aliases; expected at most 1,000"),
        ("a: " + "x" * (1 << 20), "expected at most 1,048,576"),
        ("a: &a [*a]", "alias"),
        ("[1, 2", "not YAML"),
        ("7", "found 7; expected an object"),
        ("a: b: c", "not YAML"),
    ],
)
def test_yaml_that_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        audit(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_the_command_line_says_what_is_bad_with_its_status(armillary_here: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(with_pod(hostNetwork=True))
    done = armillary_here("vni", "audit", str(path))
    assert done.returncode == 1
    assert "host-network-with-card" in done.stdout
    path.write_text(json.dumps(JOB))
    assert armillary_here("vni", "audit", str(path), "--json").stdout.strip() == "[]"
    path.write_text("a: !x 1")
    done = armillary_here("vni", "audit", str(path))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert armillary_here("vni", "audit", str(tmp_path / "missing.yaml")).returncode == 2


def test_odd_objects_do_not_upset_the_audit() -> None:
    for body in ("kind: 7\nspec: []\n", "kind: Job\nspec: {template: {spec: {containers: 3, volumes: [1]}}}\n", "kind: List\nitems: [1, {kind: Job}]\n",
                 "kind: Role\nrules: [{verbs: 3}]\n", "kind: RoleBinding\nroleRef: x\nsubjects: 3\n", "kind: DecoratorController\nspec: {hooks: vni}\n"):  # fmt: skip
        audit(body)
