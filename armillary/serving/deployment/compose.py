"""A Compose file for one host. A replica that spans hosts uses the same file on each host, with its rank. Compose Specification (2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .description.service import Service
from .kubernetes import RCLONE, dump, resolved
from .rendering.engine_command import (
    HEAD_PORT,
    KEY_VARIABLE,
    MODELS,
    engine_words,
    health_words,
    needs_staging,
    node_script,
    staging_script,
)
from .rendering.shell import Raw, seal, words
from .rendering.target import Target


@dataclass(frozen=True)
class Compose(Target):
    """`compose.yaml`. Compose Specification (2020)."""

    platform: ClassVar[str] = "compose"

    def render(self, service: Service) -> dict[str, str]:
        """Returns the Compose file and, if weights must be fetched, the script that does so."""
        out = {"compose.yaml": seal(dump(content(service)), self.platform, service.digest)}
        if needs_staging(service):
            out["stage.sh"] = seal(staging_script(service), self.platform, service.digest)
        return out


def plain(value: str) -> str:
    """Returns the value with every $ doubled, because Compose would replace $NAME."""
    return value.replace("$", "$$")


def _required(variable: str, secret: str) -> str:
    return f"${{{variable}:?set it from the secret {secret.partition(':')[0]}}}"


def content(service: Service) -> dict[str, Any]:
    """Returns the Compose file as data."""
    r, port, nodes = service.resources, service.network.port, service.parallel.nodes
    cache = service.cache.local.path
    env = {name: plain(value) for name, value in service.environment().items()} | {"HOME": "/tmp"}
    env |= {name: _required(name, secret) for name, secret in sorted(service.secrets.items())}
    if service.api_key is not None:
        env[KEY_VARIABLE[service.engine]] = _required(KEY_VARIABLE[service.engine], service.api_key.name)
    if nodes == 1:
        given = engine_words(service, host="0.0.0.0", port=str(port))
        command = [str(word) if isinstance(word, Raw) else plain(word) for word in given]
    else:
        env |= {"NODE_RANK": "${NODE_RANK:?0 on the first host}", "HEAD_ADDRESS": "${HEAD_ADDRESS:?the first host's address}"}
        env["HEAD_PORT"] = str(HEAD_PORT)
        command = ["sh", "-c", plain(node_script(service, host="0.0.0.0", port=str(port)))]
    health = service.health
    engine: dict[str, Any] = {
        "image": service.image, "entrypoint": command[:1], "command": command[1:], "environment": env, "restart": "unless-stopped",
        "stop_grace_period": "60s", "init": True, "security_opt": ["no-new-privileges:true"], "cap_drop": ["ALL"],
        "deploy": {"resources": {"limits": {"cpus": str(r.cpus), "memory": f"{r.memory_gib}G"}}},
    }  # fmt: skip
    ask = health_words(service, str(port))
    # Only the first of several hosts answers requests; the others are healthy as long as they run.
    test = ["CMD", *ask] if nodes == 1 else ["CMD-SHELL", f'[ "$$NODE_RANK" != 0 ] || {plain(words(ask))}']
    engine["healthcheck"] = {
            "test": test, "interval": f"{health.period_s}s", "timeout": "5s", "retries": 6,
            "start_period": f"{health.start_s}s",
    }  # fmt: skip
    if nodes > 1:
        engine["network_mode"] = "host"
    else:
        published = f"127.0.0.1:{port}:{port}" if service.network.expose == "tunnel" or service.scale.max > 1 else f"{port}:{port}"
        engine["ports"] = [published if service.scale.min == 1 else str(port)]
    if r.shm_gib:
        engine["shm_size"] = f"{r.shm_gib}gb"
    else:
        engine["ipc"] = "host"
    if isinstance(service.user, int):
        engine["user"] = f"{service.user}:{service.user}"
    if service.scale.min > 1:
        engine["deploy"]["replicas"] = service.scale.min
    _devices(service, engine)
    services: dict[str, Any] = {service.name: engine}
    if service.model.source != "built-in":
        engine["volumes"] = [{"type": "bind", "source": cache, "target": MODELS, "read_only": True}]
    if needs_staging(service):
        stage = {name: _required(name, secret) for name, secret in sorted(service.secrets.items())} | {"HOME": "/tmp"}
        services["stage"] = {
            "image": RCLONE if service.model.source == "s3" else service.image,
            "entrypoint": ["sh"],
            "command": ["/stage/stage.sh", MODELS],
            "environment": stage,
            "volumes": [
                {"type": "bind", "source": cache, "target": MODELS},
                {"type": "bind", "source": "./stage.sh", "target": "/stage/stage.sh", "read_only": True},
            ],
        }
        engine["depends_on"] = {"stage": {"condition": "service_completed_successfully"}}
    volumes = _parts(service, services)
    return {"name": service.name, "services": services, **({"volumes": volumes} if volumes else {})}


def _devices(service: Service, engine: dict[str, Any]) -> None:
    r = service.resources
    if not r.gpus_per_node:
        return
    if r.gpu == "nvidia":
        wanted = {"driver": "nvidia", "count": r.gpus_per_node, "capabilities": ["gpu"]}
        engine["deploy"]["resources"]["reservations"] = {"devices": [wanted]}
    else:
        engine["devices"] = ["/dev/kfd:/dev/kfd", "/dev/dri:/dev/dri"] if r.gpu == "amd" else ["/dev/dri:/dev/dri"]
        engine["group_add"] = ["video"]


def _parts(service: Service, services: dict[str, Any]) -> dict[str, Any]:
    ports = {service.name: service.network.port, **{p.name: p.port for p in service.parts}}
    urls = {name: f"http://{name}:{port}" for name, port in ports.items()}
    volumes: dict[str, Any] = {}
    for part in service.parts:
        env = {name: plain(resolved(service, value, urls)) for name, value in sorted(part.env.items())}
        env |= {name: _required(name, secret) for name, secret in sorted(part.secrets.items())}
        one: dict[str, Any] = {
            "image": part.image,
            "entrypoint": [plain(part.command[0])],
            "command": [plain(w) for w in part.command[1:]],
            "environment": env,
            "ports": [f"127.0.0.1:{part.port}:{part.port}"],
            "restart": "unless-stopped",
        }
        if part.data is not None:
            one["volumes"] = [{"type": "volume", "source": f"{part.name}-data", "target": part.data}]
            volumes[f"{part.name}-data"] = {}
        services[part.name] = one
    return volumes
