"""Deployment by hand: the example in each platform's documentation, with name, image, model, port and GPUs filled in.

We wrote the examples (`by_hand_examples/`) in the form of the platforms' own pages (vLLM on Kubernetes and Docker, a Helm starter chart,
a first job with Apptainer, Podman or Flux; 2025), which a person copies and changes in a few places. They serve to count lines and to
show which settings such a start leaves out.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from .description.service import Auth, Service
from .kubernetes import GPU_RESOURCE
from .rendering.engine_command import engine_words
from .rendering.shell import words
from .rendering.target import Target
from .rendering.targets import TARGETS

_FOLDER = Path(__file__).parent / "by_hand_examples"


@dataclass(frozen=True)
class ByHand(Target):
    """Every platform's documented example, filled in, with nothing derived. Documentation of 2025."""

    platform: ClassVar[str] = "by-hand"

    def examples(self, service: Service) -> dict[str, dict[str, str]]:
        """Returns the files of each platform."""
        r = service.resources
        keyless = service.model_copy(update={"auth": Auth()})
        command = [str(word) for word in engine_words(keyless, host="0.0.0.0", port=str(service.network.port))]
        wanted = ("--tensor-parallel-size", "--port", "--host", "--model", "--model-path")
        short = command[:3] + [w for i, w in enumerate(command[3:], 3) if w in wanted or command[i - 1] in wanted]
        filled = {
            "@NAME@": service.name, "@IMAGE@": service.image, "@COMMAND@": words(short), "@PORT@": str(service.network.port),
            "@GPUS@": str(r.gpus_per_node), "@GPURESOURCE@": GPU_RESOURCE[r.gpu], "@ENGINE@": service.engine,
            "@APPTAINERGPU@": "--rocm" if r.gpu == "amd" else "--nv",
            "@PODMANGPU@": "--device /dev/kfd --device /dev/dri" if r.gpu == "amd" else "--device nvidia.com/gpu=all",
            "@KEYSECRET@": service.api_key.name if service.api_key is not None else f"{service.name}-key",
        }  # fmt: skip
        out: dict[str, dict[str, str]] = {}
        for target in TARGETS:
            out[target] = {name: _fill(text, filled) for name, text in _example(target).items()}
        return out

    def render(self, service: Service) -> dict[str, str]:
        """Returns the files of all platforms, each platform in a folder of its own."""
        return {f"{target}/{name}": text for target, files in self.examples(service).items() for name, text in files.items()}


@functools.cache
def _example(target: str) -> dict[str, str]:
    root = _FOLDER / target
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


def _fill(text: str, filled: dict[str, str]) -> str:
    for mark, value in filled.items():
        text = text.replace(mark, value)
    return text


def written_lines(text: str) -> int:
    """Returns the number of lines that a person writes: lines that are neither empty nor a comment. Batch directives count as lines."""
    return sum(
        bool(line.strip()) and (not line.lstrip().startswith("#") or line.startswith(("#SBATCH", "#flux:", "#!")))
        for line in text.splitlines()
    )
