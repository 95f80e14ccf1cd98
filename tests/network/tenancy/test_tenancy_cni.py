"""The CNI plugin as a process, against a stand-in for the API server, a real network namespace where one may be made, and a model of cards."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from armillary.errors import InputError
from armillary.network.tenancy import Member, Node, Process, api_server, network_namespace, pod_objects
from armillary.network.tenancy.cni.cluster import read_kubeconfig
from armillary.network.tenancy.cni.plugin import main
from armillary.network.tenancy.device.kept import kept_devices

UID = "u1"


class Bench:
    """A node, its API objects, and a namespace."""

    def __init__(self, folder: Path, objects: dict[str, Any], url: str, netns: Path, real: bool) -> None:
        self.folder, self.objects, self.netns, self.real = folder, objects, netns, real
        self.node = Node.made(folder, url, cards=2)
        self.inode = os.stat(netns).st_ino

    def put(self, **options: Any) -> None:
        """Other objects than the usual ones."""
        self.objects.clear()
        self.objects.update(pod_objects("default", "pod", "job", UID, **{"vni": 137, **options}))

    def call(self, command: str, netns: Path | str | None = None, config: Any = None, **more: str) -> tuple[int, Any]:
        """Runs the plugin in this process, which is faster and otherwise the same; `test_as_a_process` runs it as one."""
        surroundings = {
            "CNI_COMMAND": command, "CNI_CONTAINERID": "c0ffee", "CNI_NETNS": str(self.netns if netns is None else netns), "CNI_IFNAME": "eth0",
            "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod", **more,
        }  # fmt: skip
        body = config if isinstance(config, bytes) else json.dumps(self.node.config(retry_s=0) if config is None else config).encode()
        out = io.StringIO()
        status = main(io.BytesIO(body), surroundings, out)
        return status, json.loads(out.getvalue()) if out.getvalue() else None

    def services(self, card: int = 0) -> list[tuple[Any, ...]]:
        """(members, VNIs) of the services of a card, the default one aside."""
        with kept_devices(self.folder / "cards.json") as cards:
            return [(one.what.members, one.what.vnis) for one in cards[card].services.values() if one.id != 1]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    objects: dict[str, Any] = {}
    with api_server(objects) as url, network_namespace(tmp_path) as (netns, real):
        made = Bench(tmp_path, objects, url, netns, real)
        made.put()
        yield made


def refused(answer: tuple[int, Any], code: int, said: str = "") -> None:
    status, body = answer
    assert status == 1
    assert set(body) == {"cniVersion", "code", "msg"}
    assert body["code"] == code, body
    assert said in body["msg"]
    assert "\n" not in body["msg"]


def test_as_a_process(bench: Bench) -> None:
    """The whole life of a pod's network, through the command line."""
    config = bench.node.config()
    assert bench.node.call("VERSION", "", b"{}") == (0, {"cniVersion": "1.0.0", "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0"]})
    assert bench.node.call("ADD", bench.netns, config) == (0, config["prevResult"])
    for card in (0, 1):
        assert bench.services(card) == [((Member("netns", bench.inode),), (137,))]
    assert bench.node.call("CHECK", bench.netns, config) == (0, None)
    assert bench.node.call("DEL", bench.netns, config) == (0, None)
    assert bench.services() == []
    status, said = bench.node.call("CHECK", bench.netns, config)
    assert (status, said["code"]) == (1, 101)
    status, said = bench.node.call("ADD", bench.netns, b"{not json")
    assert (status, said["code"]) == (1, 6)


def test_the_namespace_is_a_real_one_where_that_is_allowed(bench: Bench) -> None:
    if not bench.real:
        pytest.skip("no network namespace may be made here")
    assert bench.call("ADD")[0] == 0
    found = subprocess.run(["readlink", str(bench.netns)], capture_output=True, text=True, check=True).stdout
    number = int(re.findall(r"net:\[(\d+)\]", found)[0])
    with kept_devices(bench.folder / "cards.json") as (card, _):
        card.open_endpoint(Process(0, 0, number), 2, 137)


def test_the_result_of_the_plugin_before_is_passed_through(bench: Bench) -> None:
    previous = {"cniVersion": "0.4.0", "ips": [], "x": {"ä": [1, None, 1.5, "\u2028"]}, "dns": {}}
    assert bench.call("ADD", config=bench.node.config(prevResult=previous)) == (0, previous)
    assert bench.call("ADD", config=bench.node.config(prevResult=previous)) == (0, previous), "twice is as once"
    assert len(bench.services()) == 1


def test_delete_twice_without_add_and_without_a_namespace(bench: Bench) -> None:
    assert bench.call("DEL") == (0, None)
    assert bench.call("ADD")[0] == 0
    assert bench.call("DEL", netns="") == (0, None)
    assert bench.services() == [], "what ADD made is found although the namespace is gone"
    assert bench.call("DEL", netns="/no/such/netns") == (0, None)
    assert bench.call("DEL") == (0, None)


def test_delete_leaves_what_belongs_to_another_pod_by_now(bench: Bench) -> None:
    """The namespace is gone, and the kernel gave its number, and the driver its service, to a new pod."""
    assert bench.call("ADD")[0] == 0
    bench.put(vni=200)
    assert bench.call("ADD", CNI_CONTAINERID="new")[0] == 0
    assert bench.services() == [((Member("netns", bench.inode),), (200,))]
    assert bench.call("DEL", netns="") == (0, None)
    assert bench.services() == [((Member("netns", bench.inode),), (200,))]


def test_a_pod_without_a_vni_does_not_inherit_one(bench: Bench) -> None:
    assert bench.call("ADD")[0] == 0
    bench.put(annotation=None, vni=None)
    assert bench.call("CHECK", CNI_CONTAINERID="new")[0] == 1
    assert bench.call("ADD", CNI_CONTAINERID="new")[0] == 0
    assert bench.services() == []
    assert bench.call("CHECK", CNI_CONTAINERID="new") == (0, None)


@pytest.mark.parametrize(
    "kind", [("apps/v1", "ReplicaSet"), ("apps/v1", "DaemonSet"), ("apps/v1", "Deployment"), ("batch.volcano.sh/v1alpha1", "Job")]
)
def test_every_kind_of_owner(bench: Bench, kind: tuple[str, str]) -> None:
    bench.put(kind=kind)
    assert bench.call("ADD")[0] == 0
    assert len(bench.services()) == 1


def test_a_claim_is_as_good_as_a_vni_of_its_own(bench: Bench) -> None:
    bench.put(annotation="mesh", vni=300)
    assert bench.call("ADD")[0] == 0
    assert bench.services()[0][1] == (300,)


def test_a_vni_that_is_not_there_yet_is_asked_for_again(bench: Bench) -> None:
    bench.put(vni=None)
    refused(bench.call("ADD"), 11, "is not there yet")
    assert bench.services() == []
    bench.put()
    assert bench.call("ADD")[0] == 0


def test_pods_that_could_outlive_the_quarantine_are_refused(bench: Bench) -> None:
    bench.put(grace_s=31)
    refused(bench.call("ADD"), 100, "terminationGracePeriodSeconds: found 31; expected at most 30")


def test_an_owner_that_is_another_object_of_the_same_name(bench: Bench) -> None:
    path = next(key for key in bench.objects if key.endswith("/jobs/job"))
    bench.objects[path]["metadata"]["uid"] = "u2"
    refused(bench.call("ADD"), 100, "another object of the same name")


@pytest.mark.parametrize("spec", [{"vni": 0}, {"vni": 65536}, {"vni": "137"}, {"vni": 1}, {"vni": 10}, {"vni": True}, {}, {"vni": 1.5}])
def test_vni_objects_with_no_number(bench: Bench, spec: Any) -> None:
    path = next(key for key in bench.objects if "/vnis/" in key)
    bench.objects[path]["spec"] = spec
    refused(bench.call("ADD"), 100, "expected 2 to 65535 without 10")


def test_a_vni_object_that_belongs_to_another(bench: Bench) -> None:
    path = next(key for key in bench.objects if "/vnis/" in key)
    bench.objects[path]["metadata"]["ownerReferences"] = [{"uid": "another"}]
    refused(bench.call("ADD"), 100, "belongs to another object")


def test_a_service_in_use_is_tried_five_times(bench: Bench) -> None:
    assert bench.call("ADD")[0] == 0
    with kept_devices(bench.folder / "cards.json") as (card, _):
        opened = card.open_endpoint(Process(1, 1, bench.inode), 2, 137)
    refused(bench.call("DEL"), 11, "still in use")
    bench.put(vni=200)
    refused(bench.call("ADD", CNI_CONTAINERID="new"), 11, "EBUSY")
    with kept_devices(bench.folder / "cards.json") as (card, _):
        card.close(opened)
    assert bench.call("DEL") == (0, None)
    assert bench.services() == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"a": NaN}', b"[" * 100_000, b" " * ((1 << 20) + 1)])
def test_what_is_no_configuration_is_error_6(bench: Bench, body: bytes) -> None:
    refused(bench.call("ADD", config=body), 6)


def test_every_other_fault_has_its_code(bench: Bench) -> None:
    config = bench.node.config()
    refused(bench.call("ADD", config={**config, "cniVersion": "9.9.9"}), 1, "cniVersion")
    refused(bench.call("GC"), 4, "CNI_COMMAND")
    refused(bench.call("ADD", CNI_CONTAINERID="../x"), 4, "CNI_CONTAINERID")
    refused(bench.call("ADD", CNI_IFNAME="a/b"), 4, "CNI_IFNAME")
    refused(bench.call("ADD", netns=""), 4, "CNI_NETNS")
    refused(bench.call("ADD", CNI_ARGS="K8S_POD_NAME=pod"), 4, "K8S_POD_NAMESPACE")
    refused(bench.call("ADD", netns="/no/such/netns"), 3, "found no namespace")
    without = {key: value for key, value in config.items() if key != "prevResult"}
    refused(bench.call("ADD", config=without), 7, "prevResult")
    refused(bench.call("ADD", config={**config, "kube_config_path": ""}), 7, "kube_config_path")
    refused(bench.call("ADD", config={**config, "kube_config_path": "/no/such/file"}), 7, "/no/such/file")
    refused(bench.call("ADD", config={**config, "model": str(bench.folder / "kubeconfig")}), 7, "no file of cards")
    refused(bench.call("ADD", CNI_ARGS="K8S_POD_NAMESPACE=../x;K8S_POD_NAME=pod"), 11, "expected a DNS name")
    bench.objects.clear()
    refused(bench.call("ADD"), 11, "there is no")
    assert bench.services() == []


def test_an_api_server_that_is_not_there_is_asked_again(bench: Bench) -> None:
    config = json.loads((bench.folder / "kubeconfig").read_text())
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:1"
    (bench.folder / "kubeconfig").write_text(json.dumps(config))
    refused(bench.call("ADD"), 11, "does not answer")


def test_no_card_is_an_error_only_if_a_vni_is_wanted(bench: Bench) -> None:
    if Path("/sys/class/cxi").exists():
        pytest.skip("this machine has a card")
    config = {key: value for key, value in bench.node.config().items() if key != "model"}
    refused(bench.call("ADD", config=config), 5, "found no card")
    bench.put(annotation=None, vni=None)
    assert bench.call("ADD", config=config)[0] == 0


def test_calls_are_logged_if_wanted(bench: Bench) -> None:
    config = bench.node.config(enable_log=True, log_dir=str(bench.folder))
    bench.call("ADD", config=config)
    bench.put(grace_s=99)
    bench.call("ADD", config=config)
    lines = (bench.folder / "cxi-cni.log").read_text().splitlines()
    assert lines[0] == "ADD c0ffee ok"
    assert lines[1].startswith("ADD c0ffee error 100: ")


def test_a_plugin_that_is_killed_leaves_the_old_cards_or_the_new_ones(bench: Bench) -> None:
    """SIGKILL at many moments: the file of cards can always be read, and another ADD and DEL leave nothing behind."""
    surroundings = {
        **os.environ, "CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c0ffee", "CNI_NETNS": str(bench.netns), "CNI_IFNAME": "eth0",
        "CNI_ARGS": "K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod",
    }  # fmt: skip
    dying = (
        "import os, signal, sys\n"
        "import armillary.network.tenancy.cni.plugin as plugin, armillary.network.tenancy.device.kept as kept\n"
        "where, left = sys.argv[1], []\n"
        "def die(*a, **k): os.kill(os.getpid(), signal.SIGKILL)\n"
        "if where == 'record': plugin._write_down = die\n"
        "if where == 'cards': kept._replace = die\n"
        "if where == 'rename': kept.Path.replace = die\n"
        "sys.exit(plugin.main())\n"
    )
    for where in ("record", "cards", "rename"):
        done = subprocess.run(
            [sys.executable, "-c", dying, where], input=json.dumps(bench.node.config()).encode(), env=surroundings, check=False
        )
        assert done.returncode == -signal.SIGKILL
        assert bench.services() == [], "nothing of a killed ADD is there"
        assert bench.call("ADD")[0] == 0
        assert len(bench.services()) == 1
        assert bench.call("DEL") == (0, None)
        assert bench.services() == []


# The kubeconfig

AUTHORITY = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"


def test_a_kubeconfig_in_yaml(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0ken\n")
    path = tmp_path / "config"
    path.write_text(
        "apiVersion: v1\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: k, user: u}}]\nusers: [{name: u, user: {tokenFile: token}}]\n"
        f"clusters: [{{name: k, cluster: {{server: 'https://10.0.0.1:6443', certificate-authority-data: {base64.b64encode(AUTHORITY.encode()).decode()}}}}}]\n"
    )
    cluster = read_kubeconfig(path)
    assert cluster.server == "https://10.0.0.1:6443"
    assert cluster.credentials == {"Authorization": "Bearer t0ken"}
    assert cluster._authority == AUTHORITY


@pytest.mark.parametrize(
    "cluster", [{"server": "http://10.0.0.1"}, {"server": "ftp://x"}, {"server": 7}, {}, {"server": "https://x:99999"},
                {"server": "https://x", "insecure-skip-tls-verify": True}, {"server": "https://x", "certificate-authority-data": "%%%"},
                {"server": "https://x", "certificate-authority": "missing.pem"}]
)  # fmt: skip
def test_a_kubeconfig_that_cannot_be_used(tmp_path: Path, cluster: Any) -> None:
    path = tmp_path / "config"
    path.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k"}}],
                "clusters": [{"name": "k", "cluster": cluster}],
            }
        )
    )
    with pytest.raises(InputError) as caught:
        read_kubeconfig(path)
    assert "\n" not in str(caught.value)
    for content in ("", "[]", "{}", "a: !!python/name:os.system x", '{"current-context": "c", "contexts": 3}'):
        path.write_text(content)
        with pytest.raises(InputError):
            read_kubeconfig(path)


def test_the_stand_in_lets_nothing_run_on(tmp_path: Path) -> None:
    with contextlib.suppress(ZeroDivisionError), network_namespace(tmp_path) as (netns, real):
        holder = int(netns.parts[2]) if real else None
        raise ZeroDivisionError
    assert holder is None or not Path(f"/proc/{holder}/ns").exists()
