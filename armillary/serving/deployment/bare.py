"""A script that starts the engine without a container. Several machines run the same script, each with its rank. Bash 4 (2009)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .description.service import Service
from .rendering.engine_command import HEAD_PORT
from .rendering.host_scripts import Host, files_of, supervisor
from .rendering.shell import seal
from .rendering.target import Target


@dataclass(frozen=True)
class Bare(Target):
    """`job.sh` starts the engine and watches over it. Bash 4 (2009)."""

    platform: ClassVar[str] = "bare"

    def render(self, service: Service) -> dict[str, str]:
        """Returns the scripts."""
        here = '$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)'
        nodes, head = ["node_list=$(hostname)", 'HEAD_ADDRESS="${HEAD_ADDRESS:-127.0.0.1}"'], []
        if service.parallel.nodes > 1:
            said = "start it on every host with NODE_RANK=0,1,… and the address of the first as HEAD_ADDRESS"
            head = [f'HEAD_PORT="${{HEAD_PORT:-{HEAD_PORT}}}"']
            nodes = [f': "${{NODE_RANK:?{said}}}" "${{HEAD_ADDRESS:?{said}}}"', "node_list=$(hostname)"]
            # A worker has no endpoint whose health could be asked for; it runs until the first host ends it.
            nodes.append('if [ "$NODE_RANK" != 0 ]; then export PORT HEAD_ADDRESS; exec bash "$here/node.sh"; fi')
        job = supervisor(service, head=head, here=here, nodes=nodes, launch='bash "$here/node.sh"', renew=None)
        out = files_of(service, job, Host(), service.cache.local.path)
        return {name: seal(text, self.platform, service.digest) for name, text in sorted(out.items())}
