"""Makes tensors to decompose: weights that look trained, a small network that is trained, and tensors whose ranks are known."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from armillary.errors import unknown
from armillary.extras import need

Array = np.ndarray[Any, Any]
BUILT_IN = ("resnet32", "gaussian", "video", "hilbert", "sum", "transformer", "digits")


@dataclass(frozen=True, eq=False)
class Tensors:
    """Named tensors, as they are decomposed; `judge` gives a network's accuracy in per cent with other weights, where there is one."""

    layers: dict[str, Array]
    judge: Any = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Values in all."""
        return sum(a.size for a in self.layers.values())


def resnet32_shapes() -> list[tuple[int, ...]]:
    """Returns the 32 weights of CIFAR's ResNet-32: 461,872 values."""
    first = [(16, 3, 3, 3), *[(16, 16, 3, 3)] * 10]
    middle = [(32, 16, 3, 3), *[(32, 32, 3, 3)] * 9]
    last = [(64, 32, 3, 3), *[(64, 64, 3, 3)] * 9, (64, 10)]
    return [*first, *middle, *last]


def looks_trained(shape: tuple[int, ...], rng: np.random.Generator, decay: float = 0.8, noise: float = 0.05) -> Array:
    """Returns a tensor each of whose unfoldings has singular values that fall like i^(−decay), and a share of noise. float32."""
    core = rng.normal(size=shape)
    for axis, n in enumerate(shape):
        turn, _ = np.linalg.qr(rng.normal(size=(n, n)))
        fall = (1.0 + np.arange(n)) ** -decay
        core = np.moveaxis(np.tensordot(turn * fall, core, (1, axis)), 0, axis)
    core /= np.linalg.norm(core)
    other = rng.normal(size=shape)
    return (core + noise * other / np.linalg.norm(other)).astype(np.float32)


def built_in(name: str, rng: np.random.Generator, scale: str = "small", decay: float = 0.8, noise: float = 0.05) -> Tensors:
    """Returns the named tensors; `scale` tiny, small or large. `decay` and `noise` are those of ResNet-32's weights."""
    tiny = scale == "tiny"
    if name in ("resnet32", "gaussian"):
        shapes = resnet32_shapes()[:: 8 if tiny else 1]
        if name == "resnet32":
            return Tensors({f"layer{i}": looks_trained(shape, rng, decay, noise) for i, shape in enumerate(shapes)})
        return Tensors({f"layer{i}": rng.normal(size=shape).astype(np.float32) for i, shape in enumerate(shapes)})
    if name == "video":
        return Tensors({"video": _video(8 if tiny else 24 if scale == "small" else 64, rng)})
    if name == "hilbert":
        n = 6 if tiny else 16 if scale == "small" else 40
        return Tensors({"hilbert": 1.0 / (1.0 + _indices(n))})
    if name == "sum":
        n = 8 if tiny else 20 if scale == "small" else 60
        return Tensors({"sum": _indices(n)})
    if name == "transformer":
        width = 64 if tiny else 256 if scale == "small" else 768
        layers = 1 if tiny else 2 if scale == "small" else 12
        shapes = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)] * layers
        return Tensors({f"linear{i}": looks_trained(shape, rng) for i, shape in enumerate(shapes)})
    if name == "digits":
        return trained_digits(epochs=4 if tiny else 30)
    raise unknown("tensors", name, BUILT_IN)


def _indices(n: int) -> Array:
    """Returns i + j + k + l over n⁴ places."""
    return np.indices((n, n, n, n)).sum(axis=0).astype(np.float64)


def _video(n: int, rng: np.random.Generator) -> Array:
    """Returns blobs that wander, as time × height × width × colour, smooth in all of them."""
    t, y, x = np.ogrid[0 : 1 : n * 1j, 0 : 1 : 2j * n, 0 : 1 : 2j * n]
    frames = np.zeros((n, 2 * n, 2 * n, 3))
    for _ in range(5):
        at, to, colour, wide = rng.random(2), rng.random(2), rng.random(3), rng.uniform(0.1, 0.3)
        blob = np.exp(-((y - at[0] - t * (to[0] - at[0])) ** 2 + (x - at[1] - t * (to[1] - at[1])) ** 2) / wide**2)
        frames += blob[..., None] * colour
    return frames.astype(np.float32)


@functools.lru_cache(maxsize=1)
def trained_digits(seed: int = 0, epochs: int = 30) -> Tensors:
    """Trains a small residual network on scikit-learn's digits (1,797 images of 8×8, a fifth held out); returns it and its judge."""
    torch, load_digits = need("torch"), need("sklearn.datasets").load_digits
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(1, 32, 3, padding=1)
            self.second = nn.Conv2d(32, 32, 3, padding=1)
            self.third = nn.Conv2d(32, 64, 3, padding=1, stride=2)
            self.fourth = nn.Conv2d(64, 64, 3, padding=1)
            self.last = nn.Linear(64 * 16, 10)

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.first(x))
            x = torch.relu(x + self.second(x))
            x = torch.relu(self.third(x))
            x = torch.relu(x + self.fourth(x))
            return self.last(x.flatten(1))

    data = load_digits()
    images = torch.tensor(data.images[:, None] / 16.0, dtype=torch.float32)
    labels = torch.tensor(data.target)
    before = torch.random.get_rng_state()
    torch.manual_seed(seed)
    try:
        order = torch.randperm(len(labels))
        held, used = order[:360], order[360:]
        net = Net()
        optimiser = torch.optim.Adam(net.parameters(), lr=2e-3)
        for _ in range(epochs):
            for batch in used[torch.randperm(len(used))].split(128):
                optimiser.zero_grad()
                nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
                optimiser.step()
    finally:
        torch.random.set_rng_state(before)
    layers = {name: p.detach().numpy().copy() for name, p in net.named_parameters() if p.ndim > 1}

    def judge(weights: dict[str, Array]) -> float:
        with torch.no_grad():
            for name, p in net.named_parameters():
                if name in layers:
                    p.copy_(torch.tensor(weights.get(name, layers[name])))
            return 100.0 * float((net(images[held]).argmax(1) == labels[held]).float().mean())

    return Tensors(layers, judge)
