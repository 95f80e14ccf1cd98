"""The configuration with which a kube-scheduler asks an extender."""

from __future__ import annotations

import ipaddress
import urllib.parse
from typing import Any

from armillary.errors import InputError, one_line


def extender_config(
    url: str, *, weight: int = 1, node_cache_capable: bool = True, http_timeout_s: float = 5.0, profile: str = "default-scheduler",
    ca_file: str = "",
) -> dict[str, Any]:  # fmt: skip
    """A KubeSchedulerConfiguration (v1) whose scheduler asks the extender at `url`; write it as JSON, which is YAML too.

    node_cache_capable: the scheduler sends the names of nodes only, so the extender must have been given the nodes. The extender is
    `ignorable`: pods are scheduled without it if it does not answer within `http_timeout_s` seconds.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InputError(f'found "{one_line(url, 60)}"; expected http://host:port or https://host:port', where="url")
    if not 1 <= weight <= 1_000_000 or not 0.001 <= http_timeout_s <= 600:
        raise InputError(f"found weight {weight} and {http_timeout_s:g} s; expected 1 to 1,000,000 and 0.001 to 600 s")
    extender: dict[str, Any] = {
        "urlPrefix": url.rstrip("/"), "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": weight,
        "nodeCacheCapable": node_cache_capable, "ignorable": True, "httpTimeout": f"{round(1000 * http_timeout_s)}ms",
        "enableHTTPS": parts.scheme == "https",
    }  # fmt: skip
    if ca_file:
        extender["tlsConfig"] = {"caFile": ca_file}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": not _loopback(parts.hostname)}, "profiles": [{"schedulerName": profile}], "extenders": [extender],
    }  # fmt: skip


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
