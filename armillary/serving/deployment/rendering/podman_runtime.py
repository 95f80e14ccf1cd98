"""Runs a command in Podman, which isolates: the container gets network, memory, devices and user one by one."""

from __future__ import annotations

from collections.abc import Sequence

from ..description.service import Part, Service
from .engine_command import MODELS
from .shell import Raw, folded


class Podman:
    """Runs `podman run` without root."""

    root: str | None = MODELS

    def prepare(self, service: Service) -> list[str]:
        """Returns no lines, because missing images are pulled at the start."""
        return []

    def engine(self, service: Service, command: Sequence[str], variables: Sequence[str]) -> str:
        """Returns a `podman run` command with the host's network, shared memory, GPUs and the folder of weights."""
        r = service.resources
        out = [*self._start(service), f"--shm-size={r.shm_gib}g" if r.shm_gib else "--ipc=host", *self._devices(service)]
        if service.model.source != "built-in":
            # Lustre takes no SELinux label, so a relabelled mount is requested only if the description asks for it.
            label = ",Z" if service.hpc.selinux else ""
            out += ["--volume", Raw(f'"$CACHE:{MODELS}:ro{label}"')]
        out += [f"--env={name}" for name in variables]
        return folded([*out, f"--entrypoint={command[0]}", service.image, *command[1:]])

    def part(self, service: Service, part: Part, variables: Sequence[str]) -> str:
        """Returns a `podman run` command that runs a part."""
        out = self._start(service)
        if part.data is not None:
            out += ["--volume", Raw(f'"$data:{part.data}{":Z" if service.hpc.selinux else ""}"')]
        out += [f"--env={name}" for name in variables]
        return folded([*out, f"--entrypoint={part.command[0]}", part.image, *part.command[1:]])

    def _start(self, service: Service) -> list[str]:
        user = "keep-id" if service.user == "rootless" else f"keep-id:uid={service.user},gid={service.user}"
        out = ["podman", "run", "--rm", "--init", "--pull=missing", "--network=host", f"--userns={user}"]
        if service.image_pull_secret is not None:
            out.append(Raw(f'--authfile="$SECRETS/{service.image_pull_secret}/auth.json"'))
        return out

    def _devices(self, service: Service) -> list[str]:
        r = service.resources
        if not r.gpus_per_node:
            return []
        if r.gpu == "nvidia":
            return ["--device=nvidia.com/gpu=all"]
        if r.gpu == "amd":
            return ["--device=/dev/kfd", "--device=/dev/dri", "--group-add=video"]
        return ["--device=/dev/dri", "--group-add=video"]
