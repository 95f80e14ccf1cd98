"""Model files: a network's configuration, its arrays, and what it was trained on, in the safetensors format.

The format is 8 bytes with the length of the header (little-endian), the header as JSON (`{"__metadata__": {text: text}, name: {"dtype",
"shape", "data_offsets"}}`), and the data. It is read and written here, because frozen models must not need an optional package. A file
from a stranger is compared with what its configuration implies before anything is allocated, and nothing in it is ever run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

import armillary
from armillary.errors import InputError, one_line
from armillary.files import open_file, parse_json

from .features import Features
from .frozen import freeze
from .kinds import MOST_TENSORS, Config, PartsConfig, parse_config

Array = np.ndarray[Any, Any]
FORMAT = "armillary-model/1"
#: The most bytes of a model file and of its header.
MOST_BYTES, MOST_HEADER = 1 << 26, 1 << 20
DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "I32": np.dtype("<i4"), "I16": np.dtype("<i2"), "U8": np.dtype("u1")}
_Count = Annotated[int, Field(ge=0, le=1 << 63)]
_TEXTS = TypeAdapter(Annotated[tuple[Annotated[str, Field(max_length=200)], ...], Field(max_length=4096)])
_METRICS = TypeAdapter(Annotated[dict[str, Annotated[float, Field(allow_inf_nan=False)]], Field(max_length=256)])
_VERSIONS = TypeAdapter(Annotated[dict[str, str], Field(max_length=64)])
_FEATURES = TypeAdapter(Features | None)


class _Metadata(BaseModel):
    """The text that stands in a header; values that are not text are JSON."""

    model_config = ConfigDict(extra="forbid")
    format: Literal["armillary-model/1"]
    technique: Annotated[str, Field(max_length=200)]
    kind: Annotated[str, Field(max_length=64)]
    config: str
    features: str = "null"
    trained_on: str = "[]"
    seed: Annotated[str, Field(pattern=r"^\d{1,39}$")] = "0"
    steps: Annotated[str, Field(pattern=r"^\d{1,18}$")] = "0"
    metrics: str = "{}"
    versions: str = "{}"
    created_from: Annotated[str, Field(pattern=r"^[0-9a-f]{0,64}$")] = ""
    code: Annotated[str, Field(pattern=r"^[0-9a-f]{0,64}$")] = ""
    deterministic: Literal["true", "false"] = "true"


@dataclass(frozen=True)
class Model:
    """A trained model: its configuration and arrays, and where it comes from."""

    config: Config
    arrays: Mapping[str, Array]
    technique: str = ""
    features: Features | None = None
    #: Digests, or names, of the cases that it was trained on.
    trained_on: tuple[str, ...] = ()
    seed: int = 0
    steps: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    #: Digest of the recipe (technique, parameters, cases, seed) and of the code that trained it.
    created_from: str = ""
    code: str = ""
    #: False when the training device does not promise the same weights again.
    deterministic: bool = True

    @classmethod
    def of(cls, module: Any, **facts: Any) -> Model:
        """The model of a trained PyTorch module: a block of this package, or a module whose children are blocks.

        facts: technique, features, trained_on, seed, steps, metrics, deterministic.
        """
        config = config_of(module)
        arrays = {name: value.detach().cpu().numpy().copy() for name, value in module.state_dict().items()}
        return cls(config, arrays, **{"versions": versions()} | facts)

    @classmethod
    def joined(cls, parts: Mapping[str, Model], arrays: Mapping[str, Array] | None = None, **facts: Any) -> Model:
        """One model of several named ones and single float32 arrays: `model.frozen()["name"]` gives each of them back."""
        single = {name: np.asarray(array, np.float32) for name, array in (arrays or {}).items()}
        config = PartsConfig(
            parts={name: part.config for name, part in parts.items()}, arrays={name: array.shape for name, array in single.items()}
        )  # fmt: skip
        held = single | {f"{name}.{key}": array for name, part in parts.items() for key, array in part.arrays.items()}
        return cls(config, held, **{"versions": versions()} | facts)

    @property
    def kind(self) -> str:
        """The name of the kind of network."""
        return self.config.kind

    @property
    def digest(self) -> str:
        """Hex SHA-256 of the model's file."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def frozen(self) -> Any:
        """The network over plain arrays, which needs no PyTorch."""
        return freeze(self.config, self.arrays)

    def module(self) -> Any:
        """The PyTorch module with these weights; a composition of parts is loaded into its own class by `load_into`."""
        from .modules import module_of

        made = module_of(self.config)
        self.load_into(made)
        return made

    def load_into(self, module: Any) -> None:
        """Copies the weights into a PyTorch module with the same tensors."""
        import torch

        state = module.state_dict()
        found = {name: tuple(value.shape) for name, value in state.items()}
        if found != self.config.shapes():
            odd = sorted(found.items() ^ self.config.shapes().items())[0][0]
            raise InputError(f'found a module that differs in "{odd}"; expected the tensors of this model ({self.kind})')
        with torch.no_grad():
            for name, value in state.items():
                value.copy_(torch.from_numpy(np.array(self.arrays[name])))

    def predict(self, columns: Any, *, units: Mapping[str, str] | None = None) -> Array:
        """The network's output for named columns, standardised as in training."""
        if self.features is None:
            raise InputError("found a model without features; expected one that was stored with them")
        found: Array = self.frozen()(self.features.matrix(columns, units=units))
        return found

    def to_bytes(self) -> bytes:
        """The file's content; the same model gives the same bytes."""
        shapes = self.config.shapes()
        if set(shapes) != set(self.arrays):
            odd = sorted(set(shapes) ^ set(self.arrays))[0]
            raise InputError(f'found "{odd}" in only one of configuration and arrays; expected the tensors of {self.kind}')
        config = self.config.model_dump(mode="json")
        head: dict[str, Any] = {
            "__metadata__": {
                "format": FORMAT, "technique": self.technique, "kind": self.kind, "config": _json(config),
                "features": _json(self.features.model_dump(mode="json") if self.features else None),
                "trained_on": _json(list(self.trained_on)), "seed": str(self.seed), "steps": str(self.steps),
                "metrics": _json(dict(self.metrics)), "versions": _json(dict(self.versions)),
                "created_from": self.created_from, "code": self.code, "deterministic": "true" if self.deterministic else "false",
            }
        }  # fmt: skip
        at, pieces = 0, []
        # Wide numbers come first, so that every tensor is aligned.
        for name in sorted(shapes, key=lambda name: (-DTYPES[self.config.dtype_of(name)].itemsize, name)):
            dtype = self.config.dtype_of(name)
            array = np.ascontiguousarray(self.arrays[name], DTYPES[dtype])
            if array.shape != shapes[name]:
                raise InputError(f"{name}: found shape {array.shape}; expected {shapes[name]}")
            head[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
            pieces.append(array.tobytes())
            at += array.nbytes
        text = json.dumps(head, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text + b"".join(pieces)

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes the file, whole or not at all, after checking that it can be read again; returns its hex SHA-256."""
        data = self.to_bytes()
        for name, array in self.arrays.items():
            if not np.isfinite(array).all():
                raise InputError(f"{name}: found a number that is not finite; expected trained weights", where=str(path))
        self.config.check(self.arrays, str(path))
        write_whole(Path(path), data)
        return hashlib.sha256(data).hexdigest()


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file under another name and renames it, so that nobody ever sees a part of it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise InputError(f"cannot be written ({(error.strerror or str(error)).lower()})", where=str(path)) from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def load(path: str | os.PathLike[str]) -> Model:
    """Reads a model file, and checks everything in it before it is used. Needs no PyTorch."""
    where = str(path)
    with open_file(path, limit=MOST_BYTES, unpack=False) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > min(MOST_HEADER, size - 8):
            said = f"found a header of {length:,} bytes in a file of {size:,}" if len(start) == 8 else f"found {size} bytes"
            raise InputError(f"{said}; expected a safetensors file whose header has at most {MOST_HEADER:,} bytes", where=where)
        header = parse_json(file.read(length), where)
        metadata = _metadata(header, where)
        config = _config(metadata, where)
        places = _places(header, config, size - 8 - length, where)
        data = file.read(size - 8 - length)
    if len(data) < size - 8 - length:
        raise InputError("found the end of the file within its data; expected a whole file", where=where)
    arrays = {}
    for name, (dtype, shape, begin, end) in places.items():
        array = np.frombuffer(data, dtype, count=math.prod(shape), offset=begin).reshape(shape)
        if not array.flags.aligned:
            array = array.copy()
            array.setflags(write=False)
        if dtype.kind == "f" and not np.isfinite(array).all():
            at = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            raise InputError(f"{name}: found {array[at]} at {list(at)}; expected finite numbers", where=where)
        assert end - begin == array.nbytes
        arrays[name] = array
    config.check(arrays, where)
    return Model(
        config,
        arrays,
        technique=metadata.technique,
        features=_value(_FEATURES, metadata.features, "features", where),
        trained_on=_value(_TEXTS, metadata.trained_on, "trained_on", where),
        seed=int(metadata.seed),
        steps=int(metadata.steps),
        metrics=_value(_METRICS, metadata.metrics, "metrics", where),
        versions=_value(_VERSIONS, metadata.versions, "versions", where),
        created_from=metadata.created_from,
        code=metadata.code,
        deterministic=metadata.deterministic == "true",
    )


def _metadata(header: Any, where: str) -> _Metadata:
    if not isinstance(header, dict) or len(header) > MOST_TENSORS + 1:
        raise InputError("found no object of tensors in the header; expected one", where=where)
    try:
        return _Metadata.model_validate(header.get("__metadata__", {}))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        found = one_line(repr(first.get("input")), 60)
        raise InputError(f"__metadata__.{one_line(key, 60)}: found {found}; expected {FORMAT} ({first['msg']})", where=where) from None


def _config(metadata: _Metadata, where: str) -> Config:
    given = parse_json(metadata.config, f"{where}: __metadata__.config")
    if not isinstance(given, dict) or given.get("kind", metadata.kind) != metadata.kind:
        raise InputError(f'kind: found "{one_line(metadata.kind, 40)}"; expected the kind of the configuration', where=where)
    return parse_config(given | {"kind": metadata.kind}, where=where)


def _places(header: Mapping[str, Any], config: Config, room: int, where: str) -> dict[str, tuple[np.dtype[Any], tuple[int, ...], int, int]]:
    """Dtype, shape, begin and end of every tensor, if they are those that the configuration implies and fill the file without a gap."""
    shapes = config.shapes()
    found = set(header) - {"__metadata__"}
    for name in sorted(found ^ set(shapes))[:1]:
        if name in found:
            near = ", ".join(sorted(set(shapes) - found)[:3]) or "no other tensor"
            raise InputError(f'found the tensor "{one_line(name, 60)}"; expected {one_line(near, 120)}', where=where)
        raise InputError(f'found no tensor "{name}"; expected one of shape {list(shapes[name])}', where=where)
    places = {}
    for name, shape in shapes.items():
        facts, dtype = header[name], config.dtype_of(name)
        if not isinstance(facts, dict) or set(facts) != {"dtype", "shape", "data_offsets"}:
            raise InputError(f"{name}: found {one_line(repr(facts), 60)}; expected dtype, shape and data_offsets", where=where)
        if facts["dtype"] != dtype:
            raise InputError(f"{name}.dtype: found {one_line(repr(facts['dtype']), 40)}; expected {dtype}", where=where)
        if facts["shape"] != list(shape) or any(type(x) is not int for x in facts["shape"]):
            raise InputError(f"{name}.shape: found {one_line(repr(facts['shape']), 60)}; expected {list(shape)}", where=where)
        offsets = facts["data_offsets"]
        if not isinstance(offsets, list) or len(offsets) != 2 or any(type(x) is not int for x in offsets):
            raise InputError(f"{name}.data_offsets: found {one_line(repr(offsets), 60)}; expected two numbers", where=where)
        places[name] = (DTYPES[dtype], shape, offsets[0], offsets[1])
    at = 0
    for name, (kind, shape, begin, end) in sorted(places.items(), key=lambda item: item[1][2:]):
        need = math.prod(shape) * kind.itemsize
        if begin != at or end != at + need:
            raise InputError(f"{name}.data_offsets: found [{begin}, {end}]; expected [{at}, {at + need}]", where=where)
        at = end
    if at != room:
        raise InputError(f"found {room:,} bytes of data; expected {at:,}", where=where)
    return places


def _value(adapter: TypeAdapter[Any], text: str, key: str, where: str) -> Any:
    try:
        return adapter.validate_python(parse_json(text, f"{where}: __metadata__.{key}"))
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, (key, *first["loc"])))
        found = one_line(repr(first.get("input")), 60)
        raise InputError(f"__metadata__.{one_line(at, 60)}: found {found}; expected another value ({first['msg']})", where=where) from None


def config_of(module: Any) -> Config:
    """The configuration of a block, or of a module that is composed of blocks and single parameters."""
    config = getattr(module, "config", None)
    if isinstance(config, Config):
        return config
    parts: dict[str, Config] = {}
    arrays: dict[str, tuple[int, ...]] = {}
    for name, found in _pieces(module, ""):
        if isinstance(found, Config):
            parts[name] = found
        else:
            arrays[name] = found
    return PartsConfig(parts=parts, arrays=arrays)


def _pieces(module: Any, prefix: str) -> Iterator[tuple[str, Config | tuple[int, ...]]]:
    for name, parameter in module.named_parameters(recurse=False):
        yield prefix + name, tuple(parameter.shape)
    for name, buffer in module.named_buffers(recurse=False):
        yield prefix + name, tuple(buffer.shape)
    for name, child in module.named_children():
        config = getattr(child, "config", None)
        if isinstance(config, Config):
            yield prefix + name, config
        else:
            yield from _pieces(child, f"{prefix}{name}.")


def versions() -> dict[str, str]:
    """The versions that a trained model depends on."""
    import sys

    found = {"armillary": armillary.__version__, "numpy": np.__version__, "python": platform.python_version()}
    torch = sys.modules.get("torch")
    return found | ({"torch": str(torch.__version__)} if torch is not None else {})


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
