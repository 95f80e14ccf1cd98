"""The description of a GenAI service: what it runs, what it needs, where its weights are stored, and who may reach it.

It does not contain what differs between platforms (flags of a runtime, storage, exposure, lifetime), because each target derives that.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from armillary.errors import InputError, one_line, unknown

ENGINES = ("vllm", "sglang", "llama-cpp", "armillary")
#: Engines that can span nodes.
SPANNING = ("vllm", "sglang")
GIB = 1 << 30
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,45}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPTION = re.compile(r"[a-zA-Z][-a-zA-Z0-9_.]*")
_SECRET = re.compile(r"([a-z0-9]([-.a-z0-9]{0,250}[a-z0-9])?)(?::([-._a-zA-Z0-9]{1,250}))?")
_IMAGE = re.compile(
    r"(?P<name>[a-z0-9]+(?:[._/:-]+[a-z0-9]+)*?)(?::(?P<tag>[A-Za-z0-9_][-.A-Za-z0-9_]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_HOST = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*")
_TOKENS = re.compile(r"(hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA|ASIA|nvapi-|eyJ[A-Za-z0-9_-]{8,}\.|-----BEGIN )")

Positive = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1, max_length=4096)]
Name = Annotated[str, Field(min_length=1, max_length=47)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def looks_secret(value: str) -> bool:
    """Returns whether a literal looks like a token: it has a known prefix, or is long, without spaces, and of high entropy."""
    if _TOKENS.match(value):
        return True
    value = value.rstrip("=")
    if (
        len(value) < 24
        or not re.fullmatch(r"[A-Za-z0-9+/_=-]+", value)
        or re.fullmatch(r"[a-z_/-]+|[A-Z_/-]+|[0-9]+|([A-Z0-9]+_)+[A-Z0-9]+", value)
    ):
        return False
    counts = Counter(value)
    entropy = -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())
    return entropy > 3.8 and any(c.isdigit() for c in value) and any(c.isalpha() for c in value) and value.count("/") < 2


def _check_env(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"found the variable {name!r}; expected letters, digits and _")
        if "\0" in value or len(value) > 32768:
            raise ValueError(f"{name}: expected at most 32,768 characters, none of them NUL")
        if looks_secret(value):
            raise ValueError(f"{name}: looks like a secret; name one under secrets instead of writing it here")
    return env


def _check_secrets(secrets: dict[str, str]) -> dict[str, str]:
    for name, value in secrets.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"found the variable {name!r}; expected letters, digits and _")
        if looks_secret(value) or not _SECRET.fullmatch(value):
            raise ValueError(f"{name}: expected the name of a secret (name or name:key), not its value")
    return secrets


def _check_image(value: str) -> str:
    found = _IMAGE.fullmatch(value)
    if found is None:
        raise ValueError(f"found {value[:80]!r}; expected registry/name:tag or registry/name@sha256:…")
    if found["tag"] is None and found["digest"] is None:
        raise ValueError(f"found {value[:80]!r}, without tag or digest, so that it could change unnoticed; expected :tag or @sha256:…")
    return value


def _check_path(value: str | None) -> str | None:
    if value is not None and (not value.startswith("/") or not value.isprintable() or ".." in PurePosixPath(value).parts or ":" in value):
        raise ValueError(f"found {value[:80]!r}; expected an absolute path without .. and :")
    return value


class Secret(_Strict):
    """A secret's name and the key in it, but never its value."""

    name: str
    key: str

    @classmethod
    def of(cls, text: str) -> Secret:
        """Parses `name` or `name:key`."""
        found = _SECRET.fullmatch(text)
        if found is None:
            raise InputError(f"secret: found {one_line(text, 60)!r}; expected name or name:key")
        return cls(name=found[1], key=found[3] or "value")


class ModelSource(_Strict):
    """The source of the weights (`built-in` needs none), their identifier, and their size in bytes."""

    source: Literal["path", "hf", "s3", "built-in"]
    id: Text
    revision: str | None = None
    bytes: Annotated[int, Field(ge=0, le=1 << 50)] = 0

    @model_validator(mode="after")
    def _fits_its_source(self) -> Self:
        good = {
            "hf": re.fullmatch(r"[A-Za-z0-9][-.\w]*/[A-Za-z0-9][-.\w]*", self.id),
            "s3": re.fullmatch(r"s3://[a-z0-9][-.a-z0-9]{1,62}/[-./\w]+", self.id),
            "path": re.fullmatch(r"[\w][-./\w]*", self.id) and ".." not in self.id.split("/"),
            "built-in": re.fullmatch(r"[a-z][-a-z0-9]*", self.id),
        }[self.source]
        if not good:
            expected = {"hf": "owner/name", "s3": "s3://bucket/prefix", "path": "a path inside the cache", "built-in": "tiny-llama"}[
                self.source
            ]
            raise ValueError(f"id: found {self.id[:80]!r}; expected {expected} for the source {self.source}")
        if self.revision is not None and not re.fullmatch(r"[\w][-./\w]{0,127}", self.revision):
            raise ValueError(f"revision: found {self.revision[:80]!r}; expected a branch, tag or commit")
        return self

    @property
    def folder(self) -> str:
        """The folder of the weights inside the cache."""
        if self.source == "path":
            return self.id.rstrip("/")
        return self.id.removeprefix("s3://").strip("/").replace("/", "--")


class Parallel(_Strict):
    """How many GPUs one replica has: tensor × pipeline, over `nodes` nodes."""

    tensor: Positive = 1
    pipeline: Positive = 1
    nodes: Annotated[int, Field(ge=1, le=4096)] = 1


class Resources(_Strict):
    """The resources that one node must have."""

    gpus_per_node: Annotated[int, Field(ge=0, le=64)] = 1
    gpu: Literal["nvidia", "amd", "intel"] = "nvidia"
    cpus: Annotated[int, Field(ge=1, le=4096)] = 8
    memory_gib: Annotated[int, Field(ge=1, le=1 << 20)] = 64
    shm_gib: Annotated[int, Field(ge=0, le=1 << 20)] = 16


class KubernetesCache(_Strict):
    """The place of the weights on Kubernetes: a persistent volume claim, or a path on the node."""

    pvc: str | None = None
    host_path: str | None = None
    storage_class: str | None = None

    _path = field_validator("host_path")(_check_path)

    @field_validator("pvc", "storage_class")
    @classmethod
    def _a_name(cls, value: str | None) -> str | None:
        if value is not None and not _HOST.fullmatch(value):
            raise ValueError(f"found {value[:80]!r}; expected lower-case letters, digits, - and .")
        return value

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.pvc is not None and self.host_path is not None:
            raise ValueError("found both pvc and host_path; expected one of them")
        return self


class FolderCache(_Strict):
    """The folder of the weights, on a parallel file system that all nodes see (`lustre`) or on each host's own disk (`host_path`)."""

    lustre: str | None = None
    host_path: str | None = None

    _paths = field_validator("lustre", "host_path")(_check_path)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.lustre is None) == (self.host_path is None):
            raise ValueError("expected one of lustre and host_path")
        return self

    @property
    def path(self) -> str:
        """The folder."""
        return (self.lustre or self.host_path or "").rstrip("/")


class Cache(_Strict):
    """The place of the weights on each kind of platform."""

    kubernetes: KubernetesCache = KubernetesCache()
    hpc: FolderCache = FolderCache(lustre="/scratch/models")
    local: FolderCache = FolderCache(host_path="/var/cache/models")


class Network(_Strict):
    """The port, and who can reach it: the cluster, the world through an ingress, one person through a tunnel, or a login node."""

    port: Annotated[int, Field(ge=1, le=65535)] = 8000
    host: str | None = None
    tls_secret: str | None = None
    expose: Literal["cluster", "ingress", "tunnel", "login-node"] = "cluster"

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.host is not None and not _HOST.fullmatch(self.host):
            raise ValueError(f"host: found {self.host[:80]!r}; expected a host name")
        if self.tls_secret is not None and (looks_secret(self.tls_secret) or not _HOST.fullmatch(self.tls_secret)):
            raise ValueError("tls_secret: expected the name of a secret")
        if self.expose == "ingress" and self.host is None:
            raise ValueError("expose = ingress needs host")
        return self


class Auth(_Strict):
    """The secret that holds the API key; with None, whoever reaches the service is served."""

    api_key_secret: str | None = None

    @field_validator("api_key_secret")
    @classmethod
    def _a_name(cls, value: str | None) -> str | None:
        return None if value is None else _check_secrets({"api_key_secret": value})["api_key_secret"]


class Health(_Strict):
    """The path that tells whether the service is healthy, how often it is asked, and how long the weights may take to load."""

    path: Annotated[str, Field(pattern=r"^/[-./\w]*$")] = "/health"
    start_s: Annotated[int, Field(ge=1, le=86400)] = 600
    period_s: Annotated[int, Field(ge=1, le=3600)] = 10


class Scale(_Strict):
    """The number of replicas, and the metric by which it follows the load: `cpu`, or one that the cluster's metrics adapter serves."""

    min: Annotated[int, Field(ge=1, le=10_000)] = 1
    max: Annotated[int, Field(ge=1, le=10_000)] = 1
    metric: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")] = "vllm_num_requests_waiting"
    target: Annotated[int, Field(ge=1, le=1_000_000)] = 8

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"found min {self.min} above max {self.max}")
        return self


class Hpc(_Strict):
    """The settings of a batch system: partition, account, the partition's time limit; `runtime = "host"` uses no container."""

    partition: Annotated[str, Field(pattern=r"^[-.\w]+$")] | None = None
    account: Annotated[str, Field(pattern=r"^[-.\w]+$")] | None = None
    limit_h: Annotated[float, Field(gt=0, le=8784)] | None = None
    renew: bool = False
    selinux: bool = False
    runtime: Literal["container", "host"] = "container"


class Part(_Strict):
    """A service beside the engine, such as a vector store or a user interface. `@url(name)` in env becomes another part's address."""

    name: Name
    image: str
    port: Annotated[int, Field(ge=1, le=65535)]
    command: list[Text]
    env: dict[str, str] = {}
    secrets: dict[str, str] = {}
    data: str | None = None  # a folder in the container that must outlive it
    data_gib: Annotated[int, Field(ge=1, le=1 << 20)] = 10

    _env = field_validator("env")(_check_env)
    _secrets = field_validator("secrets")(_check_secrets)
    _image = field_validator("image")(_check_image)
    _data = field_validator("data")(_check_path)


class Service(_Strict):
    """One description. `read` reads it from a file, and `render` makes the files of a platform."""

    name: Name
    engine: Literal["vllm", "sglang", "llama-cpp", "armillary"]
    engine_args: dict[str, str | int | float | bool] = {}
    image: str
    image_pull_secret: str | None = None
    model: ModelSource
    parallel: Parallel = Parallel()
    resources: Resources = Resources()
    cache: Cache = Cache()
    network: Network = Network()
    auth: Auth = Auth()
    env: dict[str, str] = {}
    secrets: dict[str, str] = {}
    health: Health = Health()
    scale: Scale = Scale()
    hpc: Hpc = Hpc()
    lifetime_h: Annotated[float, Field(gt=0, le=8784)] = 24.0
    offline: bool = True
    user: Annotated[int, Field(ge=1, le=2**31)] | Literal["rootless"] = 1000
    parts: list[Part] = []

    _env = field_validator("env")(_check_env)
    _secrets = field_validator("secrets")(_check_secrets)
    _image = field_validator("image")(_check_image)

    @field_validator("lifetime_h", mode="before")
    @classmethod
    def _whole_hours_are_hours(cls, value: Any) -> Any:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("engine_args")
    @classmethod
    def _options(cls, value: dict[str, Any]) -> dict[str, Any]:
        for option, given in value.items():
            if not _OPTION.fullmatch(option):
                raise ValueError(f"found the option {option[:60]!r}; expected its name without dashes in front")
            if option in ("host", "port", "api-key", "tensor-parallel-size", "pipeline-parallel-size", "served-model-name", "model"):
                raise ValueError(f"{option}: it is derived from the description; leave it out")
            if isinstance(given, str) and looks_secret(given):
                raise ValueError(f"{option}: looks like a secret; name one under secrets instead of writing it here")
        return value

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        for name in (self.name, *(p.name for p in self.parts)):
            if not _NAME.fullmatch(name):
                raise ValueError(f"name: found {name[:60]!r}; expected lower-case letters, digits and -, beginning with a letter")
        names = [self.name, *(p.name for p in self.parts)]
        if len(set(names)) < len(names):
            raise ValueError("parts: two parts have the same name, or one has that of the service")
        ports = [self.network.port, *(p.port for p in self.parts)]
        if len(set(ports)) < len(ports):
            raise ValueError("parts: two parts have the same port, or one has that of the service, and they may share a node")
        if self.image_pull_secret is not None and (looks_secret(self.image_pull_secret) or not _HOST.fullmatch(self.image_pull_secret)):
            raise ValueError("image_pull_secret: expected the name of a secret")
        self._check_devices()
        if set(self.env) & set(self.secrets):
            raise ValueError(f"env and secrets both have {min(set(self.env) & set(self.secrets))}")
        if self.hpc.limit_h is not None and self.lifetime_h > self.hpc.limit_h:
            raise ValueError(f"lifetime_h: found {self.lifetime_h:g}; the partition's limit is {self.hpc.limit_h:g} h")
        if (self.model.source == "built-in") != (self.engine == "armillary"):
            raise ValueError("model.source: built-in models are for the engine armillary, which serves no others here")
        for part in self.parts:
            for value in part.env.values():
                for to in re.findall(r"@url\(([^)]*)\)", value):
                    if to not in names:
                        raise ValueError(f"parts.{part.name}.env: @url({to[:40]}) names no part")
        return self

    def _check_devices(self) -> None:
        p, r = self.parallel, self.resources
        if p.nodes > 1 and self.engine not in SPANNING:
            raise ValueError(f"parallel.nodes: found {p.nodes}; {self.engine} runs on one node (vllm and sglang can span several)")
        if p.nodes > 1 and self.scale.max > 1:
            raise ValueError("scale.max: a replica that spans nodes is not scaled; expected 1")
        if p.nodes > 1 and self.parts:
            raise ValueError("parts: a replica that spans nodes can have none; expected nodes = 1")
        wanted, there = p.tensor * p.pipeline, r.gpus_per_node * p.nodes
        if r.gpus_per_node == 0:
            if self.engine in SPANNING or wanted > 1:
                raise ValueError(f"resources.gpus_per_node: found 0; {self.engine} with tensor × pipeline = {wanted} needs GPUs")
        elif wanted != there:
            said = f"tensor × pipeline = {p.tensor} × {p.pipeline} = {wanted}"
            raise ValueError(f"parallel: {said}, but nodes × gpus_per_node = {p.nodes} × {r.gpus_per_node} = {there}")

    @classmethod
    def parse(cls, content: Any, where: str = "description") -> Service:
        """Checks plain data and returns the service; every fault becomes a line of the error."""
        if not isinstance(content, dict):
            raise InputError(f"found {type(content).__name__}; expected a table of settings", where=where)
        try:
            return cls.model_validate(content)
        except ValidationError as problem:
            raise InputError.several(_fault(e, where) for e in problem.errors(include_url=False)) from None

    @classmethod
    def read(cls, path: str | Path) -> Service:
        """Reads a file (TOML, YAML, JSON, Compose, or a text with a `vllm serve` or `docker run` line), or a built-in one by name."""
        from .files import read

        return read(path)

    def render(self, target: str) -> dict[str, str]:
        """Returns the files of a target as a mapping from relative path to text; equal descriptions give equal files."""
        from ..rendering.targets import render

        return render(self, target)

    @functools.cached_property
    def digest(self) -> str:
        """Hex SHA-256 of the description's content, which does not depend on how the file was written."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()

    @property
    def api_key(self) -> Secret | None:
        """The secret with the API key."""
        return None if self.auth.api_key_secret is None else Secret.of(self.auth.api_key_secret)

    def environment(self) -> dict[str, str]:
        """Returns the plain variables of the engine: those of the description, and those that keep it from calling out."""
        quiet = {
            "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
        }  # fmt: skip
        return dict(sorted(((quiet if self.offline else {}) | self.env).items()))

    def to_toml(self) -> str:
        """Returns the description as a TOML file, without the settings that are at their defaults."""
        return _toml(self.model_dump(mode="json", exclude_defaults=True))


def _fault(error: Any, where: str) -> str:
    place = ".".join(str(p) for p in error["loc"] if not (isinstance(p, str) and (p.startswith(("constrained", "literal", "function")))))
    if error["type"] == "extra_forbidden":
        return str(unknown("key", str(error["loc"][-1]), _known(error["loc"][:-1]), where=f"{where}: {place}"))
    message = error["msg"].removeprefix("Value error, ")
    found = error.get("input")
    if error["type"] in ("value_error", "missing") or isinstance(found, dict | list | BaseModel):
        return f"{where}: {place}: {message}" if place else f"{where}: {message}"
    return f"{where}: {place}: found {one_line(repr(found), 60)}; {message[:1].lower()}{message[1:]}"


def _known(place: tuple[Any, ...]) -> list[str]:
    model: Any = Service
    for step in place:
        if isinstance(step, int):
            continue
        annotation = model.model_fields[step].annotation if step in getattr(model, "model_fields", {}) else None
        model = Part if step == "parts" else annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return []
    return list(model.model_fields)


def _toml(content: dict[str, Any]) -> str:
    """Returns plain data as TOML, with values before tables."""

    def key(name: str) -> str:
        return name if re.fullmatch(r"[-\w]+", name) else json.dumps(name)

    def value(x: Any) -> str:
        if isinstance(x, bool):
            return "true" if x else "false"
        if isinstance(x, list):
            return "[" + ", ".join(value(v) for v in x) + "]"
        return json.dumps(x) if isinstance(x, str) else repr(x)

    lines: list[str] = []

    def table(at: str, content: dict[str, Any]) -> None:
        plain = {k: v for k, v in content.items() if not isinstance(v, dict) and not (isinstance(v, list) and v and isinstance(v[0], dict))}
        lines.extend(f"{key(k)} = {value(v)}" for k, v in plain.items())
        for k, v in content.items():
            if isinstance(v, dict) and v:
                lines.extend(("", f"[{at}{key(k)}]"))
                table(f"{at}{key(k)}.", v)
            elif isinstance(v, list) and v and isinstance(v[0], dict):
                for entry in v:
                    lines.extend(("", f"[[{at}{key(k)}]]"))
                    table(f"{at}{key(k)}.", entry)

    table("", content)
    return "\n".join(lines) + "\n"
