"""Checkpoints of one worker: nested states of tensors and numbers as one `.npz` file, read without pickles.

A file is complete or absent, because it gets its name last. The newest two are kept: workers that were killed at different
moments go on from the newest step that all of them have.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from armillary.errors import InputError
from armillary.files import parse_json, read_arrays

KEPT = 2


def save(folder: Path, worker: int, step: int, state: Any) -> None:
    """Write a worker's state after `step` steps, and remove what is older than the newest two."""
    arrays: dict[str, Any] = {}
    tree = _packed(state, arrays)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"worker-{worker}-{step}.npz"
    part = folder / f"{name}.part"
    with part.open("wb") as file:
        np.savez(file, tree=np.frombuffer(json.dumps(tree).encode(), np.uint8), **arrays)
        file.flush()
        os.fsync(file.fileno())
    part.rename(folder / name)
    for old in saved(folder, worker)[:-KEPT]:
        (folder / f"worker-{worker}-{old}.npz").unlink()


def saved(folder: Path, worker: int) -> list[int]:
    """The steps after which a worker's state was saved, the newest last."""
    pattern = re.compile(rf"worker-{worker}-(\d+)\.npz")
    return sorted(int(m[1]) for path in folder.glob(f"worker-{worker}-*.npz") if (m := pattern.fullmatch(path.name)))


def load(folder: Path, worker: int, step: int) -> Any:
    """The state that was saved after `step` steps."""
    path = folder / f"worker-{worker}-{step}.npz"
    arrays = read_arrays(path)
    if "tree" not in arrays:
        raise InputError("found no tree of names; expected a checkpoint of a worker", where=str(path))
    return _unpacked(parse_json(bytes(arrays["tree"].astype(np.uint8)).decode(), where=str(path)), arrays, str(path))


def _packed(state: Any, arrays: dict[str, Any]) -> Any:
    """The state with its tensors replaced by the names under which they stand in `arrays`."""
    if isinstance(state, torch.Tensor):
        name = f"t{len(arrays)}"
        arrays[name] = state.detach().cpu().numpy()
        return {"tensor": name}
    if isinstance(state, Mapping):
        # JSON knows only text as keys, and PyTorch's states have numbers.
        return {"pairs": [[key, _packed(value, arrays)] for key, value in state.items()]}
    if isinstance(state, list | tuple):
        return {"list": [_packed(value, arrays) for value in state]}
    return state


def _unpacked(tree: Any, arrays: Mapping[str, Any], where: str) -> Any:
    if not isinstance(tree, dict):
        return tree
    if "tensor" in tree:
        if tree["tensor"] not in arrays:
            raise InputError(f"found no array {tree['tensor']!r}", where=where)
        return torch.from_numpy(np.array(arrays[tree["tensor"]]))
    if "list" in tree:
        return [_unpacked(value, arrays, where) for value in tree["list"]]
    return {key: _unpacked(value, arrays, where) for key, value in tree["pairs"]}
