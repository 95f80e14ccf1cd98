"""One description for every platform, from which the differences between platforms are derived, so that no user has to learn them again.

The same container and the same model serve on Kubernetes and on an HPC system when the differences (a runtime's flags, storage, exposure,
lifetime) follow from one description. Podman isolates, so it is given network, memory and devices. Apptainer shares, so it is kept away
from home and environment. Kubernetes restarts, so its probes wait while the weights load. Slurm ends jobs, so they drain and queue their
successor. The schema and the derivation are our design, because the paper reports practice.

Experience Deploying Containerized GenAI Services at an HPC Center, arXiv:2509.20603.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.claim import Claim, Gain, Kind, Level

from .description.service import Service
from .rendering.target import Target
from .rendering.targets import TARGETS, render


@dataclass(frozen=True)
class Converged(Target):
    """All seven targets from one description. Experience Deploying Containerized GenAI Services at an HPC Center, arXiv:2509.20603."""

    platform: ClassVar[str] = "converged"

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim("valid", by=Level(at_least=1.0), on=Kind("rendered"), says="every check passes, on all seven targets", source="our reading"),
        Claim(
            "honoured",
            by=Level(at_least=1.0),
            on=Kind("rendered"),
            says="every setting is in the output of all seven targets",
            source="our reading",
        ),
        Claim("author_lines", by=Level(at_most=40), on=Kind("rendered"), says="a description of at most 40 lines", source="our reading"),
        Claim(
            "author_lines",
            over="by-hand",
            by=Gain(ratio=(3.75, None)),
            on=Kind("rendered"),
            source="our reading",
            says="3.75 times fewer lines than by hand (40 for 150)",
        ),
        Claim(
            "answers",
            by=Level(at_least=1.0),
            on=Kind("runs"),
            says="the same service answers on every target that is here",
            source="our reading",
        ),
    )

    def render(self, service: Service) -> dict[str, str]:
        """Returns the files of every target, each target in a folder of its own."""
        return {f"{name}/{file}": text for name in TARGETS for file, text in render(service, name).items()}
