"""Do the rendered files hold what the description says? Each setting is searched for in the words of the files.

This module shares no code with the renderers. It splits YAML and shell into words, including scripts inside a word, and searches for the
platform's own form of a setting (`--gpus-per-node=4`, `nvidia.com/gpu: "4"`). A setting that a platform does not know is not counted.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from armillary.errors import InputError

from ..description.service import Secret, Service
from ..description.yaml_files import load_all
from .checks import manifests

_SLURM = ("slurm-apptainer", "slurm-podman")
_HPC = (*_SLURM, "flux")
_KUBE = ("kubernetes", "helm")
_SINGLE = ("compose", "bare")


@dataclass(frozen=True)
class Found:
    """A setting, and whether the files hold it."""

    setting: str
    held: bool


class _Words:
    """The words of a target's files. Values of mappings also appear as `key=value`."""

    def __init__(self, files: Mapping[str, str], target: str) -> None:
        self.list: list[str] = []
        if target in _KUBE:
            for thing in manifests(files, target).values():
                self._data(thing, "$$(", "$(")
        for name, text in files.items():
            if name.endswith(".sh"):
                self._shell(text)
            elif target not in _KUBE and name.endswith((".yaml", ".yml")):
                for document in load_all(text, name):
                    self._data(document, "$$", "$")
        self.set = set(self.list)

    def _data(self, thing: Any, escaped: str, plain: str, key: str = "") -> None:
        if isinstance(thing, dict):
            if isinstance(thing.get("name"), str) and "value" in thing:
                self.list.append(f"{thing['name']}={str(thing['value']).replace(escaped, plain)}")
            for k, v in thing.items():
                self._data(v, escaped, plain, str(k))
        elif isinstance(thing, list):
            for v in thing:
                self._data(v, escaped, plain, key)
        else:
            text = (
                ("true" if thing else "false") if isinstance(thing, bool) else "" if thing is None else str(thing).replace(escaped, plain)
            )
            self.list += [text, f"{key}={text}"]
            if "\n" in text:
                self._shell(text)

    def _shell(self, text: str) -> None:
        code = []
        for line in text.splitlines():
            if line.startswith(("#SBATCH", "#flux:")):
                self.list += line.split()[1:]
            elif not line.lstrip().startswith("#"):
                code.append(line)
        try:
            words = shlex.split("\n".join(code))
        except ValueError:
            words = " ".join(code).split()
        for word in words:
            self.list += [word, *([word.rstrip(";&)")] if word[-1:] in ";&)" else [])]
            if "\n" in word:
                self._shell(word)

    def has(self, *run: str) -> bool:
        """Returns whether these words follow each other."""
        if len(run) == 1:
            return run[0] in self.set
        return any(self.list[i : i + len(run)] == list(run) for i, word in enumerate(self.list) if word == run[0])

    def option(self, name: str, value: str) -> bool:
        """Returns whether `--name value` or `--name=value` is there; in YAML the key of a list stands between its words."""
        if f"{name}={value}" in self.set or self.has(name, value):
            return True
        return any(word == name and value in self.list[i + 1 : i + 4] for i, word in enumerate(self.list))

    def inside(self, text: str) -> bool:
        """Returns whether a word contains this text."""
        return any(text in word for word in self.set)


def honoured(service: Service, files: Mapping[str, str], target: str) -> list[Found]:
    """Returns every setting of the description that has a meaning on the target, and whether the files hold it."""
    try:
        words = _Words(files, target)
    except InputError:
        return [Found("files that can be read", False)]
    return [Found(name, held) for name, held in _settings(service, target, words)]


def share(found: list[Found]) -> float:
    """Returns the share of settings that are held."""
    return sum(f.held for f in found) / len(found) if found else 0.0


def _settings(s: Service, target: str, w: _Words) -> Iterator[tuple[str, bool]]:
    contained = target != "bare" and not (target in _HPC and s.hpc.runtime == "host")
    yield "name", w.inside(s.name) or target == "bare"
    program = {"vllm": "vllm", "sglang": "sglang.launch_server", "llama-cpp": "llama-server", "armillary": "armillary"}[s.engine]
    # With a key, SGLang's module is named inside a small program.
    yield "engine", w.has(program) or w.has(f"--entrypoint={program}") or (s.engine == "sglang" and w.inside(program))
    if contained:
        yield "image", w.inside(s.image)
    for option, value in s.engine_args.items():
        if isinstance(value, bool):
            yield f"engine_args.{option}", w.has(f"--{option}" if value else f"--no-{option}")
        else:
            yield f"engine_args.{option}", w.option(f"--{option}", str(value))
    if s.image_pull_secret is not None and contained and target != "compose":
        yield "image_pull_secret", w.inside(s.image_pull_secret)
    yield "model.id", w.inside(s.model.folder) or w.has(s.model.id)
    if s.model.source in ("hf", "s3"):
        yield "model.source", w.inside(s.model.id.removeprefix("s3://"))
    if s.model.revision is not None:
        yield "model.revision", w.has(s.model.revision) or w.inside(f"revision={s.model.revision}")
    if s.engine == "vllm":
        yield "parallel.tensor", w.option("--tensor-parallel-size", str(s.parallel.tensor))
        yield "parallel.pipeline", w.option("--pipeline-parallel-size", str(s.parallel.pipeline))
    yield "parallel.nodes", _nodes(s, target, w)
    yield from _resources(s, target, w)
    yield from _places(s, target, w)
    yield from _safety(s, target, w, contained)
    yield from _time(s, target, w)
    for part in s.parts:
        yield from _part(s, part, target, w)


def _nodes(s: Service, target: str, w: _Words) -> bool:
    n = s.parallel.nodes
    if target in _SLURM:
        return w.option("--nodes", str(n))
    if target == "flux":
        return w.option("--nodes", str(n))
    if n == 1:
        return True
    if target in _KUBE:
        return w.has(f"replicas={n - 1}") and w.has("kind=StatefulSet")
    return w.inside("NODE_RANK") and w.inside("HEAD_ADDRESS")


def _resources(s: Service, target: str, w: _Words) -> Iterator[tuple[str, bool]]:
    r = s.resources
    if r.gpus_per_node:
        names = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "gpu.intel.com/i915"}
        count: dict[str, Callable[[], bool]] = {
            "kubernetes": lambda: w.has(f"{names[r.gpu]}={r.gpus_per_node}"),
            "helm": lambda: w.has(f"{names[r.gpu]}={r.gpus_per_node}"),
            "flux": lambda: w.option("--gpus-per-slot", str(r.gpus_per_node)),
            "compose": lambda: r.gpu != "nvidia" or w.has(f"count={r.gpus_per_node}"),
            "bare": lambda: True,
        }  # fmt: skip
        yield "resources.gpus_per_node", count.get(target, lambda: w.option("--gpus-per-node", str(r.gpus_per_node)))()
        vendor = {
            "slurm-podman": {"nvidia": "nvidia.com/gpu=all", "amd": "/dev/kfd", "intel": "/dev/dri"},
            "compose": {"nvidia": "driver=nvidia", "amd": "/dev/kfd", "intel": "/dev/dri"},
            "slurm-apptainer": {"nvidia": "--nv", "amd": "--rocm", "intel": "/dev/dri"},
            "flux": {"nvidia": "--nv", "amd": "--rocm", "intel": "/dev/dri"},
        }.get(target)
        if vendor is not None and not (target in _HPC and s.hpc.runtime == "host"):
            yield "resources.gpu", w.inside(vendor[r.gpu])
    if target in _KUBE:
        yield "resources.cpus", w.has(f"cpu={r.cpus}")
        yield "resources.memory_gib", w.has(f"memory={r.memory_gib}Gi")
        yield "resources.shm_gib", r.shm_gib == 0 or w.has(f"sizeLimit={r.shm_gib}Gi")
    elif target in _SLURM:
        yield "resources.cpus", w.option("--cpus-per-task", str(r.cpus))
        yield "resources.memory_gib", w.option("--mem", f"{r.memory_gib}G")
    elif target == "flux":
        yield "resources.cpus", w.option("--cores-per-slot", str(r.cpus))
    elif target == "compose":
        yield "resources.cpus", w.has(f"cpus={r.cpus}")
        yield "resources.memory_gib", w.has(f"memory={r.memory_gib}G")
        yield "resources.shm_gib", r.shm_gib == 0 or w.has(f"shm_size={r.shm_gib}gb")
    if target == "slurm-podman" and s.hpc.runtime == "container":
        yield "resources.shm_gib", w.option("--shm-size", f"{r.shm_gib}g") if r.shm_gib else w.has("--ipc=host")


def _places(s: Service, target: str, w: _Words) -> Iterator[tuple[str, bool]]:
    net = s.network
    if s.model.source != "built-in":
        kube = s.cache.kubernetes
        where = (
            (kube.host_path or kube.pvc or f"{s.name}-models")
            if target in _KUBE
            else (s.cache.hpc if target in _HPC else s.cache.local).path
        )
        yield "cache", w.inside(where)
    host = target in (*_HPC, "bare")
    # On hosts the engine gets the first free port, counted from the description's.
    free = host and w.inside(f"free_port {net.port}") and w.option("--port", "$PORT")
    yield "network.port", free or w.option("--port", str(net.port))
    if target in _KUBE:
        said = {"ingress": w.has("kind=Ingress"), "login-node": w.has("type=NodePort")}
        yield "network.expose", said.get(net.expose, w.has("type=ClusterIP"))
        if net.expose == "ingress":
            yield "network.host", w.has(f"host={net.host}")
            yield "network.tls_secret", net.tls_secret is None or w.has(f"secretName={net.tls_secret}")
    elif host:
        yield "network.expose", w.inside("ssh -L") and w.option("--host", "127.0.0.1" if net.expose == "tunnel" else "0.0.0.0")
    elif s.parallel.nodes == 1:
        yield "network.expose", w.inside(f"{net.port}:{net.port}") or s.scale.min > 1
    yield "health.path", w.inside(s.health.path)
    if target in _KUBE:
        yield "health.period_s", w.has(f"periodSeconds={s.health.period_s}")
        yield "health.start_s", w.has(f"failureThreshold={math.ceil(s.health.start_s / s.health.period_s)}")
    elif host:
        yield "health.start_s", w.inside(f"{s.health.start_s})")
    else:
        yield "health.period_s", w.has(f"interval={s.health.period_s}s")
        yield "health.start_s", w.has(f"start_period={s.health.start_s}s")


def _secret_held(variable: str, secret: Secret, target: str, w: _Words) -> bool:
    if target in _KUBE:
        return w.has(variable) and w.has(f"key={secret.key}") and w.has(f"name={secret.name}")
    if target == "compose":
        return w.inside(f"{variable}=${{{variable}:?") and w.inside(secret.name)
    return w.inside(f"{variable}=$(secret") and w.has(secret.name) and (w.has(secret.key) or w.has(f"{secret.key})"))


def _safety(s: Service, target: str, w: _Words, contained: bool) -> Iterator[tuple[str, bool]]:
    key = {"vllm": "VLLM_API_KEY", "sglang": "SGLANG_API_KEY", "llama-cpp": "LLAMA_API_KEY", "armillary": "ARMILLARY_API_KEY"}[s.engine]
    if s.api_key is not None:
        yield "auth.api_key_secret", _secret_held(key, s.api_key, target, w)
    for name, value in s.env.items():
        yield f"env.{name}", w.has(f"{name}={value}")
    for name, secret in s.secrets.items():
        yield f"secrets.{name}", _secret_held(name, Secret.of(secret), target, w)
    if s.offline:
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK", "HF_DATASETS_OFFLINE"):
            yield f"offline.{name}", w.has(f"{name}={s.env.get(name, '1')}")
    if target in _KUBE:
        yield "user", w.has(f"runAsUser={s.user if isinstance(s.user, int) else 1000}") and w.has("runAsNonRoot=true")
    elif target == "compose" and isinstance(s.user, int):
        yield "user", w.has(f"user={s.user}:{s.user}")
    elif target == "slurm-podman" and contained:
        yield "user", w.inside("--userns=keep-id")


def _time(s: Service, target: str, w: _Words) -> Iterator[tuple[str, bool]]:
    if target in _KUBE:
        yield "scale.min", s.parallel.nodes > 1 or w.has(f"replicas={s.scale.min}")
        if s.scale.max > 1:
            yield "scale.max", w.has(f"maxReplicas={s.scale.max}")
            yield "scale.metric", w.has(f"name={s.scale.metric}")
    elif s.scale.min > 1 and target in (*_SLURM, "compose"):
        yield "scale.min", w.option("--array", f"1-{s.scale.min}") or w.has(f"replicas={s.scale.min}")
    if target in _HPC:
        minutes = math.ceil(s.lifetime_h * 60)
        clock = f"{minutes // 60 % 24:02}:{minutes % 60:02}:00"
        slurm = f"{minutes // 1440}-{clock}" if minutes >= 1440 else clock
        yield "lifetime_h", w.option("--time", slurm) if target in _SLURM else w.option("--time-limit", f"{minutes}m")
        if s.hpc.partition is not None:
            yield "hpc.partition", w.option("--partition" if target in _SLURM else "--queue", s.hpc.partition)
        if s.hpc.account is not None:
            yield "hpc.account", w.option("--account" if target in _SLURM else "--bank", s.hpc.account)
        if s.hpc.renew:
            yield "hpc.renew", w.inside("--dependency=afterany")


def _part(s: Service, part: Any, target: str, w: _Words) -> Iterator[tuple[str, bool]]:
    at = f"parts.{part.name}"
    if target != "bare" and not (target in _HPC and s.hpc.runtime == "host"):
        yield f"{at}.image", w.inside(part.image)
    yield f"{at}.command", all(w.has(word) or w.has(f"--entrypoint={word}") for word in part.command)
    if target in (*_KUBE, "compose"):
        yield f"{at}.port", w.has(f"containerPort={part.port}") or w.inside(f"{part.port}:{part.port}")
    for name, value in part.env.items():
        beginning = value.partition("@url(")[0]
        yield f"{at}.env.{name}", any(word.startswith(f"{name}={beginning}") and "@url" not in word for word in w.set)
    for name, secret in part.secrets.items():
        yield f"{at}.secrets.{name}", _secret_held(name, Secret.of(secret), target, w)
    if part.data is not None:
        yield f"{at}.data", w.inside(part.data)
