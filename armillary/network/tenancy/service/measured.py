"""The VNI service and the plugin as they are, measured: requests per second over HTTP on the loopback, and one run of the plugin."""

from __future__ import annotations

import http.client
import json
import resource
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from armillary.errors import InputError

from ..cni.stand_in import Node, api_server, network_namespace, pod_objects
from .database import QUARANTINE_S, VniDatabase
from .server import VniServer
from .vni_service import VniService

CLIENTS = 8


def requests_per_s(service: VniService, jobs: int, clients: int = CLIENTS) -> float:
    """Requests per second of `clients` connections that sync and finalize `jobs` jobs, each twice, as the controller does."""
    failed: list[str] = []

    def client(first: int) -> None:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for job in range(first, jobs, clients):
            meta = {"name": f"job-{job}", "namespace": f"tenant-{job % 7}", "uid": f"uid-{job}", "annotations": {"vni": "true"}}
            what = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}
            body = {"object": what, "attachments": {"Vni.horizon-opencube.eu/v1": {}}}
            for path in ("/sync", "/sync", "/finalize", "/finalize"):
                line.request("POST", path, json.dumps(body), {"content-type": "application/json"})
                answer = line.getresponse()
                said = answer.read()
                if answer.status != 200:
                    failed.append(said.decode("utf-8", "replace"))
        line.close()

    with VniServer(service, port=0) as server:
        port = int(server.url.rpartition(":")[2])
        threads = [threading.Thread(target=client, args=(first,)) for first in range(clients)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken = time.perf_counter() - began
    if failed:
        raise InputError(f"the service refused: {failed[0][:200]}")
    return 4 * jobs / taken


def hazards(database: VniDatabase, rest_s: float = QUARANTINE_S) -> int:
    """Acquisitions of a VNI within `rest_s` after its release, by the log."""
    released: dict[int, float] = {}
    found = 0
    for at, operation, _, _, vni, _ in database.log():
        if operation == "release":
            released[vni] = at
        elif operation == "acquire" and at - released.get(vni, float("-inf")) < rest_s:
            found += 1
    return found


def plugin_seconds(runs: int) -> tuple[float, bool]:
    """CPU seconds of one ADD of the plugin as a process, and whether the namespace was a real one."""
    objects: Mapping[str, Any] = pod_objects("default", "pod", "job", "u1", vni=137)
    with tempfile.TemporaryDirectory(prefix="armillary-cni-") as name, api_server(objects) as url:
        node = Node.made(Path(name), url)
        with network_namespace(Path(name)) as (netns, real):
            spent = 0.0
            for number in range(runs):
                before = _children_s()
                status, said = node.call("ADD", netns)
                if number or runs == 1:  # the first one also reads the program from the disk
                    spent += _children_s() - before
                if status:
                    raise InputError(f"the plugin failed: {said}")
                node.call("DEL", netns)
    return spent / max(1, runs - 1), real


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
