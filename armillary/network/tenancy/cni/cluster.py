"""What the plugin asks of the Kubernetes API: a pod, its owner, and the owner's Vni object."""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError, one_line

if TYPE_CHECKING:
    import http.client

#: The resource of a kind of owner, by API version.
RESOURCES = {
    ("apps/v1", "Deployment"): "apis/apps/v1/namespaces/{}/deployments",
    ("apps/v1", "DaemonSet"): "apis/apps/v1/namespaces/{}/daemonsets",
    ("apps/v1", "ReplicaSet"): "apis/apps/v1/namespaces/{}/replicasets",
    ("batch/v1", "Job"): "apis/batch/v1/namespaces/{}/jobs",
    ("batch.volcano.sh/v1alpha1", "Job"): "apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs",
}
VNIS = "apis/horizon-opencube.eu/v1/namespaces/{}/vnis"
PODS = "api/v1/namespaces/{}/pods"
#: Seconds for one answer, and bytes of one.
ANSWER_S, MOST_BYTES, MOST_CONFIG = 5.0, 4 << 20, 1 << 20
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class Unreachable(Exception):
    """The API did not answer in time, or said that it cannot now."""


class NotThere(Exception):
    """There is no such object."""


class Forbidden(Exception):
    """The API does not let the plugin read it."""


class Cluster:
    """The API server and how to talk to it, over one connection until the context is left.

    credentials are headers; the other three are for TLS, as PEM texts.
    """

    def __init__(
        self, server: str, credentials: Mapping[str, str], authority: str | None = None, certificate: str | None = None,
        key: str | None = None,
    ) -> None:  # fmt: skip
        self.server, self.credentials = server, dict(credentials)
        self._authority, self._certificate, self._key = authority, certificate, key
        self._parts = urllib.parse.urlsplit(server)
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        """One object; `kind` is one of the paths above."""
        import http.client

        for what in (namespace, name):
            if not NAME.fullmatch(what):
                raise NotThere(f'found the name "{one_line(what, 60)}"; expected a DNS name')
        path = "/" + kind.format(namespace) + "/" + urllib.parse.quote(name, safe="")
        try:
            if self._connection is None:
                self._connection = self._connected()
            self._connection.request("GET", self._parts.path.rstrip("/") + path, headers={"Accept": "application/json", **self.credentials})
            answer = self._connection.getresponse()
            body = answer.read(MOST_BYTES + 1)
        except (OSError, http.client.HTTPException) as problem:
            raise Unreachable(f"the API server does not answer ({one_line(str(problem), 80)})") from None
        return _object(answer.status, body, path)

    def _connected(self) -> http.client.HTTPConnection:
        import http.client

        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port or 443, timeout=ANSWER_S, context=self._tls())
        return http.client.HTTPConnection(host, port or 80, timeout=ANSWER_S)

    def _tls(self) -> Any:
        import ssl
        import tempfile

        context = ssl.create_default_context(cadata=self._authority)
        if self._certificate and self._key:
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # ssl takes these from files only
                file.write(f"{self._certificate}\n{self._key}\n")
                file.flush()
                context.load_cert_chain(file.name)
        return context


def _object(status: int, body: bytes, path: str) -> dict[str, Any]:
    if status == 404:
        raise NotThere(f"there is no {path}")
    if status in (401, 403):
        raise Forbidden(f"{path} may not be read ({status})")
    if status != 200 or len(body) > MOST_BYTES:
        raise Unreachable(f"the API server answered {status}")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Unreachable("the API server answered no JSON object")
    return found


def read_kubeconfig(path: Path) -> Cluster:
    """The cluster of the current context of a kubeconfig file."""
    from armillary.files import parse_json, read_text

    where = str(path)
    text = read_text(path, limit=MOST_CONFIG)
    if text.lstrip().startswith("{"):  # JSON is YAML too, and is read in a tenth of the time.
        config = parse_json(text, where)
    else:
        from armillary.files import parse_yaml

        documents = parse_yaml(text, where, limit=MOST_CONFIG)
        config = documents[0] if len(documents) == 1 else None
    if not isinstance(config, dict):
        raise InputError("found no kubeconfig", where=where)
    context = _named(config, "contexts", config.get("current-context"), "context", where)
    cluster = _named(config, "clusters", context.get("cluster"), "cluster", where)
    user = _named(config, "users", context.get("user"), "user", where) if context.get("user") else {}
    server = cluster.get("server")
    try:
        parts = urllib.parse.urlsplit(server if isinstance(server, str) else "")
        parts.port  # noqa: B018  raises for what is no port
    except ValueError:
        parts = urllib.parse.urlsplit("")
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise InputError(f"found the server {one_line(repr(server), 60)}; expected https://host:port", where=where)
    if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise InputError("found a server without TLS that is not on this machine; expected https", where=where)
    if cluster.get("insecure-skip-tls-verify"):
        raise InputError("found insecure-skip-tls-verify; expected a certificate authority", where=where)
    token = user.get("token")
    if token is None and isinstance(user.get("tokenFile"), str):
        token = _pem(path, user["tokenFile"], where)
    credentials = {"Authorization": f"Bearer {token.strip()}"} if isinstance(token, str) else {}
    pems = [_given(path, part, name, where)
            for part, name in ((cluster, "certificate-authority"), (user, "client-certificate"), (user, "client-key"))]  # fmt: skip
    return Cluster(str(server), credentials, *pems)


def _named(config: dict[str, Any], listed: str, name: object, what: str, where: str) -> dict[str, Any]:
    there = config.get(listed)
    for one in there if isinstance(there, list) else []:
        if isinstance(one, dict) and one.get("name") == name and isinstance(one.get(what), dict):
            found: dict[str, Any] = one[what]
            return found
    raise InputError(f"found no {what} {one_line(repr(name), 60)}; expected one among {listed}", where=where)


def _given(path: Path, part: dict[str, Any], name: str, where: str) -> str | None:
    inside = part.get(f"{name}-data")
    if isinstance(inside, str):
        try:
            return base64.b64decode(inside, validate=True).decode()
        except ValueError:
            raise InputError("found something else; expected base64", where=f"{where}: {name}-data") from None
    return _pem(path, part[name], where) if isinstance(part.get(name), str) else None


def _pem(path: Path, name: str, where: str) -> str:
    from armillary.files import read_text

    return read_text(path.parent / name, limit=1 << 20)
