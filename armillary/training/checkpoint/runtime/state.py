"""The state of a model and its optimizer as one row of bytes with a description, so that it can travel in chunks; nothing is pickled."""

# Much of PyTorch carries no annotations.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from armillary.errors import InputError, one_line

#: Names of PyTorch's types as safetensors writes them.
DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32",
    torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
_TYPES = {name: dtype for dtype, name in DTYPES.items()}
Description = dict[str, Any]


class Flat:
    """The tensors of a model and an optimizer, in a fixed order, as bytes 0 to `total`.

    The optimizer's states appear with its first step, so the tensors are looked up whenever a version begins.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer
        self._parts: list[tuple[int, Tensor]] = []
        self.total = 0

    def describe(self, extra: Mapping[str, Any] | None = None) -> Description:
        """Looks the tensors up, and returns their names, types, shapes and places, the optimizer's settings, and `extra`."""
        tensors: dict[str, Any] = {}
        scalars: dict[str, Any] = {}
        self._parts, at = [], 0
        for name, value in self._named(scalars):
            if value.dtype not in DTYPES:
                raise InputError(f"{name}: found {value.dtype}; expected one of {', '.join(DTYPES.values())}")
            size = value.numel() * value.element_size()
            tensors[name] = {"dtype": DTYPES[value.dtype], "shape": list(value.shape), "data_offsets": [at, at + size]}
            self._parts.append((at, value))
            at += size
        self.total = at
        # As JSON gives it back, so that a description is the same before and after it has travelled.
        groups = [{key: x for key, x in group.items() if key != "params" and _plain(x)} for group in self.optimizer.param_groups]
        plain = json.loads(json.dumps({"scalars": scalars, "groups": groups, "extra": dict(extra or {})}))
        return {"tensors": tensors, **plain}

    def _named(self, scalars: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
        for name, value in self.model.state_dict(keep_vars=True).items():
            yield f"model.{name}", value.detach()
        number = 0
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                for key, value in sorted(self.optimizer.state.get(parameter, {}).items()):
                    if isinstance(value, Tensor):
                        yield f"optimizer.{number}.{key}", value.detach()
                    elif _plain(value):
                        scalars[f"optimizer.{number}.{key}"] = value
                number += 1

    def read(self, begin: int, into: Tensor) -> None:
        """Copies the bytes from `begin` on into a row of bytes."""
        end = begin + len(into)
        for at, value in self._parts:
            size = value.numel() * value.element_size()
            low, high = max(begin, at), min(end, at + size)
            if low < high:
                row = value.contiguous().reshape(-1).view(torch.uint8)
                into[low - begin : high - begin].copy_(row[low - at : high - at])

    def load(self, description: Description, data: Tensor) -> None:
        """Puts a version into the model and the optimizer, after everything in it was compared with theirs."""
        parts = tensors_of(description, data)
        own = self.model.state_dict(keep_vars=True)
        wanted = {name.removeprefix("model."): value for name, value in parts.items() if name.startswith("model.")}
        if set(wanted) != set(own):
            odd = sorted(set(wanted) ^ set(own))[0]
            raise InputError(f"{odd}: the version and the model differ; expected the same tensors")
        for name, value in own.items():
            if wanted[name].shape != value.shape:
                raise InputError(f"{name}: found the shape {tuple(wanted[name].shape)}; expected {tuple(value.shape)}")
        self._load_optimizer({n: v for n, v in parts.items() if n.startswith("optimizer.")}, description)
        with torch.no_grad():
            for name, value in own.items():
                value.copy_(wanted[name])

    def _load_optimizer(self, parts: Mapping[str, Tensor], description: Description) -> None:
        state: dict[int, dict[str, Any]] = {}
        for name, value in {**parts, **description["scalars"]}.items():
            found = re.fullmatch(r"optimizer\.(\d{1,9})\.(.+)", name)
            if found is None:
                raise InputError(f"{one_line(name, 60)}: expected a state of the optimizer")
            state.setdefault(int(found[1]), {})[found[2]] = value
        own_groups = self.optimizer.state_dict()["param_groups"]
        if len(own_groups) != len(description["groups"]) or not all(isinstance(theirs, dict) for theirs in description["groups"]):
            raise InputError(f"found {len(description['groups'])} groups of parameters; expected {len(own_groups)} with their settings")
        groups = []
        for mine, theirs in zip(own_groups, description["groups"], strict=True):
            paired = {key for key, value in theirs.items() if isinstance(mine.get(key), tuple) and isinstance(value, list)}
            like = {key: tuple(value) if key in paired else value for key, value in theirs.items()}
            groups.append({**mine, **like, "params": mine["params"]})
        try:
            self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            said = f"{type(error).__name__}: {one_line(str(error), 80)}"
            raise InputError(f"the optimizer does not take the version's state ({said})") from error


def tensors_of(description: Description, data: Tensor) -> dict[str, Tensor]:
    """The tensors of a version by name, as copies of its bytes."""
    found = {}
    for name, facts in description["tensors"].items():
        low, high = facts["data_offsets"]
        found[name] = data[low:high].clone().view(_TYPES[facts["dtype"]]).reshape(facts["shape"])
    return found


def _plain(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
