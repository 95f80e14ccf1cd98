"""A predictor in two files: arrays in an `.npz`, everything else as JSON beside it. Nothing is unpickled.

The JSON is checked first; it implies the name, type and shape of every array, and arrays that differ are refused before a loop sees them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from armillary.errors import InputError, one_line
from armillary.files import read_arrays, read_json
from armillary.learn.calibration import Isotonic

from ..features.daily import OTHERS, PER_ATTRIBUTE
from ..fleets.fleet import Array
from ..networks.partition import Scaling
from ..networks.scorer import Networks, Part
from ..networks.settings import Settings
from ..networks.shapes import shapes
from .costs import Held
from .predictor import Predictor
from .survival import Survival

FORMAT = "armillary-drives/1"
#: Bytes of all arrays.
MOST_BYTES = 1 << 30
Text = Annotated[str, Field(min_length=1, max_length=200)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=1 << 31)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Part(_Strict):
    name: Text
    models: list[Text] = Field(min_length=1, max_length=10_000)
    features: int = Field(ge=1, le=10_000)
    members: int = Field(ge=1, le=20)
    slope: Finite
    start: Finite
    failing: Count


class _Facts(_Strict):
    format: Literal["armillary-drives/1"]
    kind: Literal["lstm", "xlstm", "both", "gru-attention", "cnn-lstm"]
    width: int = Field(ge=4, le=512, multiple_of=4)
    heads: Literal[4]
    length: int = Field(ge=1, le=365)
    attributes: list[Annotated[int, Field(ge=1, le=255)]] = Field(min_length=1, max_length=255)
    horizon: int = Field(ge=1, le=365)
    #: Null stands for a threshold that flags nothing.
    threshold: Finite | None
    weight: float = Field(ge=1, le=1e9, allow_inf_nan=False)
    spans: dict[Annotated[str, Field(pattern=r"^[1-9]\d{0,4}$")], Annotated[int, Field(ge=1, le=1 << 24)]] = Field(
        min_length=1, max_length=16
    )
    models: list[Text] = Field(min_length=1, max_length=10_000)
    held: Count
    held_days: Count
    parts: list[_Part] = Field(min_length=1, max_length=10_000)
    trained_on: dict[Text, int | float | str]


def save(predictor: Predictor, path: Path) -> None:
    """Writes both files, each as a whole or not at all."""
    how, held = predictor.networks.how, predictor.held
    arrays: dict[str, Array] = {}
    parts = []
    for i, (name, part) in enumerate(predictor.networks.parts.items()):
        arrays |= {
            f"{i}.columns": part.scaling.columns.astype(np.int64),
            f"{i}.median": part.scaling.median,
            f"{i}.spread": part.scaling.spread,
        }
        arrays[f"{i}.attention"] = predictor.attention[name]
        for j, (weights, guide) in enumerate(part.members):
            arrays |= {f"{i}.{j}.{key}": value for key, value in weights.items()} | {f"{i}.{j}.guide": guide}
        parts.append({
            "name": name, "models": list(part.models), "features": len(part.scaling.columns), "members": len(part.members),
            "slope": float(part.slope), "start": float(part.start), "failing": len(predictor.attention[name]),
        })  # fmt: skip
    for span, curve in predictor.survival_curves.curves.items():
        arrays |= {f"survival.{span}.knots": np.asarray(curve.knots), f"survival.{span}.values": np.asarray(curve.values)}
    arrays |= {
        "held.model": held.model.astype(np.int64), "held.fails": held.fails, "held.healthy": held.healthy, "held.right": held.right,
        "held.any": held.any,
    }  # fmt: skip
    facts = {
        "format": FORMAT, "kind": how.kind, "width": how.width, "heads": how.heads, "length": how.length,
        "attributes": list(predictor.attributes), "horizon": predictor.horizon,
        "threshold": predictor.threshold if np.isfinite(predictor.threshold) else None, "weight": float(predictor.weight),
        "spans": {str(span): len(curve.knots) for span, curve in predictor.survival_curves.curves.items()}, "models": list(held.models),
        "held": len(held.model), "held_days": held.days, "parts": parts, "trained_on": predictor.trained_on,
    }  # fmt: skip
    _whole(_json(path), lambda file: file.write(json.dumps(facts, indent=1, allow_nan=False).encode()))
    _whole(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def load(path: Path) -> Predictor:
    """Reads both files."""
    where = str(_json(path))
    facts = _facts(read_json(_json(path), limit=1 << 24), where)
    expected = _expected(facts)
    if sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in expected.values()) > MOST_BYTES:
        raise InputError(f"found sizes of more than {MOST_BYTES:,} bytes; expected at most {MOST_BYTES:,}", where=where)
    arrays = read_arrays(path, limit=MOST_BYTES)
    if arrays.keys() != expected.keys():
        odd = sorted(arrays.keys() ^ expected.keys())[0]
        raise InputError(
            f'{"found" if odd in arrays else "lacks"} the array "{one_line(odd, 80)}", which {_json(path).name} does not imply',
            where=str(path),
        )
    for name, (shape, kind) in expected.items():
        _check(name, arrays[name], shape, kind, str(path))
    return _made(facts, arrays, str(path))


def _made(facts: _Facts, arrays: dict[str, Array], where: str) -> Predictor:
    how = Settings(facts.kind, facts.width, facts.heads, facts.length)
    features = PER_ATTRIBUTE * len(facts.attributes) + len(OTHERS)
    parts, attention = {}, {}
    for i, one in enumerate(facts.parts):
        columns = arrays[f"{i}.columns"]
        if columns.min() < 0 or columns.max() >= features or np.any(np.diff(columns) <= 0):
            raise InputError(f"{i}.columns: expected rising numbers of features from 0 to {features - 1}", where=where)
        if np.any(arrays[f"{i}.spread"] <= 0):
            raise InputError(f"{i}.spread: expected positive numbers", where=where)
        names = shapes(facts.kind, one.features, facts.width, facts.heads)
        members = tuple(({key: arrays[f"{i}.{j}.{key}"] for key in names}, arrays[f"{i}.{j}.guide"]) for j in range(one.members))
        scaling = Scaling(columns, arrays[f"{i}.median"], arrays[f"{i}.spread"])
        parts[one.name] = Part(tuple(one.models), scaling, members, one.slope, one.start)
        attention[one.name] = arrays[f"{i}.attention"]
    curves = {}
    for span in facts.spans:
        knots, values = arrays[f"survival.{span}.knots"], arrays[f"survival.{span}.values"]
        if np.any(np.diff(knots) <= 0) or np.any(np.diff(values) < 0) or values.min() < 0 or values.max() > 1:
            raise InputError(f"survival.{span}: expected probabilities that do not fall, at rising scores", where=where)
        curves[int(span)] = Isotonic(knots, values)
    model = arrays["held.model"]
    if len(model) and not 0 <= int(model.min()) <= int(model.max()) < len(facts.models):
        raise InputError(f"held.model: expected numbers from 0 to {len(facts.models) - 1}", where=where)
    held = Held(
        tuple(facts.models), model, arrays["held.fails"], arrays["held.healthy"], arrays["held.right"], arrays["held.any"], facts.held_days
    )  # fmt: skip
    threshold = np.inf if facts.threshold is None else facts.threshold
    return Predictor(
        Networks(how, parts), tuple(facts.attributes), facts.horizon, threshold, facts.weight, Survival(curves), held, attention,
        facts.trained_on,
    )  # fmt: skip


def _facts(document: Any, where: str) -> _Facts:
    try:
        found = _Facts.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the document"
        raise InputError(f"{one_line(place, 80)}: {one_line(first['msg'], 160)}", where=where) from None
    names = [part.name for part in found.parts]
    if len(set(names)) < len(names) or len(set(found.attributes)) < len(found.attributes):
        raise InputError("found a partition or an attribute twice; expected each once", where=where)
    if str(found.horizon) not in found.spans:
        raise InputError(f'spans: expected the horizon "{found.horizon}" among them', where=where)
    return found


def _expected(facts: _Facts) -> dict[str, tuple[tuple[int, ...], str]]:
    """The shape and type of every array."""
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for i, one in enumerate(facts.parts):
        n = (one.features,)
        found |= {f"{i}.columns": (n, "<i8"), f"{i}.median": (n, "<f4"), f"{i}.spread": (n, "<f4")}
        found[f"{i}.attention"] = ((one.failing, len(facts.attributes) + 1), "<f8")
        for j in range(one.members):
            found |= {f"{i}.{j}.{key}": (shape, "<f4") for key, shape in shapes(facts.kind, one.features, facts.width, facts.heads).items()}
            found[f"{i}.{j}.guide"] = (n, "<f4")
    for span, knots in facts.spans.items():
        found |= {f"survival.{span}.{half}": ((knots,), "<f8") for half in ("knots", "values")}
    n = (facts.held,)
    return found | {
        "held.model": (n, "<i8"), "held.fails": (n, "|b1"), "held.healthy": (n, "|b1"), "held.right": (n, "<f8"), "held.any": (n, "<f8")
    }  # fmt: skip


def _check(name: str, array: Array, shape: tuple[int, ...], kind: str, where: str) -> None:
    if array.dtype.str != kind or array.shape != shape:
        raise InputError(f"{name}: found {array.dtype.str} of shape {array.shape}; expected {kind} of shape {shape}", where=where)
    if array.dtype.kind == "f":
        # Of a drive without a score, the best one is minus infinity.
        bad = np.isnan(array) | (array == np.inf) if name in ("held.right", "held.any") else ~np.isfinite(array)
        if bad.any():
            raise InputError(f"{name}: found a number that is not finite", where=where)


def _json(path: Path) -> Path:
    if path.suffix != ".npz":
        raise InputError('found another ending; expected a name such as "drives.npz"', where=str(path))
    return path.with_suffix(".json")


def check_name(path: Path) -> None:
    """Raises InputError unless a predictor can be written there: before the training, not after it."""
    _json(path)
    if not path.resolve().parent.is_dir():
        raise InputError("found no such folder; expected one that exists", where=str(path.parent))


def write_text(path: Path, text: str) -> None:
    """Writes a text file as a whole or not at all."""
    _whole(path, lambda file: file.write(text.encode()))


def _whole(path: Path, write: Any) -> None:
    """Writes a file beside its place and then moves it there."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            write(file)
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", where=str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)
