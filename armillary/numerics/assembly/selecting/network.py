"""The network that reads features and pictures and predicts seconds, in NumPy alone: what training left is a file of plain arrays.

    pictures 2×64×64 → 16 → 32 → 64 channels (3×3, stride 2, ReLU), mean over the picture ┐
    numbers 36 → 64 → 64 (ReLU) ──────────────────────────────────────────────────────────┴→ 64 (ReLU) → 10 log-seconds

The ten outputs are log-seconds of a numeric assembly by each of the five strategies, and of their preparation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import read_arrays

from ..assembling.strategy import STRATEGIES
from .features import NAMES, VERSION, Features

LAYERS = {
    "conv0.weight": (16, 2, 3, 3), "conv0.bias": (16,), "conv1.weight": (32, 16, 3, 3), "conv1.bias": (32,),
    "conv2.weight": (64, 32, 3, 3), "conv2.bias": (64,), "dense0.weight": (64, len(NAMES)), "dense0.bias": (64,),
    "dense1.weight": (64, 64), "dense1.bias": (64,), "joint.weight": (64, 128), "joint.bias": (64,),
    "out.weight": (2 * len(STRATEGIES), 64), "out.bias": (2 * len(STRATEGIES),),
}  # fmt: skip
#: Added to the layers: how numbers are scaled, and where log-seconds lie.
SCALES = {"mean": (len(NAMES),), "deviation": (len(NAMES),), "offset": (2 * len(STRATEGIES),)}
MOST_BYTES = 300_000
HERE = Path(__file__).parents[1] / "weights"


@dataclass(frozen=True)
class Network:
    """Trained weights; `device` is what they were measured on and `facts` what is known about that."""

    layers: dict[str, np.ndarray]
    device: str
    facts: dict[str, Any]

    def log_seconds(self, features: Features) -> np.ndarray:
        """Returns float64[10]: numeric assembly by each strategy, then preparation, both as natural logarithms of seconds."""
        w = self.layers
        x = features.pictures
        for k in range(3):
            x = _convolved(x, w[f"conv{k}.weight"], w[f"conv{k}.bias"])
        picture = x.reshape(x.shape[0], -1).mean(axis=1)
        y = ((features.numbers - w["mean"]) / w["deviation"]).astype(np.float32)
        # A number far outside what was learned from would be extrapolated without bound.
        y = np.clip(y, -4, 4)
        for k in range(2):
            y = np.maximum(w[f"dense{k}.weight"] @ y + w[f"dense{k}.bias"], 0)
        joint = np.maximum(w["joint.weight"] @ np.concatenate([picture, y]) + w["joint.bias"], 0)
        return np.asarray(w["out.weight"] @ joint + w["out.bias"] + w["offset"], np.float64)

    def seconds(self, features: Features) -> tuple[np.ndarray, np.ndarray]:
        """Returns predicted seconds by strategy: numeric assembly, and preparation."""
        found = np.exp(np.clip(self.log_seconds(features), -30, 30))
        half = len(STRATEGIES)
        return found[:half], found[half:]

    def save(self, path: Path) -> None:
        """Writes the weights as float16 arrays in an .npz, tagged with device and version."""
        tag = {"device": self.device, "features": VERSION, "strategies": list(STRATEGIES), **self.facts}
        small: dict[str, Any] = {name: w.astype(np.float32 if name in SCALES else np.float16) for name, w in self.layers.items()}
        code = np.frombuffer(json.dumps(tag, sort_keys=True).encode(), np.uint8)
        np.savez_compressed(path, tag=code, **small)


def _convolved(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Applies a 3×3 convolution with stride 2 and a border of zeros, then ReLU: float32[in, n, n] to float32[out, n / 2, n / 2]."""
    n = x.shape[1]
    padded = np.zeros((x.shape[0], n + 2, n + 2), np.float32)
    padded[:, 1:-1, 1:-1] = x
    columns = np.stack([padded[:, i : i + n : 2, j : j + n : 2] for i in range(3) for j in range(3)], axis=1)
    flat = weight.reshape(weight.shape[0], -1) @ columns.reshape(-1, (n // 2) ** 2)
    return np.maximum(flat + bias[:, None], 0).reshape(-1, n // 2, n // 2)


def load(path: Path | str, device: str) -> Network:
    """Reads the weights in a file; they are refused unless they are for this device and these features."""
    path = Path(path)
    expected = LAYERS | SCALES
    found = read_arrays(path, limit=4 * MOST_BYTES)
    try:
        tag = json.loads(bytes(found["tag"]).decode())
        layers = {name: np.asarray(found[name], np.float32) for name in expected if name in found}
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"they are no weights of a selector: {one_line(str(error), 120)}", where=str(path)) from None
    if not isinstance(tag, dict) or tag.get("features") != VERSION or tag.get("strategies") != list(STRATEGIES):
        version = tag.get("features") if isinstance(tag, dict) else None
        raise InputError(f"found weights for features {one_line(str(version), 40)}; expected version {VERSION}", where=str(path))
    if tag.get("device") != device:
        raise InputError(f'found weights of "{one_line(str(tag.get("device")), 60)}"; expected "{device}"', where=str(path))
    for name, shape in expected.items():
        if name not in layers or layers[name].shape != shape or not np.isfinite(layers[name]).all():
            raise InputError(f'array "{name}": expected finite numbers of shape {shape}', where=str(path))
    facts = {key: value for key, value in tag.items() if key not in ("device", "features", "strategies")}
    return Network(layers, device, facts)
