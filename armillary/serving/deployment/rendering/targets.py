"""Finds targets by name and renders them into folders."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from pathlib import Path

from armillary.errors import InputError, one_line, unknown

from ..description.service import Service
from .shell import untouched
from .target import Target

TARGETS = {
    "kubernetes": ".kubernetes:Kubernetes",
    "helm": ".helm:Helm",
    "slurm-apptainer": ".slurm_apptainer:SlurmApptainer",
    "slurm-podman": ".slurm_podman:SlurmPodman",
    "flux": ".flux:Flux",
    "compose": ".compose:Compose",
    "bare": ".bare:Bare",
}


def target(name: str) -> Target:
    """Returns a target by its name."""
    if name not in TARGETS:
        raise unknown("target", name, TARGETS)
    module, _, attribute = TARGETS[name].partition(":")
    made: Target = getattr(importlib.import_module(f"armillary.serving.deployment{module}"), attribute)()
    return made


def render(service: Service, name: str) -> dict[str, str]:
    """Returns the files of one target as a mapping from relative path to text."""
    return dict(sorted(target(name).render(service).items()))


def write(service: Service, names: Iterable[str], folder: Path, *, force: bool = False) -> list[Path]:
    """Renders each target into a folder with the target's name; if somebody edited a file there, refuses and writes nothing."""
    found = {folder / name / file: text for name in names for file, text in render(service, name).items()}
    if not force:
        for path in found:
            if not path.exists():
                continue
            try:
                state = untouched(path.read_text())
            except (OSError, UnicodeDecodeError):
                state = None
            if not state:
                said = "was edited after it was rendered" if state is False else "was not rendered by armillary"
                raise InputError(f"{said}; --force replaces it", where=str(path))
    for path, text in found.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(f".{path.name}.{os.getpid()}")
            unfinished.write_text(text)
            unfinished.chmod(0o755 if path.suffix == ".sh" and path.name != "env.sh" else 0o644)
            unfinished.replace(path)
        except OSError as problem:
            raise InputError(f"cannot be written: {one_line(str(problem), 100)}", where=str(path)) from None
    return sorted(found)
