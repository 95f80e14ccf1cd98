"""Runs a command in Apptainer.

Apptainer shares the user's home and environment with the container unless it is told not to.
Its image is a read-only file, which is built once for all nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..description.service import Part, Service
from .engine_command import MODELS
from .host_scripts import image_key
from .shell import Raw, folded, words


class Apptainer:
    """Runs `apptainer exec` on a `.sif` file on shared storage, whose name contains a key of the image.

    Variables are passed as APPTAINERENV_NAME, because `--env` would split a value at its commas and show it to everybody on the node.
    """

    root: str | None = MODELS

    def prepare(self, service: Service) -> list[str]:
        """Returns lines that locate the images and end the script if one is missing."""
        lines = ['images="${IMAGES_DIR:-$CACHE/images}"']
        for name, image in images(service).items():
            variable = sif(name)
            lines.append(f'{variable}="$images/"{words([f"{name}-{image_key(image)}.sif"])}')
            lines.append(f'[ -f "${variable}" ] || {{ echo "no image ${variable}; run image.sh first" >&2; exit 2; }}')
        return lines

    def engine(self, service: Service, command: Sequence[str], variables: Sequence[str]) -> str:
        """Returns an `apptainer exec` command with the GPU's libraries and the folder of weights."""
        r = service.resources
        out = self._start()
        if r.gpus_per_node and r.gpu == "nvidia":
            out.append("--nv")
        elif r.gpus_per_node and r.gpu == "amd":
            out += ["--rocm", "--bind", "/dev/kfd,/dev/dri"]
        elif r.gpus_per_node:
            out += ["--bind", "/dev/dri"]
        if service.model.source != "built-in":
            out += ["--bind", Raw(f'"$CACHE:{MODELS}:ro"')]
        return _given(variables) + folded([*out, Raw(f'"${sif(service.name)}"'), *command])

    def part(self, service: Service, part: Part, variables: Sequence[str]) -> str:
        """Returns an `apptainer exec` command that runs a part."""
        out = self._start()
        if part.data is not None:
            out += ["--bind", Raw(f'"$data:{part.data}"')]
        run = folded([*out, Raw(f'"${sif(part.name)}"'), *part.command])
        assigned = [Raw(f'APPTAINERENV_{name}="${name}"') for name in variables]
        return words(["env", *assigned, Raw(run)]) if assigned else run

    def _start(self) -> list[str]:
        return ["apptainer", "exec", "--fakeroot", "--writable-tmpfs", "--cleanenv", "--no-home", "--pwd=/tmp"]


def _given(variables: Sequence[str]) -> str:
    """Returns the assignments that stand before a command."""
    return "".join(f'APPTAINERENV_{name}="${name}" ' for name in variables)


def images(service: Service) -> dict[str, str]:
    """Returns every image of the service by name."""
    return {service.name: service.image, **{p.name: p.image for p in service.parts}}


def sif(name: str) -> str:
    """Returns the variable that holds an image's file."""
    return f"sif_{name.replace('-', '_')}"


def image_script(service: Service) -> str:
    """Returns `image.sh`, which builds each image once into shared storage, because many nodes pulling one image overload its registry."""
    lines = [
        "#!/bin/bash", "set -euo pipefail", 'here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)', "# shellcheck source=/dev/null",
        '. "$here/env.sh"', 'images="${IMAGES_DIR:-$CACHE/images}"', 'mkdir -p "$images"',
        "build() {  # image $1 into the file $2", "  (", "    flock 9", '    if [ ! -f "$2" ]; then',
    ]  # fmt: skip
    login = f' --authfile "$SECRETS/{service.image_pull_secret}/auth.json"' if service.image_pull_secret is not None else ""
    lines += [
        f'      apptainer build{login} "$2.unfinished" "docker://$1"',
        '      mv "$2.unfinished" "$2"',
        "    fi",
        '  ) 9>"$2.lock"',
        "}",
    ]
    for name, image in images(service).items():
        lines.append(f'build {words([image])} "$images/"{words([f"{name}-{image_key(image)}.sif"])}')
    return "\n".join([*lines, ""])
