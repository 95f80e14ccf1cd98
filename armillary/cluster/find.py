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


def loads(text: str, where: str = "cluster", *, files: bool = True) -> Cluster:
    """The cluster that TOML text describes; without `files`, one that names files (traces, edges, another cluster) is refused."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(str(error), where=where) from None
    except RecursionError:
        raise InputError("tables nested too deep", where=where) from None
    if not files:
        _alone(data, where)
    return from_dict(data, where=where)


#: Keys whose value names a file, and keys whose value is a number or names one.
_FILES, _MAYBE_FILES = ("trace", "edges", "calibration"), ("carbon_intensity", "energy_price")


def _alone(data: object, where: str) -> None:
    """Raises InputError where tables name a file."""
    if isinstance(data, list):
        for entry in data:
            _alone(entry, where)
    if not isinstance(data, dict):
        return
    for key, value in data.items():
        a_file = key in _FILES or (key == "extends" and value not in presets())
        a_file = a_file or (key in _MAYBE_FILES and isinstance(value, str) and not value[:1].isdigit() and not value.startswith("-"))
        if a_file:
            raise InputError(f"{key}: files cannot be named here; put the text into a file and give that", where=where)
        _alone(value, where)


def described() -> dict[str, str]:
    """Every preset with its description."""
    found = {}
    for name in presets():
        with (PRESETS / f"{name}.toml").open("rb") as file:
            found[name] = str(tomllib.load(file).get("description", ""))
    return found
