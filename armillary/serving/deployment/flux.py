"""A Flux batch job that serves from an Apptainer image. Flux allocates whole slots, with their memory. flux-core 0.60 (2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from .description.service import Service
from .rendering.apptainer_runtime import Apptainer, image_script
from .rendering.host_scripts import HEAD_OF_NODES, Host, Runtime, files_of, supervisor
from .rendering.shell import seal
from .rendering.target import Target


@dataclass(frozen=True)
class Flux(Target):
    """`job.sh` for `flux batch`, `node.sh` for each node. flux-core 0.60 (2024)."""

    platform: ClassVar[str] = "flux"

    def render(self, service: Service) -> dict[str, str]:
        """Returns the scripts."""
        contained = service.hpc.runtime == "container"
        runtime: Runtime = Apptainer() if contained else Host()
        out = files_of(service, _job(service), runtime, service.cache.hpc.path)
        if contained:
            out["image.sh"] = image_script(service)
        return {name: seal(text, self.platform, service.digest) for name, text in sorted(out.items())}


def _job(service: Service) -> str:
    r, nodes = service.resources, service.parallel.nodes
    asked = [f"--job-name={service.name}", f"--nodes={nodes}", f"--nslots={nodes}", f"--cores-per-slot={r.cpus}"]
    if r.gpus_per_node:
        asked.append(f"--gpus-per-slot={r.gpus_per_node}")
    if service.hpc.partition is not None:
        asked.append(f"--queue={service.hpc.partition}")
    if service.hpc.account is not None:
        asked.append(f"--bank={service.hpc.account}")
    asked += [f"--time-limit={math.ceil(service.lifetime_h * 60)}m", "--signal=SIGTERM@120s", f"--output={service.name}-{{{{id}}}}.log"]
    gpus = f" --gpus-per-task={r.gpus_per_node}" if r.gpus_per_node else ""
    launch = f'flux run --nodes={nodes} --ntasks={nodes} --cores-per-task={r.cpus}{gpus} bash "$here/node.sh"'
    renew = None
    if service.hpc.renew:
        # The next job goes to the instance that started this one, not into this one's own queue.
        renew = 'flux proxy "$(flux getattr parent-uri)" flux batch --dependency="afterany:$(flux getattr jobid)" "$here/job.sh"'
    nodes_lines = ["node_list=$(flux hostlist --expand --delimiter=, local)", *HEAD_OF_NODES]
    head = [f"#flux: {line}" for line in asked]
    return supervisor(service, head=head, here='"${SERVICE_DIR:-$PWD}"', nodes=nodes_lines, launch=launch, renew=renew)
