"""A Slurm job that serves from a Podman container. Slurm 22.05 to 25.05, Podman 4 and 5 (2022 to 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .description.service import Service
from .rendering import slurm
from .rendering.host_scripts import Host, Runtime, files_of
from .rendering.podman_runtime import Podman
from .rendering.shell import seal
from .rendering.target import Target


@dataclass(frozen=True)
class SlurmPodman(Target):
    """`job.sh` for sbatch, `node.sh` for each node. Podman 4 and 5 (2022 to 2025)."""

    platform: ClassVar[str] = "slurm-podman"

    def render(self, service: Service) -> dict[str, str]:
        """Returns the scripts."""
        runtime: Runtime = Podman() if service.hpc.runtime == "container" else Host()
        out = files_of(service, slurm.job(service), runtime, service.cache.hpc.path)
        return {name: seal(text, self.platform, service.digest) for name, text in sorted(out.items())}
