"""Finds a cluster from what a person types: the name of a preset, a file, or text."""

from __future__ import annotations

import tomllib
from pathlib import Path

from armillary.errors import InputError

from .cluster import Cluster
from .reader import PRESETS, from_dict, load, preset, presets


def find(name: str) -> Cluster:
    """The preset of this name, or else the file; a name that is neither is an error that suggests the nearest preset."""
    if name in presets() or not (Path(name).exists() or Path(name).suffix or "/" in name):
        return preset(name)
    return load(name)


def loads(text: str, where: str = "cluster") -> Cluster:
    """The cluster that TOML text describes."""
    try:
        return from_dict(tomllib.loads(text), where=where)
    except tomllib.TOMLDecodeError as error:
        raise InputError(str(error), where=where) from None


def described() -> dict[str, str]:
    """Every preset with its description."""
    found = {}
    for name in presets():
        with (PRESETS / f"{name}.toml").open("rb") as file:
            found[name] = str(tomllib.load(file).get("description", ""))
    return found
