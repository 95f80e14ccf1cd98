"""A Slurm job that serves from an Apptainer image. Slurm 22.05 to 25.05, Apptainer 1.3 (2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .description.service import Service
from .rendering import slurm
from .rendering.apptainer_runtime import Apptainer, image_script
from .rendering.host_scripts import Host, Runtime, files_of
from .rendering.shell import seal
from .rendering.target import Target


@dataclass(frozen=True)
class SlurmApptainer(Target):
    """`job.sh` for sbatch, `node.sh` for each node, `image.sh` to build the image once. Apptainer 1.3 (2024)."""

    platform: ClassVar[str] = "slurm-apptainer"

    def render(self, service: Service) -> dict[str, str]:
        """Returns the scripts."""
        contained = service.hpc.runtime == "container"
        runtime: Runtime = Apptainer() if contained else Host()
        out = files_of(service, slurm.job(service), runtime, service.cache.hpc.path)
        if contained:
            out["image.sh"] = image_script(service)
        return {name: seal(text, self.platform, service.digest) for name, text in sorted(out.items())}
