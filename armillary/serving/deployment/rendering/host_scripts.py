"""The scripts that batch systems and plain hosts share.

`env.sh` sets variables and secrets, `node.sh` starts one node, and `job.sh` supervises the whole service.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Sequence
from typing import Protocol

from ..description.service import Part, Secret, Service
from .engine_command import HEAD_PORT, KEY_VARIABLE, MODELS, engine_words, needs_staging, node_script
from .shell import Raw, exports, folded, words

#: The address of the first node of `node_list`, or its name where the system cannot look that up.
HEAD_OF_NODES = (
    "first=${node_list%%,*}",
    "HEAD_ADDRESS=$(getent ahostsv4 \"$first\" | awk 'NR == 1 {print $1}' || true)",
    'HEAD_ADDRESS="${HEAD_ADDRESS:-$first}"',
)


class Runtime(Protocol):
    """Something that runs a command on a node: a container runtime, or the host itself."""

    #: The folder of weights and data as the command sees it; None if it sees the host's folders.
    root: str | None

    def prepare(self, service: Service) -> list[str]:
        """Returns lines that must run before the first command, such as those that look for an image."""
        ...

    def engine(self, service: Service, command: Sequence[str], variables: Sequence[str]) -> str:
        """Returns shell text that runs the engine's command with these variables and waits until it ends."""
        ...

    def part(self, service: Service, part: Part, variables: Sequence[str]) -> str:
        """Returns shell text that runs a part."""
        ...


def environment_script(service: Service, cache: str) -> str:
    """Returns `env.sh`, which sets the engine's variables and reads secrets from files that only their owner may read."""
    lines = ["#!/bin/bash", "# To be sourced: the variables of the service.", *exports(service.environment())]
    lines += [
        f"export CACHE=${{CACHE_DIR:-{shlex.quote(cache)}}}",
        'SECRETS="${SECRETS_DIR:-$HOME/.config/armillary/secrets}"',
        "secret() {  # the value of key $2 of secret $1",
        '  local file="$SECRETS/$1/$2" mode',
        '  mode=$(stat -L -c %a "$file") || { echo "secret $1, key $2: expected a file $file" >&2; return 2; }',
        '  case $mode in 600 | 400) cat "$file" ;; *) echo "$file: mode $mode; expected 600" >&2; return 2 ;; esac',
        "}",
    ]  # fmt: skip
    lines += _secret_lines(secret_variables(service))
    return "\n".join([*lines, ""])


def secret_variables(service: Service) -> dict[str, Secret]:
    """Returns the engine's secret variables, including the API key."""
    out = {name: Secret.of(value) for name, value in sorted(service.secrets.items())}
    if service.api_key is not None:
        out[KEY_VARIABLE[service.engine]] = service.api_key
    return out


def _secret_lines(secrets: dict[str, Secret], indent: str = "") -> list[str]:
    out = []
    for name, secret in secrets.items():
        out += [f"{indent}{name}=$(secret {words([secret.name, secret.key])})", f"{indent}export {name}"]
    return out


def host_of(service: Service) -> str:
    """Returns the address to listen on, which is the loopback for a tunnel because a tunnel ends on the node itself."""
    return "127.0.0.1" if service.network.expose == "tunnel" else "0.0.0.0"


def launch_script(service: Service, runtime: Runtime) -> str:
    """Returns `node.sh`, which starts the parts and the engine on one node, forwards signals, and ends when the engine ends."""
    port = Raw('"$PORT"')
    root = runtime.root if runtime.root is not None else '"$CACHE"'
    if service.parallel.nodes == 1:
        command = engine_words(service, host=host_of(service), port=port, root=MODELS)
    else:
        command = ["sh", "-c", node_script(service, host=host_of(service), port=port, root=MODELS)]
    if runtime.root is None:
        command = _on_the_host(command, root)
    spanning = ["HEAD_ADDRESS", "HEAD_PORT", "NODE_RANK"] if service.parallel.nodes > 1 else []
    variables = [*service.environment(), *secret_variables(service), "PORT", *spanning]
    lines = [
        "#!/bin/bash",
        "set -euo pipefail",
        'here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)',
        "# shellcheck source=/dev/null",
        '. "$here/env.sh"',
        'export NODE_RANK="${NODE_RANK:-${SLURM_PROCID:-${FLUX_TASK_RANK:-0}}}"',
        f'export PORT="${{PORT:-{service.network.port}}}" HEAD_PORT="${{HEAD_PORT:-{HEAD_PORT}}}"',
        'export HEAD_ADDRESS="${HEAD_ADDRESS:-127.0.0.1}"',
        "children=()",
        'stop() { kill -TERM "${children[@]}" 2>/dev/null || true; }',
        "trap stop TERM INT",
    ]
    lines += runtime.prepare(service)
    for part in service.parts:
        lines += _part_lines(service, part, runtime)
    lines += [
        runtime.engine(service, command, variables) + " &",
        "engine=$!",
        'children+=("$engine")',
        "status=0",
        'while kill -0 "$engine" 2>/dev/null; do wait "$engine" && status=0 || status=$?; done',
        "stop",
        "wait || true",
        'exit "$status"',
        "",
    ]
    return "\n".join(lines)


def _on_the_host(command: Sequence[str], root: str) -> list[str]:
    """Returns the command with the container's folder of weights replaced by the host's."""
    out: list[str] = []
    for word in command:
        if word.startswith(f"{MODELS}/"):
            out.append(Raw(root + shlex.quote(word[len(MODELS) :])))
        elif f"{MODELS}/" in word and "\n" in word:
            out.append(re.sub(rf"{MODELS}(/\S+)", r'"$CACHE"\1', word))
        else:
            out.append(word)
    return out


def _part_lines(service: Service, part: Part, runtime: Runtime) -> list[str]:
    name = part.name.replace("-", "_")
    lines = [f"start_{name}() (", *(f"  export {n}={url_value(service, v)}" for n, v in sorted(part.env.items()))]
    secrets = {n: Secret.of(s) for n, s in sorted(part.secrets.items())}
    lines += _secret_lines(secrets, "  ")
    if part.data is not None:
        lines.append(
            f'  data="$CACHE/"{words([f"{service.name}-data/{part.name}"])}' if runtime.root is not None else f"  data={words([part.data])}"
        )
        lines.append('  mkdir -p "$data"')
    lines += [f"  exec {runtime.part(service, part, [*sorted(part.env), *secrets])}", ")", f"start_{name} &", 'children+=("$!")']
    return lines


def url_value(service: Service, value: str) -> str:
    """Returns a shell word for a value, with each @url(name) replaced by an address on this node."""
    ports = {service.name: '"http://127.0.0.1:$PORT"', **{p.name: f'"http://127.0.0.1:{p.port}"' for p in service.parts}}
    pieces = re.split(r"@url\(([^)]*)\)", value)
    out = [ports[piece] if i % 2 else shlex.quote(piece) for i, piece in enumerate(pieces) if i % 2 or piece]
    return "".join(out) or "''"


def supervisor(
    service: Service, *, head: Sequence[str], here: str, nodes: Sequence[str], launch: str, renew: str | None, drain_s: int = 60,
) -> str:  # fmt: skip
    """Returns the script that supervises all nodes.

    It stages the weights once, starts the nodes, waits until the service is healthy, writes the endpoint file (mode 0600), and drains
    when it is told to end. `head` holds the batch system's lines, the lines of `nodes` set `node_list` and HEAD_ADDRESS, `launch` starts
    node.sh on every node, and `renew` puts the next job into the queue.
    """
    health, port = service.health, service.network.port
    lines = ["#!/bin/bash", *head, "set -euo pipefail", f"here={here}", "# shellcheck source=/dev/null", '. "$here/env.sh"']
    lines += [
        "free_port() {  # the first port from $1 on that nobody listens on",
        "  local port", "  for ((port = $1; port < $1 + 200 && port < 65536; port++)); do",
        '    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then echo "$port"; return; fi', "  done", "  return 1", "}",
        "healthy() {", "  local line", "  line=$(", "    exec 2>/dev/null",
        '    exec 3<>"/dev/tcp/127.0.0.1/$PORT" || exit 1',
        f"    printf 'GET {health.path} HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3",
        "    IFS= read -r -t 5 status <&3 && printf '%s' \"$status\"", "  ) || return 1",
        '  [[ $line == *" 200 "* ]]', "}",
        'PORT="${PORT:-$(free_port ' + str(port) + ')}"',
    ]  # fmt: skip
    if service.parallel.nodes > 1:
        lines.append(f'HEAD_PORT="${{HEAD_PORT:-$(free_port {HEAD_PORT})}}"')
        lines.append("export HEAD_PORT")
    lines += [*nodes, "export PORT HEAD_ADDRESS", "umask 077", 'endpoint="$here/endpoint.json"', 'server=""', "draining=0"]
    lines += [
        'finish() { rm -f "$endpoint"; if [ -n "$server" ]; then kill -TERM "$server" 2>/dev/null || true; fi; }', "trap finish EXIT",
        "drain() {", "  draining=1", '  rm -f "$endpoint"', *([f"  {renew}"] if renew else []),
        '  if [ -n "$server" ]; then kill -TERM "$server" 2>/dev/null || true; fi', "}", "trap drain TERM INT",
    ]  # fmt: skip
    if needs_staging(service):
        lines.append('sh "$here/stage.sh" "$CACHE"')
    lines += [
        f"{launch} &",
        "server=$!",
        f"deadline=$((SECONDS + {health.start_s}))",
        "until healthy; do",
        '  if ! kill -0 "$server" 2>/dev/null; then echo "ended before it was healthy" >&2; wait "$server" || exit "$?"; exit 1; fi',
        f'  if ((SECONDS >= deadline)); then echo "not healthy after {health.start_s} s" >&2; exit 1; fi',
        f"  sleep {min(1, health.period_s)} &",
        '  wait "$!" || true',
        "done",
        'if [ "$draining" = 0 ]; then',
        '  printf \'{"url": "http://%s:%s", "host": "%s", "port": %s, "nodes": "%s", "pid": %s}\\n\' \\',
        '    "$HEAD_ADDRESS" "$PORT" "$HEAD_ADDRESS" "$PORT" "$node_list" "$$" >"$endpoint.new"',
        '  mv "$endpoint.new" "$endpoint"',
        '  echo "serving on $HEAD_ADDRESS port $PORT; to reach it: ssh -L $PORT:$HEAD_ADDRESS:$PORT $(id -un)@${LOGIN_HOST:-login}"',
        "fi",
        "status=0",
        'while kill -0 "$server" 2>/dev/null; do wait "$server" && status=0 || status=$?; done',
        'server=""',
        'if [ "$draining" = 1 ]; then exit 0; fi',
        'exit "$status"',
        "",
    ]
    return "\n".join(lines)


class Host:
    """Runs the engine without a container, because it is installed on the host."""

    root: str | None = None

    def prepare(self, service: Service) -> list[str]:
        """Returns no lines."""
        return []

    def engine(self, service: Service, command: Sequence[str], variables: Sequence[str]) -> str:
        """Returns the command itself."""
        return folded(command)

    def part(self, service: Service, part: Part, variables: Sequence[str]) -> str:
        """Returns the part's command itself."""
        return folded(part.command)


def image_key(image: str) -> str:
    """Returns a short key of an image, taken from its digest if it has one."""
    return hashlib.sha256(image.rpartition("@")[2].encode()).hexdigest()[:12]


def files_of(service: Service, job: str, runtime: Runtime, cache: str) -> dict[str, str]:
    """Returns the scripts of a host target by name, without their heads."""
    from .engine_command import staging_script

    out = {"env.sh": environment_script(service, cache), "node.sh": launch_script(service, runtime), "job.sh": job}
    if needs_staging(service):
        out["stage.sh"] = staging_script(service)
    return out
