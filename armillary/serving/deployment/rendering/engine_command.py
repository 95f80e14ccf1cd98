"""How each engine is started: its command line, the variable that holds its API key, and how it spans several nodes.

These parts are the same on every platform.
"""

from __future__ import annotations

from ..description.service import Service
from .shell import Raw, folded, words

#: Where the weights are inside a container.
MODELS = "/models"
#: The port on which the nodes of one replica find each other.
HEAD_PORT = 6379
#: The variable from which an engine takes its API key.
KEY_VARIABLE = {"vllm": "VLLM_API_KEY", "sglang": "SGLANG_API_KEY", "llama-cpp": "LLAMA_API_KEY", "armillary": "ARMILLARY_API_KEY"}

#: SGLang takes its key as an option only. Python reads the variable and appends the option itself, so that no process list shows the key.
_SGLANG_WITH_KEY = (
    'import os, runpy, sys; sys.argv += ["--api-key", os.environ["SGLANG_API_KEY"]]; '
    'runpy.run_module("sglang.launch_server", run_name="__main__")'
)


def model_path(service: Service, root: str = MODELS) -> str:
    """Returns what the engine is told to load."""
    return service.model.id if service.model.source == "built-in" else f"{root}/{service.model.folder}"


def engine_words(service: Service, *, host: str, port: str, root: str = MODELS) -> list[str]:
    """Returns the engine's command on one node, without any secret. `host` and `port` may be `Raw`."""
    p, model = service.parallel, model_path(service, root)
    listen = ["--host", host, "--port", port]
    if service.engine == "vllm":
        out = ["vllm", "serve", model, *listen, "--served-model-name", service.model.id]
        out += ["--tensor-parallel-size", str(p.tensor), "--pipeline-parallel-size", str(p.pipeline)]
        out += ["--distributed-executor-backend", "ray"] if p.nodes > 1 else []
    elif service.engine == "sglang":
        start = ["-m", "sglang.launch_server"] if service.api_key is None else ["-c", _SGLANG_WITH_KEY]
        out = ["python3", *start, "--model-path", model, *listen, "--served-model-name", service.model.id]
        out += ["--tp-size", str(p.tensor), "--pp-size", str(p.pipeline), "--enable-metrics"]
        if p.nodes > 1:
            out += ["--nnodes", str(p.nodes), "--node-rank", Raw('"$NODE_RANK"'), "--dist-init-addr", Raw('"$HEAD_ADDRESS:$HEAD_PORT"')]
    elif service.engine == "llama-cpp":
        out = ["llama-server", "--model", model, *listen, "--alias", service.model.id, "--metrics"]
        out += ["--n-gpu-layers", "999"] if service.resources.gpus_per_node else []
    else:
        out = ["armillary", "serve", "--model", model, *listen]
        if service.api_key is None:
            out += ["--open", *(["--allow-host", service.network.host] if service.network.host else [])]
    for option, value in sorted(service.engine_args.items()):
        if isinstance(value, bool):
            out.append(f"--{option}" if value else f"--no-{option}")
        else:
            out += [f"--{option}", str(value)]
    return out


def node_script(service: Service, *, host: str, port: str, root: str = MODELS) -> str:
    """Returns a POSIX shell script for one node of a replica that spans several.

    `$NODE_RANK` is the number of the node, and `$HEAD_ADDRESS` and `$HEAD_PORT` locate the first one.
    """
    engine = engine_words(service, host=host, port=port, root=root)
    if service.engine == "sglang":
        return f"exec {words(engine)}\n"
    gpus = service.resources.gpus_per_node
    return "\n".join([
        'if [ "$NODE_RANK" = 0 ]; then',
        f'  ray start --head --node-ip-address="$HEAD_ADDRESS" --port="$HEAD_PORT" --num-gpus={gpus}',
        f"  exec {folded(engine, '    ')}",
        "fi",
        "tries=0",
        'until ray health-check --address "$HEAD_ADDRESS:$HEAD_PORT" || [ "$tries" -ge 120 ]; do tries=$((tries + 1)); sleep 5; done',
        f'exec ray start --address="$HEAD_ADDRESS:$HEAD_PORT" --num-gpus={gpus} --block',
        "",
    ])  # fmt: skip


def health_words(service: Service, port: str) -> list[str]:
    """Returns a command inside the container that succeeds when the engine serves."""
    url = f"http://127.0.0.1:{port}{service.health.path}"
    if service.engine == "llama-cpp":
        return ["curl", "-fsS", url]
    return ["python3", "-c", f"import urllib.request; urllib.request.urlopen('{url}', timeout=5)"]


def needs_staging(service: Service) -> bool:
    """Returns whether weights must be fetched before the first start."""
    return service.model.source in ("hf", "s3")


def staging_script(service: Service) -> str:
    """Returns a POSIX shell script that fetches the weights into `$1` once, even if several nodes run it at the same time.

    A mark with checksums shows that the weights are complete.
    """
    model = service.model
    revision = model.revision or "main"
    if model.source == "hf":
        fetch = ["env", "HF_HUB_OFFLINE=0", "hf", "download", model.id, "--revision", revision, "--local-dir", Raw('"$unfinished"')]
        what = words(fetch)
    else:
        source = words([model.id.rstrip("/") + "/"])
        remote = words([f":s3,env_auth=true:{model.id.removeprefix('s3://').rstrip('/')}"])
        what = "\n".join([
            "if command -v rclone >/dev/null; then",
            f'    rclone copy --checksum {remote} "$unfinished"',
            "  else",
            f'    aws s3 sync --no-progress {source} "$unfinished"',
            "  fi",
        ])  # fmt: skip
    return f"""#!/bin/sh
set -eu
cache=$1
folder="$cache/"{words([model.folder])}
mark="$folder/.staged"
revision={words([revision])}
staged() {{ [ -f "$mark" ] && [ "$(cat "$mark")" = "$revision" ]; }}
mkdir -p "$cache"
exec 9>"$folder.lock"
flock 9
if staged; then
  if [ "${{VERIFY:-0}}" = 1 ]; then (cd "$folder" && sha256sum --check --quiet SHA256SUMS); fi
else
  unfinished="$folder.unfinished"
  mkdir -p "$unfinished"
  {what}
  (cd "$unfinished" && find . -type f ! -name SHA256SUMS ! -name .staged -exec sha256sum {{}} + | sort -k 2 >SHA256SUMS)
  [ -s "$unfinished/SHA256SUMS" ] || {{ echo "nothing was fetched into $unfinished" >&2; exit 1; }}
  rm -rf "$folder"
  mv "$unfinished" "$folder"
  printf '%s' "$revision" >"$mark"
fi
"""
