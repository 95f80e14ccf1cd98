"""Reads descriptions from what people already have: a `vllm serve` or `docker run` line, or a Compose file (a subset)."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from armillary.errors import InputError, one_line

from .service import Service

_IMAGES = {"vllm": "docker.io/vllm/vllm-openai:v0.11.0"}
#: Options of `docker run` and `podman run` that take a value and have no counterpart in a description.
_IGNORED = {
    "--restart", "--runtime", "--network", "--net", "--ipc", "--ulimit", "--log-driver", "--log-opt", "--pull", "--hostname", "-h", "-w",
    "--workdir", "--security-opt", "--userns", "--group-add", "--label", "-l", "--cap-add", "--cap-drop",
}  # fmt: skip
_FLAGS = {"-d", "--detach", "--rm", "-i", "-t", "-it", "-ti", "--init", "--privileged", "--interactive", "--tty"}
_SHORT = {"-pp": "--pipeline-parallel-size"} | dict.fromkeys(("-tp", "--tp", "--tp-size"), "--tensor-parallel-size")


def from_command(text: str, where: str = "command") -> Service:
    """Returns a description from the first `vllm serve`, `docker run` or `podman run` line of a text."""
    joined = re.sub(r"\\\r?\n", " ", text)
    for line in joined.splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError as problem:
            raise InputError(f"not a command line: {problem}", where=where) from None
        if words[:1] == ["sudo"]:
            words = words[1:]
        if words[:2] == ["vllm", "serve"]:
            content = {"image": _IMAGES["vllm"]} | _engine(words, where)
            return Service.parse(_named(content), where)
        if words[:2] in (["docker", "run"], ["podman", "run"]):
            return Service.parse(_named(_container(words[2:], where)), where)
    raise InputError("found no `vllm serve`, `docker run` or `podman run` line", where=where)


def _named(content: dict[str, Any]) -> dict[str, Any]:
    content.setdefault("name", _slug(content["model"]["id"].rpartition("/")[2]))
    return content


def _slug(text: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return (slug if slug[:1].isalpha() else f"m-{slug}")[:46].strip("-")


def _options(words: Sequence[str]) -> Iterator[tuple[str, str | bool]]:
    """Yields the (option, value) pairs of an engine's command: True for an option without a value, ("", word) for a plain word."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            yield "", word
            continue
        option, equals, value = word.partition("=")
        if equals:
            yield _SHORT.get(option, option), value
        elif rest and (not rest[0].startswith("-") or re.fullmatch(r"-\d+(\.\d+)?", rest[0])):
            yield _SHORT.get(option, option), rest.pop(0)
        else:
            yield _SHORT.get(option, option), True


def _value(text: str | bool) -> str | int | float | bool:
    if isinstance(text, bool):
        return text
    if re.fullmatch(r"-?\d{1,15}", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?\d+\.\d+", text) else text


def _whole(option: str, value: str | bool, where: str) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,6}", value):
        raise InputError(f"{option}: found {one_line(str(value), 40)!r}; expected a whole number", where=where)
    return int(value)


def _engine(words: Sequence[str], where: str) -> dict[str, Any]:
    """Returns the settings in a vLLM command, which may consist of options alone, as vLLM's image takes them."""
    content: dict[str, Any] = {"engine": "vllm", "engine_args": {}, "network": {}, "parallel": {}}
    model = revision = None
    for option, value in _options(words[2:] if list(words[:2]) == ["vllm", "serve"] else words):
        if option == "" or option == "--model":
            if model is not None or isinstance(value, bool):
                raise InputError(f"found {one_line(str(value), 60)!r} beside the model {model!r}", where=where)
            model = value
        elif option == "--port":
            content["network"]["port"] = _whole(option, value, where)
        elif option in ("--tensor-parallel-size", "--pipeline-parallel-size"):
            content["parallel"][option[2:].partition("-")[0]] = _whole(option, value, where)
        elif option == "--revision":
            revision = value
        elif option == "--api-key":
            if not isinstance(value, str) or not value.startswith("$"):
                raise InputError("--api-key: a key in a command line is no secret; give $VARIABLE, which names the secret", where=where)
            content["auth"] = {"api_key_secret": _slug(value.strip("${}"))}
        elif option not in ("--host", "--served-model-name", "--distributed-executor-backend"):
            content["engine_args"][option.lstrip("-")] = _value(value)
    if model is None:
        raise InputError("found no model in the command", where=where)
    content["model"] = _model(model, revision)
    gpus = content["parallel"].get("tensor", 1) * content["parallel"].get("pipeline", 1)
    content["resources"] = {"gpus_per_node": gpus}
    return content


def _model(model: str, revision: Any) -> dict[str, Any]:
    more = {"revision": revision} if isinstance(revision, str) else {}
    if model.startswith("s3://"):
        return {"source": "s3", "id": model, **more}
    if model.startswith("/"):
        return {"source": "path", "id": model.strip("/").rpartition("/")[2]}
    return {"source": "hf", "id": model, **more}


def _container(words: Sequence[str], where: str) -> dict[str, Any]:
    """Returns the settings in a `docker run` line."""
    env: dict[str, str] = {}
    secrets: dict[str, str] = {}
    more: dict[str, Any] = {}
    port = shm = gpus = None
    rest, entry = list(words), []
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        if option in _FLAGS and not equals:
            continue
        if not equals:
            if not rest:
                raise InputError(f"{option}: expected a value", where=where)
            value = rest.pop(0)
        if option in ("-e", "--env"):
            name, given, literal = value.partition("=")
            if not given or re.fullmatch(r"\$\{?\w+\}?", literal):
                secrets[name] = _slug(name)
            else:
                env[name] = literal
        elif option in ("-p", "--publish"):
            port = value.partition("/")[0].split(":")[-1]
        elif option in ("-v", "--volume"):
            folder = value.split(":")[0]
            if folder.startswith("/"):
                more["cache"] = {"local": {"host_path": folder}}
            else:
                warnings.warn(f"{where}: volume {one_line(value, 60)} is not an absolute path and was left out", stacklevel=2)
        elif option == "--name":
            more["name"] = _slug(value)
        elif option == "--shm-size":
            shm = re.fullmatch(r"(\d{1,6})\s*([gG])[bB]?", value)
        elif option == "--gpus":
            gpus = value
        elif option == "--device":
            more["gpu"] = "amd" if "kfd" in value else "nvidia" if "nvidia" in value else more.get("gpu", "intel")
        elif option == "--entrypoint":
            entry = [value]
        elif option in ("-u", "--user"):
            more["user"] = _whole(option, value.partition(":")[0], where)
        elif option in ("-m", "--memory", "--cpus"):
            more[option] = value
        elif option not in _IGNORED:
            raise InputError(f"option {one_line(option, 40)} of docker run is not understood", where=where)
    if not rest:
        raise InputError("found no image in the command", where=where)
    image, command = rest[0], [*entry, *rest[1:]]
    content = {"image": image, **_engine(command, where)}
    content["env"], content["secrets"] = env, secrets
    if gpus is not None and gpus.isdigit():
        content["resources"]["gpus_per_node"] = int(gpus)
    if shm is not None:
        content["resources"]["shm_gib"] = int(shm[1])
    if "gpu" in more:
        content["resources"]["gpu"] = more.pop("gpu")
    if "--cpus" in more:
        content["resources"]["cpus"] = _whole("--cpus", more.pop("--cpus").partition(".")[0], where)
    for option in ("-m", "--memory"):
        if option in more:
            content["resources"]["memory_gib"] = _whole(option, more.pop(option).rstrip("gGbB"), where)
    if port is not None:
        content["network"].setdefault("port", _whole("--publish", port, where))
    return content | more


def from_compose(content: dict[str, Any], where: str) -> Service:
    """Returns a description from a Compose file: the service that runs vLLM is the engine, the others are its parts."""
    services = content["services"]
    engine = [name for name, one in services.items() if isinstance(one, dict) and "vllm" in str(one.get("image", ""))]
    if len(engine) != 1:
        raise InputError(f"found {len(engine)} services whose image is vLLM's; expected one", where=where)
    known = {
        "image", "command", "entrypoint", "environment", "ports", "volumes", "shm_size", "user", "deploy", "restart", "ipc", "depends_on",
        "healthcheck", "container_name", "devices", "group_add", "init", "networks", "stop_grace_period", "security_opt", "cap_drop",
    }  # fmt: skip
    for name, one in services.items():
        if not isinstance(one, dict) or not isinstance(one.get("image"), str):
            raise InputError("expected an image", where=f"{where}: services.{one_line(str(name), 40)}")
        strange = sorted(set(map(str, one)) - known)
        if strange:
            raise InputError(f"key {one_line(strange[0], 40)!r} is not in the subset that is read", where=f"{where}: services.{name}")
    out = _compose_engine(engine[0], services[engine[0]], where)
    out["parts"] = [_compose_part(name, one, where) for name, one in services.items() if name != engine[0]]
    return Service.parse(_named(out), where)


def _listed(value: Any) -> list[str]:
    if value is None:
        return []
    return shlex.split(value) if isinstance(value, str) else [str(x) for x in value]


def _variables(value: Any) -> tuple[dict[str, str], dict[str, str]]:
    pairs = dict(str(x).partition("=")[::2] for x in value) if isinstance(value, list) else {str(k): v for k, v in (value or {}).items()}
    env, secrets = {}, {}
    for name, given in pairs.items():
        text = "" if given is None else str(given).lower() if isinstance(given, bool) else str(given)
        if re.match(r"\$\{?\w+", text) or (given is None):
            secrets[name] = _slug(name)
        else:
            env[name] = text.replace("$$", "$")
    return env, secrets


def _compose_engine(name: str, one: dict[str, Any], where: str) -> dict[str, Any]:
    out = _engine([*_listed(one.get("entrypoint")), *_listed(one.get("command"))], f"{where}: services.{name}")
    env, secrets = _variables(one.get("environment"))
    out |= {"name": _slug(name), "image": one["image"], "env": env, "secrets": secrets}
    ports = _listed(one.get("ports"))
    if ports:
        out["network"].setdefault("port", _whole("ports", ports[0].partition("/")[0].split(":")[-1], where))
    shm = re.fullmatch(r"(\d{1,6})\s*g(b|ib)?", str(one.get("shm_size", "")).lower())
    if shm is not None:
        out["resources"]["shm_gib"] = int(shm[1])
    if any("/dev/kfd" in str(d) for d in one.get("devices") or []):
        out["resources"]["gpu"] = "amd"
    user = str(one.get("user", "")).partition(":")[0]
    if user.isdigit() and int(user) > 0:
        out["user"] = int(user)
    for volume in one.get("volumes") or []:
        source = volume.get("source") if isinstance(volume, dict) else str(volume).split(":")[0]
        if isinstance(source, str) and source.startswith("/"):
            out["cache"] = {"local": {"host_path": source}}
    return out


def _compose_part(name: str, one: dict[str, Any], where: str) -> dict[str, Any]:
    at = f"{where}: services.{name}"
    command, ports = [*_listed(one.get("entrypoint")), *_listed(one.get("command"))], _listed(one.get("ports"))
    if not command or not ports:
        raise InputError("a part needs a command and a port", where=at)
    env, secrets = _variables(one.get("environment"))
    out: dict[str, Any] = {"name": _slug(name), "image": one["image"], "command": command, "env": env, "secrets": secrets}
    out["port"] = _whole("ports", ports[0].partition("/")[0].split(":")[-1], at)
    for volume in one.get("volumes") or []:
        out["data"] = volume.get("target") if isinstance(volume, dict) else str(volume).split(":")[1] if ":" in str(volume) else None
    return out
