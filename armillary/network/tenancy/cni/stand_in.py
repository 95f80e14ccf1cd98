"""A stand-in for the API server of Kubernetes, and a network namespace, so that the plugin can run as it would on a node."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..device.cxi import CxiDevice
from ..device.kept import keep


@contextlib.contextmanager
def api_server(objects: Mapping[str, Any]) -> Iterator[str]:
    """Answers GET with the object of a path, or 404; gives its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10

        def do_GET(self) -> None:
            found = objects.get(self.path)
            body = json.dumps(found if found is not None else {"kind": "Status", "code": 404}).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@contextlib.contextmanager
def network_namespace(folder: Path) -> Iterator[tuple[Path, bool]]:
    """A path as CNI_NETNS, and whether it is a real namespace; a file with an inode of its own where none may be made."""
    try:
        holder = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", "echo made; exec sleep 600"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        holder = None
    made = holder is not None and holder.stdout is not None and holder.stdout.readline() == b"made\n"
    try:
        if made and holder is not None:
            yield Path(f"/proc/{holder.pid}/ns/net"), True
        else:
            path = folder / "netns"
            path.touch()
            yield path, False
    finally:
        if holder is not None:
            holder.kill()
            holder.wait()
            if holder.stdout is not None:
                holder.stdout.close()


def pod_objects(namespace: str, pod: str, owner: str, uid: str, *, vni: int | None, annotation: str | None = "true",
                kind: tuple[str, str] = ("batch/v1", "Job"), grace_s: int = 30) -> dict[str, Any]:  # fmt: skip
    """A pod, its owner and the owner's Vni object by their paths, as `api_server` takes them."""
    from .cluster import PODS, RESOURCES, VNIS

    reference = {"apiVersion": kind[0], "kind": kind[1], "name": owner, "uid": uid, "controller": True}
    annotations = {} if annotation is None else {"vni": annotation}
    found: dict[str, Any] = {
        f"/{PODS.format(namespace)}/{pod}": {
            "kind": "Pod", "metadata": {"name": pod, "namespace": namespace, "ownerReferences": [reference]},
            "spec": {"terminationGracePeriodSeconds": grace_s},
        },
        f"/{RESOURCES[kind].format(namespace)}/{owner}": {
            "kind": kind[1], "metadata": {"name": owner, "uid": uid, "annotations": annotations},
        },
    }  # fmt: skip
    if vni is not None:
        found[f"/{VNIS.format(namespace)}/vni-{uid}"] = {"kind": "Vni", "metadata": {"ownerReferences": [reference]}, "spec": {"vni": vni}}
    return found


@dataclass(frozen=True)
class Node:
    """A folder with the files that the plugin of a node needs: a kubeconfig and a model of its cards."""

    folder: Path

    @staticmethod
    def made(folder: Path, server: str, cards: int = 1) -> Node:
        """Writes the files."""
        named = {"clusters": [{"name": "k", "cluster": {"server": server}}], "contexts": [{"name": "c", "context": {"cluster": "k"}}]}
        (folder / "kubeconfig").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "c", **named}))
        keep(folder / "cards.json", [CxiDevice() for _ in range(cards)])
        return Node(folder)

    def config(self, **more: Any) -> dict[str, Any]:
        """A network configuration for the plugin, with the result of the plugin before it."""
        address = {"address": "10.1.0.5/16", "interface": 0}
        previous = {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "x"}], "ips": [address]}
        return {
            "cniVersion": "1.0.0", "name": "pods", "type": "cxi", "kube_config_path": str(self.folder / "kubeconfig"),
            "model": str(self.folder / "cards.json"), "data_dir": str(self.folder / "data"), "prevResult": previous, **more,
        }  # fmt: skip

    def call(
        self, command: str, netns: str | Path, config: Mapping[str, Any] | bytes | None = None, *, namespace: str = "default",
        pod: str = "pod", container: str = "c0ffee", **environment: str,
    ) -> tuple[int, Any]:  # fmt: skip
        """Runs the plugin as a process; its exit status, and what it printed as JSON."""
        body = config if isinstance(config, bytes) else json.dumps(self.config() if config is None else config).encode()
        surroundings = {
            **os.environ, "CNI_COMMAND": command, "CNI_CONTAINERID": container, "CNI_NETNS": str(netns), "CNI_IFNAME": "eth0",
            "CNI_PATH": "/opt/cni/bin", "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={pod}", **environment,
        }  # fmt: skip
        program = [sys.executable, "-m", "armillary.network.tenancy.cni"]
        done = subprocess.run(program, input=body, capture_output=True, env=surroundings, timeout=60, check=False)
        return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None
