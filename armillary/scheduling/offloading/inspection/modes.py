"""What an inspection finds: the mode, one sentence why, and the places in the source that say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from armillary.scheduling.offloading.runtime.controller import Mode

#: The annotation under which Knative Services carry the mode.
ANNOTATION = "gaia.dev/execution-mode"
#: Codes of findings, as linters print them.
CODES = {
    "explicit": "OFF101", "guarded": "OFF102", "heavy": "OFF201", "flops": "OFF202", "tensor": "OFF203", "model": "OFF204",
    "import": "OFF301",
}  # fmt: skip


@dataclass(frozen=True, order=True)
class Evidence:
    """A place in a source and what it says. `kind` is one of `CODES`."""

    file: str
    line: int
    column: int
    kind: str
    what: str

    def text(self) -> str:
        """The finding as flake8 prints findings: file:line:column: code what."""
        return f"{self.file}:{self.line}:{self.column}: {CODES[self.kind]} {self.what}"


@dataclass(frozen=True)
class Inspection:
    """The mode of a source with its reasons; `flops` and `parameters` are what could be inferred, at least."""

    mode: Mode
    reason: str
    evidence: tuple[Evidence, ...]
    files: tuple[str, ...]
    flops: float = 0.0
    parameters: float = 0.0
    #: The sources that were read, by their path inside the project.
    texts: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def annotation(self) -> dict[str, str]:
        """The annotation of a Knative Service's template."""
        return {ANNOTATION: self.mode.value}

    def text(self) -> str:
        """The findings, one per line, and the mode with its reason last."""
        return "\n".join([*(one.text() for one in self.evidence), f"{self.files[0]}: {self.mode.value}: {self.reason}"])
